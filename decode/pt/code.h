/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The code that processes ran: the bytes and the function at an address of an address space, from
 * the images, the vDSO and captured pages. Built once, before anything is decoded; then read by
 * many threads at once, but for what is opened on demand, which is locked. Which address space a
 * process has when is decode/object/process_maps.h's.
 *
 * Code that cannot be had is counted.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"

struct address_space;
struct callfunc;
struct insn;
struct images;
struct json_object;
struct ptcode;

/*
 * Once all records have been read: opens the files of all images, while the parent can be asked. 0
 * or -errno.
 */
int ptcode_new(struct images *images, struct budget *budget, struct ptcode **ret) _must_check_;
struct ptcode *ptcode_free(struct ptcode *c);
DEFINE_CLEANUP(struct ptcode *, ptcode_free)

/* For struct codeblocks: bytes at `ip`, in *ret; how many follow there, 0: none. Any thread. */
size_t ptcode_read(struct ptcode *c, const struct address_space *s, uint64_t ip,
		   const uint8_t **ret, uint8_t *buffer, size_t n);
/* The instruction there; false: its bytes cannot be had, or are none. */
bool ptcode_insn(struct ptcode *c, const struct address_space *s, uint64_t ip, bool is64,
		 struct insn *ret);
/* Counts that code was run there of which no byte can be had. Any thread. */
void ptcode_missing(struct ptcode *c, const struct address_space *s, uint64_t ip);

/* The function at an address; whether that is its first instruction. Any thread. Never NULL. */
const struct callfunc *ptcode_function(const struct ptcode *c, const struct address_space *s,
				       uint64_t ip, bool *ret_first);
/* Whether an exception out of the call around `call` lands on `pad`. Any thread. */
bool ptcode_lands(const struct ptcode *c, const struct address_space *s, uint64_t call,
		  uint64_t pad);

/* Where the part of a function begins that is at `ip`; false: that is not known. Any thread. */
bool ptcode_begin(const struct ptcode *c, const struct address_space *s, uint64_t ip,
		  uint64_t *ret);

/*
 * Whether the kernel begins a program there, its own or that of its interpreter: nothing has called
 * it. Any thread.
 */
bool ptcode_is_entry(const struct address_space *s, uint64_t ip);

void ptcode_report(const struct ptcode *c, struct json_object *losses);
