// SPDX-License-Identifier: Apache-2.0
#include "client/ui/stdout.h"

#include <errno.h>
#include <stdio.h>
#include <sys/types.h>
#include <unistd.h>

#include "common/base/io.h"

static int first_error; /* negative errno */

static ssize_t write_out(void *cookie, const char *buf, size_t size)
{
	int r = io_write_all(STDOUT_FILENO, buf, size);

	(void)cookie;
	if (r == 0)
		return (ssize_t)size;
	if (first_error == 0)
		first_error = r;
	return 0;
}

void stdout_open(void)
{
	FILE *f = fopencookie(NULL, "w", (cookie_io_functions_t){.write = write_out});

	if (!f)
		return;
	(void)setvbuf(f, NULL, isatty(STDOUT_FILENO) ? _IOLBF : _IOFBF, BUFSIZ);
	stdout = f; /* glibc allows it, and its printf() and puts() follow */
}

int stdout_flush(void)
{
	errno = 0;
	if (fflush(stdout) == 0 && !ferror(stdout))
		return 0;
	/* without memory for a stream of ours: what fflush() says, if it says something */
	return first_error ? first_error : errno ? -errno : -EIO;
}
