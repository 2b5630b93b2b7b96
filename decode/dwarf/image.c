// SPDX-License-Identifier: Apache-2.0
/* The debug information of an image: in it, in a file of its own, and in one that several share. */
#include "config.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <string.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/dwarf/dwarf.h"
#include "decode/object/image_internal.h"

void image_free_dwarf(struct image *img)
{
	img->dwarf = dwarf_free(img->dwarf);
	img->sup = dwarf_free(img->sup);
	if (img->sup_elf)
		elf_end(img->sup_elf);
	img->sup_elf = NULL;
	close_fd(img->sup_fd);
	img->sup_fd = -1;
}

/*
 * What dwz has moved out of several debug files into one. Without it much has no name; the lines
 * are all there.
 */
static int load_sup(struct images *t, struct image *img)
{
	struct file_request request = {.kind = FILE_REQUEST_DWZ, .pid = (pid_t)img->pid};
	struct bytes link = img->dwarf->sup_link;
	struct file_answer file = {0};
	const void *id = NULL;
	const char *path;
	bool right;
	size_t len;
	int r;

	if (link.left == 0)
		return 0; /* it shares nothing */
	path = bytes_str(&link, &len);
	if (!path || len > FILE_REQUEST_MAX_PATH || link.left < 2 ||
	    link.left > FILE_REQUEST_MAX_BUILD_ID)
		return 0; /* one that cannot be checked is none */
	memcpy(request.path, path, len + 1);
	memcpy(request.object, img->path, strlen(img->path) + 1);
	memcpy(request.build_id, link.p, link.left);
	request.build_id_len = link.left;
	r = t->files.ask(t->files.arg, &request, &file, &img->sup_fd);
	if (r <= 0)
		return r;
	img->sup_elf = elf_begin(img->sup_fd, ELF_C_READ, NULL);
	right = img->sup_elf && elf_kind(img->sup_elf) == ELF_K_ELF &&
		dwelf_elf_gnu_build_id(img->sup_elf, &id) == (ssize_t)link.left &&
		memcmp(id, link.p, link.left) == 0;
	r = file_requester_judge(&t->files, &file, right);
	if (r < 0)
		return r;
	if (!right) {
		t->stats.debug_wrong++;
		return 0;
	}
	if (dwarf_new(img->sup_elf, t->budget, &img->sup) < 0)
		return 0;
	img->dwarf->sup = img->sup;
	return 0;
}

static bool can_be_read(Elf *elf)
{
	GElf_Ehdr eh;

	return elf && gelf_getehdr(elf, &eh) && eh.e_ident[EI_DATA] == ELFDATA2LSB &&
	       eh.e_type != ET_REL;
}

int image_load_dwarf(struct images *t, struct image *img)
{
	int r = -ENODATA;

	if (img->dwarf_tried)
		return 0;
	img->dwarf_tried = true;
	if (can_be_read(img->elf))
		r = dwarf_new(img->elf, t->budget, &img->dwarf);
	if (r == -ENODATA && img->kind == IMAGE_FILE) {
		int e = image_load_debug(t, img);

		if (e < 0)
			return e;
		if (can_be_read(img->debug_elf))
			r = dwarf_new(img->debug_elf, t->budget, &img->dwarf);
	}
	if (r < 0) {
		img->dwarf_failed = r != -ENODATA;
		return 0;
	}
	t->stats.dwarf_found++;
	for (uint32_t i = 0; i < img->n_loads; i++)
		if (img->loads[i].exec)
			dwarf_add_code(img->dwarf, img->loads[i].vaddr,
				       img->loads[i].vaddr + img->loads[i].size);
	return load_sup(t, img);
}

void images_report_dwarf(const struct images *t, struct json_object *stats,
			 struct json_object *losses)
{
	struct json_object *missing = NULL, *large = NULL;
	struct dwarf_stats sum = {0};
	int n_missing = 0, n_large = 0;

	for (uint32_t i = 0; i < t->n; i++) {
		const struct image *img = t->v[i];

		if (img->dwarf_tried && img->dwarf_failed)
			images_report_path(losses, "debug_info_unreadable", img, &large, &n_large);
		else if (img->dwarf_tried && !img->dwarf && img->kind == IMAGE_FILE)
			images_report_path(losses, "debug_info_missing", img, &missing, &n_missing);
		for (const struct dwarf *d = img->dwarf; d; d = d == img->dwarf ? img->sup : NULL) {
			sum.broken += d->stats.broken;
			sum.cut += d->stats.cut;
		}
	}
	json_add_uint(stats, "images_with_debug_info", t->stats.dwarf_found);
	if (sum.broken)
		json_add_uint(losses, "debug_info_broken", sum.broken);
	if (sum.cut)
		json_add_uint(losses, "debug_info_over_limits", sum.cut);
}
