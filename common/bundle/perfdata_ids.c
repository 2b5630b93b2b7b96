// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/perfdata_ids.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"

#define MISC_BUILD_ID_SIZE (1u << 15) /* PERF_RECORD_MISC_BUILD_ID_SIZE of perf */
#define FEATURE_BUILD_ID 2
#define NAME_ALIGN 64

/* of tools/perf/Documentation/perf.data-file-format.txt of the kernel */
struct section {
	uint64_t offset, size;
};

struct file_header {
	char magic[8];
	uint64_t size, attr_size;
	struct section attrs, data, event_types;
	uint64_t features[4];
};

struct entry {
	struct perf_event_header header;
	int32_t pid;
	uint8_t id[PERFDATA_ID_MAX], id_len, reserved[3];
	char name[];
};

size_t perfdata_id_size(const char *path)
{
	return sizeof(struct entry) + (strlen(path) + NAME_ALIGN) / NAME_ALIGN * NAME_ALIGN;
}

void perfdata_id_put(const struct perfdata_id *id, void *buf)
{
	const size_t size = perfdata_id_size(id->path);
	const struct entry e = {
		.header = {.misc = PERF_RECORD_MISC_USER | MISC_BUILD_ID_SIZE,
			   .size = (uint16_t)size},
		.pid = -1,
		.id_len = id->len,
	};

	memset(buf, 0, size);
	memcpy(buf, &e, sizeof(e));
	memcpy((uint8_t *)buf + offsetof(struct entry, id), id->id, id->len);
	memcpy((uint8_t *)buf + sizeof(e), id->path, strlen(id->path));
}

/*
 * Where the section of build ids is described, and what it is now. A stepper has written the file,
 * perhaps.
 */
static int find_section(int fd, uint64_t file_size, uint64_t *ret_at, struct section *ret)
{
	struct file_header h;
	uint64_t at;

	if (io_pread_full(fd, &h, sizeof(h), 0) != sizeof(h) ||
	    memcmp(h.magic, "PERFILE2", 8) != 0 || !(h.features[0] & 1u << FEATURE_BUILD_ID) ||
	    __builtin_add_overflow(h.data.offset, h.data.size, &at) || at >= file_size)
		return -EINVAL;
	at += (uint64_t)__builtin_popcountll(h.features[0] & ((1u << FEATURE_BUILD_ID) - 1)) *
	      sizeof(*ret);
	if (at >= file_size || io_pread_full(fd, ret, sizeof(*ret), (off_t)at) != sizeof(*ret) ||
	    ret->offset > file_size || ret->size > file_size - ret->offset)
		return -EINVAL;
	*ret_at = at;
	return ret->size > PERFDATA_IDS_MAX_BYTES ? -EFBIG : 0;
}

int perfdata_ids_add(int fd, const struct perfdata_id *ids, size_t n)
{
	_cleanup_free_ uint8_t *table = NULL;
	struct section section;
	size_t size, used;
	struct stat st;
	uint64_t at;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	r = find_section(fd, (uint64_t)st.st_size, &at, &section);
	if (r < 0)
		return r;
	size = used = (size_t)section.size;
	for (size_t i = 0; i < n; i++) {
		size += perfdata_id_size(ids[i].path);
		if (size > PERFDATA_IDS_MAX_BYTES)
			return -EFBIG;
	}
	table = malloc(size + 1);
	if (!table)
		return -ENOMEM;
	if (io_pread_full(fd, table, used, (off_t)section.offset) != (ssize_t)used)
		return -EINVAL;
	for (size_t i = 0; i < n; i++) {
		perfdata_id_put(&ids[i], table + used);
		used += perfdata_id_size(ids[i].path);
	}
	section =
		(struct section){.offset = ((uint64_t)st.st_size + 7) & ~UINT64_C(7), .size = size};
	r = io_pwrite_all(fd, table, size, (off_t)section.offset);
	if (r == 0)
		r = io_pwrite_all(fd, &section, sizeof(section), (off_t)at);
	if (r < 0)
		(void)!ftruncate(fd, st.st_size);
	return r;
}
