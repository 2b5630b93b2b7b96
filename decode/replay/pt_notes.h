/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace reports beside the way through the code: values that the program writes (PTWRITE),
 * transactions, what interrupted it (event trace), how fast the core runs and how it sleeps. Draws
 * them: on the thread where it was the thread's doing, else as values of the CPU over time. It must
 * not know calls.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"

struct json_object;
struct auxtrace;
struct pt_notes;
struct dump_thread;
struct pipeline_event;
struct session;

/* Borrows it. */
int pt_notes_new(const struct auxtrace *aux, struct pt_notes **ret) _must_check_;
struct pt_notes *pt_notes_free(struct pt_notes *n);
DEFINE_CLEANUP(struct pt_notes *, pt_notes_free)

/*
 * An event that is a note (PTFLOW_NOTE). `dump`: of its thread, if it is written and not drawn;
 * else NULL. 0 or -errno.
 */
int pt_notes_event(struct pt_notes *n, struct session *s, struct dump_thread *dump,
		   const struct pipeline_event *ev);

/*
 * Why tracing of the event's buffer stops there and now, if a note before it has said so; else
 * NULL. Constant.
 */
const char *pt_notes_why(struct pt_notes *n, const struct pipeline_event *ev);

/* What there was of it. */
void pt_notes_report(const struct pt_notes *n, struct json_object *stats);
