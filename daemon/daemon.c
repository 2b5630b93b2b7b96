// SPDX-License-Identifier: Apache-2.0
/* Building, running and stopping. Errors of the start are logged here, once. */
#include "daemon/daemon.h"

#include <errno.h>
#include <event2/event.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/decoder/dying.h"
#include "daemon/base/clockseries.h"
#include "daemon/base/copier.h"
#include "daemon/base/dir.h"
#include "daemon/base/loop.h"
#include "daemon/caps.h"
#include "daemon/config.h"
#include "daemon/control/audit.h"
#include "daemon/control/auth.h"
#include "daemon/control/call.h"
#include "daemon/control/conn.h"
#include "daemon/control/quota.h"
#include "daemon/control/subscribers.h"
#include "daemon/methods/methods.h"
#include "daemon/notify.h"
#include "daemon/producer/producer.h"
#include "daemon/snapshot/snapshot.h"
#include "daemon/snapshot/spool.h"
#include "daemon/sockets.h"
#include "daemon/status/picture.h"
#include "daemon/status/server.h"
#include "daemon/status/status.h"
#include "daemon/target/opening.h"
#include "daemon/target/target.h"
#include "daemon/trigger/trigger.h"

#define TIMERS_OTHERS 1024   /* of snapshots, and of each module for itself */
#define STOP_S 10            /* for running work to end after SIGTERM */
#define DYING_MS 500         /* to reap killed decoders; the others are left to init */
#define DRAIN_S 1            /* for clients to take what is queued for them then */
#define HEALTH_NS 60000000000ull /* nothing on the copier may take longer */

struct daemon {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct audit audit;
	struct hub *hub;
	struct openings *openings;
	struct targets *targets;
	struct clockseries *clocks;
	struct producers *producers;
	struct copier *copier, *hurry;
	struct spool *spool;
	struct snapshots *snapshots;
	struct triggers *triggers;
	struct methods methods;
	struct calls calls;
	struct conns *conns;
	struct pictures *pictures;
	struct status_server *status_server;
	struct sockets sockets;
	struct notify *notify;
	struct event *sigterm, *sigint, *stop_deadline, *dying;
	gid_t admin_gid;     /* AUTH_NO_GROUP: only root and our own user */
	uint64_t started_ns; /* io_now_ns() */
	struct loop_meter meter;
	bool draining, gave_up;
};

DEFINE_CLEANUP(struct daemon *, daemon_free)

static int fail(int r, const char *what)
{
	log_error("%s: %s", what, strerror(-r));
	return r;
}

/* ---- callbacks of the modules */

static void on_connection_closed(void *arg)
{
	struct daemon *d = arg;

	sockets_resume(&d->sockets);
}

static void on_status_change(void *arg)
{
	struct daemon *d = arg;
	struct status_server_stats stats;

	if (!d->conns || !d->status_server)
		return; /* being torn down */
	status_server_get_stats(d->status_server, &stats);
	conns_set_others(d->conns, stats.waiting);
	on_connection_closed(d);
}

static unsigned int status_room(void *arg)
{
	struct daemon *d = arg;
	struct status_server_stats stats;
	unsigned int max = conns_max(d->conns), used;

	status_server_get_stats(d->status_server, &stats);
	used = conns_count(d->conns) + stats.waiting;
	return used < max ? max - used : 0;
}

static void on_message(void *arg, struct conn *c, const char *text, size_t len, int *fds,
		       size_t n_fds)
{
	struct daemon *d = arg;

	calls_message(&d->calls, c, text, len, fds, n_fds);
}

static struct json_object *on_picture(void *arg)
{
	struct daemon *d = arg;

	return status_to_json(&(struct status_sources){.audit = &d->audit,
						       .quota = &d->quota,
						       .meter = &d->meter,
						       .hub = d->hub,
						       .openings = d->openings,
						       .targets = d->targets,
						       .producers = d->producers,
						       .snapshots = d->snapshots,
						       .triggers = d->triggers,
						       .conns = d->conns,
						       .status_server = d->status_server,
						       .control = d->sockets.control,
						       .started_ns = d->started_ns,
						       .stopping = d->calls.stopping});
}

static void on_control_accept(void *arg, int fd)
{
	struct daemon *d = arg;

	conns_accept(d->conns, fd);
}

static void on_status_accept(void *arg, int fd)
{
	struct daemon *d = arg;

	status_server_accept(d->status_server, fd);
}

static bool clocks_wanted(void *arg)
{
	struct daemon *d = arg;

	/* What is kept of targets and producers that have ended needs the clock of its time. */
	return targets_count(d->targets, TARGET_ARMED) +
			       targets_count(d->targets, TARGET_SUSPENDED) +
			       targets_count(d->targets,
					     TARGET_EXITED) > 0 ||
	       producers_next(d->producers, NULL) != NULL;
}

static void on_producer_changed(void *arg, struct producer *producer)
{
	struct daemon *d = arg;

	targets_producer_changed(d->targets, producer);
	triggers_producer_changed(d->triggers, producer);
}

static void on_producer_gone(void *arg, struct producer *producer)
{
	struct daemon *d = arg;

	targets_producer_gone(d->targets, producer);
}

static void on_producer_cause(void *arg, struct producer *producer,
			      const struct producer_cause *cause)
{
	struct daemon *d = arg;

	triggers_cause(d->triggers, producer, cause);
}

static void on_target_changed(void *arg, struct target *target)
{
	struct daemon *d = arg;

	triggers_target_changed(d->triggers, target);
}

static void on_target_mapped(void *arg, struct target *target, const struct target_mapping *mapping)
{
	struct daemon *d = arg;

	triggers_target_mapped(d->triggers, target, mapping);
}

static void on_target_gone(void *arg, struct target *target)
{
	struct daemon *d = arg;

	triggers_target_gone(d->triggers, target);
}

static void on_targets_surveyed(void *arg)
{
	struct daemon *d = arg;

	methods_surveyed(&d->methods);
}

static bool is_healthy(void *arg)
{
	struct daemon *d = arg;

	return snapshots_healthy(d->snapshots, HEALTH_NS);
}

static void describe(void *arg, char *buf, size_t size)
{
	struct daemon *d = arg;

	(void)snprintf(buf, size, "%zu targets armed, %zu snapshots in the spool",
		targets_count(d->targets, TARGET_ARMED), spool_count(d->spool));
}

static void on_stop_deadline(evutil_socket_t fd, short what, void *arg)
{
	struct daemon *d = arg;

	(void)fd;
	(void)what;
	d->gave_up = true;
}

static void on_signal(evutil_socket_t signo, short what, void *arg)
{
	static const struct timeval patience = {.tv_sec = STOP_S};
	struct daemon *d = arg;

	(void)what;
	if (d->calls.stopping)
		return;
	log_info("stopping (signal %d)", (int)signo);
	d->calls.stopping = true;
	pictures_forget(d->pictures);
	notify_stopping(d->notify);
	/* Socket units keep their sockets: who connects now is served by our successor. */
	sockets_close(&d->sockets);
	hub_emit(d->hub, "daemon.stopping", HUB_EVERYBODY, json_object_new_object());
	(void)evtimer_add(d->stop_deadline, &patience);
}

static void on_dying(evutil_socket_t fd, short what, void *arg)
{
	(void)fd;
	(void)what;
	(void)arg;
	decoder_dying_reap();
}

/* ---- building */

static void find_group(struct daemon *d)
{
	int r;

	d->admin_gid = AUTH_NO_GROUP;
	if (!d->config.socket_group[0])
		return;
	r = auth_group(d->config.socket_group, &d->admin_gid);
	if (r < 0)
		log_notice("group %s: %s; only root and tracerd's own user are administrators",
			   d->config.socket_group, r == -ENOENT ? "does not exist" : strerror(-r));
}

/* Raises our limit of descriptors as far as it goes: each event of each processor is one. */
static void use_descriptors(struct daemon *d)
{
	struct rlimit rl;
	unsigned int most;

	if (getrlimit(RLIMIT_NOFILE, &rl) < 0)
		return;
	if (rl.rlim_cur < rl.rlim_max) {
		rl.rlim_cur = rl.rlim_max;
		(void)setrlimit(RLIMIT_NOFILE, &rl);
		(void)getrlimit(RLIMIT_NOFILE, &rl);
	}
	if (rl.rlim_cur == RLIM_INFINITY)
		return;
	/*
	 * At most half of them for clients, each of which takes two (a socket and a pidfd): the
	 * other half is for recording.
	 */
	most = rl.rlim_cur / 4 > UINT32_MAX ? UINT32_MAX : (unsigned int)(rl.rlim_cur / 4);
	if (most < d->config.max_connections) {
		log_notice("at most %u connections, because RLIMIT_NOFILE is %llu", most,
			   (unsigned long long)rl.rlim_cur);
		conns_set_max(d->conns, most);
	}
}

/* Last of what records: from here on producers and targets report to it. */
static int new_triggers(struct daemon *d)
{
	const struct triggers_context ctx = {.base = d->base,
					     .config = &d->config,
					     .quota = &d->quota,
					     .hub = d->hub,
					     .targets = d->targets,
					     .producers = d->producers,
					     .snapshots = d->snapshots};
	int r;

	r = triggers_new(&ctx, &d->triggers);
	if (r < 0)
		return fail(r, "triggers");
	producers_set_callbacks(d->producers,
				&(struct producers_callbacks){.changed = on_producer_changed,
							      .gone = on_producer_gone,
							      .cause = on_producer_cause,
							      .arg = d});
	targets_set_callbacks(d->targets,
			      &(struct targets_callbacks){.changed = on_target_changed,
							  .mapped = on_target_mapped,
							  .gone = on_target_gone,
							  .surveyed = on_targets_surveyed,
							  .arg = d});
	return 0;
}

/* What points at others is freed before them. */
static void free_recording(struct daemon *d)
{
	/* Both join their threads, so that no job looks at what goes now. */
	if (d->copier)
		copier_free(d->copier);
	if (d->hurry)
		copier_free(d->hurry);
	if (d->producers)
		producers_set_callbacks(d->producers, NULL);
	if (d->targets)
		targets_set_callbacks(d->targets, &(struct targets_callbacks){0});
	d->triggers = triggers_free(d->triggers);
	if (d->snapshots)
		snapshots_free(d->snapshots);
	d->targets = targets_free(d->targets);
	d->producers = producers_free(d->producers);
	d->openings = openings_free(d->openings);
	if (d->clocks)
		clockseries_free(d->clocks);
	if (d->spool)
		spool_close(d->spool);
}

/*
 * Before the sockets: who may not have the spool must not have taken the place of another daemon's
 * sockets. A daemon that has got its own from the service manager does not hold that place itself.
 */
static int new_spool(struct daemon *d)
{
	const struct config *c = &d->config;
	const struct spool_limits limits = {
		.max_bytes = (uint64_t)c->spool_max_mib << 20,
		.max_age_ns = (uint64_t)c->spool_max_age_h * 3600 * 1000000000u,
		.max_count = c->spool_max_count,
		.keep_free_percent = c->spool_keep_free_percent,
		.uid_bytes = (uint64_t)c->uid_spool_mib << 20,
		.exempt = geteuid(),
		.hold_ns = (uint64_t)c->spool_hold_s * 1000000000u,
	};
	int r;

	r = dir_make(c->state_dir, 0700);
	if (r < 0)
		return fail(r, c->state_dir);
	r = spool_open(c->state_dir, &limits, &d->quota, &d->spool);
	if (r < 0)
		log_error("%s: %s", c->state_dir,
			  r == -EBUSY ? "another tracerd uses this spool" : strerror(-r));
	return r;
}

static int new_recording(struct daemon *d)
{
	const struct config *c = &d->config;
	struct snapshots_context ctx;
	int r;

	r = targets_new(d->base, c, &d->quota, d->hub, d->openings, &d->targets);
	if (r < 0)
		return fail(r, "targets");
	r = clockseries_new(d->base, clocks_wanted, d, &d->clocks);
	if (r < 0)
		return fail(r, "clocks");
	targets_set_clocks(d->targets, d->clocks);
	r = producers_new(d->base, c, &d->quota, d->clocks, &d->producers);
	if (r < 0)
		return fail(r, "event rings");
	targets_set_producers(d->targets, d->producers);
	r = copier_new(d->base, &d->copier);
	if (r == 0)
		r = copier_new_hurried(d->base, &d->hurry);
	if (r < 0)
		return fail(r, "copier");
	ctx = (struct snapshots_context){.base = d->base,
					 .config = c,
					 .quota = &d->quota,
					 .hub = d->hub,
					 .targets = d->targets,
					 .spool = d->spool,
					 .clocks = d->clocks,
					 .copier = d->copier,
					 .hurry = d->hurry};
	r = snapshots_new(&ctx, &d->snapshots);
	return r < 0 ? fail(r, "snapshots") : new_triggers(d);
}

static int new_clients(struct daemon *d)
{
	const struct conns_context conns = {.base = d->base,
					    .config = &d->config,
					    .quota = &d->quota,
					    .hub = d->hub,
					    .admin_gid = d->admin_gid,
					    .on_message = on_message,
					    .on_closed = on_connection_closed,
					    .arg = d};
	const struct methods methods = {.base = d->base,
					.config = &d->config,
					.audit = &d->audit,
					.clocks = d->clocks,
					.producers = d->producers,
					.targets = d->targets,
					.snapshots = d->snapshots,
					.triggers = d->triggers};
	struct status_server_context server = {.base = d->base,
					       .config = &d->config,
					       .quota = &d->quota,
					       .room = status_room,
					       .on_change = on_status_change,
					       .arg = d};
	const struct notify_context notify = {.base = d->base,
					      .hub = d->hub,
					      .healthy = is_healthy,
					      .describe = describe,
					      .arg = d};
	int r;

	d->methods = methods;
	d->calls = (struct calls){.handlers = methods_handlers,
				  .methods = &d->methods,
				  .audit = &d->audit};
	r = conns_new(&conns, &d->conns);
	if (r == 0)
		r = pictures_new(on_picture, d, &d->pictures);
	d->methods.pictures = server.pictures = d->pictures;
	if (r == 0)
		r = status_server_new(&server, &d->status_server);
	if (r == 0)
		r = notify_new(&notify, &d->notify);
	if (r < 0)
		return fail(r, "clients");
	use_descriptors(d);
	return 0;
}

/*
 * Before all that takes time, as the kernel checks BPF programs for seconds: who connects meanwhile
 * waits for the loop.
 */
static int new_sockets(struct daemon *d)
{
	const struct sockets_context sockets = {.base = d->base,
						.config = &d->config,
						.admin_gid = d->admin_gid,
						.on_control = on_control_accept,
						.on_status = on_status_accept,
						.arg = d};

	return sockets_open(&sockets, &d->sockets);
}

static int watch_signals(struct daemon *d)
{
	d->sigterm = evsignal_new(d->base, SIGTERM, on_signal, d);
	d->sigint = evsignal_new(d->base, SIGINT, on_signal, d);
	d->stop_deadline = evtimer_new(d->base, on_stop_deadline, d);
	d->dying = event_new(d->base, decoder_dying_fd(), EV_READ | EV_PERSIST, on_dying, d);
	if (!d->sigterm || !d->sigint || !d->stop_deadline || !d->dying ||
	    event_add(d->dying, NULL) < 0 || evsignal_add(d->sigterm, NULL) < 0 ||
	    evsignal_add(d->sigint, NULL) < 0)
		return fail(-ENOMEM, "signals");
	(void)signal(SIGPIPE, SIG_IGN);
	return 0;
}

int daemon_new(struct config *config, struct daemon **ret)
{
	_cleanup_(daemon_freep) struct daemon *d = calloc(1, sizeof(*d));
	int r;

	if (!d)
		return fail(-ENOMEM, "start");
	d->sockets.lock_fd = -1;
	d->config = *config;
	memset(config, 0, sizeof(*config));
	d->started_ns = io_now_ns();
	quota_init(&d->quota, &d->config);
	r = loop_new(2 * (size_t)d->config.max_connections + 4 * (size_t)d->config.max_targets +
			     3 * (size_t)d->config.max_triggers + TIMERS_OTHERS,
		     &d->base);
	if (r < 0)
		return fail(r, "event loop");
	r = openings_new(d->base, NULL, &d->openings);
	if (r < 0)
		return fail(r, "opener");
	r = caps_give_up();
	if (r < 0)
		return fail(r, "giving up the opener's capabilities");
	r = hub_new(&d->hub);
	if (r < 0)
		return fail(r, "hub");
	find_group(d);
	r = watch_signals(d);
	if (r == 0)
		r = new_spool(d);
	if (r == 0)
		r = new_sockets(d);
	if (r == 0)
		r = new_recording(d);
	if (r == 0)
		r = new_clients(d);
	if (r < 0)
		return r;
	*ret = take_ptr(d);
	return 0;
}

/* After a signal: work ends, its waiters get their answers, clients get what is queued for them. */
static bool has_stopped(struct daemon *d)
{
	static const struct timeval patience = {.tv_sec = DRAIN_S};

	if (!d->calls.stopping)
		return false;
	if (!d->draining) {
		if (d->gave_up)
			log_warning("running work did not end within %d s", STOP_S);
		else if (!targets_stop(d->targets) || !snapshots_stop(d->snapshots))
			return false;
		d->draining = true;
		d->gave_up = false;
		(void)evtimer_add(d->stop_deadline, &patience);
	}
	return conns_drain(d->conns) || d->gave_up;
}

int daemon_run(struct daemon *d)
{
	log_info("ready: %s/control.sock", d->config.runtime_dir);
	notify_ready(d->notify);
	loop_meter_turn(&d->meter);
	while (!has_stopped(d)) {
		if (event_base_loop(d->base, EVLOOP_ONCE) < 0)
			return fail(-EIO, "event loop");
		loop_meter_turn(&d->meter);
	}
	return 0;
}

struct daemon *daemon_free(struct daemon *d)
{
	if (!d)
		return NULL;
	sockets_close(&d->sockets);
	d->notify = notify_free(d->notify);
	d->status_server = status_server_free(d->status_server);
	/* Connections first: a request that waits withdraws from what it waits for. */
	d->conns = conns_free(d->conns);
	free_recording(d);
	d->pictures = pictures_free(d->pictures);
	d->hub = hub_free(d->hub);
	quota_fini(&d->quota);
	decoder_dying_wait(DYING_MS);
	for (size_t i = 0; i < 4; i++) {
		struct event *e =
			(struct event *[]){d->sigterm, d->sigint, d->stop_deadline, d->dying}[i];

		if (e)
			event_free(e);
	}
	if (d->base)
		event_base_free(d->base);
	sockets_unlock(&d->sockets);
	config_fini(&d->config);
	free(d);
	return NULL;
}
