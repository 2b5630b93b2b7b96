/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a frozen recording holds, for the files of this room and the back ends. Everything here is a
 * copy or a reference of its own; nothing points into the target, which may be disarmed meanwhile.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/hashmap.h"
#include "daemon/backend/capture.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target_internal.h"

struct event;
struct openings;

#define FROZEN_PRODUCERS_MAX 256

struct frozen_member {
	pid_t pid, nspid;
	uint64_t from_ns, to_ns;
	struct root *root; /* referenced */
	struct cred *cred; /* referenced */
	bool hidden;	   /* its owner may not see it, or the kernel has not said so yet */
	bool unseen;	   /* hidden since records were lost */
	char comm[PROC_COMM_MAX];
};

struct frozen {
	const struct backend *backend;
	struct openings *openings; /* borrowed */
	struct targets *targets;   /* borrowed */
	uint64_t target_id;
	/* identity */
	char name[24];
	enum target_scope scope;
	pid_t pid, tid;
	uint64_t start_time;
	char *unit, *exe;
	char comm[PROC_COMM_MAX];
	uid_t uid, owner;
	bool admin_only;
	enum target_state state;
	/* why, and since when; "": it is recorded until the freeze, or has ended */
	char suspended[TARGET_WHY_MAX];
	uint64_t suspended_ns;
	enum stacks_mode stacks;
	bool waits;
	uint64_t wait_min_ns; /* shorter ones have no stacks */
	bool kernel_stacks; /* in its rings; an admin's snapshot has them */
	bool kernel_waits;  /* the same, of the long waits alone */
	/* then: those of the kernel that have been copied, by themselves */
	struct hashmap kernel_addrs;
	int kallsyms_fd;    /* as the client that armed it opened it, or -1 */
	int kcore_fd;	    /* alike: the kernel is traced, and its code is wanted */
	uint64_t armed_unix_ns, armed_ns;
	char *warnings[TARGET_WARNINGS_MAX];
	size_t n_warnings;
	/* the moment */
	bool admin; /* who asks may see everything */
	uint64_t raw_ns, unix_ns, oldest_ns;
	uint64_t until_ns;   /* of somebody else's recording: its end */
	uint64_t stopped_ns; /* when all was frozen: a back end that stops recording had done so */
	/* what happened */
	struct frozen_member *members; /* sorted by pid, then time */
	size_t n_members, n_hidden;
	uint64_t left_out; /* processes that are no members: there were too many */
	struct sideband_log_view sideband;
	uint64_t history_lost, images_missing;
	struct image **images; /* referenced */
	size_t n_images;
	int vdso_fd;
	/* what is recorded */
	void *recording;    /* the back end's own */
	void *beside;	    /* of sampling, beside another back end */
	bool pending;	    /* the recording has not come yet, see frozen_go_on() */
	const atomic_bool *cancel; /* while it is set aside: nobody waits for that any more */
	bool not_aside;	    /* some of it could not be */
	const char *method; /* static */
	unsigned int hz;    /* of its clock; 0: it has none */
	const char *aux_pmu; /* static: the PMU whose trace it is; NULL: there is none */
	uint32_t aux_pmu_type;
	/*
	 * why there is no recording: an error of the protocol, and a sentence; NULL: there is one
	 */
	const char *missing;
	char missing_why[200];
	/* lost side-band records that are being read again */
	struct frozen_resync {
		struct resync_wait wait; /* in the target's list while it waits */
		bool begun, waits;
		struct event *limit;
	} resync;
	/* called when the recording has come, and when it waits for nothing any more */
	void (*ready)(void *arg);
	void *ready_arg;
	/* producers of event rings */
	struct frozen_producer {
		struct producer *producer; /* referenced */
		char file[64];		   /* in the bundle; "": not copied */
		int aside_fd;		   /* memory with the same, or -1 */
		struct producer_copy_stats stats;
	} *producers;
	size_t n_producers, producers_left_out;
	/* execution traces of Go programs: go_trace.c */
	struct frozen_go *go;
	size_t n_go, go_open; /* all; those that have not answered */
	struct event *go_limit;
	uint64_t go_asked_ns, go_max_bytes, go_max_total; /* MONOTONIC; of one, of all */
	void (*go_ready)(void *arg);
	void *go_ready_arg;
};

/* Asks the Go programs among the producers. 0 or -errno. */
int frozen_go_ask(struct frozen *frozen, struct targets *targets) _must_check_;
void frozen_go_fini(struct frozen *frozen);

/* Whether a process belonged to the target at that time, and may be seen. */
bool frozen_has(const struct frozen *frozen, uint32_t pid, uint64_t time_ns);
/* Whether one did that the target's owner may not see. */
bool frozen_hides(const struct frozen *frozen, uint32_t pid, uint64_t time_ns);
/* The member with this pid, the newest; NULL if none. */
const struct frozen_member *frozen_member(const struct frozen *frozen, pid_t pid);
/* Addresses of the kernel go to the bundle. 0 or -ENOMEM. */
int frozen_see_kernel(struct frozen *frozen, const uint64_t *addrs, size_t n) _must_check_;
/* Writes the side-band log. 0 or -errno. */
int frozen_copy_sideband(struct frozen *frozen, struct perfdata_writer *writer,
			 struct frozen_stats *stats);
/* Since when the target is recorded: rings may be older than it. */
uint64_t frozen_recorded_from(const struct frozen *frozen);
/*
 * The back end has gone on recording until now. What explains the recording is taken again:
 * meanwhile processes have begun and ended, and mapped files. Without memory, or if the target was
 * disarmed, it stays as it was. The loop.
 */
void frozen_renew(struct frozen *frozen);
/* For what it waited for: it has come, or will not come. */
void frozen_go_on(struct frozen *frozen);
