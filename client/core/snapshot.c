// SPDX-License-Identifier: Apache-2.0
/*
 * Snapshots from the client's side. The daemon's events drive the progress line; an event may be
 * missed, so the state is asked for now and then.
 */
#include "client/core/snapshot.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "client/ui/interrupt.h"
#include "client/ui/output.h"
#include "client/ui/progress.h"
#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "common/bundle/bundle.h"
#include "common/control/protocol.h"

#define REFRESH_MS 5000
#define CANCEL_MS 10000
#define MAX_FILE (64ULL << 30)

static bool state_is_end(const char *state)
{
	return state &&
	       (!strcmp(state, "done") || !strcmp(state, "failed") || !strcmp(state, "cancelled"));
}

uint64_t snapshot_moment(void)
{
	return clock_raw_ns();
}

int snapshot_subscribe(struct ctl *ctl)
{
	struct json_object *params = json_object_new_object(),
			   *events = json_add_new_array(params, "events");

	json_append_string(events, "snapshot.state");
	json_append_string(events, "snapshot.progress");
	return ctl_request(ctl, "subscribe", params, NULL);
}

static struct json_object *snapshot_params(const char *id)
{
	struct json_object *params = json_object_new_object();

	json_add_string(params, "snapshot", id);
	return params;
}

static int snapshot_get(struct ctl *ctl, const char *id, struct json_object **ret_snapshot)
{
	_cleanup_json_ struct json_object *result = NULL;
	int r = ctl_call(
		ctl, "snapshot.show", snapshot_params(id), NULL, 0, CTL_TIMEOUT_MS, &result, NULL);

	if (r == TRACERD_E_NOT_FOUND || r == TRACERD_E_GONE)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found", "no such snapshot: %s", id);
	if (r != 0)
		return ctl_report(ctl, r, id);
	if (!field(result, "snapshot"))
		return ctl_report(ctl, -EPROTO, id);
	*ret_snapshot = json_object_get(field(result, "snapshot"));
	return EXIT_OK;
}

/*
 * Takes in the events that are there. Returns 1 if one says that the snapshot has ended or that
 * some were missed, 0 if not, or what tracerd_next_event() returned.
 */
static int take_events(struct ctl *ctl, const char *id, struct progress *progress)
{
	bool look = false;

	for (;;) {
		_cleanup_json_ struct json_object *data = NULL;
		const char *of, *state, *name;
		tracerd_event *event = NULL;
		int r = tracerd_next_event(ctl->client, 0, &event);

		if (r == -EAGAIN)
			return look;
		if (r < 0)
			return r;
		data = ctl_event_data(event);
		name = tracerd_event_name(event);
		look = look || tracerd_event_missed(event) > 0;
		of = field_text(data, "snapshot");
		state = field_text(data, "state");
		if (!of)
			of = field_text(data, "id");
		if (of && !strcmp(of, id) && !strcmp(name, "snapshot.progress")) {
			struct json_object *p = field(data, "progress");

			progress_show(progress, "snapshot", field_text(p, "stage"),
				field_number(p, "done"), field_number(p, "total"));
		} else if (of && !strcmp(of, id) && state) {
			progress_show(progress, "snapshot", state, 0, 0);
			look = look || state_is_end(state);
		}
		tracerd_event_free(event);
	}
}

int snapshot_follow(struct ctl *ctl, const char *id, uint64_t timeout_ns, int interrupt_fd,
	struct json_object **ret_snapshot)
{
	uint64_t deadline = io_now_ns() + timeout_ns;
	struct progress progress;
	bool cancelled = false;
	int r;

	progress_init(&progress);
	for (;;) {
		_cleanup_json_ struct json_object *snapshot = NULL;

		r = snapshot_get(ctl, id, &snapshot);
		if (r != EXIT_OK)
			break;
		if (state_is_end(field_text(snapshot, "state"))) {
			*ret_snapshot = take_ptr(snapshot);
			break;
		}
		do {
			r = take_events(ctl, id, &progress);
			if (r != 0 || io_now_ns() >= deadline ||
				(!cancelled && interrupt_pending(interrupt_fd)))
				break;
			/* once cancelled the signal would not let it wait any more */
			r = interrupt_wait(tracerd_get_fd(ctl->client),
				cancelled ? -1 : interrupt_fd, REFRESH_MS);
		} while (r > 0);
		if (r < 0) {
			progress_end(&progress);
			return ctl_report(ctl, r, id);
		}
		if (!cancelled && interrupt_pending(interrupt_fd)) {
			cancelled = true;
			deadline = io_now_ns() + CANCEL_MS * 1000000ULL;
			r = ctl_call(ctl, "snapshot.cancel", snapshot_params(id), NULL, 0,
				CTL_TIMEOUT_MS, NULL, NULL);
			if (r < 0) {
				progress_end(&progress);
				return ctl_report(ctl, r, id);
			}
			/* a refusal means that it has ended by itself; the next look finds that */
		} else if (io_now_ns() >= deadline) {
			r = ctl_fail(ctl, EXIT_TIMED_OUT, "timeout",
				"snapshot %s has not ended yet: 'tracectl show %s' shows its "
				"progress",
				id, id);
			break;
		}
	}
	progress_end(&progress);
	return r;
}

/* One call of fetch: descriptors for up to PROTOCOL_FETCH_MAX names, in order. */
static int fetch_fds(struct ctl *ctl, const char *id, const char *const *names, size_t n,
	struct json_object **ret_result, tracerd_reply **ret_reply)
{
	struct json_object *params = snapshot_params(id),
			   *list = json_add_new_array(params, "names");
	int r;

	for (size_t i = 0; i < n; i++)
		json_append_string(list, names[i]);
	r = ctl_call(ctl, "snapshot.fetch", params, NULL, 0, CTL_TIMEOUT_MS, ret_result, ret_reply);
	if (r == TRACERD_E_NOT_FOUND || r == TRACERD_E_GONE)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found", "%s: %s", id,
			tracerd_error_message(ctl->client));
	if (r != 0)
		return ctl_report(ctl, r, id);
	if (tracerd_reply_fd_count(*ret_reply) != n) {
		tracerd_reply_free(take_ptr(*ret_reply));
		return ctl_report(ctl, -EPROTO, id);
	}
	return EXIT_OK;
}

/* -ESTALE: less than the daemon promised; it cuts what is removed while somebody reads it. */
static int copy_whole(int from, int to, struct json_object *result, size_t i, uint64_t *ret_copied)
{
	int r = safefile_copy(from, to, MAX_FILE, ret_copied);

	if (r == 0 && *ret_copied != field_number(field_at(result, "files", i), "size"))
		r = -ESTALE;
	return r;
}

static const char *copy_error(int r)
{
	return r == -ESTALE ? "the snapshot was removed meanwhile" : strerror(-r);
}

int snapshot_fetch_file(struct ctl *ctl, const char *id, const char *name, const char *path,
	int interrupt_fd, uint64_t *ret_bytes)
{
	_cleanup_(output_file_fini) struct output_file out = OUTPUT_FILE_INIT;
	_cleanup_json_ struct json_object *result = NULL;
	_cleanup_close_ int fd = -1;
	tracerd_reply *reply = NULL;
	uint64_t bytes = 0;
	int r;

	r = fetch_fds(ctl, id, &name, 1, &result, &reply);
	if (r != EXIT_OK)
		return r;
	fd = tracerd_reply_take_fd(reply, 0);
	tracerd_reply_free(reply);
	r = output_file_begin(path, &out);
	if (r == 0)
		r = copy_whole(fd, out.fd, result, 0, &bytes);
	if (r == 0 && interrupt_pending(interrupt_fd))
		return ctl_fail(ctl, EXIT_CANCELLED, "cancelled",
			"interrupted; %s stays in the daemon's spool", id);
	if (r == 0)
		r = output_file_commit(&out);
	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r),
			"cannot write %s: %s", path, copy_error(r));
	*ret_bytes = bytes;
	return EXIT_OK;
}

/* Each name is checked, since it becomes a path. */
int snapshot_files(struct ctl *ctl, const char *id, struct json_object **ret_files)
{
	_cleanup_json_ struct json_object *result = NULL;
	int r = ctl_call(
		ctl, "snapshot.fetch", snapshot_params(id), NULL, 0, CTL_TIMEOUT_MS, &result, NULL);

	if (r == TRACERD_E_NOT_FOUND || r == TRACERD_E_GONE)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "not_found", "no such snapshot: %s", id);
	if (r != 0)
		return ctl_report(ctl, r, id);
	for (size_t i = 0; i < field_count(result, "files"); i++) {
		const char *name = field_text(field_at(result, "files", i), "name");

		if (!name || !bundle_name_is_valid(name))
			return ctl_fail(ctl, EXIT_FAILED, "protocol",
				"%s: tracerd names a file '%s'", id, name ? name : "");
	}
	*ret_files = take_ptr(result);
	return EXIT_OK;
}

/* Copies one batch of files into the directory. Returns 0 or -errno, with *ret_failed the name. */
static int copy_batch(tracerd_reply *reply, struct json_object *result, const char *const *names,
		      size_t n, int dir_fd, uint64_t *bytes, const char **ret_failed)
{
	for (size_t i = 0; i < n; i++) {
		_cleanup_close_ int in = tracerd_reply_take_fd(reply, i), out = -1;
		uint64_t copied = 0;
		int r = safefile_create(dir_fd, names[i], &out);

		if (r == 0)
			r = copy_whole(in, out, result, i, &copied);
		if (r < 0) {
			*ret_failed = names[i];
			return r;
		}
		*bytes += copied;
	}
	return 0;
}

int snapshot_fetch_dir(
	struct ctl *ctl, const char *id, const char *path, int interrupt_fd, uint64_t *ret_bytes)
{
	_cleanup_(safedir_abort) struct safedir dir = SAFEDIR_INIT;
	_cleanup_json_ struct json_object *files = NULL;
	const char *failed = NULL;
	struct progress progress;
	uint64_t bytes = 0;
	size_t n, count;
	int r;

	r = snapshot_files(ctl, id, &files);
	if (r != EXIT_OK)
		return r;
	r = output_dir_begin(path, &dir);
	if (r == -ENOTEMPTY)
		return ctl_fail(ctl, EXIT_FAILED, "exists",
			"%s is not empty: name a directory that is not there yet", path);
	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r),
			"cannot write %s: %s", path, strerror(-r));
	progress_init(&progress);
	count = field_count(files, "files");
	for (size_t i = 0; i < count; i += n) {
		_cleanup_json_ struct json_object *result = NULL;
		const char *names[PROTOCOL_FETCH_MAX] = {NULL};
		tracerd_reply *reply = NULL;

		for (n = 0; n < PROTOCOL_FETCH_MAX && i + n < count; n++)
			names[n] = field_text(field_at(files, "files", i + n), "name");
		progress_show(&progress, "fetching", names[0], i, count);
		r = fetch_fds(ctl, id, names, n, &result, &reply);
		if (r != EXIT_OK) {
			progress_end(&progress);
			return r;
		}
		r = copy_batch(reply, result, names, n, dir.dir_fd, &bytes, &failed);
		tracerd_reply_free(reply);
		if (r == 0 && interrupt_pending(interrupt_fd)) {
			progress_end(&progress);
			return ctl_fail(ctl, EXIT_CANCELLED, "cancelled",
				"interrupted; %s stays in the daemon's spool", id);
		}
		if (r < 0)
			break;
	}
	progress_end(&progress);
	if (r == 0)
		r = safedir_publish(&dir);
	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r),
			"cannot write %s%s%s: %s", path, failed ? "/" : "", failed ? failed : "",
			copy_error(r));
	*ret_bytes = bytes;
	return EXIT_OK;
}

int snapshot_each(
	struct ctl *ctl, const char *method, const char *done, const char *const *ids, size_t n)
{
	_cleanup_json_ struct json_object *all = json_object_new_object();
	struct json_object *snapshots = json_add_new_array(all, "snapshots");
	int code = EXIT_OK, r;

	r = ctl_connect(ctl);
	if (r != EXIT_OK)
		return r;
	for (size_t i = 0; i < n; i++) {
		_cleanup_json_ struct json_object *result = NULL;
		struct json_object *params = json_object_new_object();
		_cleanup_free_ char *name = human_name(ids[i]);

		json_add_string(params, "snapshot", ids[i]);
		r = ctl_call(ctl, method, params, NULL, 0, CTL_TIMEOUT_MS, &result, NULL);
		if (r == TRACERD_E_NOT_FOUND || r == TRACERD_E_GONE)
			r = ctl_fail(
				ctl, EXIT_NOT_FOUND, "not_found", "no such snapshot: %s", ids[i]);
		else if (r != 0)
			r = ctl_report(ctl, r, ids[i]);
		else if (!ctl->json)
			(void)printf("%s %s\n", done, name);
		code = code == EXIT_OK ? r : code;
		if (result)
			json_append(snapshots, json_object_get(field(result, "snapshot")));
	}
	if (ctl->json && json_object_array_length(snapshots))
		ctl_print_json(all);
	return code;
}
