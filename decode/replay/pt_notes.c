// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/replay/pt_notes.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/control/json.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/dump.h"
#include "decode/pt/packet.h"
#include "decode/pt/pipeline.h"
#include "decode/replay/session_internal.h"

#define BUS_MHZ 100u /* what the ratio of a CBR packet is of, on all processors that have PT */

enum { CFE_INTR = 1, CFE_SMI = 3, CFE_VMEXIT = 8, CFE_VMEXIT_INTR = 9, CFE_UINTR = 12 };

/* Of a buffer. */
struct source {
	uint32_t ratio; /* that was drawn last */
	const char *why;
	uint64_t why_ip;
};

struct pt_notes {
	const struct auxtrace *aux;
	struct source *sources;
	uint64_t ptwrites, begun, aborted, power, ratios, interruptions;
};

int pt_notes_new(const struct auxtrace *aux, struct pt_notes **ret)
{
	_cleanup_(pt_notes_freep) struct pt_notes *n = calloc(1, sizeof(*n));

	if (!n)
		return -ENOMEM;
	n->aux = aux;
	n->sources = calloc(auxtrace_n_buffers(aux) + 1, sizeof(*n->sources));
	if (!n->sources)
		return -ENOMEM;
	*ret = take_ptr(n);
	return 0;
}

struct pt_notes *pt_notes_free(struct pt_notes *n)
{
	if (!n)
		return NULL;
	free(n->sources);
	free(n);
	return NULL;
}

/* ---- drawing */

/* On the thread, with at most two values. */
static int moment(struct session *s, struct dump_thread *dump, const struct pipeline_event *ev,
		  const char *name, const struct timeline_value *values, uint32_t n_values)
{
	char line[160];
	int used;

	if (ev->tid == 0)
		return 0;
	if (!dump)
		return timeline_answer(timeline_moment(s->o.tl, ev->tid, ev->ns, "processor", name,
						       values, n_values));
	used = snprintf(line, sizeof(line), "%s", name);
	for (uint32_t i = 0; i < n_values && used > 0 && (size_t)used < sizeof(line); i++)
		used += snprintf(line + used, sizeof(line) - (size_t)used,
				 values[i].hex ? " %s 0x%" PRIx64 : " %s %" PRIu64, values[i].key,
				 values[i].value);
	return dump_remark(dump,
			   (struct dump_time){.ns = ev->ns, .interpolated = ev->flow->interpolated},
			   line);
}

/* A value of the CPU; where it is not known which, of that on which the thread runs. */
static int value(const struct pt_notes *n, struct session *s, struct dump_thread *dump,
		 const struct pipeline_event *ev, const char *what, uint64_t v)
{
	const struct auxtrace_buffer *b = auxtrace_buffer(n->aux, ev->buffer);
	char name[80];

	if (dump || (b->cpu < 0 && b->tid <= 0))
		return 0;
	if (b->tid > 0)
		(void)snprintf(name, sizeof(name), "CPU of thread %" PRId32 ": %s", b->tid, what);
	else
		(void)snprintf(name, sizeof(name), "CPU %" PRId32 ": %s", b->cpu, what);
	return timeline_answer(timeline_counter(s->o.tl, b->tid > 0 ? ev->pid : 0, ev->ns, name,
						WRITER_UNIT_COUNT,
						v > INT64_MAX ? INT64_MAX : (int64_t)v));
}

/* ---- what they are */

static const char *interruption(uint8_t type, uint64_t vector)
{
	static const char *const faults[] = {"divide error",
					     "debug exception",
					     "NMI",
					     "breakpoint",
					     "overflow exception",
					     "bound range exceeded",
					     "invalid opcode",
					     "device not available",
					     "double fault",
					     NULL,
					     "invalid TSS",
					     "segment not present",
					     "stack fault",
					     "general protection fault",
					     "page fault",
					     NULL,
					     "floating-point exception",
					     "alignment check",
					     "machine check",
					     "SIMD exception",
					     "virtualization exception",
					     "control protection fault"};

	switch (type) {
	case CFE_INTR:
		if (vector >= 32)
			return "interrupt";
		return vector < ARRAY_SIZE(faults) && faults[vector] ? faults[vector] : "exception";
	case CFE_SMI:
		return "system management interrupt";
	case CFE_VMEXIT:
	case CFE_VMEXIT_INTR:
		return "left the virtual machine";
	case CFE_UINTR:
		return "user interrupt";
	default:
		return NULL;
	}
}

static int on_interruption(struct pt_notes *n, struct session *s, struct dump_thread *dump,
			   const struct pipeline_event *ev)
{
	const struct timeline_value v = {.key = "vector", .value = ev->flow->to};
	struct source *source = &n->sources[ev->buffer];

	source->why = interruption(ev->flow->detail, ev->flow->to);
	source->why_ip = ev->flow->from;
	if (!source->why)
		return 0;
	n->interruptions++;
	/* where the kernel is not traced, that tracing stops there says it */
	if (!auxtrace_config(n->aux)->kernel)
		return 0;
	return moment(s, dump, ev, source->why, &v, ev->flow->detail == CFE_INTR);
}

static int on_transaction(struct pt_notes *n, struct session *s, struct dump_thread *dump,
			  const struct pipeline_event *ev)
{
	static const char *const what[] = {"transaction committed", "transaction begins",
					   "transaction aborted"};

	n->begun += ev->flow->detail == PTFLOW_TX_BEGUN;
	n->aborted += ev->flow->detail == PTFLOW_TX_ABORTED;
	return ev->flow->detail < ARRAY_SIZE(what)
		       ? moment(s, dump, ev, what[ev->flow->detail], NULL, 0)
		       : 0;
}

static int on_ptwrite(struct pt_notes *n, struct session *s, struct dump_thread *dump,
		      const struct pipeline_event *ev)
{
	const struct timeline_value v[] = {{.key = "value", .value = ev->flow->to, .hex = true},
					   {.key = "at", .value = ev->flow->from, .hex = true}};

	n->ptwrites++;
	return moment(s, dump, ev, "PTWRITE", v, ev->flow->from ? 2 : 1);
}

static int on_ratio(struct pt_notes *n, struct session *s, struct dump_thread *dump,
		    const struct pipeline_event *ev)
{
	struct source *source = &n->sources[ev->buffer];

	/* each PSB says it again */
	if (source->ratio == ev->flow->to)
		return 0;
	source->ratio = (uint32_t)ev->flow->to;
	n->ratios++;
	return value(n, s, dump, ev, "MHz", ev->flow->to * BUS_MHZ);
}

int pt_notes_event(struct pt_notes *n, struct session *s, struct dump_thread *dump,
		   const struct pipeline_event *ev)
{
	const uint64_t v = ev->flow->to;

	switch (ev->flow->note) {
	case PT_PTW:
		return on_ptwrite(n, s, dump, ev);
	case PT_MODE_TSX:
		return on_transaction(n, s, dump, ev);
	case PT_CFE:
		return on_interruption(n, s, dump, ev);
	case PT_CBR:
		return on_ratio(n, s, dump, ev);
	case PT_PWRE: /* the thread's C-state in the highest four bits */
		n->power++;
		return value(n, s, dump, ev, "C-state entered", v >> 12 & 15);
	case PT_PWRX: /* the core's last one in the lowest */
		n->power++;
		return value(n, s, dump, ev, "C-state entered", 0);
	case PT_MWAIT:
		n->power++;
		return moment(s, dump, ev, "MWAIT",
			      &(struct timeline_value){.key = "hints",
						       .value = v & UINT32_MAX,
						       .hex = true},
			      1);
	case PT_EXSTOP:
		n->power++;
		return moment(s, dump, ev, "execution stopped", NULL, 0);
	default:
		return 0;
	}
}

const char *pt_notes_why(struct pt_notes *n, const struct pipeline_event *ev)
{
	struct source *source = &n->sources[ev->buffer];
	const char *why = source->why_ip == ev->flow->from ? source->why : NULL;

	source->why = NULL;
	return why;
}

static void add(struct json_object *stats, const char *key, uint64_t n)
{
	if (n)
		json_add_uint(stats, key, n);
}

void pt_notes_report(const struct pt_notes *n, struct json_object *stats)
{
	add(stats, "ptwrites", n->ptwrites);
	add(stats, "transactions", n->begun);
	add(stats, "transactions_aborted", n->aborted);
	add(stats, "interruptions", n->interruptions);
	add(stats, "frequency_changes", n->ratios);
	add(stats, "power_events", n->power);
}
