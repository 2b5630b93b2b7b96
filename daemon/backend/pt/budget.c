// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/budget.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/capability.h>
#include <sys/resource.h>
#include <unistd.h>

#include "common/base/io.h"

/* For what else tracerd opens while it arms. */
#define FDS_SPARE 64

uint64_t pt_side_ring_bytes(uint64_t aux_bytes)
{
	return aux_bytes / 4 > PT_SIDE_RING_MIN ? aux_bytes / 4 : PT_SIDE_RING_MIN;
}

uint64_t pt_budget_fds(const struct pt_budget *b)
{
	return b->threads * b->cpus * 2;
}

uint64_t pt_budget_bytes(const struct pt_budget *b)
{
	return b->cpus * (b->aux_bytes + pt_side_ring_bytes(b->aux_bytes) + PT_DATA_RING_BYTES);
}

enum pt_budget_answer pt_budget_fit(struct pt_budget *b, char *why, size_t why_size)
{
	if (pt_budget_fds(b) + FDS_SPARE > b->fds_left) {
		(void)snprintf(
			why, why_size,
			"%" PRIu64 " threads on %" PRIu64 " CPUs need %" PRIu64
			" descriptors, %" PRIu64
			" are left (LimitNOFILE=): record it by --backend sample, or one thread by --tid",
			b->threads, b->cpus, pt_budget_fds(b), b->fds_left);
		return PT_BUDGET_FDS;
	}
	while (b->aux_bytes > b->aux_min &&
	       (b->cpus * b->aux_bytes > b->total_bytes || pt_budget_bytes(b) > b->locked_left))
		b->aux_bytes /= 2;
	if (b->cpus * b->aux_bytes > b->total_bytes) {
		(void)snprintf(why, why_size,
			       "%" PRIu64 " CPUs need at least %" PRIu64
			       " KiB of trace memory, a target may have %" PRIu64
			       " KiB (pt_total_mib): record it by --backend sample",
			       b->cpus, b->cpus * b->aux_bytes >> 10, b->total_bytes >> 10);
		return PT_BUDGET_MEMORY;
	}
	if (pt_budget_bytes(b) > b->locked_left) {
		(void)snprintf(
			why, why_size,
			"%" PRIu64 " CPUs need %" PRIu64 " KiB of locked memory, %" PRIu64
			" KiB are permitted (CAP_IPC_LOCK, LimitMEMLOCK=): record it by --backend sample",
			b->cpus, pt_budget_bytes(b) >> 10, b->locked_left >> 10);
		return PT_BUDGET_LOCKED;
	}
	return PT_BUDGET_FITS;
}

static uint64_t fds_open(void)
{
	DIR *dir = opendir("/proc/self/fd");
	uint64_t n = 0;

	if (!dir)
		return 0;
	while (readdir(dir))
		n++;
	(void)closedir(dir);
	return n;
}

static uint64_t kernel_mlock_bytes(void)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	/* Of each CPU, for all events of a user. */
	if (io_read_file_at(AT_FDCWD, "/proc/sys/kernel/perf_event_mlock_kb", 64, &text, &len) < 0)
		return 0;
	return (uint64_t)strtoul(text, NULL, 10) << 10;
}

static bool is_unlimited(void)
{
	cap_flag_value_t value = CAP_CLEAR;
	cap_t caps = cap_get_proc();

	if (caps) {
		(void)cap_get_flag(caps, CAP_IPC_LOCK, CAP_EFFECTIVE, &value);
		(void)cap_free(caps);
	}
	return value == CAP_SET;
}

void pt_budget_limits(struct pt_budget *b)
{
	struct rlimit files = {0}, locked = {0};
	uint64_t open = fds_open();

	(void)getrlimit(RLIMIT_NOFILE, &files);
	(void)getrlimit(RLIMIT_MEMLOCK, &locked);
	b->fds_left = files.rlim_cur > open ? files.rlim_cur - open : 0;
	if (is_unlimited() || locked.rlim_cur == RLIM_INFINITY)
		b->locked_left = UINT64_MAX;
	else
		b->locked_left = (uint64_t)locked.rlim_cur + kernel_mlock_bytes() * b->cpus;
}
