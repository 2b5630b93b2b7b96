/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Pages of code that is in no file, or differs from its file. Writes them one after the other to a
 * file of the recording, which MMAP2 records name. Of an instruction that crosses a page a decoder
 * reads the rest from the file, so each page is followed by the first bytes of the next one. The
 * file is an ELF image of one segment without symbols, since decoders read code from ELF files
 * only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/insn.h"

#define STEP_CODE_PAGE 4096u
#define STEP_CODE_TAIL (INSN_MAX - 1)
#define STEP_CODE_HEAD STEP_CODE_PAGE /* of the ELF image */
/* A page with its tail; the file has holes between them. */
#define STEP_CODE_STRIDE (2 * STEP_CODE_PAGE)
#define STEP_CODE_MAX_PAGES (1u << 16)

/* In memory: a page is dropped when no record names it any more. */
#define STEP_CODE_MAX_KEPT (1u << 13)

struct step_code_kept {
	uint64_t segment; /* of the side-band, the last one that names it */
	uint32_t n;
	uint8_t bytes[STEP_CODE_PAGE + STEP_CODE_TAIL];
};

struct step_code {
	char *path;	 /* of the file, absolute; owned */
	char *vdso_path; /* owned; NULL: all is in memory, and `path` is only the name in records */
	int fd;		 /* -1: nothing is written yet, and there is no file */
	uint32_t pages;	 /* places that the file has */
	bool vdso;	 /* is written */
	uint64_t segment;
	uint32_t added; /* since it began */
	struct step_code_kept **kept; /* STEP_CODE_MAX_KEPT, owned; NULL where there is none now */
	uint32_t n_kept;
	uint8_t *vdso_image; /* owned */
	size_t vdso_size;
};

/*
 * `output` is the path of the recording; the files beside it are "OUTPUT.code" and "OUTPUT.vdso".
 * NULL: keeps all in memory for step_code_write(), under the name STEPABI_CODE_PATH.
 */
int step_code_init(struct step_code *c, const char *output) _must_check_;
void step_code_fini(struct step_code *c);

/*
 * Appends a page and the `tail` bytes that follow it; *ret_offset is its place in the file. -EFBIG
 * when there are too many pages.
 */
int step_code_add(struct step_code *c, const uint8_t *page, const uint8_t *tail, size_t n_tail,
		  uint64_t *ret_offset) _must_check_;

/* The vDSO, an ELF image; only the first call counts. */
int step_code_vdso(struct step_code *c, const uint8_t *image, size_t n) _must_check_;

/* ---- in memory */

/* Records of that segment of the side-band will name the pages added from now on. */
void step_code_begin_segment(struct step_code *c, uint64_t segment);
/* A record of the present segment names the page at that place. */
void step_code_use(struct step_code *c, uint64_t offset);
/* Drops pages that only records of earlier segments name; their places are used again. */
void step_code_drop_before(struct step_code *c, uint64_t segment);
/*
 * The number of pages that fit (in a file any), and of those added since the segment began (in a
 * file none).
 */
uint32_t step_code_room(const struct step_code *c);
uint32_t step_code_added(const struct step_code *c);
/* The size of the file; 0 where there are no pages, and no file. */
uint64_t step_code_size(const struct step_code *c);
int step_code_write(const struct step_code *c, int fd) _must_check_;
