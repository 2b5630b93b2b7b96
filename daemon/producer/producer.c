// SPDX-License-Identifier: Apache-2.0
#include "daemon/producer/producer.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "daemon/config.h"
#include "daemon/producer/producer_internal.h"

#define S_NS 1000000000ULL

size_t producer_bucket(pid_t pid)
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
	producer_threads_fini(&p->threads);
	(void)close_fd(p->memory_fd);
	(void)close_fd(p->wake_fd);
	producer_drop_go_stream(p);
	quota_release(&p->charge_bytes);
	quota_release(&p->charge_one);
	free(p);
	return NULL;
}

/* Everything by which a living one costs or reports something. */
void producer_detach(struct producer *p)
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
void producer_forget(struct producer *p)
{
	struct producers *ps = p->ps;

	if (!ps)
		return;
	assert(p->state == PRODUCER_ENDED);
	(void)producer_ref(p);
	if (ps->callbacks.gone)
		ps->callbacks.gone(ps->callbacks.arg, p);
	if (p->ps) { /* a callback may have forgotten it already */
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

/*
 * One timer for all: they are kept for the same time, so the first to have ended is the first to
 * go.
 */
static void expire_arm(struct producers *ps)
{
	struct producer *first = TAILQ_FIRST(&ps->ended);
	uint64_t now = io_now_ns(), at, us;
	struct timeval tv = {0};

	if (!first) {
		(void)event_del(ps->expire);
		return;
	}
	at = first->ended_ns + ps->config->exited_keep_s * S_NS;
	us = at > now ? (at - now) / 1000 + 1 : 0;
	tv.tv_sec = (time_t)(us / 1000000);
	tv.tv_usec = (suseconds_t)(us % 1000000);
	(void)event_add(ps->expire, &tv);
}

static void on_expire(evutil_socket_t fd, short what, void *arg)
{
	struct producers *ps = arg;
	uint64_t now = io_now_ns();
	struct producer *p;

	while ((p = TAILQ_FIRST(&ps->ended)) != NULL &&
	       now >= p->ended_ns + ps->config->exited_keep_s * S_NS)
		producer_forget(p);
	expire_arm(ps);
}

void producer_end(struct producer *p)
{
	struct producers *ps = p->ps;

	if (!ps || p->state == PRODUCER_ENDED)
		return;
	/* Its last causes: the wake for them may come later in the same turn of the loop. */
	producer_causes_take(p);
	producer_detach(p);
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

void producer_end_by_itself(struct producer *p)
{
	struct producer_connection connection = p->connection;

	producer_end(p);
	if (connection.ended)
		connection.ended(connection.arg);
}

void producer_on_exit(evutil_socket_t fd, short what, void *arg)
{
	_cleanup_(producer_unrefp) struct producer *p = producer_ref(arg);

	if (p->state == PRODUCER_LIVE)
		producer_end_by_itself(p);
}

void producer_on_wake(evutil_socket_t fd, short what, void *arg)
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
		/* Too often: what comes meanwhile is seen when it may wake us again. */
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

/* ---- from outside */

void producer_connect(struct producer *p, const struct producer_connection *connection)
{
	p->connection = connection ? *connection : (struct producer_connection){0};
	if (connection)
		p->go_drop = connection->go_drop;
}

void producer_collected(struct producer *p)
{
	if (p->ps && p->state == PRODUCER_ENDED)
		producer_forget(p);
}

/* ---- thresholds */

int producer_threshold_set(struct producer *p, uint32_t id, const char *region,
			   uint64_t threshold_ns, uint64_t cooldown_ns)
{
	struct ring_threshold entry = {.id = id,
				       .threshold_ns = threshold_ns,
				       .cooldown_ns = cooldown_ns};
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
		p->suppressed_at[i] =
			producer_read_u64(p, offsetof(struct ring_header, suppressed) +
						     i * sizeof(uint64_t));
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
	now = producer_read_u64(p, offsetof(struct ring_header, suppressed) +
					   (size_t)i * sizeof(uint64_t));
	return now > p->suppressed_at[i] ? now - p->suppressed_at[i] : 0;
}

/* ---- asking */

uint64_t producer_read_u64(const struct producer *p, size_t offset)
{
	uint64_t value;

	return io_pread_full(p->memory_fd, &value, sizeof(value), (off_t)offset) == sizeof(value)
		       ? value
		       : 0;
}

struct producer *producers_next(const struct producers *ps, const struct producer *after)
{
	return after ? TAILQ_NEXT(after, link) : TAILQ_FIRST(&ps->all);
}

struct producer *producers_of(const struct producers *ps, pid_t pid, uint64_t start_time,
			      const struct producer *after)
{
	struct producer *p = after ? LIST_NEXT(after, by_pid)
				   : LIST_FIRST(&ps->by_pid[producer_bucket(pid)]);

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

bool producer_is_open_to(const struct producer *p, uid_t uid)
{
	return p->uid == uid && p->strict_uid == uid;
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

int producers_new(struct event_base *base, const struct config *config, struct quota *quota,
		  struct clockseries *clocks, struct producers **ret)
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
		producer_forget(p);
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
