/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace format must be able to do. The timeline calls it, a format (pftrace, text)
 * implements it; formats are made by pftrace_writer_new() and text_writer_new() below.
 *
 * Contract of every format: output is streaming and its memory bounded; within one track events
 * come in order of time (tracks among each other need not be), but for the begin of a slice that
 * turns out to have been there already: it lies before what it contains, and not before what ended
 * before that; it may come after its end; slices nest, the caller keeps the depth. Names are
 * numbers from writer_name(), so that the hot path hashes nothing. Times are ns of MONOTONIC.
 *
 * No call reports a failure by itself: the first one is kept (writer_error) and later calls do
 * nothing, so that the event path has no branches for it. The caller looks now and then.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/writer/pack.h"

struct writer;

#define WRITER_TRACK_NONE 0u

/* Arguments of an event. */
enum writer_arg_kind {
	WRITER_ARG_UINT,
	WRITER_ARG_INT,
	WRITER_ARG_DOUBLE,
	WRITER_ARG_POINTER, /* value.u64: an address */
	WRITER_ARG_NAME, /* value.name: a number from writer_name(), for strings that recur */
	WRITER_ARG_TEXT, /* value.text: a string that does not */
};

#define WRITER_MAX_ARGS 32u /* of one event */

struct writer_arg {
	uint32_t key; /* from writer_name() */
	enum writer_arg_kind kind;
	union {
		uint64_t u64;
		int64_t i64;
		double f64;
		uint32_t name;
		const char *text;
	} value;
};

/* What an event may carry beside its time; zero means "not there". */
struct writer_event {
	uint32_t name;	   /* from writer_name() */
	uint32_t category; /* from writer_name() */
	uint32_t location; /* from writer_location() */
	uint32_t n_args;
	const struct writer_arg *args;
	uint64_t flow;	   /* a flow starts or passes here */
	uint64_t flow_end; /* a flow ends here */
};

/* One reading of several clocks; 0 = not known. */
struct writer_clocks {
	uint64_t monotonic;
	uint64_t realtime;
	uint64_t boottime;
	uint64_t monotonic_raw;
};

/* What is said once about the whole trace: shown as the trace's metadata. */
struct writer_meta {
	const char *version;	    /* of the program that writes */
	const char *clock;	    /* of the input */
	uint64_t clock_error_ns;    /* alignment error; UINT64_MAX = not known */
	const char *kernel_release; /* of the recorded machine, NULL = not known */
	const char *machine;
};

enum writer_unit { WRITER_UNIT_COUNT, WRITER_UNIT_NS, WRITER_UNIT_BYTES };

/* Scheduling states at a switch-out, as the trace shows them. */
enum writer_state {
	WRITER_STATE_RUNNABLE,
	WRITER_STATE_PREEMPTED,
	WRITER_STATE_SLEEPING,
	WRITER_STATE_DISK,
	WRITER_STATE_STOPPED,
	WRITER_STATE_DEAD,
};

/* The next of a switch must be the previous of that CPU's next switch. */
struct writer_switch {
	uint32_t prev_tid, prev_name;
	enum writer_state prev_state;
	uint32_t next_tid, next_name;
};

struct writer_waking {
	uint32_t tid, name; /* who is woken */
	uint32_t waker_tid;
	bool waker_is_current; /* the waker is who runs on that CPU by the switches so far */
	bool in_irq;
};

struct writer_ops {
	void (*begin)(struct writer *w, const struct writer_meta *meta,
		      const struct writer_clocks *c);
	void (*process)(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
			const char *name, uint64_t ts);
	void (*thread)(struct writer *w, uint32_t track, uint32_t process_track, uint32_t pid,
		       uint32_t tid, const char *name, uint64_t ts);
	void (*track)(struct writer *w, uint32_t track, uint32_t parent, const char *name,
		      const char *description);
	/* One of several tracks of one name under `parent` which a viewer shows as one: what is on
	 * them overlaps in time. */
	void (*lane)(struct writer *w, uint32_t track, uint32_t parent, const char *name);
	void (*counter_track)(struct writer *w, uint32_t track, uint32_t parent, const char *name,
			      enum writer_unit unit);
	void (*slice_begin)(struct writer *w, uint32_t track, uint64_t ts,
			    const struct writer_event *ev);
	void (*slice_end)(struct writer *w, uint32_t track, uint64_t ts,
			  const struct writer_event *ev);
	void (*instant)(struct writer *w, uint32_t track, uint64_t ts,
			const struct writer_event *ev);
	void (*counter)(struct writer *w, uint32_t track, uint64_t ts, int64_t value);
	void (*counter_f64)(struct writer *w, uint32_t track, uint64_t ts, double value);
	void (*sched_switch)(struct writer *w, uint32_t cpu, uint64_t ts,
			     const struct writer_switch *s);
	void (*sched_waking)(struct writer *w, uint32_t cpu, uint64_t ts,
			     const struct writer_waking *k);
	int (*end)(struct writer *w);
	void (*free)(struct writer *w);
};

/*
 * The head of every writer: the functions that events call now, and what is asked after each event.
 * Events are many, so that what calls these functions is inlined below.
 */
struct writer_head {
	const struct writer_ops *ops;
	int error;
	bool cut;
};

static inline const struct writer_ops *writer_ops(const struct writer *w)
{
	return ((const struct writer_head *)w)->ops;
}

static inline void writer_process(struct writer *w, uint32_t track, uint32_t pid, uint32_t ppid,
				  const char *name, uint64_t ts)
{
	writer_ops(w)->process(w, track, pid, ppid, name, ts);
}

static inline void writer_thread(struct writer *w, uint32_t track, uint32_t process_track,
				 uint32_t pid, uint32_t tid, const char *name, uint64_t ts)
{
	writer_ops(w)->thread(w, track, process_track, pid, tid, name, ts);
}

static inline void writer_track(struct writer *w, uint32_t track, uint32_t parent, const char *name,
				const char *description)
{
	writer_ops(w)->track(w, track, parent, name, description);
}

static inline void writer_lane(struct writer *w, uint32_t track, uint32_t parent, const char *name)
{
	writer_ops(w)->lane(w, track, parent, name);
}

static inline void writer_counter_track(struct writer *w, uint32_t track, uint32_t parent,
					const char *name, enum writer_unit unit)
{
	writer_ops(w)->counter_track(w, track, parent, name, unit);
}

static inline void writer_slice_begin(struct writer *w, uint32_t track, uint64_t ts,
				      const struct writer_event *ev)
{
	writer_ops(w)->slice_begin(w, track, ts, ev);
}

static inline void writer_slice_end(struct writer *w, uint32_t track, uint64_t ts,
				    const struct writer_event *ev)
{
	writer_ops(w)->slice_end(w, track, ts, ev);
}

static inline void writer_instant(struct writer *w, uint32_t track, uint64_t ts,
				  const struct writer_event *ev)
{
	writer_ops(w)->instant(w, track, ts, ev);
}

static inline void writer_counter(struct writer *w, uint32_t track, uint64_t ts, int64_t value)
{
	writer_ops(w)->counter(w, track, ts, value);
}

static inline void writer_counter_f64(struct writer *w, uint32_t track, uint64_t ts, double value)
{
	writer_ops(w)->counter_f64(w, track, ts, value);
}

static inline void writer_switch(struct writer *w, uint32_t cpu, uint64_t ts,
				 const struct writer_switch *s)
{
	writer_ops(w)->sched_switch(w, cpu, ts, s);
}

static inline void writer_waking(struct writer *w, uint32_t cpu, uint64_t ts,
				 const struct writer_waking *k)
{
	writer_ops(w)->sched_waking(w, cpu, ts, k);
}

struct writer_stats {
	uint64_t slices, instants, counters, flows, switches, wakings, tracks;
	uint64_t bytes_raw;	/* before compression */
	uint64_t bytes_out;	/* written */
	uint64_t bytes_dropped; /* not written: past max_output_bytes */
	uint64_t names_dropped; /* strings past the memory limit; shown as "[name table full]" */
	uint64_t write_ns;	/* spent in compressing (by the caller) and writing */
	uint64_t args_dropped;	/* arguments past WRITER_MAX_ARGS, or longer than an event may be */
	/* negative errno of the write to the file that failed; 0: none did */
	int write_error;
};

struct writer_options {
	bool compress;
	uint64_t max_output_bytes; /* 0 = no limit */
	size_t max_name_bytes;	   /* 0 = 256 MiB */
	struct pack *pack;	   /* borrowed; for compress. NULL = compress in the caller */
};

/* Both take over nothing: `fd` stays the caller's and must outlive the writer. */
int pftrace_writer_new(int fd, const struct writer_options *options,
		       struct writer **ret) _must_check_;
int text_writer_new(int fd, const struct writer_options *options, struct writer **ret) _must_check_;
struct writer *writer_free(struct writer *w);
DEFINE_CLEANUP(struct writer *, writer_free)

/* Interns a string (0 for NULL and "") or a place in the source. */
uint32_t writer_name(struct writer *w, const char *s);
uint32_t writer_location(struct writer *w, uint32_t file, uint32_t function, uint32_t line);
const char *writer_name_text(const struct writer *w, uint32_t name);

void writer_begin(struct writer *w, const struct writer_meta *meta, const struct writer_clocks *c);

/* Tracks get numbers from writer_new_track(); declared again, a process or thread is renamed. */
uint32_t writer_new_track(struct writer *w);

/* From now on events go nowhere; for a caller that goes on counting when the output is cut. */
void writer_mute(struct writer *w);

/* The length of a text, at most `max` bytes of it and never cut inside a character. */
size_t writer_text_len(const char *s, size_t max);
#define WRITER_TEXT_MAX 8192u /* of an argument */

/*
 * Past max_output_bytes: the caller should close what is open, say so and stop; what it still
 * writes is taken from a reserve, then dropped and counted.
 */
static inline bool writer_is_cut(const struct writer *w)
{
	return ((const struct writer_head *)w)->cut;
}

/* The first failure, negative errno, or 0. */
static inline int writer_error(const struct writer *w)
{
	return ((const struct writer_head *)w)->error;
}

/* Writes what is buffered. The writer can only be freed afterwards. 0 or the first error. */
int writer_end(struct writer *w);
void writer_stats(const struct writer *w, struct writer_stats *ret_stats);
