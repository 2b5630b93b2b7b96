/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns what the names of the functions in which a thread waits say about what it waits for.
 *
 * A lock has a holder, and who releases it held it. A semaphore and a condition have none: who
 * posts work for an idle thread holds nothing. (Python's locks are semaphores. A queue's and a
 * mutex's look the same.) A guess, as names are: anybody may call a function as he likes.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum waitfor {
	WAITFOR_UNKNOWN,
	WAITFOR_LOCK,
	/* the lock of CPython's: it is handed on mostly without waking anybody */
	WAITFOR_INTERPRETER,
	/* Java's lock of an object (HotSpot): each thread waits for it in a condition of its own */
	WAITFOR_MONITOR,
	WAITFOR_POST, /* a semaphore or a condition: what has no holder */
};

/*
 * Functions beyond these say nothing: everything is called from somewhere that may have any name.
 */
#define WAITFOR_FRAMES 6u

/*
 * `names`: the program's functions, the innermost first, at most WAITFOR_FRAMES of which are looked
 * at. A name may be NULL.
 */
enum waitfor waitfor_functions(const char *const *names, size_t n);

/* Whether that is a lock. */
bool waitfor_is_lock(enum waitfor f);

/* Whether the function is one that only CPython's interpreter has. */
bool waitfor_is_python(const char *name);

/*
 * Calls in which one waits for a lock: futex and futex_wait ..., and locks of files. NULL: not
 * known, so it may be.
 */
bool waitfor_may_lock(const char *call);

/* Of these, calls that sleep for nothing but a lock: those of files. */
bool waitfor_is_file_lock(const char *call);

/*
 * Whether who ended a wait in the call `call` while he was in `by` may have given something back:
 * who ends one in futex() is in futex() himself, and who sends a signal gives nothing. NULL: not
 * known, so he may.
 */
bool waitfor_may_release(const char *call, const char *by);
