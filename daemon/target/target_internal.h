/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a target is made of, for the files of this room, the back ends and daemon/backend/capture.c,
 * which freezes it. Everybody else has daemon/target/target.h. No back end is known here by name:
 * what it keeps is target->recording.
 */
#pragma once

#include <event2/event.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>
#include <sys/types.h>

#include "common/base/procfs.h"
#include "daemon/base/cred.h"
#include "daemon/control/quota.h"
#include "daemon/target/backend.h"
#include "daemon/target/cgroup.h"
#include "daemon/target/image.h"
#include "daemon/target/sideband_events.h"
#include "daemon/target/sideband_log.h"
#include "daemon/target/target.h"

struct arming;
struct closer;
struct openings;
struct producers;
struct stackprobe;
struct unit_watch;
struct work_queue;

#define TARGET_IMAGES_MAX 1024
#define TARGET_MEMBERS_MAX 8192 /* processes of a unit, ended ones with data included */
#define TARGET_WARNINGS_MAX 8
#define TARGET_WHY_MAX 200
#define MEMBER_BUCKETS 1024
#define MEMBER_UNITS_MAX 64 /* targets that one process can belong to */

/*
 * Whether a target's owner may see a process of it; asked of the kernel where he is no
 * administrator.
 */
enum proof {
	PROOF_GIVEN,
	PROOF_ASKED,   /* recorded, and in no snapshot before the answer */
	/* or unknown: it ended, or executed yet another program, before the answer */
	PROOF_REFUSED,
};

/* A process of a target, for as long as retained data may be of it. */
struct member {
	LIST_ENTRY(member) by_pid;
	TAILQ_ENTRY(member) link;
	struct target *target; /* back pointer */
	pid_t pid, nspid;
	uint64_t start_time; /* 0 if it could not be read */
	uint64_t from_ns, to_ns; /* CLOCK_MONOTONIC_RAW; UINT64_MAX while it lives */
	uint64_t threads;	 /* that live; 0: not known */
	TAILQ_ENTRY(member) ending; /* while `ends` is not 0 */
	/* looks that it may still take until it is seen to have ended */
	unsigned int ends;
	struct root *root; /* referenced; NULL if it could not be opened */
	struct cred *cred; /* referenced; as last read; NULL if never */
	enum proof proof;
	bool unseen; /* refused: an exec may have been missed, so what it was then is not known */
	struct opening *asking; /* owned; NULL: nothing is under way */
	struct image **held;	/* owned and referenced: those of its code, while it is asked for */
	size_t n_held;
	struct sideband_follow *follow; /* where machine-wide side-band events are not permitted */
	char comm[PROC_COMM_MAX];
};

/* Who waits until lost records of a target are made up for. */
struct resync_wait {
	LIST_ENTRY(resync_wait) link;
	/* Called once, out of the list. `log` has what was read again; NULL: nothing was. */
	void (*done)(struct resync_wait *wait, const struct target *target,
		     const struct sideband_log *log);
};

/* What daemon/target/work.c does for a target, the most urgent first. */
enum target_work {
	WORK_RESYNC = 1 << 0, /* the kernel lost records: /proc is read again */
	WORK_REARM = 1 << 1,  /* its back end would record in another way */
	/* a unit: reads who is in it; after the events of its new control group are there */
	WORK_SCAN = 1 << 2,
	WORK_FORGET = 1 << 3, /* its side-band log is nearly full, or its list of processes */
	WORK_ARM = 1 << 4,
};

struct target {
	TAILQ_ENTRY(target) link; /* not while it is being armed */
	struct targets *targets; /* back pointer */
	uint64_t id;
	char name[24];
	enum target_scope scope;
	enum target_state state;
	struct proc proc; /* process and thread; pid 0 for a unit */
	pid_t tid;        /* thread */
	struct cgroup cgroup; /* unit */
	struct {
		int events, parent; /* numbers of inotify; -1 */
		unsigned int looks; /* at once, since the last tick */
	} watched;
	char *unit;           /* as asked for */
	/* since when the control group is gone, CLOCK_MONOTONIC_RAW; 0: it is there */
	uint64_t away_ns;
	char comm[PROC_COMM_MAX];
	char *exe;
	/* authority */
	uid_t owner, uid;
	bool owner_admin, admin_only;
	/* what was asked for, and what is */
	enum stacks_mode stacks_asked, stacks;
	bool waits;
	bool kernel_stacks; /* asked for by an admin */
	int kallsyms_fd;    /* as its client opened it, or -1 */
	int kcore_fd;	    /* alike: of a trace of the kernel */
	/* how far back its samples are to reach; 0: as far as the configured rings do */
	uint64_t keep_ns;
	uint64_t wait_min_ns; /* shorter waits need no stacks; 0: all do */
	/* a process that a member starts is one of the target's; of a group always */
	bool children;
	bool several;  /* others have joined it */
	TAILQ_HEAD(, join) joins; /* that are under way */
	size_t n_joins;
	const struct backend *backend;
	void *recording; /* the back end's own */
	void *beside;	 /* what sampling keeps of a target that another back end records */
	char *why[TARGET_WARNINGS_MAX];
	size_t n_why;
	char *warnings[TARGET_WARNINGS_MAX];
	size_t n_warnings;
	bool probe_waits; /* for the answer of targets->probe */
	/* side-band */
	TAILQ_HEAD(member_list, member) members;
	size_t n_members, n_living;
	size_t n_closed;   /* processes that may not be read */
	/* processes that it started and that are not recorded: there were too many */
	uint64_t left_out;
	uint64_t refused;  /* entries of processes that its owner may not see */
	/* of those that he may see and that live: the next one to be looked at */
	size_t n_looked;
	struct sideband_log log;
	struct image **images; /* referenced */
	size_t n_images, images_room;
	uint64_t images_missing;
	uint64_t sideband_lost_at; /* the kernel's count when it was armed */
	uint64_t sideband_lost_end; /* and when its recording ended */
	uint64_t lost_ns;         /* when a loss was reported that is not made up for yet */
	/* work */
	struct arming *arming; /* NULL: it is in the list */
	unsigned int work;     /* that waits for its turn */
	/* a thread that reads the process hangs, see daemon/base/readers.h */
	bool hanging;
	LIST_HEAD(, resync_wait) waiting;
	/* life */
	struct event *exit_event; /* on the pidfd */
	struct event *gone_event; /* the end of the grace time */
	/* nobody armed it: where the stack of the program began that registered; 0: not known */
	uint64_t program_stack;
	uint64_t armed_unix_ns, armed_ns, ended_ns;
	uint64_t state_unix_ns; /* since when it is in its state; 0: since it was armed */
	char suspended[TARGET_WHY_MAX]; /* why, from ended_ns on; "": it was not */
	/* what it costs its owner */
	struct quota_charge charge_target, charge_fds;
};

struct targets {
	struct event_base *base;
	const struct config *config;
	struct quota *quota;
	struct hub *hub;
	struct targets_callbacks callbacks;
	TAILQ_HEAD(, target) list;
	TAILQ_HEAD(, arming) armings;
	size_t n_armings;
	struct work_queue *work;
	bool stopping;
	LIST_HEAD(, member) by_pid[MEMBER_BUCKETS];
	TAILQ_HEAD(, member) ending; /* a thread of them ended, perhaps the last one */
	struct event *ending_event;  /* pending while there are any */
	uint64_t last_id;
	size_t n_armed, n_suspended, n_exited;
	size_t n_events; /* of those that are armed: the ones that nobody armed */
	struct producers *producers; /* borrowed; NULL: none (tests) */
	const struct clockseries *clocks; /* likewise */
	struct closer *closer;
	void *machines[BACKENDS]; /* what each back end keeps of the machine */
	struct openings *openings; /* borrowed; NULL: none (tests) */
	struct sideband_events *sideband;
	/* why the machine-wide one does not run; 0 if it does or was not tried */
	int sideband_error;
	struct images *images;
	struct stackprobe *probe;
	int cgroup_fd; /* the mount; -1 */
	int vdso_fd;
	struct unit_watch *unit_watch;
	struct event *tick; /* once a second while something is watched */
	struct event *unanswered; /* while files of targets are to be asked for once more */
};

/* ---- target.c */
/*
 * Makes a target of what was asked for, without its process, or answers why its back end cannot: 0,
 * TARGET_E_*, -errno. Nothing is begun.
 */
int target_new(struct targets *targets, const struct backend *backend,
	       const struct target_request *req, struct target **ret, char *why,
	       size_t why_size) _must_check_;
/* Frees one that is in no list, half made or whole. */
struct target *target_free(struct target *target);
/* Makes its events: the exit, the end of the grace time. 0, -ENOMEM. */
int target_watch(struct target *target) _must_check_;
void target_set_state(struct target *target, enum target_state state);
void target_emit(struct target *target, const char *state);
/* Add a note; printf-like. */
void target_warn(struct target *target, const char *fmt, ...) _printf_(2, 3);
void target_say_why(struct target *target, const char *fmt, ...) _printf_(2, 3);
void target_clear_notes(struct target *target);
void target_warn_closed(struct target *target);
/* Ends the recording; what is recorded stays. */
void target_suspend(struct target *target, uint64_t at_ns, const char *why);
void target_exited(struct target *target, uint64_t at_ns);
/* Tells subscribers, and those who watch its processes, that these have ended. */
void target_report_end(struct target *target);
/* Side-band records that the kernel lost while it was recorded, of whomever. */
uint64_t target_history_lost(const struct target *target);
/* Reads name, executable and credentials again. */
void target_refresh(struct target *target);
/* Suspends a user's target whose credentials have become stricter. */
void target_recheck(struct target *target);
/* The same once a second, cheaply. */
void target_look(struct target *target);
/*
 * Charges the owner for the descriptors that the target has, and `more`. 0, QUOTA_E_EXCEEDED,
 * -ENOMEM.
 */
int target_charge_fds(struct target *target, size_t more) _must_check_;

/* ---- targets.c */
/* Puts one that records into the list. */
void targets_add(struct targets *targets, struct target *target);
/*
 * Side-band records were lost, none before `whole_ns`: reads /proc again for all targets that
 * record.
 */
void targets_resync(struct targets *targets, uint64_t whole_ns);
/* CPUs went or came: side-band records of them are missing since then, and come again. */
void targets_cpus_changed(struct targets *targets, uint64_t since_ns);
/* What the back end's open() has made. */
void *targets_machine(const struct targets *targets, const struct backend *backend);
/* A survey that a back end began has ended. */
void targets_surveyed(struct targets *targets);
/* The counter of targets in this state. */
size_t *targets_state_count(struct targets *targets, enum target_state state);

/* ---- json.c */
/* Adds to a status' list of what the machine lacks. */
void lack_append(struct json_object *list, const char *what, const char *cost);

/* ---- member.c */
/*
 * The next entry of the process `pid`, ended ones and those of all targets included; NULL: the
 * first.
 */
struct member *member_next(const struct targets *targets, pid_t pid, const struct member *after);
/* Whether no earlier entry of the target is of the same process. */
bool member_is_first(const struct member *member);
/* The living process `pid` of the target, or NULL. */
struct member *member_find(const struct target *target, pid_t pid);
/* Whether `pid` is or was a process of the target. */
bool member_known(const struct target *target, pid_t pid);
/* The living members, of all targets, that are this process: their number, at most `room`. */
size_t members_of(const struct targets *targets, pid_t pid, struct member **ret, size_t room);
/* Adds a process: its records begin at `from_ns`. `proc_dirfd` -1: opened by pid. PROC_E_GONE. */
int member_add(struct target *target, pid_t pid, int proc_dirfd, uint64_t from_ns,
	       struct member **ret) _must_check_;
/* Adds a process that a member forked; it may have ended by now. 0, -E2BIG, -ENOMEM. */
int member_fork(struct member *parent, pid_t pid, uint64_t at_ns) _must_check_;
/*
 * Another entry of the same process from then on. 0, -E2BIG, -ENOMEM; the old one has ended in any
 * case.
 */
int member_replace(struct member *member, uint64_t at_ns, struct member **ret) _must_check_;
/* One that has ended: what it was from then on is another entry, behind it. 0, -E2BIG, -ENOMEM. */
int member_split(struct member *member, uint64_t at_ns, struct member **ret) _must_check_;
/* Reads its rights on files; keeps the old ones where that fails. */
void member_read_cred(struct member *member, int proc_dirfd);
/*
 * Whether files may be opened for the target with these rights: of a user's target with that user's
 * only.
 */
bool cred_is_of(const struct cred *cred, uid_t uid);
void member_end(struct member *member, uint64_t at_ns);
struct member *member_free(struct member *member);
void members_end(struct target *target, uint64_t at_ns);
/* Forgets those that ended before the oldest data. */
void members_prune(struct target *target, uint64_t oldest_ns);
/* Reports to the back end that a process has joined or left the target. */
int target_member_changed(struct target *target, pid_t pid);
/*
 * Ends those that are not among `pids`, which are sorted and were read from `listed_ns` on. False:
 * the deadline came first.
 */
bool members_leave(struct target *target, const pid_t *pids, size_t n, uint64_t listed_ns,
		   uint64_t at_ns, uint64_t deadline);
/*
 * Those that have not ended, or only those of them that the owner may see; a new array. 0, -ENOMEM.
 */
int members_pids(const struct target *target, bool visible, pid_t **ret,
		 size_t *ret_n) _must_check_;
/* An O_PATH descriptor of /proc/PID, or -errno. */
int proc_dir_open(pid_t pid);

/* ---- work.c */
int work_queue_new(struct targets *targets, struct work_queue **ret) _must_check_;
/* Drops what is under way; its targets must still exist. */
struct work_queue *work_queue_free(struct work_queue *work);
/* Queues work; on the loop's next turn at the earliest. */
void target_work(struct target *target, unsigned int what);
/* Whether it is queued or under way. */
bool target_has_work(const struct target *target, enum target_work what);
/* The number of threads that hang in processes; whether this target's user may have one more. */
size_t work_queue_hanging(const struct targets *targets);
bool work_queue_may(const struct target *target);
/*
 * Has a job of somebody else's read this target's process; false: too many threads hang in those of
 * its user.
 */
struct reader_job;
bool work_queue_read(const struct target *target, struct reader_job *job);
/* Drops the work on a target that goes. */
void work_queue_forget(struct target *target);
/* Has the queue looked at: there is something to arm, or an arming was refused. */
void work_queue_look(struct targets *targets);

/* ---- producers.c */
/* Whether any target needs side-band events. */
bool targets_record(const struct targets *targets);
/* "events" of T; *ret NULL: none of its processes is a producer. 0, -ENOMEM. */
int target_events_json(struct target *target, struct json_object **ret) _must_check_;
/* The next of a target's producers, member by member; both are NULL at first. */
struct producer *target_next_producer(const struct target *target, const struct member **member,
				      struct producer *p);

/* ---- family.c */
/* Whether it can be more than one process: members come and go. */
bool target_has_many(const struct target *target);
/* The same of no unit or host: it ends with the last one. */
bool target_is_family(const struct target *target);
/* A thread of the process has been made, or has ended. */
void family_thread_began(struct member *member);
void family_thread_ended(struct member *member);
/* Looks at whether the process has ended. */
void family_look(struct member *member);
/* The callback of targets->ending_event. */
void family_on_ending(int fd, short what, void *arg);

/* ---- unit.c */
/*
 * The control group of a unit may have changed: it is looked at now or, if that has come too often,
 * at the next tick.
 */
void unit_look(struct target *target);
/* A look at a unit has found no control group: it ends when that lasts. */
void unit_away(struct target *target);
/* It has found another one under the path, which is taken. */
void unit_back(struct target *target, struct cgroup *cgroup);

/* ---- proof.c */
/*
 * Of a user's target: nothing of the process is in a snapshot until the kernel says that the user
 * may look into it.
 */
void proof_ask(struct member *member);
/*
 * It has executed another program, of which nothing is proven. 0, -E2BIG, -ENOMEM: nobody records
 * it any more.
 */
int proof_exec(struct member *member, uint64_t at_ns, struct member **ret) _must_check_;
/*
 * The process has executed another program, or its entry goes: what is not known of it by now never
 * will be.
 */
void proof_end(struct member *member);
/*
 * An image of its code, which is the target's with the proof. Takes the reference, whatever comes
 * of it. 0, -errno.
 */
int proof_hold(struct member *member, struct image *image) _must_check_;
/*
 * Records of execs may be missing since then: what runs is to be proven again, and what has ended
 * cannot be.
 */
void proof_again(struct target *target, uint64_t since_ns);
/* Takes the proof back from processes that their user may not look into any more. */
void proof_recheck(struct target *target);
/*
 * The same, once a second and cheaply, of some of them at a time: what one of them was is not known
 * any more when it has ended.
 */
void proof_look(struct target *target);
/*
 * Whether /proc is not its user's: it hides, or has no memory. One call; what it says is to be made
 * sure of.
 */
bool proof_looks_closed(pid_t pid, uid_t uid);

/* ---- sideband.c */
/* The callback of struct sideband_events. */
void sideband_on_record(void *arg, const struct sideband_record *record);
/* Logs one record and opens the file that it maps. */
void sideband_keep(struct target *target, const struct perf_event_header *record);
/* Takes the reference, whatever comes of it. 0, -errno. */
int sideband_add_image(struct target *target, struct image *image) _must_check_;
void sideband_free_images(struct target *target);
/* The number of executable mappings whose file is missing. */
uint64_t target_images_missing(const struct target *target);
