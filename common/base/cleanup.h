/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cleanup attributes and the helpers that make each ownership move visible.
 *
 * A constructor builds in an annotated local and hands over in its last line by
 * take_fd()/take_ptr(), so that every early return frees what was half built.
 */
#pragma once

#include <stdlib.h>
#include <unistd.h>

/* "unused": some hold a thing only until the end of the scope. */
#define _cleanup_(f) __attribute__((cleanup(f), unused))
#define _printf_(a, b) __attribute__((format(printf, a, b)))
#define _must_check_ __attribute__((warn_unused_result))

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* Defines a cleanup function for pointers of `type` that calls `func(p)`; func accepts NULL. */
#define DEFINE_CLEANUP(type, func)                                                                 \
	static inline void func##p(type *p)                                                        \
	{                                                                                          \
		if (*p)                                                                            \
			(void)func(*p);                                                            \
	}

static inline int close_fd(int fd)
{
	if (fd >= 0)
		(void)close(fd);
	return -1;
}

static inline void close_fdp(int *fd)
{
	*fd = close_fd(*fd);
}

static inline void freep(void *p)
{
	free(*(void **)p);
}

#define _cleanup_free_ _cleanup_(freep)
#define _cleanup_close_ _cleanup_(close_fdp)

static inline int take_fd(int *fd)
{
	int v = *fd;

	*fd = -1;
	return v;
}

#define take_ptr(p)                                                                                \
	({                                                                                         \
		__typeof__(p) *_pp = &(p);                                                         \
		__typeof__(p) _v = *_pp;                                                           \
		*_pp = NULL;                                                                       \
		_v;                                                                                \
	})
