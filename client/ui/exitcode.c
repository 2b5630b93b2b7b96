// SPDX-License-Identifier: Apache-2.0
/*
 * Errors to exit codes: one table for the codes' meaning (help and manual print it), one mapping.
 */
#include "client/ui/exitcode.h"

#include <errno.h>
#include <stddef.h>

#include "tracerd.h"

const struct exit_code_doc exit_code_docs[] = {
	{EXIT_OK, "done"},
	{EXIT_FAILED, "failed; the message says why"},
	{EXIT_USAGE, "the command line is not valid"},
	{EXIT_NOT_FOUND, "no such process, target, snapshot or file"},
	{EXIT_NOT_PERMITTED, "not permitted"},
	{EXIT_NOT_RUNNING, "tracerd is not running, or does not answer at its socket"},
	{EXIT_BUSY, "busy, or a quota is used up; it may work later"},
	{EXIT_TIMED_OUT, "timed out"},
	{EXIT_NOT_DECODED,
		"recorded, but not decoded: the bundle can be fetched and decoded later"},
	{EXIT_CANCELLED, "cancelled"},
	{EXIT_RUN_FAILED, "run only: the command was not run, because it could not be armed"},
	{EXIT_RUN_NOT_EXECUTABLE, "run only: the command cannot be executed"},
	{EXIT_RUN_NOT_FOUND, "run only: the command was not found"},
	{0, NULL},
};

int exit_code_from(int error)
{
	switch (error) {
	case 0:
		return EXIT_OK;
	case TRACERD_E_NOT_FOUND:
	case TRACERD_E_GONE:
	case -ESRCH:
		return EXIT_NOT_FOUND;
	case TRACERD_E_NOT_PERMITTED:
	case -EPERM:
	case -EACCES:
		return EXIT_NOT_PERMITTED;
	case TRACERD_E_QUOTA:
	case TRACERD_E_BUSY:
		return EXIT_BUSY;
	case TRACERD_E_TIMEOUT:
	case -ETIMEDOUT:
		return EXIT_TIMED_OUT;
	case TRACERD_E_DECODE_FAILED:
		return EXIT_NOT_DECODED;
	case TRACERD_E_CANCELLED:
		return EXIT_CANCELLED;
	case TRACERD_E_SHUTTING_DOWN:
	case -ECONNRESET:
	case -ECONNREFUSED:
	case -ENOTCONN:
		return EXIT_NOT_RUNNING;
	default:
		return EXIT_FAILED;
	}
}
