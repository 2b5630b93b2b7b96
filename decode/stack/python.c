// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/stack/python.h"

#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/bundle/schedev.h"
#include "common/control/json.h"

#define NAME_SIZE (PYTHON_FILE_BYTES * 4 + 8)
/* What the interpreter runs for itself is drawn as nothing. */
#define FRAME_NONE UINT32_MAX

void python_init(struct python *p, struct stacktab *st, struct budget *budget)
{
	*p = (struct python){.st = st, .budget = budget};
}

void python_fini(struct python *p)
{
	hashmap_fini(&p->functions);
}

/* ---- names */

static size_t put_utf8(char *to, uint32_t c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/*
 * Safe text of a string of the interpreter. What is no character is escaped as the bytes that it
 * makes.
 */
static void take_text(char *to, size_t size, const uint8_t *bytes, size_t n, uint8_t kind,
		      const char *before, const char *after)
{
	char utf8[PYTHON_FILE_BYTES * 2 + 8];
	size_t len = 0;

	for (size_t i = 0; kind && i + kind <= n && len + 4 <= sizeof(utf8); i += kind) {
		uint32_t c = 0;

		memcpy(&c, bytes + i, kind);
		len += put_utf8(utf8 + len, c <= 0x10ffff ? c : 0xfffd);
	}
	escape_text(to, size, utf8, len);
	if (!*before && !*after)
		return;
	len = strlen(to);
	if (len + strlen(before) + strlen(after) + 1 > size)
		return;
	memmove(to + strlen(before), to, len + 1);
	memcpy(to, before, strlen(before));
	memcpy(to + strlen(before) + len, after, strlen(after) + 1);
}

static uint32_t function_frame(struct python *p, const struct python_function *f)
{
	char name[NAME_SIZE], file[NAME_SIZE];

	take_text(name, sizeof(name), f->name, f->name_bytes, f->name_kind, "",
		  f->name_cut ? "..." : "");
	take_text(file, sizeof(file), f->file, f->file_bytes, f->file_kind,
		  f->file_cut ? "..." : "", "");
	/* With which a class is called: it has no place in any file. */
	if (f->line == 0 && strcmp(file, "__init__") == 0)
		return FRAME_NONE;
	return stacktab_frame(p->st,
			      &(struct frame_info){.name = *name ? name : "[no name]",
						   .object = "[python]",
						   .file = file,
						   .line = f->line <= INT32_MAX ? f->line : 0,
						   .kind = FRAME_KIND_PYTHON});
}

static bool is_text(uint16_t bytes, uint8_t kind, size_t room)
{
	return bytes <= room && (kind == 1 || kind == 2 || kind == 4);
}

bool python_take_function(struct python *p, const struct perfevent *ev)
{
	struct tracerd_sched_event e;
	struct python_function f;
	size_t more;

	if (ev->kind != PERFEVENT_SAMPLE || !perfattr_is_bpf_output(ev->attr) ||
	    ev->sample.raw_size < sizeof(e) + sizeof(f))
		return false;
	memcpy(&e, ev->sample.raw, sizeof(e));
	if (e.magic != SCHEDEV_MAGIC || e.kind != SCHEDEV_FUNCTION)
		return false;
	memcpy(&f, ev->sample.raw + sizeof(e), sizeof(f));
	more = hashmap_more_bytes(&p->functions);
	if (!f.id || !is_text(f.name_bytes, f.name_kind, sizeof(f.name)) ||
	    !is_text(f.file_bytes, f.file_kind, sizeof(f.file)) || !budget_take(p->budget, more)) {
		p->refused++;
	} else if (hashmap_put(&p->functions, 0, f.id, function_frame(p, &f)) < 0) {
		budget_give(p->budget, more);
		p->refused++;
	}
	return true;
}

/* ---- stacks */

static uint64_t word_at(const uint8_t *words, uint32_t i)
{
	return load_u64(words + (size_t)i * 8);
}

bool python_part_of(const struct perfevent *ev, struct python_part *ret)
{
	const struct perfevent_sample *s = &ev->sample;
	struct tracerd_sched_event e;
	size_t skip = 2 * sizeof(uint32_t);
	uint64_t head;

	if (s->raw_size < skip + sizeof(head))
		return false;
	if (perfattr_is_bpf_output(ev->attr)) {
		skip = sizeof(e);
		if (s->raw_size < skip + sizeof(head))
			return false;
		memcpy(&e, s->raw, sizeof(e));
		if (e.magic != SCHEDEV_MAGIC || !(e.flags & SCHEDEV_PYTHON))
			return false;
	} else if (load_u32(s->raw) != PYTHON_MAGIC) {
		return false;
	}
	head = load_u64(s->raw + skip);
	if ((head & PYTHON_HEAD_MASK) != PYTHON_HEAD)
		return false;
	*ret = (struct python_part){.words = s->raw + skip + sizeof(head),
				    .n = PYTHON_COUNT(head),
				    .why = PYTHON_WHY(head),
				    .native_cut = head & PYTHON_NATIVE_CUT,
				    .stopped = head & PYTHON_STOPPED,
				    .runs = head & PYTHON_RUNS};
	if (ret->why >= PYTHON_WHYS || ret->n > (s->raw_size - skip) / sizeof(uint64_t) - 1)
		return false;
	for (uint32_t i = 0; i < ret->n; i++)
		ret->n_calls += (word_at(ret->words, i) & PYTHON_ENTRY) != 0;
	/* Of the outermost one the rest is missing. */
	if (ret->n && !(word_at(ret->words, ret->n - 1) & PYTHON_ENTRY))
		ret->n_calls++;
	return true;
}

static bool is_found(const struct python_part *part)
{
	return part->why == PYTHON_COMPLETE || part->why == PYTHON_DEEP;
}

void python_place(struct python *p, struct python_part *part, uint32_t n_native, bool innermost,
		  bool whole)
{
	const bool native = whole && !part->native_cut;
	bool all;

	p->stacks++;
	/*
	 * What the loop has called does not change who has called whom; while it is at work itself,
	 * it may.
	 */
	if (part->stopped && (innermost || !n_native) && is_found(part))
		part->why = PYTHON_BETWEEN;
	if (!is_found(part)) {
		p->not_found[part->why] += n_native > 0 || part->n > 0;
		part->n = part->n_calls = 0;
		return;
	}
	all = part->why == PYTHON_COMPLETE;
	if (all && native) {
		/* A call that has just begun, or is about to return, has no frame. */
		part->skip = n_native == part->n_calls + 1 && innermost && !part->runs;
		part->placed = n_native == part->n_calls + part->skip;
	} else {
		/* From within: what has called something has its frames. */
		part->placed = !innermost && (native ? n_native >= part->n_calls
						     : !all || n_native <= part->n_calls);
		part->outer = part->placed && n_native < part->n_calls;
	}
	p->without_place += !part->placed && (n_native || part->n);
}

static uint32_t push_word(struct python *p, uint64_t word, uint32_t stack)
{
	const uint64_t id = word & PYTHON_ID_MASK;
	uint32_t frame;

	if (word & PYTHON_BORDER)
		return stack;
	frame = id ? hashmap_index(&p->functions, 0, id) : 0;
	if (frame == FRAME_NONE)
		return stack;
	p->frames++;
	if (!frame) {
		p->without_name++;
		if (!p->unnamed)
			p->unnamed = stacktab_frame(
				p->st,
				&(struct frame_info){.name = "[Python function without a name]",
						     .object = "[python]",
						     .kind = FRAME_KIND_UNKNOWN});
		frame = p->unnamed;
	}
	return stacktab_push(p->st, stack, frame);
}

/* The words of a call are [*from, *to), the innermost first. */
static bool find_call(const struct python_part *part, uint32_t call, uint32_t *from, uint32_t *to)
{
	uint32_t at = 0;

	if (call >= part->n_calls)
		return false;
	for (uint32_t i = 0; i < call; i++) {
		while (at < part->n && !(word_at(part->words, at) & PYTHON_ENTRY))
			at++;
		at++;
	}
	*from = at;
	while (at < part->n && !(word_at(part->words, at) & PYTHON_ENTRY))
		at++;
	*to = at < part->n ? at + 1 : part->n;
	return true;
}

static uint32_t push_numbered(struct python *p, const struct python_part *part, uint32_t call,
			      uint32_t stack)
{
	uint32_t from = 0, to = 0;
	const bool is_there = find_call(part, call, &from, &to);

	/* What is behind the last word was not looked at. */
	if (part->why == PYTHON_DEEP &&
	    (!is_there || !(word_at(part->words, to - 1) & PYTHON_ENTRY))) {
		if (!p->cut)
			p->cut = stacktab_frame(
				p->st, &(struct frame_info){.name = "[Python callers unknown]",
							    .object = "[python]",
							    .kind = FRAME_KIND_MISSING});
		stack = stacktab_push(p->st, stack, p->cut);
	}
	while (to > from)
		stack = push_word(p, word_at(part->words, --to), stack);
	return stack;
}

uint32_t python_push_outer(struct python *p, const struct python_part *part, uint32_t n_native,
			   uint32_t stack)
{
	if (part->placed) {
		for (uint32_t call = part->n_calls; part->outer && call > n_native; call--)
			stack = push_numbered(p, part, call - 1, stack);
		return stack;
	}
	if (!part->n)
		return stack;
	if (!p->unplaced)
		p->unplaced = stacktab_frame(
			p->st,
			&(struct frame_info){
				.name = "[Python functions: where among the others is not known]",
				.object = "[python]",
				.kind = FRAME_KIND_MISSING});
	stack = stacktab_push(p->st, stack, p->unplaced);
	for (uint32_t call = part->n_calls; call > 0; call--)
		stack = push_numbered(p, part, call - 1, stack);
	return stack;
}

uint32_t python_push_call(struct python *p, const struct python_part *part, uint32_t inner,
			  uint32_t stack)
{
	if (!is_found(part)) {
		if (!p->unknown)
			p->unknown = stacktab_frame(
				p->st, &(struct frame_info){.name = "[Python functions not known]",
							    .object = "[python]",
							    .kind = FRAME_KIND_MISSING});
		return stacktab_push(p->st, stack, p->unknown);
	}
	if (!part->placed || inner < part->skip)
		return stack;
	return push_numbered(p, part, inner - part->skip, stack);
}

void python_report(const struct python *p, struct json_object *stats, struct json_object *losses)
{
	const struct {
		const char *key;
		uint64_t n;
	} lost[] = {
		{"python_functions_refused", p->refused},
		{"python_frames_without_name", p->without_name},
		{"python_stacks_without_place", p->without_place},
		{"python_stacks_of_unknown_threads",
		 p->not_found[PYTHON_NO_THREAD] + p->not_found[PYTHON_CROWDED]},
		{"python_stacks_unreadable", p->not_found[PYTHON_NO_READ]},
		{"python_stacks_between_functions", p->not_found[PYTHON_BETWEEN]},
		{"python_stacks_of_subinterpreters", p->not_found[PYTHON_SUBINTERPRETERS]},
	};

	if (p->stacks) {
		json_add_uint(stats, "python_stacks", p->stacks);
		json_add_uint(stats, "python_frames", p->frames);
	}
	for (size_t i = 0; i < ARRAY_SIZE(lost); i++)
		if (lost[i].n)
			json_add_uint(losses, lost[i].key, lost[i].n);
}
