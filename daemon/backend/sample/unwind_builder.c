// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_builder.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/json.h"
#include "common/decoder/decoder.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/config.h"

#define BUILD_SECONDS 120
#define BUILD_CPU_SECONDS 30
#define BYTES_MAX (64ULL << 20)

struct unwind_builder {
	struct targets *targets;
	struct unwind_tables *tables;
	unwind_built_fn fn;
	void *arg;
	char program[4096];
	int missing; /* negative errno: no decoder */
	struct decoder *decoder;
	struct event *events[DECODER_N_FDS];
	struct event *timeout;
	int out_fd; /* memfd, or -1 */
	struct load_job *loading;
	struct unwind_built built[UNWIND_BATCH_MAX];
	uint64_t bytes[UNWIND_BATCH_MAX];
	size_t n;
};

/* On the sampler's thread; outlives the builder if that goes first. */
struct load_job {
	struct sampler_job job; /* first */
	struct unwind_builder *builder; /* NULL: it is gone */
	struct unwind_tables *tables;
	int fd;
	uint64_t bytes[UNWIND_BATCH_MAX];
	struct unwind_built built[UNWIND_BATCH_MAX];
	size_t n;
};

static void build_end(struct unwind_builder *b)
{
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (b->events[i])
			event_free(b->events[i]);
		b->events[i] = NULL;
	}
	(void)event_del(b->timeout);
	decoder_free(b->decoder);
	b->decoder = NULL;
	b->out_fd = close_fd(b->out_fd);
}

/* ---- loading */

static int load_one(struct load_job *j, uint64_t at, uint64_t bytes, struct unwind_place *ret)
{
	_cleanup_free_ uint8_t *data = malloc(bytes);
	struct unwind_checked table;
	ssize_t n;
	int r;

	if (!data)
		return -ENOMEM;
	n = io_pread_full(j->fd, data, bytes, (off_t)at);
	if (n != (ssize_t)bytes)
		return n < 0 ? (int)n : -EBADMSG;
	r = unwind_check(data, bytes, &table);
	return r < 0 ? r : unwind_tables_load(j->tables, &table, ret);
}

static void load_run(struct copier_job *job)
{
	struct load_job *j = (struct load_job *)job;
	uint64_t at = 0;

	for (size_t i = 0; i < j->n; i++) {
		if (j->built[i].result == 0)
			j->built[i].result = load_one(j, at, j->bytes[i], &j->built[i].place);
		at += j->bytes[i];
	}
}

static void load_done(struct sampler_job *job)
{
	struct load_job *j = (struct load_job *)job;

	if (!j->builder)
		return;
	j->builder->loading = NULL;
	j->builder->fn(j->builder->arg, j->built, j->n);
}

static void load_free(struct sampler_job *job)
{
	struct load_job *j = (struct load_job *)job;

	if (j->builder)
		j->builder->loading = NULL;
	(void)close_fd(j->fd);
	free(j);
}

static void load_start(struct unwind_builder *b)
{
	struct load_job *j = calloc(1, sizeof(*j));

	/* Nobody has it open for writing any more but the decoder, if that does not die: what it then writes is not seen. */
	if (!j || fcntl(b->out_fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0) {
		free(j);
		for (size_t i = 0; i < b->n; i++)
			b->built[i].result = -EIO;
		build_end(b);
		b->fn(b->arg, b->built, b->n);
		return;
	}
	j->job = (struct sampler_job){.job.run = load_run, .done = load_done, .free = load_free};
	j->builder = b;
	j->tables = b->tables;
	j->fd = b->out_fd;
	b->out_fd = -1;
	j->n = b->n;
	memcpy(j->bytes, b->bytes, sizeof(j->bytes));
	memcpy(j->built, b->built, sizeof(j->built));
	b->loading = j;
	build_end(b);
	sampler_submit(sampler_of(b->targets), &j->job);
}

/* ---- the decoder */

static void on_request(struct decoder *d, const struct file_request *request, void *arg)
{
	struct file_answer none = {.req = request->req, .why = "not for a table"};

	(void)decoder_answer(d, &none, -1);
}

static void take_answers(struct unwind_builder *b, const struct decoder_result *result)
{
	struct json_object *files = result && result->stats ? json_get_array(result->stats, "files") : NULL;
	size_t n = files ? json_object_array_length(files) : 0;
	uint64_t sum = 0;

	for (size_t i = 0; i < n && i < b->n; i++) {
		struct json_object *file = json_object_array_get_idx(files, i);
		uint64_t bytes = 0;

		if (!json_object_is_type(file, json_type_object) || !json_get_uint(file, "bytes", &bytes))
			return;
		if (bytes > BYTES_MAX - sum)
			return;
		sum += bytes;
		b->bytes[i] = bytes;
		b->built[i].result = bytes ? 0 : -ENODATA;
	}
}

static void on_end(struct decoder *d, const struct decoder_outcome *outcome, void *arg)
{
	struct unwind_builder *b = arg;

	if (outcome->end == DECODER_DONE)
		take_answers(b, outcome->result);
	else
		log_debug("tables of unwind rules: %s", outcome->message);
}

static void on_ready(evutil_socket_t fd, short what, void *arg)
{
	struct unwind_builder *b = arg;
	struct pollfd fds[DECODER_N_FDS];

	if (decoder_dispatch(b->decoder) == 1) {
		load_start(b);
		return;
	}
	/* An end of file stays readable: what the decoder is done with is not watched. */
	decoder_poll(b->decoder, fds);
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (fds[i].fd < 0 && b->events[i]) {
			event_free(b->events[i]);
			b->events[i] = NULL;
		}
	}
}

static void on_timeout(evutil_socket_t fd, short what, void *arg)
{
	struct unwind_builder *b = arg;

	decoder_kill(b->decoder);
}

static struct json_object *job_new(size_t n)
{
	struct json_object *job = json_object_new_object(), *inputs;

	json_add_string(job, "input", "unwind");
	inputs = json_add_new_array(job, "inputs");
	for (size_t i = 0; i < n; i++)
		json_append_string(inputs, "object");
	json_append_string(inputs, "out");
	return job;
}

static int run(struct unwind_builder *b, uid_t uid, const int *fds, size_t n)
{
	const struct decoder_options options = {
		.path = b->program,
		.uid = uid,
		.memory_bytes = (uint64_t)b->targets->config->decoder_memory_mib << 20,
		.cpu_seconds = BUILD_CPU_SECONDS,
		.output_bytes = BYTES_MAX,
		/* What has no table is copied, which costs far more; and an idle process may wait for minutes. */
		.nice = 10,
		.drop_privilege = true,
	};
	static const struct decoder_callbacks callbacks = {.on_request = on_request, .on_end = on_end};
	struct timeval timeout = {.tv_sec = BUILD_SECONDS};
	struct pollfd polled[DECODER_N_FDS];
	struct json_object *job;
	int files[UNWIND_BATCH_MAX + 1];
	int r;

	b->out_fd = io_memfd("tracerd-unwind");
	if (b->out_fd < 0)
		return b->out_fd;
	memcpy(files, fds, n * sizeof(*fds));
	files[n] = b->out_fd;
	job = job_new(n);
	r = decoder_start(&options, job, files, n + 1, &callbacks, b, &b->decoder);
	(void)json_object_put(job);
	if (r < 0)
		return r;
	decoder_poll(b->decoder, polled);
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (polled[i].fd < 0)
			continue;
		b->events[i] = event_new(b->targets->base, polled[i].fd, EV_READ | EV_PERSIST, on_ready, b);
		if (!b->events[i] || event_add(b->events[i], NULL) < 0)
			return -ENOMEM;
	}
	return event_add(b->timeout, &timeout) < 0 ? -ENOMEM : 0;
}

bool unwind_builder_is_busy(const struct unwind_builder *b)
{
	return b->decoder || b->loading;
}

int unwind_builder_start(struct unwind_builder *b, uid_t uid, const int *fds, size_t n)
{
	int r;

	if (unwind_builder_is_busy(b) || n == 0 || n > UNWIND_BATCH_MAX)
		return -EINVAL;
	if (b->missing)
		return b->missing;
	b->n = n;
	for (size_t i = 0; i < n; i++) {
		b->bytes[i] = 0;
		b->built[i] = (struct unwind_built){.result = -EIO};
	}
	r = run(b, uid, fds, n);
	if (r < 0)
		build_end(b);
	return r;
}

/* ---- life */

int unwind_builder_new(struct targets *targets, struct unwind_tables *tables, unwind_built_fn fn, void *arg,
		       struct unwind_builder **ret)
{
	struct unwind_builder *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	b->targets = targets;
	b->tables = tables;
	b->fn = fn;
	b->arg = arg;
	b->out_fd = -1;
	b->timeout = evtimer_new(targets->base, on_timeout, b);
	if (!b->timeout) {
		free(b);
		return -ENOMEM;
	}
	b->missing = decoder_find(targets->config->decoder ? targets->config->decoder : "", b->program, sizeof(b->program));
	*ret = b;
	return 0;
}

struct unwind_builder *unwind_builder_free(struct unwind_builder *b)
{
	if (!b)
		return NULL;
	if (b->loading)
		b->loading->builder = NULL;
	build_end(b);
	event_free(b->timeout);
	free(b);
	return NULL;
}
