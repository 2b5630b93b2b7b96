// SPDX-License-Identifier: Apache-2.0
/*
 * Opens the events of a probe. On a thread: reading the process may take as long as that likes. Nothing here is the probe's.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/hw_breakpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/bundle/perfabi.h"
#include "daemon/perf/pausable.h"
#include "daemon/trigger/probe_internal.h"

/* ---- what the kernel is asked for */

static void attr_common(bool inherit, struct perf_event_attr *a)
{
	a->size = sizeof(*a);
	a->sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ID;
	a->sample_period = 1;
	a->wakeup_events = 1;
	a->exclude_kernel = 1;
	a->exclude_hv = 1;
	a->use_clockid = 1;
	a->clockid = CLOCK_MONOTONIC_RAW;
	/* Threads only: a child process is looked at when it is noticed. */
	a->inherit = a->inherit_thread = inherit;
	/* At the same address another program has other code. */
	a->remove_on_exec = 1;
}

void probe_attr_breakpoint(uint64_t address, bool inherit, struct perf_event_attr *ret)
{
	*ret = (struct perf_event_attr){
		.type = PERF_TYPE_BREAKPOINT,
		.bp_type = HW_BREAKPOINT_X,
		.bp_addr = address,
		.bp_len = sizeof(long),
	};
	attr_common(inherit, ret);
}

/*
 * New threads do not inherit it: the kernel would make theirs in the program's own clone(), with the rights of that, and would read
 * the path in its memory; clone() then fails with EACCES or EFAULT.
 */
void probe_attr_uprobe(uint32_t uprobe_type, const char *path, uint64_t offset, struct perf_event_attr *ret)
{
	*ret = (struct perf_event_attr){
		.type = uprobe_type,
		.config1 = (uint64_t)(uintptr_t)path,
		.config2 = offset,
	};
	attr_common(false, ret);
}

/* ---- the process */

/* The mapping of code that has the place: 0, -ENOENT. */
static int find_mapping(int proc_dirfd, const struct probe_place *place, struct proc_map *ret)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = proc_maps_read(proc_dirfd, &text, &len);
	if (r < 0)
		return r;
	r = proc_map_find_code(text, len, place->maj, place->min, place->ino, place->offset, ret);
	if (r == 0)
		ret->path = NULL; /* the text goes */
	return r;
}

struct pausing {
	struct pausable *trace;
	const pid_t *tids;
};

static int leader_of(void *arg, size_t subject, int cpu, size_t attempt)
{
	const struct pausing *pausing = arg;

	return pausing->trace->ops->leader(pausing->trace, pausing->tids[subject], cpu, attempt);
}

/* How many threads have an event that pauses their trace. */
static size_t count_pausing(const struct eventset *set)
{
	size_t n = 0;

	for (size_t subject = 0; set->groups && subject < set->n_subjects; subject++) {
		size_t cpu = 0;

		while (cpu < set->n_cpus && set->groups[subject * set->n_cpus + cpu] < 0)
			cpu++;
		n += cpu < set->n_cpus;
	}
	return n;
}

static size_t count_grouped(const struct eventset *set)
{
	size_t n = 0;

	for (size_t at = 0; set->groups && at < set->n_subjects * set->n_cpus; at++)
		n += set->groups[at] >= 0;
	return n;
}

static int open_round(struct opening *o, const struct perf_event_attr *attr, const pid_t *tids, size_t n)
{
	struct probe_events *e = o->events;
	struct pausing pausing = {.trace = o->process.trace, .tids = tids};
	struct perf_event_attr grouped = *attr;
	struct eventset_spec spec = {
		.attr = *attr,
		.subjects = tids,
		.n_subjects = n,
		.to_come = true,
		.ring_bytes = PROBE_RING_BYTES,
		.join = e->n_sets ? &e->sets[0] : NULL,
		.cancel = &o->cancel,
	};
	int r;

	/* What cannot be paused is watched all the same. */
	if (pausing.trace && pausing.trace->ops->prepare(pausing.trace, tids, n) == 0) {
		perfabi_set_aux_action(&grouped, PERFABI_AUX_PAUSE);
		grouped.disabled = 1;
		spec.leader = leader_of;
		spec.leader_arg = &pausing;
		spec.grouped = &grouped;
		spec.ring_bytes = PROBE_PAUSING_RING_BYTES;
	}
	r = eventset_open(&spec, &e->sets[e->n_sets]);

	if (r < 0)
		/* New threads that have ended already. */
		return r == -ESRCH && e->n_sets ? 0 : r;
	e->n_fds += e->sets[e->n_sets].n_fds;
	e->n_threads += n;
	e->n_pausing += count_pausing(&e->sets[e->n_sets]);
	e->n_grouped += count_grouped(&e->sets[e->n_sets]);
	e->n_sets++;
	return 0;
}

static int open_threads(struct opening *o, int proc_dirfd, const struct perf_event_attr *attr, size_t max_fds)
{
	_cleanup_free_ int *cpus = NULL;
	size_t n_cpus;
	int r = cpus_to_come(&cpus, &n_cpus);

	if (r < 0)
		return r;
	pid_set_fini(&o->tids);
	if (o->process.tid) {
		r = pid_set_add(&o->tids, &o->process.tid, 1);
		return r < 0 ? r : open_round(o, attr, o->tids.v, 1);
	}
	for (unsigned int round = 0; round < PROBE_ROUNDS; round++) {
		_cleanup_free_ pid_t *tids = NULL;
		size_t n, all;

		r = proc_tasks_read(proc_dirfd, &tids, &n);
		if (r < 0)
			return r == -ENOENT || r == -ESRCH ? PROC_E_GONE : r;
		n = pid_set_keep_new(&o->tids, tids, n);
		all = o->tids.n + n;
		if (n == 0)
			return o->tids.n ? 0 : PROC_E_GONE;
		if (all * n_cpus > max_fds)
			return -E2BIG;
		if (all * n_cpus * (o->process.trace ? 2 : 1) > o->fds_left)
			return -EDQUOT;
		r = open_round(o, attr, tids, n);
		if (r == 0)
			r = pid_set_add(&o->tids, tids, n);
		if (r < 0)
			return r;
	}
	/* What has been created since was created by threads that have the event; of a uprobe it is not watched. */
	return 0;
}

void probe_events_close(struct probe_events *e)
{
	/* The first one last: the others write to its rings. */
	for (size_t i = e->n_sets; i > 0; i--)
		eventset_close(&e->sets[i - 1]);
	e->n_sets = e->n_fds = e->n_threads = e->n_pausing = e->n_grouped = 0;
}

static int try(struct opening *o, int proc_dirfd, enum probe_by by, const struct proc_map *map)
{
	_cleanup_close_ int file = -1;
	struct perf_event_attr attr;
	char path[64];
	int r;

	o->used = by;
	o->address = map->start + (o->place.offset - map->pgoff);
	if (by == PROBE_BREAKPOINT) {
		probe_attr_breakpoint(o->address, !o->process.tid, &attr);
		r = open_threads(o, proc_dirfd, &attr, PROBE_FDS_MAX);
	} else {
		if (!o->uprobe_type)
			return -EOPNOTSUPP;
		/*
		 * The very file, by the kernel's own link to it: it is the same for all events, and whether it was still mapped is looked
		 * at afterwards. The kernel puts the probe into this process alone.
		 */
		(void)snprintf(path, sizeof(path), "map_files/%llx-%llx", (unsigned long long)map->start, (unsigned long long)map->end);
		file = openat(proc_dirfd, path, O_PATH | O_CLOEXEC);
		if (file < 0)
			return errno == ENOENT ? -EAGAIN : -errno;
		(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
		probe_attr_uprobe(o->uprobe_type, path, o->place.offset, &attr);
		r = open_threads(o, proc_dirfd, &attr, PROBE_UPROBE_FDS_MAX);
	}
	if (r != 0)
		probe_events_close(o->events);
	return r;
}

/* One that has gained privileges, or hides from its user, is not the user's to look into. */
static bool is_meant(const struct opening *o, const struct proc *proc)
{
	uid_t uid;

	return o->process.any_user || (proc_strict_uid(proc->dirfd, &uid) == 0 && uid == o->process.uid);
}

/* And not those of somebody else, whom the kernel found under a number of theirs. */
static bool are_its_threads(const struct opening *o, const struct proc *proc)
{
	_cleanup_free_ pid_t *tids = NULL;
	size_t n = 0;

	return proc_tasks_read(proc->dirfd, &tids, &n) == 0 && !pid_set_is_reused(&o->tids, tids, n);
}

/* -EAGAIN: it was mapped elsewhere meanwhile. */
static int open_mapped(struct opening *o, const struct proc *proc)
{
	struct proc_map map, after;
	int r;

	o->used = PROBE_AUTO;
	r = find_mapping(proc->dirfd, &o->place, &map);
	if (r < 0)
		return r;
	if (o->place.by == PROBE_UPROBE) {
		r = try(o, proc->dirfd, PROBE_UPROBE, &map);
	} else {
		r = try(o, proc->dirfd, PROBE_BREAKPOINT, &map);
		if (r == -ENOSPC && o->place.by == PROBE_AUTO && try(o, proc->dirfd, PROBE_UPROBE, &map) == 0)
			r = 0;
	}
	if (r != 0)
		return r;
	r = find_mapping(proc->dirfd, &o->place, &after);
	if (r == 0 && (after.start != map.start || after.pgoff != map.pgoff))
		r = -EAGAIN;
	if (r == -ENOENT)
		o->used = PROBE_AUTO;
	if (r != 0)
		probe_events_close(o->events);
	return r;
}

static int open_all(struct opening *o)
{
	_cleanup_(proc_close) struct proc proc = PROC_INIT;
	int r;

	r = proc_open(o->process.pid, -1, &proc);
	if (r != 0)
		return r;
	if (proc.start_time != o->process.start_time)
		return PROC_E_GONE;
	if (!is_meant(o, &proc))
		return -EPERM;
	r = -EAGAIN;
	for (unsigned int i = 0; i < PROBE_ROUNDS && r == -EAGAIN; i++)
		r = open_mapped(o, &proc);
	/* Reading and opening took as long as the process liked: it may have become another one. */
	if (r == 0 && !proc_alive(&proc))
		r = PROC_E_GONE;
	if (r == 0 && !is_meant(o, &proc))
		r = -EPERM;
	if (r == 0 && !are_its_threads(o, &proc))
		r = -EAGAIN;
	if (r != 0)
		probe_events_close(o->events);
	return r;
}

void opening_run(struct reader_job *job)
{
	struct opening *o = (struct opening *)job;

	o->result = open_all(o);
}

const char *opening_explain(const struct opening *o)
{
	const bool uprobe = o->used == PROBE_UPROBE;
	const int r = o->result;

	switch (r) {
	case -ENOSPC:
		return "all hardware breakpoints of the processor are in use there (it has four for each thread): remove another "
		       "trigger or debugger";
	case -EACCES:
	case -EPERM:
		return uprobe ? "uprobes need CAP_SYS_ADMIN, which tracerd does without: use --hit-by breakpoint"
			      : "the process is not, or is no longer, its user's to look into";
	case -EOPNOTSUPP:
	case -ENODEV:
	case -ENOENT:
		return uprobe ? "this kernel has no uprobes for perf" : "this kernel or machine has no hardware breakpoints";
	case -EAGAIN:
		return "the process changed while it was looked at, in its threads or in what it maps: try again";
	case -EDQUOT:
		return "this user may have no more descriptors (uid_fds)";
	case -E2BIG:
		return "the process has too many threads for this machine's number of processors: arm one thread (--tid)";
	case -EMFILE:
	case -ENFILE:
		return "tracerd has no more descriptors (LimitNOFILE=)";
	case -EINVAL:
		return uprobe ? "the kernel refuses a uprobe there" : "the kernel refuses a breakpoint there";
	default:
		return strerror(-r);
	}
}
