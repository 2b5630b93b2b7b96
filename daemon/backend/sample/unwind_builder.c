// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_builder.h"

#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "common/decoder/decoder.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/config.h"

#define BUILD_SECONDS 120
#define BUILD_CPU_SECONDS 30
#define BYTES_MAX (64ULL << 20)

/* One file of a batch. */
struct item {
	struct unwind_source source; /* the descriptor is owned */
	struct unwind_built built;
	bool done;	/* nothing is to be made of it any more */
	uint64_t bytes; /* of its table in what the decoder writes */
	bool none;	/* it has said that there can be none */
	char *python;	/* what that says of an interpreter, as JSON; owned */
};

struct unwind_builder {
	struct targets *targets;
	struct unwind_tables *tables;
	struct unwind_cache *cache; /* NULL: nothing is kept; the thread's */
	unwind_built_fn fn;
	void *arg;
	char program[4096];
	int missing; /* negative errno: no decoder */
	struct decoder *decoder;
	struct event *events[DECODER_N_FDS];
	struct event *timeout;
	int out_fd; /* memfd, or -1 */
	struct thread_job *job;
	struct item items[UNWIND_BATCH_MAX];
	size_t n;
	uid_t uid;
	bool tables_wanted; /* else it is only asked what the files are */
	uint64_t decoders; /* that were started */
};

/* On the sampler's thread; outlives the builder if that goes first. */
struct thread_job {
	struct sampler_job job; /* first */
	struct unwind_builder *builder; /* NULL: it is gone */
	struct unwind_tables *tables;
	struct unwind_cache *cache;
	int fd; /* what the decoder has written; -1: what is kept is looked for */
	struct item items[UNWIND_BATCH_MAX]; /* their descriptors stay the builder's */
	size_t n;
};

static void decoder_end(struct unwind_builder *b)
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

static void batch_end(struct unwind_builder *b)
{
	decoder_end(b);
	for (size_t i = 0; i < b->n; i++) {
		close_fdp(&b->items[i].source.fd);
		free(take_ptr(b->items[i].python));
	}
	b->n = 0;
}

static void tell(struct unwind_builder *b)
{
	struct unwind_built built[UNWIND_BATCH_MAX];
	const size_t n = b->n;

	for (size_t i = 0; i < n; i++)
		built[i] = b->items[i].built;
	batch_end(b);
	b->fn(b->arg, built, n);
}

static int64_t now_s(void)
{
	return (int64_t)(wall_clock_ns() / 1000000000u);
}

/* ---- on the thread */

static void job_free(struct sampler_job *job)
{
	struct thread_job *j = (struct thread_job *)job;

	if (j->builder)
		j->builder->job = NULL;
	for (size_t i = 0; i < j->n; i++)
		free(j->items[i].python);
	(void)close_fd(j->fd);
	free(j);
}

/* False: there is no memory. Takes over what the decoder has written, if it has. */
static bool job_start(struct unwind_builder *b, void (*run)(struct copier_job *job),
		      void (*done)(struct sampler_job *job))
{
	struct thread_job *j = calloc(1, sizeof(*j));

	if (!j)
		return false;
	j->job = (struct sampler_job){.job.run = run, .done = done, .free = job_free};
	j->builder = b;
	j->tables = b->tables;
	j->cache = b->cache;
	j->fd = b->out_fd;
	b->out_fd = -1;
	j->n = b->n;
	memcpy(j->items, b->items, b->n * sizeof(*j->items));
	for (size_t i = 0; i < b->n; i++)
		b->items[i].python = NULL;
	b->job = j;
	sampler_submit(sampler_of(b->targets), &j->job);
	return true;
}

static void take_back(struct thread_job *j)
{
	struct unwind_builder *b = j->builder;

	b->job = NULL;
	for (size_t i = 0; i < j->n; i++) {
		b->items[i].built = j->items[i].built;
		b->items[i].done = j->items[i].done;
	}
}

static void look_run(struct copier_job *job)
{
	struct thread_job *j = (struct thread_job *)job;

	for (size_t i = 0; i < j->n; i++) {
		struct item *item = &j->items[i];
		struct unwind_cached cached;

		if (!item->source.kept ||
		    unwind_cache_get(j->cache, &item->source.key, &cached) < 0)
			continue;
		item->built.result = cached.none ? -ENODATA
						 : unwind_tables_load(j->tables, &cached.table,
								      &item->built.place);
		item->built.python = cached.python;
		item->done = true;
		unwind_cached_fini(&cached);
	}
}

static int load_one(struct thread_job *j, uint64_t at, struct item *item)
{
	_cleanup_free_ uint8_t *data = malloc(item->bytes);
	struct unwind_checked table;
	ssize_t n;
	int r;

	if (!data)
		return -ENOMEM;
	n = io_pread_full(j->fd, data, item->bytes, (off_t)at);
	if (n != (ssize_t)item->bytes)
		return n < 0 ? (int)n : -EBADMSG;
	r = unwind_check(data, item->bytes, &table);
	if (r == 0 && item->source.kept)
		unwind_cache_put(j->cache, &item->source.key, data, item->bytes, item->python);
	return r < 0 ? r : unwind_tables_load(j->tables, &table, &item->built.place);
}

static void load_run(struct copier_job *job)
{
	struct thread_job *j = (struct thread_job *)job;
	uint64_t at = 0;

	for (size_t i = 0; i < j->n; i++) {
		struct item *item = &j->items[i];

		if (item->done)
			continue;
		if (item->built.result == 0)
			item->built.result = load_one(j, at, item);
		else if (item->none && item->source.kept)
			unwind_cache_put(j->cache, &item->source.key, NULL, 0, item->python);
		at += item->bytes;
	}
}

static void load_done(struct sampler_job *job)
{
	struct thread_job *j = (struct thread_job *)job;

	if (!j->builder)
		return;
	take_back(j);
	tell(j->builder);
}

static void fail(struct unwind_builder *b, int r)
{
	for (size_t i = 0; i < b->n; i++)
		if (!b->items[i].done)
			b->items[i].built.result = r;
	tell(b);
}

static void load_start(struct unwind_builder *b)
{
	/*
	 * Nobody has it open for writing any more but the decoder, if that does not die: what it
	 * then writes is not seen.
	 */
	if (fcntl(b->out_fd, F_ADD_SEALS,
		  F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0 ||
	    !job_start(b, load_run, load_done)) {
		fail(b, -EIO);
		return;
	}
	decoder_end(b);
}

/* ---- the decoder */

static void on_request(struct decoder *d, const struct file_request *request, void *arg)
{
	struct file_answer none = {.req = request->req, .why = "not for a table"};

	(void)decoder_answer(d, &none, -1);
}

/* A decoder may have read other bytes than the key is of. */
static bool is_still(const struct unwind_source *source)
{
	struct unwind_key now;
	struct stat st;

	/* What the daemon itself has made has no inode in its key. */
	if (!source->key.file.ino)
		return true;
	return fstat(source->fd, &st) == 0 && unwind_key_of(&st, source->key.head, now_s(), &now) &&
	       memcmp(&now, &source->key, sizeof(now)) == 0;
}

static void take_answer(struct item *item, struct json_object *file, uint64_t bytes)
{
	struct json_object *python = json_get_object(file, "python"),
			   *go = json_get_object(file, "go");
	const char *text;

	python_object_parse(python, &item->built.python);
	go_object_parse(go, &item->built.go);
	item->bytes = bytes;
	item->built.result = bytes ? 0 : -ENODATA;
	item->none = !bytes && json_get_bool(file, "none", &item->none) && item->none;
	/* Of a Go program there is hardly a table, and on disk is no room for what it is. */
	item->source.kept = item->source.kept && !go && is_still(&item->source);
	if (!item->source.kept || !python)
		return;
	text = json_text(python, NULL);
	item->python = text ? strdup(text) : NULL;
	/* Without it the next daemon would take it for no interpreter. */
	item->source.kept = item->python != NULL;
}

static void take_answers(struct unwind_builder *b, const struct decoder_result *result)
{
	struct json_object *files = result && result->stats ? json_get_array(result->stats, "files")
							    : NULL;
	size_t n = files ? json_object_array_length(files) : 0, next = 0;
	uint64_t sum = 0;

	for (size_t i = 0; i < b->n && next < n; i++) {
		struct json_object *file;
		uint64_t bytes = 0;

		if (b->items[i].done)
			continue;
		file = json_object_array_get_idx(files, next++);
		if (!json_object_is_type(file, json_type_object) ||
		    !json_get_uint(file, "bytes", &bytes))
			return;
		if (bytes > BYTES_MAX - sum)
			return;
		sum += bytes;
		take_answer(&b->items[i], file, bytes);
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

static struct json_object *job_new(size_t n, bool tables)
{
	struct json_object *job = json_object_new_object(), *inputs;

	json_add_string(job, "input", "unwind");
	json_add_bool(job, "tables", tables);
	inputs = json_add_new_array(job, "inputs");
	for (size_t i = 0; i < n; i++)
		json_append_string(inputs, "object");
	json_append_string(inputs, "out");
	return job;
}

/* What is not done yet. */
static int run(struct unwind_builder *b)
{
	const struct decoder_options options = {
		.path = b->program,
		.uid = b->uid,
		.memory_bytes = (uint64_t)b->targets->config->decoder_memory_mib << 20,
		.cpu_seconds = BUILD_CPU_SECONDS,
		.output_bytes = BYTES_MAX,
		/*
		 * What has no table is copied, which costs far more; and an idle process may wait
		 * for minutes.
		 */
		.nice = 10,
		.drop_privilege = true,
	};
	static const struct decoder_callbacks callbacks = {.on_request = on_request,
							   .on_end = on_end};
	struct timeval timeout = {.tv_sec = BUILD_SECONDS};
	struct pollfd polled[DECODER_N_FDS];
	struct json_object *job;
	int files[UNWIND_BATCH_MAX + 1];
	size_t n = 0;
	int r;

	b->out_fd = io_memfd("tracerd-unwind");
	if (b->out_fd < 0)
		return b->out_fd;
	for (size_t i = 0; i < b->n; i++)
		if (!b->items[i].done)
			files[n++] = b->items[i].source.fd;
	files[n] = b->out_fd;
	job = job_new(n, b->tables_wanted);
	r = decoder_start(&options, job, files, n + 1, &callbacks, b, &b->decoder);
	(void)json_object_put(job);
	if (r < 0)
		return r;
	b->decoders++;
	decoder_poll(b->decoder, polled);
	for (size_t i = 0; i < DECODER_N_FDS; i++) {
		if (polled[i].fd < 0)
			continue;
		b->events[i] = event_new(b->targets->base, polled[i].fd, EV_READ | EV_PERSIST,
					 on_ready, b);
		if (!b->events[i] || event_add(b->events[i], NULL) < 0)
			return -ENOMEM;
	}
	return event_add(b->timeout, &timeout) < 0 ? -ENOMEM : 0;
}

static void look_done(struct sampler_job *job)
{
	struct thread_job *j = (struct thread_job *)job;
	struct unwind_builder *b = j->builder;
	size_t n_done = 0;
	int r;

	if (!b)
		return;
	take_back(j);
	for (size_t i = 0; i < b->n; i++)
		n_done += b->items[i].done;
	if (n_done == b->n) {
		tell(b);
		return;
	}
	r = run(b);
	if (r < 0)
		fail(b, r);
}

bool unwind_builder_is_busy(const struct unwind_builder *b)
{
	return b->decoder || b->job;
}

static int take_sources(struct unwind_builder *b, const struct unwind_source *sources, size_t n,
			bool *ret_kept)
{
	*ret_kept = false;
	for (b->n = 0; b->n < n; b->n++) {
		struct item *item = &b->items[b->n];

		*item = (struct item){.source = sources[b->n], .built.result = -EIO};
		item->source.kept &= b->cache != NULL;
		*ret_kept |= item->source.kept;
		item->source.fd = fcntl(sources[b->n].fd, F_DUPFD_CLOEXEC, 3);
		if (item->source.fd < 0)
			return errno == EMFILE ? -EAGAIN : -errno;
	}
	return 0;
}

int unwind_builder_start(struct unwind_builder *b, uid_t uid, const struct unwind_source *sources,
			 size_t n, bool tables)
{
	bool kept;
	int r;

	if (unwind_builder_is_busy(b) || n == 0 || n > UNWIND_BATCH_MAX)
		return -EINVAL;
	if (b->missing)
		return b->missing;
	b->uid = uid;
	b->tables_wanted = tables;
	r = take_sources(b, sources, n, &kept);
	if (r == 0)
		r = !kept ? run(b) : job_start(b, look_run, look_done) ? 0 : -ENOMEM;
	if (r < 0)
		batch_end(b);
	return r;
}

void unwind_builder_status(const struct unwind_builder *b, struct json_object *status)
{
	json_add_uint(status, "decoders", b->decoders);
	unwind_cache_status(b->cache, status);
}

/* ---- life */

int unwind_builder_new(struct targets *targets, struct unwind_tables *tables, unwind_built_fn fn,
		       void *arg, struct unwind_builder **ret)
{
	const struct config *config = targets->config;
	struct unwind_builder *b = calloc(1, sizeof(*b));
	int r = 0;

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
	b->missing = decoder_find(config->decoder ? config->decoder : "", b->program,
				  sizeof(b->program));
	if (!b->missing && config->unwind_cache_mib)
		r = unwind_cache_new(config->state_dir, (uint64_t)config->unwind_cache_mib << 20,
				     b->program, &b->cache);
	if (r == -ENOMEM) {
		(void)unwind_builder_free(b);
		return r;
	}
	if (r < 0)
		log_warning("%s: %s; tables of unwind rules are not kept", b->program,
			    strerror(-r));
	*ret = b;
	return 0;
}

struct unwind_builder *unwind_builder_free(struct unwind_builder *b)
{
	if (!b)
		return NULL;
	if (b->job)
		b->job->builder = NULL;
	batch_end(b);
	(void)unwind_cache_free(b->cache);
	event_free(b->timeout);
	free(b);
	return NULL;
}
