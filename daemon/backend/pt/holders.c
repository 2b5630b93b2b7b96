// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/holders.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/escape.h"
#include "common/base/procfs.h"

#define NAMED_MAX 3
#define LINKS_MAX 200000 /* looked at in all, about a microsecond each */

static bool has_perf_event(pid_t pid, unsigned int *left)
{
	char path[64], text[64];
	bool found = false;
	struct dirent *e;
	DIR *dir;

	(void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
	dir = opendir(path);
	if (!dir)
		return false;
	while (!found && *left > 0 && (e = readdir(dir)) != NULL) {
		ssize_t n = readlinkat(dirfd(dir), e->d_name, text, sizeof(text) - 1);

		(*left)--;
		if (n <= 0)
			continue;
		text[n] = '\0';
		found = strcmp(text, "anon_inode:[perf_event]") == 0;
	}
	(void)closedir(dir);
	return found;
}

static size_t add(pid_t pid, char *ret, size_t size, size_t used)
{
	_cleanup_close_ int fd = -1;
	char path[32], comm[PROC_COMM_MAX] = "?", text[4 * PROC_COMM_MAX];
	int n;

	(void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
	fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd >= 0)
		(void)!proc_comm_read(fd, comm, sizeof(comm));
	(void)escape_text(text, sizeof(text), comm, strlen(comm));
	n = snprintf(ret + used, size - used, "%s%s (pid %d)", used ? ", " : "", text, (int)pid);
	if (n < 0 || (size_t)n >= size - used) {
		ret[used] = '\0';
		return used;
	}
	return used + (size_t)n;
}

void holders_find(char *ret, size_t size)
{
	unsigned int left = LINKS_MAX, named = 0;
	DIR *dir = opendir("/proc");
	struct dirent *e;
	size_t used = 0;

	ret[0] = '\0';
	if (!dir)
		return;
	while (named < NAMED_MAX && left > 0 && (e = readdir(dir)) != NULL) {
		const pid_t pid = (pid_t)atoi(e->d_name);

		if (pid <= 0 || pid == getpid() || !has_perf_event(pid, &left))
			continue;
		used = add(pid, ret, size, used);
		named++;
	}
	(void)closedir(dir);
}
