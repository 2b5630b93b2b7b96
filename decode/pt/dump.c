// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/dump_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/base/path.h"

/* ---- text */

int dump_text_reserve(struct text *t)
{
	size_t room = t->room ? t->room * 2 : DUMP_LINE_MAX * 2;
	char *v;

	if (t->room - t->n >= DUMP_LINE_MAX)
		return 0;
	v = realloc(t->bytes, room);
	if (!v)
		return -ENOMEM;
	t->bytes = v;
	t->room = room;
	return 0;
}

void dump_put(struct text *t, const char *s)
{
	size_t n = strlen(s);

	if (n > DUMP_LINE_MAX / 8)
		n = DUMP_LINE_MAX / 8;
	memcpy(t->bytes + t->n, s, n);
	t->n += n;
}

void dump_put_char(struct text *t, char c)
{
	t->bytes[t->n++] = c;
}

void dump_put_number(struct text *t, uint64_t value, unsigned int base, unsigned int width)
{
	char digits[24];
	unsigned int n = 0;

	do {
		digits[n++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	for (; width > n; width--)
		dump_put_char(t, ' ');
	while (n)
		dump_put_char(t, digits[--n]);
}

void dump_put_time(struct text *t, struct dump_time at, unsigned int width)
{
	const size_t before = t->n;

	dump_put_number(t, at.ns, 10, width);
	if (!at.interpolated)
		return;
	/* in the column's first free place, or in one more */
	if (t->bytes[before] == ' ') {
		size_t i = before;

		while (t->bytes[i + 1] == ' ')
			i++;
		t->bytes[i] = '~';
		return;
	}
	memmove(t->bytes + before + 1, t->bytes + before, t->n - before);
	t->bytes[before] = '~';
	t->n++;
}

void dump_put_spaces(struct text *t, unsigned int n)
{
	while (n--)
		dump_put_char(t, ' ');
}

void dump_put_function(const struct dump *v, struct text *t, uint32_t frame, uint64_t into)
{
	struct frame_info info;

	stacktab_info(v->o.st, frame, &info);
	dump_put(t, *info.name ? info.name : "[unknown]");
	if (into) {
		dump_put(t, "+0x");
		dump_put_number(t, into, 16, 0);
	}
	/* a name in brackets is the object's already */
	if (*info.object && info.name[0] != '[') {
		dump_put(t, " (");
		dump_put(t, base_name(info.object));
		dump_put_char(t, ')');
	}
}

/* ---- the file */

static int emit(struct dump *v, const char *bytes, size_t n)
{
	int r;

	if (v->stats.cut)
		return 0;
	if (v->o.max_bytes && n > v->o.max_bytes - v->stats.bytes) {
		/* whole lines, as many as there is room for */
		n = (size_t)(v->o.max_bytes - v->stats.bytes);
		while (n && bytes[n - 1] != '\n')
			n--;
		v->stats.cut = true;
	}
	r = io_write_all(v->o.fd, bytes, n);
	if (r < 0) {
		v->stats.write_error = r;
		return r;
	}
	v->stats.bytes += n;
	return 0;
}

int dump_emit(struct dump *v, struct text *t)
{
	int r = emit(v, t->bytes, t->n);

	t->n = 0;
	return r;
}

int dump_new(const struct dump_options *options, struct dump **ret)
{
	static const char *const heads[] = {
		[DUMP_NONE] = "",
		[DUMP_CALLS] = "# tracerd calls 1\n#         time         ns     insns\n",
		[DUMP_BRANCHES] = "# tracerd branches 1\n",
		[DUMP_INSNS] = "# tracerd instructions 1\n",
	};
	_cleanup_(dump_freep) struct dump *v = calloc(1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	v->o = *options;
	v->last = &v->first;
	if (dump_text_reserve(&v->text) < 0)
		return -ENOMEM;
	dump_put(&v->text, heads[v->o.kind]);
	if (v->o.kind == DUMP_CALLS && spool_new(v->o.scratch_fd, &v->spool) < 0)
		return -ENOMEM;
	*ret = take_ptr(v);
	return 0;
}

struct dump *dump_free(struct dump *v)
{
	if (!v)
		return NULL;
	dump_calls_free(v);
	free(v->text.bytes);
	free(v);
	return NULL;
}

enum dump_kind dump_kind(const struct dump *v)
{
	return v ? v->o.kind : DUMP_NONE;
}

const struct dump_stats *dump_stats(const struct dump *v)
{
	return &v->stats;
}

int dump_finish(struct dump *v)
{
	int r = dump_emit(v, &v->text);

	return r < 0 || v->o.kind != DUMP_CALLS ? r : dump_calls_finish(v);
}

/* ---- branches, instructions */

static void put_place(const struct dump *v, struct text *t, const struct dump_place *p)
{
	if (!p->ip) {
		dump_put_char(t, '-');
		return;
	}
	dump_put_number(t, p->ip, 16, 0);
	dump_put_char(t, ' ');
	if (p->frame)
		dump_put_function(v, t, p->frame, p->into);
	else
		dump_put(t, "[unknown]");
	if (p->line) {
		dump_put_char(t, ' ');
		dump_put(t, p->line);
	}
}

static int flat_begin(struct dump *v, struct dump_time at, uint32_t tid)
{
	int r = dump_text_reserve(&v->text);

	if (r < 0)
		return r;
	dump_put_time(&v->text, at, 0);
	dump_put_char(&v->text, ' ');
	dump_put_number(&v->text, tid, 10, 0);
	dump_put_char(&v->text, ' ');
	return 0;
}

static int flat_end(struct dump *v)
{
	dump_put_char(&v->text, '\n');
	v->stats.lines++;
	return v->text.n < DUMP_PIECE_BYTES ? 0 : dump_emit(v, &v->text);
}

int dump_branch(struct dump *v, struct dump_time at, uint32_t tid, const struct ptflow_event *e,
		  const struct dump_place *from, const struct dump_place *to)
{
	static const char *const kinds[] = {
		[PTFLOW_RUN] = "run",
		[PTFLOW_COND] = "cond",
		[PTFLOW_JUMP] = "jump",
		[PTFLOW_JUMP_INDIRECT] = "jump*",
		[PTFLOW_CALL] = "call",
		[PTFLOW_CALL_INDIRECT] = "call*",
		[PTFLOW_RET] = "ret",
		[PTFLOW_FAR] = "far",
		[PTFLOW_ASYNC] = "interrupt",
		[PTFLOW_ENABLE] = "begin",
		[PTFLOW_DISABLE] = "end",
		[PTFLOW_DISABLE_ASYNC] = "stop",
		[PTFLOW_OVERFLOW] = "overflow",
		[PTFLOW_DESYNC] = "lost",
		[PTFLOW_RESYNC] = "found",
	};
	int r = flat_begin(v, at, tid);

	if (r < 0)
		return r;
	dump_put(&v->text, e->kind == PTFLOW_FAR && e->is_syscall ? "syscall" : kinds[e->kind]);
	dump_put_char(&v->text, ' ');
	put_place(v, &v->text, from);
	dump_put(&v->text, " -> ");
	put_place(v, &v->text, to);
	if (e->error) {
		dump_put(&v->text, " # ");
		dump_put(&v->text, ptflow_error_name(e->error));
	}
	return flat_end(v);
}

int dump_insn(struct dump *v, struct dump_time at, uint32_t tid, const struct dump_place *place)
{
	int r = flat_begin(v, at, tid);

	if (r < 0)
		return r;
	put_place(v, &v->text, place);
	return flat_end(v);
}
