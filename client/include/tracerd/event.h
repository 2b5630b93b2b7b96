/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the program itself, on the same timeline as its stacks.
 *
 *	#include <tracerd.h>
 *
 *	int main(void)
 *	{
 *		tracerd_start(NULL);
 *		...
 *	}
 *
 *	void serve(struct request *req)
 *	{
 *		TRACERD_SCOPE("serve");
 *		tracerd_log(TRACERD_INFO, "request %s of %d bytes", req->path, req->size);
 *		...
 *	}
 *
 * `tracectl snapshot PID` then shows the last moments, `tracectl trigger add PID --region serve
 * --over 5ms` takes a snapshot by itself whenever a region is slow.
 *
 * How it works: each thread writes to a ring of its own, in shared memory. The daemon can read the
 * memory at any time, also after the program has crashed. New events overwrite the oldest; losses
 * are counted and shown.
 *
 * Rules for every function here except tracerd_start(), tracerd_stop() and tracerd_dispatch():
 *
 *  - It takes no lock, allocates nothing and makes no system call, with these exceptions: an event
 *    of a thread that has no ring yet looks for one (gettid, prctl, up to 32 times tgkill with
 *    signal 0), if there is none again at the 1st, 2nd, 4th, 8th, ... event and each 1,024th; one
 *    that asks for a snapshot calls fstatat and gettid and writes to an eventfd, as
 *    tracerd_snapshot() does; tracerd_get_event_stats() calls fstatat.
 *  - It preserves errno. It may be called from any thread and in signal handlers. If it fails, the
 *    event is lost and counted. Logs and events with arguments take up to two kilobytes of stack.
 *  - Until a daemon has accepted the program, a call does nothing and costs one load and one
 *    branch. From then on events are recorded, even while no daemon runs.
 *  - A name is a number that stands for a string (tracerd_intern()). 0 is no name: an event that
 *    needs one is lost and counted. The string may hold any bytes. The library copies it, so the
 *    plug-in that it belongs to may be unloaded.
 *  - After fork() the child records nothing until it calls tracerd_start() itself. Names stay
 *    valid. A child of vfork() shares the memory: its events are shown as the parent thread's.
 *  - Once started, the library stays loaded: dlclose() does not unload it.
 */
#ifndef TRACERD_EVENT_H
#define TRACERD_EVENT_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* ---- starting */

enum tracerd_flags {
	/* No helper thread: the program calls tracerd_dispatch() when tracerd_fd() is readable. */
	TRACERD_NO_THREAD = 1 << 0,
};

/* Options of tracerd_start(); zero means the default. */
typedef struct tracerd_options {
	size_t size;	     /* sizeof(tracerd_options), so that the struct can grow */
	const char *socket;  /* the daemon's; NULL: tracerd_default_socket() */
	uint32_t threads;    /* that have a ring at the same time (64); others lose their events */
	uint32_t events;     /* that each ring holds, 32 bytes each, a power of two (8192) */
	uint32_t names;	     /* the most names (4096) */
	uint32_t flags;	     /* enum tracerd_flags */
} tracerd_options;

/*
 * Starts recording. A helper thread, which blocks all signals, connects to the daemon and registers
 * the program. It tries again while no daemon runs, and after the daemon has gone. The call returns
 * at once and never waits for the daemon.
 *
 * A second call returns 0 and changes nothing. After tracerd_stop(), and in a forked child, it
 * starts again. Errors: -EINVAL (an option is not valid, or the path is too long), -EAGAIN (the
 * thread could not be created), -EMFILE, -ENOMEM.
 *
 * The library then holds a few descriptors above 2, all close-on-exec. A program that closes all
 * its descriptors ends its registration; it may call tracerd_stop() and tracerd_start() again.
 */
int tracerd_start(const tracerd_options *options);

/*
 * Stops recording, closes the connection and joins the helper thread. The memory stays mapped,
 * since threads may be in the middle of an event. The daemon keeps what was recorded for a while. A
 * region or task that is open still records its end, so that it is not open for ever if the program
 * starts again.
 */
void tracerd_stop(void);

/*
 * With TRACERD_NO_THREAD: a descriptor that becomes readable when tracerd_dispatch() has something
 * to do. It belongs to the library; only poll it. -EBADF if the library was not started with that
 * flag.
 */
int tracerd_fd(void);

/*
 * Handles what is pending and returns at once: 0, -EBADF as above, or the error of a system call
 * that is forbidden to it (a seccomp filter), which ends the connection. One thread at a time may
 * call it. It raises no signal: if RLIMIT_FSIZE is less than the events need, nothing is recorded
 * and last_error is -EFBIG.
 */
int tracerd_dispatch(void);

/* State and losses of the recording. */
typedef struct tracerd_event_stats {
	size_t size;		/* set by the caller: sizeof(tracerd_event_stats) */
	uint32_t enabled;	/* events are recorded */
	uint32_t connected;	/* the daemon is there now */
	uint32_t rings_used;	/* by threads, living and ended */
	uint32_t names;		/* interned */
	uint64_t events_lost;	/* of threads that found no free ring, or without a name */
	uint64_t names_lost;	/* names that found no room */
	uint64_t texts_cut;	/* events that had no room for all of their texts and values */
	uint64_t registrations; /* how often a daemon has accepted the program */
	/*
	 * of the last attempt to connect, or what ended the helper thread, for
	 * tracerd_error_name(); 0: none
	 */
	int last_error;
} tracerd_event_stats;

void tracerd_get_event_stats(tracerd_event_stats *stats);

/*
 * Asks for a snapshot of this program: of its events, and of its stacks if it is armed. Returns at
 * once. The snapshot keeps `reason`, of at most 448 bytes; it may be NULL.
 *
 * 0: the daemon has the request. -ENOTCONN: no daemon runs, or the program has closed the
 * descriptors. -EAGAIN: the last request was too recent (the daemon's interval, one second by
 * default); the request is only counted.
 */
int tracerd_snapshot(const char *reason);

/* ---- names */

typedef uint32_t tracerd_name;

/*
 * The number of a name: the same for the same bytes, of which the first 1,024 count. A hash lookup,
 * which takes about 20 ns for a known name. Works before tracerd_start(), too. 0 if the name is
 * empty or there is no room for it.
 */
tracerd_name tracerd_intern(const char *name);
tracerd_name tracerd_intern_bytes(const void *bytes, size_t length);

/*
 * The number of a literal name, looked up once: TRACERD_NAME("parse"). 0 while nothing is recorded.
 */
#define TRACERD_NAME(literal)                                                                      \
	(__extension__({                                                                           \
		static tracerd_name tracerd_name_here_;                                            \
		tracerd_enabled() ? tracerd_name_here(&tracerd_name_here_, "" literal) : 0;        \
	}))

/* ---- the switch, and what the inline functions below call */

#define TRACERD_STATE_ALIGN 65536 /* whole pages of any size; fork() wipes them in the child */
struct tracerd_state {
	uint32_t on; /* 0: nothing is recorded */
	uint32_t reserved[TRACERD_STATE_ALIGN / 4 - 1]; /* the library's */
};
extern struct tracerd_state tracerd_state;

/* Whether events are recorded: one load. */
static inline int tracerd_enabled(void)
{
	return __builtin_expect(__atomic_load_n(&tracerd_state.on, __ATOMIC_RELAXED) != 0, 0) != 0;
}

tracerd_name tracerd_name_slow(tracerd_name *here, const char *name);
static inline tracerd_name tracerd_name_here(tracerd_name *here, const char *name)
{
	tracerd_name n = __atomic_load_n(here, __ATOMIC_RELAXED);

	return __builtin_expect(n != 0, 1) ? n : tracerd_name_slow(here, name);
}

/* ---- arguments */

enum tracerd_type { TRACERD_U64 = 1, TRACERD_I64, TRACERD_F64, TRACERD_TEXT, TRACERD_POINTER = 6 };

/* An argument of an event, made by the functions below. The call that takes it copies its text. */
typedef struct tracerd_arg {
	tracerd_name key;
	uint32_t type; /* enum tracerd_type */
	union {
		uint64_t u64;
		int64_t i64;
		double f64;
		const char *text;
	} value;
	size_t length; /* of the text */
} tracerd_arg;

static inline tracerd_arg tracerd_u64(tracerd_name key, uint64_t value)
{
	tracerd_arg a;

	a.key = key;
	a.type = TRACERD_U64;
	a.value.u64 = value;
	a.length = 0;
	return a;
}

static inline tracerd_arg tracerd_i64(tracerd_name key, int64_t value)
{
	tracerd_arg a;

	a.key = key;
	a.type = TRACERD_I64;
	a.value.i64 = value;
	a.length = 0;
	return a;
}

static inline tracerd_arg tracerd_f64(tracerd_name key, double value)
{
	tracerd_arg a;

	a.key = key;
	a.type = TRACERD_F64;
	a.value.f64 = value;
	a.length = 0;
	return a;
}

/*
 * Bytes. All texts of an event share about a thousand bytes; the rest is cut, and the event says
 * so.
 */
static inline tracerd_arg tracerd_text(tracerd_name key, const char *text, size_t length)
{
	tracerd_arg a;

	a.key = key;
	a.type = TRACERD_TEXT;
	a.value.text = text;
	a.length = length;
	return a;
}

/* ---- regions: something with a begin and an end on one thread (or fiber) */

/* An open region. tracerd_region_end() ends it, on the same thread or fiber. Regions nest. */
typedef struct tracerd_region {
	uint64_t begin; /* stamp; 0: not recorded */
	tracerd_name name;
	uint32_t reserved;
} tracerd_region;

tracerd_region tracerd_region_begin_slow(tracerd_name name, uint64_t task, const tracerd_arg *args,
					 size_t n_args);
void tracerd_region_end_slow(tracerd_region region, const tracerd_arg *args, size_t n_args);

static inline tracerd_region tracerd_region_begin(tracerd_name name)
{
	tracerd_region none = {0, 0, 0};

	return tracerd_enabled() ? tracerd_region_begin_slow(name, 0, NULL, 0) : none;
}

/* With arguments, and as a part of a task: `task` is its id, or 0. */
static inline tracerd_region tracerd_region_begin_with(
	tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	tracerd_region none = {0, 0, 0};

	return tracerd_enabled() ? tracerd_region_begin_slow(name, task, args, n_args) : none;
}

/*
 * Ends a region. If a trigger is set on its name and it took as long as the trigger's threshold,
 * this asks for a snapshot. A trigger can be set on names of at most 216 bytes, in UTF-8 without
 * control characters. Arguments that are known only now are shown with those of the begin.
 */
static inline void tracerd_region_end(tracerd_region region)
{
	if (__builtin_expect(region.begin != 0, 0))
		tracerd_region_end_slow(region, NULL, 0);
}

static inline void tracerd_region_end_with(tracerd_region region, const tracerd_arg *args,
					   size_t n_args)
{
	if (__builtin_expect(region.begin != 0, 0))
		tracerd_region_end_slow(region, args, n_args);
}

static inline void tracerd_region_cleanup(tracerd_region *region)
{
	tracerd_region_end(*region);
}

#define TRACERD_PASTE_(a, b) a##b
#define TRACERD_PASTE(a, b) TRACERD_PASTE_(a, b)

/* A region from here to the end of the block, however the block is left: TRACERD_SCOPE("parse"); */
#define TRACERD_SCOPE(literal)                                                                     \
	tracerd_region TRACERD_PASTE(tracerd_scope_, __COUNTER__)                                  \
		__attribute__((__cleanup__(tracerd_region_cleanup), __unused__)) =                 \
			tracerd_region_begin(TRACERD_NAME(literal))

/* ---- moments */

void tracerd_instant_slow(tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args);
static inline void tracerd_instant(tracerd_name name)
{
	if (tracerd_enabled())
		tracerd_instant_slow(name, 0, NULL, 0);
}

static inline void tracerd_instant_with(tracerd_name name, uint64_t task, const tracerd_arg *args,
					size_t n_args)
{
	if (tracerd_enabled())
		tracerd_instant_slow(name, task, args, n_args);
}

enum tracerd_level { TRACERD_DEBUG, TRACERD_INFO, TRACERD_WARNING, TRACERD_ERROR };

/*
 * A line of text, formatted as by printf(). This call records the values; the decoder formats them.
 * It takes all conversions of ISO C 11, also those of wide characters, except %n. Strings are cut
 * so that all values fit a record of about a thousand bytes, a wide one to 256 bytes of UTF-8.
 * `format` should be a literal: any other is looked up at each call.
 *
 * The format itself is the text, without its values, if it has %n, %m, %1$s or anything else that
 * ISO C 11 does not have, if it is longer than 1,024 bytes, or if there is no room for it among the
 * names; the last two count as texts_cut. A long double is recorded as a double. A level that is
 * none of the above is shown as TRACERD_INFO.
 */
void tracerd_log_slow(tracerd_name *here, enum tracerd_level level, const char *format, ...)
	__attribute__((__format__(__printf__, 3, 4)));
void tracerd_vlog(enum tracerd_level level, const char *format, va_list args)
	__attribute__((__format__(__printf__, 2, 0)));
#define tracerd_log(level, ...)                                                                    \
	do {                                                                                       \
		static tracerd_name tracerd_format_here_;                                          \
		if (tracerd_enabled())                                                             \
			tracerd_log_slow(TRACERD_HERE_(TRACERD_FIRST_(__VA_ARGS__, 0)),            \
				level, __VA_ARGS__);                                               \
	} while (0)
#define TRACERD_FIRST_(first, ...) first
#define TRACERD_HERE_(format) (__builtin_constant_p(format) ? &tracerd_format_here_ : NULL)

/* ---- values over time: one track for each name and process */

void tracerd_counter_slow(tracerd_name name, int64_t value);
void tracerd_counter_f64_slow(tracerd_name name, double value);
static inline void tracerd_counter(tracerd_name name, int64_t value)
{
	if (tracerd_enabled())
		tracerd_counter_slow(name, value);
}

static inline void tracerd_counter_f64(tracerd_name name, double value)
{
	if (tracerd_enabled())
		tracerd_counter_f64_slow(name, value);
}

/* ---- tasks: something that may end on another thread than it began, and may have parts */

typedef struct tracerd_task {
	uint64_t id; /* 0: not recorded */
	uint64_t begin;
	tracerd_name name;
	uint32_t reserved;
} tracerd_task;

tracerd_task tracerd_task_begin_slow(tracerd_name name, uint64_t parent, const tracerd_arg *args,
				     size_t n_args);
void tracerd_task_end_slow(const tracerd_task *task, const tracerd_arg *args, size_t n_args);

/* `parent` is the id of the task that this one is a part of, or 0. */
static inline tracerd_task tracerd_task_begin(tracerd_name name, uint64_t parent)
{
	tracerd_task none = {0, 0, 0, 0};

	return tracerd_enabled() ? tracerd_task_begin_slow(name, parent, NULL, 0) : none;
}

static inline tracerd_task tracerd_task_begin_with(
	tracerd_name name, uint64_t parent, const tracerd_arg *args, size_t n_args)
{
	tracerd_task none = {0, 0, 0, 0};

	return tracerd_enabled() ? tracerd_task_begin_slow(name, parent, args, n_args) : none;
}

/* From any thread. */
static inline void tracerd_task_end(tracerd_task task)
{
	if (__builtin_expect(task.id != 0, 0))
		tracerd_task_end_slow(&task, NULL, 0);
}

/* ---- flows: arrows from one place to the next, from thread to thread */

enum tracerd_flow_kind { TRACERD_FLOW_BEGIN, TRACERD_FLOW_STEP, TRACERD_FLOW_END };
uint64_t tracerd_flow_slow(tracerd_name name, uint64_t id, enum tracerd_flow_kind kind);

/*
 * Begins a flow in the region that is open here and returns its id; 0: not recorded. Pass the id on
 * with the work. A step or the end leads the flow to the region that is open where it is called.
 */
static inline uint64_t tracerd_flow_begin(tracerd_name name)
{
	return tracerd_enabled() ? tracerd_flow_slow(name, 0, TRACERD_FLOW_BEGIN) : 0;
}

static inline void tracerd_flow_step(tracerd_name name, uint64_t id)
{
	if (__builtin_expect(id != 0, 0))
		(void)tracerd_flow_slow(name, id, TRACERD_FLOW_STEP);
}

static inline void tracerd_flow_end(tracerd_name name, uint64_t id)
{
	if (__builtin_expect(id != 0, 0))
		(void)tracerd_flow_slow(name, id, TRACERD_FLOW_END);
}

/* ---- threads and fibers */

/*
 * Names the calling thread in the trace. Without this the thread has the kernel's name
 * (pthread_setname_np()).
 */
void tracerd_thread_name_slow(tracerd_name name);
static inline void tracerd_thread_name(tracerd_name name)
{
	if (tracerd_enabled())
		tracerd_thread_name_slow(name);
}

/*
 * For coroutine runtimes: from now on the calling thread runs the stack of the fiber `id`, or with
 * 0 its own. A fiber's id is any number except 0 and is the same on all threads. The open regions
 * of a fiber move with it.
 */
void tracerd_fiber_switch_slow(uint64_t id, tracerd_name name);
static inline void tracerd_fiber_switch(uint64_t id, tracerd_name name)
{
	if (tracerd_enabled())
		tracerd_fiber_switch_slow(id, name);
}

#pragma GCC visibility pop

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* TRACERD_EVENT_H */
