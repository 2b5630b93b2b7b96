/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in the files of a running process something is: a function, a line of its source code, an
 * address. Reads the process' memory map with its user's rights, and has tracerd-decode read the
 * files: nothing here knows what is in them.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "client/core/ctl.h"
#include "common/base/procfs.h"

#define PLACE_TEXT_MAX 216 /* of what the user writes, and of a name for it */

struct place {
	char *path; /* of the file, as the process has it mapped; bytes */
	uint32_t maj, min;
	uint64_t ino, offset;
	uint64_t address; /* in the process */
	/* of a function, 0 where that is not known or it is in the middle of one */
	uint64_t size;
	uint64_t into;	  /* how far into a function it is */
	char *name;	  /* of the function, escaped; "" if it has none */
	char build_id[81]; /* in hex, "" where there is none */
	bool boundary;	  /* an instruction begins there */
	bool boundary_known; /* its function could be read as far as that */
	bool chooser;	  /* an IFUNC: only chooses the code that the name stands for */
};

struct places {
	struct place *v;
	size_t n;
	bool more; /* than are in the list */
	/* calls of the function that are code of others, as debug information says */
	uint64_t inlined;
	/*
	 * names of what the compiler has made of it beside it, for people; NULL: there is nothing
	 */
	char *copies;
	/*
	 * the name of a file that is too large to be searched for inlined calls to its end; NULL:
	 * there is none
	 */
	char *unsearched;
};
void places_fini(struct places *p);

/* Whether a mapped file is what the user names: "libc.so.6", or its whole path. */
bool place_is_named(const struct proc_map *map, const char *name);

/*
 * `text` is SYMBOL, SYMBOL@FILE, FILE:LINE or a number in hex (0x...), an address. Finds at least
 * one place; all of them, or many, where the name is not clear. An exit code; a failure has been
 * reported, with what else could be meant.
 */
int place_find(struct ctl *ctl, pid_t pid, const char *text, struct places *ret) _must_check_;
/* The same where only one can be used: reports the others as candidates. */
int place_find_one(struct ctl *ctl, pid_t pid, const char *text, struct places *ret) _must_check_;
/* What is not at the place that was found, where `is_not` says what that means. */
void place_note_others(struct ctl *ctl, const struct places *places, const char *text,
		       const char *is_not);
