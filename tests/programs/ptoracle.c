// SPDX-License-Identifier: Apache-2.0
/*
 * An oracle for recordings with Intel PT: every instruction of every thread by libipt's instruction decoder,
 * "tid ip" a line. It shares nothing with our own decoder: records, mappings and images are read here, in the
 * plainest way.
 *
 *	ptoracle RECORDING [TREE]	(the vDSO is RECORDING.vdso; files are looked for in TREE first)
 *
 * Knows files with a buffer per thread and TSC packets, mappings that come with a new "enabled" event, and no
 * libipt beyond 2.0.5. Ends with 1 where a thread does not decode to its end.
 */
#include <fcntl.h>
#include <intel-pt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/bundle/perfabi.h"

#define DATA_OFFSET_AT 40 /* of the data section, in the file's header; its size follows */
#define MAX_DEPTH 64	  /* of forks */

enum kind { MAPPED, EXECED, FORKED };

/* What a process can execute from a time on. */
struct change {
	enum kind kind;
	uint32_t pid, parent;
	uint64_t time, start, length, offset;
	const char *path;
};

struct image {
	const char *path;
	const uint8_t *bytes; /* NULL: there is none */
	size_t size;
};

static struct change *changes;
static size_t n_changes;
static struct image *images;
static size_t n_images;
static char vdso[4096];
static const char *tree;
static uint64_t shift, mult, zero;

static void *grow(void *p, size_t n, size_t size)
{
	if (n & (n - 1))
		return p;
	p = realloc(p, (n ? n * 2 : 1) * size);
	if (!p) {
		perror("ptoracle");
		exit(2);
	}
	return p;
}

static const uint8_t *map_file(const char *path, size_t *ret_size)
{
	struct stat st;
	void *p = MAP_FAILED;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return NULL;
	if (fstat(fd, &st) == 0 && st.st_size > 0)
		p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
	(void)close(fd);
	if (p == MAP_FAILED)
		return NULL;
	*ret_size = (size_t)st.st_size;
	return p;
}

static const struct image *image_of(const char *path)
{
	const uint8_t *bytes = NULL;
	size_t size = 0;

	for (size_t i = 0; i < n_images; i++)
		if (strcmp(images[i].path, path) == 0)
			return &images[i];
	if (tree) {
		char path_in[8192];

		(void)snprintf(path_in, sizeof(path_in), "%s/%s", tree, path);
		bytes = map_file(path_in, &size);
	}
	if (!bytes)
		bytes = map_file(strcmp(path, "[vdso]") == 0 ? vdso : path, &size);
	images = grow(images, n_images, sizeof(*images));
	images[n_images] = (struct image){.path = path, .bytes = bytes, .size = size};
	return &images[n_images++];
}

static uint64_t ns(uint64_t tsc)
{
	return zero + (tsc >> shift) * mult + (((tsc & ((UINT64_C(1) << shift) - 1)) * mult) >> shift);
}

/* ---- where a thread is */

struct place {
	uint32_t pid;
	uint64_t time;
};

static const struct change *find(uint32_t pid, uint64_t time, uint64_t ip)
{
	for (unsigned int depth = 0; depth < MAX_DEPTH; depth++) {
		const struct change *forked = NULL;

		for (size_t i = n_changes; i-- > 0 && !forked;) {
			const struct change *c = &changes[i];

			if (c->pid != pid || c->time > time)
				continue;
			if (c->kind == EXECED)
				return NULL;
			if (c->kind == MAPPED && ip >= c->start && ip - c->start < c->length)
				return c;
			if (c->kind == FORKED)
				forked = c;
		}
		if (!forked)
			return NULL;
		pid = forked->parent;
		time = forked->time;
	}
	return NULL;
}

static int read_code(uint8_t *buffer, size_t size, const struct pt_asid *asid, uint64_t ip, void *context)
{
	const struct place *at = context;
	const struct change *c = find(at->pid, at->time, ip);
	const struct image *image = c ? image_of(c->path) : NULL;
	uint64_t offset;

	(void)asid;
	if (!image || !image->bytes)
		return -pte_nomap;
	offset = c->offset + (ip - c->start);
	if (offset >= image->size)
		return -pte_nomap;
	if (size > image->size - offset)
		size = image->size - offset;
	memcpy(buffer, image->bytes + offset, size);
	return (int)size;
}

/* ---- decoding */

static int drain(struct pt_insn_decoder *decoder, int status, struct place *at)
{
	while (status >= 0 && status & pts_event_pending) {
		struct pt_event event;

		status = pt_insn_event(decoder, &event, sizeof(event));
		if (status >= 0 && event.type == ptev_enabled && event.has_tsc)
			at->time = ns(event.tsc);
	}
	return status;
}

static bool decode(uint32_t pid, uint32_t tid, const uint8_t *bytes, size_t size)
{
	struct pt_image *image = pt_image_alloc(NULL);
	struct pt_insn_decoder *decoder;
	struct place at = {.pid = pid};
	struct pt_config config;
	struct pt_insn insn;
	uint64_t tsc, offset;
	int status;

	pt_config_init(&config);
	config.begin = (uint8_t *)(uintptr_t)bytes;
	config.end = config.begin + size;
	decoder = pt_insn_alloc_decoder(&config);
	if (!decoder || !image || pt_image_set_callback(image, read_code, &at) < 0 ||
		pt_insn_set_image(decoder, image) < 0)
		return false;
	status = pt_insn_sync_forward(decoder);
	if (status >= 0 && pt_insn_time(decoder, &tsc, NULL, NULL) == 0)
		at.time = ns(tsc);
	for (;;) {
		status = drain(decoder, status, &at);
		if (status < 0 || status & pts_eos)
			break;
		insn = (struct pt_insn){0};
		status = pt_insn_next(decoder, &insn, sizeof(insn));
		if (status < 0)
			break;
		(void)printf("%u %llx\n", tid, (unsigned long long)insn.ip);
	}
	if (status < 0 && status != -pte_eos) {
		(void)pt_insn_get_offset(decoder, &offset);
		(void)fprintf(stderr, "thread %u: %s at offset %llx, ip %llx\n", tid, pt_errstr(pt_errcode(status)),
			      (unsigned long long)offset, (unsigned long long)insn.ip);
		return false;
	}
	pt_insn_free_decoder(decoder);
	pt_image_free(image);
	return true;
}

/* ---- records */

static void add_change(const struct perf_event_header *h)
{
	const uint8_t *p = (const uint8_t *)h;
	struct change c = {0};

	memcpy(&c.time, p + h->size - 24, 8);
	if (h->type == PERF_RECORD_MMAP2) {
		const struct perfabi_mmap2 *m = (const void *)h;

		c = (struct change){MAPPED, m->pid, 0, c.time, m->addr, m->len, m->pgoff, m->filename};
	} else if (h->type == PERF_RECORD_COMM && h->misc & PERF_RECORD_MISC_COMM_EXEC) {
		c.kind = EXECED;
		c.pid = ((const struct perfabi_comm *)(const void *)h)->pid;
	} else if (h->type == PERF_RECORD_FORK) {
		const struct perfabi_task *t = (const void *)h;

		if (t->pid == t->ppid)
			return; /* a thread */
		c.kind = FORKED;
		c.pid = t->pid;
		c.parent = t->ppid;
	} else {
		return;
	}
	changes = grow(changes, n_changes, sizeof(*changes));
	changes[n_changes++] = c;
}

/* Which process a buffer belongs to says the AUX record in front of it. */
static bool walk(const uint8_t *p, const uint8_t *end)
{
	uint32_t pid = 0;
	bool all = true;

	for (const struct perf_event_header *h = (const void *)p; p < end; h = (const void *)p) {
		p += h->size;
		if (h->type == PERFABI_RECORD_AUXTRACE_INFO) {
			const struct perfabi_auxtrace_info_pt *info = (const void *)h;

			shift = info->words[PERFABI_PT_TIME_SHIFT];
			mult = info->words[PERFABI_PT_TIME_MULT];
			zero = info->words[PERFABI_PT_TIME_ZERO];
		} else if (h->type == PERF_RECORD_AUX) {
			memcpy(&pid, p - sizeof(struct perfabi_sample_id), sizeof(pid));
		} else if (h->type == PERFABI_RECORD_AUXTRACE) {
			const struct perfabi_auxtrace *a = (const void *)h;

			all &= decode(pid, a->tid, p, a->size);
			p += a->size;
		} else {
			add_change(h);
		}
	}
	return all;
}

int main(int argc, char **argv)
{
	const uint8_t *file;
	uint64_t data, size;
	size_t bytes = 0;

	if (argc != 2 && argc != 3)
		return 2;
	tree = argv[2];
	(void)snprintf(vdso, sizeof(vdso), "%s.vdso", argv[1]);
	file = map_file(argv[1], &bytes);
	if (!file || bytes < 104 || memcmp(file, "PERFILE2", 8) != 0) {
		(void)fprintf(stderr, "%s: no perf.data\n", argv[1]);
		return 2;
	}
	memcpy(&data, file + DATA_OFFSET_AT, 8);
	memcpy(&size, file + DATA_OFFSET_AT + 8, 8);
	return walk(file + data, file + data + size) ? 0 : 1;
}
