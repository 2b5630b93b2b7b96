// SPDX-License-Identifier: Apache-2.0
#include "daemon/stepcode.h"

#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/io.h"

int stepcode_init(struct stepcode *c, const char *output)
{
	_cleanup_free_ char *cwd = NULL;

	*c = (struct stepcode){.fd = -1};
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

void stepcode_fini(struct stepcode *c)
{
	free(c->path);
	free(c->vdso_path);
	*c = (struct stepcode){.fd = close_fd(c->fd)};
}

static int create(const char *path)
{
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);

	return fd < 0 ? -errno : fd;
}

/* What is behind the head is one executable segment, at its offset. */
static int write_head(const struct stepcode *c)
{
	const uint64_t size = STEPCODE_HEAD + (uint64_t)c->pages * STEPCODE_STRIDE;
	const struct {
		Elf64_Ehdr header;
		Elf64_Phdr code;
	} head = {
		.header = {
			.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
			.e_type = ET_DYN,
			.e_machine = EM_X86_64,
			.e_version = EV_CURRENT,
			.e_phoff = sizeof(Elf64_Ehdr),
			.e_ehsize = sizeof(Elf64_Ehdr),
			.e_phentsize = sizeof(Elf64_Phdr),
			.e_phnum = 1,
		},
		.code = {
			.p_type = PT_LOAD,
			.p_flags = PF_R | PF_X,
			.p_filesz = size,
			.p_memsz = size,
			.p_align = STEPCODE_PAGE,
		},
	};

	return io_pwrite_all(c->fd, &head, sizeof(head), 0);
}

int stepcode_add(struct stepcode *c, const uint8_t *page, const uint8_t *tail, size_t n_tail, uint64_t *ret_offset)
{
	const uint64_t offset = STEPCODE_HEAD + (uint64_t)c->pages * STEPCODE_STRIDE;
	int r;

	if (c->pages == STEPCODE_MAX_PAGES)
		return -EFBIG;
	if (c->fd < 0) {
		r = create(c->path);
		if (r < 0)
			return r;
		c->fd = r;
	}
	r = io_pwrite_all(c->fd, page, STEPCODE_PAGE, (off_t)offset);
	if (r == 0)
		r = io_pwrite_all(c->fd, tail, n_tail, (off_t)(offset + STEPCODE_PAGE));
	if (r < 0)
		return r;
	c->pages++;
	r = write_head(c);
	if (r < 0)
		return r;
	*ret_offset = offset;
	return 0;
}

int stepcode_vdso(struct stepcode *c, const uint8_t *image, size_t n)
{
	_cleanup_close_ int fd = -1;
	int r;

	if (c->vdso)
		return 0;
	fd = create(c->vdso_path);
	if (fd < 0)
		return fd;
	r = io_pwrite_all(fd, image, n, 0);
	if (r < 0)
		return r;
	c->vdso = true;
	return 0;
}
