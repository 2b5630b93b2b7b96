// SPDX-License-Identifier: Apache-2.0
/* Copies the recording to sealed memfds, while it goes on. */
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "common/control/stepabi.h"
#include "step/step_internal.h"

void step_files_fini(struct step_files *f)
{
	f->perfdata = close_fd(f->perfdata);
	f->code = close_fd(f->code);
	f->vdso = close_fd(f->vdso);
}

static int seal(int fd)
{
	return fcntl(fd, F_ADD_SEALS, STEPABI_SEALS) < 0 ? -errno : 0;
}

/* Subtracts a file's size from what is left of the limit, which stays above 0. */
static int take_size(uint64_t *left, uint64_t size)
{
	if (size >= *left)
		return -EFBIG;
	*left -= size;
	return 0;
}

static int write_code(const struct step *s, uint64_t *left, struct step_files *f)
{
	const uint64_t size = step_code_size(&s->code);
	int r = take_size(left, size);

	if (r < 0 || size == 0)
		return r;
	f->code = io_memfd("tracerd-step-code");
	if (f->code < 0)
		return f->code;
	r = step_code_write(&s->code, f->code);
	return r < 0 ? r : seal(f->code);
}

static int write_vdso(const struct step *s, uint64_t *left, struct step_files *f)
{
	int r = take_size(left, s->code.vdso_size);

	if (r < 0 || s->code.vdso_size == 0)
		return r;
	f->vdso = io_memfd("tracerd-step-vdso");
	if (f->vdso < 0)
		return f->vdso;
	r = io_pwrite_all(f->vdso, s->code.vdso_image, s->code.vdso_size, 0);
	return r < 0 ? r : seal(f->vdso);
}

static int write_perfdata(struct step *s, uint64_t left, struct step_files *f)
{
	int r;

	f->perfdata = io_memfd("tracerd-step");
	if (f->perfdata < 0)
		return f->perfdata;
	r = step_write(s, f->perfdata, left, true);
	return r < 0 ? r : seal(f->perfdata);
}

int step_freeze(struct step *s, uint64_t max_bytes, struct step_files *ret)
{
	_cleanup_(step_files_fini) struct step_files f = STEP_FILES_INIT;
	uint64_t left = max_bytes;
	int r, resumed;

	f.raw_ns = clock_raw_ns();
	r = step_insn_pause_all(s);
	if (r == 0)
		r = insn_log_flush(&s->log); /* it must reach as far as the copy */
	if (r == 0)
		r = write_code(s, &left, &f);
	if (r == 0)
		r = write_vdso(s, &left, &f);
	if (r == 0)
		r = write_perfdata(s, left, &f);
	resumed = step_insn_resume_all(s);
	if (resumed < 0)
		step_end(s, STEP_END_ERROR, resumed);
	if (r < 0)
		return r;
	*ret = f;
	f = (struct step_files)STEP_FILES_INIT;
	return 0;
}
