// SPDX-License-Identifier: Apache-2.0
/*
 * How a producer registers: which process it is, whether its memory is valid, and whether there is
 * room for it. A refusal has one sentence as its reason, is counted, and leaves nothing.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/fileid.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/wall_clock.h"
#include "daemon/base/clockseries.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/control/auth.h"
#include "daemon/producer/producer_internal.h"
#include "daemon/producer/ring_check.h"

#define MIB (1024ULL * 1024)
#define S_NS 1000000000ULL

static int identify(struct producer *p, const struct peer *peer, char *why, size_t size)
{
	_cleanup_(proc_close) struct proc proc = PROC_INIT;
	struct proc_status status;
	int r;

	if (peer->pidfd < 0)
		return refusal(why, size, PRODUCER_E_GONE, "the process that connected has ended");
	r = proc_open(0, peer->pidfd, &proc);
	if (r == PROC_E_MISMATCH)
		return refusal(why, size, PRODUCER_E_UNSUPPORTED,
			      "tracerd cannot see the process, which is outside its pid namespace");
	if (r == PROC_E_GONE)
		return refusal(why, size, PRODUCER_E_GONE, "the process that connected has ended");
	if (r == -EMFILE || r == -ENFILE)
		return refusal(why, size, PRODUCER_E_BUSY, "tracerd is out of file descriptors");
	if (r < 0)
		return r;
	p->uid = peer->uid;
	if (proc_strict_uid(proc.dirfd, &p->strict_uid) < 0)
		return refusal(why, size, PRODUCER_E_GONE, "the process that connected has ended");
	p->pid = p->nspid = proc.pid;
	p->start_time = proc.start_time;
	if (proc_status_read(proc.dirfd, &status) == 0)
		p->nspid = status.nspid;
	(void)!proc_comm_read(proc.dirfd, p->comm, sizeof(p->comm));
	p->pidfd = peer->pidfd;
	return 0;
}

/* A process has one live producer. One whose connection has lost its other end counts as ended. */
static int take_place(struct producers *ps, const struct producer *p, char *why, size_t size)
{
	struct producer *old = NULL;

	while ((old = producers_of(ps, p->pid, p->start_time, old)) != NULL)
		if (old->state == PRODUCER_LIVE)
			break;
	if (!old)
		return 0;
	if (!old->connection.alive || old->connection.alive(old->connection.arg))
		return refusal(why, size, PRODUCER_E_BUSY, "process %d has registered already",
			       (int)p->pid);
	producer_end_by_itself(old);
	return 0;
}

/*
 * A producer that stops and starts again, or whose connection was lost, comes back with the same
 * memory: what it wrote before is in there, and would be in each snapshot twice. What is kept of
 * before costs nothing from here on, and goes when the new one is there, so that its targets see
 * that the producer goes on.
 */
static struct producer *superseded(struct producers *ps, const struct producer *p, int rings_fd)
{
	struct producer *old = NULL;
	struct fileid memory = {0};

	if (fileid_of(rings_fd, &memory) < 0)
		return NULL;
	while ((old = producers_of(ps, p->pid, p->start_time, old)) != NULL)
		if (old->state == PRODUCER_ENDED && fileid_has(&memory, old->memory_fd)) {
			quota_release(&old->charge_bytes);
			quota_release(&old->charge_one);
			return producer_ref(old);
		}
	return NULL;
}

static void superseded_forget(struct producer **old)
{
	if (*old)
		producer_forget(*old);
	(void)producer_unref(*old);
}

static int check_limits(const struct producers *ps, const struct ringcheck *found, char *why,
			size_t size)
{
	const struct ring_geometry *g = &found->geometry;
	const struct config *c = ps->config;

	if (g->total_bytes > c->event_memory_mib * MIB)
		return refusal(
			why, size, PRODUCER_E_TOO_LARGE,
			"the rings have %llu bytes, but the limit is %u MiB (event_memory_mib)",
			(unsigned long long)g->total_bytes, c->event_memory_mib);
	if (g->rings > c->event_threads)
		return refusal(
			why, size, PRODUCER_E_TOO_LARGE,
			"there are rings for %u threads, but the limit is %u (event_threads)",
			g->rings, c->event_threads);
	if (g->names_max > c->event_names)
		return refusal(why, size, PRODUCER_E_TOO_LARGE,
			       "there is room for %u names, but the limit is %u (event_names)",
			       g->names_max, c->event_names);
	/* Times of a clock that nobody here can tell would be of no use. */
	if (found->clock == RING_CLOCK_TSC && !clockseries_get(ps->clocks)->tsc_usable)
		return refusal(
			why, size, PRODUCER_E_UNSUPPORTED,
			"the kernel does not trust the TSC of this machine: use the clock MONOTONIC_RAW");
	return 0;
}

/* Frees the oldest kept rings of a user (`all`: of anybody); false if there are none. */
static bool evict(struct producers *ps, uid_t uid, bool all)
{
	struct producer *p;

	TAILQ_FOREACH(p, &ps->ended, ended_link)
		if (all || p->uid == uid) {
			ps->evicted++;
			producer_forget(p);
			return true;
		}
	return false;
}

static int charge(struct producers *ps, struct producer *p, char *why, size_t size)
{
	int r;

	while (ps->n_live + ps->n_ended >= ps->config->max_producers)
		if (!evict(ps, p->uid, false) && !evict(ps, p->uid, true))
			return refusal(why, size, PRODUCER_E_BUSY,
				       "tracerd has no room for another producer (max_producers)");
	while ((r = quota_charge(ps->quota, p->uid, QUOTA_PRODUCERS, 1, &p->charge_one)) ==
	       QUOTA_E_EXCEEDED)
		if (!evict(ps, p->uid, false))
			return refusal(why, size, PRODUCER_E_QUOTA,
				       "uid %u may have no more producers (uid_producers)",
				       (unsigned int)p->uid);
	if (r < 0)
		return r;
	while ((r = quota_charge(ps->quota, p->uid, QUOTA_EVENT_BYTES, p->geometry.total_bytes,
				 &p->charge_bytes)) == QUOTA_E_EXCEEDED)
		if (!evict(ps, p->uid, false))
			return refusal(
				why, size, PRODUCER_E_QUOTA,
				"the event rings of uid %u would exceed their limit (uid_event_mib)",
				(unsigned int)p->uid);
	return r;
}

static int keep_fds(struct producer *p, int rings_fd, int wake_fd, char *why, size_t size)
{
	p->memory_fd = fcntl(rings_fd, F_DUPFD_CLOEXEC, 3);
	p->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 3);
	if (p->memory_fd < 0 || p->wake_fd < 0)
		return refusal(why, size, PRODUCER_E_BUSY, "tracerd is out of file descriptors");
	return 0;
}

/*
 * By edge, and never read: each write to the eventfd is an edge, and a read of what a stranger
 * shares with us could take what is his or wait for him.
 */
static int watch(struct producers *ps, struct producer *p, char *why, size_t size)
{
	p->on_wake =
		event_new(ps->base, p->wake_fd, EV_READ | EV_ET | EV_PERSIST, producer_on_wake, p);
	p->on_exit = event_new(ps->base, p->pidfd, EV_READ, producer_on_exit, p);
	if (!p->on_wake || !p->on_exit || event_add(p->on_exit, NULL) < 0)
		return -ENOMEM;
	if (event_add(p->on_wake, NULL) < 0)
		return refusal(why, size, PRODUCER_E_BAD, "wake: cannot wait for the descriptor");
	return 0;
}

/* Undoes a registration that was not finished. */
static void unfinished_free(struct producer **p)
{
	if (!*p)
		return;
	producer_detach(*p);
	(void)producer_unref(*p);
}

static void publish(struct producers *ps, struct producer *p)
{

	p->registered_unix_ns = wall_clock_ns();
	p->registered_ns = io_now_ns();
	p->id = ++ps->last_id;
	p->ps = ps;
	TAILQ_INSERT_TAIL(&ps->all, p, link);
	LIST_INSERT_HEAD(&ps->by_pid[producer_bucket(p->pid)], p, by_pid);
	ps->n_live++;
	ps->registered++;
	ps->bytes += p->geometry.total_bytes;
	log_debug("events of pid %d: %u rings of %u slots", (int)p->pid, p->geometry.rings,
		  p->geometry.slots);
	if (ps->callbacks.changed)
		ps->callbacks.changed(ps->callbacks.arg, p);
}

static int take_in(struct producers *ps, const struct peer *peer, int rings_fd, int wake_fd,
		   struct producer **ret, int *ret_control_fd, char *why, size_t size)
{
	_cleanup_(unfinished_free) struct producer *p = calloc(1, sizeof(*p));
	_cleanup_(superseded_forget) struct producer *old = NULL;
	_cleanup_close_ int control_fd = -1;
	struct ringcheck found;
	int r;

	if (!p)
		return -ENOMEM;
	p->refs = 1;
	p->memory_fd = p->wake_fd = p->pidfd = p->go_stream_fd = -1;
	r = identify(p, peer, why, size);
	if (r == 0)
		r = ringcheck_memory(rings_fd, &found, why, size);
	if (r == 0)
		r = ringcheck_eventfd(wake_fd, why, size);
	static_assert(RINGCHECK_E_BAD == PRODUCER_E_BAD, "");
	if (r == 0)
		r = check_limits(ps, &found, why, size);
	if (r == 0)
		r = take_place(ps, p, why, size);
	if (r != 0)
		return r;
	old = superseded(ps, p, rings_fd);
	p->geometry = found.geometry;
	p->clock = found.clock;
	p->tsc = clockseries_get(ps->clocks)->tsc_usable;
	r = charge(ps, p, why, size);
	if (r == 0)
		r = keep_fds(p, rings_fd, wake_fd, why, size);
	if (r == 0)
		r = controlpage_new(p->clock == RING_CLOCK_TSC
					    ? clockseries_ticks_per_second(ps->clocks, NULL)
					    : S_NS,
				    ps->config->program_interval_ms * 1000000ULL, &p->page,
				    &control_fd);
	if (r == 0)
		r = watch(ps, p, why, size);
	if (r != 0)
		return r;
	producer_causes_skip(p, found.cause_head);
	*ret_control_fd = take_fd(&control_fd);
	*ret = p;
	publish(ps, take_ptr(p));
	return 0;
}

int producers_register(struct producers *ps, const struct peer *peer, int rings_fd, int wake_fd,
		       struct producer **ret, int *ret_control_fd, char *why, size_t why_size)
{
	int r = take_in(ps, peer, rings_fd, wake_fd, ret, ret_control_fd, why, why_size);

	if (r > 0)
		ps->refused[r]++;
	return r;
}
