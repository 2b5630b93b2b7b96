// SPDX-License-Identifier: Apache-2.0
/*
 * Execution traces of Go programs: asked for at the freeze, checked when they come, copied when the
 * other copies are done. What comes is a sealed memfd, that nobody can change or cut any more; its
 * bytes are copied and never looked at. What does not come in time, or is not what it should be, is
 * a loss with a reason; the program has no other say in the snapshot.
 */
#include <errno.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "common/control/json.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/go_stream.h"
#include "daemon/base/memfdcheck.h"
#include "daemon/config.h"

#define MIB (1024ULL * 1024)
#define GO_PROGRAMS_MAX 16 /* asked for one snapshot; the others are losses */
#define GO_SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

struct frozen_go {
	struct frozen *frozen;	   /* not owned */
	struct producer *producer; /* borrowed: the frozen recording has it */
	void *request;		   /* NULL: nothing is to come */
	char file[32];		   /* in the bundle */
	int fd;			   /* checked; -1: it is lost */
	uint64_t bytes, wait_ns, keep_ns;
	uint64_t begin_ns, end_ns; /* MONOTONIC, the program's word */
	struct go_stream stream;   /* if it has streamed what `fd` has */
	/* of a pid namespace: threads, and what the program calls them */
	pid_t *tids, *inner;
	size_t n_tids;
	const char *lost;	   /* static; NULL: it is not */
	char why[200];
};

static void lose(struct frozen_go *go, const char *kind, const char *why)
{
	go->fd = close_fd(go->fd);
	go->lost = kind;
	(void)snprintf(go->why, sizeof(go->why), "%s", why);
}

/* ---- the answer */

static bool is_readable(int fd)
{
	int flags = fcntl(fd, F_GETFL);

	return flags >= 0 && (flags & O_ACCMODE) != O_WRONLY && !(flags & O_PATH);
}

/* All together have a limit, too. */
static bool fits(struct frozen_go *go)
{
	const struct frozen *frozen = go->frozen;
	uint64_t total = 0;

	for (size_t i = 0; i < frozen->n_go; i++)
		total += frozen->go[i].fd >= 0 ? frozen->go[i].bytes : 0;
	if (go->bytes <= frozen->go_max_bytes && go->bytes <= frozen->go_max_total - total)
		return true;
	lose(go, "too_large",
	     go->bytes > frozen->go_max_bytes ? "it is larger than go_trace_mib"
					      : "all together met max_output_mib");
	return false;
}

/* Takes the descriptor if it is a memfd of the right size that can change no more. */
static void take(struct frozen_go *go, struct json_object *result, int *fd)
{
	unsigned int seals = 0;
	char why[160] = "";
	int r;

	r = memfd_check(*fd, "trace", &go->bytes, &seals, why, sizeof(why));
	if (r != 0) {
		lose(go, "bad", r > 0 ? why : strerror(-r));
		return;
	}
	if ((seals & GO_SEALS) != GO_SEALS || !is_readable(*fd)) {
		lose(go, "bad",
		     "trace: the memfd must be open for reading and have the seals SHRINK, GROW, WRITE and SEAL");
		return;
	}
	if (go->bytes == 0) {
		lose(go, "bad", "trace: the memfd is empty");
		return;
	}
	if (!fits(go))
		return;
	go->fd = take_fd(fd);
	(void)json_get_uint(result, "begin_ns", &go->begin_ns);
	(void)json_get_uint(result, "end_ns", &go->end_ns);
}

/* The program is gone: what it has streamed before, if it did. */
static bool take_stream(struct frozen_go *go)
{
	uint64_t size;
	const int fd = producer_go_stream(go->producer, &size);

	if (fd < 0 || go_stream_read(fd, size, &go->stream) < 0 || go->stream.n == 0)
		return false;
	go->bytes = go->stream.bytes;
	if (fits(go)) {
		go->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
		if (go->fd < 0)
			lose(go, "busy", "tracerd is out of file descriptors");
	}
	return true;
}

static void ready(struct frozen *frozen)
{
	void (*fn)(void *arg) = frozen->go_ready;

	if (frozen->go_open > 0)
		return;
	if (frozen->go_limit)
		(void)event_del(frozen->go_limit);
	frozen->go_ready = NULL;
	if (fn)
		fn(frozen->go_ready_arg);
}

static void on_answer(void *arg, struct json_object *result, const char *why, int *fd)
{
	struct frozen_go *go = arg;

	go->request = NULL;
	go->wait_ns = io_now_ns() - go->frozen->go_asked_ns;
	if (result)
		take(go, result, fd);
	else if (producer_state(go->producer) == PRODUCER_LIVE || !take_stream(go))
		lose(go, "refused", why);
	go->frozen->go_open--;
	ready(go->frozen);
}

/* Late answers are nobody's from here on. */
static void on_limit(evutil_socket_t fd, short what, void *arg)
{
	struct frozen *frozen = arg;

	for (size_t i = 0; i < frozen->n_go; i++) {
		struct frozen_go *go = &frozen->go[i];

		if (!go->request)
			continue;
		producer_go_drop(go->producer, go->request);
		go->request = NULL;
		go->wait_ns = io_now_ns() - frozen->go_asked_ns;
		lose(go, "late", "no answer came within go_wait_ms");
	}
	frozen->go_open = 0;
	ready(frozen);
}

/* ---- asking */

static void ask(struct frozen_go *go, size_t index, uint64_t wait_ns)
{
	struct frozen *frozen = go->frozen;
	int r;

	if (index >= GO_PROGRAMS_MAX) {
		lose(go, "left_out", "there are too many Go programs for one snapshot");
		return;
	}
	if (wait_ns == 0) {
		lose(go, "left_out", "the configuration says not to ask (go_wait_ms)");
		return;
	}
	r = producer_go_ask(go->producer, frozen->go_max_bytes, wait_ns, on_answer, go,
			    &go->request);
	if (r == 0)
		frozen->go_open++;
	else if (r == -ESRCH && !take_stream(go))
		lose(go, "gone", "the program has ended or lost its connection");
	else if (r != -ESRCH)
		lose(go, "busy", "too many requests wait for the program, or no memory");
}

/* The first has the name that every reader of bundles knows. */
static void name_file(struct frozen_go *go, size_t index)
{
	if (index == 0)
		(void)snprintf(go->file, sizeof(go->file), BUNDLE_GO);
	else
		(void)snprintf(go->file, sizeof(go->file), "go-%d.trace",
			       (int)producer_pid(go->producer));
}

/*
 * A process that came back after a lost connection has an ended producer besides; its trace is
 * whole without.
 */
static bool is_superseded(const struct frozen *frozen, const struct producer *p)
{
	if (producer_state(p) == PRODUCER_LIVE)
		return false;
	for (size_t i = 0; i < frozen->n_producers; i++) {
		const struct producer *other = frozen->producers[i].producer;

		if (other != p && producer_pid(other) == producer_pid(p) &&
		    producer_go_version(other) &&
		    (producer_state(other) == PRODUCER_LIVE || producer_id(other) > producer_id(p)))
			return true;
	}
	return false;
}

static size_t count(const struct frozen *frozen)
{
	size_t n = 0;

	for (size_t i = 0; i < frozen->n_producers; i++)
		n += producer_go_version(frozen->producers[i].producer) &&
		     !is_superseded(frozen, frozen->producers[i].producer);
	return n;
}

int frozen_go_ask(struct frozen *frozen, struct targets *targets)
{
	const uint64_t wait_ns = targets->config->go_wait_ms * 1000000ULL;
	const struct timeval limit = {.tv_sec = targets->config->go_wait_ms / 1000,
				      .tv_usec = targets->config->go_wait_ms % 1000 * 1000};
	size_t n = count(frozen);

	if (n == 0)
		return 0;
	frozen->go = calloc(n, sizeof(*frozen->go));
	frozen->go_limit = evtimer_new(targets->base, on_limit, frozen);
	if (!frozen->go || !frozen->go_limit || event_add(frozen->go_limit, &limit) < 0)
		return -ENOMEM;
	frozen->go_asked_ns = io_now_ns();
	frozen->go_max_bytes = targets->config->go_trace_mib * MIB;
	frozen->go_max_total = targets->config->max_output_mib * MIB;
	for (size_t i = 0; i < frozen->n_producers; i++) {
		struct producer *p = frozen->producers[i].producer;
		struct frozen_go *go = &frozen->go[frozen->n_go];

		if (!producer_go_version(p) || is_superseded(frozen, p))
			continue;
		*go = (struct frozen_go){.frozen = frozen,
					 .producer = p,
					 .fd = -1,
					 .keep_ns = producer_go_keep_ns(p)};
		name_file(go, frozen->n_go);
		ask(go, frozen->n_go++, wait_ns);
	}
	return 0;
}

bool frozen_go_waits(const struct frozen *frozen)
{
	return frozen->go_open > 0;
}

void frozen_when_go_ready(struct frozen *frozen, void (*fn)(void *arg), void *arg)
{
	frozen->go_ready = fn;
	frozen->go_ready_arg = arg;
}

void frozen_go_fini(struct frozen *frozen)
{
	for (size_t i = 0; i < frozen->n_go; i++) {
		if (frozen->go[i].request)
			producer_go_drop(frozen->go[i].producer, frozen->go[i].request);
		(void)close_fd(frozen->go[i].fd);
		free(frozen->go[i].tids);
		free(frozen->go[i].inner);
	}
	if (frozen->go_limit)
		event_free(frozen->go_limit);
	free(frozen->go);
}

/* ---- copying */

static int copy(struct frozen_go *go, int dir_fd)
{
	_cleanup_close_ int out = -1;
	uint64_t bytes = 0;
	int r;

	r = safefile_create(dir_fd, go->file, &out);
	if (r == 0 && go->stream.n)
		r = go_stream_copy(go->fd, &go->stream, out);
	else if (r == 0)
		r = safefile_copy(go->fd, out, go->bytes, &bytes);
	if (r != -ENOSPC && r != -EDQUOT)
		return r;
	/* The recording is worth more. */
	if (unlinkat(dir_fd, go->file, 0) < 0)
		return -errno;
	lose(go, "no_space", "the disk is full");
	return 0;
}

/*
 * The trace has the threads' numbers of the program's own namespace. One that has ended by now is
 * known by nobody.
 */
static void map_threads(struct frozen_go *go)
{
	const pid_t pid = producer_pid(go->producer);
	_cleanup_(proc_close) struct proc proc = PROC_INIT;

	if (producer_nspid(go->producer) == pid || proc_open(pid, -1, &proc) != 0 ||
	    proc.start_time != producer_start_time(go->producer) ||
	    proc_tasks_read(proc.dirfd, &go->tids, &go->n_tids) != 0)
		return;
	go->inner = calloc(go->n_tids, sizeof(*go->inner));
	for (size_t i = 0; go->inner && i < go->n_tids; i++)
		if (proc_thread_nspid(proc.dirfd, go->tids[i], &go->inner[i]) != 0)
			go->inner[i] = 0;
}

int frozen_copy_go(struct frozen *frozen, int dir_fd, const atomic_bool *cancel)
{
	for (size_t i = 0; i < frozen->n_go; i++) {
		struct frozen_go *go = &frozen->go[i];
		int r = 0;

		if (atomic_load(cancel))
			return -ECANCELED;
		if (go->fd >= 0) {
			map_threads(go);
			r = copy(go, dir_fd);
		}
		if (r < 0)
			return r;
		/* It is the program's memory. */
		go->fd = close_fd(go->fd);
	}
	return 0;
}

/* ---- asking us */

bool frozen_go_is_new(const struct frozen *frozen)
{
	bool mapped = false;

	for (size_t i = 0; i < frozen->n_go; i++)
		mapped |= frozen->go[i].inner != NULL;
	return mapped || frozen_go_lost(frozen) > 0;
}

size_t frozen_go_lost(const struct frozen *frozen)
{
	size_t n = 0;

	for (size_t i = 0; i < frozen->n_go; i++)
		n += frozen->go[i].lost != NULL;
	return n;
}

/* [[tid, the program's own number of it]] */
static void add_threads(const struct frozen_go *go, struct json_object *o)
{
	struct json_object *list = go->inner ? json_add_new_array(o, "threads") : NULL;

	for (size_t i = 0; list && i < go->n_tids; i++) {
		struct json_object *pair;

		if (!go->inner[i])
			continue;
		pair = json_object_new_array();
		json_append(pair, json_object_new_int(go->tids[i]));
		json_append(pair, json_object_new_int(go->inner[i]));
		json_append(list, pair);
	}
}

struct json_object *frozen_go_to_json(const struct frozen *frozen)
{
	struct json_object *list = json_object_new_array();

	for (size_t i = 0; list && i < frozen->n_go; i++) {
		const struct frozen_go *go = &frozen->go[i];
		struct json_object *o = json_object_new_object(), *lost;

		json_add_int(o, "pid", producer_pid(go->producer));
		json_add_int(o, "nspid", producer_nspid(go->producer));
		json_add_uint(o, "start_time", producer_start_time(go->producer));
		json_add_string(o, "version", producer_go_version(go->producer));
		json_add_uint(o, "wait_ns", go->wait_ns);
		if (go->lost) {
			lost = json_add_new_object(o, "lost");
			json_add_string(lost, "kind", go->lost);
			json_add_text(lost, "why", go->why, strlen(go->why));
			json_add_uint(lost, "from_raw_ns",
				      frozen->raw_ns - (go->keep_ns < frozen->raw_ns
								? go->keep_ns
								: frozen->raw_ns));
			json_add_uint(lost, "to_raw_ns", frozen->raw_ns);
		} else {
			json_add_string(o, "file", go->file);
			add_threads(go, o);
			json_add_uint(o, "bytes", go->bytes);
			if (go->stream.n) {
				json_add_bool(o, "streamed", true);
				json_add_uint(o, "generations_lost", go->stream.lost);
			} else {
				json_add_uint(o, "begin_ns", go->begin_ns);
				json_add_uint(o, "end_ns", go->end_ns);
			}
		}
		json_append(list, o);
	}
	return list;
}
