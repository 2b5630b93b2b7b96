/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The table of build ids of a perf.data that perfdata_write.c has written: which file is behind
 * each path that is mapped. Records of mappings have device and inode instead, so nobody has to
 * look into a file while it is recorded; who looked later adds the ids.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

#define PERFDATA_ID_MAX 20 /* perf's; of a longer one it has the front */
#define PERFDATA_IDS_MAX_BYTES (4U << 20)

struct perfdata_id {
	const char *path;
	uint8_t id[PERFDATA_ID_MAX], len;
};

/* Bytes of an entry: those of its path are padded. */
size_t perfdata_id_size(const char *path);
/* Writes the entry to `buf`, which has that many. */
void perfdata_id_put(const struct perfdata_id *id, void *buf);

/*
 * Adds to the table that the file has. It goes to the end of the file, which is good at every
 * moment. -EINVAL: the file is none of the writer's; -EFBIG: more than PERFDATA_IDS_MAX_BYTES; or
 * the errno of a write, then the file is as it was.
 */
int perfdata_ids_add(int fd, const struct perfdata_id *ids, size_t n) _must_check_;
