/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where in the source code something is: the declaration of a function, the line of an instruction,
 * the calls that were inlined around it. Reads the debug information of images, as they are asked
 * for. Answers are text, safe to show; they live as long as the source.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/stacktab.h"
#include "decode/dwarf/scope.h"
#include "decode/object/image.h"

struct json_object;
struct source;

int source_new(struct images *images, struct budget *budget, struct source **ret) _must_check_;
struct source *source_free(struct source *s);
DEFINE_CLEANUP(struct source *, source_free)

/*
 * The link failed, or the job was cancelled: a negative errno, sticky. All images are READY,
 * addresses the ELF's own.
 */
int source_error(const struct source *s);

/* The file and line where the function that begins at an address is declared; NULL: not known. */
const char *source_function(struct source *s, struct image *img, uint64_t vaddr,
			    uint32_t *ret_line);

/* "job/main.c:40", of the instruction; NULL: not known. */
const char *source_place(struct source *s, struct image *img, uint64_t vaddr);

/*
 * The innermost call that was inlined around an address, how far that is true; NULL: there is none,
 * likewise. The function itself is none.
 */
const struct dwarf_scope *source_inlined(struct source *s, struct image *img, uint64_t vaddr,
					 uint64_t *ret_end);

/*
 * The frame of an inlined call of the image, and "job/main.c:40" where it is called; NULL: not
 * known.
 */
uint32_t source_inlined_frame(struct source *s, struct stacktab *st, struct image *img,
			      const struct dwarf_scope *scope);
const char *source_inlined_place(struct source *s, struct image *img,
				 const struct dwarf_scope *scope);

void source_report(const struct source *s, struct json_object *stats, struct json_object *losses);
