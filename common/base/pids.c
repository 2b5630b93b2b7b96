// SPDX-License-Identifier: Apache-2.0
#include "common/base/pids.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int pid_cmp(const void *a, const void *b)
{
	const pid_t x = *(const pid_t *)a, y = *(const pid_t *)b;

	return x < y ? -1 : x > y;
}

void pids_sort(pid_t *pids, size_t n)
{
	if (n)
		qsort(pids, n, sizeof(*pids), pid_cmp);
}

bool pids_have(const pid_t *pids, size_t n, pid_t pid)
{
	return n && bsearch(&pid, pids, n, sizeof(*pids), pid_cmp);
}

size_t pid_set_keep_new(const struct pid_set *set, pid_t *pids, size_t n)
{
	size_t kept = 0;

	for (size_t i = 0; i < n; i++)
		if (!pids_have(set->v, set->n, pids[i]))
			pids[kept++] = pids[i];
	return kept;
}

int pid_set_add(struct pid_set *set, const pid_t *pids, size_t n)
{
	pid_t *bigger;

	if (n == 0)
		return 0;
	bigger = reallocarray(set->v, set->n + n, sizeof(*bigger));
	if (!bigger)
		return -ENOMEM;
	memcpy(bigger + set->n, pids, n * sizeof(*pids));
	set->v = bigger;
	set->n += n;
	pids_sort(set->v, set->n);
	return 0;
}

bool pid_set_is_reused(const struct pid_set *set, pid_t *now, size_t n_now)
{
	pids_sort(now, n_now);
	for (size_t i = 0; i < set->n; i++) {
		char path[32];

		if (pids_have(now, n_now, set->v[i]))
			continue;
		(void)snprintf(path, sizeof(path), "/proc/%d", (int)set->v[i]);
		if (access(path, F_OK) == 0)
			return true;
	}
	return false;
}

void pid_set_fini(struct pid_set *set)
{
	free(set->v);
	*set = (struct pid_set){0};
}
