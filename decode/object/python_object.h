/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an ELF file has CPython's interpreter, of which version, and where that keeps what it
 * runs: from 3.13 on it says so itself, in the begin of its runtime state; for 3.11 and 3.12 it is
 * known. The file is hostile. Knows no processes.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/bundle/python.h"
#include "decode/base/budget.h"

struct python_object {
	unsigned int minor;  /* of 3.x; 0: it does not say */
	const char *refused; /* why its frames cannot be found; NULL: they can */
	uint64_t runtime;    /* the address of its state, as the file's own */
	struct python_layout layout;
};

/* The descriptor stays the caller's. 0; -ENODATA: it is no interpreter; -EBADMSG, -ENOMEM. */
int python_object_look(int fd, struct budget *budget, struct python_object *ret) _must_check_;
