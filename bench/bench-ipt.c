// SPDX-License-Identifier: Apache-2.0
/*
 * libipt's block decoder alone over the bytes of one trace: nothing is made of the blocks, so this
 * is how fast a decoder that is built on it could be at most.
 *
 *	bench-ipt AUX FAMILY,MODEL,STEPPING (FILE OFFSET LENGTH ADDRESS)...
 *
 * Prints the instructions, the errors and the nanoseconds.
 */
#include <errno.h>
#include <fcntl.h>
#include <intel-pt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/io.h"

#define LONGEST (1u << 30)

static int fail(const char *what, int error)
{
	(void)fprintf(stderr, "bench-ipt: %s: %s\n", what, pt_errstr(pt_errcode(error)));
	return 1;
}

static uint64_t number(const char *text)
{
	return strtoull(text, NULL, 0);
}

static int add_images(struct pt_image_section_cache *cache, struct pt_image *image, int argc,
		      char **argv)
{
	for (int i = 0; i + 3 < argc; i += 4) {
		const int id = pt_iscache_add_file(cache, argv[i], number(argv[i + 1]),
						   number(argv[i + 2]), number(argv[i + 3]));
		int r = id < 0 ? id : pt_image_add_cached(image, cache, id, NULL);

		if (r < 0)
			return fail(argv[i], r);
	}
	return 0;
}

/* Events come before the block that they belong to. */
static int events(struct pt_block_decoder *d, int status)
{
	while (status >= 0 && (status & pts_event_pending)) {
		struct pt_event e;

		status = pt_blk_event(d, &e, sizeof(e));
	}
	return status;
}

static void decode(struct pt_block_decoder *d, uint64_t *ret_insns, uint64_t *ret_errors)
{
	for (;;) {
		int status = pt_blk_sync_forward(d);

		if (status == -pte_eos)
			return;
		while (status >= 0) {
			struct pt_block block;

			status = events(d, status);
			if (status < 0)
				break;
			status = pt_blk_next(d, &block, sizeof(block));
			*ret_insns += block.ninsn;
		}
		if (status == -pte_eos)
			continue; /* at the end sync answers the same */
		(*ret_errors)++;
	}
}

int main(int argc, char **argv)
{
	struct pt_config config;
	struct pt_image_section_cache *cache = pt_iscache_alloc(NULL);
	struct pt_image *image = pt_image_alloc(NULL);
	struct pt_block_decoder *d;
	_cleanup_free_ char *bytes = NULL;
	uint64_t insns = 0, errors = 0, began;
	unsigned int family, model, stepping;
	size_t n;
	int r;

	if (argc < 3 || sscanf(argv[2], "%u,%u,%u", &family, &model, &stepping) != 3 || !cache ||
	    !image) {
		(void)fprintf(
			stderr,
			"usage: bench-ipt AUX FAMILY,MODEL,STEPPING (FILE OFFSET LENGTH ADDRESS)...\n");
		return 2;
	}
	r = io_read_file_at(AT_FDCWD, argv[1], LONGEST, &bytes, &n);
	if (r < 0) {
		(void)fprintf(stderr, "bench-ipt: %s: %s\n", argv[1], strerror(-r));
		return 1;
	}
	pt_config_init(&config);
	config.begin = (uint8_t *)bytes;
	config.end = (uint8_t *)bytes + n;
	config.cpu = (struct pt_cpu){.vendor = pcv_intel,
				     .family = (uint16_t)family,
				     .model = (uint8_t)model,
				     .stepping = (uint8_t)stepping};
	(void)pt_cpu_errata(&config.errata, &config.cpu);
	config.flags.variant.block.end_on_call = 1; /* or calls cannot be seen */
	d = pt_blk_alloc_decoder(&config);
	if (!d)
		return fail("no decoder", -pte_nomem);
	r = add_images(cache, image, argc - 3, argv + 3);
	if (r == 0 && (r = pt_blk_set_image(d, image)) < 0)
		return fail("image", r);
	if (r)
		return 1;
	began = io_now_ns();
	decode(d, &insns, &errors);
	(void)printf("%" PRIu64 " %" PRIu64 " %" PRIu64 "\n", insns, errors, io_now_ns() - began);
	pt_blk_free_decoder(d);
	pt_image_free(image);
	pt_iscache_free(cache);
	return 0;
}
