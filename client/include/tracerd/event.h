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
 * How it works: each thread writes into a ring of its own, in shared memory that the daemon reads
 * whenever it likes, also after the program has crashed. The oldest events are overwritten; losses
 * are counted and shown.
 *
 * Rules that hold for every function here, but for tracerd_start(), tracerd_stop() and
 * tracerd_dispatch():
 *
 *  - It takes no lock, allocates nothing and makes no system call; exceptions are a thread's first
 *    event (a few system calls, no lock) and an event that causes a snapshot (one write to an
 *    eventfd). It leaves errno as it was, may be called in signal handlers and from any thread, and fails
 *    by losing the event, which is counted. Logs and events with arguments take up to two kilobytes of stack.
 *  - Until a daemon has accepted the program, it does nothing, at the cost of one load and one branch.
 *    After that events are recorded, even while the daemon is away.
 *  - Names are numbers that stand for strings (tracerd_intern()); the number 0 is "no name", and
 *    an event with it is dropped where a name is needed. Names may be any bytes; the string is
 *    copied, so that it may belong to a plug-in which is unloaded later.
 *  - After fork() the child records nothing until it calls tracerd_start() itself; names stay valid.
 *  - The library stays loaded for good once started, whoever calls dlclose().
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
	uint32_t threads;    /* that write at the same time, each to a ring of its own (64); others lose their events */
	uint32_t events;     /* that each ring holds, 32 bytes each, a power of two (8192) */
	uint32_t names;	     /* the most names (4096) */
	uint32_t flags;	     /* enum tracerd_flags */
} tracerd_options;

/*
 * Begins: a helper thread (all signals blocked) connects to the daemon and registers the program. It tries again while
 * there is no daemon, and when the daemon has gone. Returns at once, and never waits for the daemon.
 *
 * A second call returns 0 and changes nothing; after tracerd_stop(), and in a forked child, it
 * starts again. Errors: -EINVAL (options, or a path that is too long), -EAGAIN (no thread could be made), -EMFILE, -ENOMEM.
 *
 * From then on the library has a few descriptors, close-on-exec and above 2. A program that closes all descriptors ends its
 * registration; it may call tracerd_stop() and start again.
 */
int tracerd_start(const tracerd_options *options);

/*
 * Ends recording and the connection, and joins the helper thread. Threads may be in the middle of an event: the
 * memory stays mapped. The daemon keeps what was recorded for a while.
 */
void tracerd_stop(void);

/*
 * With TRACERD_NO_THREAD: a descriptor that becomes readable when tracerd_dispatch() has something to do
 * (poll it for reading; it is the library's). -EBADF if the library was not started so.
 */
int tracerd_fd(void);

/* Does what there is to do and returns at once: 0, or -EBADF as above. One thread at a time. */
int tracerd_dispatch(void);

/* State and losses of the recording. */
typedef struct tracerd_event_stats {
	size_t size;		/* set by the caller: sizeof(tracerd_event_stats) */
	uint32_t enabled;	/* events are recorded */
	uint32_t connected;	/* the daemon is there now */
	uint32_t rings_used;	/* of threads, living and ended */
	uint32_t names;		/* interned */
	uint64_t events_lost;	/* of threads that found no free ring */
	uint64_t names_lost;	/* that found no room */
	uint64_t texts_cut;	/* logs and arguments that were longer than a record holds */
	uint64_t registrations; /* how often a daemon has accepted the program */
	int last_error;		/* of the last attempt to connect, for tracerd_error_name(); 0: it succeeded */
} tracerd_event_stats;

void tracerd_get_event_stats(tracerd_event_stats *stats);

/*
 * Asks for a snapshot of this program: everything that the daemon records of it, its stacks included if it
 * is armed. Returns at once; `reason` (up to 448 bytes, may be NULL) will be in the snapshot. 0: the daemon
 * has the request; -ENOTCONN: there is no daemon; -EAGAIN: too soon after the last one (the daemon's interval,
 * by default a second); counted.
 */
int tracerd_snapshot(const char *reason);

/* ---- names */

typedef uint32_t tracerd_name;

/*
 * The number of a name, always the same for equal bytes; at most 1,024 of them count. A lookup by hash:
 * about 20 ns for a name that is known. Works before tracerd_start(), too. 0 if there is no room, or the name is empty.
 */
tracerd_name tracerd_intern(const char *name);
tracerd_name tracerd_intern_bytes(const void *bytes, size_t length);

/*
 * The number of a name that never changes at this place, looked up when it is first needed:
 * TRACERD_NAME("parse"). 0 while nothing is recorded.
 */
#define TRACERD_NAME(literal)                                                                      \
	(__extension__({                                                                           \
		static tracerd_name tracerd_name_here_;                                            \
		tracerd_enabled() ? tracerd_name_here(&tracerd_name_here_, "" literal) : 0;        \
	}))

/* ---- the switch, and what the inline functions below call */

#define TRACERD_STATE_ALIGN 65536 /* whole pages of any size: they are wiped in a forked child */
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

/* Bytes. A record holds about a thousand of all its texts; the rest is cut, and the event says so. */
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

/* A region that was begun. Ends by tracerd_region_end(), on the same thread or fiber; regions nest. */
typedef struct tracerd_region {
	uint64_t begin; /* stamp; 0: not recorded */
	tracerd_name name;
	uint32_t reserved;
} tracerd_region;

tracerd_region tracerd_region_begin_slow(tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args);
void tracerd_region_end_slow(tracerd_region region, const tracerd_arg *args, size_t n_args);

static inline tracerd_region tracerd_region_begin(tracerd_name name)
{
	tracerd_region none = {0, 0, 0};

	return tracerd_enabled() ? tracerd_region_begin_slow(name, 0, NULL, 0) : none;
}

/* With arguments, and as a part of a task (its id, or 0). */
static inline tracerd_region tracerd_region_begin_with(
	tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	tracerd_region none = {0, 0, 0};

	return tracerd_enabled() ? tracerd_region_begin_slow(name, task, args, n_args) : none;
}

/*
 * Ends it. If a trigger is set on the name and it took as long as that, a snapshot is asked for.
 * Arguments that are known only now may be given here: they are shown with the others.
 */
static inline void tracerd_region_end(tracerd_region region)
{
	if (__builtin_expect(region.begin != 0, 0))
		tracerd_region_end_slow(region, NULL, 0);
}

static inline void tracerd_region_end_with(tracerd_region region, const tracerd_arg *args, size_t n_args)
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

/* A region from here to the end of the block, however it is left: TRACERD_SCOPE("parse"); */
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

static inline void tracerd_instant_with(tracerd_name name, uint64_t task, const tracerd_arg *args, size_t n_args)
{
	if (tracerd_enabled())
		tracerd_instant_slow(name, task, args, n_args);
}

enum tracerd_level { TRACERD_DEBUG, TRACERD_INFO, TRACERD_WARNING, TRACERD_ERROR };

/*
 * A line of text, as printf would make it. The values are recorded here; the decoder formats them. All
 * conversions of ISO C but %n, and wide characters; strings are cut so that all values fit a record of about a thousand
 * bytes. `format` should be a literal: others are looked up at each call.
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

/* ---- tasks: something that may begin and end on different threads, and have parts */

typedef struct tracerd_task {
	uint64_t id; /* 0: not recorded */
	uint64_t begin;
	tracerd_name name;
	uint32_t reserved;
} tracerd_task;

tracerd_task tracerd_task_begin_slow(tracerd_name name, uint64_t parent, const tracerd_arg *args, size_t n_args);
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
 * Begins a flow within the region that is open here, and returns its id, to be passed on with the
 * work (0: not recorded). Steps and the end lead to the regions that are open where they are called.
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

/* The name of the calling thread in the trace; without it, it has the kernel's (pthread_setname_np()). */
void tracerd_thread_name_slow(tracerd_name name);
static inline void tracerd_thread_name(tracerd_name name)
{
	if (tracerd_enabled())
		tracerd_thread_name_slow(name);
}

/*
 * For coroutine runtimes: from now on the calling thread runs the stack of the fiber `id` (any number but 0, the
 * same wherever the fiber runs), or its own again (0). Regions that were begun on a fiber go with it.
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
