/* SPDX-License-Identifier: Apache-2.0 */
/*
 * From an address of a process to a frame of the timeline: which image, which function, which
 * name. Each distinct address is worked out once and then served from a hash. It also answers
 * whether a return address can be one (decode/stack/return_check.h).
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/file_request.h"
#include "decode/base/stacktab.h"
#include "decode/object/address_space.h"
#include "decode/object/image.h"
#include "decode/object/perfmap.h"

/* The code of one process; the session's process owns one. */
struct code {
	/* borrowed, of the moment that is asked about; NULL: nothing is known */
	const struct address_space *space;
	uint32_t serial;     /* unique among all processes of the recording */
	uint32_t pid, nspid; /* nspid 0: not known */
	struct perfmap *perfmap;
	bool perfmap_tried; /* set from the start: do not ask */
	/* why the one that is there gives no names; empty: there is none, or it does */
	char perfmap_refused[96];
	uint64_t unnamed;     /* frames of generated code that nobody named, */
	uint32_t unnamed_frame; /* and the first of them */
	/* frames of generated code for which the map has another name, too */
	uint64_t several_names;
	uint64_t generated;   /* stacks with generated code on top, */
	uint64_t generated_ends; /* and those whose callers are not known beyond generated code */
	uint64_t interpreted; /* frames of CPython's interpreter, */
	uint64_t found;	      /* and of these in stacks that have Python's functions */
};

struct resolve_stats {
	uint64_t addresses; /* distinct ones */
	uint64_t
		unknown_no_map; /* frames (all from here on) at addresses where nothing is mapped */
	uint64_t unknown_no_image;  /* in images that are missing, changed or broken */
	uint64_t unknown_no_symbol; /* in an image, but in none of its functions */
	uint64_t unknown_jit;       /* in anonymous code without a perf map entry */
	/* in generated code for which the perf map has another name, too */
	uint64_t several_names;
	uint64_t wrong;             /* return addresses that follow no call */
	uint64_t perfmaps;
};

struct resolver;
struct source;
struct kallsyms;

int resolver_new(struct stacktab *st, struct images *images, const struct file_requester *files,
		 bool names, struct budget *budget, struct resolver **ret) _must_check_;
struct resolver *resolver_free(struct resolver *r);
DEFINE_CLEANUP(struct resolver *, resolver_free)

/* The kernel's functions have names from now on. Borrowed; may be NULL. */
void resolver_set_kallsyms(struct resolver *r, const struct kallsyms *kallsyms);

/* Frames of functions have from now on where these are declared. Borrowed. */
void resolver_set_source(struct resolver *r, struct source *source);

enum resolve_how {
	RESOLVE_EXACT,  /* the instruction that runs, or was interrupted */
	RESOLVE_RETURN, /* a return address: the call before it is meant */
};

/*
 * The frame for an address; 0 for a return address that cannot be one. An address that is not
 * known still has a frame, "[name of the object]" or "[unknown]".
 */
uint32_t resolver_frame(struct resolver *r, struct code *code, uint64_t addr, enum resolve_how how);

/* Whether a frame is of generated code, with a name or without. */
bool resolver_is_generated(const struct resolver *r, uint32_t frame);

uint32_t resolver_kernel(struct resolver *r); /* "[kernel]" */

bool resolver_has_kallsyms(const struct resolver *r);
/* The frame of a function of the kernel; 0 where its name is not known. */
uint32_t resolver_kernel_function(struct resolver *r, uint64_t addr, enum resolve_how how);
/* Whether that is code of the scheduler, see kallsyms_is_scheduler(). */
bool resolver_is_scheduler(const struct resolver *r, uint64_t addr);

uint32_t resolver_cut(struct resolver *r);    /* "[callers unknown]" */

/* "[caller not recorded]": one frame that is known to be there, and not which. */
uint32_t resolver_gap(struct resolver *r);

/* Where calls were inlined, resolver_inlined() has them from now on; needs a source. */
void resolver_set_inlines(struct resolver *r);
/*
 * The calls that were inlined around the address of which resolver_frame() was asked last, within
 * that frame: a number for resolver_inlines(); 0: none.
 */
uint32_t resolver_inlined(const struct resolver *r);
/* Their frames, the outermost first, and how many. Borrowed, until the next resolver_frame(). */
const uint32_t *resolver_inlines(const struct resolver *r, uint32_t number, uint32_t *ret_n);
/* Addresses whose inlined calls found no memory. */
uint64_t resolver_inlines_left_out(const struct resolver *r);

/* The frame of a function of an image whose symbols are loaded. */
uint32_t resolver_symbol(struct resolver *r, struct image *img, const struct symbol *sym);

/* Loads the symbols of an image that is READY; false if the link failed. */
bool resolver_load_symbols(struct resolver *r, struct image *img);

/* The loop of CPython's interpreter. */
bool resolver_is_interpreter(const struct resolver *r, uint32_t frame);

/*
 * Where a greenlet (decode/object/unwind_table.c) or a coroutine of makecontext() begins: what
 * seems to be outside of such a frame is not.
 */
bool resolver_begins_stack(const struct resolver *r, uint32_t frame);
/* Where a program or a thread begins: nothing is expected outside of such a frame. */
bool resolver_is_entry(struct resolver *r, uint32_t frame);

/*
 * The image at an address, opened, and the address as the image's own; NULL where there is none
 * that can be read.
 */
struct image *resolver_image(
	struct resolver *r, const struct code *code, uint64_t addr, uint64_t *ret_vaddr);

/* The link failed or the job was cancelled: a negative errno, sticky. */
int resolver_error(const struct resolver *r);

/* Where its frames are. */
const struct stacktab *resolver_stacktab(const struct resolver *r);

const struct resolve_stats *resolver_stats(const struct resolver *r);
void code_fini(struct code *code);
