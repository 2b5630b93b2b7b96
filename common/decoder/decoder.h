/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parent's side of one tracerd-decode process: starts it with limits and without privilege,
 * speaks the protocol of common/decoder/protocol.h and calls its owner back. Used by the daemon on
 * its libevent loop and by tracectl on poll(); knows neither.
 *
 *   decoder_start -> (on_request, on_verdict, on_progress)* -> on_end, exactly once -> decoder_free
 *
 * Threat: the process may be taken over by what it parses. It has no capability, NO_NEW_PRIVS,
 * rlimits, an empty environment and no fd but what the job gave it; all it says goes through the
 * codec's checks, its stderr is kept to DECODER_MAX_STDERR bytes and escaped. The owner sets a wall
 * timeout of its own and calls decoder_kill(). A file that it was given may make it wait for ever,
 * where no signal ends it: nothing here waits for a process. One that was killed and does not die
 * is at its end for the owner after DECODER_GRACE_MS, and on the list of common/decoder/dying.h.
 */
#pragma once

#include <json-c/json.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/decoder/protocol.h"

#define DECODER_MAX_STDERR 4096
#define DECODER_MAX_REQUESTS 100000 /* a decoder that asks more often is broken and killed */
/* one that was killed and has not died by then is waited for by nobody */
#define DECODER_GRACE_MS 2000
#define DECODER_MAX_UNJUDGED 64	 /* files that it has and gave no verdict on; more: likewise */

struct decoder;

enum decoder_end {
	DECODER_DONE,	 /* RESULT ok, exit 0 */
	DECODER_REFUSED, /* RESULT with an error: the input is bad, a limit was met */
	DECODER_CRASHED, /* died by a signal, exited without RESULT, or broke the link's rules */
	DECODER_KILLED,	 /* by decoder_kill() */
};

struct decoder_outcome {
	enum decoder_end end;
	int status;			/* of waitpid; 0 if it has not died */
	bool undead;			/* killed, and has not died */
	const struct decoder_result *result; /* with DONE and REFUSED, else NULL; borrowed */
	/* one line for people, escaped: what went wrong; "" when DONE */
	const char *message;
	const char *stderr_text;	/* the last of its stderr, escaped; may be "" */
	uint64_t requests, found;
	uint64_t cpu_ns, max_rss_bytes; /* of the whole process */
};

struct decoder_callbacks {
	/* Must be answered by decoder_answer(), now or later. */
	void (*on_request)(struct decoder *d, const struct file_request *request, void *arg);
	/* Once for a request that was answered with a file, and for no other. May be NULL. */
	void (*on_verdict)(struct decoder *d, const struct file_verdict *verdict, void *arg);
	/* may be NULL */
	void (*on_progress)(struct decoder *d, const struct decoder_progress *progress, void *arg);
	/* The process is reaped, or as good as that. The callback may free the decoder. */
	void (*on_end)(struct decoder *d, const struct decoder_outcome *outcome, void *arg);
};

struct decoder_options {
	const char *path;	/* of the program */
	/* for whom it works: where too many of his do not die, he gets no more */
	uid_t uid;
	uint64_t memory_bytes;	/* RLIMIT_AS; 0: none */
	uint64_t cpu_seconds;	/* RLIMIT_CPU; 0: none */
	uint64_t output_bytes;	/* RLIMIT_FSIZE; 0: none */
	/* SCHED_IDLE and idle I/O: yes in the daemon, no where a user waits for it */
	bool idle;
	unsigned int nice;	/* 0 to 19, without `idle`: for what is short, and must come on a busy machine, too */
	bool drop_privilege;	/* no capability, whatever the parent has */
};

/*
 * Where the program is: `override` if not empty, else next to the running executable, else in
 * the installation's libexec directory. -ENOENT if it is not there or not executable.
 */
int decoder_find(const char *override, char *ret, size_t size) _must_check_;

/*
 * Starts the process and sends the job with its fds, which stay the caller's. -EBUSY: too many that
 * were killed have not died.
 */
int decoder_start(const struct decoder_options *options, struct json_object *job, const int *fds,
		  size_t n_fds, const struct decoder_callbacks *callbacks, void *arg,
		  struct decoder **ret) _must_check_;

/* Kills what still runs and does not wait for it; no callback is called. NULL is fine. */
void decoder_free(struct decoder *d);
DEFINE_CLEANUP(struct decoder *, decoder_free)

pid_t decoder_pid(const struct decoder *d);

/*
 * The fds to wait for and their events at this moment: the link (POLLIN, and POLLOUT while an
 * answer is queued), stderr, the pidfd and a timer. One that is closed has fd -1. fds do not change
 * while it runs.
 */
#define DECODER_N_FDS 4
void decoder_poll(const struct decoder *d, struct pollfd ret[DECODER_N_FDS]);

/*
 * Handles what is ready, never blocks, does a bounded amount. Returns 0, or 1 after on_end was
 * called (the decoder may be freed by then: do not touch it).
 */
int decoder_dispatch(struct decoder *d);

/*
 * Answers a NEED. Takes over `fd` (-1: not found), whatever it returns. An answer that the link has
 * no room for is queued; see decoder_poll(). Returns 1 where a file was given: its verdict comes,
 * unless the end comes first; 0 where there was none to give; -EPIPE: the process is gone, or
 * killed as it cannot be answered, on_end comes.
 */
int decoder_answer(struct decoder *d, const struct file_answer *file, int fd);

/*
 * Asks it to stop (it may still end with a RESULT); kills it. on_end follows by dispatch, soon
 * where it is killed.
 */
void decoder_cancel(struct decoder *d);
void decoder_kill(struct decoder *d);
