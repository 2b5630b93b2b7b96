// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_tables.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "daemon/backend/sample/filter.h"

#ifdef HAVE_BPF

#include <bpf/bpf.h>

/* Open addressing, at most half full. */
#define SLOTS (UNWIND_MAP_RULES * 2)

struct unwind_tables {
	int slabs_fd, pages_fd, rules_fd; /* the filter's */
	struct unwind_rule *rules;
	uint32_t *slots; /* number of a rule + 1 */
	uint32_t *slab;	 /* rows of the last slab */
	int slab_fd;	 /* its map, or -1 */
	bool slab_is_there; /* in the map of slabs */
	uint32_t fill;
	_Atomic uint32_t n_slabs, n_pages, n_rules; /* the status reads them meanwhile */
	_Atomic uint64_t n_rows;
};

int unwind_tables_new(const struct filter *filter, struct unwind_tables **ret)
{
	struct unwind_tables *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->slabs_fd = filter_map_fd(filter, "uw_slabs");
	t->pages_fd = filter_map_fd(filter, "uw_pages");
	t->rules_fd = filter_map_fd(filter, "uw_rules");
	t->slab_fd = -1;
	*ret = t;
	return 0;
}

struct unwind_tables *unwind_tables_free(struct unwind_tables *t)
{
	if (!t)
		return NULL;
	free(t->rules);
	free(t->slots);
	free(t->slab);
	(void)close_fd(t->slab_fd);
	free(t);
	return NULL;
}

/* Most daemons unwind nothing: memory comes with the first table. */
static int prepare(struct unwind_tables *t)
{
	if (!t->rules)
		t->rules = calloc(UNWIND_MAP_RULES, sizeof(*t->rules));
	if (!t->slots)
		t->slots = calloc(SLOTS, sizeof(*t->slots));
	if (!t->slab)
		t->slab = calloc(UNWIND_SLAB_ROWS, sizeof(*t->slab));
	return t->rules && t->slots && t->slab ? 0 : -ENOMEM;
}

/* The rule's number among those of all objects: 0, -ENOSPC, -errno. */
static int rule_number(struct unwind_tables *t, const struct unwind_rule *rule, uint32_t *ret)
{
	const uint32_t number = t->n_rules;
	uint64_t key;
	uint32_t i;

	memcpy(&key, rule, sizeof(key));
	for (i = (uint32_t)hash_mix(key, hash_seed()) % SLOTS; t->slots[i]; i = (i + 1) % SLOTS) {
		if (memcmp(&t->rules[t->slots[i] - 1], rule, sizeof(*rule)) == 0) {
			*ret = t->slots[i] - 1;
			return 0;
		}
	}
	if (number == UNWIND_MAP_RULES)
		return -ENOSPC;
	if (bpf_map_update_elem(t->rules_fd, &number, rule, BPF_ANY) < 0)
		return -errno;
	t->rules[number] = *rule;
	t->slots[i] = number + 1;
	t->n_rules = number + 1;
	*ret = number;
	return 0;
}

/* Rows must be there before a page points to them. */
static int slab_flush(struct unwind_tables *t)
{
	uint32_t zero = 0, index = t->n_slabs - 1;

	if (t->slab_fd < 0)
		return 0;
	if (bpf_map_update_elem(t->slab_fd, &zero, t->slab, BPF_ANY) < 0)
		return -errno;
	if (!t->slab_is_there && bpf_map_update_elem(t->slabs_fd, &index, &t->slab_fd, BPF_ANY) < 0)
		return -errno;
	t->slab_is_there = true;
	return 0;
}

/* Room for the rows of one page. */
static int slab_room(struct unwind_tables *t, uint32_t n)
{
	int r;

	if (t->slab_fd >= 0 && t->fill + n <= UNWIND_SLAB_ROWS)
		return 0;
	r = slab_flush(t);
	if (r < 0)
		return r;
	if (t->n_slabs == UNWIND_SLABS)
		return -ENOSPC;
	r = bpf_map_create(BPF_MAP_TYPE_ARRAY, "uw_slab", sizeof(uint32_t),
			   UNWIND_SLAB_ROWS * sizeof(uint32_t), 1, NULL);
	if (r < 0)
		return -errno;
	(void)close_fd(t->slab_fd);
	t->slab_fd = r;
	t->slab_is_there = false;
	t->fill = 0;
	t->n_slabs++;
	memset(t->slab, 0, UNWIND_SLAB_ROWS * sizeof(*t->slab));
	return 0;
}

static int fill_pages(struct unwind_tables *t, const struct unwind_checked *table,
		      const uint32_t *numbers, struct unwind_page *pages)
{
	const uint32_t *rows = table->rows;

	for (uint32_t i = 0; i < table->head.n_pages; i++) {
		const uint32_t n = table->pages[i];
		int r = slab_room(t, n);

		if (r < 0)
			return r;
		pages[i] = (struct unwind_page){.slab = (uint16_t)(t->n_slabs - 1),
						.n = (uint16_t)n,
						.first = t->fill};
		for (uint32_t k = 0; k < n; k++)
			t->slab[t->fill++] = UNWIND_ROW(UNWIND_ROW_OFF(rows[k]),
							numbers[UNWIND_ROW_RULE(rows[k])]);
		rows += n;
	}
	return slab_flush(t);
}

int unwind_tables_load(struct unwind_tables *t, const struct unwind_checked *table,
		       struct unwind_place *ret)
{
	const struct unwind_file *h = &table->head;
	_cleanup_free_ struct unwind_page *pages = NULL;
	_cleanup_free_ uint32_t *numbers = NULL, *keys = NULL;
	uint32_t n = h->n_pages;
	int r = prepare(t);

	if (r < 0)
		return r;
	if (h->n_pages > UNWIND_MAP_PAGES - t->n_pages ||
	    h->n_rows > (UNWIND_SLABS - t->n_slabs) * (uint64_t)UNWIND_SLAB_ROWS +
				UNWIND_SLAB_ROWS - t->fill)
		return -ENOSPC;
	numbers = calloc(h->n_rules, sizeof(*numbers));
	keys = calloc(h->n_pages, sizeof(*keys));
	pages = calloc(h->n_pages, sizeof(*pages));
	if (!numbers || !keys || !pages)
		return -ENOMEM;
	for (uint32_t i = 0; i < h->n_rules; i++) {
		r = rule_number(t, &table->rules[i], &numbers[i]);
		if (r < 0)
			return r;
	}
	r = fill_pages(t, table, numbers, pages);
	if (r < 0)
		return r;
	for (uint32_t i = 0; i < n; i++)
		keys[i] = t->n_pages + i;
	if (bpf_map_update_batch(t->pages_fd, keys, pages, &n, NULL) < 0)
		return -errno;
	memcpy(ret->loads, table->loads, h->n_loads * sizeof(ret->loads[0]));
	ret->n_loads = h->n_loads;
	ret->lo_page = h->lo_page;
	ret->n_pages = h->n_pages;
	ret->page0 = t->n_pages;
	t->n_pages += h->n_pages;
	t->n_rows += h->n_rows;
	return 0;
}

void unwind_tables_usage(const struct unwind_tables *t, struct unwind_usage *ret)
{
	*ret = (struct unwind_usage){.rows = t->n_rows,
				     .pages = t->n_pages,
				     .rules = t->n_rules,
				     .slabs = t->n_slabs};
}

#else /* !HAVE_BPF: never called */

int unwind_tables_new(const struct filter *filter, struct unwind_tables **ret)
{
	return -EOPNOTSUPP;
}

struct unwind_tables *unwind_tables_free(struct unwind_tables *t)
{
	return NULL;
}

int unwind_tables_load(struct unwind_tables *t, const struct unwind_checked *table,
		       struct unwind_place *ret)
{
	return -EOPNOTSUPP;
}

void unwind_tables_usage(const struct unwind_tables *t, struct unwind_usage *ret)
{
	*ret = (struct unwind_usage){0};
}

#endif
