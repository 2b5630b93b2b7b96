// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the corpus of fuzz-pt: random programs with their traces.
 *
 *	pt-gen FOLDER
 */
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "common/base/io.h"
#include "tests/unit/decode/pt/pt-program.h"

static int write_one(const char *folder, const char *name, uint64_t seed,
		     const struct ptprogram_options *o)
{
	struct ptprogram p;
	uint8_t head[2];
	char path[4096];
	int fd, r;

	ptprogram_run(&p, seed, o);
	head[0] = (uint8_t)p.n_code;
	head[1] = (uint8_t)(p.n_code >> 8);
	if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return 1;
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (fd < 0) {
		perror(path);
		return 1;
	}
	r = io_pwrite_all(fd, head, sizeof(head), 0);
	if (r == 0)
		r = io_pwrite_all(fd, p.code, p.n_code, sizeof(head));
	if (r == 0)
		r = io_pwrite_all(fd, p.trace.bytes, p.trace.n, (off_t)(sizeof(head) + p.n_code));
	(void)close(fd);
	ptprogram_fini(&p);
	return r < 0;
}

int main(int argc, char **argv)
{
	if (argc != 2) {
		(void)fprintf(stderr, "usage: pt-gen FOLDER\n");
		return 2;
	}
	return write_one(argv[1], "calls", 1,
			 &(struct ptprogram_options){.insns = 2000, .psb_each = 500}) ||
	       write_one(argv[1], "signals", 2,
			 &(struct ptprogram_options){.insns = 2000,
						     .psb_each = 400,
						     .signal_each = 60}) ||
	       write_one(argv[1], "deferred", 3,
			 &(struct ptprogram_options){.insns = 3000,
						     .tnt47 = true,
						     .defer = true,
						     .plain_returns = true}) ||
	       write_one(argv[1], "long", 4,
			 &(struct ptprogram_options){.insns = 60000,
						     .psb_each = 900,
						     .signal_each = 700});
}
