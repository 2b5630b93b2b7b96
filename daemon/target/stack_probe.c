// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/stack_probe.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/control/json.h"
#include "common/decoder/decoder.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

/*
 * A log begins with the program and the libraries that matter for waits; the rest would add
 * nothing.
 */
#define FILES_MAX 8
#define PROBE_SECONDS 20
#define PROBE_CPU_SECONDS 10

struct stackprobe {
	struct targets *targets; /* back pointer */
	char program[4096];
	int missing; /* negative errno: no decoder */
	struct decoder *decoder;
	struct event *events[DECODER_N_FDS];
	struct event *timeout;
	struct image *images[FILES_MAX]; /* referenced; that the decoder looks at */
	size_t n_images;
	uid_t uid; /* whose they are: one user at a time */
};

static void start(struct stackprobe *probe);

/* ---- verdicts */

/* The first file without frame pointers decides. */
static enum image_frames verdict(const struct target *target)
{
	enum image_frames sum = IMAGE_FRAMES_NO_VERDICT;

	for (size_t i = 0; i < target->n_images && i < FILES_MAX; i++) {
		enum image_frames frames = image_frames(target->images[i]);

		if (frames == IMAGE_FRAMES_UNKNOWN || frames == IMAGE_FRAMES_NOT_KEPT)
			return frames;
		if (frames == IMAGE_FRAMES_MOSTLY ||
		    (frames == IMAGE_FRAMES_KEPT && sum != IMAGE_FRAMES_MOSTLY))
			sum = frames;
	}
	return sum;
}

/* The decoder looks at all of them together, once they are open. */
static bool files_are_opening(const struct target *target)
{
	for (size_t i = 0; i < target->n_images && i < FILES_MAX; i++)
		if (image_is_opening(target->images[i]))
			return true;
	return false;
}

static void decide(struct target *target, enum image_frames frames)
{
	target->probe_waits = false;
	target->backend->frames_known(target, frames);
}

static void decide_waiting(struct stackprobe *probe, bool give_up)
{
	struct target *target;

	TAILQ_FOREACH(target, &probe->targets->list, link)
	{
		enum image_frames frames;

		if (!target->probe_waits)
			continue;
		frames = verdict(target);
		if (frames != IMAGE_FRAMES_UNKNOWN) {
			decide(target, frames);
		} else if (give_up && !files_are_opening(target)) {
			decide(target, IMAGE_FRAMES_NO_VERDICT);
		}
	}
}

/* ---- the decoder */

static void probe_end(struct stackprobe *probe)
{
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (probe->events[i])
			event_free(probe->events[i]);
		probe->events[i] = NULL;
	}
	if (probe->timeout)
		(void)event_del(probe->timeout);
	decoder_free(probe->decoder);
	probe->decoder = NULL;
	while (probe->n_images > 0) {
		struct image *image = probe->images[--probe->n_images];

		/* No second question about a file that got no answer. */
		if (image_frames(image) == IMAGE_FRAMES_UNKNOWN)
			image_set_frames(image, IMAGE_FRAMES_NO_VERDICT);
		(void)image_put(image);
	}
}

static void on_request(struct decoder *d, const struct file_request *request, void *arg)
{
	struct file_answer none = {.req = request->req, .why = "not in a probe"};

	(void)decoder_answer(d, &none, -1);
}

static void take_answers(struct stackprobe *probe, const struct decoder_result *result)
{
	struct json_object *files = result && result->stats ? json_get_array(result->stats, "files")
							    : NULL;
	size_t n = files ? json_object_array_length(files) : 0;

	for (size_t i = 0; i < n && i < probe->n_images; i++) {
		struct json_object *file = json_object_array_get_idx(files, i);
		bool known = false, kept = false, go = false;

		if (!json_object_is_type(file, json_type_object))
			continue;
		(void)json_get_bool(file, "known", &known);
		(void)json_get_bool(file, "frame_pointers", &kept);
		(void)json_get_bool(file, "go", &go);
		image_set_frames(probe->images[i], !known ? IMAGE_FRAMES_NO_VERDICT
						   : !kept ? IMAGE_FRAMES_NOT_KEPT
						   : go ? IMAGE_FRAMES_MOSTLY
							: IMAGE_FRAMES_KEPT);
	}
}

static void on_end(struct decoder *d, const struct decoder_outcome *outcome, void *arg)
{
	struct stackprobe *probe = arg;

	if (outcome->end == DECODER_DONE)
		take_answers(probe, outcome->result);
	else
		log_debug("looking for frame pointers: %s", outcome->message);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct stackprobe *probe = arg;
	struct pollfd fds[DECODER_N_FDS];

	if (decoder_dispatch(probe->decoder) == 1) {
		probe_end(probe);
		decide_waiting(probe, false);
		start(probe);
		return;
	}
	/* An end of file stays readable: what the decoder is done with is not watched. */
	decoder_poll(probe->decoder, fds);
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (fds[i].fd < 0 && probe->events[i]) {
			event_free(probe->events[i]);
			probe->events[i] = NULL;
		}
	}
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct stackprobe *probe = arg;

	decoder_kill(probe->decoder);
}

/* Files of one user's waiting targets that nobody has judged yet. */
static void collect(struct stackprobe *probe)
{
	struct target *target;

	TAILQ_FOREACH(target, &probe->targets->list, link)
	{
		if (files_are_opening(target))
			continue;
		for (size_t i = 0; target->probe_waits && i < target->n_images && i < FILES_MAX;
		     i++) {
			struct image *image = target->images[i];
			bool have = false;

			for (size_t k = 0; k < probe->n_images; k++)
				have = have || probe->images[k] == image;
			if (have || image_frames(image) != IMAGE_FRAMES_UNKNOWN ||
			    image_fd(image) < 0)
				continue;
			if (probe->n_images == 0)
				probe->uid = target_uid(target);
			if (probe->n_images == FILES_MAX)
				return;
			if (target_uid(target) == probe->uid)
				probe->images[probe->n_images++] = image_ref(image);
		}
	}
}

static struct json_object *job_new(size_t n)
{
	struct json_object *job = json_object_new_object(), *inputs, *options;

	json_add_string(job, "input", "probe");
	inputs = json_add_new_array(job, "inputs");
	for (size_t i = 0; i < n; i++)
		json_append_string(inputs, "object");
	options = json_add_new_object(job, "options");
	json_add_string(options, "task", "probe");
	return job;
}

static int run(struct stackprobe *probe)
{
	const struct decoder_options options = {
		.path = probe->program,
		.uid = probe->uid,
		.memory_bytes = (uint64_t)probe->targets->config->decoder_memory_mib << 20,
		.cpu_seconds = PROBE_CPU_SECONDS,
		.idle = true,
		.drop_privilege = true,
	};
	static const struct decoder_callbacks callbacks = {.on_request = on_request,
							   .on_end = on_end};
	struct timeval timeout = {.tv_sec = PROBE_SECONDS};
	struct pollfd fds[DECODER_N_FDS];
	struct json_object *job;
	int files[FILES_MAX];
	int r;

	for (size_t i = 0; i < probe->n_images; i++)
		files[i] = image_fd(probe->images[i]);
	job = job_new(probe->n_images);
	r = decoder_start(&options, job, files, probe->n_images, &callbacks, probe,
			  &probe->decoder);
	(void)json_object_put(job);
	if (r < 0)
		return r;
	decoder_poll(probe->decoder, fds);
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (fds[i].fd < 0)
			continue;
		probe->events[i] = event_new(probe->targets->base, fds[i].fd, EV_READ | EV_PERSIST,
					     on_ready, probe);
		if (!probe->events[i] || event_add(probe->events[i], NULL) < 0)
			return -ENOMEM;
	}
	return event_add(probe->timeout, &timeout) < 0 ? -ENOMEM : 0;
}

static void start(struct stackprobe *probe)
{
	int r = -1;

	/* If one user's files cannot be looked at, the next user's may. */
	while (!probe->decoder && r < 0) {
		if (!probe->missing)
			collect(probe);
		if (probe->n_images == 0) {
			decide_waiting(probe, true);
			return;
		}
		r = run(probe);
		if (r < 0) {
			log_debug("looking for frame pointers: %s", strerror(-r));
			probe_end(probe);
			decide_waiting(probe, false);
		}
	}
}

/* ---- life */

int stackprobe_new(struct targets *targets, struct stackprobe **ret)
{
	struct stackprobe *probe = calloc(1, sizeof(*probe));

	if (!probe)
		return -ENOMEM;
	probe->targets = targets;
	probe->timeout = evtimer_new(targets->base, on_timeout, probe);
	if (!probe->timeout) {
		free(probe);
		return -ENOMEM;
	}
	probe->missing = decoder_find(targets->config->decoder ? targets->config->decoder : "",
				      probe->program, sizeof(probe->program));
	*ret = probe;
	return 0;
}

struct stackprobe *stackprobe_free(struct stackprobe *probe)
{
	if (!probe)
		return NULL;
	probe_end(probe);
	event_free(probe->timeout);
	free(probe);
	return NULL;
}

void stackprobe_images_settled(struct stackprobe *probe)
{
	struct target *target;

	TAILQ_FOREACH(target, &probe->targets->list, link)
		if (target->probe_waits) {
			start(probe);
			return;
		}
}

void stackprobe_target(struct stackprobe *probe, struct target *target)
{
	enum image_frames frames = verdict(target);

	if (target->stacks_asked != STACKS_AUTO || !target->backend->frames_known)
		return;
	if (frames != IMAGE_FRAMES_UNKNOWN) {
		decide(target, frames);
		return;
	}
	target->probe_waits = true;
	start(probe);
}
