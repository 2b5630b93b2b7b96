// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_check.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

static bool head_ok(const struct unwind_file *h)
{
	return h->magic == UNWIND_FILE_MAGIC && h->n_loads >= 1 && h->n_loads <= UNWIND_LOADS_MAX &&
	       h->n_pages >= 1 && h->n_pages <= UNWIND_PAGES_MAX && h->n_rows >= h->n_pages &&
	       h->n_rows <= UNWIND_ROWS_MAX && h->n_rules >= 1 && h->n_rules <= UNWIND_RULES_MAX &&
	       h->lo_page <= UINT32_MAX - h->n_pages;
}

static bool load_ok(const struct unwind_load *l)
{
	const uint64_t most = UINT64_C(1) << 47;

	return l->off < most && l->vaddr < most && l->size >= 1 && l->size < most;
}

static bool rule_ok(const struct unwind_rule *rule)
{
	const unsigned flags = rule->extra & (UNWIND_OTHER_STACK | UNWIND_WAS_INTERRUPTED);

	return UNWIND_KIND(rule) < UNWIND_KINDS && UNWIND_REG(rule) < 16 &&
	       (!flags || UNWIND_KIND(rule) == UNWIND_CFA) &&
	       (rule->extra &
		~(15 | UNWIND_BP_FROM_BP | UNWIND_OTHER_STACK | UNWIND_WAS_INTERRUPTED)) == 0;
}

/* The first row of a page is for its first byte, the others ascend. */
static bool page_ok(const uint32_t *rows, uint32_t n, uint32_t n_rules)
{
	if (n == 0 || n > 1u << UNWIND_PAGE_BITS || UNWIND_ROW_OFF(rows[0]) != 0)
		return false;
	for (uint32_t i = 0; i < n; i++)
		if (UNWIND_ROW_RULE(rows[i]) >= n_rules ||
		    (i && UNWIND_ROW_OFF(rows[i]) <= UNWIND_ROW_OFF(rows[i - 1])))
			return false;
	return true;
}

int unwind_check(const void *data, size_t size, struct unwind_checked *ret)
{
	struct unwind_checked c;
	const uint8_t *p = data;
	uint64_t need;
	uint32_t at = 0;

	if (size < sizeof(c.head))
		return -EBADMSG;
	memcpy(&c.head, p, sizeof(c.head));
	if (!head_ok(&c.head))
		return -EBADMSG;
	need = sizeof(c.head) + c.head.n_loads * sizeof(*c.loads) +
	       ((uint64_t)c.head.n_pages + c.head.n_rows) * sizeof(uint32_t) +
	       c.head.n_rules * sizeof(*c.rules);
	if (need != size)
		return -EBADMSG;
	c.loads = (const void *)(p + sizeof(c.head));
	c.pages = (const void *)(c.loads + c.head.n_loads);
	c.rows = c.pages + c.head.n_pages;
	c.rules = (const void *)(c.rows + c.head.n_rows);
	for (uint32_t i = 0; i < c.head.n_loads; i++)
		if (!load_ok(&c.loads[i]))
			return -EBADMSG;
	for (uint32_t i = 0; i < c.head.n_rules; i++)
		if (!rule_ok(&c.rules[i]))
			return -EBADMSG;
	for (uint32_t i = 0; i < c.head.n_pages; i++) {
		if (c.pages[i] > c.head.n_rows - at ||
		    !page_ok(c.rows + at, c.pages[i], c.head.n_rules))
			return -EBADMSG;
		at += c.pages[i];
	}
	if (at != c.head.n_rows)
		return -EBADMSG;
	*ret = c;
	return 0;
}
