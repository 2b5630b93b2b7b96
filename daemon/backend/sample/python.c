// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/python.h"

#include <errno.h>
#include <event2/event.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include "common/base/escape.h"
#include "common/base/hashmap.h"
#include "common/bundle/python_layout.h"
#include "common/control/json.h"
#include "daemon/backend/sample/filter.h"

static const char *const whys[PYTHON_WHYS] = {
	[PYTHON_COMPLETE] = "complete",
	[PYTHON_DEEP] = "cut",
	[PYTHON_NO_THREAD] = "no_thread",
	[PYTHON_NO_READ] = "no_read",
	[PYTHON_SUBINTERPRETERS] = "subinterpreters",
	[PYTHON_CROWDED] = "crowded",
	[PYTHON_BETWEEN] = "between",
};

void python_object_parse(struct json_object *o, struct python_object *ret)
{
	const char *refused = o ? json_get_string(o, "refused") : NULL;
	uint64_t minor = 0;

	*ret = (struct python_object){.is = PYTHON_ABSENT};
	if (!o)
		return;
	if (json_get_uint(o, "minor", &minor) && minor <= 255)
		ret->minor = (unsigned int)minor;
	if (!refused && json_get_uint(o, "runtime", &ret->runtime) &&
	    ret->runtime < UINT64_C(1) << 47 &&
	    python_layout_parse(json_get_array(o, "layout"), &ret->layout) == 0) {
		ret->is = PYTHON_KNOWN;
		return;
	}
	ret->is = PYTHON_REFUSED;
	escape_text(ret->refused, sizeof(ret->refused), refused ? refused : "?",
		    refused ? strlen(refused) : 1);
}

struct json_object *python_describe(pid_t pid, const struct python_object *object,
				    const struct python_counts *counts)
{
	struct json_object *o = json_object_new_object();
	char version[8] = "3";

	if (!o)
		return NULL;
	if (object->minor)
		(void)snprintf(version, sizeof(version), "3.%u", object->minor & 0xff);
	json_add_uint(o, "pid", (uint64_t)pid);
	json_add_string(o, "version", version);
	json_add_string(o, "refused", object->is == PYTHON_REFUSED ? object->refused : "");
	for (size_t i = 0; i < PYTHON_WHYS; i++)
		json_add_uint(o, whys[i], counts->whys[i]);
	json_add_uint(o, "unnamed", counts->unnamed);
	return o;
}

#ifdef HAVE_BPF

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define FUNCTIONS_MAX 65536u
#define SHARE_MAX 16384u /* of one process */
#define SECOND_CHANCES 64u /* so many that are still in use are passed over for one that goes */

/* A function as it is kept: without the room that its names do not need. */
struct function {
	TAILQ_ENTRY(function) link; /* of its owner */
	uint64_t id, code;
	uint32_t pid, generation, line;
	uint16_t name_bytes, file_bytes;
	uint8_t name_kind, file_kind, name_cut, file_cut;
	uint8_t text[]; /* the name, then the file */
};

/*
 * The functions of one process, the oldest first, or those that have not been seen for the longest.
 */
struct owner {
	uint32_t pid, n;
	TAILQ_HEAD(, function) functions;
};

struct python {
	const struct filter *filter; /* borrowed */
	int processes_fd, codes_fd; /* the filter's */
	struct ring_buffer *ring;
	struct event *readable;
	struct hashmap generations; /* of each process that the programs know */
	uint32_t generation;
	pthread_mutex_t mutex; /* of all below */
	struct hashmap functions; /* by number */
	struct hashmap owners; /* by process */
	uint64_t bytes, refused;
};

/* ---- functions */

static struct owner *owner_get(struct python *p, uint32_t pid)
{
	struct owner *o = hashmap_pointer(&p->owners, pid);

	if (o)
		return o;
	o = calloc(1, sizeof(*o));
	if (!o || hashmap_put_pointer(&p->owners, pid, o) < 0) {
		free(o);
		return NULL;
	}
	o->pid = pid;
	TAILQ_INIT(&o->functions);
	return o;
}

static void owner_free_if_idle(struct python *p, struct owner *o)
{
	if (o->n)
		return;
	hashmap_drop(&p->owners, 0, o->pid);
	free(o);
}

static struct owner *largest(const struct python *p)
{
	struct owner *o, *most = NULL;
	uint32_t pos = 0;

	while ((o = (struct owner *)(uintptr_t)hashmap_next(&p->owners, &pos)) != NULL)
		if (!most || o->n > most->n)
			most = o;
	return most;
}

/*
 * The first that has not been seen since it was last passed over. Records in the rings have its
 * number, and no name then: those of a program's main functions, which are its oldest, are not to
 * go for those that it makes and runs once. The programs write it down again when it is seen again.
 */
static void forget_one(struct python *p, struct owner *o)
{
	struct python_code_key key;
	struct function *f;

	for (unsigned int i = 0;; i++) {
		struct python_code_seen seen;

		f = TAILQ_FIRST(&o->functions);
		key = (struct python_code_key){.pid = f->pid,
					       .generation = f->generation,
					       .code = f->code};
		if (p->codes_fd < 0 || bpf_map_lookup_elem(p->codes_fd, &key, &seen) < 0 ||
		    seen.id != f->id)
			break;
		if (!seen.used || i == SECOND_CHANCES) {
			(void)bpf_map_delete_elem(p->codes_fd, &key);
			break;
		}
		seen.used = 0;
		(void)bpf_map_update_elem(p->codes_fd, &key, &seen, BPF_EXIST);
		TAILQ_REMOVE(&o->functions, f, link);
		TAILQ_INSERT_TAIL(&o->functions, f, link);
	}
	TAILQ_REMOVE(&o->functions, f, link);
	o->n--;
	hashmap_drop(&p->functions, 0, f->id);
	p->bytes -= sizeof(*f) + f->name_bytes + f->file_bytes;
	free(f);
}

static int keep(struct python *p, const struct python_function *from)
{
	const size_t size = sizeof(struct function) + from->name_bytes + from->file_bytes;
	struct owner *o = owner_get(p, from->pid), *most;
	struct function *f;

	if (!o)
		return -ENOMEM;
	/* Nobody's are lost for those of another process that has more. */
	most = o->n >= SHARE_MAX ? o : p->functions.n >= FUNCTIONS_MAX ? largest(p) : NULL;
	if (most) {
		forget_one(p, most);
		if (most != o)
			owner_free_if_idle(p, most);
	}
	f = malloc(size);
	if (!f) {
		owner_free_if_idle(p, o);
		return -ENOMEM;
	}
	*f = (struct function){.id = from->id,
			       .code = from->code,
			       .pid = from->pid,
			       .generation = from->generation,
			       .line = from->line,
			       .name_bytes = from->name_bytes,
			       .file_bytes = from->file_bytes,
			       .name_kind = from->name_kind,
			       .file_kind = from->file_kind,
			       .name_cut = from->name_cut,
			       .file_cut = from->file_cut};
	memcpy(f->text, from->name, f->name_bytes);
	memcpy(f->text + f->name_bytes, from->file, f->file_bytes);
	if (hashmap_put_pointer(&p->functions, f->id, f) < 0) {
		free(f);
		owner_free_if_idle(p, o);
		return -ENOMEM;
	}
	TAILQ_INSERT_TAIL(&o->functions, f, link);
	o->n++;
	p->bytes += size;
	return 0;
}

static int on_function(void *arg, void *data, size_t size)
{
	const struct python_function *from = data;
	struct python *p = arg;

	if (size < sizeof(*from) || from->name_bytes > sizeof(from->name) ||
	    from->file_bytes > sizeof(from->file))
		return 0;
	pthread_mutex_lock(&p->mutex);
	if (keep(p, from) < 0)
		p->refused++;
	pthread_mutex_unlock(&p->mutex);
	return 0;
}

void python_consume(struct python *p)
{
	(void)ring_buffer__consume(p->ring);
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
	python_consume(arg);
}

int python_function_get(struct python *p, uint64_t id, struct python_function *ret)
{
	const struct function *f;

	pthread_mutex_lock(&p->mutex);
	f = hashmap_pointer(&p->functions, id);
	if (f) {
		memset(ret, 0, sizeof(*ret));
		ret->id = f->id;
		ret->pid = f->pid;
		ret->generation = f->generation;
		ret->line = f->line;
		ret->name_bytes = f->name_bytes;
		ret->file_bytes = f->file_bytes;
		ret->name_kind = f->name_kind;
		ret->file_kind = f->file_kind;
		ret->name_cut = f->name_cut;
		ret->file_cut = f->file_cut;
		memcpy(ret->name, f->text, f->name_bytes);
		memcpy(ret->file, f->text + f->name_bytes, f->file_bytes);
	}
	pthread_mutex_unlock(&p->mutex);
	return f ? 0 : -ENOENT;
}

/* ---- processes */

void python_count(const struct python *p, pid_t pid, struct python_counts *sum)
{
	uint32_t key = (uint32_t)pid;
	struct python_process entry;

	if (bpf_map_lookup_elem(p->processes_fd, &key, &entry) < 0)
		return;
	for (size_t i = 0; i < PYTHON_WHYS; i++)
		sum->whys[i] += entry.whys[i];
	sum->unnamed += entry.unnamed;
}

void python_drop(struct python *p, pid_t pid, struct python_counts *sum)
{
	uint32_t key = (uint32_t)pid;

	python_count(p, pid, sum);
	(void)bpf_map_delete_elem(p->processes_fd, &key);
	hashmap_drop(&p->generations, 0, key);
}

int python_put(struct python *p, pid_t pid, uint64_t runtime, const struct python_layout *layout)
{
	struct python_process entry = {.runtime = runtime, .layout = *layout}, old;
	uint32_t key = (uint32_t)pid;
	const uint32_t known = hashmap_index(&p->generations, 0, key);
	int r;

	/*
	 * A program that has just been executed has none, until what is known of the former is
	 * dropped.
	 */
	if (known && bpf_map_lookup_elem(p->processes_fd, &key, &old) == 0 &&
	    old.generation == known &&
	    (!old.runtime ||
	     (old.runtime == runtime && memcmp(&old.layout, layout, sizeof(*layout)) == 0)))
		return 0;
	r = filter_use(p->filter, FILTER_USE_PYTHON, true);
	if (r < 0)
		return r;
	entry.generation = ++p->generation ? p->generation : ++p->generation;
	r = hashmap_put(&p->generations, 0, key, entry.generation);
	if (r < 0)
		return r;
	return bpf_map_update_elem(p->processes_fd, &key, &entry, BPF_ANY) < 0 ? -errno : 0;
}

void python_status(struct python *p, struct json_object *status)
{
	struct json_object *o = json_add_new_object(status, "python");

	pthread_mutex_lock(&p->mutex);
	json_add_uint(o, "processes", p->generations.n);
	json_add_uint(o, "functions", p->functions.n);
	json_add_uint(o, "function_bytes", p->bytes);
	json_add_uint(o, "functions_refused", p->refused);
	pthread_mutex_unlock(&p->mutex);
}

/* ---- life */

DEFINE_CLEANUP(struct python *, python_free)

int python_new(struct event_base *base, const struct filter *filter, struct python **ret)
{
	_cleanup_(python_freep) struct python *p = calloc(1, sizeof(*p));

	if (!p)
		return -ENOMEM;
	(void)pthread_mutex_init(&p->mutex, NULL);
	p->filter = filter;
	p->processes_fd = filter_map_fd(filter, "py_processes");
	p->codes_fd = filter_map_fd(filter, "py_codes");
	p->ring = ring_buffer__new(filter_map_fd(filter, "py_functions"), on_function, p, NULL);
	if (!p->ring)
		return -errno;
	p->readable = event_new(base, ring_buffer__epoll_fd(p->ring), EV_READ | EV_PERSIST,
				on_readable, p);
	if (!p->readable || event_add(p->readable, NULL) < 0)
		return -ENOMEM;
	*ret = take_ptr(p);
	return 0;
}

struct python *python_free(struct python *p)
{
	struct owner *o;

	if (!p)
		return NULL;
	if (p->readable)
		event_free(p->readable);
	ring_buffer__free(p->ring);
	p->codes_fd = -1; /* nobody will see them again */
	while ((o = largest(p)) != NULL) {
		while (o->n)
			forget_one(p, o);
		owner_free_if_idle(p, o);
	}
	hashmap_fini(&p->owners);
	hashmap_fini(&p->functions);
	hashmap_fini(&p->generations);
	(void)pthread_mutex_destroy(&p->mutex);
	free(p);
	return NULL;
}

#else /* !HAVE_BPF: never called */

int python_new(struct event_base *base, const struct filter *filter, struct python **ret)
{
	return -EOPNOTSUPP;
}

struct python *python_free(struct python *p)
{
	return NULL;
}

int python_put(struct python *p, pid_t pid, uint64_t runtime, const struct python_layout *layout)
{
	return -EOPNOTSUPP;
}

void python_drop(struct python *p, pid_t pid, struct python_counts *sum)
{
}

void python_count(const struct python *p, pid_t pid, struct python_counts *sum)
{
}

void python_consume(struct python *p)
{
}

int python_function_get(struct python *p, uint64_t id, struct python_function *ret)
{
	return -ENOENT;
}

void python_status(struct python *p, struct json_object *status)
{
}

#endif
