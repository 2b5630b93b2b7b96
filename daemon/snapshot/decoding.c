// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/decoding.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "common/control/json.h"
#include "common/decoder/opener.h"
#include "daemon/backend/capture.h"
#include "daemon/config.h"
#include "daemon/snapshot/build_ids.h"
#include "daemon/snapshot/objects.h"
#include "daemon/target/opening.h"

/* Questions that are not answered yet. A decoder asks one or a few at a time. */
#define MAX_LOOKUPS 64
/* Bytes in memory, of one decoding, of files that had to be copied; see open/filesystem.h. */
#define MAX_COPIED (256ULL << 20)
#define TRACE_TMP SAFEFILE_TMP_PREFIX BUNDLE_TRACE
#define MIB (1024ULL * 1024)

/*
 * One question by path: first the bundle is looked into, on the copier thread, then the target's
 * world, by an opener. Lives until the copier is done with it, longer than its decoding where that
 * is given up.
 */
struct lookup {
	struct copier_job job;
	struct decoding *decoding; /* NULL: nobody waits for the answer */
	LIST_ENTRY(lookup) entry;
	struct opener *opener; /* of the bundle */
	struct opening *opening;
	struct file_request request;
	struct opener_answer answer;
	bool copied; /* what was found is a copy in memory */
};

struct decoding {
	struct decoding_request request;
	struct decoding_callbacks callbacks;
	void *arg;
	struct decoder *decoder;
	struct event *events[DECODER_N_FDS]; /* as decoder_poll() orders them */
	short armed[DECODER_N_FDS];
	struct event *timeout;
	int dir_fd;
	bool timed_out;
	LIST_HEAD(, lookup) lookups;
	unsigned n_lookups;
	uint64_t copied; /* bytes in memory of files that had to be copied */
};
DEFINE_CLEANUP(struct decoding *, decoding_free)

static void lookup_free(struct lookup *l)
{
	if (l->decoding) {
		LIST_REMOVE(l, entry);
		l->decoding->n_lookups--;
	}
	l->opening = opening_cancel(l->opening);
	opener_free(l->opener);
	close_fdp(&l->answer.fd);
	free(l);
}

/* ---- events */

static void on_event(evutil_socket_t fd, short what, void *arg);

/*
 * Follows what the decoder wants to be woken for; an fd that it is done with is no longer watched.
 * Where it fails later than at the start, the decoder is killed: its pidfd has been watched since
 * then.
 */
static int watch(struct decoding *d)
{
	struct pollfd p[DECODER_N_FDS];

	decoder_poll(d->decoder, p);
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		short want = 0;

		if (p[i].fd >= 0)
			want = (short)(EV_READ | (p[i].events & POLLOUT ? EV_WRITE : 0));
		if (want == d->armed[i])
			continue;
		if (d->events[i])
			(void)event_del(d->events[i]);
		d->armed[i] = 0;
		if (!want)
			continue;
		if (!d->events[i]) {
			d->events[i] =
				event_new(d->request.base, p[i].fd, want | EV_PERSIST, on_event, d);
			if (!d->events[i])
				return -ENOMEM;
		} else if (event_assign(d->events[i], d->request.base, p[i].fd, want | EV_PERSIST,
					on_event, d) < 0) {
			return -ENOMEM;
		}
		if (event_add(d->events[i], NULL) < 0)
			return -ENOMEM;
		d->armed[i] = want;
	}
	return 0;
}

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct decoding *d = arg;

	if (decoder_dispatch(d->decoder) != 0)
		return; /* it has ended, and *d may be gone */
	if (watch(d) < 0)
		decoder_kill(d->decoder);
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct decoding *d = arg;

	d->timed_out = true;
	decoder_kill(d->decoder);
}

/* ---- questions */

/* `dated`: it is the file itself; `note`: what it was when its mapping was seen, or NULL. */
static void answer(struct decoding *d, const struct file_request *request,
		   const struct opener_answer *a, int fd, bool dated, const struct filenote *note)
{
	struct file_answer file = {.req = request->req,
				   .changed = a->changed,
				   .dated = dated,
				   .noted = note};
	struct objects *o = d->request.objects;
	_cleanup_close_ int copy = -1;
	int r;

	/* what is in the bundle already needs no copy */
	if (fd >= 0 && o && a->source != OPENER_BUNDLE && objects_want(o, request->kind))
		copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (note)
		file.note = *note;
	(void)snprintf(file.why, sizeof(file.why), "%s",
		       fd >= 0 ? opener_source_to_string(a->source) : a->why);
	if (fd >= 0 && request->kind == FILE_REQUEST_OBJECT && d->request.build_ids)
		build_ids_ask(d->request.build_ids, request->req, request->path);
	r = decoder_answer(d->decoder, &file, fd);
	if (r == 1 && copy >= 0)
		objects_offer(o, request, a->path, a->stat.st_dev, a->stat.st_ino, take_fd(&copy));
	/* the pidfd reports the end of a process that is gone */
	if (r >= 0 && watch(d) < 0)
		decoder_kill(d->decoder);
}

static void answer_no(struct decoding *d, const struct file_request *request, const char *why)
{
	struct opener_answer a = {.fd = -1};

	(void)snprintf(a.why, sizeof(a.why), "%s", why);
	answer(d, request, &a, -1, false, NULL);
}

/* The answer goes to the decoder, and that is the end of the question. */
static void lookup_answer(struct lookup *l, int fd)
{
	answer(l->decoding, &l->request, &l->answer, fd,
	       l->answer.source == OPENER_TARGET && !l->copied, NULL);
	lookup_free(l);
}

/* How much the next file that has to be copied may have. */
static uint64_t room_for_copy(const struct decoding *d)
{
	uint64_t left = d->copied < MAX_COPIED ? MAX_COPIED - d->copied : 0;

	return left < OPENING_MAX_COPY ? left : OPENING_MAX_COPY;
}

static void on_opened(void *arg, const struct opener_reply *opened, int fd)
{
	struct lookup *l = arg;

	l->opening = NULL;
	l->answer = opened->answer;
	l->copied = opened->copied;
	/* Several can be asked for at once, each with the room that there was. */
	if (fd >= 0 && opened->copied &&
	    (uint64_t)opened->answer.stat.st_size > room_for_copy(l->decoding)) {
		fd = close_fd(fd);
		(void)snprintf(l->answer.why, sizeof(l->answer.why),
			       "copies of files take too much memory");
	} else if (fd >= 0 && opened->copied) {
		l->decoding->copied += (uint64_t)opened->answer.stat.st_size;
	}
	lookup_answer(l, fd);
}

static void lookup_run(struct copier_job *job)
{
	struct lookup *l = (struct lookup *)job;
	int r = opener_open(l->opener, &l->request, &l->answer);

	if (r < 0)
		(void)snprintf(l->answer.why, sizeof(l->answer.why), "%s", strerror(-r));
}

static void lookup_outside(struct lookup *l)
{
	struct decoding *d = l->decoding;
	int r;

	r = frozen_open(d->request.frozen, &l->request, room_for_copy(d), on_opened, l,
			&l->opening);
	if (r < 0) {
		(void)snprintf(l->answer.why, sizeof(l->answer.why), "%s",
			       r == -ESRCH ? "nothing is known of the process that it is of"
			       : r == -EACCES
				       ? "its process had other rights than whose snapshot it is"
				       : strerror(-r));
		lookup_answer(l, -1);
	}
}

static void lookup_done(struct copier_job *job)
{
	struct lookup *l = (struct lookup *)job;

	if (!l->decoding)
		lookup_free(l);
	else if (l->answer.fd >= 0 || l->request.kind == FILE_REQUEST_RING)
		lookup_answer(l, take_fd(&l->answer.fd));
	else
		lookup_outside(l);
}

static int lookup_start(struct decoding *d, const struct file_request *request)
{
	/* Code that was in no file came with the recording. */
	_cleanup_close_ int images =
		openat(d->dir_fd, BUNDLE_IMAGES, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	const struct opener_options options = {
		.bundle_fd = d->dir_fd,
		.images_fd = images,
		.symfs_fd = -1,
		.root_fd = -1,
		.mapped_fd = -1,
	};
	struct lookup *l = calloc(1, sizeof(*l));
	int r;

	if (!l)
		return -ENOMEM;
	l->answer.fd = -1;
	l->request = *request;
	r = opener_new(&options, &l->opener);
	if (r < 0) {
		lookup_free(l);
		return r;
	}
	l->decoding = d;
	l->job.run = lookup_run;
	l->job.done = lookup_done;
	LIST_INSERT_HEAD(&d->lookups, l, entry);
	d->n_lookups++;
	/* Debug files and perf maps come into a bundle when it is published. */
	if (request->kind == FILE_REQUEST_OBJECT || request->kind == FILE_REQUEST_RING)
		copier_submit(d->request.copier, &l->job);
	else
		lookup_outside(l);
	return 0;
}

static void on_request(struct decoder *decoder, const struct file_request *request, void *arg)
{
	const struct filenote *note = NULL;
	struct decoding *d = arg;
	int r, fd = -1;

	if (request->kind == FILE_REQUEST_OBJECT && request->ino)
		fd = frozen_image_fd(d->request.frozen, request->maj, request->min, request->ino,
				     &note);
	if (fd >= 0) {
		/* the kernel itself reported which file it is */
		struct opener_answer a = {.fd = -1,
					  .source = OPENER_KEPT,
					  .stat.st_dev = makedev(request->maj, request->min),
					  .stat.st_ino = request->ino};
		int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

		if (copy < 0)
			answer_no(d, request, "too many open files");
		else
			answer(d, request, &a, copy, note != NULL, note);
		return;
	}
	if (d->n_lookups >= MAX_LOOKUPS) {
		answer_no(d, request, "too many questions at once");
		return;
	}
	r = lookup_start(d, request);
	if (r < 0)
		answer_no(d, request, strerror(-r));
}

/* ---- the whole */

static void on_verdict(struct decoder *decoder, const struct file_verdict *verdict, void *arg)
{
	struct decoding *d = arg;

	if (d->request.objects)
		objects_judge(d->request.objects, verdict->req, verdict->recognised);
	if (d->request.build_ids)
		build_ids_tell(d->request.build_ids, verdict->req, verdict->build_id,
			       verdict->build_id_len);
}

static void on_progress(struct decoder *decoder, const struct decoder_progress *progress, void *arg)
{
	struct decoding *d = arg;

	d->callbacks.on_progress(progress, d->arg);
}

static void on_end(struct decoder *decoder, const struct decoder_outcome *outcome, void *arg)
{
	struct decoding *d = arg;
	struct decoder_outcome o = *outcome;

	if (d->request.objects)
		objects_settle(d->request.objects);
	if (d->timeout)
		(void)event_del(d->timeout);
	for (size_t i = 0; i < DECODER_N_FDS; i++)
		if (d->events[i])
			(void)event_del(d->events[i]);
	/* Only a trace that is whole gets its name. */
	if (o.end == DECODER_DONE && renameat(d->dir_fd, TRACE_TMP, d->dir_fd, BUNDLE_TRACE) < 0) {
		o.end = DECODER_CRASHED;
		o.message = "the trace could not be renamed";
	}
	if (o.end != DECODER_DONE)
		(void)unlinkat(d->dir_fd, TRACE_TMP, 0);
	d->callbacks.on_end(&o, d->timed_out, d->arg);
}

static struct json_object *job_options(const struct config *c)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_uint(o, "threads", c->decoder_threads);
	json_add_bool(o, "compress", true);
	json_add_bool(o, "symbols", true);
	json_add_bool(o, "identify", true);
	json_add_uint(o, "max_output_bytes", c->max_output_mib * MIB);
	json_add_uint(o, "max_memory", c->decoder_memory_mib * MIB);
	json_add_string(o, "task", "decode");
	return o;
}

static int start(struct decoding *d)
{
	static const struct decoder_callbacks callbacks = {
		.on_request = on_request,
		.on_verdict = on_verdict,
		.on_progress = on_progress,
		.on_end = on_end,
	};
	const struct config *c = d->request.config;
	const struct decoder_options options = {
		.path = d->request.program,
		.uid = frozen_uid(d->request.frozen),
		.memory_bytes = c->decoder_memory_mib * MIB,
		/* all its threads together; the wall timeout comes first unless they spin */
		.cpu_seconds = (uint64_t)c->decoder_timeout_s * 64,
		.output_bytes = c->max_output_mib * MIB + MIB,
		.idle = true,
		.drop_privilege = true,
	};
	_cleanup_json_ struct json_object *body = NULL;
	int fds[BUNDLE_MAX_JOB_FDS], r;
	struct bundle bundle;
	_cleanup_close_ int out = -1;
	size_t n_fds;

	r = safefile_create(d->dir_fd, TRACE_TMP, &out);
	if (r < 0)
		return r;
	r = bundle_open(d->dir_fd, &bundle);
	if (r < 0)
		return r;
	r = bundle_job(&bundle, "pftrace", out, job_options(c), &body, fds, &n_fds);
	if (r == 0)
		r = decoder_start(&options, body, fds, n_fds, &callbacks, d, &d->decoder);
	bundle_close(&bundle);
	return r;
}

int decoding_start(const struct decoding_request *request,
		   const struct decoding_callbacks *callbacks, void *arg, struct decoding **ret)
{
	_cleanup_(decoding_freep) struct decoding *d = calloc(1, sizeof(*d));
	struct timeval timeout = {.tv_sec = request->config->decoder_timeout_s};
	int r;

	if (!d)
		return -ENOMEM;
	d->request = *request;
	d->callbacks = *callbacks;
	d->arg = arg;
	LIST_INIT(&d->lookups);
	d->dir_fd = fcntl(request->bundle_fd, F_DUPFD_CLOEXEC, 3);
	if (d->dir_fd < 0)
		return -errno;
	d->timeout = evtimer_new(request->base, on_timeout, d);
	if (!d->timeout || event_add(d->timeout, &timeout) < 0)
		return -ENOMEM;
	r = start(d);
	if (r < 0) {
		(void)unlinkat(d->dir_fd, TRACE_TMP, 0);
		return r;
	}
	r = watch(d);
	if (r < 0)
		return r;
	*ret = take_ptr(d);
	return 0;
}

void decoding_free(struct decoding *d)
{
	struct lookup *l;

	if (!d)
		return;
	while ((l = LIST_FIRST(&d->lookups)) != NULL) {
		if (!l->job.submitted) { /* with an opener, or the copier is gone and dropped it */
			lookup_free(l);
			continue;
		}
		LIST_REMOVE(l, entry);
		l->decoding = NULL;
	}
	for (size_t i = 0; i < DECODER_N_FDS; i++)
		if (d->events[i])
			event_free(d->events[i]);
	if (d->timeout)
		event_free(d->timeout);
	decoder_free(d->decoder);
	close_fdp(&d->dir_fd);
	free(d);
}
