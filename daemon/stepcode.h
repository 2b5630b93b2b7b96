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

#include "common/cleanup.h"
#include "common/insn.h"

#define STEPCODE_PAGE 4096u
#define STEPCODE_TAIL (INSN_MAX - 1)
#define STEPCODE_HEAD STEPCODE_PAGE /* of the ELF image */
/* A page with its tail; the file has holes between them. */
#define STEPCODE_STRIDE (2 * STEPCODE_PAGE)
#define STEPCODE_MAX_PAGES (1u << 16)

struct stepcode {
	char *path;	 /* of the file, absolute; owned */
	char *vdso_path; /* owned */
	int fd;		 /* -1: nothing was written yet, and there is no file */
	uint32_t pages;
	bool vdso;	 /* is written */
};

/* `output` is the path of the recording; the files are beside it, "OUTPUT.code" and "OUTPUT.vdso". */
int stepcode_init(struct stepcode *c, const char *output) _must_check_;
void stepcode_fini(struct stepcode *c);

/*
 * Appends a page and the `tail` bytes behind it; *ret_offset is its place in the file. -EFBIG when there are
 * too many.
 */
int stepcode_add(struct stepcode *c, const uint8_t *page, const uint8_t *tail, size_t n_tail, uint64_t *ret_offset)
	_must_check_;

/* The vDSO, an ELF image; the first one that is given is kept. */
int stepcode_vdso(struct stepcode *c, const uint8_t *image, size_t n) _must_check_;
