// SPDX-License-Identifier: Apache-2.0
/* pt-walk blob: decode/pt/flow.h on bytes and flat code. */
#include <stdio.h>
#include <string.h>

#include "decode/pt/packet.h"
#include "tests/unit/decode/pt/pt-walk.h"

#define MAX_IMAGES 64u

struct image {
	const uint8_t *bytes;
	uint64_t address, n;
};

struct blob {
	struct image images[MAX_IMAGES];
	size_t n_images;
	bool events;
	bool no_resync; /* behind an error it goes on at the next PSB, as libipt did up to 2.1 */
	uint64_t lost; /* where, from where it went on */
	struct ptwalk_ips ips;
};

static const struct image *image_at(const struct blob *b, uint64_t ip)
{
	for (size_t i = 0; i < b->n_images; i++)
		if (ip >= b->images[i].address && ip - b->images[i].address < b->images[i].n)
			return &b->images[i];
	return NULL;
}

/* An instruction may begin in one image and end in the next. */
static size_t read_code(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const struct blob *b = arg;
	const struct image *m = image_at(b, ip);
	size_t got = 0;

	if (m && m->n - (ip - m->address) >= n) {
		*ret = m->bytes + (ip - m->address);
		return (size_t)(m->n - (ip - m->address));
	}
	for (; got < n && (m = image_at(b, ip + got)); got++)
		buffer[got] = m->bytes[ip + got - m->address];
	*ret = buffer;
	return got;
}

#define STOPPED (-1)

static int on_events(void *arg, const struct ptflow_event *events, size_t n)
{
	struct blob *b = arg;

	for (size_t i = 0; i < n; i++) {
		const struct ptflow_event *e = &events[i];
		if (b->events)
			(void)printf("%6lx %-13s %lx => %lx error %u time %lu\n", e->offset,
				     ptwalk_kind(e->kind), e->from, e->to, e->error, e->time);
		if (e->start && !ptwalk_line(&b->ips, e, read_code, b))
			(void)fprintf(stderr, "line %lx without code\n", e->start);
		if (b->no_resync && e->kind == PTFLOW_DESYNC) {
			b->lost = e->offset;
			return STOPPED;
		}
	}
	return 0;
}

static void add_image(struct blob *b, char **argv)
{
	uint64_t offset, length, address;
	size_t size;
	const uint8_t *bytes = ptwalk_file(argv[0], &size);

	if (!ptwalk_u64(argv[1], &offset) || !ptwalk_u64(argv[2], &length) ||
	    !ptwalk_u64(argv[3], &address) || offset > size || b->n_images == MAX_IMAGES)
		ptwalk_bad_usage(argv[0]);
	if (length == 0 || length > size - offset)
		length = size - offset;
	b->images[b->n_images++] =
		(struct image){.bytes = bytes + offset, .address = address, .n = length};
}

int ptwalk_blob(int argc, char **argv)
{
	static struct blob b;
	struct ptflow_options o = {.sink = on_events, .arg = &b, .all = true};
	_cleanup_(codeblocks_freep) struct codeblocks *code = NULL;
	_cleanup_(ptflow_freep) struct ptflow *f = NULL;
	const struct ptflow_stats *s;
	struct ptflow_range range;
	const uint8_t *trace;
	size_t n;

	trace = ptwalk_file(argv[0], &n);
	for (int i = 1; i < argc;) {
		if (strcmp(argv[i], "--cpu") == 0 && i + 1 < argc) {
			ptwalk_cpu(argv[i + 1], &o.errata);
			i += 2;
		} else if (strcmp(argv[i], "--filter") == 0 && i + 1 < argc &&
			   sscanf(argv[i + 1], "%lx,%lx", &range.first, &range.last) == 2) {
			o.filter = &range;
			o.n_filter = 1;
			i += 2;
		} else if (strcmp(argv[i], "--no-resync") == 0) {
			b.no_resync = true;
			i++;
		} else if (strcmp(argv[i], "--events") == 0) {
			b.events = true;
			i++;
		} else if (i + 3 < argc) {
			add_image(&b, argv + i);
			i += 4;
		} else {
			ptwalk_bad_usage(argv[i]);
		}
	}
	ptwalk_ips_init(&b.ips, !b.events);
	if (codeblocks_new(read_code, NULL, &b, 64u << 20, &code) < 0)
		return 2;
	o.code = code;
	if (ptflow_new(&o, &f) < 0)
		return 2;
	for (const uint8_t *at = trace; at;) {
		const int r = ptflow_run(f, at, trace + n, NULL);

		if (r < 0 && r != STOPPED)
			return 2;
		at = r == STOPPED ? ptpacket_find_psb(at + b.lost, trace + n) : NULL;
	}
	s = ptflow_stats(f);
	(void)fflush(stdout);
	(void)fprintf(
		stderr,
		"instructions %lu ips_fnv1a64 %016lx no_code %lu mismatch %lu packet %lu return %lu runaway %lu "
		"overflows %lu counted %lu\n",
		b.ips.n, b.ips.hash, s->errors[PTFLOW_E_NO_CODE], s->errors[PTFLOW_E_MISMATCH],
		s->errors[PTFLOW_E_PACKET], s->errors[PTFLOW_E_RETURN], s->errors[PTFLOW_E_RUNAWAY],
		s->overflows, s->insns);
	return 0;
}
