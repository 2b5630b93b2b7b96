/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the reader of Go's execution traces is, on one core: each FILE is read into memory, then
 * ROUNDS times by the reader, of which the fastest counts. A line for each: its bytes, events,
 * seconds, and the most memory that the reader had of its budget.
 *
 *	bench-goreader ROUNDS FILE...
 */
#include "config.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/go/reader.h"

struct input {
	const uint8_t *p;
	size_t left;
};

static ssize_t read_input(void *arg, void *buf, size_t size)
{
	struct input *in = arg;
	const size_t n = size < in->left ? size : in->left;

	memcpy(buf, in->p, n);
	in->p += n;
	in->left -= n;
	return (ssize_t)n;
}

/* Events, or -1. */
static int64_t read_all(const uint8_t *p, size_t size, uint64_t *ret_peak)
{
	struct input in = {.p = p, .left = size};
	struct budget budget = {.max = UINT32_MAX};
	_cleanup_(goreader_freep) struct goreader *r = NULL;
	struct goevent e;
	int64_t n = 0;
	int k;

	if (goreader_new(read_input, &in, &budget, &r) < 0)
		return -1;
	while ((k = goreader_next(r, &e)) == GOREADER_EVENT) {
		n++;
		if (budget.used > *ret_peak)
			*ret_peak = budget.used;
	}
	if (k == GOREADER_END)
		return n;
	(void)fprintf(stderr, "%s\n", k < 0 ? strerror(-k) : goreader_why(r));
	return -1;
}

static int bench(const char *path, int rounds)
{
	_cleanup_free_ char *data = NULL;
	uint64_t best = UINT64_MAX, peak = 0;
	int64_t events = 0;
	size_t size;

	if (io_read_file_at(AT_FDCWD, path, 1u << 30, &data, &size) < 0) {
		(void)fprintf(stderr, "%s cannot be read\n", path);
		return EXIT_FAILURE;
	}
	for (int i = 0; i < rounds; i++) {
		const uint64_t begin = io_now_ns();

		events = read_all((const uint8_t *)data, size, &peak);
		if (events < 0)
			return EXIT_FAILURE;
		if (io_now_ns() - begin < best)
			best = io_now_ns() - begin;
	}
	printf("%s %zu %" PRId64 " %.6f %" PRIu64 "\n", path, size, events, (double)best / 1e9,
	       peak);
	return EXIT_SUCCESS;
}

int main(int argc, char **argv)
{
	if (argc < 3 || atoi(argv[1]) < 1) {
		(void)fprintf(stderr, "usage: bench-goreader ROUNDS FILE...\n");
		return 2;
	}
	for (int i = 2; i < argc; i++)
		if (bench(argv[i], atoi(argv[1])) != EXIT_SUCCESS)
			return EXIT_FAILURE;
	return EXIT_SUCCESS;
}
