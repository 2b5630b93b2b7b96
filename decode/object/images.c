// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <errno.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/hashmap.h"
#include "common/base/procfs.h"
#include "common/control/json.h"
#include "decode/object/image_internal.h"

#define REPORT_MAX 32

int images_new(const struct file_requester *files, struct budget *budget, struct images **ret)
{
	_cleanup_(images_freep) struct images *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->vdso_fd = -1;
	t->files = *files;
	t->budget = budget;
	t->hash_size = 1024;
	t->hash = calloc(t->hash_size, sizeof(*t->hash));
	if (!t->hash)
		return -ENOMEM;
	if (elf_version(EV_CURRENT) == EV_NONE)
		return -ENOTSUP;
	*ret = take_ptr(t);
	return 0;
}

struct images *images_free(struct images *t)
{
	if (!t)
		return NULL;
	for (uint32_t i = 0; i < t->n; i++)
		image_free(t->v[i]);
	for (uint32_t i = 0; i < t->n_expected; i++)
		free(t->expected[i].path);
	close_fd(t->vdso_fd);
	free(t->expected);
	free(t->hash);
	free(t->v);
	free(t);
	return NULL;
}

void images_set_clocks(struct images *t, const struct clock_map *clocks)
{
	t->clocks = clocks;
}

void images_set_vdso_fd(struct images *t, int fd)
{
	close_fd(t->vdso_fd);
	t->vdso_fd = fd;
}

void images_use_own_vdso(struct images *t)
{
	t->own_vdso = true;
}

static int expected_compare(const void *a, const void *b)
{
	const struct expected *x = a, *y = b;

	return strcmp(x->path, y->path);
}

void images_expect(struct images *t, const char *path, const uint8_t *build_id, uint8_t size)
{
	struct expected *v;

	if (size == 0 || size > sizeof(v->id) || !*path)
		return;
	v = reallocarray(t->expected, t->n_expected + 1, sizeof(*v));
	if (!v)
		return;
	t->expected = v;
	v += t->n_expected;
	*v = (struct expected){.path = strdup(path), .size = size};
	if (!v->path)
		return;
	memcpy(v->id, build_id, size);
	t->n_expected++;
	t->expected_sorted = false;
}

const struct expected *images_expected(struct images *t, char *path)
{
	const struct expected key = {.path = path};

	if (!t->n_expected)
		return NULL;
	if (!t->expected_sorted)
		qsort(t->expected, t->n_expected, sizeof(*t->expected), expected_compare);
	t->expected_sorted = true;
	return bsearch(&key, t->expected, t->n_expected, sizeof(*t->expected), expected_compare);
}

static bool starts_with(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static enum image_kind kind_of(const char *path)
{
	if (strcmp(path, "[vdso]") == 0)
		return IMAGE_VDSO;
	if (*path == '\0' || starts_with(path, "//anon") || starts_with(path, "[anon") ||
		starts_with(path, "/memfd:") || starts_with(path, "/dev/zero") ||
		starts_with(path, "/SYSV") || starts_with(path, "anon_inode:") ||
		starts_with(path, "/anon_hugepage"))
		return IMAGE_ANON;
	if (*path != '/')
		return IMAGE_OTHER;
	return IMAGE_FILE;
}

/*
 * The table is images' own and not common/base/hashmap.h: a path is a key of any length. A stranger
 * chose it, so the hash is seeded.
 */
static uint64_t key_hash(const struct image_key *k)
{
	uint64_t h = 0xcbf29ce484222325u ^ hash_seed();

	for (size_t i = 0; i < k->path_len; i++)
		h = (h ^ (uint8_t)k->path[i]) * 0x100000001b3u;
	for (size_t i = 0; i < k->build_id_size; i++)
		h = (h ^ k->build_id[i]) * 0x100000001b3u;
	h ^= k->ino + ((uint64_t)k->maj << 32) + ((uint64_t)k->min << 44);
	return (h * UINT64_C(0x9e3779b97f4a7c15)) >> 20;
}

static bool key_is(const struct image *img, const struct image_key *k, const char *path)
{
	return img->ino == k->ino && img->maj == k->maj && img->min == k->min &&
	       strcmp(img->path, path) == 0 &&
	       (k->build_id_size == 0 ||
		       (img->build_id_size == k->build_id_size &&
			       memcmp(img->build_id, k->build_id, k->build_id_size) == 0));
}

static int hash_grow(struct images *t)
{
	uint32_t size = t->hash_size * 2;
	uint32_t *hash = calloc(size, sizeof(*hash));

	if (!hash)
		return -ENOMEM;
	for (uint32_t i = 0; i < t->n; i++) {
		const struct image *img = t->v[i];
		const struct image_key key = {.maj = img->maj,
			.min = img->min,
			.ino = img->ino,
			.build_id = img->build_id,
			.build_id_size = img->build_id_size,
			.path = img->path,
			.path_len = strlen(img->path)};
		uint64_t h = key_hash(&key);

		while (hash[h % size])
			h++;
		hash[h % size] = i + 1;
	}
	free(t->hash);
	t->hash = hash;
	t->hash_size = size;
	return 0;
}

struct image *images_get(struct images *t, const struct image_key *key)
{
	struct image_key k = *key;
	_cleanup_free_ char *path = NULL;
	struct image *img;
	uint64_t h;
	size_t room;

	k.path_len = proc_path_len(k.path, k.path_len);
	path = strndup(k.path, k.path_len);
	if (!path)
		return NULL;
	for (h = key_hash(&k); t->hash[h % t->hash_size]; h++) {
		img = t->v[t->hash[h % t->hash_size] - 1];
		if (key_is(img, &k, path))
			return img;
	}
	if (t->n >= IMAGES_MAX || !budget_take(t->budget, sizeof(*img) + 5 * k.path_len))
		return NULL;
	if (t->n == t->cap) {
		uint32_t cap = t->cap ? t->cap * 2 : 64;
		struct image **v = reallocarray(t->v, cap, sizeof(*v));

		if (!v)
			return NULL;
		t->v = v;
		t->cap = cap;
	}
	img = calloc(1, sizeof(*img));
	if (!img)
		return NULL;
	img->fd = img->debug_fd = img->sup_fd = -1;
	room = k.path_len * 4 + 1;
	img->text = malloc(room);
	if (!img->text) {
		free(img);
		return NULL;
	}
	escape_text(img->text, room, path, k.path_len);
	img->path = take_ptr(path);
	img->id = t->n + 1;
	img->maj = k.maj;
	img->min = k.min;
	img->ino = k.ino;
	img->pid = k.pid;
	img->mapped = k.time;
	if (k.build_id_size && k.build_id_size <= sizeof(img->build_id)) {
		memcpy(img->build_id, k.build_id, k.build_id_size);
		img->build_id_size = k.build_id_size;
	}
	img->kind = kind_of(img->path);
	symbols_init(&img->symbols, t->budget);
	t->v[t->n++] = img;
	t->hash[h % t->hash_size] = t->n;
	if (t->n > t->hash_size / 2 && hash_grow(t) < 0 && t->n + 1 >= t->hash_size) {
		/* no room to grow: keep one slot empty, or lookups would not end */
		t->hash[h % t->hash_size] = 0;
		t->n--;
		image_free(img);
		return NULL;
	}
	return img;
}

uint32_t images_count(const struct images *t)
{
	return t->n;
}

struct image *images_at(const struct images *t, uint32_t i)
{
	return t->v[i];
}

const struct images_stats *images_stats(const struct images *t)
{
	return &t->stats;
}

void images_report_path(struct json_object *losses, const char *key, const struct image *img,
			struct json_object **list, int *n)
{
	char text[512];

	if (*n == REPORT_MAX)
		return;
	if (!*list)
		*list = json_add_new_array(losses, key);
	if (!*list)
		return;
	escape_text(text, sizeof(text), img->path, strlen(img->path));
	json_append_string(*list, text);
	++*n;
}

void images_report(const struct images *t, struct json_object *losses)
{
	static const struct {
		enum image_state state;
		const char *key;
	} kinds[] = {
		{IMAGE_MISSING, "images_missing"},
		{IMAGE_CHANGED, "images_changed"},
		{IMAGE_BROKEN, "images_broken"},
	};

	for (size_t k = 0; k < ARRAY_SIZE(kinds); k++) {
		struct json_object *list = NULL;
		int n = 0;

		for (uint32_t i = 0; i < t->n; i++) {
			const struct image *img = t->v[i];

			if (img->state == kinds[k].state &&
			    (img->kind == IMAGE_FILE || img->kind == IMAGE_VDSO))
				images_report_path(losses, kinds[k].key, img, &list, &n);
		}
	}
}
