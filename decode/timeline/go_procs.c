/* SPDX-License-Identifier: Apache-2.0 */
/* The processors (P) of a Go program: what goroutine each runs, system calls in it, sweeping. */
#include "config.h"

#include "decode/timeline/go_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct tl_go_proc *tl_go_proc_of(const struct timeline_go *go, uint64_t id)
{
	return id == GOFMT_NO_ID ? NULL : hashmap_pointer(&go->procs, id);
}

static int proc_get(const struct tl_go_at *at, uint64_t id, struct tl_go_proc **ret)
{
	struct timeline_go *go = at->go;
	struct tl_go_proc *p = tl_go_proc_of(go, id);
	char name[32];
	int r;

	if (!p) {
		if (go->n_procs == TL_GO_MAX_PROCS)
			return TIMELINE_E_FULL;
		p = calloc(1, sizeof(*p));
		if (!p)
			return -ENOMEM;
		r = hashmap_put_pointer(&go->procs, id, p);
		if (r < 0) {
			free(p);
			return r;
		}
		p->id = id;
		go->n_procs++;
		(void)snprintf(name, sizeof(name), "P%" PRIu64, id);
		(void)tl_go_track(at, &p->track,
				  tl_go_track(at, &go->procs_track, tl_go_process(at),
					      "Go: processors"),
				  name);
	}
	*ret = p;
	return 0;
}

void tl_go_proc_instant(const struct tl_go_at *at, uint64_t id, const struct writer_event *ev)
{
	struct tl_go_proc *p = tl_go_proc_of(at->go, id);

	if (!p)
		return;
	writer_instant(at->tl->w, p->track, at->mono, ev);
	p->last = at->mono;
}

int tl_go_proc_run(const struct tl_go_at *at, uint64_t id, struct tl_goroutine *g, uint64_t mono)
{
	const struct tl_go_names *n = &at->go->n;
	struct writer_arg args[2];
	uint32_t n_args = 0;
	struct tl_go_proc *p;
	int r;

	if (id == GOFMT_NO_ID)
		return 0;
	r = proc_get(at, id, &p);
	if (r != 0)
		return r;
	if (p->g)
		tl_go_proc_leave(at->tl, at->go, p->g, at->mono);
	if (mono < p->last)
		mono = p->last;
	p->since = mono;
	p->last = at->mono;
	args[n_args++] = (struct writer_arg){.key = n->key_goroutine,
					     .kind = WRITER_ARG_UINT,
					     .value.u64 = g->fiber.id};
	if (at->thread)
		args[n_args++] = (struct writer_arg){.key = n->key_tid,
						     .kind = WRITER_ARG_UINT,
						     .value.u64 = at->thread->tid};
	writer_slice_begin(at->tl->w, p->track, mono,
			   &(struct writer_event){.name = g->fiber.name,
						  .category = n->goroutine,
						  .args = args,
						  .n_args = n_args});
	p->g = g;
	g->proc = p;
	return 0;
}

void tl_go_proc_syscall(const struct tl_go_at *at, struct tl_goroutine *g, uint64_t mono)
{
	if (!g->proc || g->proc->in_syscall)
		return;
	g->proc->in_syscall = true;
	writer_slice_begin(at->tl->w, g->proc->track, mono > g->proc->since ? mono : g->proc->since,
			   &(struct writer_event){.name = at->go->n.syscall,
						  .category = at->go->n.goroutine});
}

void tl_go_proc_syscall_end(struct timeline *tl, struct timeline_go *go, struct tl_goroutine *g,
			    uint64_t mono, bool blocked)
{
	const struct writer_arg arg = {.key = go->n.key_blocked,
				       .kind = WRITER_ARG_NAME,
				       .value.name = blocked ? go->n.yes : go->n.no};

	if (!g->proc || !g->proc->in_syscall)
		return;
	g->proc->in_syscall = false;
	writer_slice_end(tl->w, g->proc->track, mono,
			 &(struct writer_event){.args = &arg, .n_args = 1});
}

void tl_go_proc_leave(struct timeline *tl, struct timeline_go *go, struct tl_goroutine *g,
		      uint64_t mono)
{
	if (!g->proc)
		return;
	tl_go_proc_syscall_end(tl, go, g, mono, true);
	writer_slice_end(tl->w, g->proc->track, mono, NULL);
	g->proc->last = mono;
	g->proc->g = NULL;
	g->proc = NULL;
}

static void moment(const struct tl_go_at *at, struct tl_go_proc *p, uint32_t name)
{
	const struct writer_arg arg = {.key = at->go->n.key_tid,
				       .kind = WRITER_ARG_UINT,
				       .value.u64 = at->thread ? at->thread->tid : 0};

	p->last = at->mono;
	writer_instant(at->tl->w, p->track, at->mono,
		       &(struct writer_event){.name = name,
					      .category = at->go->n.proc,
					      .args = &arg,
					      .n_args = at->thread != NULL});
}

int tl_go_proc_transition(const struct tl_go_at *at)
{
	const struct goevent *ev = at->ev;
	struct timeline_go *go = at->go;
	struct tl_go_proc *p;
	int r;

	r = proc_get(at, ev->id, &p);
	if (r != 0)
		return r;
	if (ev->to == GOSTATE_RUNNING) {
		r = hashmap_put_pointer(&go->m_procs, ev->m, p);
		if (r < 0)
			return r;
	}
	if (p->runs != (ev->to == GOSTATE_RUNNING)) {
		p->runs = !p->runs;
		go->counts[TL_GO_PROCS] += p->runs ? 1 : UINT64_MAX;
	}
	if (ev->from == ev->to)
		return 0;
	/* its goroutine is in a system call, and goes on without it */
	if (ev->to == GOSTATE_IDLE && p->g)
		tl_go_proc_leave(at->tl, go, p->g, at->mono);
	if (ev->from == GOSTATE_UNDETERMINED || ev->from == GOSTATE_NOT_EXIST)
		return 0;
	moment(at, p, ev->to == GOSTATE_RUNNING ? go->n.proc_start : go->n.proc_stop);
	return 0;
}

int tl_go_proc_sweep(const struct tl_go_at *at)
{
	const struct goevent *ev = at->ev;
	const struct tl_go_names *n = &at->go->n;
	const bool active = ev->kind == GOEVENT_RANGE_ACTIVE;
	struct tl_go_proc *p;
	uint64_t since;
	int r = proc_get(at, ev->id, &p);

	if (r != 0)
		return r;
	if (ev->kind == GOEVENT_RANGE_END) {
		const struct writer_arg args[] = {
			{.key = n->key_swept, .kind = WRITER_ARG_UINT, .value.u64 = ev->value},
			{.key = n->key_reclaimed, .kind = WRITER_ARG_UINT, .value.u64 = ev->value2},
		};

		if (p->sweeping)
			writer_slice_end(at->tl->w, p->sweep_track, at->mono,
					 &(struct writer_event){.args = args, .n_args = 2});
		p->sweeping = false;
		return 0;
	}
	if (p->sweeping) /* again at the begin of a generation */
		return 0;
	p->sweeping = true;
	since = active && !p->sweep_track ? at->go->begin : at->mono;
	writer_slice_begin(at->tl->w, tl_go_track(at, &p->sweep_track, p->track, "sweeping"), since,
			   &(struct writer_event){.name = tl_go_text(at, &ev->name),
						  .category = n->gc});
	return 0;
}

void tl_go_procs_end(const struct tl_go_at *at)
{
	const struct writer_arg arg = {.key = at->go->n.key_note,
				       .kind = WRITER_ARG_NAME,
				       .value.name = at->go->n.note_end};
	const struct writer_event ev = {.args = &arg, .n_args = 1};
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(&at->go->procs, &pos)) != 0) {
		struct tl_go_proc *p = (void *)(uintptr_t)v;

		if (p->in_syscall)
			writer_slice_end(at->tl->w, p->track, at->mono, &ev);
		if (p->g) {
			writer_slice_end(at->tl->w, p->track, at->mono, &ev);
			p->g->proc = NULL;
		}
		if (p->sweeping)
			writer_slice_end(at->tl->w, p->sweep_track, at->mono, &ev);
		p->g = NULL;
		p->in_syscall = p->sweeping = false;
	}
}

void tl_go_procs_cut(struct timeline *tl, const struct timeline_go *go, uint64_t mono)
{
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(&go->procs, &pos)) != 0) {
		const struct tl_go_proc *p = (const void *)(uintptr_t)v;

		if (p->in_syscall)
			writer_slice_end(tl->w, p->track, mono, NULL);
		if (p->g)
			writer_slice_end(tl->w, p->track, mono, NULL);
		if (p->sweeping)
			writer_slice_end(tl->w, p->sweep_track, mono, NULL);
	}
}

void tl_go_procs_free(struct timeline_go *go)
{
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(&go->procs, &pos)) != 0)
		free((void *)(uintptr_t)v);
}
