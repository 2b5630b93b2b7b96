/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process as /proc shows it, read through one directory fd that was opened while a pidfd of
 * the same process was alive: everything read between two liveness checks is of that process.
 * Owns the parsing of /proc's text; refuses to know what a target is.
 *
 * Threat: names (comm, exe, mapped paths, cgroups) are bytes that the process chose; they may hold
 * newlines, parentheses and escapes, and are bounded here but not cleaned.
 */
#pragma once

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

DEFINE_CLEANUP(DIR *, closedir)

/* Answers beside 0 and -errno. */
enum {
	PROC_E_GONE = 1,     /* ended, or it is another process by now */
	PROC_E_MISMATCH = 2, /* a client's fd is not what it should be */
};

#define PROC_COMM_MAX 64
#define PROC_PATH_MAX 4096
#define PROC_TASKS_MAX 65536
#define PROC_MAPS_BYTES_MAX (32u << 20)

struct proc {
	pid_t pid;
	int pidfd;           /* owned */
	int dirfd;           /* owned: /proc/PID */
	uint64_t start_time; /* clock ticks since boot: with the pid, the identity */
};
#define PROC_INIT                                                                                  \
	{                                                                                          \
		.pidfd = -1, .dirfd = -1                                                           \
	}

/*
 * Opens process `pid`, or the process of `pidfd` (-1: none; duplicated). If both are given they
 * must agree (PROC_E_MISMATCH). 0, PROC_E_*, -errno. proc_close() is a no-op on PROC_INIT.
 */
int proc_open(pid_t pid, int pidfd, struct proc *ret) _must_check_;
void proc_close(struct proc *proc);

/* Whether the process has not ended (a zombie has). */
bool proc_alive(const struct proc *proc);
bool pidfd_alive(int pidfd);
/* The pid of a pidfd: 0 or PROC_E_GONE, PROC_E_MISMATCH (no pidfd), -errno. */
int pidfd_pid(int pidfd, pid_t *ret) _must_check_;

struct proc_stat {
	pid_t ppid;
	char state;
	uint64_t threads; /* that have not been waited for */
	uint64_t start_time;
	/*
	 * where its program's stack began, another place after an exec; 0: may not be known, or it
	 * ends
	 */
	uint64_t stack;
};
/* Parses the text of /proc/PID/stat; fields are counted from the last ')'. 0 or -EBADMSG. */
int proc_stat_parse(const char *text, size_t len, struct proc_stat *ret) _must_check_;
int proc_stat_read(int dirfd, struct proc_stat *ret) _must_check_;
/* Whether all its threads have ended: the first one may before the others. */
static inline bool proc_stat_ended(const struct proc_stat *stat)
{
	return (stat->state == 'Z' || stat->state == 'X') && stat->threads <= 1;
}

struct proc_status {
	uid_t uid, euid, suid, fsuid;
	gid_t gid, egid;
	pid_t tgid;
	pid_t nspid; /* the innermost namespace's number; the pid itself where there is none */
};
int proc_status_parse(const char *text, size_t len, struct proc_status *ret) _must_check_;
int proc_status_read(int dirfd, struct proc_status *ret) _must_check_;

/*
 * Whether its user may look into it: all uids equal, and dumpable (the kernel gives /proc/PID to
 * root where it is not). 0 and *ret_uid (the strictest owner; 0 if not), or -errno. Where the main
 * thread has ended it is asked of another one; what has no memory at all is root's.
 */
int proc_strict_uid(int dirfd, uid_t *ret_uid) _must_check_;

/* Bytes, NUL-terminated, without the final newline. */
int proc_comm_read(int dirfd, char *buf, size_t size) _must_check_;
/*
 * Where a process's memory is told of: "", or "task/TID/" of another thread where the main thread
 * has ended and the others go on, since the files of the process itself are the main thread's.
 * Without a '/' of a thread that has memory: -ENOENT, as of kernel threads and of processes that
 * have ended.
 */
#define PROC_MEMORY_PATH 32
int proc_memory_path(int dirfd, char path[PROC_MEMORY_PATH]) _must_check_;
/* The program; -ENOENT where there is no memory. */
int proc_exe_read(int dirfd, char *buf, size_t size) _must_check_;
/* The text of /proc/PID/maps, of at most PROC_MAPS_BYTES_MAX. */
int proc_maps_read(int dirfd, char **ret, size_t *ret_len) _must_check_;
/* Path in the unified hierarchy ("0::" line); -ENOENT if there is none. */
int proc_cgroup_read(int dirfd, char *buf, size_t size) _must_check_;
int proc_cgroup_parse(const char *text, size_t len, char *buf, size_t size) _must_check_;
/* The threads; a new array. */
int proc_tasks_read(int dirfd, pid_t **ret, size_t *ret_n) _must_check_;
/* The process of a thread: 0, PROC_E_GONE, -errno. */
int proc_thread_group(pid_t tid, pid_t *ret) _must_check_;
/* The number of a thread in its innermost pid namespace; its own where there is none. */
int proc_thread_nspid(int dirfd, pid_t tid, pid_t *ret) _must_check_;

/* One line of maps. `path` points into the text, not terminated. */
struct proc_map {
	uint64_t start, end, pgoff, ino;
	uint32_t maj, min;
	uint32_t prot; /* PROT_* */
	bool shared;
	const char *path;
	size_t path_len;
};
/*
 * The line at *pos; moves *pos past it. 1, 0 at the end, -EBADMSG for a line that is none (*pos
 * is moved). A newline in a path is octal-escaped by the kernel, other bytes are as they are.
 */
int proc_map_next(const char *text, size_t len, size_t *pos, struct proc_map *ret);

/*
 * How much of a file's path is its name: behind that of one that has no name any more the kernel
 * writes " (deleted)".
 */
size_t proc_path_len(const char *path, size_t len);

/* Whether it is of code, and has this place of a file. */
bool proc_map_has_code(const struct proc_map *map, uint32_t maj, uint32_t min, uint64_t ino,
		       uint64_t offset);
/* The first such mapping: 0, -ENOENT. */
int proc_map_find_code(const char *text, size_t len, uint32_t maj, uint32_t min, uint64_t ino,
		       uint64_t offset, struct proc_map *ret) _must_check_;

/*
 * Whether `fd` is /proc/PID/maps of this very process, or of a thread if its main thread has ended,
 * and was opened by somebody who may read its memory map (the kernel checks the opener at open; an
 * exec since then leaves it empty). 0, PROC_E_MISMATCH, -errno.
 */
int proc_maps_fd_check(const struct proc *proc, int fd) _must_check_;
