// SPDX-License-Identifier: Apache-2.0
/*
 * Removal from the spool: an item gets another name at once, and a purge removes its tree later, on
 * the copier thread, where a slow file system delays nobody.
 */
#include "daemon/snapshot/spool_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"

/* What one purge removes, by name: the copier thread may not look at the items. */
struct spool_purge {
	struct spool *spool;
	size_t n;
	struct {
		struct spool_item *item;
		char name[sizeof(SPOOL_REMOVED_PREFIX) + SPOOL_ID_LEN];
		bool cut;
		bool gone;
		uint64_t left;
	} trees[];
};

static void removed_name(const struct spool_item *item,
			 char ret[sizeof(SPOOL_REMOVED_PREFIX) + SPOOL_ID_LEN])
{
	(void)snprintf(ret, sizeof(SPOOL_REMOVED_PREFIX) + SPOOL_ID_LEN, "%s%s",
		       SPOOL_REMOVED_PREFIX, item->id);
}

/* Nobody can open it any more; this says whether somebody has. */
static bool is_held(const struct spool *s, const struct spool_item *item, const char *name)
{
	_cleanup_close_ int dir = -1;

	if (!item->handed_out)
		return false;
	dir = openat(s->dir_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	return dir >= 0 && safefile_tree_is_open(dir) != 0;
}

int spool_remove(struct spool *s, const char *id, const char *why)
{
	char name[sizeof(SPOOL_REMOVED_PREFIX) + SPOOL_ID_LEN];
	struct spool_item *item = spool_find_item(s, id);

	if (!item)
		return -ENOENT;
	removed_name(item, name);
	if (renameat(s->dir_fd, item->id, s->dir_fd, name) < 0 && errno != ENOENT)
		return -errno;
	item->state = is_held(s, item, name) ? SPOOL_HELD : SPOOL_LEAVING;
	item->removed_ns = io_now_ns();
	if (s->removed)
		s->removed(s->removed_arg, item, why);
	return 0;
}

struct spool_purge *spool_purge_begin(struct spool *s)
{
	const uint64_t now = io_now_ns();
	struct spool_purge *p;
	size_t n = 0;

	for (size_t i = 0; i < s->n_items; i++)
		n += s->items[i]->state != SPOOL_KEPT && !s->items[i]->in_purge;
	if (n == 0)
		return NULL;
	p = calloc(1, sizeof(*p) + n * sizeof(p->trees[0]));
	if (!p)
		return NULL;
	p->spool = s;
	for (size_t i = 0; i < s->n_items; i++) {
		struct spool_item *item = s->items[i];

		if (item->state == SPOOL_KEPT || item->in_purge)
			continue;
		item->in_purge = true;
		p->trees[p->n].item = item;
		p->trees[p->n].left = item->bytes;
		p->trees[p->n].cut = now - item->removed_ns >= s->limits.hold_ns;
		removed_name(item, p->trees[p->n].name);
		p->n++;
	}
	return p;
}

void spool_purge_run(struct spool_purge *p)
{
	for (size_t i = 0; i < p->n; i++) {
		int r = safefile_remove_closed(p->spool->dir_fd, p->trees[i].name, BUNDLE_META,
					       p->trees[i].cut, &p->trees[i].left);

		p->trees[i].gone = r == 0;
		if (r < 0) /* it is tried again, and charged until then */
			log_debug("spool: cannot remove %s: %s", p->trees[i].name, strerror(-r));
	}
}

void spool_purge_end(struct spool_purge *p)
{
	for (size_t i = 0; p && i < p->n; i++) {
		struct spool_item *item = p->trees[i].item;

		item->in_purge = false;
		if (p->trees[i].gone) {
			spool_drop(p->spool, item);
			continue;
		}
		item->state = SPOOL_HELD;
		spool_item_set_bytes(item, p->trees[i].left);
	}
	free(p);
}
