// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/threads.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/procfs.h"

int threads_of(const pid_t *pids, size_t n_pids, pid_t **ret, size_t *ret_n)
{
	_cleanup_free_ pid_t *all = NULL;
	size_t n = 0;

	for (size_t i = 0; i < n_pids; i++) {
		_cleanup_free_ pid_t *tids = NULL;
		_cleanup_(proc_close) struct proc proc = PROC_INIT;
		pid_t *bigger;
		size_t m;

		if (proc_open(pids[i], -1, &proc) != 0 ||
		    proc_tasks_read(proc.dirfd, &tids, &m) < 0)
			continue; /* it ended meanwhile */
		if (n + m > PROC_TASKS_MAX)
			return -E2BIG;
		bigger = reallocarray(all, n + m, sizeof(*all));
		if (!bigger)
			return -ENOMEM;
		all = bigger;
		memcpy(all + n, tids, m * sizeof(*tids));
		n += m;
	}
	if (n == 0)
		return -ESRCH;
	*ret = take_ptr(all);
	*ret_n = n;
	return 0;
}
