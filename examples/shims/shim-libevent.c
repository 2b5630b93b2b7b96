// SPDX-License-Identifier: Apache-2.0
/*
 * A region around each callback of any program that uses the shared library of libevent 2.x (memcached, tmux,
 * tor ...), without a change to the program:
 *
 *	LD_PRELOAD=shim-libevent.so memcached -p 11211 &
 *	tracectl arm $!
 *	tracectl trigger add $! --region event_callback --over 5ms
 *
 * A callback that holds the loop for 5 ms or more leaves a snapshot.
 *
 *	region           arguments
 *	event_callback   function: the callback's address; fd; events: what it was called for (EV_*)
 *
 * libevent calls a function with a pointer that the program chose. The shim gives it its own function, and a
 * record that holds the program's two. A record belongs to an event's address and is used again when an
 * event is set up there again; those of event_free()d events are used for others. What event_base_once()
 * calls is not seen.
 *
 *	cc -O2 -shared -fPIC -o shim-libevent.so shim-libevent.c $(pkg-config --cflags --libs tracerd) -ldl
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <event2/event.h>
#include <event2/event_compat.h>
#include <event2/event_struct.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <tracerd.h>

#define BUCKETS 4096u

/* What the program wanted to be called. Never freed: a callback may be on its way. */
struct record {
	struct record *next;
	const struct event *event;
	event_callback_fn function;
	void *arg;
};

static struct {
	int (*assign)(struct event *, struct event_base *, evutil_socket_t, short, event_callback_fn, void *);
	struct event *(*new)(struct event_base *, evutil_socket_t, short, event_callback_fn, void *);
	void (*set)(struct event *, evutil_socket_t, short, event_callback_fn, void *);
	void (*free)(struct event *);
	void (*get_assignment)(const struct event *, struct event_base **, evutil_socket_t *, short *, event_callback_fn *, void **);
	event_callback_fn (*get_callback)(const struct event *);
	void *(*get_callback_arg)(const struct event *);
} real;

static tracerd_name name_callback, key_function, key_fd, key_events;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct record *buckets[BUCKETS], *unused;

static void find(const char *name, void *ret)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	memcpy(ret, &symbol, sizeof(symbol));
}

__attribute__((constructor)) static void begin(void)
{
	find("event_assign", &real.assign);
	find("event_new", &real.new);
	find("event_set", &real.set);
	find("event_free", &real.free);
	find("event_get_assignment", &real.get_assignment);
	find("event_get_callback", &real.get_callback);
	find("event_get_callback_arg", &real.get_callback_arg);
	if (!real.assign)
		return;
	name_callback = tracerd_intern("event_callback");
	key_function = tracerd_intern("function");
	key_fd = tracerd_intern("fd");
	key_events = tracerd_intern("events");
	(void)tracerd_start(NULL);
}

static void call(evutil_socket_t fd, short events, void *arg)
{
	/* By value: the callback may free its event, and the record may go to another one. */
	struct record record = *(struct record *)arg;
	tracerd_region region = {0, 0, 0};

	if (tracerd_enabled()) {
		tracerd_arg args[] = {
			tracerd_u64(key_function, (uint64_t)(uintptr_t)record.function),
			tracerd_i64(key_fd, fd),
			tracerd_u64(key_events, (uint64_t)(unsigned short)events),
		};

		args[0].type = TRACERD_POINTER;
		region = tracerd_region_begin_with(name_callback, 0, args, 3);
	}
	record.function(fd, events, record.arg);
	tracerd_region_end(region);
}

static struct record **bucket_of(const struct event *event)
{
	return &buckets[(uintptr_t)event / 16 % BUCKETS];
}

static struct record *find_record(const struct event *event)
{
	for (struct record *r = *bucket_of(event); r; r = r->next)
		if (r->event == event)
			return r;
	return NULL;
}

/* The record of the event at that address; NULL without memory: then this event has no region. */
static struct record *take_record(const struct event *event, event_callback_fn function, void *arg)
{
	struct record *r;

	(void)pthread_mutex_lock(&lock);
	r = find_record(event);
	if (!r) {
		r = unused;
		if (r)
			unused = r->next;
		else
			r = calloc(1, sizeof(*r));
		if (r) {
			r->next = *bucket_of(event);
			*bucket_of(event) = r;
		}
	}
	if (r) {
		r->event = event;
		r->function = function;
		/* libevent's word for "the event itself", which it would not find in the record */
		r->arg = arg == event_self_cbarg() ? (void *)(uintptr_t)event : arg;
	}
	(void)pthread_mutex_unlock(&lock);
	return r;
}

int event_assign(struct event *event, struct event_base *base, evutil_socket_t fd, short events,
		 event_callback_fn function, void *arg)
{
	/* libevent's own calls of this may come here too, with what was exchanged already. */
	struct record *r = function && function != call ? take_record(event, function, arg) : NULL;

	return r ? real.assign(event, base, fd, events, call, r) : real.assign(event, base, fd, events, function, arg);
}

void event_set(struct event *event, evutil_socket_t fd, short events, event_callback_fn function, void *arg)
{
	struct record *r = function && function != call ? take_record(event, function, arg) : NULL;

	if (r)
		real.set(event, fd, events, call, r);
	else
		real.set(event, fd, events, function, arg);
}

struct event *event_new(struct event_base *base, evutil_socket_t fd, short events, event_callback_fn function, void *arg)
{
	/* Its address is known only then: made with what the program gave, and set up again, not yet added. */
	struct event *event = real.new(base, fd, events, function, arg);

	if (event && function && function != call) {
		struct record *r = take_record(event, function, arg);

		if (r && real.assign(event, base, fd, events, call, r) < 0)
			(void)real.assign(event, base, fd, events, function, arg);
	}
	return event;
}

void event_free(struct event *event)
{
	struct record *record = NULL;

	/*
	 * Out of the table before the address can be another event's; free for others only when libevent has
	 * taken the event back, and waited for its callback in another thread.
	 */
	(void)pthread_mutex_lock(&lock);
	for (struct record **at = bucket_of(event); *at; at = &(*at)->next) {
		if ((*at)->event != event)
			continue;
		record = *at;
		*at = record->next;
		break;
	}
	(void)pthread_mutex_unlock(&lock);
	real.free(event);
	if (!record)
		return;
	(void)pthread_mutex_lock(&lock);
	record->next = unused;
	unused = record;
	(void)pthread_mutex_unlock(&lock);
}

/* Who asks an event what it calls gets what the program gave. */
void event_get_assignment(const struct event *event, struct event_base **ret_base, evutil_socket_t *ret_fd,
			  short *ret_events, event_callback_fn *ret_function, void **ret_arg)
{
	event_callback_fn function;
	void *arg;

	real.get_assignment(event, ret_base, ret_fd, ret_events, &function, &arg);
	if (function == call) {
		function = ((struct record *)arg)->function;
		arg = ((struct record *)arg)->arg;
	}
	if (ret_function)
		*ret_function = function;
	if (ret_arg)
		*ret_arg = arg;
}

event_callback_fn event_get_callback(const struct event *event)
{
	event_callback_fn function = real.get_callback(event);

	return function == call ? ((struct record *)real.get_callback_arg(event))->function : function;
}

void *event_get_callback_arg(const struct event *event)
{
	void *arg = real.get_callback_arg(event);

	return real.get_callback(event) == call ? ((struct record *)arg)->arg : arg;
}
