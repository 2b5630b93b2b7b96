// SPDX-License-Identifier: Apache-2.0
#include "decode/object/overwritten.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

/*
 * File systems take the time of the last tick of the kernel's clock; and two clocks were not read
 * at once.
 */
#define CLOCKS_APART_NS 10000000u

/* Since the note of it was taken. The same bytes at its begin have the same build id. */
static bool differs(int fd, const struct stat *st, const struct filenote *note)
{
	uint8_t head[SHA256_BYTES];

	if (filenote_ns(&st->st_mtim) != note->mtime_ns || (uint64_t)st->st_size != note->size)
		return true;
	return note->has_head &&
	       (!filenote_head(fd, head) || memcmp(head, note->head, sizeof(head)) != 0);
}

/* Times that are still to come say nothing: the clock was set back, or the file came with them. */
static bool is_past(int64_t ns)
{
	struct timespec now;

	return clock_gettime(CLOCK_REALTIME, &now) == 0 && ns <= filenote_ns(&now);
}

bool file_is_overwritten(int fd, const struct file_answer *file, const struct mapped_at *mapped)
{
	const int64_t begin = mapped->ns <= INT64_MAX ? (int64_t)mapped->ns : 0;
	int64_t late, written, touched;
	struct stat st;

	if (!file->dated || fstat(fd, &st) < 0)
		return false;
	written = filenote_ns(&st.st_mtim);
	touched = filenote_ns(&st.st_ctim);
	/*
	 * Also where the note is of an older recording, and the file was written to before this
	 * one.
	 */
	if (begin && touched <= begin)
		return false;
	if (file->noted && differs(fd, &st, &file->note))
		return true;
	if (!begin || __builtin_add_overflow(begin, CLOCKS_APART_NS, &late) ||
	    mapped->doubt_ns > INT64_MAX ||
	    __builtin_add_overflow(late, (int64_t)mapped->doubt_ns, &late))
		return false;
	if (written > late && is_past(written))
		return true;
	/* Something was changed of it, and nobody has seen it before. */
	return !file->noted && touched > late;
}
