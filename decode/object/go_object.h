/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whether an ELF file is a Go program, of which version, and where that keeps what goroutine a
 * thread runs: the runtime's structures are those of the version, of which the file tells
 * (.go.buildinfo), and where a thread has its g its own code says. Both are there in stripped
 * files, too. The file is hostile. Knows no processes.
 */
#pragma once

#include "common/base/cleanup.h"
#include "common/bundle/goroutine.h"
#include "decode/base/budget.h"

struct go_object {
	unsigned int minor;  /* of 1.x; 0: it does not say */
	const char *refused; /* why goroutines cannot be read; NULL: they can */
	struct go_layout layout;
};

/* The descriptor stays the caller's. 0; -ENODATA: it is no Go program; -EBADMSG, -ENOMEM. */
int go_object_look(int fd, struct budget *budget, struct go_object *ret) _must_check_;
