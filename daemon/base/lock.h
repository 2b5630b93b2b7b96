/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "One daemon only", by a lock on a file. It belongs to the process, and ends when that ends, whoever has copies of its
 * descriptors: a child that was stopped between vfork and exec does not hold it. flock() and locks of an open file
 * description would live on in that child.
 *
 * So the same process can take it twice, and loses it when it closes any descriptor of the file: the names are for locks
 * only, and each is taken once.
 */
#pragma once

#include "common/base/cleanup.h"

/* Makes the file `name` in `dir_fd` where it is not there, and locks it. -EBUSY: another process has it. */
int lock_file(int dir_fd, const char *name, int *ret_fd) _must_check_;
