// SPDX-License-Identifier: Apache-2.0
/*
 * The offline decoder's loop. The input is trusted no more than in the daemon: the same program
 * parses it, in the same sandbox, and opens nothing by itself.
 */
#include "client/core/offline.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "client/core/ptblob.h"
#include "client/ui/human.h"
#include "client/ui/interrupt.h"
#include "client/ui/progress.h"
#include "common/base/io.h"
#include "common/bundle/bundle.h"
#include "common/decoder/decoder.h"
#include "common/decoder/dying.h"
#include "common/decoder/opener.h"

#define DYING_MS 500

struct job {
	struct ctl *ctl;
	const struct offline_request *request;
	struct bundle bundle;
	int perfdata_fd, go_fd, symfs_fd; /* -1: none */
	struct opener *opener;
	struct progress progress;
	struct json_object *result;
	int code;
	bool ended, timed_out;
};

static void job_fini(struct job *j)
{
	opener_free(j->opener);
	(void)close_fd(j->perfdata_fd);
	(void)close_fd(j->go_fd);
	(void)close_fd(j->symfs_fd);
	bundle_close(&j->bundle);
	json_object_put(j->result);
}

static int input_failed(struct job *j, int error)
{
	const char *path = j->request->input;

	if (error == -ENOENT && j->bundle.dir_fd < 0)
		return ctl_fail(
			j->ctl, EXIT_NOT_FOUND, "not_found", "no such file or directory: %s", path);
	if (error == -ENOENT)
		return ctl_fail(j->ctl, EXIT_FAILED, "bad_input",
			"%s is not a bundle: there is nothing to decode in it", path);
	if (error == -EPROTO)
		return ctl_fail(j->ctl, EXIT_FAILED, "bad_input", "%s: its %s is not valid", path,
			BUNDLE_META);
	return ctl_fail(j->ctl, exit_code_from(error), tracerd_error_name(error),
		"cannot read %s: %s", path, strerror(-error));
}

/* By its first bytes, whichever version. */
static bool is_go_trace(int fd)
{
	static const char begin[] = "go 1.";
	char head[sizeof(begin) - 1];

	return pread(fd, head, sizeof(head), 0) == (ssize_t)sizeof(head) &&
	       memcmp(head, begin, sizeof(head)) == 0;
}

/* Opens the input, whichever it is. An exit code. */
static int input_open(struct job *j)
{
	_cleanup_close_ int fd =
		open(j->request->input, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct stat st;
	int r;

	if (fd < 0 || fstat(fd, &st) < 0)
		return input_failed(j, -errno);
	if (j->request->pt_info)
		return ptblob_open(j->ctl, j->request->input, fd, j->request->pt_info,
				   &j->perfdata_fd);
	if (S_ISREG(st.st_mode)) {
		*(is_go_trace(fd) ? &j->go_fd : &j->perfdata_fd) = take_fd(&fd);
		return EXIT_OK;
	}
	if (!S_ISDIR(st.st_mode))
		return ctl_fail(j->ctl, EXIT_FAILED, "bad_input",
			"%s is neither a file nor a bundle's directory", j->request->input);
	r = bundle_open(fd, &j->bundle);
	if (r == -ENOENT) {
		j->bundle.dir_fd = take_fd(&fd);
		return input_failed(j, r);
	}
	return r < 0 ? input_failed(j, r) : EXIT_OK;
}

static int opener_prepare(struct job *j)
{
	struct opener_options options = {
		.bundle_fd = j->bundle.dir_fd,
		.images_fd = j->bundle.images_fd,
		.symfs_fd = -1,
		.root_fd = -1,
		.root_source = OPENER_HOST,
		.mapped_fd = -1,
		.uid = geteuid(),
	};
	_cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r;

	if (root < 0)
		return ctl_report(j->ctl, -errno, NULL);
	options.root_fd = root;
	if (j->request->symfs) {
		j->symfs_fd = open(j->request->symfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		if (j->symfs_fd < 0)
			return ctl_fail(j->ctl, EXIT_NOT_FOUND, "not_found", "cannot open %s: %s",
				j->request->symfs, strerror(errno));
		options.symfs_fd = j->symfs_fd;
	}
	r = opener_new(&options, &j->opener);
	return r < 0 ? ctl_report(j->ctl, r, NULL) : EXIT_OK;
}

static void on_request(struct decoder *d, const struct file_request *request, void *arg)
{
	struct job *j = arg;
	struct opener_answer answer = {.fd = -1};
	struct file_answer file = {.req = request->req};

	if (opener_open(j->opener, request, &answer) < 0)
		answer.fd = close_fd(answer.fd);
	file.found = answer.fd >= 0;
	file.changed = answer.changed;
	file.dated = answer.source == OPENER_HOST;
	memcpy(file.why, answer.why, sizeof(file.why));
	/* if the decoder is gone, on_end reports it */
	(void)decoder_answer(d, &file, answer.fd);
}

static void on_progress(struct decoder *d, const struct decoder_progress *progress, void *arg)
{
	struct job *j = arg;

	progress_show(&j->progress, "decoding", progress->stage, progress->done, progress->total);
}

static int refused(struct job *j, const struct decoder_outcome *outcome)
{
	const int error = outcome->result->output_errno;

	if (error == EPIPE) /* "| head" */
		return EXIT_FAILED;
	if (error)
		return ctl_fail(j->ctl, exit_code_from(-error), tracerd_error_name(-error),
				"cannot write %s: %s", j->request->output, strerror(error));
	return ctl_fail(j->ctl, EXIT_NOT_DECODED, "decode_failed", "cannot decode %s: %s",
			j->request->input, outcome->message);
}

static void on_end(struct decoder *d, const struct decoder_outcome *outcome, void *arg)
{
	struct job *j = arg;

	progress_end(&j->progress);
	j->ended = true;
	switch (outcome->end) {
	case DECODER_DONE:
		j->code = EXIT_OK;
		j->result = json_object_new_object();
		json_add_shared(j->result, "stats", outcome->result->stats);
		json_add_shared(j->result, "losses", outcome->result->losses);
		json_add_shared(j->result, "summary", outcome->result->summary);
		json_add_uint(j->result, "max_rss_bytes", outcome->max_rss_bytes);
		return;
	case DECODER_REFUSED:
		j->code = refused(j, outcome);
		return;
	case DECODER_KILLED:
		if (j->timed_out)
			j->code = ctl_fail(j->ctl, EXIT_TIMED_OUT, "timeout",
				"decoding %s takes too long; --timeout allows more",
				j->request->input);
		else
			j->code = ctl_fail(j->ctl, EXIT_CANCELLED, "cancelled", "interrupted");
		return;
	case DECODER_CRASHED:
		break;
	}
	j->code = ctl_fail(j->ctl, EXIT_NOT_DECODED, "decode_failed",
		"cannot decode %s: the decoder failed: %s%s%s", j->request->input, outcome->message,
		*outcome->stderr_text ? ": " : "", outcome->stderr_text);
}

/* Waits for the decoder's end; the interrupt and the time limit make it come. */
static void loop(struct job *j, struct decoder *d)
{
	uint64_t deadline = io_now_ns() + j->request->timeout_ns;
	bool killed = false;

	while (!j->ended) {
		struct pollfd p[DECODER_N_FDS + 1];
		uint64_t now = io_now_ns();

		decoder_poll(d, p);
		p[DECODER_N_FDS] = (struct pollfd){
			.fd = killed ? -1 : j->request->interrupt_fd, .events = POLLIN};
		if (poll(p, DECODER_N_FDS + 1,
			    now < deadline && deadline - now < 60000000000ULL
				    ? (int)((deadline - now) / 1000000) + 1
				    : 60000) < 0 &&
			errno != EINTR)
			killed = true;
		if (decoder_dispatch(d))
			break;
		if (!killed &&
			(interrupt_pending(j->request->interrupt_fd) || io_now_ns() >= deadline)) {
			j->timed_out = !interrupt_pending(j->request->interrupt_fd);
			decoder_kill(d);
			killed = true;
			deadline = UINT64_MAX;
		}
	}
}

int offline_decode(
	struct ctl *ctl, const struct offline_request *request, struct json_object **ret_result)
{
	static const struct decoder_callbacks callbacks = {
		.on_request = on_request, .on_progress = on_progress, .on_end = on_end};
	_cleanup_(job_fini) struct job j = {
		.ctl = ctl,
		.request = request,
		.bundle = BUNDLE_INIT,
		.perfdata_fd = -1,
		.go_fd = -1,
		.symfs_fd = -1,
		.code = EXIT_FAILED,
	};
	_cleanup_json_ struct json_object *body = NULL, *options = request->options;
	struct decoder_options how = {.drop_privilege = true};
	struct decoder *d = NULL;
	int fds[BUNDLE_MAX_JOB_FDS], r;
	char path[4096];
	size_t n = 0;

	r = decoder_find(secure_getenv("TRACERD_DECODE"), path, sizeof(path));
	if (r < 0)
		return ctl_fail(ctl, EXIT_FAILED, "no_decoder",
			"tracerd-decode is not installed: %s", strerror(-r));
	r = input_open(&j);
	if (r == EXIT_OK)
		r = opener_prepare(&j);
	if (r != EXIT_OK)
		return r;
	if (j.go_fd >= 0)
		r = bundle_job_go(j.go_fd, request->format, request->out_fd, take_ptr(options),
				  &body, fds, &n);
	else if (j.perfdata_fd >= 0)
		r = bundle_job_perfdata(j.perfdata_fd, request->format, request->out_fd,
			take_ptr(options), &body, fds, &n);
	else
		r = bundle_job(&j.bundle, request->format, request->out_fd, take_ptr(options),
			&body, fds, &n);
	if (r < 0)
		return ctl_report(ctl, r, request->input);
	if (request->scratch_fd >= 0)
		bundle_job_scratch(body, request->scratch_fd, fds, &n);
	how.path = path;
	progress_init(&j.progress);
	r = decoder_start(&how, body, fds, n, &callbacks, &j, &d);
	if (r < 0)
		return ctl_fail(ctl, EXIT_FAILED, tracerd_error_name(r), "cannot start %s: %s",
			path, strerror(-r));
	loop(&j, d);
	decoder_free(d);
	/* a decoder that has not died by now ends with this process */
	decoder_dying_wait(DYING_MS);
	if (j.code == EXIT_OK)
		*ret_result = take_ptr(j.result);
	return j.code;
}
