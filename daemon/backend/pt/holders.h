/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who may hold the PMU: the processes that have perf events open. The kernel does not tell of which
 * PMU they are. Reads /proc, on any thread.
 */
#pragma once

#include <stddef.h>

/* "perf (pid 12), perf (pid 13)"; "" if none is seen. Not ourselves. */
void holders_find(char *ret, size_t size);
