// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind_mappings.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/hashmap.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/unwind.h"

#ifdef HAVE_BPF

#include <bpf/bpf.h>

struct unwind_mappings {
	int mappings_fd, processes_fd; /* the filter's */
	bool used[UNWIND_MAPPINGS];
	uint32_t cursor; /* places are used in turn, so that one that has become free rests */
	uint32_t generation;
	struct hashmap places; /* first + 1 and number of each process's list, by pid */
};

int unwind_mappings_new(const struct filter *filter, struct unwind_mappings **ret)
{
	struct unwind_mappings *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->mappings_fd = filter_map_fd(filter, "uw_mappings");
	m->processes_fd = filter_map_fd(filter, "uw_processes");
	*ret = m;
	return 0;
}

struct unwind_mappings *unwind_mappings_free(struct unwind_mappings *m)
{
	if (!m)
		return NULL;
	hashmap_fini(&m->places);
	free(m);
	return NULL;
}

static bool is_free(const struct unwind_mappings *m, uint32_t first, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		if (m->used[first + i])
			return false;
	return true;
}

static int take_place(struct unwind_mappings *m, uint32_t n, uint32_t *ret_first)
{
	for (uint32_t tried = 0; tried < UNWIND_MAPPINGS; tried++) {
		uint32_t first = (m->cursor + tried) % UNWIND_MAPPINGS;

		if (first + n > UNWIND_MAPPINGS || !is_free(m, first, n))
			continue;
		memset(&m->used[first], true, n);
		m->cursor = (first + n) % UNWIND_MAPPINGS;
		*ret_first = first;
		return 0;
	}
	return -ENOSPC;
}

static void give_place(struct unwind_mappings *m, pid_t pid)
{
	uint64_t place = hashmap_get(&m->places, 0, (uint64_t)pid);

	if (!place)
		return;
	memset(&m->used[(uint32_t)(place >> 32) - 1], false, (uint32_t)place);
	hashmap_drop(&m->places, 0, (uint64_t)pid);
}

static int write_list(struct unwind_mappings *m, uint32_t first, const struct unwind_mapping *list,
		      uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t key = first + i;

		if (bpf_map_update_elem(m->mappings_fd, &key, &list[i], BPF_ANY) < 0)
			return -errno;
	}
	return 0;
}

/*
 * Runtimes make their code in a part of memory that they have set aside: the next piece lies beside
 * the last. HotSpot's lies behind it.
 */
#define MADE_BESIDE (UINT64_C(64) << 20)
#define MADE_BEHIND (UINT64_C(1) << 20)

static void around_made(const struct unwind_mapping *list, uint32_t n, struct unwind_process *entry)
{
	for (uint32_t i = 0; i < n; i++) {
		if (!UNWIND_IS_MADE(&list[i]))
			continue;
		entry->hotspot |= list[i].page0 == UNWIND_MADE_HOTSPOT;
		if (!entry->made_end)
			entry->made_start = entry->hotspot || list[i].start < MADE_BESIDE
						    ? list[i].start
						    : list[i].start - MADE_BESIDE;
		entry->made_end = list[i].end + (entry->hotspot ? MADE_BEHIND : MADE_BESIDE);
	}
}

static void add(const struct unwind_process *entry, struct unwind_counts *sum)
{
	for (size_t i = 0; i < UNWIND_WHYS; i++)
		sum->whys[i] += entry->whys[i];
	sum->frame_pointers += entry->frame_pointers;
}

void unwind_mappings_count(const struct unwind_mappings *m, pid_t pid, struct unwind_counts *sum)
{
	uint32_t key = (uint32_t)pid;
	struct unwind_process entry;

	if (bpf_map_lookup_elem(m->processes_fd, &key, &entry) == 0)
		add(&entry, sum);
}

void unwind_mappings_drop(struct unwind_mappings *m, pid_t pid, struct unwind_counts *sum)
{
	uint32_t key = (uint32_t)pid;

	unwind_mappings_count(m, pid, sum);
	(void)bpf_map_delete_elem(m->processes_fd, &key);
	give_place(m, pid);
}

int unwind_mappings_put(struct unwind_mappings *m, pid_t pid, struct unwind_mapping *list,
			uint32_t n, struct unwind_counts *sum)
{
	struct unwind_process entry = {.n = n};
	uint32_t key = (uint32_t)pid;
	int r;

	if (n == 0) {
		unwind_mappings_drop(m, pid, sum);
		return 0;
	}
	r = take_place(m, n, &entry.first);
	if (r < 0)
		goto failed;
	entry.generation = ++m->generation;
	around_made(list, n, &entry);
	for (uint32_t i = 0; i < n; i++)
		list[i].generation = entry.generation;
	r = write_list(m, entry.first, list, n);
	if (r == 0) {
		unwind_mappings_count(m, pid, sum);
		if (bpf_map_update_elem(m->processes_fd, &key, &entry, BPF_ANY) < 0)
			r = -errno;
	}
	give_place(m, pid);
	if (r == 0)
		r = hashmap_put(&m->places, 0, (uint64_t)pid,
				(uint64_t)(entry.first + 1) << 32 | n);
	if (r == 0)
		return 0;
	memset(&m->used[entry.first], false, n);
failed:
	unwind_mappings_drop(m, pid, sum);
	return r;
}

#else /* !HAVE_BPF: never called */

int unwind_mappings_new(const struct filter *filter, struct unwind_mappings **ret)
{
	return -EOPNOTSUPP;
}

struct unwind_mappings *unwind_mappings_free(struct unwind_mappings *m)
{
	return NULL;
}

int unwind_mappings_put(struct unwind_mappings *m, pid_t pid, struct unwind_mapping *list,
			uint32_t n, struct unwind_counts *sum)
{
	return -EOPNOTSUPP;
}

void unwind_mappings_drop(struct unwind_mappings *m, pid_t pid, struct unwind_counts *sum)
{
}

void unwind_mappings_count(const struct unwind_mappings *m, pid_t pid, struct unwind_counts *sum)
{
}

#endif
