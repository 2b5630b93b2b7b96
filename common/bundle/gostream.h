/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The memory into which a Go program streams its execution trace, so that there is one when the
 * program has crashed: one memfd, sealed with SHRINK and GROW, a page of what is below, then two
 * areas. Each area begins with the trace's 16 bytes of header, and has whole generations. Where one
 * is full the other is begun anew. Only the program writes; who reads it after its end trusts
 * nothing of it but that it stays as long as it is.
 *
 * An area is begun by order = 0; when a generation is whole, first its bytes count, then the order
 * is set: one more than the other area's if it goes on where that ends, otherwise more than that.
 */
#pragma once

#include <assert.h>
#include <stdint.h>

#define GOSTREAM_MAGIC "TRCDGOST"
#define GOSTREAM_VERSION 1u
#define GOSTREAM_AREAS 2u
#define GOSTREAM_PAGE 4096u
#define GOSTREAM_TRACE_HEADER 16u
#define GOSTREAM_SEALS 0x6u /* SHRINK | GROW */

struct gostream_header {
	char magic[8];	     /*  0 */
	uint32_t version;    /*  8 */
	uint32_t areas;	     /* 12 */
	uint64_t area_bytes; /* 16 the first is at GOSTREAM_PAGE, the second behind it */
	uint64_t lost;	     /* 24 generations that were larger than an area */
	struct gostream_area {
		uint64_t order; /* 0: nothing in it */
		uint64_t bytes; /* with the trace's header */
	} area[GOSTREAM_AREAS]; /* 32 */
};
static_assert(sizeof(struct gostream_header) == 64, "gostream_header");
