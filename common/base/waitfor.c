/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "common/base/waitfor.h"

#include <string.h>

#include "common/base/cleanup.h"

static bool has_word(const char *name, const char *const *words, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (strstr(name, words[i]))
			return true;
	return false;
}

/*
 * Where the interpreter itself is who called the condition's function, with a time-out, that is
 * take_gil(): it has no name in a stripped one.
 */
static bool is_nameless_python(const char *name)
{
	return strncmp(name, "[python3.", 9) == 0 || strncmp(name, "[libpython3.", 12) == 0;
}

bool waitfor_is_python(const char *name)
{
	return is_nameless_python(name) || strstr(name, "PyEval_EvalFrame") ||
	       strstr(name, "_PyEval_Vector");
}

bool waitfor_is_lock(enum waitfor f)
{
	return f == WAITFOR_LOCK || f == WAITFOR_INTERPRETER || f == WAITFOR_MONITOR;
}

/*
 * The functions that libraries and languages wait in tell it, the innermost first. What a signal's
 * handler waits for is the handler's.
 */
enum waitfor waitfor_functions(const char *const *names, size_t n)
{
	static const char *const no_holder[] = {
		"sem_wait",
		"sem_timedwait",
		"sem_clockwait",
		"cond_wait",
		"cond_timedwait",
		"cond_clockwait",
		"Condvar::wait", /* Rust */
		"pthread_join",
		"timedjoin",
		"clockjoin",
		"barrier_wait",
	};
	static const char *const locks[] = {
		"mutex_lock",
		"mutex_timedlock",
		"mutex_clocklock",
		"mutex_cond_lock", /* the mutex of a condition that was signalled */
		"lll_lock_wait",
		"lock_contended",
		"LockSlow",
		"rwlock_rd",
		"rwlock_wr",
		"rwlock_timed",
		"rwlock_clock",
		"rdlock",
		"wrlock",
		"spin_lock",
		"mutex::lock",
		"Mutex::lock",
		/* Rust: of the standard library, of parking_lot */
		"::read_contended",
		"::write_contended",
		"::lock_slow",
		"::lock_shared_slow",
		"::lock_exclusive_slow",
	};
	/* Not ObjectMonitor::wait, which waits for somebody to call notify(). */
	static const char *const monitors[] = {"ObjectMonitor::enter", "ObjectMonitor::EnterI",
					       "ObjectMonitor::reenter", "ObjectMonitor::ReenterI"};
	static const char *const handlers[] = {"__restore_rt", "__kernel_rt_sigreturn",
					       "sigreturn__sigaction"};
	static const char gil[] = "take_gil"; /* a lock, though made of a condition */
	bool post = false, timed = false;

	for (size_t i = 0; i < n && i < WAITFOR_FRAMES; i++) {
		if (!names[i])
			continue;
		if (has_word(names[i], handlers, ARRAY_SIZE(handlers)))
			break;
		if (strstr(names[i], gil) || (timed && is_nameless_python(names[i])))
			return WAITFOR_INTERPRETER;
		if (has_word(names[i], monitors, ARRAY_SIZE(monitors)))
			return WAITFOR_MONITOR;
		if (!post && has_word(names[i], locks, ARRAY_SIZE(locks)))
			return WAITFOR_LOCK;
		timed = strstr(names[i], "cond_timedwait") || strstr(names[i], "cond_clockwait");
		post = post || has_word(names[i], no_holder, ARRAY_SIZE(no_holder));
	}
	return post ? WAITFOR_POST : WAITFOR_UNKNOWN;
}

static bool begins(const char *text, const char *with)
{
	return strncmp(text, with, strlen(with)) == 0;
}

bool waitfor_is_file_lock(const char *call)
{
	return call && (strcmp(call, "flock") == 0 || strcmp(call, "fcntl") == 0);
}

bool waitfor_may_lock(const char *call)
{
	return !call || begins(call, "futex") || waitfor_is_file_lock(call);
}

bool waitfor_may_release(const char *call, const char *by)
{
	if (!call || !by)
		return true;
	if (begins(call, "futex"))
		return begins(by, "futex");
	return !strstr(by, "kill") && !strstr(by, "sigqueueinfo") && !strstr(by, "send_signal");
}
