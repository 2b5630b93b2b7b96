/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the session: tasks.c keeps processes and threads, session.c replays the records,
 * events.c the events of programs, tracepoint.c those of the kernel in a foreign recording,
 * report.c says what happened.
 */
#pragma once

#include <sys/queue.h>

#include "common/base/hashmap.h"
#include "decode/replay/session.h"
#include "decode/stack/resolve.h"
#include "decode/stack/walk.h"

#define SESSION_NAME_SIZE 256u

struct process {
	struct code code;
	uint32_t pid, ppid;
	bool declared;
	bool exited;
	uint32_t n_event_threads; /* that only its own events name */
	bool has_goroutines; /* samples and switches show what its threads run */
	bool has_trace;	     /* but it tells that itself */
	char name[SESSION_NAME_SIZE];
	LIST_HEAD(, thread) threads; /* that have not exited */
	struct process *next; /* all of them, for freeing */
};

struct thread {
	uint32_t tid;
	struct process *process; /* borrowed */
	LIST_ENTRY(thread) sibling; /* unless it has exited */
	bool declared;
	bool exited;
	bool ended; /* its exit was drawn */
	bool named; /* by the program itself: the kernel's name does not matter */
	uint64_t goroutine, goroutine_at; /* that its next record shows, if that has this time */
	char name[SESSION_NAME_SIZE];
	struct thread *next;
};

struct cpu {
	uint64_t last;      /* time of its last record */
	uint64_t throttled; /* since when; 0: not */
};

struct session {
	struct session_options o;
	struct hashmap processes, threads;
	struct process *all_processes;
	struct thread *all_threads;
	uint32_t n_processes;
	struct resolver *resolver;
	struct stackwalk walk;
	struct python python;
	struct cpu *cpus;
	size_t next_note, next_end;
	uint64_t done; /* records and events */
	bool begun; /* the first sample or switch has been */
	bool sched; /* the recording has "sched" events: SWITCH records say less and are passed over
		     */
	bool has_waking; /* it has the tracepoint sched_waking */
	uint64_t moments; /* events that are drawn as such */
	uint64_t samples, idle_samples, samples_of_ended, untimed, switches, wakeups, no_memory;
	uint64_t lost, throttled, aux_truncated, aux_ignored, bad_sched, ignored;
	uint64_t events, events_late, events_unattributed;
	uint32_t overtaken_tid; /* whose ring has nothing from before the freeze any more */
	uint64_t in_goroutine; /* samples and switches that show one */
};

/* A process that is new under its pid; an older one of the same pid is no longer found. NULL: no
 * memory. */
struct process *session_add_process(struct session *s, uint32_t pid, uint32_t ppid);

/* What a pid or tid means now, made up where it is new; NULL (counted): no memory. */
struct process *session_process(struct session *s, uint32_t pid);
struct thread *session_thread(struct session *s, uint32_t pid, uint32_t tid);

/* The code of a process with what was mapped at that time, until the next question. */
struct code *session_code(struct session *s, struct process *p, uint64_t ns);

/*
 * The stack that a record has of a thread, see stackwalk_sample(); where its calls are known they
 * are the stack, and learn from it who is around them. 0 or -errno.
 */
struct perfevent;
int session_stack(struct session *s, const struct thread *t, const struct perfevent *ev,
		  bool with_kernel, uint32_t *ret);

void session_free_tasks(struct session *s);

/* Positive answers of the timeline are counted there; only the negative ones end a replay. */
int timeline_answer(int r);

/* Declares a thread to the timeline (and its process) where that was not done yet. */
int session_declare_thread(struct session *s, struct thread *t, uint64_t ts);

/* At the first sample or switch: who is there already. */
int session_begin(struct session *s);

int session_on_comm(struct session *s, const struct perfevent *ev);
int session_on_fork(struct session *s, const struct perfevent *ev);
int session_on_exit(struct session *s, const struct perfevent *ev);
/* All of its threads that are left have ended. */
int session_end_process(struct session *s, const struct session_end *end);

struct ringevent;
/*
 * The thread that a program tells of, made up where the recording does not know it; *tid is changed
 * where it is somebody else's. NULL: no memory, or too many.
 */
struct thread *session_program_thread(struct session *s, uint32_t pid, uint32_t *tid);
/*
 * When the next event of a Go program's trace is, and of which; UINT64_MAX: there is none. Draws
 * it.
 */
uint64_t session_go_peek(const struct session *s, struct session_go **ret);
int session_on_go(struct session *s, struct session_go *go);
int session_on_program_event(struct session *s, const struct ringevent *ev);

/* In decode/replay/go.c: what the thread's next record shows; that record is there. */
void session_on_goroutine(struct session *s, struct thread *t, uint64_t ts, uint64_t id);
void session_in_goroutine(struct session *s, struct thread *t, uint64_t ts, uint32_t stack);

/* What an event is for. */
/* Its samples are a thread seen running, each for a period; else something that happened. */
bool attr_is_sampling(const struct perfattr *a);
enum tracepoint {
	TRACEPOINT_OTHER,
	TRACEPOINT_SWITCH,
	TRACEPOINT_WAKING,
	TRACEPOINT_WAKEUP,
	TRACEPOINT_WAKEUP_NEW
};
enum tracepoint attr_tracepoint(const struct perfattr *a);
int session_on_tracepoint(struct session *s, const struct perfevent *ev);
