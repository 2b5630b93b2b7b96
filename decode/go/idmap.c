// SPDX-License-Identifier: Apache-2.0
#include "decode/go/idmap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void idmap_fini(struct idmap *m)
{
	free(m->dense);
	hashmap_fini(&m->sparse);
	if (m->budget)
		budget_give(m->budget, m->taken);
	*m = (struct idmap){.budget = m->budget};
}

void idmap_clear(struct idmap *m)
{
	const uint64_t dense = m->n_dense * sizeof(*m->dense);

	if (m->n_dense)
		memset(m->dense, 0, dense);
	m->upto = 0;
	hashmap_fini(&m->sparse);
	m->sparse = (struct hashmap){0};
	budget_give(m->budget, m->taken - dense);
	m->taken = dense;
}

static int grow(struct idmap *m, uint64_t id)
{
	uint32_t n = m->n_dense ? m->n_dense : 64, *p;

	while (n <= id)
		n *= 2;
	if (!budget_take(m->budget, (n - m->n_dense) * sizeof(*p)))
		return -ENOMEM;
	m->taken += (n - m->n_dense) * sizeof(*p);
	p = reallocarray(m->dense, n, sizeof(*p));
	if (!p)
		return -ENOMEM;
	memset(p + m->n_dense, 0, (n - m->n_dense) * sizeof(*p));
	m->dense = p;
	m->n_dense = n;
	return 0;
}

int idmap_put(struct idmap *m, uint64_t id, uint32_t value)
{
	const size_t more = id < IDMAP_DENSE ? 0 : hashmap_more_bytes(&m->sparse);

	if (id < IDMAP_DENSE) {
		if (id >= m->n_dense && grow(m, id) < 0)
			return -ENOMEM;
		m->dense[id] = value;
		while (m->upto + 1 < m->n_dense && m->dense[m->upto + 1])
			m->upto++;
		return 0;
	}
	if (more && !budget_take(m->budget, more))
		return -ENOMEM;
	m->taken += more;
	return hashmap_put(&m->sparse, 0, id, value);
}
