// SPDX-License-Identifier: Apache-2.0
/*
 * Starts and stops the library, and drives the registration in between: by a helper thread, or by
 * the program's own loop.
 *
 * There are two locks. tracerd_start() and tracerd_stop() hold `life` for as long as they run.
 * `machine` protects the registration and is held for short times only. fork() takes it, so that
 * the child finds the registration whole and can close its copies of the descriptors; otherwise a
 * child that lives on would keep its parent's connection. Children of _Fork() and clone() only
 * forget; the daemon watches the process, too.
 *
 * Atomic variables hold what other threads and signal handlers may read.
 */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <time.h>

#include "client/lib/cause.h"
#include "client/lib/client_internal.h"
#include "client/lib/eventlib.h"
#include "client/lib/registration.h"
#include "common/base/io.h"
#include "common/bundle/clocks.h"

#define DEFAULT_THREADS 64
#define DEFAULT_EVENTS 8192
#define DEFAULT_NAMES 4096
/* The helper parses short JSON texts; the C library needs some stack of its own. */
#define STACK_BYTES (128u * 1024)
#define JOIN_S 5
#define FORK_WAIT_NS 100000000

static pthread_mutex_t life = PTHREAD_MUTEX_INITIALIZER;
/* recursive: fork() in a signal handler may interrupt its own holder */
static pthread_mutex_t machine = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static __thread bool forking; /* this thread holds `machine` for its fork() */

/* life */
static bool started, at_fork_set;
static uint32_t rings, slots, names;
static pthread_t helper;
static bool has_helper;
static int stop_fd = -1; /* wakes the helper */

/* machine */
static struct registration *registration;
/* number of the registration: a helper of an earlier one must not serve this one */
static uint64_t generation;

/* atomic */
static int loop_fd = -1; /* TRACERD_NO_THREAD */
static uint32_t connected;
static int last_error;
static uint64_t registrations;

/* ---- callbacks of the registration */

static enum ring_clock choose_clock(void)
{
	int tsc = PR_TSC_ENABLE;

	/* a sandbox may have forbidden the instruction */
	if (prctl(PR_GET_TSC, &tsc) == 0 && tsc != PR_TSC_ENABLE)
		return RING_CLOCK_MONOTONIC_RAW;
	return clocks_tsc_usable() ? RING_CLOCK_TSC : RING_CLOCK_MONOTONIC_RAW;
}

static int on_prepare(void *arg, int *ret_rings, int *ret_wake)
{
	int memory, wake, r;

	r = ringmem_create(rings, slots, names, ringmem_header() ? events_clock() : choose_clock());
	if (r < 0)
		return r;
	memory = ringmem_fd();
	if (memory < 0)
		return memory;
	wake = cause_wake_fd();
	if (wake < 0)
		return wake;
	*ret_rings = memory;
	*ret_wake = wake;
	return 0;
}

static void on_control(void *arg, const struct ring_control *page)
{
	thresholds_bind(page);
	cause_connect(page);
}

static void on_changed(void *arg, bool live, int error)
{
	__atomic_store_n(&last_error, error, __ATOMIC_RELAXED);
	__atomic_store_n(&connected, live, __ATOMIC_RELAXED);
	if (live) {
		(void)__atomic_add_fetch(&registrations, 1, __ATOMIC_RELAXED);
		/* and stays on when the daemon has gone */
		events_enable(true);
	}
}

/* ---- the helper thread */

static void *helper_run(void *arg)
{
	struct pollfd p[2] = {{.events = POLLIN}, {.events = POLLIN}};
	uint64_t mine;
	int error = 0;
	bool over;

	(void)prctl(PR_SET_NAME, "tracerd");
	(void)pthread_mutex_lock(&machine);
	mine = generation;
	over = !registration;
	p[0].fd = over ? -1 : registration_fd(registration);
	p[1].fd = stop_fd;
	(void)pthread_mutex_unlock(&machine);
	while (!over) {
		if (poll(p, 2, -1) < 0 && errno != EINTR)
			error = -errno;
		/* the program has closed all descriptors: these numbers are not ours any more */
		else if ((p[0].revents | p[1].revents) & POLLNVAL)
			error = -EBADF;
		(void)pthread_mutex_lock(&machine);
		over = (error == 0 && p[1].revents != 0) || generation != mine || !registration;
		if (!over && error == 0)
			error = registration_dispatch(registration);
		if (!over && error < 0) {
			registration_give_up(registration, error);
			over = true;
		}
		(void)pthread_mutex_unlock(&machine);
	}
	return NULL;
}

static int helper_start(void)
{
	sigset_t all, old;
	pthread_attr_t attr;
#ifndef SANITIZERS
	long least = sysconf(_SC_THREAD_STACK_MIN);
#endif
	int r;

	stop_fd = io_above_stdio(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
	if (stop_fd < 0)
		return -errno;
	(void)pthread_attr_init(&attr);
#ifndef SANITIZERS
	/*
	 * this fails if the size is too small for the program's thread-local data: then the stack
	 * has the usual size
	 */
	(void)pthread_attr_setstacksize(&attr, (least > 0 ? (size_t)least : 0) + STACK_BYTES);
#endif
	(void)sigfillset(&all);
	(void)pthread_sigmask(SIG_SETMASK, &all, &old);
	r = pthread_create(&helper, &attr, helper_run, NULL);
	if (r == EINVAL)
		r = pthread_create(&helper, NULL, helper_run, NULL);
	(void)pthread_sigmask(SIG_SETMASK, &old, NULL);
	(void)pthread_attr_destroy(&attr);
	if (r != 0) {
		stop_fd = close_fd(stop_fd);
		return -r;
	}
	has_helper = true;
	return 0;
}

/*
 * Ends the helper. If the program has closed the descriptors, the helper cannot be reached: it
 * waits for ever and is left alone.
 */
static void helper_stop(void)
{
	const uint64_t one = 1;
	struct timespec until;

	has_helper = false;
	if (!registration_is_intact(registration)) {
		(void)pthread_detach(helper);
		stop_fd = -1;
		return;
	}
	(void)!write(stop_fd, &one, sizeof(one));
	/* by the clock of pthread_mutex_clocklock(), which sanitizers know */
	(void)clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += JOIN_S;
	if (pthread_timedjoin_np(helper, NULL, &until) != 0)
		(void)pthread_detach(helper);
	stop_fd = close_fd(stop_fd);
}

/* ---- fork */

static void before_fork(void)
{
	struct timespec until;

	/*
	 * with a limit: the fork handler of another library may hold a lock that the helper waits
	 * for
	 */
	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += FORK_WAIT_NS;
	if (until.tv_nsec >= 1000000000) {
		until.tv_nsec -= 1000000000;
		until.tv_sec++;
	}
	forking = pthread_mutex_clocklock(&machine, CLOCK_MONOTONIC, &until) == 0;
}

static void after_fork(void)
{
	if (forking)
		(void)pthread_mutex_unlock(&machine);
	forking = false;
}

void start_forked(void)
{
	life = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	machine = (pthread_mutex_t)PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
	if (forking && registration) {
		if (registration_is_intact(registration))
			(void)close_fd(stop_fd);
		registration_abandon(registration);
	}
	cause_forked();
	forking = false;
	registration = NULL;
	started = false;
	has_helper = false;
	stop_fd = -1;
	loop_fd = -1;
	connected = 0;
	last_error = 0;
	registrations = 0;
}

/* ---- staying loaded */

/*
 * The shared library is linked so that it stays loaded. The static one may be a part of a plug-in;
 * dlclose() would then take the code away from the helper thread and from threads with rings.
 * dlopen() is looked up, because a mere reference makes the linker of a static program warn.
 */
static void pin_library(void)
{
	void *(*open)(const char *, int) = NULL;
	struct link_map *map = NULL;
	Dl_info info;
	void *symbol, *handle;

	if (!dladdr1((const void *)pin_library, &info, (void **)&map, RTLD_DL_LINKMAP) || !map ||
	    !*map->l_name)
		return;
	symbol = dlsym(RTLD_DEFAULT, "dlopen");
	memcpy(&open, &symbol, sizeof(open));
	handle = open ? open(map->l_name, RTLD_NOLOAD | RTLD_NODELETE | RTLD_NOW) : NULL;
	if (handle)
		(void)dlclose(handle);
}

/* ---- start and stop */

/* The caller's options, in this library's size and with its defaults. */
static int options_read(const tracerd_options *given, tracerd_options *ret)
{
	tracerd_options o = {0};

	if (given) {
		size_t known = given->size < sizeof(o) ? given->size : sizeof(o);

		/* a newer program may not ask for what this library does not know */
		if (given->size < sizeof(given->size))
			return -EINVAL;
		for (size_t i = sizeof(o); i < given->size; i++)
			if (((const char *)given)[i])
				return -EINVAL;
		memcpy(&o, given, known);
	}
	if (!o.socket)
		o.socket = tracerd_default_socket();
	if (!o.threads)
		o.threads = DEFAULT_THREADS;
	if (!o.events)
		o.events = DEFAULT_EVENTS;
	if (!o.names)
		o.names = DEFAULT_NAMES;
	if (o.threads > RING_MAX_RINGS || o.events < RING_MIN_SLOTS || o.events > RING_MAX_SLOTS ||
	    (o.events & (o.events - 1)) || o.names > RING_MAX_NAMES ||
	    (o.flags & ~(uint32_t)TRACERD_NO_THREAD))
		return -EINVAL;
	*ret = o;
	return 0;
}

static int start_locked(const tracerd_options *o)
{
	static const struct registration_callbacks callbacks = {on_prepare, on_control, on_changed,
								NULL};
	struct registration *new = NULL;
	int r;

	if (started)
		return 0;
	if (!at_fork_set) {
		r = pthread_atfork(before_fork, after_fork, NULL);
		if (r != 0)
			return -r;
		at_fork_set = true;
	}
	pin_library();
	r = registration_new(o->socket, &callbacks, &new);
	if (r < 0)
		return r == -ENAMETOOLONG ? -EINVAL : r;
	rings = o->threads;
	slots = o->events;
	names = o->names;
	(void)pthread_mutex_lock(&machine);
	registration = new;
	generation++;
	(void)pthread_mutex_unlock(&machine);
	if (o->flags & TRACERD_NO_THREAD) {
		__atomic_store_n(&loop_fd, registration_fd(new), __ATOMIC_RELEASE);
	} else {
		r = helper_start();
		if (r < 0) {
			(void)pthread_mutex_lock(&machine);
			registration = NULL;
			registration_free(new);
			(void)pthread_mutex_unlock(&machine);
			return r;
		}
	}
	started = true;
	return 0;
}

int tracerd_start(const tracerd_options *options)
{
	tracerd_options o;
	int r;

	process_enter();
	r = options_read(options, &o);
	if (r < 0)
		return r;
	(void)pthread_mutex_lock(&life);
	r = start_locked(&o);
	(void)pthread_mutex_unlock(&life);
	return r;
}

void tracerd_stop(void)
{
	process_enter();
	(void)pthread_mutex_lock(&life);
	if (started) {
		events_enable(false);
		__atomic_store_n(&loop_fd, -1, __ATOMIC_RELEASE);
		if (has_helper)
			helper_stop();
		(void)pthread_mutex_lock(&machine);
		registration_free(take_ptr(registration));
		on_control(NULL, NULL);
		__atomic_store_n(&connected, 0, __ATOMIC_RELAXED);
		__atomic_store_n(&last_error, 0, __ATOMIC_RELAXED);
		(void)pthread_mutex_unlock(&machine);
		started = false;
	}
	(void)pthread_mutex_unlock(&life);
}

/* ---- a loop of the program's own */

int tracerd_fd(void)
{
	int fd = __atomic_load_n(&loop_fd, __ATOMIC_ACQUIRE);

	return fd >= 0 ? fd : -EBADF;
}

int tracerd_dispatch(void)
{
	int r = -EBADF;

	process_enter();
	(void)pthread_mutex_lock(&machine);
	if (registration && __atomic_load_n(&loop_fd, __ATOMIC_ACQUIRE) >= 0) {
		r = registration_dispatch(registration);
		if (r < 0)
			registration_give_up(registration, r);
	}
	(void)pthread_mutex_unlock(&machine);
	return r;
}

/* ---- how it goes */

void tracerd_get_event_stats(tracerd_event_stats *stats)
{
	tracerd_event_stats s = {.size = stats->size};
	struct event_counts counts = {0};
	size_t known = stats->size < sizeof(s) ? stats->size : sizeof(s);

	events_count(&counts);
	s.enabled = events_enabled();
	/* a child in which process_enter() has not run has no memory */
	s.connected = ringmem_header() && __atomic_load_n(&connected, __ATOMIC_RELAXED) &&
		      cause_is_heard();
	s.rings_used = counts.rings_used;
	s.names = counts.names;
	s.events_lost = counts.events_lost;
	s.names_lost = counts.names_lost;
	s.texts_cut = counts.texts_cut;
	s.registrations = __atomic_load_n(&registrations, __ATOMIC_RELAXED);
	s.last_error = __atomic_load_n(&last_error, __ATOMIC_RELAXED);
	memset(stats, 0, stats->size);
	memcpy(stats, &s, known);
}
