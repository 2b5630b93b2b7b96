// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/dump.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "common/base/io.h"

#define PIECE_BYTES (64u << 10)
#define ALL_BYTES (16u << 20) /* of all threads together */
#define LINE_MAX (8u << 10)
#define MAX_INDENT 64u /* calls deeper than that say how deep they are */

struct text {
	char *bytes;
	size_t n, room;
};

struct open_call {
	uint32_t frame;
	struct dump_time at;
	const char *how, *site;
};

struct dump_thread {
	struct dump *v;
	uint32_t pid, tid;
	char *name;
	struct text text;
	uint32_t depth;
	bool pending; /* the innermost call, `last`, is not written yet: it may be one line */
	struct open_call last;
	struct dump_thread *next;
};

struct dump {
	struct dump_options o;
	struct hashmap threads;
	struct dump_thread *first, **last; /* in the order in which they came */
	const struct dump_thread *written; /* whose lines are last in the file */
	size_t held; /* bytes of all threads */
	struct text text;
	struct dump_stats stats;
};

/* ---- text */

static int text_reserve(struct text *t)
{
	size_t room = t->room ? t->room * 2 : LINE_MAX * 2;
	char *v;

	if (t->room - t->n >= LINE_MAX)
		return 0;
	v = realloc(t->bytes, room);
	if (!v)
		return -ENOMEM;
	t->bytes = v;
	t->room = room;
	return 0;
}

/* A line has room for what is put here: text_reserve(), and names are cut. */
static void put(struct text *t, const char *s)
{
	size_t n = strlen(s);

	if (n > LINE_MAX / 8)
		n = LINE_MAX / 8;
	memcpy(t->bytes + t->n, s, n);
	t->n += n;
}

static void put_char(struct text *t, char c)
{
	t->bytes[t->n++] = c;
}

static void put_number(struct text *t, uint64_t value, unsigned int base, unsigned int width)
{
	char digits[24];
	unsigned int n = 0;

	do {
		digits[n++] = "0123456789abcdef"[value % base];
		value /= base;
	} while (value);
	for (; width > n; width--)
		put_char(t, ' ');
	while (n)
		put_char(t, digits[--n]);
}

static void put_time(struct text *t, struct dump_time at, unsigned int width)
{
	const size_t before = t->n;

	put_number(t, at.ns, 10, width);
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

static void put_spaces(struct text *t, unsigned int n)
{
	while (n--)
		put_char(t, ' ');
}

static const char *base_name(const char *path)
{
	const char *slash = strrchr(path, '/');

	return slash && slash[1] ? slash + 1 : path;
}

static void put_function(const struct dump *v, struct text *t, uint32_t frame, uint64_t into)
{
	struct frame_info info;

	stacktab_info(v->o.st, frame, &info);
	put(t, *info.name ? info.name : "[unknown]");
	if (into) {
		put(t, "+0x");
		put_number(t, into, 16, 0);
	}
	/* a name in brackets is the object's already */
	if (*info.object && info.name[0] != '[') {
		put(t, " (");
		put(t, base_name(info.object));
		put_char(t, ')');
	}
}

/* Of the line on which a call begins: where the function is declared, what is special about it, where it is called. */
static void put_call(const struct dump *v, struct text *t, const struct open_call *c)
{
	struct frame_info info;

	put_function(v, t, c->frame, 0);
	stacktab_info(v->o.st, c->frame, &info);
	if (*info.file) {
		put_char(t, ' ');
		put(t, base_name(info.file));
		put_char(t, ':');
		put_number(t, info.line, 10, 0);
	}
	if (c->how) {
		put(t, " [");
		put(t, c->how);
		put_char(t, ']');
	}
	if (c->site) {
		put(t, " from ");
		put(t, c->site);
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

static int emit_text(struct dump *v, struct text *t)
{
	int r = emit(v, t->bytes, t->n);

	t->n = 0;
	return r;
}

static int emit_thread(struct dump *v, struct dump_thread *t)
{
	int r;

	if (t->text.n == 0)
		return 0;
	if (v->written != t) {
		r = text_reserve(&v->text);
		if (r < 0)
			return r;
		put(&v->text, v->written ? "\nthread " : "thread ");
		put_number(&v->text, t->pid, 10, 0);
		put_char(&v->text, '/');
		put_number(&v->text, t->tid, 10, 0);
		put(&v->text, " \"");
		put(&v->text, t->name);
		put(&v->text, "\"\n");
		r = emit_text(v, &v->text);
		if (r < 0)
			return r;
		v->written = t;
	}
	v->held -= t->text.n;
	return emit_text(v, &t->text);
}

static int emit_all(struct dump *v)
{
	int r = 0;

	for (struct dump_thread *t = v->first; t && r == 0; t = t->next)
		r = emit_thread(v, t);
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
	if (text_reserve(&v->text) < 0)
		return -ENOMEM;
	put(&v->text, heads[v->o.kind]);
	*ret = take_ptr(v);
	return 0;
}

struct dump *dump_free(struct dump *v)
{
	if (!v)
		return NULL;
	while (v->first) {
		struct dump_thread *t = v->first;

		v->first = t->next;
		free(t->name);
		free(t->text.bytes);
		free(t);
	}
	hashmap_fini(&v->threads);
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
	int r = emit_text(v, &v->text);

	return r < 0 ? r : emit_all(v);
}

/* ---- calls */

int dump_thread(struct dump *v, uint32_t pid, uint32_t tid, const char *name, struct dump_thread **ret)
{
	struct dump_thread *t = hashmap_pointer(&v->threads, tid);

	if (t && t->pid == pid && strcmp(t->name, name) == 0) {
		*ret = t;
		return 0;
	}
	/* under a new name it is another one to the reader, too */
	t = calloc(1, sizeof(*t));
	if (!t)
		return -ENOMEM;
	t->v = v;
	t->pid = pid;
	t->tid = tid;
	t->name = strdup(name);
	if (!t->name || hashmap_put_pointer(&v->threads, tid, t) < 0) {
		free(t->name);
		free(t);
		return -ENOMEM;
	}
	*v->last = t;
	v->last = &t->next;
	*ret = t;
	return 0;
}

static int line_begin(struct dump_thread *t, struct dump_time at)
{
	int r = text_reserve(&t->text);

	if (r == 0)
		put_time(&t->text, at, 16);
	return r;
}

static void line_indent(struct dump_thread *t, uint32_t depth)
{
	put(&t->text, "  ");
	put_spaces(&t->text, 2 * (depth < MAX_INDENT ? depth : MAX_INDENT));
	if (depth >= MAX_INDENT) {
		put_char(&t->text, '<');
		put_number(&t->text, depth, 10, 0);
		put(&t->text, "> ");
	}
}

static void line_counts(struct dump_thread *t, uint64_t ns, uint64_t insns)
{
	put_char(&t->text, ' ');
	put_number(&t->text, ns, 10, 10);
	put_char(&t->text, ' ');
	put_number(&t->text, insns, 10, 9);
}

static int line_end(struct dump_thread *t, size_t before)
{
	struct dump *v = t->v;
	int r;

	put_char(&t->text, '\n');
	v->stats.lines++;
	v->held += t->text.n - before;
	if (t->text.n < PIECE_BYTES && v->held < ALL_BYTES)
		return 0;
	/* the head */
	r = emit_text(v, &v->text);
	if (r == 0)
		r = t->text.n < PIECE_BYTES ? emit_all(v) : emit_thread(v, t);
	return r;
}

/* The innermost call turns out to have something in it. */
static int write_pending(struct dump_thread *t)
{
	const struct open_call *c = &t->last;
	const size_t before = t->text.n;
	int r;

	if (!t->pending)
		return 0;
	t->pending = false;
	r = line_begin(t, c->at);
	if (r < 0)
		return r;
	put_spaces(&t->text, 21);
	line_indent(t, t->depth - 1);
	put_call(t->v, &t->text, c);
	put(&t->text, " {");
	return line_end(t, before);
}

int dump_call(struct dump_thread *t, struct dump_time at, uint32_t frame, const char *how, const char *site)
{
	int r = write_pending(t);

	if (r < 0)
		return r;
	t->depth++;
	t->last = (struct open_call){.frame = frame, .at = at, .how = how, .site = site};
	t->pending = true;
	return 0;
}

int dump_return(struct dump_thread *t, struct dump_time at, const struct call *c, uint64_t insns)
{
	const size_t before = t->text.n;
	int r;

	if (t->depth == 0)
		return 0;
	t->depth--;
	r = line_begin(t, t->pending ? t->last.at : at);
	if (r < 0)
		return r;
	line_counts(t, at.ns - c->begin, insns);
	line_indent(t, t->depth);
	if (t->pending) {
		put_call(t->v, &t->text, &t->last);
	} else {
		put(&t->text, "} ");
		put_function(t->v, &t->text, c->frame, 0);
	}
	t->pending = false;
	return line_end(t, before);
}

int dump_remark(struct dump_thread *t, struct dump_time at, const char *what)
{
	int r = write_pending(t);
	const size_t before = t->text.n;

	if (r == 0)
		r = line_begin(t, at);
	if (r < 0)
		return r;
	put_spaces(&t->text, 21);
	line_indent(t, t->depth);
	put(&t->text, "-- ");
	put(&t->text, what);
	return line_end(t, before);
}

/* ---- branches, instructions */

static void put_place(const struct dump *v, struct text *t, const struct dump_place *p)
{
	if (!p->ip) {
		put_char(t, '-');
		return;
	}
	put_number(t, p->ip, 16, 0);
	put_char(t, ' ');
	if (p->frame)
		put_function(v, t, p->frame, p->into);
	else
		put(t, "[unknown]");
	if (p->line) {
		put_char(t, ' ');
		put(t, p->line);
	}
}

static int flat_begin(struct dump *v, struct dump_time at, uint32_t tid)
{
	int r = text_reserve(&v->text);

	if (r < 0)
		return r;
	put_time(&v->text, at, 0);
	put_char(&v->text, ' ');
	put_number(&v->text, tid, 10, 0);
	put_char(&v->text, ' ');
	return 0;
}

static int flat_end(struct dump *v)
{
	put_char(&v->text, '\n');
	v->stats.lines++;
	return v->text.n < PIECE_BYTES ? 0 : emit_text(v, &v->text);
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
	static const char *const errors[_PTFLOW_E_MAX] = {
		[PTFLOW_E_NO_CODE] = "no code",
		[PTFLOW_E_MISMATCH] = "packets and code contradict each other",
		[PTFLOW_E_PACKET] = "bad packet",
		[PTFLOW_E_RETURN] = "return without its call",
		[PTFLOW_E_RUNAWAY] = "loop without decisions",
	};
	int r = flat_begin(v, at, tid);

	if (r < 0)
		return r;
	put(&v->text, e->kind == PTFLOW_FAR && e->is_syscall ? "syscall" : kinds[e->kind]);
	put_char(&v->text, ' ');
	put_place(v, &v->text, from);
	put(&v->text, " -> ");
	put_place(v, &v->text, to);
	if (e->error && e->error < _PTFLOW_E_MAX) {
		put(&v->text, " # ");
		put(&v->text, errors[e->error]);
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
