// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/procfs.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "common/control/json.h"

struct object {
	char *path; /* as the decoder asked */
	char *file; /* where it goes in images/ */
	int fd;
	uint64_t file_dev, file_ino; /* what the file is */
	uint32_t maj, min;	     /* and what the decoder called it */
	uint64_t ino;
	uint64_t size;
	bool copied;
};

struct offer {
	uint32_t req;
	struct object object; /* `file` is where it was found, for now */
};

struct objects {
	struct object items[OBJECTS_MAX];
	size_t n;
	struct offer offers[OBJECTS_MAX_OFFERED];
	size_t n_offers;
	uint64_t left_out;
	bool all;
};

int objects_new(bool all, struct objects **ret)
{
	struct objects *o = calloc(1, sizeof(*o));

	if (!o)
		return -ENOMEM;
	o->all = all;
	*ret = o;
	return 0;
}

static void object_fini(struct object *i)
{
	free(i->path);
	free(i->file);
	close_fdp(&i->fd);
}

void objects_free(struct objects *o)
{
	if (!o)
		return;
	objects_settle(o);
	for (size_t i = 0; i < o->n; i++)
		object_fini(&o->items[i]);
	free(o);
}

static bool taken(const struct objects *o, const char *file)
{
	for (size_t i = 0; i < o->n; i++)
		if (!strcmp(o->items[i].file, file))
			return true;
	return false;
}

/* The file's own identity, not the one the decoder said: two requests may lead to one file. */
static bool known(const struct objects *o, const struct object *new, const char *file)
{
	for (size_t i = 0; i < o->n; i++)
		if (!strcmp(o->items[i].file, file) && o->items[i].file_dev == new->file_dev &&
		    o->items[i].file_ino == new->file_ino)
			return true;
	return false;
}

bool objects_want(const struct objects *o, enum file_request_kind kind)
{
	return o->all || kind == FILE_REQUEST_PERFMAP;
}

void objects_offer(struct objects *o, const struct file_request *request, const char *found,
		   uint64_t dev, uint64_t ino, int fd)
{
	struct offer *offer = &o->offers[o->n_offers];
	struct object i = {
		.fd = fd,
		.file_dev = dev,
		.file_ino = ino,
		.maj = request->maj,
		.min = request->min,
		.ino = request->ino,
		.path = strdup(request->path),
		.file = strdup(*found ? found : request->path),
	};

	if (o->n_offers == OBJECTS_MAX_OFFERED || !i.path || !i.file) {
		object_fini(&i);
		o->left_out++;
		return;
	}
	*offer = (struct offer){.req = request->req, .object = i};
	o->n_offers++;
}

/* Takes over what was offered. */
static void add(struct objects *o, struct object *new)
{
	const char *file = new->file + strspn(new->file, "/");
	size_t len = strlen(file);
	char by_inode[64], *name;

	(void)snprintf(by_inode, sizeof(by_inode), ".inode/%u-%u-%llu", new->maj, new->min,
		       (unsigned long long)new->ino);
	if (known(o, new, file) || known(o, new, by_inode)) {
		object_fini(new);
		return;
	}
	/* "/usr/bin/x (deleted)" is no name a reader would look for */
	if (!bundle_name_is_valid(file) || taken(o, file) || !strncmp(file, ".inode", 6) ||
	    !strcmp(file, "vdso.so") || proc_path_len(file, len) < len)
		file = by_inode;
	name = strdup(file);
	if (!name || o->n == OBJECTS_MAX ||
	    (file == by_inode && (new->ino == 0 || taken(o, by_inode)))) {
		free(name);
		object_fini(new);
		o->left_out++;
		return;
	}
	free(new->file);
	new->file = name;
	o->items[o->n++] = *new;
}

void objects_judge(struct objects *o, uint32_t req, bool recognised)
{
	for (size_t i = 0; i < o->n_offers; i++) {
		struct object object = o->offers[i].object;

		if (o->offers[i].req != req)
			continue;
		o->offers[i] = o->offers[--o->n_offers];
		if (recognised)
			add(o, &object);
		else
			object_fini(&object);
		return;
	}
}

void objects_settle(struct objects *o)
{
	while (o->n_offers > 0)
		object_fini(&o->offers[--o->n_offers].object);
}

static int copy_one(struct object *i, int images_fd, uint64_t max, uint64_t *ret_size)
{
	_cleanup_close_ int out = -1;
	int r;

	r = safefile_create(images_fd, i->file, &out);
	/* the path goes through what is a file here: a name out of another world */
	if (r == -ENOTDIR || r == -EEXIST || r == -ELOOP || r == -EISDIR || r == -EINVAL ||
	    r == -ENAMETOOLONG)
		return 0;
	if (r < 0)
		return r;
	r = safefile_copy(i->fd, out, max, ret_size);
	if (r == -ENOSPC || r == -EDQUOT)
		return r;
	i->copied = r == 0;
	if (r < 0) {
		/* larger than what is left, or unreadable: not half of it */
		*ret_size = 0;
		return ftruncate(out, 0) < 0 || unlinkat(images_fd, i->file, 0) < 0 ? -errno : 0;
	}
	return 0;
}

int objects_copy(struct objects *o, int images_fd, uint64_t max_bytes, const atomic_bool *cancel)
{
	uint64_t done = 0;

	for (size_t k = 0; k < o->n; k++) {
		struct object *i = &o->items[k];
		uint64_t size = 0;
		struct stat st;
		int r = 0;

		if (atomic_load(cancel))
			return -ECANCELED;
		if (fstat(i->fd, &st) == 0 && (uint64_t)st.st_size <= max_bytes - done)
			r = copy_one(i, images_fd, max_bytes - done, &size);
		if (r < 0)
			return r;
		if (!i->copied) {
			o->left_out++;
			continue;
		}
		i->size = size;
		done += size;
	}
	return 0;
}

struct json_object *objects_to_json(const struct objects *o)
{
	struct json_object *array = json_object_new_array();

	for (size_t k = 0; array && k < o->n; k++) {
		const struct object *i = &o->items[k];
		struct json_object *e;

		if (!i->copied)
			continue;
		e = json_object_new_object();
		json_add_text(e, "path", i->path, strlen(i->path));
		json_add_string(e, "file", i->file);
		if (i->ino) {
			json_add_uint(e, "maj", i->maj);
			json_add_uint(e, "min", i->min);
			json_add_int(e, "ino", (int64_t)i->ino);
		}
		json_add_uint(e, "size", i->size);
		json_append(array, e);
	}
	return array;
}

uint64_t objects_left_out(const struct objects *o)
{
	return o->left_out;
}
