/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PT half of a session: takes branches in the order of time, keeps a stack of calls for each thread
 * (decode/calls/callstack.h) and draws it. Owns what one decode needs of PT from the buffers to the threads; the session
 * keeps processes and threads and says when.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct images;
struct json_object;
struct perfdata;
struct dump;
struct ptsession;
struct session;
struct workers;

enum { PTSESSION_E_NONE = 1, /* the recording has no PT, or none that can be read */ };

/*
 * Before the replay, first of all: finds the buffers. Everything is borrowed. With a `view` it is written
 * there and not drawn. `inlined`: inlined calls are drawn, too; then the session must have a source.
 * 0, PTSESSION_E_NONE, or a negative errno.
 */
int ptsession_new(struct perfdata *pd, struct images *images, struct workers *workers, struct budget *budget,
		  struct dump *view, bool inlined, struct ptsession **ret) _must_check_;
struct ptsession *ptsession_free(struct ptsession *p);
DEFINE_CLEANUP(struct ptsession *, ptsession_free)

/* Then each record in the order of time: who ran, and what was mapped (decode/replay/prescan.h). 0 or -errno. */
struct perfevent;
int ptsession_record(struct ptsession *p, const struct perfevent *ev) _must_check_;
/* Then opens the files of the code, and begins. 0 or -errno. */
int ptsession_open(struct ptsession *p) _must_check_;

/* The time of the next branch: UINT64_MAX at the end; -errno. */
int ptsession_peek(struct ptsession *p, uint64_t *ret_ns);
/* Draws the next branches that happened before `before`, *ret_n of them. 0 or -errno. */
int ptsession_run(struct ptsession *p, struct session *s, uint64_t before, size_t *ret_n);
/* The thread's stack at this moment, for its waits; STACKTAB_ROOT if it has none. */
uint32_t ptsession_stack(struct ptsession *p, uint32_t tid);
/*
 * A thread is new: with another process than its parent's it begins within all that the parent is in, else with its first
 * function. 0 or -errno.
 */
int ptsession_fork(struct ptsession *p, struct session *s, const struct perfevent *fork);
/* The program is another one: the calls of all threads of the process end, and `tid` begins anew. */
int ptsession_exec(struct ptsession *p, struct session *s, uint32_t pid, uint32_t tid, uint64_t ns);
/* The thread leaves the CPU, `why` (a constant): the view of calls says so, the timeline draws it itself. */
int ptsession_off_cpu(struct ptsession *p, uint32_t tid, uint64_t ns, const char *why);
/* The thread is gone: its calls end. */
int ptsession_end_thread(struct ptsession *p, struct session *s, uint32_t tid, uint64_t ns);
/* The recording ended at `ns`, the time of its last record. */
int ptsession_finish(struct ptsession *p, struct session *s, uint64_t ns);

/* How long which stage took, of those that it knows: they are taken from what setting up and the replay took. */
void ptsession_report_times(const struct ptsession *p, uint64_t *setup_ns, uint64_t *run_ns, struct json_object *stages);
void ptsession_report(const struct ptsession *p, struct json_object *stats, struct json_object *losses);
