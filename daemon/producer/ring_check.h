/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether two descriptors that a stranger passed are what "target.register" wants: the sealed
 * memory of event rings (common/bundle/ringabi.h) and an eventfd. Owns no descriptor and keeps
 * nothing; reads with pread only, since whatever it is, nobody may make us wait or die.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/ringabi.h"

#define RINGCHECK_E_BAD 1 /* with the sentence in `why` */

struct ringcheck {
	struct ring_geometry geometry;
	uint32_t clock; /* enum ring_clock */
	uint64_t cause_head;
};

/* 0, RINGCHECK_E_BAD, -errno. */
int ringcheck_memory(int fd, struct ringcheck *ret, char *why, size_t why_size) _must_check_;
int ringcheck_eventfd(int fd, char *why, size_t why_size) _must_check_;
