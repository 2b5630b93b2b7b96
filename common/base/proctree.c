// SPDX-License-Identifier: Apache-2.0
#include "common/base/proctree.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/pids.h"
#include "common/base/procfs.h"

struct node {
	pid_t pid, ppid;
	bool below;
};

static int node_cmp(const void *a, const void *b)
{
	const struct node *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

/* The parent of the process with this name in /proc; 0: it has ended. */
static pid_t parent_of(int proc_fd, const char *name)
{
	_cleanup_close_ int fd = openat(proc_fd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct proc_stat stat;

	return fd >= 0 && proc_stat_read(fd, &stat) == 0 && !proc_stat_ended(&stat) ? stat.ppid : 0;
}

static int nodes_read(struct node **ret, size_t *ret_n)
{
	_cleanup_(closedirp) DIR *dir = opendir("/proc");
	_cleanup_free_ struct node *nodes = NULL;
	size_t n = 0, room = 0;
	struct dirent *entry;

	if (!dir)
		return -errno;
	while ((entry = readdir(dir)) != NULL) {
		char *end;
		long pid = strtol(entry->d_name, &end, 10);
		pid_t ppid;

		if (pid <= 0 || *end)
			continue;
		ppid = parent_of(dirfd(dir), entry->d_name);
		if (!ppid)
			continue;
		if (n == PROCTREE_MAX)
			return -E2BIG;
		if (n == room) {
			struct node *bigger;

			room = room ? room * 2 : 256;
			bigger = reallocarray(nodes, room, sizeof(*nodes));
			if (!bigger)
				return -ENOMEM;
			nodes = bigger;
		}
		nodes[n++] = (struct node){.pid = (pid_t)pid, .ppid = ppid};
	}
	if (n)
		qsort(nodes, n, sizeof(*nodes), node_cmp);
	*ret = take_ptr(nodes);
	*ret_n = n;
	return 0;
}

static bool is_below(const struct node *nodes, size_t n, const struct node *node,
		     const pid_t *roots, size_t n_roots)
{
	const struct node key = {.pid = node->ppid}, *parent;

	if (pids_have(roots, n_roots, node->ppid))
		return true;
	parent = bsearch(&key, nodes, n, sizeof(*nodes), node_cmp);
	return parent && parent->below;
}

int proctree_below(const pid_t *roots, size_t n_roots, pid_t **ret, size_t *ret_n)
{
	_cleanup_free_ pid_t *sorted = calloc(n_roots ? n_roots : 1, sizeof(*sorted));
	_cleanup_free_ struct node *nodes = NULL;
	_cleanup_free_ pid_t *pids = NULL;
	size_t n = 0, found = 0, before;
	int r;

	if (!sorted)
		return -ENOMEM;
	if (n_roots) {
		memcpy(sorted, roots, n_roots * sizeof(*roots));
		pids_sort(sorted, n_roots);
	}
	r = nodes_read(&nodes, &n);
	if (r < 0)
		return r;
	/* A pass a generation; most parents have smaller numbers, so there are few. */
	do {
		before = found;
		for (size_t i = 0; i < n; i++) {
			if (nodes[i].below || pids_have(sorted, n_roots, nodes[i].pid) ||
			    !is_below(nodes, n, &nodes[i], sorted, n_roots))
				continue;
			nodes[i].below = true;
			found++;
		}
	} while (found > before);
	pids = calloc(found ? found : 1, sizeof(*pids));
	if (!pids)
		return -ENOMEM;
	for (size_t i = 0, at = 0; i < n; i++)
		if (nodes[i].below)
			pids[at++] = nodes[i].pid;
	*ret = take_ptr(pids);
	*ret_n = found;
	return 0;
}
