// SPDX-License-Identifier: Apache-2.0
/*
 * Triggers with targets, programs, a clock and snapshots that are made up: which hit becomes a
 * snapshot, which is suppressed and why, and what stands in the programs' control pages.
 */
#include "common/base/raw_clock.h"
#include "daemon/trigger/trigger.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <event2/event.h>

#include "common/base/log.h"
#include "common/control/json.h"
#include "common/control/protocol.h"
#include "daemon/config.h"
#include "daemon/control/quota.h"
#include "daemon/control/subscribers.h"
#include "daemon/producer/producer.h"
#include "daemon/snapshot/snapshot.h"
#include "daemon/target/target.h"
#include "daemon/trigger/limit.h"
#include "daemon/trigger/probe.h"
#include "tests/unit/cmocka_names.h"

#define MS 1000000ULL
#define S 1000000000ULL
#define HOUR (3600 * S)

/* ---- the clock */

static uint64_t now;

uint64_t clock_raw_ns(void)
{
	return now;
}

/* ---- targets and programs */

struct target {
	uint64_t id;
	const char *name;
	enum target_scope scope;
	enum target_state state;
	uid_t owner;
	pid_t tid;
	bool implicit, admins;
	struct producer *programs[4];
	struct target_process processes[4];
	size_t n_processes;
};

struct entry {
	uint32_t id;
	char region[RING_CONTROL_NAME + 1];
	uint64_t over_ns, cooldown_ns, suppressed;
};

struct producer {
	uint64_t id;
	pid_t pid;
	uid_t uid, also_open_to;
	enum producer_state state;
	int refs;
	struct entry page[RING_THRESHOLDS];
	uint32_t last_id;
};

static struct target t1, t2, unit;
static struct producer p1, p2;
static struct producer *programs[3];
static struct target *all_targets[4];

uint64_t target_id(const struct target *t)
{
	return t->id;
}

const char *target_name(const struct target *t)
{
	return t->name;
}

pid_t target_pid(const struct target *t)
{
	return 100;
}

const char *target_comm(const struct target *t)
{
	return "serv\ner";
}

uid_t target_owner(const struct target *t)
{
	return t->owner;
}

enum target_scope target_scope(const struct target *t)
{
	return t->scope;
}

enum target_state target_state(const struct target *t)
{
	return t->state;
}

pid_t target_tid(const struct target *t)
{
	return t->tid;
}

bool target_is_implicit(const struct target *t)
{
	return t->implicit;
}

bool target_visible(const struct target *t, uid_t uid, bool admin)
{
	return admin || t->owner == uid;
}

bool target_gives(const struct target *t, uid_t uid)
{
	return uid == 0 || !t->admins;
}

bool target_has(const struct target *t, pid_t pid, uint64_t start_time)
{
	for (size_t i = 0; i < ARRAY_SIZE(t->programs) && t->programs[i]; i++)
		if (t->programs[i]->pid == pid && start_time == 7)
			return true;
	return false;
}

size_t targets_having(const struct targets *targets, pid_t pid, uint64_t start_time,
		      struct target **ret, size_t room)
{
	size_t n = 0;

	for (size_t i = 0; i < ARRAY_SIZE(all_targets) && all_targets[i] && n < room; i++)
		if (target_has(all_targets[i], pid, start_time))
			ret[n++] = all_targets[i];
	return n;
}

size_t target_processes(const struct target *t, struct target_process *ret, size_t room)
{
	for (size_t i = 0; i < t->n_processes && i < room; i++)
		ret[i] = t->processes[i];
	return t->n_processes;
}

uid_t target_uid(const struct target *t)
{
	return t->owner;
}

struct pausable *target_pausable(const struct target *t, const char **ret_why)
{
	*ret_why = NULL;
	return NULL;
}

/* ---- breakpoints: those that there are, and what the test says of them */

#define PROBES_MAX 8

struct probe {
	struct probe_process process;
	const struct probe_callbacks *callbacks;
	void *arg;
	enum probe_state state;
	bool on, open;
	enum probe_by used;
};

#define PLACE_ADDRESS 0x7000u
static struct probe fake_probes[PROBES_MAX];
static size_t n_probes;
static unsigned int probes_refused; /* of the next ones */

const char *probe_by_name(enum probe_by by)
{
	static const char *const names[] = {"auto", "breakpoint", "uprobe"};

	return names[by];
}

int probes_new(struct event_base *base, struct quota *quota, struct probes **ret)
{
	*ret = (struct probes *)fake_probes;
	return 0;
}

struct probes *probes_free(struct probes *ps)
{
	return NULL;
}

int probe_new(struct probes *ps, const struct probe_place *place,
	      const struct probe_process *process, const struct probe_callbacks *callbacks,
	      void *arg, struct probe **ret)
{
	struct probe *p;

	if (probes_refused) {
		probes_refused--;
		return -EBUSY;
	}
	p = &fake_probes[n_probes++];
	assert_true(n_probes <= PROBES_MAX);
	*p = (struct probe){
		.process = *process, .callbacks = callbacks, .arg = arg, .on = true, .open = true};
	*ret = p;
	return 0;
}

struct probe *probe_free(struct probe *p)
{
	p->open = false;
	return NULL;
}

uint64_t probe_enable(struct probe *p, bool on, bool at_once)
{
	p->on = on;
	return 0;
}

enum probe_state probe_state(const struct probe *p)
{
	return p->state;
}

pid_t probe_pid(const struct probe *p)
{
	return p->process.pid;
}

uint64_t probe_start_time(const struct probe *p)
{
	return p->process.start_time;
}

size_t probe_threads(const struct probe *p)
{
	return 3;
}

size_t probe_pausing(const struct probe *p)
{
	return 0;
}

size_t probe_fds(const struct probe *p)
{
	return 6;
}

enum probe_by probe_used(const struct probe *p)
{
	return p->used;
}

const struct probe_copies *probe_copies(const struct probe *p)
{
	static const struct probe_copies copies = {.at = {PLACE_ADDRESS}, .n = 1, .left_out = 2};

	return &copies;
}

static bool switching;

bool probe_is_on(const struct probe *p)
{
	return !switching;
}

size_t probe_unsure(const struct probe *p)
{
	return 3;
}

const char *probe_why(const struct probe *p)
{
	return "all are in use";
}

struct producer *producers_next(const struct producers *ps, const struct producer *after)
{
	size_t i = 0;

	if (after)
		while (programs[i++] != after)
			;
	return programs[i];
}

uint64_t producer_id(const struct producer *p)
{
	return p->id;
}

pid_t producer_pid(const struct producer *p)
{
	return p->pid;
}

uint64_t producer_start_time(const struct producer *p)
{
	return 7;
}

uid_t producer_uid(const struct producer *p)
{
	return p->uid;
}

bool producer_is_open_to(const struct producer *p, uid_t uid)
{
	return p->uid == uid || p->also_open_to == uid;
}

enum producer_state producer_state(const struct producer *p)
{
	return p->state;
}

struct producer *producer_ref(struct producer *p)
{
	p->refs++;
	return p;
}

struct producer *producer_unref(struct producer *p)
{
	p->refs--;
	return NULL;
}

static struct entry *entry_by_id(struct producer *p, uint32_t id)
{
	for (size_t i = 0; i < RING_THRESHOLDS; i++)
		if (p->page[i].id == id)
			return &p->page[i];
	return NULL;
}

int producer_threshold_set(struct producer *p, uint32_t id, const char *region, uint64_t over,
			   uint64_t cooldown)
{
	struct entry *e = entry_by_id(p, id);

	if (e) {
		assert_string_equal(e->region, region);
	} else {
		e = entry_by_id(p, 0);
		if (!e)
			return -ENOSPC;
		/* no number is used twice */
		assert_true(id > p->last_id);
		p->last_id = id;
	}
	e->id = id;
	(void)snprintf(e->region, sizeof(e->region), "%s", region);
	e->over_ns = over;
	e->cooldown_ns = cooldown;
	return 0;
}

void producer_threshold_clear(struct producer *p, uint32_t id)
{
	struct entry *e = entry_by_id(p, id);

	if (e)
		*e = (struct entry){0};
}

uint64_t producer_threshold_suppressed(struct producer *p, uint32_t id)
{
	struct entry *e = entry_by_id(p, id);

	return e ? e->suppressed : 0;
}

static struct entry *entry_of(struct producer *p, const char *region)
{
	for (size_t i = 0; i < RING_THRESHOLDS; i++)
		if (p->page[i].id && !strcmp(p->page[i].region, region))
			return &p->page[i];
	return NULL;
}

static unsigned entries(const struct producer *p)
{
	unsigned n = 0;

	for (size_t i = 0; i < RING_THRESHOLDS; i++)
		n += p->page[i].id != 0;
	return n;
}

/* ---- snapshots */

struct snapshot {
	char id[32];
	struct target *target;
	struct cause cause;
	uint64_t asked_raw_ns;
	bool admin;
	snapshot_done_fn done;
	void *arg;
};

static struct snapshot taken[64];
static unsigned n_taken;
static int create_answer;
static bool end_next_turn;

int snapshots_create(struct snapshots *s, struct target *target,
		     const struct snapshot_request *request, snapshot_done_fn done, void *arg,
		     struct snapshot **ret, char *why, size_t why_size)
{
	struct snapshot *n = &taken[n_taken];

	if (create_answer)
		return create_answer;
	assert_true(n_taken < ARRAY_SIZE(taken));
	assert_int_equal(request->uid, request->cause->uid);
	(void)snprintf(n->id, sizeof(n->id), "snapshot-%u", n_taken++);
	n->target = target;
	cause_copy(&n->cause, request->cause);
	n->asked_raw_ns = request->asked_raw_ns;
	n->admin = request->admin;
	n->done = done;
	n->arg = arg;
	*ret = n;
	return 0;
}

void snapshots_forget_waiter(struct snapshots *s, void *arg)
{
	for (unsigned i = 0; i < n_taken; i++)
		if (taken[i].arg == arg)
			taken[i].done = NULL;
}

const char *snapshot_id(const struct snapshot *n)
{
	return n->id;
}

static void end_snapshots(void)
{
	for (unsigned i = 0; i < n_taken; i++) {
		snapshot_done_fn done = taken[i].done;

		taken[i].done = NULL;
		if (done)
			done(&taken[i], taken[i].arg);
	}
}

/* ---- the daemon's part */

struct reported {
	struct json_object *last;
	unsigned n;
};

struct fixture {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct hub *hub;
	struct subscriber *subscriber, *stranger;
	struct reported reported, stranger_reported;
	struct triggers *triggers;
};

static bool deliver(void *arg, struct json_object *message)
{
	struct reported *reported = arg;

	json_object_put(reported->last);
	reported->last = json_object_get(json_get_object(message, "data"));
	reported->n++;
	return true;
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct triggers_context c;

	t1 = (struct target){.id = 1, .name = "t1", .owner = 1000, .programs = {&p1}};
	t2 = (struct target){.id = 2, .name = "t2", .owner = 2000, .programs = {&p1}};
	unit = (struct target){
		.id = 3, .name = "t3", .scope = TARGET_UNIT, .owner = 0, .programs = {&p1, &p2}};
	p1 = (struct producer){.id = 1, .pid = 100, .uid = 1000};
	p2 = (struct producer){.id = 65, .pid = 200, .uid = 1000};
	programs[0] = &p1;
	programs[1] = &p2;
	all_targets[0] = &t1;
	all_targets[1] = &t2;
	all_targets[2] = &unit;
	now = 1000 * S;
	n_taken = 0;
	create_answer = 0;
	end_next_turn = false;

	f->base = event_base_new();
	assert_int_equal(config_init(&f->config), 0);
	quota_init(&f->quota, &f->config);
	f->quota.exempt = (uid_t)-1;
	assert_int_equal(hub_new(&f->hub), 0);
	assert_int_equal(subscriber_new(f->hub, 1000, false, UINT64_MAX, deliver, &f->reported,
					&f->subscriber),
			 0);
	assert_int_equal(subscriber_new(f->hub, 3000, false, UINT64_MAX, deliver,
					&f->stranger_reported, &f->stranger),
			 0);
	c = (struct triggers_context){.base = f->base,
				      .config = &f->config,
				      .quota = &f->quota,
				      .hub = f->hub};
	assert_int_equal(triggers_new(&c, &f->triggers), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	f->triggers = triggers_free(f->triggers);
	assert_int_equal(p1.refs, 0);
	assert_int_equal(p2.refs, 0);
	assert_int_equal(entries(&p1) + entries(&p2), 0);
	assert_int_equal(f->stranger_reported.n, 0);
	for (unsigned i = 0; i < n_taken; i++)
		assert_null(taken[i].done); /* ended, or forgotten */
	(void)subscriber_free(f->subscriber);
	(void)subscriber_free(f->stranger);
	json_object_put(f->reported.last);
	f->hub = hub_free(f->hub);
	quota_fini(&f->quota);
	config_fini(&f->config);
	event_base_free(f->base);
	free(f);
	return 0;
}

/* ---- helpers */

static int try_add(struct fixture *f, struct target *target, const struct trigger_request *req,
		   struct trigger **ret)
{
	char why[200] = "";
	int r = triggers_add(f->triggers, target, req, ret, why, sizeof(why));

	assert_true(r <= 0 || why[0]);
	return r;
}

static struct trigger *add(struct fixture *f, struct target *target,
			   const struct trigger_request *req)
{
	struct trigger *t = NULL;

	assert_int_equal(try_add(f, target, req, &t), 0);
	return t;
}

static struct trigger *add_serve(struct fixture *f, uint64_t over_ns, uint64_t cooldown_ns)
{
	const struct trigger_request req = {.uid = 1000,
					    .region = "serve",
					    .over_ns = over_ns,
					    .cooldown_ns = cooldown_ns};

	return add(f, &t1, &req);
}

/* A turn of the loop: the cause, then the scheduler of snapshots. */
static void cause_written(struct fixture *f, struct producer *p, const struct producer_cause *cause)
{
	triggers_cause(f->triggers, p, cause);
	if (end_next_turn)
		end_snapshots();
}

static void tell(struct fixture *f, struct producer *p, uint32_t id, uint64_t took_ns)
{
	const struct producer_cause cause = {.kind = RING_CAUSE_REGION,
					     .tid = 101,
					     .trigger = id,
					     .begin_raw_ns = now - took_ns,
					     .end_raw_ns = now,
					     .text = "lies"};

	cause_written(f, p, &cause);
}

/* The program's region "serve" has taken so long. */
static void serve(struct fixture *f, uint64_t took_ns)
{
	const struct entry *e = entry_of(&p1, "serve");

	assert_non_null(e);
	tell(f, &p1, e->id, took_ns);
}

static void request(struct fixture *f, struct producer *p)
{
	const struct producer_cause cause = {.kind = RING_CAUSE_REQUEST,
					     .tid = 101,
					     .begin_raw_ns = now,
					     .end_raw_ns = now,
					     .text = "queue is full"};

	cause_written(f, p, &cause);
}

static uint64_t number(struct json_object *o, const char *key)
{
	uint64_t v = UINT64_MAX;

	assert_true(json_get_uint(o, key, &v));
	return v;
}

/* "suppressed" of an object with counts, which must add up. */
static uint64_t suppressed(struct json_object *o, const char *why)
{
	struct json_object *counts = json_get_object(o, "suppressed");
	uint64_t sum = 0;

	json_object_object_foreach(counts, key, value) {
		(void)key;
		sum += json_object_get_uint64(value);
	}
	assert_int_equal(number(o, "hits"), number(o, "snapshots") + sum);
	return number(counts, why);
}

static uint64_t count_of(struct trigger *t, const char *why)
{
	struct json_object *o = trigger_to_json(t);
	uint64_t n = suppressed(o, why);

	json_object_put(o);
	return n;
}

static uint64_t total_of(struct fixture *f, const char *of, const char *why)
{
	struct json_object *o = json_object_new_object(), *counts;
	uint64_t n;

	triggers_status(f->triggers, o);
	counts = json_get_object(o, "triggers");
	n = suppressed(of ? json_get_object(counts, of) : counts, why);
	json_object_put(o);
	return n;
}

static const char *told_why(const struct fixture *f)
{
	return json_get_string(f->reported.last, "suppressed");
}

/* Runs the loop so long. */
static void turn(struct fixture *f, unsigned ms)
{
	const struct timeval t = {.tv_usec = (suseconds_t)ms * 1000};

	(void)event_base_loopexit(f->base, &t);
	(void)event_base_loop(f->base, 0);
}

/* Until it is so: timers are the loop's. */
#define turn_until(f, condition)                                                                   \
	do                                                                                         \
		turn(f, 10);                                                                       \
	while (!(condition))

/* ---- limits */

static void test_limit_cooldown(void **state)
{
	struct trigger_limit l = {0};

	assert_int_equal(trigger_limit_check(&l, 5, 10 * S, 0), TRIGGER_LIMIT_PASS);
	trigger_limit_tried(&l, 5);
	assert_int_equal(trigger_limit_check(&l, 6, 10 * S, 0), TRIGGER_LIMIT_COOLDOWN);
	assert_int_equal(trigger_limit_check(&l, 9 * S, 10 * S, 0), TRIGGER_LIMIT_COOLDOWN);
	/* two clocks need not agree to the last nanosecond */
	assert_int_equal(trigger_limit_check(&l, 10 * S - 1000, 10 * S, 0), TRIGGER_LIMIT_PASS);
	/* a time that went back is no way around it */
	trigger_limit_tried(&l, 20 * S);
	trigger_limit_tried(&l, 1 * S);
	assert_int_equal(trigger_limit_check(&l, 21 * S, 10 * S, 0), TRIGGER_LIMIT_COOLDOWN);
	assert_int_equal(trigger_limit_check(&l, 2 * S, 10 * S, 0), TRIGGER_LIMIT_COOLDOWN);
	assert_int_equal(trigger_limit_check(&l, 2 * S, 0, 0), TRIGGER_LIMIT_PASS);
	assert_int_equal(trigger_limit_check(&l, UINT64_MAX, UINT64_MAX, 0), TRIGGER_LIMIT_PASS);
}

static void test_limit_per_hour(void **state)
{
	struct trigger_limit l = {0};
	uint64_t passed[4000] = {0};
	size_t n = 0;

	/* every 10 s for eleven hours: never more than 7 in any hour, and not much less */
	for (uint64_t at = 123 * S; at < 11 * HOUR; at += 10 * S) {
		if (trigger_limit_check(&l, at, 0, 7) != TRIGGER_LIMIT_PASS)
			continue;
		trigger_limit_count(&l, at);
		passed[n++] = at;
		if (n > 7)
			assert_true(passed[n - 1] - passed[n - 8] >= HOUR);
	}
	assert_true(n >= 70 && n <= 77);
	/* after a long silence all is forgotten */
	for (int i = 0; i < 7; i++) {
		assert_int_equal(trigger_limit_check(&l, 99 * HOUR, 0, 7), TRIGGER_LIMIT_PASS);
		trigger_limit_count(&l, 99 * HOUR);
	}
	assert_int_equal(trigger_limit_check(&l, 99 * HOUR, 0, 7), TRIGGER_LIMIT_PER_HOUR);
	assert_int_equal(trigger_limit_check(&l, 99 * HOUR, 0, 8), TRIGGER_LIMIT_PASS);
}

/* ---- hits */

static void test_hit(void **state)
{
	struct fixture *f = *state;
	struct trigger *t = add_serve(f, 5 * MS, 10 * S);
	const struct entry *e = entry_of(&p1, "serve");
	struct json_object *o;

	assert_non_null(e);
	assert_int_equal(e->over_ns, 5 * MS);
	assert_int_equal(e->cooldown_ns, 10 * S);
	assert_int_equal(entries(&p2), 0); /* not of this target */
	o = trigger_to_json(t);
	assert_string_equal(json_get_string(o, "id"), "g1");
	assert_string_equal(json_get_string(o, "target"), "t1");
	assert_string_equal(json_get_string(o, "comm"), "serv\\x0aer");
	assert_int_equal(number(o, "programs"), 1);
	assert_null(json_get_string(o, "last_snapshot"));
	json_object_put(o);

	serve(f, 7310000);
	assert_int_equal(n_taken, 1);
	assert_ptr_equal(taken[0].target, &t1);
	assert_int_equal(taken[0].cause.uid, 1000);
	assert_false(taken[0].admin);
	assert_int_equal(taken[0].cause.trigger, 1);
	assert_int_equal(taken[0].cause.pid, 100);
	assert_int_equal(taken[0].cause.tid, 101);
	assert_int_equal(taken[0].cause.end_raw_ns, now);
	assert_int_equal(taken[0].cause.begin_raw_ns, now - 7310000);
	/* the region by our own name for it, not by the program's */
	assert_string_equal(taken[0].cause.reason, "region \"serve\" took 7.31 ms, over 5 ms");
	assert_int_equal(f->reported.n, 1);
	assert_string_equal(json_get_string(f->reported.last, "trigger"), "g1");
	assert_string_equal(json_get_string(f->reported.last, "target"), "t1");
	assert_string_equal(json_get_string(f->reported.last, "snapshot"), "snapshot-0");
	assert_null(told_why(f));
	assert_int_equal(number(json_get_object(f->reported.last, "cause"), "duration_ns"),
			 7310000);
	o = trigger_to_json(t);
	assert_string_equal(json_get_string(o, "last_snapshot"), "snapshot-0");
	assert_true(number(o, "last_hit_at") > 0);
	assert_int_equal(number(o, "snapshots"), 1);
	assert_int_equal(suppressed(o, "cooldown"), 0);
	json_object_put(o);
	/* exactly the threshold is over it */
	end_snapshots();
	now += 10 * S;
	serve(f, 5 * MS);
	assert_int_equal(n_taken, 2);
}

static void test_cooldown_and_busy(void **state)
{
	struct fixture *f = *state;
	struct trigger *t = add_serve(f, 5 * MS, 10 * S);

	serve(f, 6 * MS);
	now += 9 * S;
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 1);
	assert_int_equal(count_of(t, "cooldown"), 1);
	assert_string_equal(told_why(f), "cooldown");
	/* the cooldown is over, the snapshot is not */
	now += 2 * S;
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 1);
	assert_int_equal(count_of(t, "busy"), 1);
	assert_string_equal(told_why(f), "busy");
	end_snapshots();
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 2);
	assert_int_equal(total_of(f, NULL, "busy"), 1);
	end_snapshots();
}

static void test_time_is_the_regions(void **state)
{
	struct fixture *f = *state;
	struct trigger *t = add_serve(f, 5 * MS, 10 * S);
	struct producer_cause cause = {.kind = RING_CAUSE_REGION,
				       .trigger = entry_of(&p1, "serve")->id,
				       .text = ""};

	end_next_turn = true;
	/* heard of 1 ms late, then at once: the program saw 10 s between them */
	cause.begin_raw_ns = now - 10 * MS;
	cause.end_raw_ns = now - 1 * MS;
	cause_written(f, &p1, &cause);
	now += 10 * S - 1 * MS;
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 2);
	/* a program that says it was long ago, or will be, gains nothing */
	cause.end_raw_ns = now + 3600 * S;
	cause_written(f, &p1, &cause);
	cause.begin_raw_ns = 0;
	cause.end_raw_ns = now / 2;
	cause_written(f, &p1, &cause);
	assert_int_equal(n_taken, 2);
	assert_int_equal(count_of(t, "cooldown"), 2);
}

static void test_per_hour(void **state)
{
	struct fixture *f = *state;
	const struct trigger_request req = {.uid = 1000,
					    .region = "serve",
					    .over_ns = 1 * MS,
					    .cooldown_ns = 1 * S,
					    .max_per_hour = 3};
	struct trigger *t = add(f, &t1, &req);

	end_next_turn = true;
	for (int i = 0; i < 10; i++) {
		serve(f, 2 * MS);
		now += 2 * S;
	}
	assert_int_equal(n_taken, 3);
	assert_int_equal(count_of(t, "per_hour"), 7);
	now += HOUR + 60 * S;
	serve(f, 2 * MS);
	assert_int_equal(n_taken, 4);
}

static void test_refused_by_snapshots(void **state)
{
	static const struct {
		int answer;
		const char *why;
	} cases[] = {
		{SNAPSHOT_E_QUOTA, "quota"},
		{SNAPSHOT_E_BUSY, "busy"},
		{SNAPSHOT_E_NO_SPACE, "no_space"},
		{SNAPSHOT_E_GONE, "gone"},
		{-ENOMEM, "busy"},
	};
	struct fixture *f = *state;
	struct trigger *t = add_serve(f, 1 * MS, 1 * S);

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t before = count_of(t, cases[i].why);

		create_answer = cases[i].answer;
		serve(f, 2 * MS);
		assert_int_equal(count_of(t, cases[i].why), before + 1);
		assert_string_equal(told_why(f), cases[i].why);
		/* one that was refused is tried again behind the cooldown, not at each hit */
		create_answer = 0;
		serve(f, 2 * MS);
		assert_int_equal(n_taken, 0);
		now += 2 * S;
	}
	assert_int_equal(count_of(t, "cooldown"), ARRAY_SIZE(cases));
	serve(f, 2 * MS);
	assert_int_equal(n_taken, 1);
	end_snapshots();
}

static void test_below_and_unknown(void **state)
{
	struct fixture *f = *state;
	struct trigger *t = add_serve(f, 5 * MS, 0);
	uint32_t id = entry_of(&p1, "serve")->id;
	const struct producer_cause backwards = {.kind = RING_CAUSE_REGION,
						 .trigger = id,
						 .begin_raw_ns = now,
						 .end_raw_ns = now - 9 * MS,
						 .text = ""};

	serve(f, 5 * MS - 1);
	triggers_cause(f->triggers, &p1, &backwards);
	assert_int_equal(n_taken, 0);
	assert_int_equal(count_of(t, "below"), 2);
	tell(f, &p1, id + 1, 9 * MS);
	tell(f, &p1, 0, 9 * MS);
	tell(f, &p2, id, 9 * MS); /* another program's number */
	assert_int_equal(n_taken, 0);
	assert_int_equal(count_of(t, "gone"), 0);
	assert_int_equal(total_of(f, NULL, "gone"), 3);
	triggers_remove(f->triggers, t);
	tell(f, &p1, id, 9 * MS);
	assert_int_equal(n_taken, 0);
	assert_int_equal(total_of(f, NULL, "gone"), 4);
}

static void test_suppressed_hits_are_told_seldom(void **state)
{
	struct fixture *f = *state;
	struct trigger *t = add_serve(f, 5 * MS, 10 * S);

	serve(f, 6 * MS);
	for (int i = 0; i < 1000; i++) {
		now += 1 * MS;
		serve(f, 6 * MS);
	}
	assert_int_equal(count_of(t, "cooldown"), 1000);
	assert_uint_in_range(f->reported.n, 1 + 9, 1 + 11);
	end_snapshots();
}

static void test_administrators_hits_are_theirs(void **state)
{
	struct fixture *f = *state;
	const struct trigger_request req = {.uid = 1000,
					    .admin = true,
					    .region = "serve",
					    .over_ns = 5 * MS};
	struct trigger *t = add(f, &t1, &req);

	/* one by whoever has the uid, who is no administrator now */
	assert_false(trigger_visible(t, 1000, false));
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 1);
	assert_int_equal(f->reported.n, 0);
	end_snapshots();
}

/* ---- the page */

static void test_shared_name(void **state)
{
	struct fixture *f = *state;
	struct trigger *high = add_serve(f, 9 * MS, 4 * S), *low, *other;
	const struct trigger_request req = {.uid = 1000, .region = "other", .over_ns = 1};
	uint32_t id = entry_of(&p1, "serve")->id;

	low = add_serve(f, 3 * MS, 8 * S);
	other = add(f, &t1, &req);
	assert_int_equal(entries(&p1), 2);
	/* the lower of each, and the number stays: what is on its way is not lost */
	assert_int_equal(entry_of(&p1, "serve")->id, id);
	assert_int_equal(entry_of(&p1, "serve")->over_ns, 3 * MS);
	/* a hit of the lower one must not keep back one of the higher one */
	assert_int_equal(entry_of(&p1, "serve")->cooldown_ns, 5 * MS);
	/* no program needs to tell more than one in the time that a snapshot takes */
	assert_int_equal(entry_of(&p1, "other")->cooldown_ns, 1 * MS);

	/* what is over one only is of that one only, and below none */
	serve(f, 4 * MS);
	assert_int_equal(n_taken, 1);
	assert_int_equal(taken[0].cause.over_ns, 3 * MS);
	assert_int_equal(count_of(high, "below") + count_of(low, "below"), 0);
	end_snapshots();
	now += 10 * S;
	serve(f, 10 * MS);
	assert_int_equal(n_taken, 3);
	assert_int_not_equal(taken[1].cause.trigger, taken[2].cause.trigger);
	end_snapshots();

	triggers_remove(f->triggers, low);
	assert_int_equal(entry_of(&p1, "serve")->id, id);
	assert_int_equal(entry_of(&p1, "serve")->over_ns, 9 * MS);
	assert_int_equal(entry_of(&p1, "serve")->cooldown_ns, 4 * S);
	/* of the same threshold the shortest is each one's */
	low = add_serve(f, 9 * MS, 2 * S);
	assert_int_equal(entry_of(&p1, "serve")->cooldown_ns, 2 * S);
	triggers_remove(f->triggers, low);
	triggers_remove(f->triggers, high);
	assert_null(entry_of(&p1, "serve"));
	/* a new one never gets an old number */
	(void)add_serve(f, 1 * MS, 0);
	assert_true(entry_of(&p1, "serve")->id > id + 1);
	triggers_remove(f->triggers, other);
}

static void test_kept_back_by_the_program(void **state)
{
	struct fixture *f = *state;
	struct trigger *low = add_serve(f, 3 * MS, 1 * S), *high;
	struct json_object *o;

	entry_of(&p1, "serve")->suppressed = 10;
	assert_int_equal(count_of(low, "program"), 10);
	assert_int_equal(count_of(low, "program"), 10); /* once */
	entry_of(&p1, "serve")->suppressed = 15;
	high = add_serve(f, 9 * MS, 1 * S);
	entry_of(&p1, "serve")->suppressed = 18;
	/* of the lower one: nobody knows whether they were over the higher as well */
	assert_int_equal(count_of(low, "program"), 18);
	assert_int_equal(count_of(high, "program"), 0);
	entry_of(&p1, "serve")->suppressed = 20;
	triggers_remove(f->triggers, low);
	entry_of(&p1, "serve")->suppressed = 25;
	assert_int_equal(count_of(high, "program"), 5);
	assert_int_equal(total_of(f, NULL, "program"), 25);
	/* a program that takes its word back, or says too much */
	entry_of(&p1, "serve")->suppressed = 3;
	assert_int_equal(count_of(high, "program"), 5);
	entry_of(&p1, "serve")->suppressed = UINT64_MAX;
	assert_int_equal(count_of(high, "program"), 5 + (uint64_t)UINT32_MAX);
	o = trigger_to_json(high);
	assert_int_equal(number(o, "snapshots"), 0);
	json_object_put(o);
}

static void test_programs_come_and_go(void **state)
{
	struct fixture *f = *state;
	const struct trigger_request req = {.uid = 0,
					    .admin = true,
					    .region = "serve",
					    .over_ns = 5 * MS};
	struct trigger *t;
	struct json_object *o;

	programs[1] = NULL;
	unit.programs[1] = NULL;
	t = add(f, &unit, &req);
	assert_int_equal(entries(&p1), 1);
	/* a process that joins the unit, and registers before anybody has noticed that it did */
	programs[1] = &p2;
	triggers_producer_changed(f->triggers, &p2);
	assert_int_equal(entries(&p2), 0);
	unit.programs[1] = &p2;
	triggers_target_changed(f->triggers, &unit);
	triggers_target_changed(f->triggers, &unit);
	assert_int_equal(entries(&p2), 0); /* not in the middle of somebody's work */
	turn(f, 150);
	assert_int_equal(entries(&p2), 1);
	o = trigger_to_json(t);
	assert_int_equal(number(o, "programs"), 2);
	json_object_put(o);
	tell(f, &p2, entry_of(&p2, "serve")->id, 6 * MS);
	assert_int_equal(n_taken, 1);
	assert_int_equal(taken[0].cause.pid, 200);
	assert_true(taken[0].admin);
	/* it ends: what it kept back is counted, the page is left alone from then on */
	entry_of(&p2, "serve")->suppressed = 4;
	p2.state = PRODUCER_ENDED;
	triggers_producer_changed(f->triggers, &p2);
	assert_int_equal(p2.refs, 0);
	assert_int_equal(count_of(t, "program"), 4);
	programs[1] = NULL;
	/* and another one of a member comes */
	p2.state = PRODUCER_LIVE;
	p2.last_id = 0;
	programs[1] = &p2;
	triggers_producer_changed(f->triggers, &p2);
	assert_int_equal(entries(&p2), 1);
	end_snapshots();
}

static void test_page_is_full(void **state)
{
	struct fixture *f = *state;
	struct trigger *t = NULL, *first = NULL;
	struct json_object *o;
	char region[RING_CONTROL_NAME + 2] = "";
	struct trigger_request req = {.uid = 0, .admin = true, .region = region, .over_ns = 1};

	for (unsigned i = 0; i < RING_THRESHOLDS; i++) {
		(void)snprintf(region, sizeof(region), "region %u", i);
		t = add(f, &t1, &req);
		first = first ? first : t;
	}
	assert_int_equal(entries(&p1), RING_THRESHOLDS);
	(void)snprintf(region, sizeof(region), "one more");
	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_BUSY);
	/* nothing of the refused one stays: neither in the other program nor in the list */
	assert_int_equal(try_add(f, &unit, &req, &t), TRIGGER_E_BUSY);
	assert_int_equal(entries(&p2), 0);
	assert_int_equal(quota_used(&f->quota, 0, QUOTA_TRIGGERS), RING_THRESHOLDS);
	/* a name that is there needs no room */
	(void)snprintf(region, sizeof(region), "region 7");
	(void)add(f, &t2, &req);
	/* a program that comes later gets what fits */
	(void)snprintf(region, sizeof(region), "new");
	programs[0] = NULL;
	t = add(f, &t1, &req);
	programs[0] = &p1;
	triggers_producer_changed(f->triggers, &p1);
	assert_null(entry_of(&p1, "new"));
	assert_int_equal(count_of(t, "gone"), 0);
	/* which is said, and made good when another one makes room */
	o = trigger_to_json(t);
	assert_int_equal(number(o, "programs"), 0);
	assert_int_equal(number(o, "programs_left_out"), 1);
	json_object_put(o);
	triggers_remove(f->triggers, first);
	turn_until(f, entry_of(&p1, "new"));
	o = trigger_to_json(t);
	assert_int_equal(number(o, "programs"), 1);
	assert_int_equal(number(o, "programs_left_out"), 0);
	json_object_put(o);
	/* names at their limit */
	memset(region, 'n', RING_CONTROL_NAME);
	region[RING_CONTROL_NAME] = '\0';
	t2.programs[0] = &p2;
	(void)add(f, &t2, &req);
	assert_non_null(entry_of(&p2, region));
	region[RING_CONTROL_NAME] = 'n';
	assert_int_equal(try_add(f, &t2, &req, &t), TRIGGER_E_BAD);
}

/* ---- owners, limits, ends */

static void test_two_owners(void **state)
{
	struct fixture *f = *state;
	const struct trigger_request req = {.uid = 2000, .region = "serve", .over_ns = 2 * MS};
	const struct trigger_request strange = {.uid = 3000,
						.region = "strange",
						.over_ns = 2 * MS};
	struct trigger *mine, *theirs, *nobodys;

	p1.also_open_to = 2000;
	mine = add_serve(f, 5 * MS, 0);
	theirs = add(f, &t2, &req);
	/*
	 * who may not look into a program is told nothing of it, whichever target it is a member of
	 */
	nobodys = add(f, &t2, &strange);
	triggers_producer_changed(f->triggers, &p1);
	assert_null(entry_of(&p1, "strange"));
	triggers_remove(f->triggers, nobodys);
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 2);
	for (int i = 0; i < 2; i++) {
		bool is_mine = taken[i].cause.uid == 1000;

		assert_ptr_equal(taken[i].target, is_mine ? &t1 : &t2);
		assert_int_equal(taken[i].cause.over_ns, is_mine ? 5 * MS : 2 * MS);
	}
	/* each sees its own, in the list, by name and in events */
	assert_int_equal(f->reported.n, 1);
	assert_string_equal(json_get_string(f->reported.last, "trigger"), trigger_name(mine));
	assert_ptr_equal(triggers_find(f->triggers, trigger_name(mine), 1000, false), mine);
	assert_null(triggers_find(f->triggers, trigger_name(theirs), 1000, false));
	assert_ptr_equal(triggers_find(f->triggers, trigger_name(theirs), 5, true), theirs);
	assert_null(triggers_find(f->triggers, "g", 5, true));
	assert_false(trigger_visible(theirs, 1000, false));
	assert_int_equal(triggers_count(f->triggers, &t1, 1000, false), 1);
	assert_int_equal(triggers_count(f->triggers, &t2, 1000, false), 0);
	assert_int_equal(triggers_count(f->triggers, &t2, 0, true), 1);
	assert_ptr_equal(triggers_next(f->triggers, 0), mine);
	assert_ptr_equal(triggers_next(f->triggers, trigger_id(mine)), theirs);
	assert_null(triggers_next(f->triggers, trigger_id(theirs)));
	end_snapshots();
}

static void test_limits_of_users_and_daemon(void **state)
{
	struct fixture *f = *state;
	struct trigger_request req = {.uid = 1000, .region = "serve", .over_ns = 1};
	struct trigger *t = NULL;

	f->quota.limits[QUOTA_TRIGGERS] = 2;
	(void)add(f, &t1, &req);
	t = add(f, &t1, &req);
	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_QUOTA);
	triggers_remove(f->triggers, t);
	(void)add(f, &t1, &req);
	f->config.max_triggers = 2;
	req.uid = 0;
	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_BUSY);
	f->config.max_triggers = 3;
	f->config.trigger_after_ms = 5;
	req.after_ns = 5 * MS + 1;
	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_BAD);
	req.after_ns = 5 * MS;
	(void)add(f, &t1, &req);
}

static void test_after(void **state)
{
	struct fixture *f = *state;
	const struct trigger_request req = {.uid = 1000,
					    .region = "serve",
					    .over_ns = 5 * MS,
					    .after_ns = 20 * MS};
	struct trigger *t = add(f, &t1, &req);
	struct json_object *o;

	serve(f, 6 * MS);
	assert_int_equal(n_taken, 0);
	assert_int_equal(f->reported.n, 0); /* what becomes of it is not known */
	now += 5 * MS;
	serve(f, 7 * MS);
	assert_int_equal(n_taken, 0);
	assert_string_equal(told_why(f), "busy");
	/* a timer of the loop that is early is not enough */
	now += 14 * MS;
	turn(f, 50);
	assert_int_equal(n_taken, 0);
	now += 1 * MS;
	turn(f, 200);
	assert_int_equal(n_taken, 1);
	assert_string_equal(taken[0].cause.reason, "region \"serve\" took 6 ms, over 5 ms");
	/* meant is this moment, whenever it is frozen */
	assert_int_equal(taken[0].asked_raw_ns, taken[0].cause.end_raw_ns + 20 * MS);
	o = trigger_to_json(t);
	assert_int_equal(number(o, "hits"), 2);
	assert_int_equal(number(o, "snapshots"), 1);
	assert_int_equal(suppressed(o, "busy"), 1);
	json_object_put(o);
	end_snapshots();
	/* again, and refused when its time has come */
	now += 1 * S;
	serve(f, 6 * MS);
	create_answer = SNAPSHOT_E_NO_SPACE;
	now += 20 * MS;
	turn(f, 200);
	assert_int_equal(count_of(t, "no_space"), 1);
	create_answer = 0;
	now += 1 * S;
	serve(f, 6 * MS);
	now += 20 * MS;
	turn(f, 200);
	assert_int_equal(n_taken, 2);
	end_snapshots();
}

static void test_target_goes(void **state)
{
	struct fixture *f = *state;
	struct trigger_request req = {.uid = 1000,
				      .region = "waits",
				      .over_ns = 5 * MS,
				      .after_ns = 20 * MS};
	struct trigger *stays;

	(void)add_serve(f, 5 * MS, 0);
	(void)add(f, &t1, &req);
	req.region = "stays";
	stays = add(f, &t2, &req);
	serve(f, 6 * MS);
	tell(f, &p1, entry_of(&p1, "waits")->id, 6 * MS);
	request(f, &p1);
	assert_int_equal(n_taken, 2);
	triggers_target_gone(f->triggers, &t1);
	/* nobody is called back, nothing fires, and the hit that waited is told */
	assert_string_equal(told_why(f), "gone");
	assert_int_equal(total_of(f, NULL, "gone"), 1);
	assert_int_equal(entries(&p1), 1);
	assert_ptr_equal(triggers_next(f->triggers, 0), stays);
	assert_null(triggers_next(f->triggers, trigger_id(stays)));
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_TRIGGERS), 1);
	turn(f, 100);
	assert_int_equal(n_taken, 2);
}

static void test_freed_in_the_middle(void **state)
{
	struct fixture *f = *state;
	const struct trigger_request req = {.uid = 1000,
					    .region = "waits",
					    .over_ns = 5 * MS,
					    .after_ns = 20 * MS};

	(void)add_serve(f, 5 * MS, 0);
	(void)add(f, &t1, &req);
	serve(f, 6 * MS);
	tell(f, &p1, entry_of(&p1, "waits")->id, 6 * MS);
	request(f, &p1);
	triggers_target_changed(f->triggers, &t1);
	/* the rest is teardown's */
}

static void test_thread_target(void **state)
{
	struct fixture *f = *state;
	struct trigger *t;

	t1.scope = TARGET_THREAD;
	t1.tid = 102;
	t = add_serve(f, 5 * MS, 0);
	serve(f, 6 * MS); /* of thread 101 */
	serve(f, 1 * MS);
	assert_int_equal(n_taken, 0);
	assert_int_equal(count_of(t, "below"), 0);
	t1.tid = 101;
	serve(f, 6 * MS);
	assert_int_equal(n_taken, 1);
	end_snapshots();
}

/* ---- what programs ask for */

static void test_request(void **state)
{
	struct fixture *f = *state;

	request(f, &p1);
	assert_int_equal(n_taken, 1);
	assert_ptr_equal(taken[0].target, &t1);
	assert_int_equal(taken[0].cause.kind, CAUSE_PROGRAM);
	assert_int_equal(taken[0].asked_raw_ns, taken[0].cause.end_raw_ns);
	assert_int_equal(taken[0].cause.uid, 1000);
	assert_false(taken[0].admin);
	assert_string_equal(taken[0].cause.reason, "queue is full");
	assert_null(json_get_string(f->reported.last, "trigger"));
	assert_string_equal(json_get_string(f->reported.last, "snapshot"), "snapshot-0");
	/* too early, then while it still runs */
	now += 500 * MS;
	request(f, &p1);
	assert_string_equal(told_why(f), "cooldown");
	now += 600 * MS;
	request(f, &p1);
	assert_string_equal(told_why(f), "busy");
	assert_int_equal(n_taken, 1);
	end_next_turn = true;
	end_snapshots();
	f->config.program_snapshots_per_hour = 3;
	for (int i = 0; i < 5; i++) {
		now += 2 * S;
		request(f, &p1);
	}
	assert_int_equal(n_taken, 3);
	assert_int_equal(total_of(f, "requests", "per_hour"), 3);
	assert_int_equal(total_of(f, NULL, "per_hour"), 0);
	create_answer = SNAPSHOT_E_QUOTA;
	now += 2 * HOUR;
	request(f, &p1);
	assert_int_equal(total_of(f, "requests", "quota"), 1);
}

static void test_request_chooses_a_target(void **state)
{
	struct fixture *f = *state;

	end_next_turn = true;
	/* one that records before one that does not, the own one before another's */
	t1.state = TARGET_EXITED;
	request(f, &p1);
	assert_ptr_equal(taken[0].target, &t2);
	assert_int_equal(taken[0].cause.uid, 1000);
	t2.state = TARGET_SUSPENDED;
	request(f, &p1);
	assert_ptr_equal(taken[1].target, &t1);
	/* a thread's only for that thread */
	t1.scope = TARGET_THREAD;
	t1.tid = 102;
	t1.state = TARGET_ARMED;
	now += 2 * S;
	request(f, &p1);
	assert_ptr_equal(taken[2].target, &t2);
	/* what others armed of more than the program is not the program's */
	t1.programs[0] = t2.programs[0] = NULL;
	request(f, &p1);
	assert_int_equal(n_taken, 3);
	assert_int_equal(total_of(f, "requests", "gone"), 1);
	unit.owner = 1000;
	request(f, &p1);
	assert_ptr_equal(taken[3].target, &unit);
	/* the limit is each target's */
	request(f, &p2);
	assert_int_equal(n_taken, 4);
	assert_int_equal(total_of(f, "requests", "cooldown"), 1);
	/* what somebody armed has stacks, what is there by itself has none */
	t1 = (struct target){
		.id = 1, .name = "t1", .owner = 1000, .implicit = true, .programs = {&p1}};
	t2 = (struct target){.id = 2, .name = "t2", .owner = 0, .programs = {&p1}};
	unit.owner = 0;
	now += 2 * S;
	request(f, &p1);
	assert_ptr_equal(taken[4].target, &t2);
	assert_int_equal(taken[4].cause.uid, 1000);
	assert_false(taken[4].admin);
	t2.state = TARGET_SUSPENDED;
	request(f, &p1);
	assert_ptr_equal(taken[5].target, &t1);
	/* but of what is for administrators it would get none */
	t2.state = TARGET_ARMED;
	t2.admins = true;
	now += 2 * S;
	request(f, &p1);
	assert_ptr_equal(taken[6].target, &t1);
}

/* ---- places in code */

struct settled {
	unsigned calls;
	int answer;
	char why[200];
};

static void on_settled(void *arg, int answer, const char *why)
{
	struct settled *s = arg;

	s->calls++;
	s->answer = answer;
	(void)snprintf(s->why, sizeof(s->why), "%s", why);
}

static void set_state(struct probe *p, enum probe_state state)
{
	p->state = state;
	p->callbacks->changed(p->arg, p);
}

/* A target of two processes, 100 and 200. */
static struct trigger *add_place(struct fixture *f, struct target *target, uint64_t cooldown_ns,
				 struct settled *s)
{
	static const struct trigger_hit place = {
		.name = "serve", .maj = 8, .min = 1, .ino = 77, .offset = 4096, .by = "auto"};
	const struct trigger_request req = {.uid = target->owner,
					    .admin = target->owner == 0,
					    .hit = &place,
					    .cooldown_ns = cooldown_ns};
	struct trigger *t;

	target->processes[0] = (struct target_process){.pid = 100, .start_time = 7};
	target->processes[1] = (struct target_process){.pid = 200, .start_time = 8};
	target->n_processes = 2;
	n_probes = 0;
	t = add(f, target, &req);
	*s = (struct settled){0};
	trigger_when_settled(t, on_settled, s);
	turn_until(f, n_probes == 2);
	return t;
}

static void hit_place(struct probe *p, uint32_t tid, uint64_t n)
{
	p->callbacks->hit(p->arg, p,
			  &(struct probe_hit){.pid = (uint32_t)p->process.pid,
					      .tid = tid,
					      .time_ns = now},
			  n);
}

static bool is_resting(struct trigger *t)
{
	_cleanup_json_ struct json_object *o = trigger_to_json(t);
	bool v = false;

	assert_true(json_get_bool(json_get_object(o, "coverage"), "resting", &v));
	return v;
}

static uint64_t coverage(struct trigger *t, const char *key)
{
	_cleanup_json_ struct json_object *o = trigger_to_json(t);
	uint64_t v = UINT64_MAX;

	assert_true(json_get_uint(json_get_object(o, "coverage"), key, &v));
	return v;
}

static void test_place(void **state)
{
	struct fixture *f = *state;
	struct settled s;
	struct trigger *t = add_place(f, &unit, 0, &s);
	struct probe *a = &fake_probes[0], *b = &fake_probes[1];

	assert_int_equal(a->process.pid + b->process.pid, 300);
	assert_true(a->process.any_user && !a->process.tid);
	set_state(a, PROBE_OPEN);
	turn(f, 20);
	assert_int_equal(s.calls, 0); /* the other one is being opened */
	set_state(b, PROBE_NOT_MAPPED);
	turn_until(f, s.calls == 1);
	assert_int_equal(s.answer, 0);
	assert_int_equal(coverage(t, "processes"), 1);
	assert_int_equal(coverage(t, "without_code"), 1);
	assert_int_equal(coverage(t, "threads"), 3);
	/* As long as a thread is at switching it on nothing is watched. */
	assert_false(is_resting(t));
	switching = true;
	assert_true(is_resting(t));
	switching = false;
	assert_int_equal(coverage(t, "threads_unsure"), 3);
	assert_int_equal(coverage(t, "copies_left_out"), 2);
	/* one of the five hits takes a snapshot, and then nobody watches */
	hit_place(a, 101, 5);
	assert_int_equal(n_taken, 1);
	assert_int_equal(taken[0].cause.kind, CAUSE_HIT);
	assert_int_equal(taken[0].cause.tid, 101);
	assert_int_equal(taken[0].cause.end_raw_ns, now);
	assert_string_equal(taken[0].cause.region, "serve");
	assert_string_equal(taken[0].cause.reason, "hit serve");
	assert_int_equal(total_of(f, NULL, "cooldown"), 4);
	assert_false(a->on);
	/* not before its snapshot is made, and the cooldown is over */
	turn(f, 400);
	assert_false(a->on);
	end_snapshots();
	/* whose end the loop's timer may be before */
	turn(f, 400);
	assert_false(a->on);
	now += S;
	turn_until(f, a->on);
	hit_place(a, 102, 1);
	assert_int_equal(n_taken, 2);
	end_snapshots();
	now += S;
	turn_until(f, a->on);
}

static void map(struct fixture *f, const struct probe *p, uint64_t ino, uint64_t start)
{
	const struct target_mapping mapping = {.pid = p->process.pid,
					       .maj = 8,
					       .min = 1,
					       .ino = ino,
					       .start = start,
					       .end = start + 0x1000};

	triggers_target_mapped(f->triggers, &unit, &mapping);
}

static void test_place_processes(void **state)
{
	struct fixture *f = *state;
	struct settled s;
	struct trigger *t = add_place(f, &unit, 0, &s);
	struct probe *a = &fake_probes[0], *b = &fake_probes[1];

	set_state(a, PROBE_OPEN);
	set_state(b, PROBE_NOT_MAPPED);
	turn_until(f, s.calls == 1);
	/* what has mapped another file is not looked at again */
	map(f, b, 78, PLACE_ADDRESS);
	map(f, a, 77, PLACE_ADDRESS);
	map(f, a, 78, PLACE_ADDRESS + 0x1000);
	turn(f, 300);
	assert_int_equal(n_probes, 2);
	map(f, b, 77, PLACE_ADDRESS);
	turn_until(f, n_probes == 3);
	assert_false(b->open);
	set_state(&fake_probes[2], PROBE_OPEN);
	/* it executes another program */
	set_state(a, PROBE_ENDED);
	turn_until(f, n_probes == 4);
	assert_false(a->open);
	assert_int_equal(fake_probes[3].process.pid, a->process.pid);
	set_state(&fake_probes[3], PROBE_OPEN);
	assert_int_equal(coverage(t, "processes"), 2);
	/* it ends; the other one has it still */
	unit.n_processes = 1;
	triggers_target_changed(f->triggers, &unit);
	turn_until(f, coverage(t, "processes") == 1);
	/* a target that does not record may not be looked into */
	unit.state = TARGET_SUSPENDED;
	triggers_target_changed(f->triggers, &unit);
	turn_until(f, coverage(t, "processes") == 0);
	for (size_t i = 0; i < n_probes; i++)
		assert_false(fake_probes[i].open);
}

/* The kernel tells what is mapped, not what is unmapped. */
static void test_place_is_mapped_anew(void **state)
{
	struct fixture *f = *state;
	struct settled s;

	(void)add_place(f, &unit, 0, &s);
	set_state(&fake_probes[0], PROBE_OPEN);
	set_state(&fake_probes[1], PROBE_OPEN);
	fake_probes[0].used = PROBE_BREAKPOINT;
	fake_probes[1].used = PROBE_UPROBE; /* which is in the file wherever that is mapped */
	turn_until(f, s.calls == 1);
	map(f, &fake_probes[1], 77, PLACE_ADDRESS + 0x10000);
	map(f, &fake_probes[1], 78, PLACE_ADDRESS);
	turn(f, 300);
	assert_int_equal(n_probes, 2);
	/* another file has taken its place */
	map(f, &fake_probes[0], 78, PLACE_ADDRESS);
	turn_until(f, n_probes == 3);
	assert_false(fake_probes[0].open);
	set_state(&fake_probes[2], PROBE_OPEN);
	fake_probes[2].used = PROBE_BREAKPOINT;
	/* it is mapped elsewhere */
	map(f, &fake_probes[2], 77, PLACE_ADDRESS + 0x10000);
	turn_until(f, n_probes == 4);
	assert_false(fake_probes[2].open);
}

/* A uprobe that is off still costs the program something. */
static void test_uprobes_are_closed(void **state)
{
	struct fixture *f = *state;
	struct settled s;
	struct trigger *t = add_place(f, &unit, 0, &s);

	set_state(&fake_probes[0], PROBE_OPEN);
	set_state(&fake_probes[1], PROBE_OPEN);
	fake_probes[0].used = fake_probes[1].used = PROBE_UPROBE;
	/* before anybody was told that it is watched: he is */
	hit_place(&fake_probes[0], 101, 1);
	turn_until(f, s.calls == 1);
	assert_int_equal(s.answer, 0);
	turn_until(f, !fake_probes[0].open && !fake_probes[1].open);
	assert_int_equal(n_probes, 2);
	end_snapshots();
	now += S;
	turn_until(f, n_probes == 4);
	set_state(&fake_probes[2], PROBE_OPEN);
	set_state(&fake_probes[3], PROBE_OPEN);
	assert_int_equal(coverage(t, "processes"), 2);
	assert_true(fake_probes[2].on);
}

/* What cannot be opened now is tried again, without anything else happening. */
static void test_place_is_busy(void **state)
{
	struct fixture *f = *state;
	struct settled s;
	struct trigger *t = add_place(f, &unit, 0, &s);

	set_state(&fake_probes[0], PROBE_OPEN);
	set_state(&fake_probes[1], PROBE_OPEN);
	turn_until(f, s.calls == 1);
	unit.processes[2] = (struct target_process){.pid = 300, .start_time = 9};
	unit.n_processes = 3;
	probes_refused = 3;
	triggers_target_changed(f->triggers, &unit);
	turn_until(f, probes_refused == 2);
	assert_int_equal(coverage(t, "left_out"), 1);
	turn_until(f, n_probes == 3);
	assert_int_equal(fake_probes[2].process.pid, 300);
	assert_int_equal(coverage(t, "left_out"), 0);
	unit.n_processes = 2;
	triggers_target_changed(f->triggers, &unit);
	turn_until(f, !fake_probes[2].open);
}

/* Who waits for the answer is not told that the process has gone. */
static void test_place_is_busy_at_first(void **state)
{
	static const struct trigger_hit place = {
		.name = "serve", .maj = 8, .min = 1, .ino = 77, .offset = 4096, .by = "auto"};
	const struct trigger_request req = {.uid = 1000, .hit = &place};
	struct fixture *f = *state;
	struct settled s = {0};
	struct trigger *t;

	t1.processes[0] = (struct target_process){.pid = 100, .start_time = 7};
	t1.n_processes = 1;
	n_probes = 0;
	probes_refused = 1;
	t = add(f, &t1, &req);
	trigger_when_settled(t, on_settled, &s);
	turn_until(f, s.calls == 1);
	assert_int_equal(s.answer, TRIGGER_E_BUSY);
	assert_int_equal(n_probes, 0);
	assert_null(triggers_next(f->triggers, 0));
}

static void test_place_nowhere(void **state)
{
	struct fixture *f = *state;
	struct settled s;

	(void)add_place(f, &t1, 0, &s);
	assert_false(fake_probes[0].process.any_user);
	assert_int_equal(fake_probes[0].process.uid, 1000);
	set_state(&fake_probes[0], PROBE_NOT_MAPPED);
	set_state(&fake_probes[1], PROBE_FAILED);
	turn_until(f, s.calls == 1);
	assert_int_equal(s.answer, TRIGGER_E_UNSUPPORTED);
	assert_string_equal(s.why, "all are in use");
	assert_null(triggers_next(f->triggers, 0));
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_TRIGGERS), 0);
	(void)add_place(f, &t1, 0, &s);
	triggers_target_gone(f->triggers, &t1);
	assert_int_equal(s.calls, 1);
	assert_int_equal(s.answer, TRIGGER_E_GONE);
	assert_false(fake_probes[0].open || fake_probes[1].open);
	/* the rest is teardown's */
	(void)add_place(f, &t1, 0, &s);
	trigger_when_settled(triggers_next(f->triggers, 0), NULL, NULL);
}

static void test_place_refused(void **state)
{
	struct fixture *f = *state;
	struct trigger_hit place = {.name = "serve", .ino = 77, .by = "magic"};
	struct trigger_request req = {.uid = 1000, .hit = &place};
	struct target host = {.id = 9, .name = "t9", .scope = TARGET_HOST};
	struct trigger *t;

	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_BAD);
	place.by = "auto";
	assert_int_equal(try_add(f, &host, &req, &t), TRIGGER_E_BAD);
	place.name = "";
	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_BAD);
	place.name = "serve";
	req.region = "both";
	assert_int_equal(try_add(f, &t1, &req, &t), TRIGGER_E_BAD);
	assert_null(triggers_next(f->triggers, 0));
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_TRIGGERS), 0);
}

int main(void)
{
#define T(x) cmocka_unit_test_setup_teardown(x, setup, teardown)
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_limit_cooldown),
		cmocka_unit_test(test_limit_per_hour),
		T(test_hit),
		T(test_cooldown_and_busy),
		T(test_time_is_the_regions),
		T(test_per_hour),
		T(test_refused_by_snapshots),
		T(test_below_and_unknown),
		T(test_suppressed_hits_are_told_seldom),
		T(test_administrators_hits_are_theirs),
		T(test_shared_name),
		T(test_kept_back_by_the_program),
		T(test_programs_come_and_go),
		T(test_page_is_full),
		T(test_two_owners),
		T(test_limits_of_users_and_daemon),
		T(test_after),
		T(test_target_goes),
		T(test_freed_in_the_middle),
		T(test_thread_target),
		T(test_request),
		T(test_request_chooses_a_target),
		T(test_place),
		T(test_place_processes),
		T(test_place_is_mapped_anew),
		T(test_uprobes_are_closed),
		T(test_place_is_busy),
		T(test_place_is_busy_at_first),
		T(test_place_nowhere),
		T(test_place_refused),
	};

	log_init("test-trigger", LOG_L_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
