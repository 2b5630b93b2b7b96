// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_cache.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/control/json.h"

#define DIRECTORY "unwind"
#define FILES_MAX 4096
#define SINCE_START INT64_MAX /* by a clock, it could be set back */
#define NAME_LEN (2 * SHA256_BYTES)
#define TABLE_MAX                                                                                  \
	(sizeof(struct unwind_file) + UNWIND_LOADS_MAX * sizeof(struct unwind_load) +              \
	 ((uint64_t)UNWIND_PAGES_MAX + UNWIND_ROWS_MAX) * sizeof(uint32_t) +                       \
	 UNWIND_RULES_MAX * sizeof(struct unwind_rule))

static_assert(sizeof(struct unwind_key) == 14 * sizeof(uint64_t) + SHA256_BYTES,
	      "its bytes are compared");
static_assert(sizeof(struct unwind_cache_head) % 8 == 0, "the table behind it is aligned");

struct entry {
	TAILQ_ENTRY(entry) link;
	char name[NAME_LEN + 1];
	uint64_t bytes;
	int64_t used_ns; /* as the file's time of modification has it; SINCE_START */
};

struct unwind_cache {
	char *state_dir;
	uint64_t max_bytes;
	struct unwind_inode maker;
	/* the thread's */
	bool tried;
	int dir_fd; /* -1: it cannot be used */
	TAILQ_HEAD(entries_head, entry) entries; /* the least recently used first */
	/* any thread's */
	atomic_uint_fast64_t hits, misses, damaged, thrown_away, unkept, files, bytes;
	atomic_int error; /* errno: the directory cannot be used */
};

static struct unwind_inode inode_of(const struct stat *st)
{
	return (struct unwind_inode){.dev = st->st_dev,
				     .ino = st->st_ino,
				     .size = (uint64_t)st->st_size,
				     .mtime_s = (uint64_t)st->st_mtim.tv_sec,
				     .mtime_ns = (uint64_t)st->st_mtim.tv_nsec,
				     .ctime_s = (uint64_t)st->st_ctim.tv_sec,
				     .ctime_ns = (uint64_t)st->st_ctim.tv_nsec};
}

bool unwind_key_of(const struct stat *st, const uint8_t head[SHA256_BYTES], int64_t now_s,
		   struct unwind_key *ret)
{
	/* Whom an ACL lets write shows in the group's bit. */
	if (!S_ISREG(st->st_mode) || st->st_uid != 0 || (st->st_mode & (S_IWGRP | S_IWOTH)) ||
	    !head)
		return false;
	if (st->st_ctim.tv_sec > now_s - UNWIND_CACHE_REST_S)
		return false;
	*ret = (struct unwind_key){.file = inode_of(st)};
	memcpy(ret->head, head, sizeof(ret->head));
	return true;
}

void unwind_key_of_bytes(const void *data, size_t len, struct unwind_key *ret)
{
	*ret = (struct unwind_key){.file.size = len};
	sha256_of(data, len, ret->head);
}

/* ---- the directory */

static void name_of(const struct unwind_key *key, char ret[NAME_LEN + 1])
{
	uint8_t digest[SHA256_BYTES];

	sha256_of(key, sizeof(*key), digest);
	for (size_t i = 0; i < sizeof(digest); i++)
		(void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

static bool is_name(const char *name)
{
	return strlen(name) == NAME_LEN && strspn(name, "0123456789abcdef") == NAME_LEN;
}

static bool is_ours(const struct stat *st)
{
	return S_ISREG(st->st_mode) && st->st_uid == geteuid() && !(st->st_mode & 077) &&
	       st->st_nlink == 1;
}

static struct entry *entry_find(struct unwind_cache *c, const char *name)
{
	struct entry *e;

	TAILQ_FOREACH(e, &c->entries, link)
		if (strcmp(e->name, name) == 0)
			return e;
	return NULL;
}

static void entry_drop(struct unwind_cache *c, struct entry *e)
{
	if (!e)
		return;
	TAILQ_REMOVE(&c->entries, e, link);
	atomic_fetch_sub(&c->files, 1);
	atomic_fetch_sub(&c->bytes, e->bytes);
	free(e);
}

/* In the order of use; most come from a directory in any order, or last. */
static int entry_add(struct unwind_cache *c, const char *name, uint64_t bytes, int64_t used_ns)
{
	struct entry *e = calloc(1, sizeof(*e)), *before = TAILQ_LAST(&c->entries, entries_head);

	if (!e)
		return -ENOMEM;
	(void)snprintf(e->name, sizeof(e->name), "%s", name);
	e->bytes = bytes;
	e->used_ns = used_ns;
	while (before && before->used_ns > used_ns)
		before = TAILQ_PREV(before, entries_head, link);
	if (before)
		TAILQ_INSERT_AFTER(&c->entries, before, e, link);
	else
		TAILQ_INSERT_HEAD(&c->entries, e, link);
	atomic_fetch_add(&c->files, 1);
	atomic_fetch_add(&c->bytes, bytes);
	return 0;
}

static void throw_away(struct unwind_cache *c, const char *name)
{
	if (unlinkat(c->dir_fd, name, 0) < 0 && errno != ENOENT)
		log_debug("tables of unwind rules: cannot remove %s: %s", name, strerror(errno));
	entry_drop(c, entry_find(c, name));
}

static void make_room(struct unwind_cache *c, uint64_t bytes)
{
	struct entry *e;

	while ((e = TAILQ_FIRST(&c->entries)) &&
	       (c->bytes + bytes > c->max_bytes || c->files >= FILES_MAX)) {
		char name[NAME_LEN + 1];

		memcpy(name, e->name, sizeof(name));
		throw_away(c, name);
		atomic_fetch_add(&c->thrown_away, 1);
	}
}

static int load_entry(struct unwind_cache *c, const char *name)
{
	struct stat st;

	if (!is_name(name) || fstatat(c->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return 0;
	if (!is_ours(&st)) {
		atomic_fetch_add(&c->damaged, 1);
		throw_away(c, name);
		return 0;
	}
	make_room(c, 0);
	return entry_add(c, name, (uint64_t)st.st_size,
			 st.st_mtim.tv_sec * INT64_C(1000000000) + st.st_mtim.tv_nsec);
}

static int load_entries(struct unwind_cache *c)
{
	_cleanup_close_ int fd = openat(c->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	int r = 0;

	if (!dir)
		return -errno;
	(void)take_fd(&fd);
	while (r == 0 && (e = readdir(dir)) != NULL)
		r = load_entry(c, e->d_name);
	(void)closedir(dir);
	make_room(c, 0);
	return r;
}

static int open_directory(struct unwind_cache *c)
{
	_cleanup_close_ int state = open(c->state_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC), fd = -1;
	unsigned int swept = 0;
	struct stat st;
	int r;

	if (state < 0)
		return -errno;
	if (mkdirat(state, DIRECTORY, 0700) < 0 && errno != EEXIST)
		return -errno;
	fd = openat(state, DIRECTORY, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0)
		return -errno;
	if (st.st_uid != geteuid() || (st.st_mode & 077))
		return -EPERM;
	r = safefile_sweep(fd, &swept);
	if (r < 0)
		return r;
	c->dir_fd = take_fd(&fd);
	return load_entries(c);
}

static bool is_usable(struct unwind_cache *c)
{
	int r;

	if (c->tried)
		return c->dir_fd >= 0;
	c->tried = true;
	r = open_directory(c);
	if (r == 0)
		return true;
	c->dir_fd = close_fd(c->dir_fd);
	atomic_store(&c->error, -r);
	log_warning("%s/" DIRECTORY ": %s; tables of unwind rules are not kept", c->state_dir,
		    r == -EPERM ? "not this user's alone" : strerror(-r));
	return false;
}

/* ---- files */

static void checksum_of(const uint8_t *data, size_t size, uint8_t ret[SHA256_BYTES])
{
	static const uint8_t none[SHA256_BYTES];
	const size_t at = offsetof(struct unwind_cache_head, checksum);
	struct sha256 s;

	sha256_begin(&s);
	sha256_add(&s, data, at);
	sha256_add(&s, none, sizeof(none));
	sha256_add(&s, data + at + sizeof(none), size - at - sizeof(none));
	sha256_end(&s, ret);
}

/* What the decoder has said of an interpreter, through the function that reads it from there. */
static int read_python(const char *text, size_t len, struct python_object *ret)
{
	_cleanup_json_ struct json_object *o = NULL;
	int r = len ? json_parse(text, len, UNWIND_CACHE_PYTHON_MAX, &o, NULL, 0) : 0;

	if (r != 0 || (len && !json_object_is_type(o, json_type_object)))
		return r == -ENOMEM ? r : -EBADMSG;
	python_object_parse(o, ret);
	return 0;
}

static int check(const struct unwind_key *key, const uint8_t *data, size_t size,
		 struct unwind_cached *ret)
{
	struct unwind_cache_head h;
	uint8_t sum[SHA256_BYTES];
	int r;

	memcpy(&h, data, sizeof(h));
	if (h.magic != UNWIND_CACHE_MAGIC || h.version != UNWIND_CACHE_VERSION ||
	    h.rules != UNWIND_FILE_MAGIC || memcmp(&h.key, key, sizeof(*key)) != 0 ||
	    h.python_bytes > UNWIND_CACHE_PYTHON_MAX || h.table_bytes > TABLE_MAX ||
	    sizeof(h) + h.table_bytes + h.python_bytes != size)
		return -EBADMSG;
	checksum_of(data, size, sum);
	if (memcmp(sum, h.checksum, sizeof(sum)) != 0)
		return -EBADMSG;
	ret->none = h.table_bytes == 0;
	r = ret->none ? 0 : unwind_check(data + sizeof(h), h.table_bytes, &ret->table);
	return r < 0 ? r
		     : read_python((const char *)data + sizeof(h) + h.table_bytes, h.python_bytes,
				   &ret->python);
}

static int read_file(struct unwind_cache *c, const char *name, const struct unwind_key *key,
		     struct unwind_cached *ret)
{
	_cleanup_close_ int fd = -1;
	uint64_t size;
	struct stat st;
	ssize_t n;
	int r = safefile_open(c->dir_fd, name, &fd, &size);

	if (r < 0)
		return r == -ELOOP ? -EBADMSG : r;
	if (fstat(fd, &st) < 0)
		return -errno;
	if (!is_ours(&st) || size < sizeof(struct unwind_cache_head) ||
	    size > sizeof(struct unwind_cache_head) + TABLE_MAX + UNWIND_CACHE_PYTHON_MAX)
		return -EBADMSG;
	ret->data = malloc(size);
	if (!ret->data)
		return -ENOMEM;
	n = io_pread_full(fd, ret->data, size, 0);
	if (n < 0)
		return (int)n;
	r = (uint64_t)n == size ? check(key, ret->data, size, ret) : -EBADMSG;
	if (r == 0 && futimens(fd, NULL) < 0)
		log_debug("tables of unwind rules: %s: %s", name, strerror(errno));
	return r;
}

static struct unwind_key whole_key(const struct unwind_cache *c, const struct unwind_key *key)
{
	struct unwind_key whole = *key;

	whole.maker = c->maker;
	return whole;
}

int unwind_cache_get(struct unwind_cache *c, const struct unwind_key *key,
		     struct unwind_cached *ret)
{
	const struct unwind_key whole = whole_key(c, key);
	char name[NAME_LEN + 1];
	struct entry *e;
	int r = -ENOENT;

	*ret = (struct unwind_cached){0};
	name_of(&whole, name);
	if (is_usable(c))
		r = read_file(c, name, &whole, ret);
	if (r == 0) {
		atomic_fetch_add(&c->hits, 1);
		e = entry_find(c, name);
		if (e) {
			TAILQ_REMOVE(&c->entries, e, link);
			TAILQ_INSERT_TAIL(&c->entries, e, link);
			e->used_ns = SINCE_START;
		}
		return 0;
	}
	atomic_fetch_add(&c->misses, 1);
	unwind_cached_fini(ret);
	if (r == -EBADMSG) {
		log_notice("%s/" DIRECTORY "/%s: damaged; the table is made again", c->state_dir,
			   name);
		atomic_fetch_add(&c->damaged, 1);
		throw_away(c, name);
		r = -ENOENT;
	} else if (r == -ENOENT) {
		entry_drop(c, entry_find(c, name));
	}
	return r;
}

void unwind_cached_fini(struct unwind_cached *cached)
{
	free(cached->data);
	*cached = (struct unwind_cached){0};
}

static int write_file(struct unwind_cache *c, const struct unwind_key *key, const void *table,
		      size_t bytes, const char *python)
{
	const size_t python_bytes = python ? strlen(python) : 0,
		     size = sizeof(struct unwind_cache_head) + bytes + python_bytes;
	struct unwind_cache_head h = {.magic = UNWIND_CACHE_MAGIC,
				      .version = UNWIND_CACHE_VERSION,
				      .rules = UNWIND_FILE_MAGIC,
				      .python_bytes = (uint32_t)python_bytes,
				      .table_bytes = bytes,
				      .key = whole_key(c, key)};
	_cleanup_free_ uint8_t *data = NULL;
	char name[NAME_LEN + 1];
	int r;

	if (python_bytes > UNWIND_CACHE_PYTHON_MAX || size > c->max_bytes)
		return -EFBIG;
	data = malloc(size);
	if (!data)
		return -ENOMEM;
	memcpy(data, &h, sizeof(h));
	if (bytes)
		memcpy(data + sizeof(h), table, bytes);
	if (python)
		memcpy(data + sizeof(h) + bytes, python, python_bytes);
	checksum_of(data, size, data + offsetof(struct unwind_cache_head, checksum));
	name_of(&h.key, name);
	entry_drop(c, entry_find(c, name));
	make_room(c, size);
	r = safefile_replace(c->dir_fd, name, data, size);
	if (r < 0)
		return r;
	r = entry_add(c, name, size, SINCE_START);
	if (r < 0)
		throw_away(c, name);
	return r;
}

void unwind_cache_put(struct unwind_cache *c, const struct unwind_key *key, const void *table,
		      size_t bytes, const char *python)
{
	int r = is_usable(c) ? write_file(c, key, table, bytes, python) : -ENOENT;

	if (r == 0)
		return;
	atomic_fetch_add(&c->unkept, 1);
	if (c->dir_fd >= 0)
		log_debug("a table of unwind rules is not kept: %s", strerror(-r));
}

void unwind_cache_status(const struct unwind_cache *c, struct json_object *status)
{
	struct json_object *o = json_add_new_object(status, "cache");
	const int error = c ? atomic_load(&c->error) : 0;

	json_add_bool(o, "enabled", c && !error);
	json_add_string(o, "error", error ? strerror(error) : "");
	json_add_uint(o, "hits", c ? atomic_load(&c->hits) : 0);
	json_add_uint(o, "misses", c ? atomic_load(&c->misses) : 0);
	json_add_uint(o, "damaged", c ? atomic_load(&c->damaged) : 0);
	json_add_uint(o, "thrown_away", c ? atomic_load(&c->thrown_away) : 0);
	json_add_uint(o, "unkept", c ? atomic_load(&c->unkept) : 0);
	json_add_uint(o, "files", c ? atomic_load(&c->files) : 0);
	json_add_uint(o, "bytes", c ? atomic_load(&c->bytes) : 0);
	json_add_uint(o, "max_bytes", c ? c->max_bytes : 0);
}

/* ---- life */

int unwind_cache_new(const char *state_dir, uint64_t max_bytes, const char *maker,
		     struct unwind_cache **ret)
{
	struct unwind_cache *c;
	struct stat st;

	if (stat(maker, &st) < 0)
		return -errno;
	c = calloc(1, sizeof(*c));
	if (!c)
		return -ENOMEM;
	TAILQ_INIT(&c->entries);
	c->dir_fd = -1;
	c->max_bytes = max_bytes;
	c->maker = inode_of(&st);
	c->state_dir = strdup(state_dir);
	if (!c->state_dir)
		c = unwind_cache_free(c);
	*ret = c;
	return c ? 0 : -ENOMEM;
}

struct unwind_cache *unwind_cache_free(struct unwind_cache *c)
{
	struct entry *e;

	if (!c)
		return NULL;
	while ((e = TAILQ_FIRST(&c->entries)) != NULL)
		entry_drop(c, e);
	(void)close_fd(c->dir_fd);
	free(c->state_dir);
	free(c);
	return NULL;
}
