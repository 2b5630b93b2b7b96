// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/proc_records.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/io.h"
#include "common/bundle/perfabi.h"
#include "daemon/target/sideband_log.h"

#define ALIGN8(n) (((n) + 7u) & ~(size_t)7)

/* The largest is a mapping with the longest path. */
union record {
	struct perf_event_header header;
	struct perfabi_mmap2 mmap2;
	struct perfabi_comm comm;
	struct perfabi_task task;
	struct perfabi_namespaces namespaces;
	uint8_t bytes[sizeof(struct perfabi_mmap2) + PROC_PATH_MAX + 8 +
		      sizeof(struct perfabi_sample_id)];
};

struct proc_records {
	union record record;
	pid_t pid;
	uint64_t time;
	proc_records_fn fn;
	void *arg;
};

/* Ends a record of `len` bytes with the trailer and hands it out. */
static int emit(struct proc_records *p, uint32_t type, uint16_t misc, pid_t tid, size_t len)
{
	struct perfabi_sample_id id = {.pid = (uint32_t)p->pid,
				       .tid = (uint32_t)tid,
				       .time = p->time,
				       .id = SIDEBAND_LOG_ID};
	size_t padded = ALIGN8(len);

	memset(p->record.bytes + len, 0, padded - len);
	memcpy(p->record.bytes + padded, &id, sizeof(id));
	p->record.header = (struct perf_event_header){
		.type = type, .misc = misc, .size = (uint16_t)(padded + sizeof(id))};
	return p->fn(p->arg, &p->record.header);
}

static int read_thread(struct proc_records *p, int dirfd, pid_t tid)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	size_t len;
	int r;

	(void)snprintf(path, sizeof(path), "task/%d/comm", (int)tid);
	r = io_read_file_at(dirfd, path, PROC_COMM_MAX, &text, &len);
	if (r == -ENOENT || r == -ESRCH)
		return 0; /* it ended meanwhile */
	if (r < 0)
		return r;
	/* The thread's process must be known before its name. */
	if (tid != p->pid) {
		p->record.task = (struct perfabi_task){.pid = (uint32_t)p->pid,
						       .ppid = (uint32_t)p->pid,
						       .tid = (uint32_t)tid,
						       .ptid = (uint32_t)p->pid,
						       .time = p->time};
		r = emit(p, PERF_RECORD_FORK, 0, tid, sizeof(p->record.task));
		if (r < 0)
			return r;
	}
	if (len > 0 && text[len - 1] == '\n')
		len--;
	p->record.comm.pid = (uint32_t)p->pid;
	p->record.comm.tid = (uint32_t)tid;
	memcpy(p->record.bytes + sizeof(struct perfabi_comm), text, len);
	p->record.bytes[sizeof(struct perfabi_comm) + len] = '\0';
	return emit(p, PERF_RECORD_COMM, 0, tid, sizeof(struct perfabi_comm) + len + 1);
}

static int read_threads(struct proc_records *p, int dirfd, pid_t only)
{
	_cleanup_free_ pid_t *tids = NULL;
	size_t n;
	int r;

	r = proc_tasks_read(dirfd, &tids, &n);
	if (r < 0)
		return r;
	/* The leader first: the others are its children here. */
	r = read_thread(p, dirfd, p->pid);
	for (size_t i = 0; r == 0 && i < n; i++)
		if (tids[i] != p->pid && (!only || tids[i] == only))
			r = read_thread(p, dirfd, tids[i]);
	return r;
}

/* The kernel writes newlines in paths as \012; its own records have the byte. */
static size_t unescape(const char *from, size_t len, char *to, size_t size)
{
	size_t n = 0;

	for (size_t i = 0; i < len && n + 1 < size; i++) {
		if (len - i > 3 && memcmp(from + i, "\\012", 4) == 0) {
			to[n++] = '\n';
			i += 3;
		} else {
			to[n++] = from[i];
		}
	}
	to[n] = '\0';
	return n;
}

static int read_map(struct proc_records *p, const struct proc_map *map)
{
	struct perfabi_mmap2 *m = &p->record.mmap2;
	size_t len;

	*m = (struct perfabi_mmap2){
		.pid = (uint32_t)p->pid,
		.tid = (uint32_t)p->pid,
		.addr = map->start,
		.len = map->end - map->start,
		.pgoff = map->pgoff,
		.maj = map->maj,
		.min = map->min,
		.ino = map->ino,
		.prot = map->prot,
		.flags = map->shared ? MAP_SHARED : MAP_PRIVATE,
	};
	/* As the kernel names what has no file. */
	if (map->path_len)
		len = unescape(map->path, map->path_len, m->filename, PROC_PATH_MAX);
	else
		len = unescape("//anon", strlen("//anon"), m->filename, PROC_PATH_MAX);
	return emit(p, PERF_RECORD_MMAP2, PERF_RECORD_MISC_USER, p->pid, sizeof(*m) + len + 1);
}

static int read_maps(struct proc_records *p, int dirfd)
{
	_cleanup_free_ char *text = NULL;
	struct proc_map map;
	size_t len, pos = 0;
	int r;

	r = proc_maps_read(dirfd, &text, &len);
	if (r < 0)
		return r;
	for (;;) {
		r = proc_map_next(text, len, &pos, &map);
		if (r == 0)
			return 0;
		/* vsyscall lies in the kernel's half: no mapping of the process. */
		if (r < 0 || !(map.prot & PROT_EXEC) || map.start >> 63)
			continue;
		r = read_map(p, &map);
		if (r < 0)
			return r;
	}
}

static int read_namespaces(struct proc_records *p, int dirfd)
{
	static const char *const names[] = {"net", "uts", "ipc", "pid", "user", "mnt", "cgroup"};
	struct perfabi_namespaces *out = &p->record.namespaces;

	out->pid = (uint32_t)p->pid;
	out->tid = (uint32_t)p->pid;
	out->nr = ARRAY_SIZE(names);
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		char path[32];
		struct stat st;

		(void)snprintf(path, sizeof(path), "ns/%s", names[i]);
		if (fstatat(dirfd, path, &st, 0) < 0)
			/* not permitted, or it ended: no record rather than half of one */
			return 0;
		out->ns[i] = (struct perfabi_ns){.dev = st.st_dev, .ino = st.st_ino};
	}
	return emit(p, PERF_RECORD_NAMESPACES, 0, p->pid,
		    sizeof(*out) + ARRAY_SIZE(names) * sizeof(struct perfabi_ns));
}

int proc_records_read(int proc_dirfd, pid_t pid, pid_t tid, uint64_t time_ns, unsigned int what,
		      proc_records_fn fn, void *arg)
{
	struct proc_records *p;
	int r = 0;

	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->pid = pid;
	p->time = time_ns;
	p->fn = fn;
	p->arg = arg;
	if (what & PROC_RECORDS_THREADS)
		r = read_threads(p, proc_dirfd, tid);
	if (r == 0 && (what & PROC_RECORDS_NAMESPACES))
		r = read_namespaces(p, proc_dirfd);
	if (r == 0 && (what & PROC_RECORDS_MAPS))
		r = read_maps(p, proc_dirfd);
	free(p);
	return r == -ENOENT || r == -ESRCH ? PROC_E_GONE : r;
}
