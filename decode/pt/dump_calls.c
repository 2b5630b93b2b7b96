// SPDX-License-Identifier: Apache-2.0
/*
 * The calls of a thread, which are written when all of them are known: a caller that shows itself
 * late is around what it has called, and threads do not alternate. Until then lines are in a spool,
 * with their depth in the piece of the stack that they belong to. A piece begins where the thread
 * is seen in the middle of something; its record says who turned out to have been around it.
 */
#include "config.h"

#include "decode/pt/dump_internal.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "decode/base/path.h"

#define MAX_INDENT 64u /* calls deeper than that say how deep they are */
#define SPOOL_SLACK (1u << 20)

enum record { RECORD_LINE, RECORD_PIECE, RECORD_BASE, RECORD_OUTER };

/* What a record begins with. */
struct line_head {
	uint32_t record;
	uint32_t before; /* bytes of the columns before the indented part, which is the rest */
	int64_t depth; /* in the piece; less than 0: outside of where it was found */
	/*
	 * of BASE, the first call of a piece, and OUTER: what is said at its end, unless it is
	 * something else by now
	 */
	const char *how;
	bool open; /* there is more in it */
};

struct piece {
	struct line_head head;
	uint64_t outer; /* the outermost of those around it, 0: there is none */
	uint64_t n_outer;
	/*
	 * what is said of calls that were found in it, and what is to be said instead, of the first
	 * one and so many around it; NULL: the same
	 */
	const char *was, *is;
	uint64_t n_identified;
};

struct outer {
	struct line_head head;
	uint64_t inner; /* the next one within it, 0: it is the last */
	uint64_t number; /* as they came */
};

struct open_call {
	uint32_t frame;
	struct dump_time at;
	const char *how, *site;
	bool is_base;
};

struct dump_thread {
	struct dump *v;
	uint32_t pid, tid;
	char *name;
	struct spool_stream lines;
	uint64_t n_open;
	int64_t depth;
	bool base_next; /* the next call is the first of its piece */
	bool pending; /* the innermost call, `last`, is not written yet: it may be one line */
	struct open_call last;
	uint64_t piece_at; /* 0: before the first */
	struct piece piece;
	/*
	 * of those around it that have come together: the first, which is the outermost, and the
	 * last
	 */
	uint64_t batch, batch_last;
	struct dump_thread *next;
};

int dump_thread(struct dump *v, uint32_t pid, uint32_t tid, const char *name,
		struct dump_thread **ret)
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

void dump_calls_free(struct dump *v)
{
	v->spool = spool_free(v->spool);
	while (v->first) {
		struct dump_thread *t = v->first;

		v->first = t->next;
		free(t->name);
		free(t);
	}
	hashmap_fini(&v->threads);
	free(v->line.bytes);
}

/* ---- lines on their way to the spool */

static int failed(struct dump *v, int r)
{
	if (r < 0 && r != -ENOMEM)
		v->stats.scratch_error = r;
	return r;
}

static int append(struct dump_thread *t, const void *record, size_t n, uint64_t *ret)
{
	return failed(t->v, spool_append(t->v->spool, &t->lines, record, (uint32_t)n, ret));
}

static int patch(struct dump_thread *t, uint64_t at, const void *bytes, size_t n)
{
	return failed(t->v, spool_patch(t->v->spool, &t->lines, at, bytes, (uint32_t)n));
}

/* Nobody will read more than that. */
static bool is_full(const struct dump *v)
{
	return v->o.max_bytes && spool_bytes(v->spool) / 2 > v->o.max_bytes + SPOOL_SLACK;
}

/* `n`: the bytes of the record's head, which line_end() fills in. */
static int line_begin(struct dump_thread *t, size_t n, struct dump_time at)
{
	struct text *l = &t->v->line;
	int r = dump_text_reserve(l);

	if (r < 0)
		return r;
	l->n = n;
	dump_put_time(l, at, 16);
	return 0;
}

static void line_counts(struct text *l, uint64_t ns, uint64_t insns)
{
	dump_put_char(l, ' ');
	dump_put_number(l, ns, 10, 10);
	dump_put_char(l, ' ');
	dump_put_number(l, insns, 10, 9);
}

static void no_counts(struct text *l)
{
	dump_put_spaces(l, 21);
}

static void put_how(struct text *t, const char *how)
{
	if (!how)
		return;
	dump_put(t, " [");
	dump_put(t, how);
	dump_put_char(t, ']');
}

/*
 * Of the line on which a call begins: where the function is declared, what is special about it,
 * where it is called.
 */
static void put_call(const struct dump *v, struct text *t, const struct open_call *c)
{
	struct frame_info info;

	dump_put_function(v, t, c->frame, 0);
	stacktab_info(v->o.st, c->frame, &info);
	if (*info.file) {
		dump_put_char(t, ' ');
		dump_put(t, base_name(info.file));
		dump_put_char(t, ':');
		dump_put_number(t, info.line, 10, 0);
	}
	if (!c->is_base)
		put_how(t, c->how);
	if (c->site) {
		dump_put(t, " from ");
		dump_put(t, c->site);
	}
}

/* `base`: it is that of the first call of a piece, whose last word comes later. NULL: it is not. */
static int line_end(struct dump_thread *t, size_t before, int64_t depth,
		    const struct open_call *base, bool open)
{
	struct dump *v = t->v;
	const struct line_head head = {.record = base ? RECORD_BASE : RECORD_LINE,
		.before = (uint32_t)(before - sizeof(head)),
		.depth = depth,
		.how = base ? base->how : NULL,
		.open = base && open};
	uint64_t at;

	v->stats.lines++;
	memcpy(v->line.bytes, &head, sizeof(head));
	return append(t, v->line.bytes, v->line.n, &at);
}

/* The innermost call turns out to have something in it. */
static int write_pending(struct dump_thread *t)
{
	const struct open_call *c = &t->last;
	struct text *l = &t->v->line;
	size_t before;
	int r;

	if (!t->pending)
		return 0;
	t->pending = false;
	r = line_begin(t, sizeof(struct line_head), c->at);
	if (r < 0)
		return r;
	no_counts(l);
	before = l->n;
	put_call(t->v, l, c);
	if (!c->is_base)
		dump_put(l, " {");
	return line_end(t, before, t->depth - 1, c->is_base ? c : NULL, true);
}

int dump_resync(struct dump_thread *t)
{
	int r = write_pending(t);

	if (r < 0 || is_full(t->v))
		return r;
	t->piece = (struct piece){.head.record = RECORD_PIECE};
	t->n_open = 0;
	t->depth = 0;
	t->batch = t->batch_last = 0;
	t->base_next = true;
	return append(t, &t->piece, sizeof(t->piece), &t->piece_at);
}

/* Before whatever comes next. Positive: nobody will read it. */
static int go_on(struct dump_thread *t)
{
	int r = write_pending(t);

	if (r < 0 || is_full(t->v))
		return r < 0 ? r : 1;
	return t->piece_at ? 0 : dump_resync(t);
}

int dump_call(struct dump_thread *t, struct dump_time at, uint32_t frame, const char *how,
	      const char *site)
{
	int r = go_on(t);

	if (r != 0)
		return r < 0 ? r : 0;
	t->n_open++;
	t->depth++;
	/*
	 * what may be said better later is at the end of the line: not where the line of its call
	 * is
	 */
	t->last = (struct open_call){.frame = frame,
				     .at = at,
				     .how = how,
				     .site = site,
				     .is_base = t->base_next && !site};
	t->base_next = false;
	t->pending = true;
	return 0;
}

/*
 * Those that come together are one inside the other, and all of them around those that came before.
 */
static int link_outer(struct dump_thread *t, uint64_t at, bool is_last)
{
	struct piece *p = &t->piece;
	int r = 0;

	if (t->batch_last)
		r = patch(t, t->batch_last + offsetof(struct outer, inner), &at, sizeof(at));
	else
		t->batch = at;
	t->batch_last = at;
	if (r < 0 || !is_last)
		return r;
	r = patch(t, at + offsetof(struct outer, inner), &p->outer, sizeof(p->outer));
	p->outer = t->batch;
	t->batch = t->batch_last = 0;
	return r < 0 ? r : patch(t, t->piece_at, p, sizeof(*p));
}

int dump_outside(struct dump_thread *t, struct dump_time at, uint32_t frame, uint32_t more,
		 const char *how)
{
	const struct open_call c = {.frame = frame, .at = at, .is_base = true};
	struct outer o = {.head = {.record = RECORD_OUTER, .how = how, .open = true}};
	struct text *l = &t->v->line;
	uint64_t place;
	int r = go_on(t);

	if (r == 0)
		r = line_begin(t, sizeof(o), at);
	if (r != 0)
		return r < 0 ? r : 0;
	o.number = t->piece.n_outer;
	no_counts(l);
	o.head.before = (uint32_t)(l->n - sizeof(o));
	put_call(t->v, l, &c);
	memcpy(l->bytes, &o, sizeof(o));
	t->v->stats.lines++;
	t->n_open++;
	t->piece.n_outer++;
	r = append(t, l->bytes, l->n, &place);
	return r < 0 ? r : link_outer(t, place, more == 0);
}

int dump_return(struct dump_thread *t, struct dump_time at, const struct call *c, uint64_t insns)
{
	struct text *l = &t->v->line;
	size_t before;
	int r;

	if (t->n_open == 0 || is_full(t->v))
		return 0;
	t->n_open--;
	t->depth--;
	r = line_begin(t, sizeof(struct line_head), t->pending ? t->last.at : at);
	if (r < 0)
		return r;
	line_counts(l, at.ns - c->begin, insns);
	before = l->n;
	if (t->pending) {
		put_call(t->v, l, &t->last);
	} else {
		dump_put(l, "} ");
		dump_put_function(t->v, l, c->frame, 0);
	}
	r = line_end(t, before, t->depth, t->pending && t->last.is_base ? &t->last : NULL, false);
	t->pending = false;
	return r;
}

int dump_identified(struct dump_thread *t, const char *was, const char *is)
{
	if (!t->piece_at || is_full(t->v))
		return 0;
	t->piece.was = was;
	t->piece.is = is;
	t->piece.n_identified = t->piece.n_outer;
	return patch(t, t->piece_at, &t->piece, sizeof(t->piece));
}

int dump_remark(struct dump_thread *t, struct dump_time at, const char *what)
{
	struct text *l = &t->v->line;
	size_t before;
	int r = go_on(t);

	if (r == 0)
		r = line_begin(t, sizeof(struct line_head), at);
	if (r != 0)
		return r < 0 ? r : 0;
	no_counts(l);
	before = l->n;
	dump_put(l, "-- ");
	dump_put(l, what);
	return line_end(t, before, t->depth, NULL, false);
}

/* ---- and from there to the file */

static const char *how_now(const struct piece *p, const char *how, bool identified)
{
	return identified && p->was && how == p->was ? p->is : how;
}

/* `text`: what follows the head, the columns first. */
static int emit_line(struct dump *v, const struct line_head *head, const char *how, uint64_t depth,
		     const char *text, size_t n)
{
	struct text *t = &v->text;
	int r = dump_text_reserve(t);

	if (r < 0)
		return r;
	memcpy(t->bytes + t->n, text, head->before);
	t->n += head->before;
	dump_put_spaces(t, 2 + 2 * (unsigned int)(depth < MAX_INDENT ? depth : MAX_INDENT));
	if (depth >= MAX_INDENT) {
		dump_put_char(t, '<');
		dump_put_number(t, depth, 10, 0);
		dump_put(t, "> ");
	}
	memcpy(t->bytes + t->n, text + head->before, n - head->before);
	t->n += n - head->before;
	put_how(t, how);
	if (head->open)
		dump_put(t, " {");
	dump_put_char(t, '\n');
	return t->n < DUMP_PIECE_BYTES ? 0 : dump_emit(v, t);
}

/* Those around a piece, from the outermost to the innermost. */
static int emit_outer(struct dump_thread *t, const struct piece *p)
{
	struct dump *v = t->v;
	uint64_t at = p->outer;
	int r = 0;

	for (uint64_t i = 0; i < p->n_outer && at && r == 0 && !v->stats.cut; i++) {
		struct text *l = &v->line;
		struct outer o;
		uint32_t n = 0;

		r = dump_text_reserve(l);
		if (r == 0)
			r = spool_read(v->spool, at, l->bytes, l->room, &n);
		if (r < 0 || n < sizeof(o))
			return failed(v, r < 0 ? r : -EIO);
		memcpy(&o, l->bytes, sizeof(o));
		if (o.head.record != RECORD_OUTER || o.head.before > n - sizeof(o))
			return failed(v, -EIO);
		r = emit_line(v, &o.head, how_now(p, o.head.how, o.number < p->n_identified), i,
			      l->bytes + sizeof(o), n - sizeof(o));
		at = o.inner;
	}
	return r;
}

static int emit_record(struct dump_thread *t, const uint8_t *record, uint32_t n,
		       struct piece *piece)
{
	const char *text = (const char *)record + sizeof(struct line_head);
	struct line_head head;

	if (n < sizeof(head))
		return failed(t->v, -EIO);
	memcpy(&head, record, sizeof(head));
	switch ((enum record)head.record) {
	case RECORD_OUTER:
		return 0;
	case RECORD_PIECE:
		if (n != sizeof(*piece))
			return failed(t->v, -EIO);
		memcpy(piece, record, sizeof(*piece));
		return emit_outer(t, piece);
	case RECORD_BASE:
	case RECORD_LINE:
		break;
	}
	if (head.before > n - sizeof(head) || head.depth + (int64_t)piece->n_outer < 0)
		return failed(t->v, -EIO);
	return emit_line(t->v, &head, how_now(piece, head.how, true),
			 (uint64_t)head.depth + piece->n_outer, text, n - sizeof(head));
}

static int emit_lines(struct dump_thread *t, struct spool_reader *reader)
{
	struct piece piece = {.n_outer = 0};
	const uint8_t *record;
	uint32_t n;
	int r;

	while ((r = failed(t->v, spool_next(t->v->spool, reader, &record, &n))) > 0 &&
	       !t->v->stats.cut) {
		r = emit_record(t, record, n, &piece);
		if (r < 0)
			return r;
	}
	return r < 0 ? r : 0;
}

static int emit_thread(struct dump_thread *t, bool is_first)
{
	struct dump *v = t->v;
	struct spool_reader reader;
	int r = write_pending(t);

	if (r < 0 || !t->piece_at || v->stats.cut)
		return r;
	r = dump_text_reserve(&v->text);
	if (r == 0)
		r = failed(v, spool_reader_init(v->spool, &t->lines, &reader));
	if (r < 0)
		return r;
	dump_put(&v->text, is_first ? "thread " : "\nthread ");
	dump_put_number(&v->text, t->pid, 10, 0);
	dump_put_char(&v->text, '/');
	dump_put_number(&v->text, t->tid, 10, 0);
	dump_put(&v->text, " \"");
	dump_put(&v->text, t->name);
	dump_put(&v->text, "\"\n");
	r = emit_lines(t, &reader);
	spool_reader_fini(&reader);
	return r;
}

int dump_calls_finish(struct dump *v)
{
	bool is_first = true;
	int r = 0;

	for (struct dump_thread *t = v->first; t && r == 0; t = t->next) {
		r = emit_thread(t, is_first);
		is_first &= t->piece_at == 0;
	}
	if (r == 0)
		r = dump_emit(v, &v->text);
	v->stats.cut |= is_full(v);
	return r;
}
