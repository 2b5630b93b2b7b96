// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/pauses.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "common/base/raw_clock.h"
#include "common/control/json.h"

static struct pt_pause *find(struct pt_pauses *pauses, int cpu, uint32_t tid)
{
	for (size_t i = 0; i < pauses->n; i++) {
		struct pt_pause *p = &pauses->v[i];

		if (p->cpu == cpu && p->tid == tid && !p->to_ns)
			return p;
	}
	return NULL;
}

static void forget(struct pt_pauses *pauses, size_t i)
{
	memmove(&pauses->v[i], &pauses->v[i + 1], (pauses->n - i - 1) * sizeof(pauses->v[0]));
	pauses->n--;
}

/* The oldest that is over gives its place. */
static struct pt_pause *add(struct pt_pauses *pauses)
{
	size_t i = 0;

	if (pauses->n == PT_PAUSES_MAX) {
		while (i < pauses->n && !pauses->v[i].to_ns)
			i++;
		if (i == pauses->n)
			return NULL;
		forget(pauses, i);
	}
	return &pauses->v[pauses->n++];
}

void pt_pauses_begin(struct pt_pauses *pauses, int cpu, uint32_t tid, uint64_t ns)
{
	struct pt_pause *p;

	if (find(pauses, cpu, tid))
		return;
	p = add(pauses);
	if (p)
		*p = (struct pt_pause){.cpu = cpu, .tid = tid, .from_ns = ns};
	else
		pt_pauses_lose(pauses, ns);
}

void pt_pauses_end(struct pt_pauses *pauses, int cpu, uint32_t tid, uint64_t ns)
{
	struct pt_pause *p = find(pauses, cpu, tid);

	if (!p && pauses->unknown_ns && pauses->unknown_ns < ns) {
		/* From now on it is known again, once for all. */
		for (size_t i = 0; i < pauses->n; i++)
			if (pauses->v[i].cpu == cpu && pauses->v[i].tid == tid &&
			    pauses->v[i].from_ns >= pauses->unknown_ns)
				return;
		p = add(pauses);
		if (p)
			*p = (struct pt_pause){.cpu = cpu,
					       .tid = tid,
					       .from_ns = pauses->unknown_ns};
	}
	if (!p || ns <= p->from_ns)
		return;
	p->to_ns = ns;
	/* It may have been paused before this was known. */
	if (pauses->unknown_ns && p->from_ns > pauses->unknown_ns)
		p->from_ns = pauses->unknown_ns;
}

void pt_pauses_lose(struct pt_pauses *pauses, uint64_t ns)
{
	if (!pauses->unknown_ns)
		pauses->unknown_ns = ns;
}

size_t pt_pauses_count(struct pt_pauses *pauses)
{
	size_t n = 0;

	for (size_t i = 0; i < pauses->n; i++) {
		struct pt_pause *p = &pauses->v[i];

		if (!p->to_ns && kill((pid_t)p->tid, 0) < 0 && errno == ESRCH)
			p->to_ns = clock_raw_ns();
		n += !p->to_ns;
	}
	return n;
}

static void add_gap(const struct pt_pause *p, uint64_t now_ns, struct json_object *gaps)
{
	struct json_object *o = json_object_new_object();
	char kind[96];

	if (p->tid)
		(void)snprintf(kind, sizeof(kind),
			       "thread %u not traced on cpu %d: paused by a trigger", p->tid,
			       p->cpu);
	else
		(void)snprintf(kind, sizeof(kind),
			       "threads may not be traced on cpu %d: paused by a trigger", p->cpu);
	json_add_string(o, "kind", kind);
	json_add_int(o, "blind_cpu", p->cpu);
	if (p->tid)
		json_add_uint(o, "blind_tid", p->tid);
	else
		json_add_bool(o, "blind_unknown", true);
	json_add_uint(o, "from_ns", p->from_ns);
	json_add_uint(o, "to_ns", p->to_ns && p->to_ns < now_ns ? p->to_ns : now_ns);
	json_append(gaps, o);
}

void pt_pauses_meta(const struct pt_pauses *pauses, const int *cpus, size_t n_cpus, uint64_t now_ns,
		    struct json_object *gaps)
{
	for (size_t i = 0; i < pauses->n; i++)
		if (pauses->v[i].from_ns < now_ns)
			add_gap(&pauses->v[i], now_ns, gaps);
	for (size_t i = 0; pauses->unknown_ns && i < n_cpus; i++)
		add_gap(&(struct pt_pause){.cpu = cpus[i], .from_ns = pauses->unknown_ns}, now_ns,
			gaps);
}
