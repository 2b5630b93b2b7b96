// SPDX-License-Identifier: Apache-2.0
/*
 * main() of a fuzz target where libFuzzer is not linked (configure --enable-fuzzers links it): runs
 * LLVMFuzzerTestOneInput() over the corpus and over reproducible mutations of it, so that every
 * `make check` is a short fuzz run. Knows nothing of any target.
 *
 *	fuzz-x [--mutations N] [FILE|FOLDER...]
 *
 * The default is $TRACERD_SRC/tests/fuzz/corpus/x and 200 mutations of each file.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define LONGEST_INPUT (16u << 20)

static uint64_t random_state;
static size_t runs, files;
/* The input that is being run, for whoever looks at the core or the sanitizer's report. */
static const char *volatile current;

/* xorshift64*: the same sequence on every machine. */
static uint64_t random_next(void)
{
	random_state ^= random_state >> 12;
	random_state ^= random_state << 25;
	random_state ^= random_state >> 27;
	return random_state * 2685821657736338717u;
}

static void run_once(const uint8_t *data, size_t size)
{
	/* Exactly as large as the input: a read past its end is seen by the sanitizer. */
	uint8_t *copy = malloc(size ? size : 1);

	if (!copy)
		abort();
	memcpy(copy, data, size);
	(void)LLVMFuzzerTestOneInput(copy, size);
	free(copy);
	runs++;
}

/* One to four small damages: a bit, a byte, an extreme word, a removed or doubled piece, a cut. */
static size_t mutate(uint8_t *data, size_t size, size_t room)
{
	static const uint64_t extremes[] = {0,
					    1,
					    0x7f,
					    0x80,
					    0xff,
					    0x7fff,
					    0xffff,
					    0x7fffffff,
					    0x80000000,
					    0xffffffff,
					    0x7fffffffffffffff,
					    0x8000000000000000,
					    UINT64_MAX};
	size_t n = 1 + random_next() % 4;

	while (n-- > 0 && size > 0) {
		size_t at = random_next() % size, len = 1 + random_next() % 64,
		       word = 1u << random_next() % 4;
		uint64_t extreme =
			extremes[random_next() % (sizeof(extremes) / sizeof(extremes[0]))];

		switch (random_next() % 6) {
		case 0:
			data[at] ^= (uint8_t)(1u << random_next() % 8);
			break;
		case 1:
			data[at] = (uint8_t)random_next();
			break;
		case 2:
			if (word <= size - at)
				memcpy(data + at, &extreme, word);
			break;
		case 3:
			len = len < size - at ? len : size - at;
			memmove(data + at, data + at + len, size - at - len);
			size -= len;
			break;
		case 4:
			len = len < size - at ? len : size - at;
			if (len > room - size)
				break;
			memmove(data + at + len, data + at, size - at);
			size += len;
			break;
		default:
			size = at;
			break;
		}
	}
	return size;
}

static int run_file(const char *path, unsigned long mutations)
{
	_cleanup_free_ uint8_t *work = NULL;
	_cleanup_free_ char *text = NULL;
	size_t size, room;
	int r = io_read_file_at(AT_FDCWD, path, LONGEST_INPUT, &text, &size);

	if (r < 0)
		return r;
	current = path;
	files++;
	run_once((const uint8_t *)text, size);
	room = size + 1024;
	work = malloc(room);
	if (!work)
		return -ENOMEM;
	random_state = 0x9e3779b97f4a7c15u ^ size;
	for (unsigned long i = 0; i < mutations; i++) {
		memcpy(work, text, size);
		run_once(work, mutate(work, size, room));
	}
	return 0;
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

static int run_path(const char *path, unsigned long mutations)
{
	struct dirent **list = NULL;
	struct stat st;
	int n, r = 0;

	if (stat(path, &st) < 0)
		return -errno;
	if (!S_ISDIR(st.st_mode))
		return run_file(path, mutations);
	n = scandir(path, &list, NULL, by_name);
	if (n < 0)
		return -errno;
	for (int i = 0; i < n; i++) {
		char name[4096];

		if (list[i]->d_name[0] != '.' && r == 0 &&
		    snprintf(name, sizeof(name), "%s/%s", path, list[i]->d_name) <
			    (int)sizeof(name))
			r = run_file(name, mutations);
		free(list[i]);
	}
	free(list);
	return r;
}

/* tests/fuzz/common/control/fuzz-frame (also as libtool's .libs/lt-fuzz-frame): corpus "frame". */
static int default_corpus(const char *argv0, char *path, size_t size)
{
	const char *base = strrchr(argv0, '/'), *src = getenv("TRACERD_SRC");

	base = base ? base + 1 : argv0;
	base = strncmp(base, "lt-", 3) == 0 ? base + 3 : base;
	base = strncmp(base, "fuzz-", 5) == 0 ? base + 5 : base;
	if (!src)
		return -ENOENT;
	return snprintf(path, size, "%s/tests/fuzz/corpus/%s", src, base) < (int)size
		       ? 0
		       : -ENAMETOOLONG;
}

int main(int argc, char **argv)
{
	unsigned long mutations = 200;
	bool named = false;
	char path[4096];
	int r = 0, i = 1;

	if (i + 1 < argc && strcmp(argv[i], "--mutations") == 0) {
		mutations = strtoul(argv[i + 1], NULL, 10);
		i += 2;
	}
	run_once((const uint8_t *)"", 0);
	for (; i < argc && r == 0; i++) {
		named = true;
		r = run_path(argv[i], mutations);
	}
	if (!named) {
		r = default_corpus(argv[0], path, sizeof(path));
		if (r == 0)
			r = run_path(path, mutations);
	}
	if (r < 0) {
		(void)fprintf(stderr, "%s: corpus: %s\n", argv[0], strerror(-r));
		return 1;
	}
	(void)printf("%zu runs over %zu files\n", runs, files);
	return files > 0 ? 0 : 1;
}
