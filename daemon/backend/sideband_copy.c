// SPDX-License-Identifier: Apache-2.0
/*
 * The side-band log of a frozen target in its bundle: who was there, under which name, what was
 * mapped. Without what its owner may not see.
 */
#include <stdlib.h>
#include <string.h>

#include "common/base/address.h"
#include "common/bundle/perfabi.h"
#include "common/bundle/perfdata_write.h"
#include "common/bundle/schedev.h"
#include "daemon/backend/capture.h"
#include "daemon/backend/frozen.h"

#define BLOCK_BYTES (64u << 10)
#define PERF_PAGE_BYTES 4096u

struct sideband_out {
	struct perfdata_writer *writer;
	struct frozen_stats *stats;
	uint8_t buf[BLOCK_BYTES];
	size_t used;
};

static void count_sideband(const struct perf_event_header *h, struct frozen_stats *stats)
{
	switch (h->type) {
	case PERF_RECORD_MMAP2:
		stats->mmaps++;
		break;
	case PERF_RECORD_COMM:
		stats->comms++;
		break;
	case PERF_RECORD_FORK:
		stats->forks++;
		break;
	case PERF_RECORD_EXIT:
		stats->exits++;
		break;
	case PERF_RECORD_NAMESPACES:
		stats->namespaces++;
		break;
	}
	stats->bytes += h->size;
}

/* A task's parent may be somebody else's. */
static void mask_parent(const struct frozen *frozen, struct perfabi_task *task)
{
	if (frozen->admin || frozen_member(frozen, (pid_t)task->ppid))
		return;
	task->ppid = SCHEDEV_MASKED_ID;
	task->ptid = SCHEDEV_MASKED_ID;
}

static int sideband_out(struct sideband_out *out, const struct perf_event_header *h,
			struct perf_event_header **ret)
{
	int r;

	if (out->used + h->size > sizeof(out->buf)) {
		r = perfdata_write(out->writer, out->buf, out->used);
		if (r < 0)
			return r;
		out->used = 0;
	}
	*ret = (void *)(out->buf + out->used);
	memcpy(*ret, h, h->size);
	out->used += h->size;
	count_sideband(h, out->stats);
	return 0;
}

/*
 * Whoever has become what may not be seen has left the picture: else he would run, or wait, until
 * something else is known of him.
 */
static int end_hidden(const struct frozen *frozen, struct sideband_out *out)
{
	struct perf_event_header *copy;
	int r = 0;

	for (size_t i = 1; i < frozen->n_members && r == 0; i++) {
		const struct frozen_member *m = &frozen->members[i], *before = m - 1;
		struct {
			struct perfabi_task task;
			struct perfabi_sample_id id;
		} end = {.task = {.header = {.type = PERF_RECORD_EXIT, .size = sizeof(end)}}};

		if (!m->hidden || m->unseen || before->hidden || before->pid != m->pid ||
		    before->to_ns + 1 != m->from_ns)
			continue;
		end.task.pid = end.task.tid = end.id.pid = end.id.tid = (uint32_t)m->pid;
		end.task.ppid = end.task.ptid = SCHEDEV_MASKED_ID;
		end.task.time = end.id.time = before->to_ns;
		end.id.id = SIDEBAND_LOG_ID;
		r = sideband_out(out, &end.task.header, &copy);
	}
	return r;
}

static int on_sideband(struct frozen *frozen, const struct perf_event_header *h, void *arg)
{
	struct sideband_out *out = arg;
	struct perf_event_header *copy;
	int r;

	/* All of its records begin with the pid. */
	if (sideband_log_time(h) > frozen->raw_ns ||
	    frozen_hides(frozen, ((const struct perfabi_task *)(const void *)h)->pid,
			 sideband_log_time(h)))
		return 0;
	r = sideband_out(out, h, &copy);
	if (r == 0 && (h->type == PERF_RECORD_FORK || h->type == PERF_RECORD_EXIT))
		mask_parent(frozen, (void *)copy);
	return r;
}

/*
 * perf names an address by what is mapped there, and the kernel's are mapped by this record alone:
 * the upper half of all addresses, of which /proc/kallsyms, or the bundle's, has the symbols. It is
 * older than all else.
 */
static int write_kernel_map(const struct frozen *frozen, struct perfdata_writer *writer)
{
	struct {
		struct perf_event_header header;
		uint32_t pid, tid;
		uint64_t addr, len, pgoff;
		char name[24];
		struct perfabi_sample_id id;
	} map = {
		.header = {.type = PERF_RECORD_MMAP,
			   .misc = PERF_RECORD_MISC_KERNEL,
			   .size = sizeof(map)},
		.pid = UINT32_MAX,
		.addr = KERNEL_HALF,
		.len = KERNEL_HALF - PERF_PAGE_BYTES,
		.name = "[kernel.kallsyms]_text",
		.id = {.pid = UINT32_MAX,
		       .time = frozen_recorded_from(frozen),
		       .id = SIDEBAND_LOG_ID},
	};

	return frozen_has_kernel_stacks(frozen) ? perfdata_write(writer, &map, sizeof(map)) : 0;
}

/* Calls `fn` with each record of the frozen side-band log, until it answers not 0. */
static int sideband_each(struct frozen *frozen,
			 int (*fn)(struct frozen *, const struct perf_event_header *, void *),
			 void *arg)
{
	const uint8_t *block;
	size_t len;
	int r = 0;

	for (size_t n = 0;
	     r == 0 && (block = sideband_log_view_block(&frozen->sideband, n, &len)) != NULL; n++)
		for (size_t at = 0; r == 0 && at < len;
		     at += ((const struct perf_event_header *)(block + at))->size)
			r = fn(frozen, (const void *)(block + at), arg);
	return r;
}

int frozen_copy_sideband(struct frozen *frozen, struct perfdata_writer *writer,
			 struct frozen_stats *stats)
{
	_cleanup_free_ struct sideband_out *out = NULL;
	struct perf_event_attr attr;
	uint64_t id = SIDEBAND_LOG_ID;
	int r;

	out = malloc(sizeof(*out));
	if (!out)
		return -ENOMEM;
	out->writer = writer;
	out->stats = stats;
	out->used = 0;
	sideband_events_attr(&attr);
	r = perfdata_add_event(writer, "history", &attr, &id, 1);
	if (r == 0)
		r = write_kernel_map(frozen, writer);
	if (r < 0)
		return r;
	r = sideband_each(frozen, on_sideband, out);
	if (r == 0)
		r = end_hidden(frozen, out);
	if (r < 0)
		return r;
	return out->used ? perfdata_write(writer, out->buf, out->used) : 0;
}
