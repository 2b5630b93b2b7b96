/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns strings, each stored once and named by a number from 1 on (0 is the empty string). Texts
 * never move. Bounded: what does not fit becomes STRTAB_FULL and is counted. The hash is seeded
 * per process, for the strings may be chosen by somebody who wants collisions; numbers depend on
 * the order of insertion alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

struct strtab;

#define STRTAB_EMPTY 0u
#define STRTAB_FULL 1u

int strtab_new(size_t max_bytes, const char *full_text, struct strtab **ret) _must_check_;
struct strtab *strtab_free(struct strtab *t);
DEFINE_CLEANUP(struct strtab *, strtab_free)

/* Never fails; *ret_new (may be NULL) says whether the number was given out just now. */
uint32_t strtab_add(struct strtab *t, const char *s, size_t len, bool *ret_new);
const char *strtab_text(const struct strtab *t, uint32_t id);
size_t strtab_len(const struct strtab *t, uint32_t id);
uint32_t strtab_count(const struct strtab *t); /* numbers are below this */
size_t strtab_bytes(const struct strtab *t);
uint64_t strtab_dropped(const struct strtab *t);
