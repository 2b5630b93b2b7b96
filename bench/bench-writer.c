/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How fast the Perfetto writer is and how big what it writes: slices by the writer alone (a call
 * tree as a trace of calls has it: 8 threads, depth up to 8, 1000 names of about 45 characters),
 * and samples through the whole timeline. Output goes to /dev/null, or to FILE with -o.
 *
 *	bench-writer [-n SLICES] [-o FILE] [--json] [--quick]
 */
#include "config.h"

#include <fcntl.h>
#include <getopt.h>
#include <json-c/json.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"
#include "decode/base/workers.h"
#include "decode/timeline/timeline.h"
#include "decode/writer/writer.h"

#define N_THREADS 8u
#define N_NAMES 1000u
#define MAX_DEPTH 8u

struct result {
	double seconds;
	struct writer_stats stats;
};

static uint64_t next_random(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

static void make_names(struct writer *w, uint32_t *names, uint32_t *categories)
{
	char name[96];

	for (uint32_t i = 0; i < N_NAMES; i++) {
		(void)snprintf(name, sizeof(name), "project::module_%02u::component::function_%04u",
			       i % 40, i);
		names[i] = writer_name(w, name);
	}
	for (uint32_t i = 0; i < 8; i++) {
		(void)snprintf(name, sizeof(name), "libmodule%u.so.1", i);
		categories[i] = writer_name(w, name);
	}
}

/* A random walk over call depth, as a control flow trace would give it. */
static void write_tree(struct writer *w, uint64_t n_slices)
{
	static const struct writer_meta meta = {.clock = "monotonic"};
	uint32_t names[N_NAMES], categories[8], tracks[N_THREADS], depth[N_THREADS] = {0};
	uint64_t ts[N_THREADS], random = 88172645463325252ull, made = 0;

	make_names(w, names, categories);
	writer_begin(w, &meta, &(struct writer_clocks){.monotonic = 1000000});
	writer_process(w, writer_new_track(w), 100, 1, "bench", 1000000);
	for (uint32_t i = 0; i < N_THREADS; i++) {
		tracks[i] = writer_new_track(w);
		ts[i] = 1000000 + i;
		writer_thread(w, tracks[i], 1, 100, 100 + i, "worker", ts[i]);
	}
	while (made < n_slices) {
		uint64_t r = next_random(&random);
		uint32_t t = (uint32_t)(r & (N_THREADS - 1)), fn = (uint32_t)((r >> 8) % N_NAMES);

		ts[t] += (r >> 32) % 200 + 10;
		if (depth[t] == 0 || (depth[t] < MAX_DEPTH && ((r >> 24) & 1))) {
			struct writer_event ev = {.name = names[fn],
						  .category = categories[fn % 8]};

			writer_slice_begin(w, tracks[t], ts[t], &ev);
			depth[t]++;
			made++;
		} else {
			writer_slice_end(w, tracks[t], ts[t], NULL);
			depth[t]--;
		}
	}
	for (uint32_t i = 0; i < N_THREADS; i++)
		while (depth[i]--)
			writer_slice_end(w, tracks[i], ++ts[i], NULL);
}

static int bench_writer(int fd, uint64_t n_slices, bool compress, unsigned int threads,
			struct result *ret)
{
	_cleanup_(workers_freep) struct workers *workers = NULL;
	_cleanup_(pack_freep) struct pack *pack = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	uint64_t start;
	int r = workers_new(threads, &workers);

	if (r == 0)
		r = pack_new(workers, 0, &pack);
	if (r == 0)
		r = pftrace_writer_new(fd,
				       &(struct writer_options){.compress = compress, .pack = pack},
				       &w);
	if (r < 0)
		return r;
	start = io_now_ns();
	write_tree(w, n_slices);
	r = writer_end(w);
	ret->seconds = (double)(io_now_ns() - start) / 1e9;
	writer_stats(w, &ret->stats);
	return r;
}

/* Samples of a few hot loops: most consecutive stacks differ in their innermost frames only. */
static int bench_timeline(int fd, uint64_t n_samples, struct result *ret)
{
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	_cleanup_(timeline_freep) struct timeline *tl = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	uint64_t random = 88172645463325252ull, start;
	struct json_object *summary = NULL;
	uint32_t frames[N_NAMES];
	int r = stacktab_new(0, &st);

	if (r == 0)
		r = pftrace_writer_new(fd, &(struct writer_options){.compress = true}, &w);
	if (r == 0)
		r = timeline_new(&(struct timeline_options){.period_ns = 1000000}, st, w, &tl);
	for (uint32_t i = 0; i < N_NAMES && r == 0; i++) {
		char name[64];

		(void)snprintf(name, sizeof(name), "project::component::function_%04u", i);
		frames[i] = stacktab_frame(st, &(struct frame_info){.name = name,
								    .object = "/usr/bin/x"});
	}
	start = io_now_ns();
	for (uint64_t i = 0; i < n_samples && r == 0; i++) {
		uint64_t x = next_random(&random);
		uint32_t stack = 0;

		for (uint32_t d = 0; d < 24; d++)
			stack = stacktab_push(st, stack,
					      frames[d < 18 ? d : (x >> (d - 8)) % 16 + d * 16]);
		r = timeline_sample(tl, 100 + (uint32_t)(i % 8), 1000000 + i * 125000, 0, stack);
	}
	if (r == 0)
		r = timeline_finish(tl, &summary);
	ret->seconds = (double)(io_now_ns() - start) / 1e9;
	writer_stats(w, &ret->stats);
	json_object_put(summary);
	return r;
}

static void print_writer(const char *what, const struct result *r, bool json)
{
	double n = (double)r->stats.slices;

	if (json)
		printf("{\"bench\":\"writer\",\"what\":\"%s\",\"slices_per_s\":%.0f,\"raw_mb_per_s\":%.1f,"
		       "\"bytes_per_slice\":%.2f,\"out_bytes_per_slice\":%.2f}\n",
		       what, n / r->seconds, (double)r->stats.bytes_raw / r->seconds / 1e6,
		       (double)r->stats.bytes_raw / n, (double)r->stats.bytes_out / n);
	else
		printf("%-32s %6.2f M slices/s  %7.1f MB/s  %5.1f B/slice raw  %5.1f B/slice written\n",
		       what, n / r->seconds / 1e6, (double)r->stats.bytes_raw / r->seconds / 1e6,
		       (double)r->stats.bytes_raw / n, (double)r->stats.bytes_out / n);
}

int main(int argc, char **argv)
{
	static const struct option options[] = {{"json", no_argument, NULL, 'j'},
						{"quick", no_argument, NULL, 'q'},
						{NULL, 0, NULL, 0}};
	static const struct {
		const char *what;
		bool compress;
		unsigned int threads;
	} runs[] = {
		{"uncompressed", false, 0},
		{"compressed, in the caller", true, 0},
		{"compressed, 1 thread beside", true, 2},
		{"compressed, 2 threads beside", true, 3},
	};
	const char *path = "/dev/null";
	uint64_t n = 4000000;
	bool json = false;
	struct result res;
	int c, r = 0;

	while ((c = getopt_long(argc, argv, "n:o:j", options, NULL)) != -1) {
		if (c == 'n')
			n = strtoull(optarg, NULL, 10);
		else if (c == 'o')
			path = optarg;
		else if (c == 'j')
			json = true;
		else if (c == 'q')
			n = 500000;
		else
			return 2;
	}
	_cleanup_close_ int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

	if (fd < 0) {
		perror(path);
		return 1;
	}
	for (size_t i = 0; i < ARRAY_SIZE(runs) && r == 0; i++) {
		if (ftruncate(fd, 0) == 0)
			(void)lseek(fd, 0, SEEK_SET);
		r = bench_writer(fd, n, runs[i].compress, runs[i].threads, &res);
		if (r == 0)
			print_writer(runs[i].what, &res, json);
	}
	_cleanup_close_ int null = open("/dev/null", O_WRONLY | O_CLOEXEC);

	if (r == 0)
		r = bench_timeline(null, n / 10, &res);
	if (r < 0) {
		fprintf(stderr, "bench-writer: %s\n", strerror(-r));
		return 1;
	}
	if (json)
		printf("{\"bench\":\"timeline\",\"samples_per_s\":%.0f,\"slices_per_s\":%.0f}\n",
		       (double)(n / 10) / res.seconds, (double)res.stats.slices / res.seconds);
	else
		printf("%-32s %6.2f M samples/s %6.2f M slices/s\n", "samples through the timeline",
		       (double)(n / 10) / res.seconds / 1e6,
		       (double)res.stats.slices / res.seconds / 1e6);
	return 0;
}
