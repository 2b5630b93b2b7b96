// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_objects.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/hashmap.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/wall_clock.h"
#include "common/control/json.h"
#include "daemon/backend/sample/unwind_builder.h"
#include "daemon/target/target_internal.h"

#define FILES_MAX 16384
#define VDSO_MAX 65536
#define TRIES 3

struct file {
	struct unwind_object object;
	struct stat stat; /* of what it was made of */
	unsigned int failures; /* builds that told nothing of it */
};

/* Those that tables are made of, or will be. */
struct batch {
	struct unwind_source sources[UNWIND_BATCH_MAX];
	struct file *files[UNWIND_BATCH_MAX];
	size_t n;
	uid_t uid, owner;
	bool tables; /* else it is only asked what the files are */
};

struct unwind_objects {
	struct targets *targets; /* back pointer */
	struct unwind_tables *tables;
	struct unwind_builder *builder;
	unwind_objects_fn fn;
	void *arg;
	struct hashmap files; /* struct file, by device and inode */
	struct file vdso;
	struct batch batch;
	uint64_t refused; /* files of which no table could be made */
	bool full;
};

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static uint64_t device_of(const struct unwind_area *area)
{
	return (uint64_t)area->maj << 32 | area->min;
}

/* NULL: there is no memory. */
static struct file *file_get(struct unwind_objects *o, const struct unwind_area *area)
{
	struct file *file;

	if (area->is_vdso)
		return &o->vdso;
	file = (void *)(uintptr_t)hashmap_get(&o->files, device_of(area), area->ino);
	if (file)
		return file;
	if (o->files.n >= FILES_MAX)
		return NULL;
	file = calloc(1, sizeof(*file));
	if (!file || hashmap_put(&o->files, device_of(area), area->ino, (uintptr_t)file) < 0) {
		free(file);
		return NULL;
	}
	return file;
}

/* The file of a mapping, where a target has it open. */
struct found {
	int fd; /* -1: none has */
	bool opening;
	uid_t uid; /* of the target */
	const uint8_t *head; /* see image_head() */
};

static struct found find(const struct unwind_objects *o, pid_t pid, const struct unwind_area *area)
{
	const struct member *member = NULL;
	struct found f = {.fd = -1};

	while ((member = member_next(o->targets, pid, member)) != NULL) {
		const struct target *target = member->target;

		f.uid = target_uid(target);
		if (area->is_vdso) {
			f.fd = o->targets->vdso_fd;
			return f;
		}
		for (size_t i = 0; i < target->n_images; i++) {
			const struct image_key *key = image_key(target->images[i]);

			if (key->ino != area->ino || key->maj != area->maj || key->min != area->min)
				continue;
			f.fd = image_fd(target->images[i]);
			f.head = image_head(target->images[i]);
			if (f.fd >= 0)
				return f;
			f.opening |= image_is_opening(target->images[i]);
		}
	}
	return f;
}

/* ---- tables */

/*
 * Whoever takes over a decoder decides about all tables that it makes: it reads files of one owner,
 * and what is kept apart from the rest.
 */
static bool goes_with(const struct batch *b, const struct unwind_source *source, uid_t uid,
		      uid_t owner, bool tables)
{
	return b->n == 0 || (b->uid == uid && b->owner == owner &&
			     b->sources[0].kept == source->kept && b->tables == tables);
}

static void batch_add(struct batch *b, struct file *file, const struct unwind_source *source,
		      uid_t uid, bool tables)
{
	if (b->n == UNWIND_BATCH_MAX || !goes_with(b, source, uid, file->stat.st_uid, tables))
		return;
	/* One that failed is built alone: it may be the fault of another one, or be the fault. */
	if (b->n && (file->failures || b->files[0]->failures))
		return;
	b->uid = uid;
	b->tables = tables;
	b->owner = file->stat.st_uid;
	b->sources[b->n] = *source;
	b->files[b->n++] = file;
	file->object.state = UNWIND_OBJECT_BUILDING;
}

/* What the kernel gives to all processes is known by all of its bytes. */
static bool key_of_vdso(int fd, const struct stat *st, struct unwind_key *ret)
{
	uint8_t bytes[VDSO_MAX];
	ssize_t n = st->st_size <= VDSO_MAX ? io_pread_full(fd, bytes, sizeof(bytes), 0) : -1;

	if (n <= 0)
		return false;
	unwind_key_of_bytes(bytes, (size_t)n, ret);
	return true;
}

static struct unwind_source source_of(const struct unwind_area *area, const struct found *f,
				      const struct stat *st)
{
	struct unwind_source source = {.fd = f->fd};

	source.kept = area->is_vdso
			      ? key_of_vdso(f->fd, st, &source.key)
			      : unwind_key_of(st, f->head, (int64_t)(wall_clock_ns() / 1000000000u),
					      &source.key);
	return source;
}

/* The builder failed, which says nothing of the file. */
static bool is_transient(int result)
{
	return result == -EIO || result == -ENOMEM || result == -EAGAIN || result == -EBUSY;
}

static void forget_runtimes(struct unwind_object *object)
{
	free(object->python);
	free(object->go);
	object->python = NULL;
	object->go = NULL;
}

/* Without memory it is none. */
static void keep_runtimes(struct unwind_object *object, const struct python_object *python,
			  const struct go_object *go)
{
	forget_runtimes(object);
	object->python = python->is == PYTHON_ABSENT ? NULL : malloc(sizeof(*python));
	if (object->python)
		*object->python = *python;
	object->go = go->is == GO_ABSENT ? NULL : malloc(sizeof(*go));
	if (object->go)
		*object->go = *go;
}

static void on_built(void *arg, const struct unwind_built *built, size_t n)
{
	struct unwind_objects *o = arg;

	for (size_t i = 0; i < n && i < o->batch.n; i++) {
		struct file *file = o->batch.files[i];
		struct unwind_object *object = &file->object;

		object->place = built[i].place;
		keep_runtimes(object, &built[i].python, &built[i].go);
		if (is_transient(built[i].result) && ++file->failures < TRIES) {
			object->state = UNWIND_OBJECT_NEW;
			continue;
		}
		object->looked = true;
		if (!o->batch.tables) {
			object->state = UNWIND_OBJECT_NEW;
			file->failures = 0;
			continue;
		}
		object->state = built[i].result == 0 ? UNWIND_OBJECT_READY : UNWIND_OBJECT_NONE;
		o->refused += built[i].result < 0;
		if (built[i].result == -ENOSPC && !o->full) {
			log_notice(
				"no room is left for tables of unwind rules: stacks with code of further files are copied");
			o->full = true;
		}
	}
	o->batch.n = 0;
	o->fn(o->arg);
}

void unwind_objects_make(struct unwind_objects *o)
{
	const struct batch *b = &o->batch;
	int r;

	if (!b->n || unwind_builder_is_busy(o->builder))
		return;
	r = unwind_builder_start(o->builder, b->uid, b->sources, b->n, b->tables);
	if (r < 0) {
		struct unwind_built failed[UNWIND_BATCH_MAX];

		log_debug("tables of unwind rules: %s", strerror(-r));
		for (size_t i = 0; i < b->n; i++)
			failed[i] = (struct unwind_built){.result = r};
		on_built(o, failed, b->n);
	}
}

const struct unwind_object *unwind_objects_look(struct unwind_objects *o, pid_t pid,
						const struct unwind_area *area, bool tables)
{
	static const struct unwind_object coming = {.state = UNWIND_OBJECT_NEW};
	struct unwind_source source;
	struct unwind_object *object;
	struct file *file;
	struct found found;
	struct stat st;

	if (!area->ino && !area->is_vdso)
		return NULL;
	file = file_get(o, area);
	if (!file)
		return NULL;
	object = &file->object;
	found = find(o, pid, area);
	if (object->state == UNWIND_OBJECT_BUILDING)
		return object;
	/*
	 * Until it is open nothing says that it is the file that a table was made of: another one
	 * may have had the inode.
	 */
	if (found.fd < 0)
		return found.opening ? &coming : NULL;
	if (fstat(found.fd, &st) < 0)
		return NULL;
	/* The inode has become another file's, or the file another program. */
	if ((object->state != UNWIND_OBJECT_NEW || object->looked) &&
	    !is_same_file(&file->stat, &st)) {
		object->state = UNWIND_OBJECT_NEW;
		object->looked = false;
		file->failures = 0;
	}
	if (object->state == UNWIND_OBJECT_NEW && (tables ? !o->full : !object->looked)) {
		file->stat = st;
		if (!unwind_builder_is_busy(o->builder)) {
			source = source_of(area, &found, &st);
			source.kept &= tables;
			batch_add(&o->batch, file, &source, found.uid, tables);
		}
	}
	return tables && o->full && object->state == UNWIND_OBJECT_NEW ? NULL : object;
}

void unwind_objects_status(const struct unwind_objects *o, struct json_object *status)
{
	struct unwind_usage usage;

	unwind_tables_usage(o->tables, &usage);
	json_add_uint(status, "files", o->files.n);
	json_add_uint(status, "files_refused", o->refused);
	json_add_uint(status, "rows", usage.rows);
	json_add_uint(status, "rules", usage.rules);
	json_add_uint(status, "table_bytes", usage.slabs * UNWIND_SLAB_ROWS * sizeof(uint32_t));
	json_add_bool(status, "full", o->full);
	unwind_builder_status(o->builder, status);
}

/* ---- life */

DEFINE_CLEANUP(struct unwind_objects *, unwind_objects_free)

int unwind_objects_new(struct targets *targets, const struct filter *filter, unwind_objects_fn fn,
		       void *arg, struct unwind_objects **ret)
{
	_cleanup_(unwind_objects_freep) struct unwind_objects *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->targets = targets;
	o->fn = fn;
	o->arg = arg;
	r = unwind_tables_new(filter, &o->tables);
	if (r == 0)
		r = unwind_builder_new(targets, o->tables, on_built, o, &o->builder);
	if (r < 0)
		return r;
	*ret = take_ptr(o);
	return 0;
}

struct unwind_objects *unwind_objects_free(struct unwind_objects *o)
{
	struct file *file;
	uint32_t pos = 0;

	if (!o)
		return NULL;
	while ((file = (struct file *)(uintptr_t)hashmap_next(&o->files, &pos)) != NULL) {
		forget_runtimes(&file->object);
		free(file);
	}
	forget_runtimes(&o->vdso.object);
	hashmap_fini(&o->files);
	(void)unwind_builder_free(o->builder);
	(void)unwind_tables_free(o->tables);
	free(o);
	return NULL;
}
