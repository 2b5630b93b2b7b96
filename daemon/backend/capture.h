/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Freezing a target. A frozen recording is what a snapshot needs of one moment: the target's
 * identity, its side-band log, its images, and references to its rings. The target goes on
 * recording.
 *
 *   loop    target_freeze() ─► frozen
 *   thread  frozen_set_aside(): what is overwritten meanwhile ─► memory
 *   copier  frozen_copy(): rings ─► private memory ─► records that the reader may see ─► the writer
 *   loop    frozen_meta(), frozen_image_fd(), frozen_open() while the decoder asks
 *   loop    frozen_resume() once the copy is done or given up, frozen_free() at the very end
 *
 * A recording that somebody else has made (back end "step") must come before the copy:
 * frozen_waits().
 *
 * Only the copies run on another thread; meanwhile the loop must not touch the same frozen
 * recording.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/target/opening.h"

struct filenote;
struct frozen;
struct hashmap;
struct json_object;
struct perfdata_about;
struct perfdata_writer;
struct target;

/* What a copy wrote and what it left out; all counts are of records. */
struct frozen_stats {
	uint64_t samples;    /* of the clock */
	uint64_t switches;   /* "sched" events of all kinds, or SWITCH records */
	uint64_t wakeups;    /* of those, wake-ups */
	uint64_t mmaps;      /* MMAP2 */
	uint64_t comms;      /* COMM */
	uint64_t forks;      /* FORK */
	uint64_t exits;      /* EXIT */
	uint64_t namespaces; /* NAMESPACES */
	uint64_t complete_from_ns; /* from then on no ring has lost anything; 0: none has */
	/* MONOTONIC_RAW of the oldest and newest sample or switch; 0 if none */
	uint64_t first_ns, last_ns;
	/* losses */
	uint64_t foreign;    /* records of others in a shared ring: not this target's loss */
	uint64_t torn;       /* oldest record of a ring, overwritten while it was copied */
	/* records that contradict their own layout; the ring's walk ended there */
	uint64_t malformed;
	uint64_t overwritten_bytes; /* dropped because the writer passed them during the copy */
	/* the kernel had no room or the ring was busy (LOST records, PERF_FORMAT_LOST) */
	uint64_t lost;
	uint64_t throttled;  /* THROTTLE records */
	uint64_t history_lost; /* side-band records that were not recorded in time */
	uint64_t history_dropped; /* side-band records over history_mib */
	uint64_t images_missing; /* executable mappings whose file could not be opened */
	uint64_t processes_left_out; /* over the limit of a target's processes */
	/* left out: the owner may not look into them, or the kernel was not asked in time */
	uint64_t processes_refused;
	uint64_t bytes;      /* written to perf.data by this copy */
	uint64_t copy_ns;    /* how long the rings were read; the recording was not paused */
};

/*
 * Takes references to everything that a snapshot needs. `admin`: the requester may see kernel
 * addresses and names of other users. 0 or -errno. The caller frees it.
 */
int target_freeze(struct target *target, bool admin, struct frozen **ret) _must_check_;

/*
 * On the loop: whether it is too early to copy. `fn` is called when it no longer is, and also
 * before, when the recording has come: it is to be set aside then, whatever else is waited for.
 */
bool frozen_waits(const struct frozen *frozen);
void frozen_when_ready(struct frozen *frozen, void (*fn)(void *arg), void *arg);

/*
 * On the loop: its moment is still to come, as the back end goes on recording until it has stopped
 * all. If not, and before anything else: frozen_set_aside() copies what is overwritten meanwhile
 * into memory, at most `max_bytes`. Any thread, even while frozen_waits(). What has no room, or
 * failed, stays where it is until it is copied, and *ret_all is false. The bytes until
 * frozen_resume().
 */
bool frozen_comes_later(const struct frozen *frozen);
uint64_t frozen_set_aside(struct frozen *frozen, uint64_t max_bytes, const atomic_bool *cancel,
			  bool *ret_all);

/* Copier thread, before the other copies: what the target's processors wait for. 0 or -errno. */
int frozen_take(struct frozen *frozen) _must_check_;

/*
 * Copier thread: writes the perf.data that somebody else has recorded, and its files, into the
 * bundle's directory. 0; CAPTURE_E_OWN: the back end imports none, so frozen_copy() writes one;
 * CAPTURE_E_NONE: the same, because it did not come (frozen_missing()); -errno.
 */
enum { CAPTURE_E_OWN = 1, CAPTURE_E_NONE };
int frozen_import(struct frozen *frozen, int dir_fd, uint64_t max_bytes, const atomic_bool *cancel,
		  uint64_t *ret_bytes) _must_check_;
/* Why the recording is missing: an error of the protocol and a sentence; NULL: it is not. */
const char *frozen_missing(const struct frozen *frozen, const char **ret_why);
/* Whether there are event rings. */
bool frozen_has_producers(const struct frozen *frozen);

/* What the file's features say of the recording. */
void frozen_about(const struct frozen *frozen, struct perfdata_about *about);

/*
 * Copier thread: adds the events to `writer`, then writes the side-band log, samples and switches
 * of this target, and nothing that belongs to others. 0 or -errno (of the writer, or memory).
 */
int frozen_copy(struct frozen *frozen, struct perfdata_writer *writer,
		struct frozen_stats *ret) _must_check_;

/*
 * Copier thread: writes the event rings of the target's producers into files of the bundle's
 * directory (BUNDLE_RINGS), at most `max_bytes` together. Comes before the other copy, because
 * programs go on writing. *ret_cut: some are missing. 0 or -errno.
 */
int frozen_copy_producers(struct frozen *frozen, int dir_fd, uint64_t max_bytes,
			  const atomic_bool *cancel, bool *ret_cut) _must_check_;
/*
 * On the loop: whether a Go program has still to answer. Nothing is paused meanwhile, so the other
 * copies do not wait. `fn` is called once, when all have answered or the time is over.
 */
bool frozen_go_waits(const struct frozen *frozen);
void frozen_when_go_ready(struct frozen *frozen, void (*fn)(void *arg), void *arg);
/*
 * Copier thread, then: writes the traces of Go programs into the bundle's directory. What has no
 * room on the disk is lost.
 */
int frozen_copy_go(struct frozen *frozen, int dir_fd, const atomic_bool *cancel) _must_check_;
/* Traces that are missing, once no one is waited for. */
size_t frozen_go_lost(const struct frozen *frozen);
/* More is known since the copying than frozen_go_to_json() said before. */
bool frozen_go_is_new(const struct frozen *frozen);
/* "go" of meta.json; NULL: there is no Go program. */
struct json_object *frozen_go_to_json(const struct frozen *frozen);

/* On the loop, once the bundle is on disk: drops what ended producers left. */
void frozen_published(struct frozen *frozen);

/* Gives the rings back. Idempotent. */
void frozen_resume(struct frozen *frozen);
struct frozen *frozen_free(struct frozen *frozen);
DEFINE_CLEANUP(struct frozen *, frozen_free)

/*
 * Who may have the snapshot: the strictest credentials that the target had while it was recorded.
 * frozen_admin_only(): at some moment only an admin could have traced it.
 */
uid_t frozen_uid(const struct frozen *frozen);
bool frozen_admin_only(const struct frozen *frozen);
/* Clock times of the freeze (CLOCK_MONOTONIC_RAW, and unix time). */
uint64_t frozen_raw_ns(const struct frozen *frozen);
/* Else its recording had ended before: the target had, or was suspended. */
bool frozen_was_armed(const struct frozen *frozen);
/* The end of what it has, likewise: later, if somebody else has recorded it. Once copied. */
uint64_t frozen_until_ns(const struct frozen *frozen);
/*
 * When nothing of it was recorded any more, likewise: later, if the back end stops what it records.
 */
uint64_t frozen_stopped_ns(const struct frozen *frozen);
uint64_t frozen_unix_ns(const struct frozen *frozen);

/*
 * The pieces of meta.json that capture knows: {"target", "events", "records", "losses",
 * "processes":[{pid,nspid,comm,exe,root..}]}. `stats` may be NULL (before the copy). New object;
 * NULL on allocation failure.
 */
struct json_object *frozen_meta(const struct frozen *frozen, const struct frozen_stats *stats);

/*
 * A borrowed O_RDONLY fd of a mapped file, by the identity in its MMAP2 record, or -1; and its
 * image_note(), borrowed.
 */
int frozen_image_fd(const struct frozen *frozen, uint32_t major, uint32_t minor, uint64_t ino,
		    const struct filenote **ret_note);
/*
 * Opens what a decoder needs in the world of the process `file->pid` of the target (0: its first
 * one), with that process's rights and beneath its root; see daemon/target/opening.h for what `fn`
 * gets. What the process is called in its own pid namespace (perf maps are named by it) is filled
 * in here. 0, -ESRCH (no such process of the target, or nothing is known of it), -EACCES (it had
 * other rights than whose snapshot it is), -EBUSY, -ENOMEM, -EMFILE.
 */
int frozen_open(struct frozen *frozen, const struct file_request *file, uint64_t max_copy,
		opening_fn fn, void *arg, struct opening **ret) _must_check_;
/* Whether its records have addresses of the kernel's functions. */
bool frozen_has_kernel_stacks(const struct frozen *frozen);
/* Once it is copied: the addresses that need names, borrowed; NULL: any may. */
const struct hashmap *frozen_kernel_addresses(const struct frozen *frozen);
/* /proc/kallsyms as the client that armed it opened it, borrowed, or -1. */
int frozen_kallsyms_fd(const struct frozen *frozen);
/* /proc/kcore, where what is recorded needs the kernel's code, borrowed, or -1. */
int frozen_kcore_fd(const struct frozen *frozen);
/* Borrowed memfd with the vDSO's ELF image that the targets map, or -1. */
int frozen_vdso_fd(const struct frozen *frozen);
