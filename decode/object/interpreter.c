// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/interpreter.h"

#include <string.h>

#include "decode/base/bytes.h"

#define LOOP "_PyEval_EvalFrameDefault"
#define PART_MAX (1u << 20)
#define WINDOW 4096u
#define JUMP_MAX 6u
/*
 * Bytes that look like a jump into the middle of the function are not as many by chance: nobody
 * else jumps there.
 */
#define JUMPS_MIN 4u

bool interpreter_is(const struct symbol *sym)
{
	const size_t len = sizeof(LOOP) - 1;

	return sym->name_len >= len && memcmp(sym->name, LOOP, len) == 0 &&
	       (sym->name_len == len ||
		(sym->name_len == len + 5 && memcmp(sym->name + len, ".cold", 5) == 0));
}

/*
 * How long the jump at `p` is, of `n` bytes, and where it leads from its end; 0: it is none with a
 * target of 32 bits.
 */
static size_t jump_at(const uint8_t *p, size_t n, int32_t *ret)
{
	const size_t at = p[0] == 0xe9 ? 1 : p[0] == 0x0f && n > 1 && (p[1] & 0xf0) == 0x80 ? 2 : 0;

	if (!at || at + sizeof(*ret) > n)
		return 0;
	memcpy(ret, p + at, sizeof(*ret));
	return at + sizeof(*ret);
}

/* Jumps from the part into the function, but not to its begin, which is where it is called. */
static unsigned int count_jumps(const struct image *img, const struct extent *part,
				const struct symbol *to)
{
	uint8_t buf[WINDOW + JUMP_MAX - 1];
	unsigned int found = 0;

	for (uint64_t at = part->start; at < part->end && found < JUMPS_MIN; at += WINDOW) {
		const uint64_t left = part->end - at;
		const size_t n =
			image_read(img, at, buf, left < sizeof(buf) ? (size_t)left : sizeof(buf));

		for (size_t i = 0; i < n && i < WINDOW; i++) {
			int32_t off = 0;
			const size_t len = jump_at(buf + i, n - i, &off);
			const uint64_t target = at + i + len + (uint64_t)(int64_t)off;

			found += len && target > to->addr && target - to->addr < to->size;
		}
	}
	return found;
}

const struct symbol *interpreter_of_part(const struct image *img, const struct extent *part)
{
	if (!part->framed || !img->x86_64 || part->end - part->start > PART_MAX)
		return NULL;
	for (size_t i = 0; i < img->symbols.n; i++) {
		const struct symbol *sym = &img->symbols.v[i];

		if (interpreter_is(sym) && sym->sized)
			return count_jumps(img, part, sym) >= JUMPS_MIN ? sym : NULL;
	}
	return NULL;
}
