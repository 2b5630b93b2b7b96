// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/decode/object/decode-files.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int decode_open_tiny(void)
{
	const char *build = getenv("TRACERD_BUILD");
	char path[PATH_MAX];

	(void)snprintf(path, sizeof(path), "%s/tests/unit/decode/object/tiny-elf",
		       build ? build : ".");
	return open(path, O_RDONLY | O_CLOEXEC);
}

const char *decode_recordings(void)
{
	static char path[PATH_MAX];
	const char *data = getenv("TRACERD_DATA"), *src = getenv("TRACERD_SRC");

	if (data)
		(void)snprintf(path, sizeof(path), "%s/pt/perfdata", data);
	else
		(void)snprintf(
			path, sizeof(path), "%s/../shared/data/pt/perfdata", src ? src : ".");
	return access(path, R_OK | X_OK) == 0 ? path : NULL;
}
