/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One perf event, opened on each CPU for the whole machine, for a cgroup or for many threads, with
 * one ring on each CPU that all of them write to. Owns the descriptors and the rings, and does not
 * know what the records mean.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/perf/aux.h"
#include "daemon/perf/ring.h"

struct closer;

#define EVENTSETS_TOGETHER 3

struct eventset {
	size_t n_cpus, n_subjects;
	int *cpus;          /* their numbers */
	/* n_subjects x n_cpus, -1 where one could not be (an offline cpu, an ended thread) */
	int *fds;
	uint64_t *ids;      /* alike */
	/* alike, the descriptor of the group that it is a member of, -1; NULL: none is */
	int *groups;
	/* n_cpus; base NULL where nothing was opened; NULL if `join` has them */
	struct ring *rings;
	struct aux *auxes;  /* alike; NULL: it has none */
	size_t n_fds;       /* that are open */
	size_t ring_bytes;  /* in all, AUX areas included */
};

struct eventset_spec {
	struct perf_event_attr attr;
	const pid_t *subjects; /* threads; one cgroup fd; or NULL: the machine */
	size_t n_subjects;
	bool cgroup;
	size_t ring_bytes;           /* each: a power of two of pages */
	/* what is still of use where the kernel refuses that much memory */
	size_t ring_bytes_min;
	bool overwrite;
	/* of the AUX area beside each ring, which is not `overwrite` then; 0: none */
	size_t aux_bytes;
	bool busy_is_covered;        /* -EBUSY: the thread has the event by inheritance */
	const struct eventset *join; /* write to its rings; it must live longer */
	/* on the CPUs that this one has, whichever are online now; NULL: on those that are */
	const struct eventset *cpus_of;
	/*
	 * of threads: also on those of cpus_to_come(). The kernel opens them, and they count as
	 * soon as the CPU is online
	 */
	bool to_come;
	/*
	 * Descriptors of events on that CPU, one after the other, -1 at the end: ours becomes a
	 * member of the group of the first that its subject has by now, with attributes of its own.
	 * Threads that have inherited the same events exchange them as they take turns, so the
	 * kernel alone knows who has which. Of `grouped_only` those without a group are not opened.
	 */
	int (*leader)(void *arg, size_t subject, int cpu, size_t attempt);
	void *leader_arg;
	const struct perf_event_attr *grouped;
	bool grouped_only;
	const atomic_bool *cancel;   /* may be NULL: another thread does not want it any more */
};

/*
 * All or nothing: 0, -EAGAIN if other CPUs are online than `join` has, -ESRCH if no subject is
 * left, -ECANCELED, or what perf_event_open() or mmap() said. Any thread.
 */
int eventset_open(const struct eventset_spec *spec, struct eventset *ret) _must_check_;
void eventset_close(struct eventset *set);
/*
 * Closes at most EVENTSETS_TOGETHER sets in this order, small ones at once, else on the closer's
 * thread. Empties them.
 */
void eventset_close_all(struct eventset *sets, size_t n, struct closer *closer);

/*
 * An ioctl without argument (PERF_EVENT_IOC_ENABLE...) on all, on those of the cpu at `index`, or
 * of the cpu of that number, if it has that.
 */
void eventset_ioctl(const struct eventset *set, unsigned long request);
void eventset_ioctl_cpu(const struct eventset *set, size_t index, unsigned long request);
void eventset_ioctl_on_cpu(const struct eventset *set, int cpu, unsigned long request);
/* Attaches a BPF program to all: a sample passes if it answers not 0. 0 or -errno. */
int eventset_filter(const struct eventset *set, int prog_fd) _must_check_;
/* Limits what all of them trace (PERF_EVENT_IOC_SET_FILTER). 0 or -errno. */
int eventset_set_filter(const struct eventset *set, const char *filter) _must_check_;
/* What the kernel counted as lost (PERF_FORMAT_LOST), 0 where it does not. */
uint64_t eventset_lost(const struct eventset *set, uint64_t read_format);
/* The same of `n` of its n_subjects * n_cpus events, from `first` on. */
uint64_t eventset_lost_of(const struct eventset *set, uint64_t read_format, size_t first, size_t n);

/* The cpus that are online: a new array. */
int cpus_online(int **ret, size_t *ret_n) _must_check_;
/*
 * Those that are online, and those that may come online: a new array. Not the siblings of a machine
 * whose SMT is switched off, which stay as they are until an administrator switches that on: they
 * may be as many as there are others.
 */
int cpus_to_come(int **ret, size_t *ret_n) _must_check_;
/* Parses "0-3,5". 0, -EBADMSG, -ENOMEM. */
int cpus_parse(const char *text, int **ret, size_t *ret_n) _must_check_;
