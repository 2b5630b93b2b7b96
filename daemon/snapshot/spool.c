// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/spool_internal.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "common/control/json.h"
#include "daemon/base/lock.h"

/* ---- ids */

bool spool_id_is_valid(const char *id)
{
	static const char pattern[] = "dddddddd-dddddd-xxxx";

	for (size_t i = 0; i < SPOOL_ID_LEN; i++) {
		const unsigned char c = (unsigned char)id[i];

		if (pattern[i] == '-'   ? c != '-'
		    : pattern[i] == 'd' ? !isdigit(c)
					: !isdigit(c) && (c < 'a' || c > 'f'))
			return false;
	}
	return id[SPOOL_ID_LEN] == '\0';
}

void spool_new_id(const struct spool *s, char ret[SPOOL_ID_LEN + 1])
{
	struct stat st;

	for (unsigned tries = 0; tries < 1000; tries++) {
		uint16_t bits = (uint16_t)tries;
		time_t t = time(NULL);
		struct tm tm;
		char tmp[SPOOL_ID_LEN + sizeof(SAFEFILE_TMP_PREFIX)], stamp[16],
			removed[SPOOL_ID_LEN + sizeof(SPOOL_REMOVED_PREFIX)];

		(void)gmtime_r(&t, &tm);
		if (getrandom(&bits, sizeof(bits), GRND_NONBLOCK) < 0)
			bits = (uint16_t)(tries + (unsigned)io_now_ns());
		(void)strftime(stamp, sizeof(stamp), "%Y%m%d-%H%M%S", &tm);
		(void)snprintf(ret, SPOOL_ID_LEN + 1, "%s-%04x", stamp, bits);
		(void)snprintf(tmp, sizeof(tmp), "%s%s", SAFEFILE_TMP_PREFIX, ret);
		(void)snprintf(removed, sizeof(removed), "%s%s", SPOOL_REMOVED_PREFIX, ret);
		if (fstatat(s->dir_fd, ret, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
		    fstatat(s->dir_fd, tmp, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
		    fstatat(s->dir_fd, removed, &st, AT_SYMLINK_NOFOLLOW) < 0)
			return;
	}
}

/* ---- the list */

static int compare_items(const struct spool_item *a, const struct spool_item *b)
{
	if (a->published_ns != b->published_ns)
		return a->published_ns < b->published_ns ? -1 : 1;
	return strcmp(a->id, b->id);
}

static void item_free(struct spool_item *item)
{
	if (!item)
		return;
	quota_release(&item->charge);
	json_object_put(item->info);
	free(item);
}
DEFINE_CLEANUP(struct spool_item *, item_free)

/* A place in the list for one more than is promised already. */
static int grow(struct spool *s)
{
	size_t n = s->size_items ? s->size_items * 2 : 64;
	struct spool_item **p;

	if (s->n_items + s->n_reserved < s->size_items)
		return 0;
	p = reallocarray(s->items, n, sizeof(*p));
	if (!p)
		return -ENOMEM;
	s->items = p;
	s->size_items = n;
	return 0;
}

int spool_reserve(struct spool *s, const char *id, uid_t owner, struct spool_item **ret)
{
	_cleanup_(item_freep) struct spool_item *item = calloc(1, sizeof(*item));
	int r;

	if (!item)
		return -ENOMEM;
	(void)snprintf(item->id, sizeof(item->id), "%s", id);
	item->owner = owner;
	r = grow(s);
	if (r == 0)
		r = quota_charge_forced(s->quota, owner, QUOTA_SPOOL_BYTES, 0, &item->charge);
	if (r != 0)
		return r < 0 ? r : -EOVERFLOW;
	s->n_reserved++;
	*ret = take_ptr(item);
	return 0;
}

void spool_unreserve(struct spool *s, struct spool_item *item)
{
	if (!item)
		return;
	s->n_reserved--;
	item_free(item);
}

void spool_item_set_bytes(struct spool_item *item, uint64_t bytes)
{
	item->bytes = bytes;
	quota_resize(&item->charge, bytes);
}

void spool_add(struct spool *s, struct spool_item *item, uint64_t bytes, uint64_t published_ns)
{
	size_t i;

	s->n_reserved--;
	spool_item_set_bytes(item, bytes);
	item->published_ns = published_ns;
	for (i = s->n_items; i > 0 && compare_items(s->items[i - 1], item) > 0; i--)
		s->items[i] = s->items[i - 1];
	s->items[i] = item;
	s->n_items++;
}

void spool_drop(struct spool *s, struct spool_item *item)
{
	size_t i = 0;

	while (s->items[i] != item)
		i++;
	s->n_items--;
	memmove(s->items + i, s->items + i + 1, (s->n_items - i) * sizeof(*s->items));
	item_free(item);
}

struct spool_item *spool_find_item(const struct spool *s, const char *id)
{
	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i]->state == SPOOL_KEPT && !strcmp(s->items[i]->id, id))
			return s->items[i];
	return NULL;
}

const struct spool_item *spool_find(const struct spool *s, const char *id)
{
	return spool_find_item(s, id);
}

int spool_dir_fd(const struct spool *s)
{
	return s->dir_fd;
}

size_t spool_count(const struct spool *s)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_items; i++)
		n += s->items[i]->state == SPOOL_KEPT;
	return n;
}

uint64_t spool_sum_bytes(const struct spool *s, unsigned states)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n_items; i++)
		if (states & SPOOL_STATE(s->items[i]->state))
			sum += s->items[i]->bytes;
	return sum;
}

uint64_t spool_bytes(const struct spool *s)
{
	return spool_sum_bytes(s, ~0U);
}

size_t spool_removing(const struct spool *s, uint64_t *ret_bytes)
{
	*ret_bytes = spool_sum_bytes(s, SPOOL_STATE(SPOOL_LEAVING) | SPOOL_STATE(SPOOL_HELD));
	return s->n_items - spool_count(s);
}

const struct spool_item *spool_at(const struct spool *s, size_t i)
{
	return i < s->n_items ? s->items[i] : NULL;
}

uint64_t spool_uid_bytes(const struct spool *s, uid_t uid)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < s->n_items; i++)
		if (s->items[i]->owner == uid)
			sum += s->items[i]->bytes;
	return sum;
}

void spool_set_removed(struct spool *s, spool_removed_fn fn, void *arg)
{
	s->removed = fn;
	s->removed_arg = arg;
}

/* ---- at start */

/*
 * One directory of a published snapshot, or of a removed one that somebody held when the last
 * daemon ended. What cannot be read is root's and the oldest: seen, and first to go.
 */
static int load_item(struct spool *s, const char *name, bool removed)
{
	_cleanup_close_ int dir =
		openat(s->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	_cleanup_json_ struct json_object *info = NULL;
	uint64_t bytes = 0, published = 0, uid = 0;
	struct json_object *snapshot;
	struct spool_item *item;
	struct bundle bundle;
	int r;

	if (dir < 0)
		return -errno;
	r = safefile_tree_size(dir, &bytes);
	if (r < 0)
		return r;
	r = bundle_open(dir, &bundle);
	if (r == 0) {
		snapshot = bundle.meta ? json_get_object(bundle.meta, "snapshot") : NULL;
		if (snapshot && json_get_uint(snapshot, "uid", &uid) && uid < (uid_t)-1 &&
		    json_get_uint(snapshot, "published_at", &published))
			info = json_object_get(snapshot);
		bundle_close(&bundle);
	}
	if (!info) {
		if (!removed)
			log_warning(
				"spool: %s has no readable meta.json; only administrators see it",
				name);
		uid = 0;
		published = 0;
		info = json_object_new_object();
		if (!info)
			return -ENOMEM;
	}
	r = spool_reserve(s, removed ? name + strlen(SPOOL_REMOVED_PREFIX) : name, (uid_t)uid,
			  &item);
	if (r < 0)
		return r;
	item->info = take_ptr(info);
	item->handed_out = true; /* by an earlier run, for all we know */
	if (removed) {
		item->state = SPOOL_HELD;
		item->removed_ns = io_now_ns();
	}
	spool_add(s, item, bytes, published);
	return 0;
}

static int load(struct spool *s)
{
	_cleanup_close_ int fd = openat(s->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;

	if (!dir)
		return -errno;
	(void)take_fd(&fd);
	while ((e = readdir(dir)) != NULL) {
		bool removed =
			!strncmp(e->d_name, SPOOL_REMOVED_PREFIX, strlen(SPOOL_REMOVED_PREFIX));
		int r;

		if (!spool_id_is_valid(removed ? e->d_name + strlen(SPOOL_REMOVED_PREFIX)
					       : e->d_name))
			continue;
		r = load_item(s, e->d_name, removed);
		if (r == -ENOMEM) {
			(void)closedir(dir);
			return r;
		}
		if (r < 0)
			log_warning("spool: cannot read %s: %s", e->d_name, strerror(-r));
	}
	(void)closedir(dir);
	return 0;
}

static int open_dir(const char *state_dir, int *ret_fd, int *ret_lock_fd)
{
	_cleanup_close_ int state = -1, fd = -1;
	int r;

	if (mkdir(state_dir, 0700) < 0 && errno != EEXIST)
		return -errno;
	state = open(state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (state < 0)
		return -errno;
	if (mkdirat(state, "spool", 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(state, "spool", O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	r = lock_file(state, "spool.lock", ret_lock_fd);
	if (r < 0)
		return r;
	*ret_fd = take_fd(&fd);
	return 0;
}

int spool_open(const char *state_dir, const struct spool_limits *limits, struct quota *quota,
	       struct spool **ret)
{
	_cleanup_(spool_closep) struct spool *s = calloc(1, sizeof(*s));
	unsigned removed = 0;
	int r;

	if (!s)
		return -ENOMEM;
	s->dir_fd = s->lock_fd = -1;
	s->limits = *limits;
	s->quota = quota;
	r = open_dir(state_dir, &s->dir_fd, &s->lock_fd);
	if (r < 0)
		return r;
	r = safefile_sweep(s->dir_fd, &removed);
	if (r < 0)
		return r;
	if (removed > 0)
		log_notice("spool: removed %u incomplete snapshots of an earlier run", removed);
	r = load(s);
	if (r < 0)
		return r;
	*ret = take_ptr(s);
	return 0;
}

void spool_close(struct spool *s)
{
	if (!s)
		return;
	for (size_t i = 0; i < s->n_items; i++)
		item_free(s->items[i]);
	free(s->items);
	close_fdp(&s->dir_fd);
	close_fdp(&s->lock_fd);
	free(s);
}

/* ---- files */

static int add_file(void *arg, const char *name, uint64_t size)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return -ENOMEM;
	json_add_string(o, "name", name);
	json_add_uint(o, "size", size);
	json_append(arg, o);
	return 0;
}

static int item_dir(const struct spool *s, const char *id, int *ret_fd)
{
	int fd;

	if (!spool_find(s, id))
		return -ENOENT;
	fd = openat(s->dir_fd, id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

int spool_files(const struct spool *s, const char *id, struct json_object **ret)
{
	_cleanup_json_ struct json_object *array = json_object_new_array();
	_cleanup_close_ int dir = -1;
	int r;

	if (!array)
		return -ENOMEM;
	r = item_dir(s, id, &dir);
	if (r == 0)
		r = bundle_files(dir, add_file, array);
	if (r < 0)
		return r;
	*ret = take_ptr(array);
	return 0;
}

int spool_open_file(struct spool *s, const char *id, const char *name, int *ret_fd,
		    uint64_t *ret_size)
{
	_cleanup_close_ int dir = -1;
	struct spool_item *item;
	int r;

	if (!bundle_name_is_valid(name))
		return -ENOENT;
	r = item_dir(s, id, &dir);
	if (r < 0)
		return r;
	r = safefile_open(dir, name, ret_fd, ret_size);
	item = spool_find_item(s, id);
	if (r == 0 && item)
		item->handed_out = true;
	/* a directory, a link: whatever it is, it is no file of the list */
	return r == -ELOOP || r == -ENOTDIR || r == -EISDIR ? -ENOENT : r;
}
