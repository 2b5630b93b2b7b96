/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Code that is in no file, or no longer as its file has it: pages written one behind the other to a file of the
 * recording, which MMAP2 records then name. A decoder reads an instruction that crosses a page on in the file,
 * so behind each page follow the first bytes of the next one. The file is an ELF image of one segment and no
 * symbol, since decoders take code from nothing else.
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

/* In memory pages can be let go when no record of the recording names them any more. */
#define STEP_CODE_MAX_KEPT (1u << 13)

struct step_code_kept {
	uint64_t segment; /* of the side-band, the last one that names it */
	uint32_t n;
	uint8_t bytes[STEP_CODE_PAGE + STEP_CODE_TAIL];
};

struct step_code {
	char *path;	 /* of the file, absolute; owned */
	char *vdso_path; /* owned; NULL: all is in memory, and `path` is how the records call it */
	int fd;		 /* -1: nothing was written yet, and there is no file */
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
 * `output` is the path of the recording; the files are beside it, "OUTPUT.code" and "OUTPUT.vdso". NULL: all is kept
 * in memory, to be written by step_code_write(), and records call it STEPABI_CODE_PATH.
 */
int step_code_init(struct step_code *c, const char *output) _must_check_;
void step_code_fini(struct step_code *c);

/*
 * Appends a page and the `tail` bytes behind it; *ret_offset is its place in the file. -EFBIG when there are
 * too many.
 */
int step_code_add(struct step_code *c, const uint8_t *page, const uint8_t *tail, size_t n_tail, uint64_t *ret_offset)
	_must_check_;

/* The vDSO, an ELF image; the first one that is given is kept. */
int step_code_vdso(struct step_code *c, const uint8_t *image, size_t n) _must_check_;

/* ---- in memory */

/* What is added from now on is named by records of that segment of the side-band. */
void step_code_begin_segment(struct step_code *c, uint64_t segment);
/* The page at that place is still named. */
void step_code_use(struct step_code *c, uint64_t offset);
/* Lets pages go that only records of segments before that one name; their places are used again. */
void step_code_drop_before(struct step_code *c, uint64_t segment);
/* How many pages there is room for, and how many came since the segment began; of a file any number, and none. */
uint32_t step_code_room(const struct step_code *c);
uint32_t step_code_added(const struct step_code *c);
/* The size of the file; 0 where there are no pages, and no file. */
uint64_t step_code_size(const struct step_code *c);
int step_code_write(const struct step_code *c, int fd) _must_check_;
