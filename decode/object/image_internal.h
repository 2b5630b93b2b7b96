/* SPDX-License-Identifier: Apache-2.0 */
/* Between images.c (the table of images) and image.c (one of them). */
#pragma once

#include "decode/object/image.h"

struct expected {
	char *path;
	uint8_t size;
	uint8_t id[20];
};

struct images {
	struct file_requester files;
	struct budget *budget; /* borrowed, as the next */
	const struct clock_map *clocks;
	struct image **v;
	uint32_t n, cap;
	uint32_t *hash; /* index + 1 into v; open addressing */
	uint32_t hash_size;
	struct expected *expected; /* sorted when first used */
	uint32_t n_expected;
	bool expected_sorted;
	int vdso_fd;
	bool own_vdso;
	const struct kallsyms *kallsyms; /* borrowed: of the kernel's image */
	struct images_stats stats;
};

/* The build id that the recording has for a path, or NULL. */
const struct expected *images_expected(struct images *t, char *path);

void image_free(struct image *img);

/* Asks for the debug file, once. */
int image_load_debug(struct images *t, struct image *img) _must_check_;
void image_free_dwarf(struct image *img);
/* A list of paths in the report, and one more in it; a list that is NULL is made. */
void images_report_path(struct json_object *losses, const char *key, const struct image *img,
			struct json_object **list, int *n);
