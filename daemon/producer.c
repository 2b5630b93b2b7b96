// SPDX-License-Identifier: Apache-2.0
#include "daemon/producer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "common/io.h"
#include "common/log.h"
#include "daemon/auth.h"
#include "daemon/clockseries.h"
#include "daemon/config.h"
#include "daemon/producer_private.h"
#include "daemon/ringcheck.h"

#define MIB (1024ULL * 1024)
#define S_NS 1000000000ULL

static size_t bucket_of(pid_t pid)
{
	return ((uint32_t)pid * 0x9e3779b1u >> 16) % PRODUCER_BUCKETS;
}

/* ---- one */

struct producer *producer_ref(struct producer *p)
{
	p->refs++;
	return p;
}

struct producer *producer_unref(struct producer *p)
{
	if (!p || --p->refs > 0)
		return NULL;
	assert(!p->ps && !p->on_wake && !p->on_exit);
	(void)controlpage_free(p->page);
	(void)close_fd(p->memory_fd);
	(void)close_fd(p->wake_fd);
	quota_release(&p->charge_bytes);
	quota_release(&p->charge_one);
	free(p);
	return NULL;
}

/* Everything by which a living one costs or tells something. */
static void detach(struct producer *p)
{
	if (p->on_wake)
		event_free(p->on_wake);
	if (p->on_exit)
		event_free(p->on_exit);
	p->on_wake = p->on_exit = NULL;
	if (p->paused)
		TAILQ_REMOVE(&p->ps->paused, p, paused_link);
	p->paused = false;
	p->wake_fd = close_fd(p->wake_fd);
	p->pidfd = -1;
	p->page = controlpage_free(p->page);
}

/* Out of the list. Its memory stays for those who have a reference. */
static void forget(struct producer *p)
{
	struct producers *ps = p->ps;

	if (!ps)
		return;
	assert(p->state == PRODUCER_ENDED);
	(void)producer_ref(p);
	if (ps->callbacks.gone)
		ps->callbacks.gone(ps->callbacks.arg, p);
	if (p->ps) { /* whom it was told may have done so themselves */
		TAILQ_REMOVE(&ps->all, p, link);
		TAILQ_REMOVE(&ps->ended, p, ended_link);
		LIST_REMOVE(p, by_pid);
		ps->n_ended--;
		ps->bytes -= p->geometry.total_bytes;
		p->ps = NULL;
		(void)producer_unref(p);
	}
	(void)producer_unref(p);
}

/* One timer for all: they are kept for the same time, so the first to have ended is the first to go. */
static void expire_arm(struct producers *ps)
{
	struct producer *first = TAILQ_FIRST(&ps->ended);
	uint64_t now = io_now_ns(), at;
	struct timeval tv = {0};

	if (!first) {
		(void)event_del(ps->expire);
		return;
	}
	at = first->ended_ns + ps->config->exited_keep_s * S_NS;
	if (at > now)
		tv = (struct timeval){.tv_sec = (time_t)((at - now) / S_NS), .tv_usec = (suseconds_t)((at - now) % S_NS / 1000)};
	(void)event_add(ps->expire, &tv);
}

static void on_expire(evutil_socket_t fd, short what, void *arg)
{
	struct producers *ps = arg;
	uint64_t now = io_now_ns();
	struct producer *p;

	while ((p = TAILQ_FIRST(&ps->ended)) != NULL && now >= p->ended_ns + ps->config->exited_keep_s * S_NS)
		forget(p);
	expire_arm(ps);
}

void producer_end(struct producer *p)
{
	struct producers *ps = p->ps;

	if (!ps || p->state == PRODUCER_ENDED)
		return;
	detach(p);
	p->connection = (struct producer_connection){0};
	p->state = PRODUCER_ENDED;
	p->ended_ns = io_now_ns();
	TAILQ_INSERT_TAIL(&ps->ended, p, ended_link);
	ps->n_live--;
	ps->n_ended++;
	log_debug("events of pid %d have ended", (int)p->pid);
	if (TAILQ_FIRST(&ps->ended) == p)
		expire_arm(ps);
	if (ps->callbacks.changed)
		ps->callbacks.changed(ps->callbacks.arg, p);
}

static void end_by_itself(struct producer *p)
{
	struct producer_connection connection = p->connection;

	producer_end(p);
	if (connection.ended)
		connection.ended(connection.arg);
}

static void on_exit_event(evutil_socket_t fd, short what, void *arg)
{
	_cleanup_(producer_unrefp) struct producer *p = producer_ref(arg);

	/* Its last words first: a wake of the same turn of the loop may come behind us. */
	producer_causes_take(p);
	if (p->state == PRODUCER_LIVE)
		end_by_itself(p);
}

static void on_wake(evutil_socket_t fd, short what, void *arg)
{
	static const struct timeval pause = {.tv_usec = WAKES_MS * 1000};
	_cleanup_(producer_unrefp) struct producer *p = producer_ref(arg);
	struct producers *ps = p->ps;
	uint64_t now = io_now_ns();

	if (now - p->window_ns >= WAKES_MS * 1000000ULL) {
		p->window_ns = now;
		p->wakes = 0;
	}
	if (++p->wakes > WAKES_MAX) {
		/* Nobody is told anything that often: what comes meanwhile is seen when it may wake us again. */
		(void)event_del(p->on_wake);
		p->paused = true;
		TAILQ_INSERT_TAIL(&ps->paused, p, paused_link);
		ps->pauses++;
		if (!event_pending(ps->resume, EV_TIMEOUT, NULL))
			(void)event_add(ps->resume, &pause);
		return;
	}
	producer_causes_take(p);
}

/* An eventfd that was written meanwhile is an edge when it is added again. */
static void on_resume(evutil_socket_t fd, short what, void *arg)
{
	struct producers *ps = arg;
	struct producer *p;

	while ((p = TAILQ_FIRST(&ps->paused)) != NULL) {
		TAILQ_REMOVE(&ps->paused, p, paused_link);
		p->paused = false;
		p->wakes = 0;
		(void)event_add(p->on_wake, NULL);
	}
}

/* ---- registration */

static int _printf_(4, 5) refuse(char *why, size_t size, int answer, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(why, size, fmt, ap);
	va_end(ap);
	return answer;
}

static int identify(struct producer *p, const struct peer *peer, char *why, size_t size)
{
	_cleanup_(proc_close) struct proc proc = PROC_INIT;
	struct proc_status status;
	int r;

	if (peer->pidfd < 0)
		return refuse(why, size, PRODUCER_E_GONE, "the process that connected has ended");
	r = proc_open(0, peer->pidfd, &proc);
	if (r == PROC_E_MISMATCH)
		return refuse(why, size, PRODUCER_E_UNSUPPORTED, "tracerd cannot see the process: it is outside of its pid namespace");
	if (r == PROC_E_GONE)
		return refuse(why, size, PRODUCER_E_GONE, "the process that connected has ended");
	if (r == -EMFILE || r == -ENFILE)
		return refuse(why, size, PRODUCER_E_BUSY, "tracerd is out of file descriptors");
	if (r < 0)
		return r;
	p->uid = peer->uid;
	p->pid = p->nspid = proc.pid;
	p->start_time = proc.start_time;
	if (proc_status_read(proc.dirfd, &status) == 0)
		p->nspid = status.nspid;
	(void)!proc_comm_read(proc.dirfd, p->comm, sizeof(p->comm));
	p->pidfd = peer->pidfd;
	return 0;
}

/* One living registration a process. One whose connection has lost its other end just has not been told yet. */
static int take_place(struct producers *ps, const struct producer *p, char *why, size_t size)
{
	struct producer *old = NULL;

	while ((old = producers_of(ps, p->pid, p->start_time, old)) != NULL)
		if (old->state == PRODUCER_LIVE)
			break;
	if (!old)
		return 0;
	if (!old->connection.alive || old->connection.alive(old->connection.arg))
		return refuse(why, size, PRODUCER_E_BUSY, "process %d has registered already", (int)p->pid);
	end_by_itself(old);
	return 0;
}

static int check_limits(const struct producers *ps, const struct ringcheck *found, char *why, size_t size)
{
	const struct ring_geometry *g = &found->geometry;
	const struct config *c = ps->config;

	if (g->total_bytes > c->event_memory_mib * MIB)
		return refuse(why, size, PRODUCER_E_TOO_LARGE, "%llu bytes of rings, a program may have %u MiB (event_memory_mib)",
			      (unsigned long long)g->total_bytes, c->event_memory_mib);
	if (g->rings > c->event_threads)
		return refuse(why, size, PRODUCER_E_TOO_LARGE, "rings for %u threads, a program may have %u (event_threads)",
			      g->rings, c->event_threads);
	if (g->names_max > c->event_names)
		return refuse(why, size, PRODUCER_E_TOO_LARGE, "room for %u names, a program may have %u (event_names)",
			      g->names_max, c->event_names);
	/* Times of a clock that nobody here can tell would be of no use. */
	if (found->clock == RING_CLOCK_TSC && !clockseries_get(ps->clocks)->tsc_usable)
		return refuse(why, size, PRODUCER_E_UNSUPPORTED,
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
			forget(p);
			return true;
		}
	return false;
}

static int charge(struct producers *ps, struct producer *p, char *why, size_t size)
{
	int r;

	while (ps->n_live + ps->n_ended >= ps->config->max_producers)
		if (!evict(ps, p->uid, false) && !evict(ps, p->uid, true))
			return refuse(why, size, PRODUCER_E_BUSY, "tracerd has as many programs as it may (max_producers)");
	while ((r = quota_charge(ps->quota, p->uid, QUOTA_PRODUCERS, 1, &p->charge_one)) == QUOTA_E_EXCEEDED)
		if (!evict(ps, p->uid, false))
			return refuse(why, size, PRODUCER_E_QUOTA, "uid %u has as many registered programs as it may (uid_producers)",
				      (unsigned int)p->uid);
	if (r < 0)
		return r;
	while ((r = quota_charge(ps->quota, p->uid, QUOTA_EVENT_BYTES, p->geometry.total_bytes, &p->charge_bytes)) ==
	       QUOTA_E_EXCEEDED)
		if (!evict(ps, p->uid, false))
			return refuse(why, size, PRODUCER_E_QUOTA, "the event rings of uid %u have as many bytes as they may (uid_event_mib)",
				      (unsigned int)p->uid);
	return r;
}

static int keep_fds(struct producer *p, int rings_fd, int wake_fd, char *why, size_t size)
{
	p->memory_fd = fcntl(rings_fd, F_DUPFD_CLOEXEC, 3);
	p->wake_fd = fcntl(wake_fd, F_DUPFD_CLOEXEC, 3);
	if (p->memory_fd < 0 || p->wake_fd < 0)
		return refuse(why, size, PRODUCER_E_BUSY, "tracerd is out of file descriptors");
	return 0;
}

/*
 * By edge, and never read: each write to the eventfd is an edge, and a read of what a stranger shares
 * with us could take what is his or wait for him.
 */
static int watch(struct producers *ps, struct producer *p, char *why, size_t size)
{
	p->on_wake = event_new(ps->base, p->wake_fd, EV_READ | EV_ET | EV_PERSIST, on_wake, p);
	p->on_exit = event_new(ps->base, p->pidfd, EV_READ, on_exit_event, p);
	if (!p->on_wake || !p->on_exit || event_add(p->on_exit, NULL) < 0)
		return -ENOMEM;
	if (event_add(p->on_wake, NULL) < 0)
		return refuse(why, size, PRODUCER_E_BAD, "wake: it cannot be waited for");
	return 0;
}

/* Undoes a registration that was not finished. */
static void unfinished_free(struct producer **p)
{
	if (!*p)
		return;
	detach(*p);
	(void)producer_unref(*p);
}

static void publish(struct producers *ps, struct producer *p)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	p->registered_unix_ns = (uint64_t)now.tv_sec * S_NS + (uint64_t)now.tv_nsec;
	p->id = ++ps->last_id;
	p->ps = ps;
	TAILQ_INSERT_TAIL(&ps->all, p, link);
	LIST_INSERT_HEAD(&ps->by_pid[bucket_of(p->pid)], p, by_pid);
	ps->n_live++;
	ps->registered++;
	ps->bytes += p->geometry.total_bytes;
	log_debug("events of pid %d: %u rings of %u slots", (int)p->pid, p->geometry.rings, p->geometry.slots);
	if (ps->callbacks.changed)
		ps->callbacks.changed(ps->callbacks.arg, p);
}

static int take_in(struct producers *ps, const struct peer *peer, int rings_fd, int wake_fd, struct producer **ret,
		   int *ret_control_fd, char *why, size_t size)
{
	_cleanup_(unfinished_free) struct producer *p = calloc(1, sizeof(*p));
	_cleanup_close_ int control_fd = -1;
	struct ringcheck found;
	int r;

	if (!p)
		return -ENOMEM;
	p->refs = 1;
	p->memory_fd = p->wake_fd = p->pidfd = -1;
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
	p->geometry = found.geometry;
	p->clock = found.clock;
	p->tsc = clockseries_get(ps->clocks)->tsc_usable;
	r = charge(ps, p, why, size);
	if (r == 0)
		r = keep_fds(p, rings_fd, wake_fd, why, size);
	if (r == 0)
		r = controlpage_new(p->clock == RING_CLOCK_TSC ? clockseries_ticks_per_second(ps->clocks, NULL) : S_NS,
				    ps->config->program_interval_ms * 1000000ULL, &p->page, &control_fd);
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

int producers_register(struct producers *ps, const struct peer *peer, int rings_fd, int wake_fd, struct producer **ret,
		       int *ret_control_fd, char *why, size_t why_size)
{
	int r = take_in(ps, peer, rings_fd, wake_fd, ret, ret_control_fd, why, why_size);

	if (r > 0)
		ps->refused[r]++;
	return r;
}

void producer_connect(struct producer *p, const struct producer_connection *connection)
{
	p->connection = connection ? *connection : (struct producer_connection){0};
}

void producer_collected(struct producer *p)
{
	if (p->ps && p->state == PRODUCER_ENDED)
		forget(p);
}

/* ---- thresholds */

int producer_threshold_set(struct producer *p, uint32_t id, const char *region, uint64_t threshold_ns, uint64_t cooldown_ns)
{
	struct ring_threshold entry = {.id = id, .threshold_ns = threshold_ns, .cooldown_ns = cooldown_ns};
	size_t length = strlen(region), i;
	bool is_new;
	int r;

	if (length == 0 || length > RING_CONTROL_NAME)
		return -EINVAL;
	if (!p->page)
		return 0;
	memcpy(entry.name, region, length);
	entry.length = (uint32_t)length;
	is_new = controlpage_find(p->page, id) < 0;
	r = controlpage_set(p->page, &entry, &i);
	if (r < 0)
		return r;
	if (is_new)
		p->suppressed_at[i] = producer_read_u64(p, offsetof(struct ring_header, suppressed) + i * sizeof(uint64_t));
	if (p->connection.control)
		p->connection.control(p->connection.arg);
	return 0;
}

void producer_threshold_clear(struct producer *p, uint32_t id)
{
	if (!p->page || controlpage_find(p->page, id) < 0)
		return;
	controlpage_clear(p->page, id);
	if (p->connection.control)
		p->connection.control(p->connection.arg);
}

uint64_t producer_threshold_suppressed(struct producer *p, uint32_t id)
{
	int i = p->page ? controlpage_find(p->page, id) : -1;
	uint64_t now;

	if (i < 0)
		return 0;
	now = producer_read_u64(p, offsetof(struct ring_header, suppressed) + (size_t)i * sizeof(uint64_t));
	return now > p->suppressed_at[i] ? now - p->suppressed_at[i] : 0;
}

/* ---- asking */

uint64_t producer_read_u64(const struct producer *p, size_t offset)
{
	uint64_t value;

	return io_pread_full(p->memory_fd, &value, sizeof(value), (off_t)offset) == sizeof(value) ? value : 0;
}

struct producer *producers_next(const struct producers *ps, const struct producer *after)
{
	return after ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&ps->all);
}

struct producer *producers_of(const struct producers *ps, pid_t pid, uint64_t start_time, const struct producer *after)
{
	struct producer *p = after ? LIST_NEXT(after, by_pid) : LIST_FIRST(&ps->by_pid[bucket_of(pid)]);

	while (p && (p->pid != pid || p->start_time != start_time))
		p = LIST_NEXT(p, by_pid);
	return p;
}

uint64_t producer_id(const struct producer *p)
{
	return p->id;
}

pid_t producer_pid(const struct producer *p)
{
	return p->pid;
}

pid_t producer_nspid(const struct producer *p)
{
	return p->nspid;
}

const char *producer_comm(const struct producer *p)
{
	return p->comm;
}

uint64_t producer_start_time(const struct producer *p)
{
	return p->start_time;
}

uid_t producer_uid(const struct producer *p)
{
	return p->uid;
}

uint64_t producer_bytes(const struct producer *p)
{
	return p->geometry.total_bytes;
}

enum producer_state producer_state(const struct producer *p)
{
	return p->state;
}

/* ---- all */

int producers_new(struct event_base *base, const struct config *config, struct quota *quota, struct clockseries *clocks,
		  struct producers **ret)
{
	_cleanup_(producers_freep) struct producers *ps = calloc(1, sizeof(*ps));

	if (!ps)
		return -ENOMEM;
	ps->base = base;
	ps->config = config;
	ps->quota = quota;
	ps->clocks = clocks;
	TAILQ_INIT(&ps->all);
	TAILQ_INIT(&ps->ended);
	TAILQ_INIT(&ps->paused);
	ps->expire = evtimer_new(base, on_expire, ps);
	ps->resume = evtimer_new(base, on_resume, ps);
	if (!ps->expire || !ps->resume)
		return -ENOMEM;
	*ret = take_ptr(ps);
	return 0;
}

struct producers *producers_free(struct producers *ps)
{
	struct producer *p;

	if (!ps)
		return NULL;
	ps->callbacks = (struct producers_callbacks){0};
	while ((p = TAILQ_FIRST(&ps->all)) != NULL) {
		if (p->state == PRODUCER_LIVE)
			producer_end(p);
		forget(p);
	}
	if (ps->expire)
		event_free(ps->expire);
	if (ps->resume)
		event_free(ps->resume);
	free(ps);
	return NULL;
}

void producers_set_callbacks(struct producers *ps, const struct producers_callbacks *callbacks)
{
	ps->callbacks = callbacks ? *callbacks : (struct producers_callbacks){0};
}
