/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The C library's allocators, but they fail where the program says so. For one file of a program, which defines
 *	static bool malloc_fails(void)
 * before it includes this. With MALLOC_COUNTED defined, malloc_live is how many blocks were given and not freed; of
 * one thread. Not with AddressSanitizer, which has allocators of its own.
 */
#pragma once

#include <errno.h>
#include <malloc.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>

extern void *__libc_malloc(size_t size);
extern void *__libc_calloc(size_t n, size_t size);
extern void *__libc_realloc(void *p, size_t size);
extern void *__libc_memalign(size_t align, size_t size);

#ifdef MALLOC_COUNTED
extern void __libc_free(void *p);

static long malloc_live;

void free(void *p)
{
	malloc_live -= p != NULL;
	__libc_free(p);
}
#endif

static void *malloc_count(void *p)
{
#ifdef MALLOC_COUNTED
	malloc_live += p != NULL;
#endif
	return p;
}

void *malloc(size_t size)
{
	return malloc_fails() ? NULL : malloc_count(__libc_malloc(size));
}

void *calloc(size_t n, size_t size)
{
	return malloc_fails() ? NULL : malloc_count(__libc_calloc(n, size));
}

void *realloc(void *p, size_t size)
{
	if (malloc_fails())
		return NULL;
	return p ? __libc_realloc(p, size) : malloc_count(__libc_realloc(p, size));
}

void *reallocarray(void *p, size_t n, size_t size)
{
	size_t bytes;

	if (__builtin_mul_overflow(n, size, &bytes)) {
		errno = ENOMEM;
		return NULL;
	}
	return realloc(p, bytes);
}

void *memalign(size_t align, size_t size)
{
	return malloc_fails() ? NULL : malloc_count(__libc_memalign(align, size));
}

void *aligned_alloc(size_t align, size_t size)
{
	return memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
	void *p = memalign(align, size);

	if (!p)
		return ENOMEM;
	*ret = p;
	return 0;
}
