/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The build ids of the files that a target had mapped, as the decoder tells them with its verdicts,
 * for the perf.data of the bundle. On the loop; build_ids_write() on the copier thread, when the
 * decoder is done. Opens none of the files.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct build_ids;

#define BUILD_IDS_MAX 4096

int build_ids_new(struct build_ids **ret) _must_check_;
void build_ids_free(struct build_ids *b);
DEFINE_CLEANUP(struct build_ids *, build_ids_free)

/* The decoder got the file of request `req`, which it calls `path`. */
void build_ids_ask(struct build_ids *b, uint32_t req, const char *path);
/* What it is; `len` 0: it has no id, or is another file. */
void build_ids_tell(struct build_ids *b, uint32_t req, const uint8_t *id, size_t len);

/*
 * Adds them to a perf.data. A path that stood for different files is left out, as perf knows files
 * by their paths. *ret_n are in the file then, *ret_left_out had no room or are ambiguous. As
 * perfdata_ids_add().
 */
int build_ids_write(struct build_ids *b, int fd, size_t *ret_n, size_t *ret_left_out) _must_check_;
