/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the text form of a trace: one line an event, made for eyes, diff and goldens. It holds what
 * the Perfetto form holds, in the order of writing: sorted within a track (but for the begins of
 * slices that turn out to have been there already), not between tracks.
 * Layout (fields separated by one tab, missing ones left out; N is a track's number):
 *
 *   # tracerd text 1                        head; key=value lines follow, each after "# "
 *   P N PID "name"                          process       T N PROCESS-N PID TID "name"   thread
 *   K N PARENT-N "name"                     track         L N PARENT-N "name"            lane
 *   C N PARENT-N "name" UNIT                counter track
 *   TIME N B "name" [category] key=value... slice begins  TIME N E key=value...          slice ends
 *   TIME N I "name" [category] key=value... instant       TIME N V VALUE                 counter
 *   TIME cpuN S TID "name" STATE -> TID "name"            switch
 *   TIME cpuN W TID "name" by TID [irq]                   wake-up
 *
 * TIME is ns of MONOTONIC with all digits. Of numbers, those with a fraction or an exponent (or
 * "inf", "nan") are floating, those with 0x in front are addresses. Quotes and backslashes inside
 * names get a backslash. flow=ID starts a flow, flow<ID ends it, at=file:line is the source.
 */
#include "config.h"

#include "decode/writer/writer_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Appends to the piece; what does not fit (a line of 128 KiB) is cut. */
static void put(struct writer *w, const char *fmt, ...) _printf_(2, 3);
static void put(struct writer *w, const char *fmt, ...)
{
	size_t room = (size_t)(writer_piece_end(w) - writer_at(w));
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf((char *)writer_at(w), room, fmt, ap);
	va_end(ap);
	if (n < 0) {
		writer_fail(w, -EIO);
		return;
	}
	w->used += (size_t)n < room ? (size_t)n : room - 1;
}

static void put_char(struct writer *w, char c)
{
	if (writer_at(w) < writer_piece_end(w) - 1)
		w->piece[w->used++] = (uint8_t)c;
}

static void put_text(struct writer *w, const char *s, size_t len)
{
	put_char(w, '"');
	for (size_t i = 0; i < len; i++) {
		if (s[i] == '"' || s[i] == '\\')
			put_char(w, '\\');
		put_char(w, s[i] == '\n' || s[i] == '\t' ? ' ' : s[i]);
	}
	put_char(w, '"');
}

static void put_quoted(struct writer *w, const char *s)
{
	put_text(w, s, strlen(s));
}

static void put_end(struct writer *w)
{
	put_char(w, '\n');
	w->piece[w->used - 1] = '\n'; /* also where the line was cut */
	writer_advance(w, 0);
}

static void text_begin(struct writer *w, const struct writer_meta *meta,
		       const struct writer_clocks *c)
{
	put(w, "# tracerd text 1\n");
	if (meta->version)
		put(w, "# version=%s\n", meta->version);
	put(w, "# clock=%s\n", meta->clock ? meta->clock : "unknown");
	if (meta->clock_error_ns != UINT64_MAX)
		put(w, "# clock_error_ns=%" PRIu64 "\n", meta->clock_error_ns);
	if (meta->kernel_release)
		put(w, "# kernel=%s\n", meta->kernel_release);
	put(w, "# monotonic=%" PRIu64, c->monotonic);
	if (c->realtime)
		put(w, " realtime=%" PRIu64, c->realtime);
	if (c->boottime)
		put(w, " boottime=%" PRIu64, c->boottime);
	put_end(w);
}

static void text_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
			 const char *name, uint64_t ts)
{
	put(w, "P\t%" PRIu32 "\t%" PRIu32 "\t", track, pid);
	put_quoted(w, name);
	put_end(w);
}

static void text_thread(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
			uint32_t tid, const char *name, uint64_t ts)
{
	put(w, "T\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t%" PRIu32 "\t", track, process_track, pid,
	    tid);
	put_quoted(w, name);
	put_end(w);
}

static void text_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
		       const char *description)
{
	put(w, "K\t%" PRIu32 "\t%" PRIu32 "\t", track, parent);
	put_quoted(w, name);
	put_end(w);
}

static void text_lane(struct writer *w, uint32_t track, uint32_t parent, const char *name)
{
	put(w, "L\t%" PRIu32 "\t%" PRIu32 "\t", track, parent);
	put_quoted(w, name);
	put_end(w);
}

static void text_counter_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
			       enum writer_unit unit)
{
	static const char *const units[] = {"count", "ns", "bytes"};

	put(w, "C\t%" PRIu32 "\t%" PRIu32 "\t", track, parent);
	put_quoted(w, name);
	put(w, "\t%s", (unsigned int)unit < ARRAY_SIZE(units) ? units[unit] : "count");
	put_end(w);
}

/* The shortest form that is read back as the same number, and cannot be taken for an integer. */
static void put_double(struct writer *w, double v)
{
	char text[40];

	(void)snprintf(text, sizeof(text), "%.15g", v);
	if (strtod(text, NULL) != v)
		(void)snprintf(text, sizeof(text), "%.17g", v);
	put(w, "%s%s", text, text[strspn(text, "-0123456789")] ? "" : ".0");
}

static void put_event(struct writer *w, const struct writer_event *ev, bool named)
{
	uint32_t n_args = ev->n_args ? writer_args_fit(w, ev) : 0;

	if (named) {
		put_char(w, '\t');
		put_quoted(w, strtab_text(w->names, ev->name));
		if (ev->category)
			put(w, "\t[%s]", strtab_text(w->names, ev->category));
	}
	if (ev->location && ev->location < w->n_locations) {
		const struct writer_location *l = &w->locations[ev->location];

		put(w, "\tat=%s:%" PRIu32, strtab_text(w->names, l->file), l->line);
	}
	for (uint32_t i = 0; i < n_args; i++) {
		const struct writer_arg *a = &ev->args[i];

		put(w, "\t%s=", strtab_text(w->names, a->key));
		switch (a->kind) {
		case WRITER_ARG_UINT:
			put(w, "%" PRIu64, a->value.u64);
			break;
		case WRITER_ARG_INT:
			put(w, "%" PRId64, a->value.i64);
			break;
		case WRITER_ARG_DOUBLE:
			put_double(w, a->value.f64);
			break;
		case WRITER_ARG_POINTER:
			put(w, "0x%" PRIx64, a->value.u64);
			break;
		case WRITER_ARG_NAME:
			put_quoted(w, strtab_text(w->names, a->value.name));
			break;
		case WRITER_ARG_TEXT:
			put_text(w, a->value.text, writer_text_len(a->value.text, WRITER_TEXT_MAX));
			break;
		}
	}
	if (ev->flow)
		put(w, "\tflow=%" PRIu64, ev->flow);
	if (ev->flow_end)
		put(w, "\tflow<%" PRIu64, ev->flow_end);
	w->stats.flows += ev->flow != 0;
}

static void put_at(struct writer *w, uint64_t ts, uint32_t track, char what)
{
	put(w, "%" PRIu64 "\t%" PRIu32 "\t%c", ts, track, what);
}

static void text_slice_begin(struct writer *w, uint32_t track, uint64_t ts,
			     const struct writer_event *ev)
{
	put_at(w, ts, track, 'B');
	put_event(w, ev, true);
	put_end(w);
	w->stats.slices++;
}

static void text_slice_end(struct writer *w, uint32_t track, uint64_t ts,
			   const struct writer_event *ev)
{
	put_at(w, ts, track, 'E');
	if (ev)
		put_event(w, ev, false);
	put_end(w);
}

static void text_instant(struct writer *w, uint32_t track, uint64_t ts,
			 const struct writer_event *ev)
{
	put_at(w, ts, track, 'I');
	put_event(w, ev, true);
	put_end(w);
	w->stats.instants++;
}

static void text_counter(struct writer *w, uint32_t track, uint64_t ts, int64_t value)
{
	put_at(w, ts, track, 'V');
	put(w, "\t%" PRId64, value);
	put_end(w);
	w->stats.counters++;
}

static void text_counter_f64(struct writer *w, uint32_t track, uint64_t ts, double value)
{
	put_at(w, ts, track, 'V');
	put_char(w, '\t');
	put_double(w, value);
	put_end(w);
	w->stats.counters++;
}

static void text_sched_switch(struct writer *w, uint32_t cpu, uint64_t ts,
			      const struct writer_switch *s)
{
	static const char *const states[] = {"R", "R+", "S", "D", "T", "X"};

	put(w, "%" PRIu64 "\tcpu%" PRIu32 "\tS\t%" PRIu32 "\t", ts, cpu, s->prev_tid);
	put_quoted(w, strtab_text(w->names, s->prev_name));
	put(w, "\t%s -> %" PRIu32 "\t",
	    (unsigned int)s->prev_state < ARRAY_SIZE(states) ? states[s->prev_state] : "?",
	    s->next_tid);
	put_quoted(w, strtab_text(w->names, s->next_name));
	put_end(w);
	w->stats.switches++;
}

static void text_sched_waking(struct writer *w, uint32_t cpu, uint64_t ts,
			      const struct writer_waking *k)
{
	put(w, "%" PRIu64 "\tcpu%" PRIu32 "\tW\t%" PRIu32 "\t", ts, cpu, k->tid);
	put_quoted(w, strtab_text(w->names, k->name));
	put(w, "\tby %" PRIu32 "%s", k->waker_tid, k->in_irq ? "\tirq" : "");
	put_end(w);
	w->stats.wakings++;
}

static int text_end(struct writer *w)
{
	return 0;
}

static void text_free(struct writer *w)
{
	writer_fini(w);
	free(w);
}

static const struct writer_ops text_ops = {
	.begin = text_begin,
	.process = text_process,
	.thread = text_thread,
	.track = text_track,
	.lane = text_lane,
	.counter_track = text_counter_track,
	.slice_begin = text_slice_begin,
	.slice_end = text_slice_end,
	.instant = text_instant,
	.counter = text_counter,
	.counter_f64 = text_counter_f64,
	.sched_switch = text_sched_switch,
	.sched_waking = text_sched_waking,
	.end = text_end,
	.free = text_free,
};

int text_writer_new(int fd, const struct writer_options *options, struct writer **ret)
{
	struct writer_options o = *options;
	struct writer *w = calloc(1, sizeof(*w));
	int r;

	if (!w)
		return -ENOMEM;
	o.compress = false; /* the form is for reading */
	o.pack = NULL;
	r = writer_init(w, &text_ops, fd, &o);
	if (r < 0) {
		text_free(w);
		return r;
	}
	*ret = w;
	return 0;
}
