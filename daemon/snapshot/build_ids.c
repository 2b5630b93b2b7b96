// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/build_ids.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/bundle/perfdata_ids.h"

struct build_id {
	uint32_t req;
	char *path;
	uint8_t id[PERFDATA_ID_MAX], len; /* 0: not told */
};

struct build_ids {
	struct build_id v[BUILD_IDS_MAX];
	size_t n;
	size_t left_out;
};

int build_ids_new(struct build_ids **ret)
{
	struct build_ids *b = calloc(1, sizeof(*b));

	if (!b)
		return -ENOMEM;
	*ret = b;
	return 0;
}

void build_ids_free(struct build_ids *b)
{
	if (!b)
		return;
	for (size_t i = 0; i < b->n; i++)
		free(b->v[i].path);
	free(b);
}

void build_ids_ask(struct build_ids *b, uint32_t req, const char *path)
{
	char *copy = *path == '/' && b->n < BUILD_IDS_MAX ? strdup(path) : NULL;

	if (copy)
		b->v[b->n++] = (struct build_id){.req = req, .path = copy};
	else
		b->left_out++;
}

void build_ids_tell(struct build_ids *b, uint32_t req, const uint8_t *id, size_t len)
{
	/* A verdict soon follows its file: it is one of the last. */
	for (size_t i = b->n; i > 0; i--) {
		struct build_id *e = &b->v[i - 1];

		if (e->req != req)
			continue;
		e->len = (uint8_t)(len < sizeof(e->id) ? len : sizeof(e->id));
		memcpy(e->id, id, e->len);
		return;
	}
}

static int by_path(const void *a, const void *b)
{
	const struct build_id *x = a, *y = b;

	return strcmp(x->path, y->path);
}

static bool is_same(const struct build_id *a, const struct build_id *b)
{
	return a->len == b->len && !memcmp(a->id, b->id, a->len);
}

int build_ids_write(struct build_ids *b, int fd, size_t *ret_n, size_t *ret_left_out)
{
	_cleanup_free_ struct perfdata_id *ids = calloc(b->n + 1, sizeof(*ids));
	size_t n = 0, left_out = b->left_out, bytes = PERFDATA_IDS_MAX_BYTES / 2, end;
	int r;

	if (!ids)
		return -ENOMEM;
	qsort(b->v, b->n, sizeof(b->v[0]), by_path);
	for (size_t i = 0; i < b->n; i = end) {
		const struct build_id *e = &b->v[i];
		bool same = true;

		for (end = i + 1; end < b->n && by_path(e, &b->v[end]) == 0; end++)
			same = same && is_same(e, &b->v[end]);
		if (same && e->len == 0)
			continue;
		if (!same || perfdata_id_size(e->path) > bytes) {
			left_out++;
			continue;
		}
		bytes -= perfdata_id_size(e->path);
		ids[n] = (struct perfdata_id){.path = e->path, .len = e->len};
		memcpy(ids[n++].id, e->id, e->len);
	}
	r = n ? perfdata_ids_add(fd, ids, n) : 0;
	*ret_n = r == 0 ? n : 0;
	*ret_left_out = left_out + (r == 0 ? 0 : n);
	return r;
}
