// SPDX-License-Identifier: Apache-2.0
#include "step/code.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/stepabi.h"

int step_code_init(struct step_code *c, const char *output)
{
	_cleanup_free_ char *cwd = NULL;

	*c = (struct step_code){.fd = -1};
	if (!output) {
		c->path = strdup(STEPABI_CODE_PATH);
		c->kept = calloc(STEP_CODE_MAX_KEPT, sizeof(struct step_code_kept *));
		return c->path && c->kept ? 0 : -ENOMEM;
	}
	if (output[0] != '/') {
		cwd = getcwd(NULL, 0);
		if (!cwd)
			return -errno;
	}
	if (asprintf(&c->path, "%s%s%s.code", cwd ? cwd : "", cwd ? "/" : "", output) < 0)
		c->path = NULL;
	if (asprintf(&c->vdso_path, "%s%s%s.vdso", cwd ? cwd : "", cwd ? "/" : "", output) < 0)
		c->vdso_path = NULL;
	return c->path && c->vdso_path ? 0 : -ENOMEM;
}

void step_code_fini(struct step_code *c)
{
	for (uint32_t i = 0; c->kept && i < c->pages; i++)
		free(c->kept[i]);
	free((void *)c->kept);
	free(c->vdso_image);
	free(c->path);
	free(c->vdso_path);
	*c = (struct step_code){.fd = close_fd(c->fd)};
}

static int create(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

static uint64_t place_of(uint32_t page)
{
	return STEP_CODE_HEAD + (uint64_t)page * STEP_CODE_STRIDE;
}

/* All after the head is one executable segment. */
static int write_head(const struct step_code *c, int fd)
{
	const uint64_t size = place_of(c->pages);
	const struct {
		Elf64_Ehdr header;
		Elf64_Phdr code;
	} head = {
		.header =
			{
				.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					    ELFDATA2LSB, EV_CURRENT},
				.e_type = ET_DYN,
				.e_machine = EM_X86_64,
				.e_version = EV_CURRENT,
				.e_phoff = sizeof(Elf64_Ehdr),
				.e_ehsize = sizeof(Elf64_Ehdr),
				.e_phentsize = sizeof(Elf64_Phdr),
				.e_phnum = 1,
			},
		.code =
			{
				.p_type = PT_LOAD,
				.p_flags = PF_R | PF_X,
				.p_filesz = size,
				.p_memsz = size,
				.p_align = STEP_CODE_PAGE,
			},
	};

	return io_pwrite_all(fd, &head, sizeof(head), 0);
}

static int write_page(int fd, uint64_t offset, const uint8_t *page, const uint8_t *tail,
		      size_t n_tail)
{
	int r = io_pwrite_all(fd, page, STEP_CODE_PAGE, (off_t)offset);

	return r < 0 ? r : io_pwrite_all(fd, tail, n_tail, (off_t)(offset + STEP_CODE_PAGE));
}

static int keep(struct step_code *c, const uint8_t *page, const uint8_t *tail, size_t n_tail,
		uint64_t *ret_offset)
{
	struct step_code_kept *k;
	uint32_t at = 0;

	if (c->n_kept == STEP_CODE_MAX_KEPT)
		return -EFBIG;
	/* Use a place that was dropped, if there is one. */
	if (c->n_kept == c->pages)
		at = c->pages;
	while (at < c->pages && c->kept[at])
		at++;
	k = calloc(1, sizeof(*k));
	if (!k)
		return -ENOMEM;
	k->segment = c->segment;
	k->n = (uint32_t)(STEP_CODE_PAGE + n_tail);
	memcpy(k->bytes, page, STEP_CODE_PAGE);
	memcpy(k->bytes + STEP_CODE_PAGE, tail, n_tail);
	c->kept[at] = k;
	c->n_kept++;
	c->added++;
	if (at == c->pages)
		c->pages++;
	*ret_offset = place_of(at);
	return 0;
}

int step_code_add(struct step_code *c, const uint8_t *page, const uint8_t *tail, size_t n_tail,
		  uint64_t *ret_offset)
{
	const uint64_t offset = place_of(c->pages);
	int r;

	if (c->kept)
		return keep(c, page, tail, n_tail, ret_offset);
	if (c->pages == STEP_CODE_MAX_PAGES)
		return -EFBIG;
	if (c->fd < 0) {
		r = create(c->path);
		if (r < 0)
			return r;
		c->fd = r;
	}
	r = write_page(c->fd, offset, page, tail, n_tail);
	if (r < 0)
		return r;
	c->pages++;
	r = write_head(c, c->fd);
	if (r < 0)
		return r;
	*ret_offset = offset;
	return 0;
}

int step_code_vdso(struct step_code *c, const uint8_t *image, size_t n)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (c->vdso)
		return 0;
	if (!c->vdso_path) {
		c->vdso_image = malloc(n);
		if (!c->vdso_image)
			return -ENOMEM;
		memcpy(c->vdso_image, image, n);
		c->vdso_size = n;
		c->vdso = true;
		return 0;
	}
	fd = create(c->vdso_path);
	if (fd < 0)
		return fd;
	r = io_pwrite_all(fd, image, n, 0);
	if (r < 0)
		return r;
	c->vdso = true;
	return 0;
}

/* ---- in memory */

void step_code_begin_segment(struct step_code *c, uint64_t segment)
{
	c->segment = segment;
	c->added = 0;
}

void step_code_use(struct step_code *c, uint64_t offset)
{
	const uint64_t at = (offset - STEP_CODE_HEAD) / STEP_CODE_STRIDE;

	if (c->kept && at < c->pages && c->kept[at])
		c->kept[at]->segment = c->segment;
}

void step_code_drop_before(struct step_code *c, uint64_t segment)
{
	for (uint32_t i = 0; c->kept && i < c->pages; i++)
		if (c->kept[i] && c->kept[i]->segment < segment) {
			free(c->kept[i]);
			c->kept[i] = NULL;
			c->n_kept--;
		}
	while (c->kept && c->pages > 0 && !c->kept[c->pages - 1])
		c->pages--;
}

uint32_t step_code_room(const struct step_code *c)
{
	return c->kept ? STEP_CODE_MAX_KEPT - c->n_kept : UINT32_MAX;
}

uint32_t step_code_added(const struct step_code *c)
{
	return c->added;
}

uint64_t step_code_size(const struct step_code *c)
{
	return c->pages ? place_of(c->pages) : 0;
}

int step_code_write(const struct step_code *c, int fd)
{
	int r = write_head(c, fd);

	for (uint32_t i = 0; r == 0 && c->kept && i < c->pages; i++) {
		const struct step_code_kept *k = c->kept[i];

		if (k)
			r = write_page(fd, place_of(i), k->bytes, k->bytes + STEP_CODE_PAGE,
				       k->n - STEP_CODE_PAGE);
	}
	/* The last page's tail may be short. */
	return r == 0 && ftruncate(fd, (off_t)step_code_size(c)) < 0 ? -errno : r;
}
