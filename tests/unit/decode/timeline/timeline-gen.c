/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Turns a timeline case into a trace: timeline-gen pftrace|text|summary CASE > OUT. With
 * "random SEED N" instead of CASE it makes N random events of a few threads.
 */
#include "config.h"

#include <json-c/json.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <fcntl.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "tests/unit/decode/timeline/timeline-case.h"
#include "tests/unit/decode/timeline/timeline-random.h"

int main(int argc, char **argv)
{
	struct writer_options options = {.compress = true};
	struct timeline_stats stats;
	struct json_object *summary = NULL;
	struct writer *w = NULL;
	struct writer_stats ws;
	const char *rest;
	char error[256] = "", *text = NULL;
	int r, fd = STDOUT_FILENO;

	if (argc < 3) {
		fprintf(stderr, "usage: %s pftrace|text|summary CASE | random SEED N\n", argv[0]);
		return 2;
	}
	if (strcmp(argv[1], "summary") == 0)
		fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (strcmp(argv[1], "pftrace") == 0)
		r = pftrace_writer_new(fd, &options, &w);
	else
		r = text_writer_new(fd, &options, &w);
	if (r < 0)
		return 1;
	if (strcmp(argv[2], "random") == 0 && argc >= 5) {
		r = timeline_random_play(strtoull(argv[3], NULL, 10), strtoull(argv[4], NULL, 10),
					 w, &stats, &summary);
	} else {
		size_t len;

		r = io_read_file_at(AT_FDCWD, argv[2], 16u << 20, &text, &len);
		if (r == 0)
			r = timeline_case_play(text, w, &stats, &summary, &rest, error,
					       sizeof(error));
	}
	if (r != 0) {
		fprintf(stderr, "%s: %s\n", argv[2], error[0] ? error : strerror(-r));
		return 1;
	}
	writer_stats(w, &ws);
	if (strcmp(argv[1], "summary") == 0)
		printf("%s\n", json_text_styled(summary, JSON_INDENTED, NULL));
	fprintf(stderr, "slices=%llu instants=%llu flows=%llu switches=%llu counters=%llu\n",
		(unsigned long long)ws.slices, (unsigned long long)ws.instants,
		(unsigned long long)ws.flows, (unsigned long long)ws.switches,
		(unsigned long long)ws.counters);
	json_object_put(summary);
	writer_free(w);
	free(text);
	return 0;
}
