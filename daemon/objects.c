// SPDX-License-Identifier: Apache-2.0
#include "daemon/objects.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/bundle.h"
#include "common/json.h"
#include "common/safefile.h"

struct object {
	char *path; /* as the decoder asked */
	char *file; /* where it goes in images/ */
	int fd;
	uint32_t maj, min;
	uint64_t ino;
	uint64_t size;
	bool copied;
};

struct objects {
	struct object items[OBJECTS_MAX];
	size_t n;
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
static bool known(const struct objects *o, const struct stat *st, const char *file)
{
	struct stat other;

	for (size_t i = 0; i < o->n; i++)
		if (!strcmp(o->items[i].file, file) && fstat(o->items[i].fd, &other) == 0 && other.st_dev == st->st_dev &&
		    other.st_ino == st->st_ino)
			return true;
	return false;
}

void objects_add(struct objects *o, const struct declink_need *need, const char *found, int fd)
{
	struct object *i = &o->items[o->n];
	const char *file = *found ? found : need->path;
	char by_inode[64];
	size_t len;
	struct stat st;

	if ((!o->all && need->kind != NEED_PERFMAP) || fstat(fd, &st) < 0)
		return;
	file += strspn(file, "/");
	(void)snprintf(by_inode, sizeof(by_inode), ".inode/%u-%u-%llu", need->maj, need->min,
		       (unsigned long long)need->ino);
	if (known(o, &st, file) || known(o, &st, by_inode))
		return;
	/* "/usr/bin/x (deleted)" is no name a reader would look for */
	len = strlen(file);
	if (!bundle_name_is_valid(file) || taken(o, file) || !strncmp(file, ".inode", 6) || !strcmp(file, "vdso.so") ||
	    (len > 10 && !strcmp(file + len - 10, " (deleted)")))
		file = by_inode;
	if (o->n == OBJECTS_MAX || (file == by_inode && (need->ino == 0 || taken(o, by_inode)))) {
		o->left_out++;
		return;
	}
	*i = (struct object){.fd = fcntl(fd, F_DUPFD_CLOEXEC, 3), .maj = need->maj, .min = need->min, .ino = need->ino};
	i->path = strdup(need->path);
	i->file = strdup(file);
	if (i->fd < 0 || !i->path || !i->file) {
		object_fini(i);
		o->left_out++;
		return;
	}
	o->n++;
}

static int copy_one(struct object *i, int images_fd, uint64_t max, uint64_t *ret_size)
{
	_cleanup_close_ int out = -1;
	int r;

	r = safefile_create(images_fd, i->file, &out);
	/* the path goes through what is a file here: a name out of another world */
	if (r == -ENOTDIR || r == -EEXIST || r == -ELOOP || r == -EISDIR || r == -EINVAL || r == -ENAMETOOLONG)
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
		if (!e)
			break;
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
