/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stops and lets go the tracing events of whole recordings. Each event costs the kernel a call to
 * the CPU on which its thread ran last: 1,000 threads on 64 CPUs take a second. So a thread does
 * that, and the loop does what is few, at once. Owns the thread and what waits for it; whether a
 * recording is to hold still, its events know.
 */
#pragma once

#include <stdbool.h>

#include "common/base/cleanup.h"

struct event_base;
struct pt_events;
struct stopper;
struct stopping;

/* Some milliseconds. */
#define STOPPER_AT_ONCE_FDS 256u

int stopper_new(struct event_base *base, struct stopper **ret) _must_check_;
/* Waits for what it does, and drops the rest. */
struct stopper *stopper_free(struct stopper *stopper);

/*
 * Calls pt_events_stop() or pt_events_go_on(). NULL: it is done. Else a thread does it, and `fn`,
 * if there is one, is called on the loop after that. All of it on the loop.
 */
struct stopping *stopper_stop(struct stopper *stopper, struct pt_events *events,
			      void (*fn)(void *arg), void *arg);
void stopper_go_on(struct stopper *stopper, struct pt_events *events);
/* Calls pt_resume_switch(). */
void stopper_switch_resumes(struct stopper *stopper, struct pt_events *events);
/* `fn` is not called any more. May be NULL. */
void stopping_forget(struct stopping *stopping);
