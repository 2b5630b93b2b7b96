// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/daemon/snapshot/recording-make.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/json.h"
#include "daemon/backend/capture.h"
#include "daemon/target/target.h"

#define HELD_MS 60000 /* at most */

struct made made = {.target = {.id = 3}, .copy_records = 100};

struct target *targets_find(const struct targets *targets, const char *name, uid_t uid, bool admin,
			    struct target **ret_other)
{
	return made.target.gone ? NULL : &made.target;
}

uint64_t target_id(const struct target *t)
{
	return t->id;
}

const char *target_name(const struct target *t)
{
	return "t3";
}

pid_t target_pid(const struct target *t)
{
	return 4711;
}

const char *target_unit(const struct target *t)
{
	(void)t;
	return "play.service";
}

const char *target_comm(const struct target *t)
{
	return "evil\n\x1b[31mname";
}

struct json_object *target_to_json(struct target *t)
{
	struct json_object *o = json_object_new_object();

	json_add_uint(o, "ring_bytes", 1 << 20);
	return o;
}

int target_freeze(struct target *t, bool admin, struct frozen **ret)
{
	struct frozen *f;

	if (made.freeze_error)
		return made.freeze_error;
	f = calloc(1, sizeof(*f));
	assert_non_null(f);
	made.frozen_alive++;
	f->waits = made.must_wait;
	made.waiting = f;
	*ret = f;
	return 0;
}

int frozen_copy(struct frozen *f, struct perfdata_writer *w, struct frozen_stats *ret)
{
	struct perf_event_attr a = {
		.type = PERF_TYPE_SOFTWARE,
		.size = sizeof(a),
		.config = PERF_COUNT_SW_DUMMY,
		.sample_type = PERF_SAMPLE_IDENTIFIER,
		.sample_id_all = 1,
	};
	struct {
		struct perf_event_header h;
		uint64_t id;
	} r = {.h = {.type = PERF_RECORD_SWITCH, .size = 16}, .id = 1};
	uint64_t id = 1;
	int e;

	if (made.copy_error)
		return made.copy_error;
	for (unsigned i = 0; i < HELD_MS && made.hold_copy; i++)
		(void)usleep(1000);
	e = perfdata_add_event(w, "history", &a, &id, 1);
	for (unsigned i = 0; e == 0 && i < made.copy_records; i++) {
		if (made.copy_ms)
			(void)usleep(made.copy_ms * 1000);
		e = perfdata_write(w, &r, sizeof(r));
	}
	*ret = (struct frozen_stats){.switches = made.copy_records};
	return e;
}

bool frozen_comes_later(const struct frozen *f)
{
	return f->waits;
}

uint64_t frozen_set_aside(struct frozen *f, uint64_t max_bytes, const atomic_bool *cancel,
			  bool *ret_all)
{
	made.aside_called++;
	*ret_all = max_bytes >= made.aside_bytes;
	if (*ret_all)
		return made.aside_bytes;
	made.aside_refused++;
	return 0;
}

int frozen_take(struct frozen *f)
{
	return 0;
}

void frozen_about(const struct frozen *f, struct perfdata_about *about)
{
}

int frozen_copy_producers(struct frozen *f, int dir_fd, uint64_t max, const atomic_bool *cancel,
			  bool *ret_cut)
{
	*ret_cut = false;
	return 0;
}

bool frozen_waits(const struct frozen *f)
{
	return f->waits;
}

void frozen_when_ready(struct frozen *f, void (*fn)(void *arg), void *arg)
{
	f->ready = fn;
	f->ready_arg = arg;
}

int frozen_import(struct frozen *f, int dir_fd, uint64_t max_bytes, const atomic_bool *cancel,
		  uint64_t *ret_bytes)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (!made.brings)
		return made.lack ? CAPTURE_E_NONE : CAPTURE_E_OWN;
	r = safefile_create(dir_fd, BUNDLE_PERFDATA, &fd);
	if (r == 0)
		r = io_write_all(fd, "recorded", 8);
	*ret_bytes = 8;
	return r;
}

const char *frozen_missing(const struct frozen *f, const char **ret_why)
{
	*ret_why = "nobody answers";
	return made.lack;
}

bool frozen_has_producers(const struct frozen *f)
{
	return made.has_programs;
}

void frozen_published(struct frozen *f)
{
}

bool frozen_go_waits(const struct frozen *f)
{
	return false;
}

void frozen_when_go_ready(struct frozen *f, void (*fn)(void *arg), void *arg)
{
}

int frozen_copy_go(struct frozen *f, int dir_fd, const atomic_bool *cancel)
{
	return 0;
}

size_t frozen_go_lost(const struct frozen *f)
{
	return 0;
}

bool frozen_go_is_new(const struct frozen *f)
{
	return false;
}

struct json_object *frozen_go_to_json(const struct frozen *f)
{
	return NULL;
}

void frozen_resume(struct frozen *f)
{
}

struct frozen *frozen_free(struct frozen *f)
{
	if (f)
		made.frozen_alive--;
	free(f);
	return NULL;
}

uid_t frozen_uid(const struct frozen *f)
{
	return 1000;
}

bool frozen_has_kernel_stacks(const struct frozen *frozen)
{
	return false;
}

const struct hashmap *frozen_kernel_addresses(const struct frozen *frozen)
{
	return NULL;
}

int frozen_kallsyms_fd(const struct frozen *frozen)
{
	return -1;
}

int frozen_kcore_fd(const struct frozen *frozen)
{
	return -1;
}

bool frozen_admin_only(const struct frozen *f)
{
	return made.creds_changed;
}

uint64_t frozen_stopped_ns(const struct frozen *f)
{
	return 5100;
}

uint64_t frozen_until_ns(const struct frozen *f)
{
	return made.until_ns;
}

bool frozen_was_armed(const struct frozen *f)
{
	return !made.ended;
}

uint64_t frozen_raw_ns(const struct frozen *f)
{
	return 5000;
}

uint64_t frozen_unix_ns(const struct frozen *f)
{
	return 1700000000000000000ULL;
}

struct json_object *frozen_meta(const struct frozen *f, const struct frozen_stats *stats)
{
	struct json_object *o = json_object_new_object();

	(void)json_add_new_object(o, "target");
	(void)json_add_new_object(o, "losses");
	json_add_uint(o, "format", 999); /* must not win over ours */
	return o;
}

int frozen_image_fd(const struct frozen *f, uint32_t maj, uint32_t min, uint64_t ino,
		    const struct filenote **ret_note)
{
	return -1;
}

/* Opened here, as this process's user, and answered at once. */
int frozen_open(struct frozen *f, const struct file_request *request, uint64_t max_copy,
		opening_fn fn, void *arg, struct opening **ret)
{
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	const struct opener_options options = {.bundle_fd = -1,
					       .images_fd = -1,
					       .symfs_fd = -1,
					       .root_fd = root,
					       .root_source = OPENER_TARGET,
					       .mapped_fd = -1,
					       .strict = true,
					       .uid = getuid()};
	struct opener_reply answer = {0};
	struct opener *o;

	assert_int_equal(opener_new(&options, &o), 0);
	assert_int_equal(opener_open(o, request, &answer.answer), 0);
	opener_free(o);
	fn(arg, &answer, answer.answer.fd);
	return 0;
}

int frozen_vdso_fd(const struct frozen *f)
{
	return -1;
}
