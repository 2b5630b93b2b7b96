/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The frames of Python's functions: which processes run an interpreter and where that keeps them,
 * for the programs that look there, and the functions that these have written down. A function is
 * kept until its process, or all together, have many newer ones; then it is written down again when
 * it is next seen.
 *
 * Does not know what is mapped (daemon/backend/sample/unwind.c), nor targets.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/backend/sample/bpf/python.h"

struct event_base;
struct filter;
struct json_object;
struct python;

/* The interpreter of a file, if it has one. */
struct python_object {
	enum { PYTHON_ABSENT, PYTHON_KNOWN, PYTHON_REFUSED } is;
	unsigned int minor; /* of 3.x; 0: it does not say */
	char refused[64];   /* why its frames are not found */
	uint64_t runtime;   /* the address of its state, as the file's own */
	struct python_layout layout;
};
/* By what tracerd-decode says of the file; NULL: nothing. */
void python_object_parse(struct json_object *o, struct python_object *ret);

/* `filter` finds them (filter_finds_python()), and outlives it. */
int python_new(struct event_base *base, const struct filter *filter,
	       struct python **ret) _must_check_;
/* No other thread asks for functions any more. */
struct python *python_free(struct python *p);

/* How the searches of a process ended; adds. */
struct python_counts {
	uint64_t whys[PYTHON_WHYS];
	uint64_t unnamed; /* frames whose function could not be read */
};

/*
 * The process runs this interpreter from now on; nothing changes if it already does. 0, -errno: its
 * frames are not found.
 */
int python_put(struct python *p, pid_t pid, uint64_t runtime,
	       const struct python_layout *layout) _must_check_;
/* It runs another program, has ended, or nobody records it. What was counted is added to *sum. */
void python_drop(struct python *p, pid_t pid, struct python_counts *sum);
void python_count(const struct python *p, pid_t pid, struct python_counts *sum);
/* The interpreter of a process, and what was found in it, in words. NULL on allocation failure. */
struct json_object *python_describe(pid_t pid, const struct python_object *object,
				    const struct python_counts *counts);

/* Takes over what the programs have written down up to now. */
void python_consume(struct python *p);
/* The function of that number, from any thread. 0, -ENOENT: it is not known, or not any more. */
int python_function_get(struct python *p, uint64_t id, struct python_function *ret) _must_check_;

void python_status(struct python *p, struct json_object *status);
