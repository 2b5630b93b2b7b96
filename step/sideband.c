// SPDX-License-Identifier: Apache-2.0
#include "step/sideband.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/queue.h>

#include "common/bundle/perfabi.h"

#define MAX_BYTES (64u << 20)
#define ALIGN8(n) (((n) + 7u) & ~(size_t)7)

/* Precedes each record; the record's header does not count the trailer yet. */
struct entry {
	uint64_t ticks;
	uint32_t pid, tid;
	uint64_t id;
};

/* The largest is a mapping with the longest path; writing appends the trailer. */
union record {
	struct perf_event_header header;
	struct perfabi_mmap2 mmap2;
	struct perfabi_comm comm;
	struct perfabi_task task;
	struct perfabi_itrace_start itrace;
	struct perfabi_aux aux;
	uint8_t bytes[sizeof(struct perfabi_mmap2) + PROC_PATH_MAX + 8 +
		      sizeof(struct perfabi_sample_id)];
};

struct buffer {
	uint8_t *bytes;
	size_t used, size;
};

struct segment {
	STAILQ_ENTRY(segment) in_side;
	uint64_t number, ticks;
	struct buffer state, records;
};

struct sideband {
	STAILQ_HEAD(, segment) segments; /* the oldest first; never empty */
	struct segment *last;
	struct buffer *to; /* of `last` */
	size_t used;	   /* of all of them */
	union record record; /* being built */
};

static int add_segment(struct sideband *s, uint64_t number, uint64_t ticks)
{
	struct segment *g = calloc(1, sizeof(*g));

	if (!g)
		return -ENOMEM;
	g->number = number;
	g->ticks = ticks;
	STAILQ_INSERT_TAIL(&s->segments, g, in_side);
	s->last = g;
	s->to = &g->records;
	return 0;
}

int sideband_new(struct sideband **ret)
{
	_cleanup_(sideband_freep) struct sideband *s = calloc(1, sizeof(*s));
	int r;

	if (!s)
		return -ENOMEM;
	STAILQ_INIT(&s->segments);
	r = add_segment(s, 0, 0);
	if (r < 0)
		return r;
	*ret = take_ptr(s);
	return 0;
}

static void drop_first(struct sideband *s)
{
	struct segment *g = STAILQ_FIRST(&s->segments);

	STAILQ_REMOVE_HEAD(&s->segments, in_side);
	s->used -= g->state.used + g->records.used;
	free(g->state.bytes);
	free(g->records.bytes);
	free(g);
}

struct sideband *sideband_free(struct sideband *s)
{
	if (!s)
		return NULL;
	while (!STAILQ_EMPTY(&s->segments))
		drop_first(s);
	free(s);
	return NULL;
}

/* ---- segments */

int sideband_begin_segment(struct sideband *s, uint64_t ticks)
{
	int r = add_segment(s, s->last->number + 1, ticks);

	if (r == 0)
		s->to = &s->last->state;
	return r;
}

void sideband_begin_records(struct sideband *s)
{
	s->to = &s->last->records;
}

uint64_t sideband_segment(const struct sideband *s)
{
	return s->last->number;
}

uint64_t sideband_first_segment(const struct sideband *s)
{
	return STAILQ_FIRST(&s->segments)->number;
}

uint64_t sideband_second_segment_ticks(const struct sideband *s)
{
	const struct segment *g = STAILQ_NEXT(STAILQ_FIRST(&s->segments), in_side);

	return g ? g->ticks : 0;
}

void sideband_drop_oldest_segment(struct sideband *s)
{
	if (STAILQ_FIRST(&s->segments) != s->last)
		drop_first(s);
}

size_t sideband_bytes(const struct sideband *s)
{
	return s->used;
}

size_t sideband_segment_bytes(const struct sideband *s)
{
	return s->last->records.used;
}

/* ---- records */

static int grow(struct buffer *b, size_t need)
{
	size_t size = b->size ? b->size : 1u << 12;
	uint8_t *p;

	while (size - b->used < need)
		size *= 2;
	p = realloc(b->bytes, size);
	if (!p)
		return -ENOMEM;
	b->bytes = p;
	b->size = size;
	return 0;
}

static int add(struct sideband *s, uint32_t type, uint16_t misc, const struct entry *e, size_t len)
{
	const size_t padded = ALIGN8(len), need = sizeof(*e) + padded;
	struct buffer *b = s->to;

	if (need > MAX_BYTES - s->used)
		return -EFBIG;
	if (b->size - b->used < need) {
		int r = grow(b, need);

		if (r < 0)
			return r;
	}
	memset(s->record.bytes + len, 0, padded - len);
	s->record.header =
		(struct perf_event_header){.type = type, .misc = misc, .size = (uint16_t)padded};
	memcpy(b->bytes + b->used, e, sizeof(*e));
	memcpy(b->bytes + b->used + sizeof(*e), s->record.bytes, padded);
	b->used += need;
	s->used += need;
	return 0;
}

static struct entry entry_of(uint64_t ticks, pid_t pid, pid_t tid)
{
	return (struct entry){.ticks = ticks,
			      .pid = (uint32_t)pid,
			      .tid = (uint32_t)tid,
			      .id = STEP_ID_SIDE};
}

int sideband_comm(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid, const char *comm,
		  bool exec)
{
	const struct entry e = entry_of(ticks, pid, tid);
	const size_t len = strnlen(comm, PROC_COMM_MAX - 1);

	s->record.comm.pid = e.pid;
	s->record.comm.tid = e.tid;
	memcpy(s->record.bytes + sizeof(struct perfabi_comm), comm, len);
	s->record.bytes[sizeof(struct perfabi_comm) + len] = '\0';
	return add(s, PERF_RECORD_COMM, exec ? PERF_RECORD_MISC_COMM_EXEC : 0, &e,
		sizeof(struct perfabi_comm) + len + 1);
}

static int add_task(struct sideband *s, uint32_t type, const struct entry *e, pid_t ppid,
		    pid_t ptid, uint64_t ticks)
{
	s->record.task = (struct perfabi_task){.pid = e->pid,
					       .ppid = (uint32_t)ppid,
					       .tid = e->tid,
					       .ptid = (uint32_t)ptid,
					       .time = ticks};
	return add(s, type, 0, e, sizeof(s->record.task));
}

int sideband_fork(struct sideband *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid, pid_t ptid)
{
	const struct entry e = entry_of(ticks, pid, tid);

	return add_task(s, PERF_RECORD_FORK, &e, ppid, ptid, ticks);
}

int sideband_exit(struct sideband *s, uint64_t ticks, pid_t pid, pid_t ppid, pid_t tid, pid_t ptid)
{
	const struct entry e = entry_of(ticks, pid, tid);

	return add_task(s, PERF_RECORD_EXIT, &e, ppid, ptid, ticks);
}

int sideband_mmap(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid,
		  const struct proc_map *map, const char *path)
{
	const struct entry e = entry_of(ticks, pid, tid);
	size_t len = path ? strlen(path) : map->path_len;

	if (len >= PROC_PATH_MAX)
		len = PROC_PATH_MAX - 1;
	s->record.mmap2 = (struct perfabi_mmap2){
		.pid = e.pid,
		.tid = e.tid,
		.addr = map->start,
		.len = map->end - map->start,
		.pgoff = map->pgoff,
		.maj = map->maj,
		.min = map->min,
		.ino = map->ino,
		.prot = map->prot,
		.flags = map->shared ? MAP_SHARED : MAP_PRIVATE,
	};
	memcpy(s->record.bytes + sizeof(struct perfabi_mmap2), path ? path : map->path, len);
	s->record.bytes[sizeof(struct perfabi_mmap2) + len] = '\0';
	return add(s, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, &e,
		   sizeof(struct perfabi_mmap2) + len + 1);
}

int sideband_itrace_start(struct sideband *s, uint64_t ticks, pid_t pid, pid_t tid)
{
	struct entry e = entry_of(ticks, pid, tid);

	e.id = STEP_ID_PT;
	s->record.itrace = (struct perfabi_itrace_start){.pid = e.pid, .tid = e.tid};
	return add(s, PERF_RECORD_ITRACE_START, 0, &e, sizeof(s->record.itrace));
}

/* ---- writing */

static int write_one(union record *out, const struct entry *e, const struct step_clock *clock,
		     struct perfdata_writer *w)
{
	const size_t len = out->header.size;
	struct perfabi_sample_id id = {
		.pid = e->pid, .tid = e->tid, .time = step_clock_ns(clock, e->ticks), .id = e->id};

	if (out->header.type == PERF_RECORD_FORK || out->header.type == PERF_RECORD_EXIT)
		out->task.time = id.time;
	out->header.size = (uint16_t)(len + sizeof(id));
	memcpy(out->bytes + len, &id, sizeof(id));
	return perfdata_write(w, out, len + sizeof(id));
}

static int write_buffer(const struct buffer *b, union record *out, const struct step_clock *clock,
			struct perfdata_writer *w)
{
	int r = 0;

	for (size_t at = 0; r == 0 && at < b->used;) {
		struct perf_event_header h;
		struct entry e;

		memcpy(&e, b->bytes + at, sizeof(e));
		at += sizeof(e);
		memcpy(&h, b->bytes + at, sizeof(h));
		memcpy(out->bytes, b->bytes + at, h.size);
		at += h.size;
		r = write_one(out, &e, clock, w);
	}
	return r;
}

int sideband_write(const struct sideband *s, const struct step_clock *clock,
		   struct perfdata_writer *w)
{
	_cleanup_free_ union record *out = calloc(1, sizeof(*out));
	const struct segment *g = STAILQ_FIRST(&s->segments);
	int r;

	if (!out)
		return -ENOMEM;
	r = write_buffer(&g->state, out, clock, w);
	STAILQ_FOREACH(g, &s->segments, in_side)
		if (r == 0)
			r = write_buffer(&g->records, out, clock, w);
	return r;
}

int sideband_write_aux(const struct step_clock *clock, uint64_t ticks, pid_t pid, pid_t tid,
		       uint64_t bytes, uint64_t flags, struct perfdata_writer *w)
{
	_cleanup_free_ union record *out = calloc(1, sizeof(*out));
	struct entry e = entry_of(ticks, pid, tid);

	if (!out)
		return -ENOMEM;
	e.id = STEP_ID_PT;
	out->aux = (struct perfabi_aux){.size = bytes, .flags = flags};
	out->header = (struct perf_event_header){.type = PERF_RECORD_AUX, .size = sizeof(out->aux)};
	return write_one(out, &e, clock, w);
}
