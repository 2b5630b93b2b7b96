/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a frozen recording holds, for daemon/backend/capture.c and the back end's copy. Everything here is a copy
 * or a reference of its own; nothing points into the target, which may be disarmed meanwhile.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/control/stepabi.h"
#include "daemon/backend/capture.h"
#include "daemon/producer/producer.h"
#include "daemon/target/target_internal.h"

struct event;
struct openings;
struct freeze_reply;

#define FROZEN_PROGRAMS_MAX 256

struct frozen_member {
	pid_t pid, nspid;
	uint64_t from_ns, to_ns;
	struct root *root; /* referenced */
	struct cred *cred; /* referenced */
	char comm[PROC_COMM_MAX];
};

struct frozen_source {
	struct sample_set *set; /* referenced until resume */
	uint64_t from_ns, to_ns, lost_at;
};

struct frozen {
	const struct backend *backend;
	struct openings *openings; /* borrowed */
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
	enum stacks_mode stacks;
	bool waits;
	uint64_t armed_unix_ns, armed_ns;
	char *warnings[TARGET_WARNINGS_MAX];
	size_t n_warnings;
	/* the moment */
	bool admin; /* who asks may see everything */
	uint64_t raw_ns, unix_ns, oldest_ns;
	/* what happened */
	struct frozen_member *members; /* sorted by pid, then time */
	size_t n_members;
	struct histlog_view history;
	uint64_t history_lost, images_missing;
	struct image **images; /* referenced */
	size_t n_images;
	int vdso_fd;
	/* the rings */
	unsigned int hz;
	struct frozen_source sources[TARGET_SOURCES_MAX];
	size_t n_sources;
	const char *method; /* of the newest source; static */
	struct frozen_ring { /* written by the copy, read after it */
		int cpu;
		uint64_t oldest_ns; /* of what was in it; 0: nothing */
		bool wrapped;       /* there had been more */
	} *rings;
	size_t n_rings;
	/* what the kernel has lost of the history is being read again */
	struct frozen_resync {
		LIST_ENTRY(frozen) link; /* of the target, while it waits */
		bool waits;
		struct event *limit;
	} resync;
	void (*ready)(void *arg); /* when it waits for nothing any more */
	void *ready_arg;
	/* somebody else's recording */
	struct frozen_step {
		struct freeze_reply *answer; /* referenced until resume; NULL: none was asked for */
		struct event *wait;	   /* for the answer */
		bool waits;
		struct stepabi_stats stats;
		uint64_t raw_ns;  /* until when it records; 0: it did not come */
		const char *code; /* NULL: it came; else why not, as an error and a sentence */
		char why[200];
	} step;
	/* programs that have registered event rings */
	struct frozen_program {
		struct producer *producer; /* referenced */
		char file[64];		   /* in the bundle; "": not copied */
		struct producer_copy_stats stats;
	} *programs;
	size_t n_programs, programs_left_out;
	/* objects, found when first asked for */
	struct frozen_object *objects;
	size_t n_objects;
	bool objects_known;
};

/* Whether a process belonged to the target at that time. */
bool frozen_has(const struct frozen *frozen, uint32_t pid, uint64_t time_ns);
/* The member with this pid, the newest; NULL if none. */
const struct frozen_member *frozen_member(const struct frozen *frozen, pid_t pid);
/* Something that it waited for is here, or will not come. */
void frozen_go_on(struct frozen *frozen);
/* The same of a resync: `log` has what was read again of the target; NULL: nothing was. */
void frozen_resynced(struct frozen *frozen, const struct target *target, const struct histlog *log);
