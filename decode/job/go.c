// SPDX-License-Identifier: Apache-2.0
/*
 * A Go trace as text. What is wrong with it is a loss: what came before is right, and is printed.
 */
#include "config.h"

#include <stdio.h>
#include <unistd.h>

#include "common/control/json.h"
#include "decode/go/text.h"
#include "decode/job/job_internal.h"

static ssize_t read_trace(void *arg, void *buf, size_t size)
{
	return read(*(const int *)arg, buf, size);
}

int job_print_go(struct job *j)
{
	struct gotext_stats s;
	int r;

	j->stage = "decoding";
	r = (j->go_wire ? gotext_wire : gotext_parsed)(read_trace, &j->go_fd, &j->budget, j->out_fd,
						       j->max_output, &s);
	json_add_uint(j->stats, j->go_wire ? "go_batches" : "go_events", s.events);
	json_add_uint(j->stats, "go_generations", s.generations);
	json_add_uint(j->stats, "bytes_in", s.bytes_read);
	json_add_uint(j->stats, "bytes_out", s.bytes_out);
	j->output_error = s.write_error;
	if (r < 0)
		return r;
	if (!*s.why)
		return 0;
	if (s.events == 0)
		return job_refuse(j, s.why);
	json_add_string(j->losses, "go_trace_broken", s.why);
	json_add_uint(j->losses, "go_trace_broken_at_byte", s.bytes_read);
	return 0;
}
