// SPDX-License-Identifier: Apache-2.0
/*
 * Opens the events of a probe. On a thread: reading the process may take as long as that likes.
 * Nothing here is the probe's.
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
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/perf/pausable.h"
#include "daemon/trigger/probe_internal.h"

/* One record of a switch has 16 bytes. */
#define HEIRS_RING_BYTES 65536u
#define HEIRS_AT_ONCE 4096u
/* The kernel needs some microseconds to start a thread, if nothing interrupts it. */
#define SETTLE_NS 10000000ULL
#define NEW_THREADS_NS 50000ULL
#define NEW_THREADS_MAX_NS 1000000ULL
#define LOOKS_NS 1000000000ULL
/* How often a process is looked at whose memory map changes meanwhile. */
#define ATTEMPTS 8u

/* ---- what the kernel is asked for */

static void attr_common(bool inherit, struct perf_event_attr *a)
{
	a->size = sizeof(*a);
	a->sample_type = PERF_SAMPLE_TID | PERF_SAMPLE_TIME | PERF_SAMPLE_ADDR | PERF_SAMPLE_ID;
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
 * New threads do not inherit it: the kernel would make theirs in the program's own clone(), with
 * the rights of that, and would read the path in its memory; clone() then fails with EACCES or
 * EFAULT.
 */
void probe_attr_uprobe(uint32_t uprobe_type, const char *path, uint64_t offset,
		       struct perf_event_attr *ret)
{
	*ret = (struct perf_event_attr){
		.type = uprobe_type,
		.config1 = (uint64_t)(uintptr_t)path,
		.config2 = offset,
	};
	attr_common(false, ret);
}

/* ---- the process */

/* Where the process has the place: 0, -ENOENT. The mapping is the first one's. */
static int find_copies(int proc_dirfd, const struct probe_place *place, struct probe_copies *ret,
		       struct proc_map *ret_map)
{
	_cleanup_free_ char *text = NULL;
	struct proc_map map;
	size_t len, pos = 0;
	int r;

	*ret = (struct probe_copies){.n = 0};
	r = proc_maps_read(proc_dirfd, &text, &len);
	if (r < 0)
		return r;
	while ((r = proc_map_next(text, len, &pos, &map)) != 0) {
		if (r < 0 ||
		    !proc_map_has_code(&map, place->maj, place->min, place->ino, place->offset))
			continue;
		if (ret->n == PROBE_COPIES_MAX) {
			ret->left_out++;
			continue;
		}
		if (ret->n == 0)
			*ret_map = map;
		ret->at[ret->n++] = map.start + (place->offset - map.pgoff);
	}
	ret_map->path = NULL; /* the text goes */
	return ret->n ? 0 : -ENOENT;
}

static bool are_same(const struct probe_copies *a, const struct probe_copies *b)
{
	return a->n == b->n && a->left_out == b->left_out &&
	       memcmp(a->at, b->at, a->n * sizeof(a->at[0])) == 0;
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

static int open_round(struct opening *o, const struct perf_event_attr *attr, const pid_t *tids,
		      size_t n, size_t *pausing_threads)
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
	*pausing_threads += count_pausing(&e->sets[e->n_sets]);
	e->n_grouped += count_grouped(&e->sets[e->n_sets]);
	e->n_sets++;
	return 0;
}

/* ---- threads that begin meanwhile */

/*
 * A thread is given all events of the one that creates it at once. So one that has inherited a
 * record of switches, which was opened when the place was watched already, has inherited that as
 * well; and it comes to a CPU, as that records, before it executes anything. Who is in no record is
 * opened like those before.
 */
struct heirs {
	struct eventset sets[PROBE_ROUNDS + 1];
	size_t n;
	struct pid_set known;
};

static void heirs_fini(struct heirs *h)
{
	for (size_t i = h->n; i > 0; i--)
		eventset_close(&h->sets[i - 1]);
	pid_set_fini(&h->known);
}

/* Where it is not possible nobody is known to have inherited anything. */
static void heirs_record(struct heirs *h, const struct opening *o, const pid_t *tids, size_t n)
{
	const struct eventset_spec spec = {
		.attr = {
			.type = PERF_TYPE_SOFTWARE,
			.size = sizeof(struct perf_event_attr),
			.config = PERF_COUNT_SW_DUMMY,
			.sample_type = PERF_SAMPLE_TID,
			.sample_id_all = 1,
			.context_switch = 1,
			.inherit = 1,
			.inherit_thread = 1,
			.exclude_kernel = 1,
			.exclude_hv = 1,
			.watermark = 1,
			.wakeup_watermark = UINT32_MAX, /* nobody waits for it */
		},
		.subjects = tids,
		.n_subjects = n,
		.to_come = true,
		.ring_bytes = HEIRS_RING_BYTES,
		.ring_bytes_min = PROBE_RING_BYTES,
		.join = h->n ? &h->sets[0] : NULL,
		.cancel = &o->cancel,
	};

	if (h->n < ARRAY_SIZE(h->sets) && eventset_open(&spec, &h->sets[h->n]) == 0)
		h->n++;
}

struct switched {
	struct perf_event_header header;
	uint32_t pid, tid;
};

static int heirs_take(struct heirs *h, const uint8_t *records, size_t n)
{
	pid_t fresh[HEIRS_AT_ONCE / sizeof(struct switched)];
	size_t n_fresh = 0, n_once = 0;

	for (size_t at = 0; at + sizeof(struct switched) <= n;) {
		const struct switched *s = (const void *)(records + at);

		if (s->header.size < sizeof(s->header) || s->header.size > n - at)
			break;
		if (s->header.type == PERF_RECORD_SWITCH && s->header.size >= sizeof(*s) &&
		    n_fresh < ARRAY_SIZE(fresh))
			fresh[n_fresh++] = (pid_t)s->tid;
		at += s->header.size;
	}
	n_fresh = pid_set_keep_new(&h->known, fresh, n_fresh);
	pids_sort(fresh, n_fresh);
	for (size_t i = 0; i < n_fresh; i++)
		if (i == 0 || fresh[i] != fresh[i - 1])
			fresh[n_once++] = fresh[i];
	return pid_set_add(&h->known, fresh, n_once);
}

static int heirs_look(struct heirs *h)
{
	_Alignas(8) uint8_t buf[HEIRS_AT_ONCE];

	for (size_t cpu = 0; h->n && cpu < h->sets[0].n_cpus; cpu++) {
		struct ring *ring = &h->sets[0].rings[cpu];
		size_t got = 0, n = 0;

		/* No more than it held: the kernel goes on to write. */
		for (;
		     ring->base && got < ring->size && (n = ring_drain(ring, buf, sizeof(buf))) > 0;
		     got += n)
			if (heirs_take(h, buf, n) < 0)
				return -ENOMEM;
	}
	return 0;
}

static void sleep_ns(uint64_t ns)
{
	const struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u),
				   .tv_nsec = (long)(ns % 1000000000u)};

	(void)nanosleep(&t, NULL);
}

/* ---- threads */

/* One copy, in all threads of a process. */
struct covering {
	struct opening *o;
	const struct perf_event_attr *attr;
	size_t n_cpus, max_fds, fds_before;
	struct pid_set tids;
	struct heirs heirs;
	uint64_t opened_ns; /* when the last one was */
	size_t n_pausing;
};

static void covering_fini(struct covering *c)
{
	heirs_fini(&c->heirs);
	pid_set_fini(&c->tids);
}

/* Those that were not known before. */
static int cover(struct covering *c, pid_t *tids, size_t n, bool is_first)
{
	struct opening *o = c->o;
	const size_t all = c->tids.n + n;
	int r;

	if (c->fds_before + all * c->n_cpus > c->max_fds)
		return -E2BIG;
	if (c->fds_before + all * c->n_cpus * (o->process.trace ? 2 : 1) > o->fds_left)
		return -EDQUOT;
	r = open_round(o, c->attr, tids, n, &c->n_pausing);
	c->opened_ns = clock_raw_ns();
	if (r == 0)
		r = pid_set_add(&c->tids, tids, n);
	if (r < 0 || is_first || !c->attr->inherit ||
	    c->fds_before + 2 * all * c->n_cpus > c->max_fds)
		return r;
	/* Some have begun meanwhile, so more will: it is worth knowing who inherits it. */
	if (c->heirs.n == 0)
		heirs_record(&c->heirs, o, c->tids.v, c->tids.n);
	else
		heirs_record(&c->heirs, o, tids, n);
	return 0;
}

/*
 * Whether the thread has been on a CPU; also where the kernel does not say, or the thread has
 * ended.
 */
static bool has_run(int proc_dirfd, pid_t tid)
{
	_cleanup_free_ char *text = NULL;
	unsigned long long ran, waited, times;
	char name[40];
	size_t len;

	(void)snprintf(name, sizeof(name), "task/%d/schedstat", (int)tid);
	return io_read_file_at(proc_dirfd, name, 256, &text, &len) < 0 ||
	       sscanf(text, "%llu %llu %llu", &ran, &waited, &times) != 3 || times > 0;
}

/* Threads of whom it is not known that they are watched. */
struct unknown {
	pid_t *tids;
	size_t n;
	/* others that have not been on a CPU yet: they are asked about when they have */
	size_t n_new;
};

static int list_unknown(struct covering *c, int proc_dirfd, struct unknown *ret)
{
	_cleanup_free_ pid_t *tids = NULL;
	size_t n, n_ran = 0;
	int r;

	r = proc_tasks_read(proc_dirfd, &tids, &n);
	if (r < 0)
		return r == -ENOENT || r == -ESRCH ? PROC_E_GONE : r;
	n = pid_set_keep_new(&c->tids, tids, n);
	n = pid_set_keep_new(&c->heirs.known, tids, n);
	for (size_t i = 0; c->heirs.n && i < n; i++)
		if (has_run(proc_dirfd, tids[i]))
			tids[n_ran++] = tids[i];
	ret->n = n;
	if (c->heirs.n) {
		ret->n_new = n - n_ran;
		/*
		 * In this order: who was seen to have run is in the records by now, or has
		 * inherited nothing.
		 */
		r = heirs_look(&c->heirs);
		ret->n = pid_set_keep_new(&c->heirs.known, tids, n_ran);
	}
	ret->tids = take_ptr(tids);
	return r;
}

static int cover_all(struct covering *c, int proc_dirfd)
{
	const uint64_t until = clock_raw_ns() + LOOKS_NS;
	uint64_t pause_ns = NEW_THREADS_NS;

	for (unsigned int opened = 0;;) {
		struct unknown unknown = {0};
		_cleanup_free_ pid_t *tids = NULL;
		uint64_t since;
		int r = list_unknown(c, proc_dirfd, &unknown);

		tids = unknown.tids;
		if (r != 0)
			return r;
		if (atomic_load(&c->o->cancel))
			return -ECANCELED;
		if (unknown.n == 0 && c->tids.n == 0)
			return PROC_E_GONE;
		since = clock_raw_ns() - c->opened_ns;
		/*
		 * One that its creator was about to start when that was opened has inherited
		 * nothing, and is in the list only now.
		 */
		if (unknown.n + unknown.n_new == 0 && (since >= SETTLE_NS || !c->attr->inherit))
			return 0;
		if (opened == PROBE_ROUNDS || clock_raw_ns() >= until) {
			/*
			 * Of a uprobe, which nobody inherits, it is said anyway. The same threads,
			 * for each copy.
			 */
			if (c->attr->inherit && c->o->events->n_unsure < unknown.n + unknown.n_new)
				c->o->events->n_unsure = unknown.n + unknown.n_new;
			return 0;
		}
		if (unknown.n) {
			r = cover(c, tids, unknown.n, opened++ == 0);
		} else {
			sleep_ns(unknown.n_new ? pause_ns : SETTLE_NS - since);
			pause_ns = unknown.n_new && 2 * pause_ns < NEW_THREADS_MAX_NS ? 2 * pause_ns
										      : pause_ns;
		}
		/*
		 * Those that are new have no other breakpoints than those before: they have this
		 * one, perhaps twice.
		 */
		if (r < 0 && (r != -ENOSPC || opened <= 1 || !c->attr->inherit))
			return r;
	}
}

static int open_threads(struct opening *o, int proc_dirfd, const struct perf_event_attr *attr,
			size_t max_fds)
{
	_cleanup_(covering_fini) struct covering c = {.o = o,
						      .attr = attr,
						      .max_fds = max_fds,
						      .fds_before = o->events->n_fds};
	_cleanup_free_ int *cpus = NULL;
	int r = cpus_to_come(&cpus, &c.n_cpus);

	if (r == 0)
		r = o->process.tid ? cover(&c, &o->process.tid, 1, true)
				   : cover_all(&c, proc_dirfd);
	if (r != 0)
		return r;
	/* The same threads, for each copy. */
	if (o->events->n_threads < c.tids.n)
		o->events->n_threads = c.tids.n;
	if (o->events->n_pausing < c.n_pausing)
		o->events->n_pausing = c.n_pausing;
	return pid_set_add(&o->tids, c.tids.v, pid_set_keep_new(&o->tids, c.tids.v, c.tids.n));
}

static void close_from(struct probe_events *e, size_t first)
{
	/* The first one last: the others write to its rings. */
	for (; e->n_sets > first; e->n_sets--) {
		struct eventset *set = &e->sets[e->n_sets - 1];

		e->n_fds -= set->n_fds;
		e->n_grouped -= count_grouped(set);
		eventset_close(set);
	}
}

void probe_events_close(struct probe_events *e)
{
	close_from(e, 0);
	e->n_threads = e->n_pausing = e->n_unsure = 0;
}

/* ---- copies */

/* There may be enough for one copy and not for another. */
static bool is_scarcity(int r)
{
	return r == -ENOSPC || r == -E2BIG || r == -EDQUOT || r == -EMFILE || r == -ENFILE;
}

static int try_breakpoints(struct opening *o, int proc_dirfd)
{
	struct probe_copies *copies = &o->copies;

	o->used = PROBE_BREAKPOINT;
	for (size_t i = 0; i < copies->n; i++) {
		const size_t before = o->events->n_sets;
		struct perf_event_attr attr;
		int r;

		probe_attr_breakpoint(copies->at[i], !o->process.tid, &attr);
		r = open_threads(o, proc_dirfd, &attr, PROBE_FDS_MAX);
		if (r == 0)
			continue;
		close_from(o->events, before);
		if (i == 0 || !is_scarcity(r))
			return r;
		copies->left_out += copies->n - i;
		copies->n = i;
	}
	return 0;
}

static int try_uprobe(struct opening *o, int proc_dirfd, const struct proc_map *map)
{
	_cleanup_close_ int file = -1;
	struct perf_event_attr attr;
	char path[64];

	o->used = PROBE_UPROBE;
	if (!o->uprobe_type)
		return -EOPNOTSUPP;
	/*
	 * The very file, by the kernel's own link to it: it is the same for all events, and whether
	 * it was still mapped is looked at afterwards. The kernel puts the probe into this process
	 * alone, wherever it has the code.
	 */
	(void)snprintf(path, sizeof(path), "map_files/%llx-%llx", (unsigned long long)map->start,
		       (unsigned long long)map->end);
	file = openat(proc_dirfd, path, O_PATH | O_CLOEXEC);
	if (file < 0)
		return errno == ENOENT ? -EAGAIN : -errno;
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	probe_attr_uprobe(o->uprobe_type, path, o->place.offset, &attr);
	return open_threads(o, proc_dirfd, &attr, PROBE_UPROBE_FDS_MAX);
}

static int try(struct opening *o, int proc_dirfd, enum probe_by by,
	       const struct probe_copies *found, const struct proc_map *map)
{
	int r;

	probe_events_close(o->events);
	pid_set_fini(&o->tids);
	o->copies = *found;
	if (by == PROBE_UPROBE) {
		r = try_uprobe(o, proc_dirfd, map);
		o->copies.left_out = 0;
	} else {
		r = try_breakpoints(o, proc_dirfd);
	}
	if (r != 0)
		probe_events_close(o->events);
	return r;
}

/* One that has gained privileges, or hides from its user, is not the user's to look into. */
static bool is_meant(const struct opening *o, const struct proc *proc)
{
	uid_t uid;

	return o->process.any_user ||
	       (proc_strict_uid(proc->dirfd, &uid) == 0 && uid == o->process.uid);
}

/* And not those of somebody else, whom the kernel found under a number of theirs. */
static bool are_its_threads(const struct opening *o, const struct proc *proc)
{
	_cleanup_free_ pid_t *tids = NULL;
	size_t n = 0;

	return proc_tasks_read(proc->dirfd, &tids, &n) == 0 &&
	       !pid_set_is_reused(&o->tids, tids, n);
}

/* -EAGAIN: it was mapped elsewhere meanwhile. */
static int open_mapped(struct opening *o, const struct proc *proc)
{
	struct probe_copies found, after;
	struct proc_map map;
	int r;

	o->used = PROBE_AUTO;
	r = find_copies(proc->dirfd, &o->place, &found, &map);
	if (r < 0)
		return r;
	r = try(o, proc->dirfd, o->place.by == PROBE_UPROBE ? PROBE_UPROBE : PROBE_BREAKPOINT,
		&found, &map);
	/* For want of breakpoints: a uprobe, or else as many as there are. */
	if (o->place.by == PROBE_AUTO && (r == -ENOSPC || (r == 0 && o->copies.left_out)) &&
	    (r = try(o, proc->dirfd, PROBE_UPROBE, &found, &map)) != 0)
		r = try(o, proc->dirfd, PROBE_BREAKPOINT, &found, &map);
	if (r != 0)
		return r;
	r = find_copies(proc->dirfd, &o->place, &after, &map);
	if (r == 0 && !are_same(&found, &after))
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
	for (unsigned int i = 0; i < ATTEMPTS && r == -EAGAIN; i++)
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
		return uprobe ? "this kernel has no uprobes for perf"
			      : "this kernel or machine has no hardware breakpoints";
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
		return uprobe ? "the kernel refuses a uprobe there"
			      : "the kernel refuses a breakpoint there";
	default:
		return strerror(-r);
	}
}
