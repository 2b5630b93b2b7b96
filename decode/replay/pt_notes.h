/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a trace tells beside the way through the code: values that the program writes (PTWRITE), transactions, what
 * interrupted it (event trace), how fast the core runs and how it sleeps. Draws them: on the thread where it
 * was the thread's doing, else as values of the CPU over time. Refuses to know calls.
 */
#pragma once

#include <stdint.h>

#include "common/base/cleanup.h"

struct json_object;
struct auxtrace;
struct ptnotes;
struct dump_thread;
struct pipeline_event;
struct session;

/* Borrows it. */
int ptnotes_new(const struct auxtrace *aux, struct ptnotes **ret) _must_check_;
struct ptnotes *ptnotes_free(struct ptnotes *n);
DEFINE_CLEANUP(struct ptnotes *, ptnotes_free)

/* An event that is a note (PTFLOW_NOTE). `view`: of its thread, if it is written and not drawn; else NULL. 0 or -errno. */
int ptnotes_event(struct ptnotes *n, struct session *s, struct dump_thread *view, const struct pipeline_event *ev);

/* Why tracing of the event's buffer stops there and now, if a note in front of it has said so; else NULL. Constant. */
const char *ptnotes_why(struct ptnotes *n, const struct pipeline_event *ev);

/* What there was of it. */
void ptnotes_report(const struct ptnotes *n, struct json_object *stats);
