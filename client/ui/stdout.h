/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The standard output of tracectl. Commands print to stdout and ignore what printf() returns; stdio
 * remembers that a write failed, but not why. This does. It knows nothing of what is written.
 */
#pragma once

/* Replaces stdout. Call it once, before anything is printed. */
void stdout_open(void);

/* Writes what is buffered. 0, or the negative errno of the first write that failed. */
int stdout_flush(void);
