// SPDX-License-Identifier: Apache-2.0
/*
 * The snapshot operation with a recording that is made up and a decoder that behaves as it is told:
 * states, queue, limits, cancel in each state, time-outs, a decoder that fails in every way,
 * restart.
 */
#include "daemon/snapshot/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/control/json.h"
#include "daemon/config.h"
#include "daemon/control/quota.h"
#include "common/base/raw_clock.h"
#include "daemon/target/target.h"
#include "tests/unit/cmocka_names.h"
#include "tests/unit/daemon/snapshot/recording-make.h"

/* ---- the daemon's part */

struct fixture {
	char dir[64];
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct spool *spool;
	struct clockseries *clocks;
	struct copier *copier, *hurry;
	struct snapshots *snapshots;
};

static bool wanted(void *arg)
{
	return false;
}

static void open_all(struct fixture *f)
{
	const struct spool_limits limits = {.max_count = f->config.spool_max_count,
					    .uid_bytes = (uint64_t)f->config.uid_spool_mib << 20,
					    .hold_ns =
						    (uint64_t)f->config.spool_hold_s * 1000000000u};
	struct snapshots_context c;

	f->base = event_base_new();
	quota_init(&f->quota, &f->config);
	f->quota.exempt = (uid_t)-1;
	assert_int_equal(spool_open(f->dir, &limits, &f->quota, &f->spool), 0);
	assert_int_equal(clockseries_new(f->base, wanted, NULL, &f->clocks), 0);
	assert_int_equal(copier_new(f->base, &f->copier), 0);
	assert_int_equal(copier_new(f->base, &f->hurry), 0);
	c = (struct snapshots_context){
		.base = f->base,
		.config = &f->config,
		.quota = &f->quota,
		.spool = f->spool,
		.clocks = f->clocks,
		.copier = f->copier,
		.hurry = f->hurry,
	};
	assert_int_equal(snapshots_new(&c, &f->snapshots), 0);
}

static void close_all(struct fixture *f)
{
	made.hold_copy = false;
	copier_free(f->copier);
	copier_free(f->hurry);
	snapshots_free(f->snapshots);
	spool_close(f->spool);
	clockseries_free(f->clocks);
	quota_fini(&f->quota);
	event_base_free(f->base);
	assert_int_equal(made.frozen_alive, 0);
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	char path[4096];
	ssize_t n;

	(void)strcpy(f->dir, "/tmp/tracerd-snapshot-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	assert_int_equal(config_init(&f->config), 0);
	n = readlink("/proc/self/exe", path, sizeof(path) - 32);
	assert_true(n > 0);
	path[n] = '\0';
	(void)strcpy(strrchr(path, '/'), "/fake-decoder");
	free(f->config.decoder);
	f->config.decoder = strdup(path);
	f->config.spool_keep_free_percent = 0;
	f->config.decoder_timeout_s = 300;
	made.copy_ms = 0;
	made.copy_error = made.freeze_error = 0;
	made.hold_copy = false;
	made.copy_records = 100;
	made.creds_changed = false;
	made.target.gone = false;
	open_all(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	close_all(f);
	assert_int_equal(safefile_remove_tree(tmp, f->dir + strlen("/tmp/")), 0);
	(void)close(tmp);
	config_fini(&f->config);
	free(f);
	return 0;
}

/* ---- helpers */

static void done_count(struct snapshot *n, void *arg)
{
	(*(unsigned *)arg)++;
}

static int create(struct fixture *f, const char *reason, uid_t uid, bool admin, bool objects,
		  struct snapshot **ret)
{
	const struct snapshot_request r = {.uid = uid,
					   .admin = admin,
					   .reason = reason,
					   .with_objects = objects};
	char why[200];

	return snapshots_create(f->snapshots, &made.target, &r, NULL, NULL, ret, why, sizeof(why));
}

/*
 * Runs the loop until the snapshot is in the state, or five minutes have passed: only a hang takes
 * as long.
 */
static void until(struct fixture *f, struct snapshot *n, enum snapshot_state state)
{
	uint64_t end = io_now_ns() + 300000000000ULL;

	while (snapshot_state(n) != state && io_now_ns() < end) {
		const struct timeval t = {.tv_usec = 100000};

		(void)event_base_loopexit(f->base, &t);
		(void)event_base_loop(f->base, EVLOOP_ONCE);
	}
	if (snapshot_state(n) != state)
		print_message("state is %s\n", snapshot_state_to_string(snapshot_state(n)));
	assert_int_equal(snapshot_state(n), state);
}

static void turn(struct fixture *f, unsigned ms)
{
	const struct timeval t = {.tv_usec = (suseconds_t)ms * 1000};

	(void)event_base_loopexit(f->base, &t);
	(void)event_base_loop(f->base, 0);
}

/* What the spool's directory holds: names with and without the mark of a half-made one. */
static void spool_content(struct fixture *f, unsigned *ret_whole, unsigned *ret_half)
{
	char path[128];
	struct dirent *e;
	DIR *d;

	(void)snprintf(path, sizeof(path), "%s/spool", f->dir);
	d = opendir(path);
	assert_non_null(d);
	*ret_whole = *ret_half = 0;
	while ((e = readdir(d)) != NULL) {
		if (spool_id_is_valid(e->d_name))
			(*ret_whole)++;
		else if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			(*ret_half)++;
	}
	(void)closedir(d);
}

static void assert_spool(struct fixture *f, unsigned whole)
{
	unsigned w, h;

	for (int i = 0; i < 500; i++) {
		spool_content(f, &w, &h);
		if (h == 0)
			break;
		turn(f, 20);
	}
	assert_int_equal(h, 0);
	assert_int_equal(w, whole);
}

/* The directory is gone a moment before the copier's step has come back to the loop. */
static void assert_nothing_frozen(struct fixture *f)
{
	for (int i = 0; i < 3000 && made.frozen_alive > 0; i++)
		turn(f, 20);
	assert_int_equal(made.frozen_alive, 0);
}

/* The tree is gone a moment before the loop hears of it. */
static void assert_charged(struct fixture *f, uint64_t bytes)
{
	for (int i = 0; i < 3000 && quota_used(&f->quota, 1000, QUOTA_SPOOL_BYTES) != bytes; i++)
		turn(f, 20);
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_SPOOL_BYTES), bytes);
	assert_int_equal(spool_uid_bytes(f->spool, 1000), bytes);
}

static bool has_file(struct snapshot *n, const char *name)
{
	uint64_t size;
	int fd = -1, r;

	r = snapshot_open_file(n, name, &fd, &size);
	if (fd >= 0)
		(void)close(fd);
	return r == 0;
}

static const char *error_code(struct snapshot *n, struct json_object **ret_hold)
{
	*ret_hold = snapshot_to_json(n, true);
	return json_get_string(json_get_object(*ret_hold, "error"), "code");
}

static void assert_error(struct snapshot *n, const char *code)
{
	struct json_object *hold;
	const char *is = error_code(n, &hold);

	assert_non_null(is);
	assert_string_equal(is, code);
	json_object_put(hold);
}

/* ---- tests */

static void test_success(void **state)
{
	struct fixture *f = *state;
	struct json_object *o, *files = NULL;
	struct snapshot *n, *again;
	unsigned done = 0;
	const struct snapshot_request r = {.uid = 1000, .reason = "ok"};
	char why[200], id[64];

	assert_int_equal(snapshots_create(f->snapshots, &made.target, &r, done_count, &done, &n,
					  why, sizeof(why)),
			 0);
	until(f, n, SNAPSHOT_DONE);
	assert_int_equal(done, 1);
	assert_true(has_file(n, "meta.json"));
	assert_true(has_file(n, "perf.data"));
	assert_true(has_file(n, "trace.pftrace"));
	assert_false(has_file(n, "../../etc/passwd"));
	assert_false(has_file(n, "."));
	assert_int_equal(snapshot_files(n, &files), 0);
	assert_int_equal(json_object_array_length(files), 3);
	json_object_put(files);
	assert_spool(f, 1);
	o = snapshot_to_json(n, true);
	assert_string_equal(json_get_string(o, "state"), "done");
	assert_string_equal(json_get_string(o, "comm"), "evil\\x0a\\x1b[31mname");
	assert_string_equal(json_get_string(json_get_object(o, "summary"), "threads"), "many");
	json_object_put(o);
	/* others see nothing of it */
	assert_int_equal(snapshots_find(f->snapshots, snapshot_id(n), 1001, false, &again),
			 SNAPSHOT_E_GONE);
	assert_int_equal(snapshots_find(f->snapshots, snapshot_id(n), 1000, false, &again), 0);
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_SNAPSHOTS_QUEUED), 0);
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_SNAPSHOTS_RUNNING), 0);
	assert_true(quota_used(&f->quota, 1000, QUOTA_SPOOL_BYTES) > 0);

	/* a restart finds it again */
	(void)strcpy(id, snapshot_id(n));
	close_all(f);
	open_all(f);
	assert_int_equal(snapshots_find(f->snapshots, id, 1000, false, &n), 0);
	assert_int_equal(snapshot_state(n), SNAPSHOT_DONE);
	o = snapshot_to_json(n, true);
	assert_string_equal(json_get_string(o, "comm"), "evil\\x0a\\x1b[31mname");
	assert_int_equal(json_object_array_length(json_get_array(o, "files")), 3);
	json_object_put(o);
	assert_int_equal(snapshot_delete(n), 0);
	assert_int_equal(snapshots_find(f->snapshots, id, 0, true, &n), SNAPSHOT_E_GONE);
	assert_spool(f, 0);
	assert_charged(f, 0);
}

static void test_decoder_fails(void **state)
{
	static const char *const ways[] = {"exit 0", "exit 3",  "crash",       "late crash",
					   "refuse", "garbage", "ask for ever"};
	struct fixture *f = *state;
	struct snapshot *n;

	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		struct json_object *o;

		assert_int_equal(create(f, ways[i], 1000, false, false, &n), 0);
		until(f, n, SNAPSHOT_FAILED);
		assert_error(n, "decode_failed");
		/* the recording is kept, the trace is not there at all */
		assert_true(has_file(n, "perf.data"));
		assert_true(has_file(n, "meta.json"));
		assert_false(has_file(n, "trace.pftrace"));
		o = snapshot_to_json(n, true);
		assert_null(
			strchr(json_get_string(json_get_object(o, "error"), "message"), '\x1b'));
		json_object_put(o);
	}
	assert_spool(f, ARRAY_SIZE(ways));
}

static void test_decoder_hangs(void **state)
{
	static const char *const ways[] = {"hang", "spin", "close and hang"};
	struct fixture *f = *state;
	struct snapshot *n;

	f->config.decoder_timeout_s = 1;
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		assert_int_equal(create(f, ways[i], 1000, false, false, &n), 0);
		until(f, n, SNAPSHOT_FAILED);
		assert_error(n, "decode_failed");
		assert_true(has_file(n, "perf.data"));
	}
}

static void test_decoder_missing(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	close_all(f);
	free(f->config.decoder);
	f->config.decoder = strdup("/nonexistent/decoder");
	open_all(f);
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "decode_failed");
	assert_true(has_file(n, "perf.data"));
}

static void test_decoder_is_confined(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;
	int fd = fcntl(1, F_DUPFD, 40); /* inheritable: it must not be inherited all the same */

	assert_int_equal(fd, 40);
	assert_int_equal(create(f, "confined", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	(void)close(fd);
}

static void test_cancel_in_each_state(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n, *hung;

	/* copying */
	made.copy_ms = 5;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_COPYING);
	assert_int_equal(snapshot_cancel(n), 0);
	assert_int_equal(snapshot_state(n), SNAPSHOT_CANCELLED);
	assert_int_equal(snapshot_cancel(n), SNAPSHOT_E_STATE);
	assert_spool(f, 0);
	/* deleted at once, while the copier has it */
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	assert_int_equal(snapshot_cancel(n), 0);
	assert_int_equal(snapshot_delete(n), 0);
	assert_spool(f, 0);
	made.copy_ms = 0;
	/* decoding, and queued behind it: before and after its copy */
	assert_int_equal(create(f, "hang", 1000, false, false, &hung), 0);
	until(f, hung, SNAPSHOT_DECODING);
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_COPIED);
	assert_int_equal(snapshot_cancel(n), 0);

	assert_int_equal(snapshot_state(n), SNAPSHOT_CANCELLED);
}

static void test_cancel_decoding(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	assert_int_equal(create(f, "hang", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DECODING);
	assert_int_equal(snapshot_cancel(n), 0);
	assert_int_equal(snapshot_state(n), SNAPSHOT_CANCELLED);
	assert_error(n, "cancelled");
	assert_spool(f, 0);
	assert_nothing_frozen(f);
	/* the slot is free again */
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
}

static void test_cancel_publishing(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;
	unsigned whole, half;

	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_PUBLISHING);
	assert_int_equal(snapshot_cancel(n), 0);
	half = 1;
	for (int i = 0; i < 6000 && (half || snapshot_state(n) == SNAPSHOT_PUBLISHING); i++) {
		turn(f, 10);
		spool_content(f, &whole, &half);
	}
	assert_int_equal(half, 0);
	/* whichever came first, state and disk agree */
	assert_int_equal(whole, snapshot_state(n) == SNAPSHOT_DONE ? 1 : 0);
}

static void test_queue(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n[8], *other;

	f->config.snapshots_queued = 3;
	f->quota.limits[QUOTA_SNAPSHOTS_QUEUED] = 2;
	assert_int_equal(create(f, "hang", 1000, false, false, &n[0]), 0);
	until(f, n[0], SNAPSHOT_DECODING);
	assert_int_equal(create(f, "ok", 1000, false, false, &n[1]), 0);
	until(f, n[1], SNAPSHOT_COPIED);
	assert_int_equal(create(f, "ok", 1000, false, false, &n[2]), 0);
	/* its own limit, then that of all */
	assert_int_equal(create(f, "ok", 1000, false, false, &n[3]), SNAPSHOT_E_QUOTA);
	assert_int_equal(create(f, "ok", 0, true, false, &other), 0);
	assert_int_equal(create(f, "ok", 0, true, false, &n[3]), SNAPSHOT_E_BUSY);
	until(f, n[2], SNAPSHOT_COPIED);
	until(f, other, SNAPSHOT_COPIED);
	/* queued, but recorded */
	{
		struct json_object *o = snapshot_to_json(n[2], false);
		uint64_t at;

		assert_true(json_get_uint(o, "frozen_at", &at));
		json_object_put(o);
	}
	assert_int_equal(snapshot_cancel(n[0]), 0);
	until(f, n[1], SNAPSHOT_DONE);
	until(f, n[2], SNAPSHOT_DONE);
	until(f, other, SNAPSHOT_DONE);
	assert_spool(f, 3);
}

static void test_a_refused_request_evicts_nothing(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	close_all(f);
	f->config.spool_max_count = 1;
	open_all(f);
	f->quota.limits[QUOTA_SNAPSHOTS_QUEUED] = 0;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), SNAPSHOT_E_QUOTA);
	assert_spool(f, 1);
	/* refused behind the freeze: that is undone */
	f->quota.limits[QUOTA_SNAPSHOTS_QUEUED] = 1;
	close_all(f);
	f->config.uid_spool_mib = 1;
	open_all(f);
	assert_int_equal(create(f, "ok", 1000, false, false, &n), SNAPSHOT_E_QUOTA);
	assert_int_equal(made.frozen_alive, 0);
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_SNAPSHOTS_QUEUED), 0);
	assert_spool(f, 1);
}

static void test_timeout_in_queue_keeps_the_recording(void **state)
{
	struct fixture *f = *state;
	struct snapshot *hung, *n;

	assert_int_equal(create(f, "hang", 1000, false, false, &hung), 0);
	until(f, hung, SNAPSHOT_DECODING);
	f->config.snapshot_timeout_s = 3;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "decode_failed");
	assert_true(has_file(n, "perf.data"));
	assert_int_equal(snapshot_cancel(hung), 0);
}

static void test_copy_fails(void **state)
{
	struct fixture *f = *state;
	struct json_object *status;
	struct snapshot *n, *first;
	uint64_t lost;

	made.copy_error = -ENOSPC;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "no_space");
	assert_spool(f, 0);
	status = json_object_new_object();
	snapshots_status(f->snapshots, status);
	assert_true(json_get_uint(json_get_object(status, "losses"), "snapshots_no_space", &lost));
	assert_int_equal(lost, 1);
	json_object_put(status);
	made.copy_error = 0;
	made.freeze_error = -ENOMEM;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	made.freeze_error = 0;
	/* the loop hears of the first one's removal later than the disk does */
	for (int i = 0; i < 6000 && made.frozen_alive; i++)
		turn(f, 10);
	/* disarmed while another one is copied, before its own turn: its moment is taken */
	made.copy_ms = 5;
	assert_int_equal(create(f, "ok", 1000, false, false, &first), 0);
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	assert_int_equal(made.frozen_alive, 2);
	made.target.gone = true;
	until(f, n, SNAPSHOT_DONE);
	until(f, first, SNAPSHOT_DONE);
	/* a copy that takes too long */
	made.target.gone = false;
	f->config.snapshot_timeout_s = 1;
	made.copy_ms = 30;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "timeout");
	assert_spool(f, 2);
	assert_nothing_frozen(f);
}

static uint64_t not_set_aside(struct fixture *f)
{
	struct json_object *status = json_object_new_object();
	uint64_t n = 0;

	snapshots_status(f->snapshots, status);
	assert_true(
		json_get_uint(json_get_object(status, "losses"), "snapshots_not_set_aside", &n));
	json_object_put(status);
	return n;
}

static void until_aside(struct fixture *f, unsigned int n)
{
	for (int i = 0; i < 6000 && made.aside_called < n; i++)
		turn(f, 1);
	assert_int_equal(made.aside_called, n);
}

/*
 * Each has its moment when it is asked for, whatever the copier does, and as much memory as there
 * is: one user half of it.
 */
static void test_frozen_at_once(void **state)
{
	struct snapshot *n[3], *others[3], *late;
	struct fixture *f = *state;
	uint64_t before;

	f->config.frozen_mib = 4;
	made.hold_copy = true;
	made.aside_bytes = 1 << 20;
	made.aside_called = made.aside_refused = 0;
	for (unsigned int i = 0; i < ARRAY_SIZE(n); i++) {
		assert_int_equal(create(f, "ok", 1000, false, false, &n[i]), 0);
		assert_int_equal(made.frozen_alive, i + 1);
	}
	until_aside(f, ARRAY_SIZE(n));
	/* beside the copy, which the others wait for */
	assert_int_equal(snapshot_state(n[0]), SNAPSHOT_COPYING);
	assert_int_equal(snapshot_state(n[2]), SNAPSHOT_FREEZING);
	assert_int_equal(made.aside_refused, 1);
	/* the other half is there for others, and no more than that */
	for (unsigned int i = 0; i < ARRAY_SIZE(others); i++)
		assert_int_equal(create(f, "ok", 0, true, false, &others[i]), 0);
	until_aside(f, ARRAY_SIZE(n) + ARRAY_SIZE(others));
	assert_int_equal(made.aside_refused, 2);
	for (int i = 0; i < 6000 && not_set_aside(f) < 2; i++)
		turn(f, 1);
	assert_int_equal(not_set_aside(f), 2);
	assert_int_equal(snapshot_state(n[0]), SNAPSHOT_COPYING);
	/* given up while it waits */
	assert_int_equal(snapshot_cancel(n[1]), 0);
	made.hold_copy = false;
	until(f, n[0], SNAPSHOT_DONE);
	until(f, n[2], SNAPSHOT_DONE);
	for (unsigned int i = 0; i < ARRAY_SIZE(others); i++)
		until(f, others[i], SNAPSHOT_DONE);
	assert_nothing_frozen(f);
	/* and all of the memory is there again */
	before = made.aside_refused;
	for (unsigned int i = 0; i < 2; i++)
		assert_int_equal(create(f, "ok", 1000, false, false, &late), 0);
	until(f, late, SNAPSHOT_DONE);
	assert_int_equal(made.aside_refused, before);
	made.aside_bytes = 0;
}

/*
 * When it was asked for, and how much later the recording ends; what a client says of that is
 * believed if it can be so.
 */
static void test_asked(void **state)
{
	struct fixture *f = *state;
	const uint64_t now = clock_raw_ns();
	const struct {
		uint64_t asked, until;
		bool believed, late, ended;
	} cases[] = {
		{now - 1, now, true, false, false},
		{now - 50000000, now, true, true, false},
		{now - 50000000, now, true, false, true},
		/* of a recording that comes from elsewhere */
		{now - 1, now + 3600000000000u, true, true, false},
		{now - 900000000000u, now, false, false, false},
		{now + 60000000000u, now, false, false, false},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snapshot_request request = {.uid = 1000,
						   .reason = "ok",
						   .asked_raw_ns = cases[i].asked};
		struct json_object *o;
		uint64_t asked, late;
		struct snapshot *n;
		char why[200];

		made.until_ns = cases[i].until;
		made.ended = cases[i].ended;
		assert_int_equal(snapshots_create(f->snapshots, &made.target, &request, NULL, NULL,
						  &n, why, sizeof(why)),
				 0);
		until(f, n, SNAPSHOT_DONE);
		o = snapshot_to_json(n, false);
		assert_true(json_get_uint(o, "asked_raw_ns", &asked) &&
			    json_get_uint(o, "late_ns", &late));
		assert_int_equal(asked == cases[i].asked, cases[i].believed);
		assert_int_equal(late > 0, cases[i].late);
		if (late)
			assert_true(late == cases[i].until - asked);
		json_object_put(o);
	}
	made.until_ns = 0;
	made.ended = false;
}

static void answer(struct frozen *f)
{
	f->waits = false;
	f->ready(f->ready_arg);
}

/* What is awaited keeps nobody else made.waiting, and may be given up. */
static void test_waits_for_a_recording(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n, *other;
	struct frozen *frozen;

	made.must_wait = true;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	frozen = made.waiting;
	until(f, n, SNAPSHOT_FREEZING);
	made.must_wait = false;
	assert_int_equal(create(f, "ok", 1000, false, false, &other), 0);
	until(f, other, SNAPSHOT_DONE);
	assert_int_equal(snapshot_state(n), SNAPSHOT_FREEZING);
	answer(frozen);
	until(f, n, SNAPSHOT_DONE);
	assert_spool(f, 2);
	made.must_wait = true;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	assert_int_equal(snapshot_cancel(n), 0);
	assert_int_equal(snapshot_state(n), SNAPSHOT_CANCELLED);
	f->config.snapshot_timeout_s = 1;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "timeout");
	made.must_wait = false;
	assert_spool(f, 2);
	assert_nothing_frozen(f);
}

/* No recording: the event rings are worth a snapshot, the history alone is not. */
static void test_lacks_a_recording(void **state)
{
	struct fixture *f = *state;
	struct json_object *status;
	struct snapshot *n;
	uint64_t lost;

	made.lack = "gone";
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "gone");
	assert_spool(f, 0);
	made.has_programs = true;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_true(has_file(n, "perf.data"));
	made.lack = NULL;
	made.has_programs = false;
	status = json_object_new_object();
	snapshots_status(f->snapshots, status);
	assert_true(json_get_uint(json_get_object(status, "losses"), "snapshots_without_recording",
				  &lost));
	assert_int_equal(lost, 2);
	json_object_put(status);
	assert_nothing_frozen(f);
}

static void assert_region_cause(struct snapshot *n)
{
	struct json_object *o = snapshot_to_json(n, false), *cause = json_get_object(o, "cause");
	uint64_t v;

	assert_string_equal(json_get_string(cause, "kind"), "region");
	assert_string_equal(json_get_string(cause, "trigger"), "g7");
	assert_string_equal(json_get_string(cause, "region"), "serve");
	assert_string_equal(json_get_string(cause, "reason"),
			    "region \"serve\" took 7.31 ms, over 5 ms");
	assert_true(json_get_uint(cause, "duration_ns", &v) && v == 7312000);
	assert_true(json_get_uint(cause, "begin_raw_ns", &v) && v == 1000000);
	assert_true(json_get_uint(cause, "end_raw_ns", &v) && v == 8312000);
	assert_true(json_get_uint(cause, "pid", &v) && v == 4711);
	assert_true(json_get_uint(cause, "tid", &v) && v == 4712);
	assert_true(json_get_uint(cause, "uid", &v) && v == 1000);
	assert_true(json_get_uint(o, "frozen_raw_ns", &v) && v == 5000);
	json_object_put(o);
}

static void test_region_cause_is_kept(void **state)
{
	struct fixture *f = *state;
	struct cause cause = {.kind = CAUSE_REGION,
			      .uid = 1000,
			      .pid = 4711,
			      .tid = 4712,
			      .trigger = 7,
			      .over_ns = 5000000,
			      .begin_raw_ns = 1000000,
			      .end_raw_ns = 8312000,
			      .region = "serve"};
	const struct snapshot_request r = {.uid = 1000, .cause = &cause};
	struct snapshot *n;
	char why[200], id[64];

	cause_own_reason(&cause);
	assert_int_equal(snapshots_create(f->snapshots, &made.target, &r, NULL, NULL, &n, why,
					  sizeof(why)),
			 0);
	until(f, n, SNAPSHOT_DONE);
	assert_region_cause(n);
	(void)strcpy(id, snapshot_id(n));
	close_all(f);
	open_all(f);
	assert_int_equal(snapshots_find(f->snapshots, id, 1000, false, &n), 0);
	assert_region_cause(n);
}

static void test_words_of_a_cause(void **state)
{
	static const struct {
		uint64_t took, over;
		const char *words;
	} cases[] = {
		{999, 1, "took 999 ns, over 1 ns"},
		{1000, 999, "took 1 us, over 999 ns"},
		{1500000, 1499999, "took 1.5 ms, over 1.49 ms"},
		{10050000, 10000000, "took 10 ms, over 10 ms"},
		{59990000000, 1000000000, "took 59.9 s, over 1 s"},
		{999999999, 123456789, "took 999 ms, over 123 ms"},
		{3600000000000, 100500000, "took 3600 s, over 100 ms"},
		{2010000000, 20, "took 2.01 s, over 20 ns"},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct cause c = {.kind = CAUSE_REGION,
				  .end_raw_ns = cases[i].took,
				  .over_ns = cases[i].over};

		cause_own_reason(&c);
		assert_string_equal(c.reason + strlen("region \"\" "), cases[i].words);
	}
}

static void test_output_is_cut(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	f->config.max_output_mib = 1;
	made.copy_records = 100000; /* 1.6 MB */
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_true(has_file(n, "perf.data"));
}

static void test_credentials_changed(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	made.creds_changed = true;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "not_permitted");
	assert_int_equal(create(f, "ok", 0, true, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_int_equal(snapshots_find(f->snapshots, snapshot_id(n), 1000, false, &n),
			 SNAPSHOT_E_GONE);
}

static void test_with_objects(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	if (access("/usr/bin/env", R_OK) < 0)
		skip();
	assert_int_equal(create(f, "need /usr/bin/env", 1000, false, true, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_true(has_file(n, "images/usr/bin/env"));
	/*
	 * what was found is not copied for that: the decoder must say that it is what it asked for
	 */
	assert_int_equal(create(f, "deny /usr/bin/env", 1000, false, true, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_false(has_file(n, "images/usr/bin/env"));
	assert_int_equal(create(f, "silent /usr/bin/env", 1000, false, true, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_false(has_file(n, "images/usr/bin/env"));
	assert_int_equal(create(f, "need /usr/bin/env", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DONE);
	assert_false(has_file(n, "images/usr/bin/env"));
}

/* Once for each file that was given, and of no other. */
static void test_verdicts(void **state)
{
	static const struct {
		const char *way, *why;
	} ways[] = {
		{"twice /usr/bin/env", "it judged a file that it was not given"},
		{"other /usr/bin/env", "it judged a file that it was not given"},
		{"absent /usr/bin/env", "it judged a file that it was not given"},
		{"repeat /usr/bin/env", "the numbers of its requests do not rise"},
		{"hoard /usr/bin/env", "it did not say what its files are"},
	};
	struct fixture *f = *state;
	struct snapshot *n;

	if (access("/usr/bin/env", R_OK) < 0)
		skip();
	for (size_t i = 0; i < ARRAY_SIZE(ways); i++) {
		struct json_object *o;

		assert_int_equal(create(f, ways[i].way, 1000, false, true, &n), 0);
		until(f, n, SNAPSHOT_FAILED);
		o = snapshot_to_json(n, true);
		assert_non_null(strstr(json_get_string(json_get_object(o, "error"), "message"),
				       ways[i].why));
		json_object_put(o);
		assert_true(has_file(n, "perf.data"));
		assert_false(has_file(n, "trace.pftrace"));
	}
}

static void test_lists(void **state)
{
	struct fixture *f = *state;
	char next[SPOOL_ID_LEN + 1] = "";
	struct json_object *page;
	struct snapshot *n;
	unsigned seen = 0;

	for (int i = 0; i < 5; i++) {
		assert_int_equal(create(f, "ok", i == 4 ? 0 : 1000, i == 4, false, &n), 0);
		until(f, n, SNAPSHOT_DONE);
	}
	do {
		assert_int_equal(snapshots_list(f->snapshots, 1000, false, next, 3, &page, next),
				 0);
		seen += (unsigned)json_object_array_length(page);
		json_object_put(page);
	} while (next[0]);
	assert_int_equal(seen, 4);
	assert_int_equal(snapshots_list(f->snapshots, 0, true, NULL, 100, &page, next), 0);
	assert_int_equal(json_object_array_length(page), 5);
	json_object_put(page);
	assert_int_equal(snapshots_list(f->snapshots, 0, true, "not an id", 1, &page, next),
			 SNAPSHOT_E_STATE);
}

static void test_waiter_gone_and_stop(void **state)
{
	struct fixture *f = *state;
	const struct snapshot_request r = {.uid = 1000, .reason = "hang"};
	struct snapshot *n;
	unsigned done = 0, other = 0;
	char why[200];

	assert_int_equal(snapshots_create(f->snapshots, &made.target, &r, done_count, &done, &n,
					  why, sizeof(why)),
			 0);
	snapshots_forget_waiter(f->snapshots, &done);
	until(f, n, SNAPSHOT_DECODING);
	assert_int_equal(snapshots_create(f->snapshots, &made.target, &r, done_count, &other, &n,
					  why, sizeof(why)),
			 0);
	for (int i = 0; i < 6000 && !snapshots_stop(f->snapshots); i++)
		turn(f, 10);
	assert_true(snapshots_stop(f->snapshots));
	assert_int_equal(done, 0);
	assert_int_equal(other, 1);
	assert_int_equal(snapshots_create(f->snapshots, &made.target, &r, NULL, NULL, &n, why,
					  sizeof(why)),
			 SNAPSHOT_E_BUSY);
	assert_spool(f, 0);
}

/*
 * One turn ends several, and more have ended than are remembered: none is freed under a caller that
 * still has it.
 */
static void test_ends_behind_ends(void **state)
{
	struct fixture *f = *state;
	struct snapshot *copied, *n;
	char queued[2][64];
	unsigned done = 0;

	made.copy_ms = 5;
	assert_int_equal(create(f, "ok", 0, true, false, &copied), 0);
	made.freeze_error = -ENOMEM;
	for (size_t i = 0; i < ARRAY_SIZE(queued); i++) {
		const struct snapshot_request r = {.admin = true, .reason = "ok"};
		char why[200];

		assert_int_equal(snapshots_create(f->snapshots, &made.target, &r, done_count, &done,
						  &n, why, sizeof(why)),
				 0);
		(void)strcpy(queued[i], snapshot_id(n));
	}
	for (int i = 0; i < 103; i++) {
		assert_int_equal(create(f, "ok", 0, true, false, &n), 0);
		assert_int_equal(snapshot_cancel(n), 0);
	}
	until(f, copied, SNAPSHOT_DONE);
	assert_int_equal(done, ARRAY_SIZE(queued));
	/* the oldest are forgotten first */
	for (size_t i = 0; i < ARRAY_SIZE(queued); i++)
		assert_int_equal(snapshots_find(f->snapshots, queued[i], 0, true, &n),
				 SNAPSHOT_E_GONE);
	made.freeze_error = 0;
	assert_spool(f, 1);
	assert_nothing_frozen(f);
}

/* Something else on the copier that takes its time. */
struct slow {
	struct copier_job job;
	_Atomic bool go, done;
};

static void slow_run(struct copier_job *job)
{
	struct slow *s = (struct slow *)job;

	while (!s->go)
		(void)usleep(1000);
}

static void slow_done(struct copier_job *job)
{
	((struct slow *)job)->done = true;
}

/*
 * Its time is over while it waits for its turn to publish: nobody waits for the copier, and nothing
 * of it stays.
 */
static void test_deadline_publishing(void **state)
{
	struct slow slow = {.job = {.run = slow_run, .done = slow_done}};
	struct fixture *f = *state;
	struct snapshot *n;
	char id[64];

	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	(void)strcpy(id, snapshot_id(n));
	until(f, n, SNAPSHOT_DECODING);
	copier_submit(f->copier, &slow.job);
	f->config.snapshot_timeout_s = 1;
	until(f, n, SNAPSHOT_PUBLISHING);
	until(f, n, SNAPSHOT_FAILED);
	assert_error(n, "timeout");
	assert_int_equal(snapshot_delete(n), 0);
	assert_int_equal(snapshots_find(f->snapshots, id, 1000, false, &n), SNAPSHOT_E_GONE);
	slow.go = true;
	for (int i = 0; i < 6000 && !slow.done; i++)
		turn(f, 10);
	assert_true(slow.done);
	assert_nothing_frozen(f);
	assert_spool(f, 0);
	assert_charged(f, 0);
}

/* A delete while a purge runs is purged as well, without another snapshot. */
static void test_deletes_in_a_row(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n[3];

	for (size_t i = 0; i < ARRAY_SIZE(n); i++) {
		assert_int_equal(create(f, "ok", 1000, false, false, &n[i]), 0);
		until(f, n[i], SNAPSHOT_DONE);
	}
	for (size_t i = 0; i < ARRAY_SIZE(n); i++)
		assert_int_equal(snapshot_delete(n[i]), 0);
	assert_true(spool_bytes(f->spool) > 0); /* nothing has gone yet */
	assert_spool(f, 0);
	assert_charged(f, 0);
	assert_int_equal(spool_bytes(f->spool), 0);
}

/*
 * Fetch, delete, repeat: what somebody holds is charged until it is let go, and no more than the
 * share is held.
 */
static void test_held_bytes_are_charged(void **state)
{
	struct fixture *f = *state;
	unsigned held = 0, whole, half;
	struct snapshot *n;
	uint64_t size;
	int fds[8], r = 0;

	close_all(f);
	f->config.uid_spool_mib = 4;
	f->config.max_output_mib = 1; /* an estimate is 1 MiB */
	made.copy_records = 64000;	      /* 1 MiB */
	open_all(f);
	while (held < ARRAY_SIZE(fds)) {
		r = create(f, "ok", 1000, false, false, &n);
		if (r != 0)
			break;
		until(f, n, SNAPSHOT_DONE);
		assert_int_equal(snapshot_open_file(n, "perf.data", &fds[held++], &size), 0);
		assert_int_equal(snapshot_delete(n), 0);
		turn(f, 50);
	}
	assert_int_equal(r, SNAPSHOT_E_QUOTA);
	assert_uint_in_range(held, 3, 4);
	spool_content(f, &whole, &half);
	assert_int_equal(whole, 0);
	assert_int_equal(half, held);
	assert_true(quota_used(&f->quota, 1000, QUOTA_SPOOL_BYTES) > (uint64_t)held * 900000);
	assert_int_equal(quota_used(&f->quota, 1000, QUOTA_SPOOL_BYTES), spool_bytes(f->spool));
	/* still readable, and still charged behind a restart */
	assert_int_equal(pread(fds[0], &size, sizeof(size), 0), sizeof(size));
	close_all(f);
	open_all(f);
	assert_true(quota_used(&f->quota, 1000, QUOTA_SPOOL_BYTES) > (uint64_t)held * 900000);
	assert_int_equal(create(f, "ok", 1000, false, false, &n), SNAPSHOT_E_QUOTA);
	while (held > 1)
		(void)close(fds[--held]);
	for (int i = 0;
	     i < 3000 && (r = create(f, "ok", 1000, false, false, &n)) == SNAPSHOT_E_QUOTA; i++)
		turn(f, 20);
	assert_int_equal(r, 0);
	until(f, n, SNAPSHOT_DONE);
	assert_int_equal(snapshot_delete(n), 0);
	/* who holds on for ever is cut off, and can tell by the size */
	close_all(f);
	f->config.spool_hold_s = 1;
	open_all(f);
	assert_spool(f, 0);
	assert_charged(f, 0);
	assert_int_equal(pread(fds[0], &size, sizeof(size), 0), 0);
	(void)close(fds[0]);
}

static void test_freed_in_the_middle(void **state)
{
	struct fixture *f = *state;
	struct snapshot *n;

	/*
	 * teardown while one decodes and one is being copied: nothing leaks, nothing half-made
	 * stays
	 */
	assert_int_equal(create(f, "hang", 1000, false, false, &n), 0);
	until(f, n, SNAPSHOT_DECODING);
	made.copy_ms = 5;
	assert_int_equal(create(f, "ok", 1000, false, false, &n), 0);
	close_all(f);
	open_all(f);
	assert_spool(f, 0);
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
int main(void)
{
	const struct CMUnitTest tests[] = {
		T(test_success),
		T(test_decoder_fails),
		T(test_decoder_hangs),
		T(test_decoder_missing),
		T(test_decoder_is_confined),
		T(test_cancel_in_each_state),
		T(test_cancel_decoding),
		T(test_cancel_publishing),
		T(test_queue),
		T(test_a_refused_request_evicts_nothing),
		T(test_timeout_in_queue_keeps_the_recording),
		T(test_copy_fails),
		T(test_frozen_at_once),
		T(test_asked),
		T(test_waits_for_a_recording),
		T(test_lacks_a_recording),
		T(test_region_cause_is_kept),
		T(test_words_of_a_cause),
		T(test_output_is_cut),
		T(test_credentials_changed),
		T(test_with_objects),
		T(test_verdicts),
		T(test_lists),
		T(test_waiter_gone_and_stop),
		T(test_ends_behind_ends),
		T(test_deadline_publishing),
		T(test_deletes_in_a_row),
		T(test_held_bytes_are_charged),
		T(test_freed_in_the_middle),
	};

	log_init("test-snapshot", LOG_L_ERROR);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
