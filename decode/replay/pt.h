/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The PT half of a session: takes branches in the order of time, keeps a stack of calls for each
 * thread (decode/calls/callstack.h) and draws it. Owns what one decode needs of PT from the buffers
 * to the threads; the session keeps processes and threads and says when.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct gofeed;
struct images;
struct json_object;
struct perfdata;
struct process_maps;
struct pt_blind;
struct dump;
struct replay_pt;
struct session;
struct stackwalk;
struct workers;

enum { REPLAY_PT_E_NONE = 1, /* the recording has no PT, or none that can be read */ };

/*
 * Before the replay, first of all: finds the buffers. Everything is borrowed. With a `dump` it is
 * written there and not drawn. `inlined`: inlined calls are drawn, too; then the session must have
 * a source. `verify`: libipt follows the same trace beside (decode/pt/verify.h).
 * 0, REPLAY_PT_E_NONE, or a negative errno.
 */
int replay_pt_new(struct perfdata *pd, struct workers *workers, struct budget *budget,
		  struct dump *dump, bool inlined, bool verify,
		  struct replay_pt **ret) _must_check_;
struct replay_pt *replay_pt_free(struct replay_pt *p);
DEFINE_CLEANUP(struct replay_pt *, replay_pt_free)

/* When CPUs were not traced; borrowed. */
void replay_pt_set_blinds(struct replay_pt *p, const struct pt_blind *v, size_t n);

/*
 * Who begins to be traced after that is nobody of the recording: it was born while it ended. 0: not
 * known.
 */
void replay_pt_set_end(struct replay_pt *p, uint64_t ns);

/* Then each record in the order of time: who ran (decode/replay/prescan.h). 0 or -errno. */
struct perfevent;
int replay_pt_record(struct replay_pt *p, const struct perfevent *ev) _must_check_;
/* Then opens the files of the code, and begins: `maps` have all records. 0 or -errno. */
int replay_pt_open(struct replay_pt *p, struct images *images,
		   struct process_maps *maps) _must_check_;

/*
 * What the program's own trace tells of its goroutines is read, and decides which one goes on
 * (decode/replay/goruns.h). 0 or -errno.
 */
int replay_pt_add_go(struct replay_pt *p, const struct gofeed *feed) _must_check_;

/* The time of the next branch: UINT64_MAX at the end; -errno. */
int replay_pt_peek(struct replay_pt *p, uint64_t *ret_ns);
/* Draws the next branches that happened before `before`, *ret_n of them. 0 or -errno. */
int replay_pt_run(struct replay_pt *p, struct session *s, uint64_t before, size_t *ret_n);
/*
 * The last stack of the walk (which must have wanted places) is the thread's at `ns`: what is
 * outside of its calls is around them (decode/calls/callstack.h). 0 or -errno.
 */
int replay_pt_seen(struct replay_pt *p, struct session *s, uint32_t tid, uint64_t ns,
		   const struct stackwalk *w);
/*
 * Before anything is asked of the thread at `ns`: if it has run while its CPU was not traced, its
 * calls are not known any more. 0 or -errno.
 */
int replay_pt_reach(struct replay_pt *p, struct session *s, uint32_t tid, uint64_t ns);
/* The thread's stack at this moment, for its waits; STACKTAB_ROOT if it has none. */
uint32_t replay_pt_stack(struct replay_pt *p, uint32_t tid);
/*
 * A thread is new: with another process than its parent's it begins within all that the parent is
 * in, else with its first function. 0 or -errno.
 */
int replay_pt_fork(struct replay_pt *p, struct session *s, const struct perfevent *fork);
/*
 * The program is another one: the calls of all threads of the process end, and `tid` begins anew.
 */
int replay_pt_exec(struct replay_pt *p, struct session *s, uint32_t pid, uint32_t tid, uint64_t ns);
/*
 * The thread leaves the CPU, `why` (a constant): the dump of calls says so, the timeline draws it
 * itself.
 */
int replay_pt_off_cpu(struct replay_pt *p, uint32_t tid, uint64_t ns, const char *why);
/* The thread is gone: its calls end. */
int replay_pt_end_thread(struct replay_pt *p, struct session *s, uint32_t tid, uint64_t ns);
/* The recording ended at `ns`, the time of its last record. */
int replay_pt_finish(struct replay_pt *p, struct session *s, uint64_t ns);

/*
 * How long which stage took, of those that it knows: they are taken from what setting up and the
 * replay took.
 */
void replay_pt_report_times(const struct replay_pt *p, uint64_t *setup_ns, uint64_t *run_ns,
			    struct json_object *stages);
void replay_pt_report(const struct replay_pt *p, struct json_object *stats,
		      struct json_object *losses);
