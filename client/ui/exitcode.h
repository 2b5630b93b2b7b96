/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The exit codes of tracectl, which scripts may rely on, and how errors become one of them.
 */
#pragma once

enum exit_code {
	EXIT_OK = 0,
	EXIT_FAILED = 1,
	EXIT_USAGE = 2,
	EXIT_NOT_FOUND = 3,
	EXIT_NOT_PERMITTED = 4,
	EXIT_NOT_RUNNING = 5,
	EXIT_BUSY = 6,
	EXIT_TIMED_OUT = 7,
	EXIT_NOT_DECODED = 8,
	EXIT_CANCELLED = 9,
	/* of `tracectl run` only, where the codes below are the command's own */
	EXIT_RUN_FAILED = 125,
	EXIT_RUN_NOT_EXECUTABLE = 126,
	EXIT_RUN_NOT_FOUND = 127,
};

struct exit_code_doc {
	enum exit_code code;
	const char *doc;
};

/* Ends with an entry whose doc is NULL. */
extern const struct exit_code_doc exit_code_docs[];

/* The exit code for what a function of libtracerd returned (0, a negative errno, a positive code).
 */
int exit_code_from(int error);
