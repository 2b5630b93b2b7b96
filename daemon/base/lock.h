/* SPDX-License-Identifier: Apache-2.0 */
/*
 * "One daemon only", by a lock on a file. The lock belongs to the process and ends with it, even if
 * others have copies of the descriptor, e.g. a child that was stopped between vfork and exec.
 * flock() and open file description locks would live on in that child.
 *
 * The price: the same process can take it twice, and loses it when it closes any descriptor of the
 * file. So the files are for locks only, and each is taken once.
 */
#pragma once

#include "common/base/cleanup.h"

/*
 * Makes the file `name` in `dir_fd` where it is not there, and locks it. -EBUSY: another process
 * has it.
 */
int lock_file(int dir_fd, const char *name, int *ret_fd) _must_check_;
