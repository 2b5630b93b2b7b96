/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The goroutines of a Go program: what state each is in, on which thread it runs and whether that
 * runs, who made it runnable. A goroutine that runs or is in a system call has a thread; the
 * kernel's switches of it are drawn on top.
 */
#include "config.h"

#include "decode/timeline/go_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static bool is_executing(enum gostate s)
{
	return s == GOSTATE_RUNNING || s == GOSTATE_SYSCALL;
}

/* ---- who they are */

static struct tl_goroutine *find(const struct timeline_go *go, uint64_t id)
{
	return id == GOFMT_NO_ID ? NULL : hashmap_pointer(&go->goroutines, id);
}

static void name_it(const struct tl_go_at *at, struct tl_goroutine *g)
{
	struct writer *w = at->tl->w;
	const char *function = gosurvey_goroutine(at->go->survey, g->fiber.id, NULL);
	char text[320];

	g->function = writer_name(w, function);
	(void)snprintf(text, sizeof(text), "G%" PRIu64 "%s%.*s", g->fiber.id, *function ? " " : "",
		       (int)writer_text_len(function, 256), function);
	g->fiber.name = writer_name(w, text);
}

int tl_goroutine_get(const struct tl_go_at *at, uint64_t id, struct tl_goroutine **ret)
{
	struct timeline_go *go = at->go;
	struct tl_goroutine *g = find(go, id);
	bool active;
	int r;

	if (!g) {
		g = calloc(1, sizeof(*g));
		if (!g)
			return -ENOMEM;
		r = hashmap_put_pointer(&go->goroutines, id, g);
		if (r < 0) {
			free(g);
			return r;
		}
		g->fiber.pid = go->pid;
		g->fiber.id = id;
		g->fiber.goroutine = true;
		(void)gosurvey_goroutine(go->survey, id, &active);
		g->parked = !active && !go->survey->full;
		name_it(at, g);
		go->stats.goroutines++;
		at->tl->stats.fibers++;
	}
	*ret = g;
	return 0;
}

/* ---- where they are drawn */

static void take_track(const struct tl_go_at *at, struct tl_goroutine *g)
{
	struct timeline_go *go = at->go;
	const uint32_t process = tl_go_process(at);
	struct tl_process *p;

	if (g->track || g->lane == TL_LANE_NONE || !process)
		return;
	if (go->n_tracks < TL_GO_TRACKS) {
		go->n_tracks++;
		(void)tl_go_track(at, &g->track,
				  tl_go_track(at, &go->goroutines_track, process, "Go: goroutines"),
				  writer_name_text(at->tl->w, g->fiber.name));
		g->fiber.parent_track = g->track;
		return;
	}
	g->fiber.regions.lane = TL_LANE_NONE;
	p = timeline_process_enter(at->tl, go->pid, at->mono);
	if (!p || !tl_lane_take(at->tl, &p->goroutines, process, "Go: more goroutines", &g->lane,
				&g->track)) {
		g->lane = TL_LANE_NONE;
		go->stats.not_drawn++;
		return;
	}
	writer_slice_begin(at->tl->w, g->track, at->mono,
			   &(struct writer_event){.name = g->fiber.name,
						  .category = go->n.goroutine});
}

static void give_track(const struct tl_go_at *at, struct tl_goroutine *g)
{
	struct tl_process *p;

	if (!g->lane || g->lane == TL_LANE_NONE)
		return;
	writer_slice_end(at->tl->w, g->track, at->mono, NULL);
	p = timeline_process_enter(at->tl, at->go->pid, at->mono);
	if (p)
		tl_lane_give(&p->goroutines, g->lane);
	g->lane = TL_LANE_NONE;
	g->track = 0;
}

static uint32_t thread_track(const struct tl_go_at *at)
{
	return tl_go_track(at, &at->thread->goroutines_track, at->thread->lane.track, "goroutines");
}

void tl_goroutine_instant(const struct tl_go_at *at, uint64_t id, const struct writer_event *ev)
{
	const struct tl_goroutine *g = find(at->go, id);

	if (g && g->track) {
		writer_instant(at->tl->w, g->track, at->mono, ev);
	} else if (tl_go_proc_of(at->go, at->ev->p)) {
		tl_go_proc_instant(at, at->ev->p, ev);
	} else if (at->thread) {
		writer_instant(at->tl->w, thread_track(at), at->mono, ev);
		at->thread->goroutines_last = at->mono;
	}
}

/* ---- states */

static uint32_t state_name(const struct tl_go_at *at, const struct tl_goroutine *g)
{
	const struct tl_go_names *n = &at->go->n;
	char text[300];

	switch (g->state) {
	case GOSTATE_RUNNING:
		return n->running;
	case GOSTATE_RUNNABLE:
		return n->runnable;
	case GOSTATE_SYSCALL:
		return n->syscall;
	default:
		break;
	}
	if (!g->reason)
		return n->waiting;
	(void)snprintf(text, sizeof(text), "waiting: %.256s",
		       writer_name_text(at->tl->w, g->reason));
	return writer_name(at->tl->w, text);
}

static void state_draw(const struct tl_go_at *at, struct tl_goroutine *g)
{
	const struct tl_go_names *n = &at->go->n;
	const uint64_t flow = g->state == GOSTATE_RUNNING ? g->flow : 0;
	struct tl_args a = {.n = 0};
	uint64_t since = g->since;

	take_track(at, g);
	if (!g->track)
		return;
	if (g->lane && since < at->mono) /* others may have used the lane since */
		since = at->mono;
	if (is_executing(g->state) && g->fiber.on) {
		tl_args_uint(&a, n->key_tid, g->fiber.on->tid);
		if (g->fiber.on->running == RUNNING_ON && g->fiber.on->cpu != TL_CPU_UNKNOWN)
			tl_args_uint(&a, n->key_cpu, g->fiber.on->cpu);
	}
	if (g->proc)
		tl_args_uint(&a, n->key_proc, g->proc->id);
	if (g->state == GOSTATE_RUNNABLE && g->reason)
		tl_args_name(&a, n->key_reason, g->reason);
	if (g->label && g->state == GOSTATE_RUNNING)
		tl_args_name(&a, n->key_label, g->label);
	if (g->stack)
		tl_args_name(&a, n->key_stack, g->stack);
	if (at->ev && at->ev->from == GOSTATE_UNDETERMINED && g->since == at->go->begin)
		tl_args_name(&a, n->key_note, n->note_before);
	writer_slice_begin(at->tl->w, g->track, since,
			   &(struct writer_event){.name = state_name(at, g),
						  .category = n->goroutine,
						  .args = a.a,
						  .n_args = a.n,
						  .flow_end = flow});
}

static uint64_t *count_of(struct timeline_go *go, enum gostate s)
{
	switch (s) {
	case GOSTATE_RUNNING:
		return &go->counts[TL_GO_RUNNING];
	case GOSTATE_RUNNABLE:
		return &go->counts[TL_GO_RUNNABLE];
	case GOSTATE_WAITING:
		return &go->counts[TL_GO_WAITING];
	case GOSTATE_SYSCALL:
		return &go->counts[TL_GO_SYSCALL];
	default:
		return NULL;
	}
}

/* Kept while a region is open, in which it may turn out to be what took so long. */
static void keep_pause(const struct tl_go_at *at, struct tl_goroutine *g, uint64_t ns)
{
	struct tl_go_pause p = {.begin = g->since, .ns = ns, .stack = g->stack};
	uint32_t shortest = 0;

	if (!g->fiber.regions.n_open) {
		g->n_pauses = 0;
		return;
	}
	if (g->state == GOSTATE_RUNNING || g->state == GOSTATE_UNDETERMINED)
		return;
	if (g->n_pauses < TL_GO_PAUSES) {
		shortest = g->n_pauses++;
	} else {
		for (uint32_t i = 1; i < TL_GO_PAUSES; i++)
			if (g->pauses[i].ns < g->pauses[shortest].ns)
				shortest = i;
		if (g->pauses[shortest].ns >= ns)
			return;
	}
	p.state = state_name(at, g);
	if (g->state == GOSTATE_WAITING && at->ev && at->ev->to == GOSTATE_RUNNABLE) {
		const struct tl_goroutine *by = find(at->go, at->ev->g);

		p.by = by ? by->fiber.name : 0;
		p.by_stack = tl_go_stack(at, at->ev->stack);
	}
	g->pauses[shortest] = p;
}

struct summary_pause tl_goroutine_pause(const struct timeline *tl, const struct tl_fiber *f,
					uint64_t since)
{
	const struct tl_goroutine *g = (const struct tl_goroutine *)f;
	const struct tl_go_pause *longest = NULL;

	for (uint32_t i = 0; i < g->n_pauses; i++)
		if (g->pauses[i].begin >= since && (!longest || g->pauses[i].ns > longest->ns))
			longest = &g->pauses[i];
	if (!longest)
		return (struct summary_pause){0};
	return (struct summary_pause){
		.state = writer_name_text(tl->w, longest->state),
		.stack = longest->stack ? writer_name_text(tl->w, longest->stack) : NULL,
		.by = longest->by ? writer_name_text(tl->w, longest->by) : NULL,
		.by_stack = longest->by_stack ? writer_name_text(tl->w, longest->by_stack) : NULL,
		.begin = longest->begin,
		.ns = longest->ns};
}

/* The slice of the state ends, and what is on top of it. */
static void state_end(const struct tl_go_at *at, struct tl_goroutine *g,
		      const struct writer_event *ev)
{
	const uint64_t mono = at->mono, ns = mono > g->since ? mono - g->since : 0;
	struct timeline_go *go = at->go;
	struct timeline *tl = at->tl;

	keep_pause(at, g, ns);
	g->ns[g->state] += ns;
	if (g->state == GOSTATE_RUNNABLE && ns > g->longest_runnable_ns)
		g->longest_runnable_ns = ns;
	if (g->track && g->state != GOSTATE_UNDETERMINED) {
		if (g->off_cpu)
			writer_slice_end(tl->w, g->track, mono, NULL);
		writer_slice_end(tl->w, g->track, mono, ev);
	}
	g->off_cpu = false;
	if (g->assists && g->state == GOSTATE_WAITING)
		go->counts[TL_GO_GC_WAITING]--;
}

static void state_begin(const struct tl_go_at *at, struct tl_goroutine *g, enum gostate state,
			uint64_t since)
{
	g->state = state;
	g->since = since;
	if (g->assists && state == GOSTATE_WAITING)
		at->go->counts[TL_GO_GC_WAITING]++;
	if (!g->parked)
		state_draw(at, g);
	if (state == GOSTATE_RUNNING)
		g->flow = 0;
}

/* ---- on threads */

static void thread_leave(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	struct tl_goroutine *g = t->goroutine;

	if (!g)
		return;
	t->goroutine = NULL;
	if (g->fiber.on == t)
		tl_fiber_stop(tl, &g->fiber, mono);
	writer_slice_end(tl->w, t->goroutines_track, mono, NULL);
	t->goroutines_last = mono;
}

static void thread_take(const struct tl_go_at *at, struct tl_goroutine *g, uint64_t mono)
{
	const struct writer_arg arg = {.key = at->go->n.key_goroutine,
				       .kind = WRITER_ARG_UINT,
				       .value.u64 = g->fiber.id};
	struct tl_thread *t = at->thread;

	if (!t || t->goroutine == g)
		return;
	thread_leave(at->tl, t, at->mono);
	if (g->fiber.on)
		thread_leave(at->tl, g->fiber.on, at->mono);
	if (mono < t->goroutines_last)
		mono = t->goroutines_last;
	t->goroutine = g;
	tl_fiber_run(at->tl, &g->fiber, t, at->mono);
	writer_slice_begin(at->tl->w, thread_track(at), mono,
			   &(struct writer_event){.name = g->fiber.name,
						  .category = at->go->n.goroutine,
						  .args = &arg,
						  .n_args = 1});
}

void tl_goroutine_off_cpu(struct timeline *tl, const struct tl_thread *t, uint64_t mono,
			  enum off_cpu state, struct sched_task other)
{
	struct tl_goroutine *g = t->goroutine;
	const struct timeline_go *go = tl->go;
	struct tl_args a = {.n = 0};

	while (go && go->pid != t->pid)
		go = go->next;
	if (!g || !go || !g->track || g->off_cpu || !is_executing(g->state))
		return;
	if (other.name)
		tl_args_name(&a, go->n.key_other, other.name);
	if (other.tid != TL_TID_IDLE && other.tid != TL_TID_OTHER && other.tid != TL_TID_UNKNOWN)
		tl_args_uint(&a, go->n.key_other_tid, other.tid);
	g->off_cpu = true;
	writer_slice_begin(
		tl->w, g->track, mono > g->since ? mono : g->since,
		&(struct writer_event){
			.name = go->n.off_cpu[(unsigned int)state < OFF_CPUS ? state
									     : OFF_CPU_UNKNOWN],
			.category = go->n.goroutine,
			.args = a.a,
			.n_args = a.n});
}

void tl_goroutine_on_cpu(struct timeline *tl, const struct tl_thread *t, uint64_t mono)
{
	struct tl_goroutine *g = t->goroutine;

	if (!g || !g->off_cpu)
		return;
	g->off_cpu = false;
	writer_slice_end(tl->w, g->track, mono > g->since ? mono : g->since, NULL);
}

void tl_goroutine_thread_ends(struct timeline *tl, struct tl_thread *t, uint64_t mono)
{
	tl_goroutine_on_cpu(tl, t, mono);
	thread_leave(tl, t, mono);
}

/* ---- transitions */

/* What made it runnable happens now, on the track of who did it. */
static void flow_begin(const struct tl_go_at *at, struct tl_goroutine *g, uint64_t by,
		       uint32_t name)
{
	const struct tl_go_names *n = &at->go->n;
	struct tl_args a = {.n = 0};

	tl_args_uint(&a, n->key_goroutine, g->fiber.id);
	tl_args_name(&a, n->key_name, g->fiber.name);
	if (name == n->unblock && g->reason)
		tl_args_name(&a, n->key_reason, g->reason);
	if (by != g->fiber.id && at->ev->stack)
		tl_args_name(&a, n->key_stack, tl_go_stack(at, at->ev->stack));
	g->flow = ++at->tl->next_flow;
	tl_goroutine_instant(at, by,
			     &(struct writer_event){.name = name,
						    .category = n->goroutine,
						    .args = a.a,
						    .n_args = a.n,
						    .flow = g->flow});
}

static void sum_up(struct timeline_go *go, const struct tl_goroutine *g)
{
	uint32_t i = hashmap_index(&go->group_map, 0, g->function);
	struct tl_go_group *p;

	if (!i) {
		if (go->n_groups == go->max_groups) {
			const uint32_t max = go->max_groups ? go->max_groups * 2 : 32;

			p = reallocarray(go->groups, max, sizeof(*p));
			if (!p)
				return;
			go->groups = p;
			go->max_groups = max;
		}
		if (hashmap_put(&go->group_map, 0, g->function, go->n_groups + 1) < 0)
			return;
		go->groups[go->n_groups++] = (struct tl_go_group){.function = g->function};
		i = go->n_groups;
	}
	p = &go->groups[i - 1];
	p->count++;
	p->off_ns += g->fiber.off_ns;
	for (unsigned int s = 0; s < N_GOSTATES; s++)
		p->ns[s] += g->ns[s];
	if (g->longest_runnable_ns > p->longest_runnable_ns)
		p->longest_runnable_ns = g->longest_runnable_ns;
}

static void destroy(const struct tl_go_at *at, struct tl_goroutine *g)
{
	tl_regions_close(at->tl, &g->fiber.regions, at->mono, at->tl->event_names->note_closed);
	tl_fiber_release(at->tl, &g->fiber);
	give_track(at, g);
	sum_up(at->go, g);
	hashmap_drop(&at->go->goroutines, 0, g->fiber.id);
	free(g->fiber.regions.open);
	free(g);
}

/* It leaves its thread and processor, or takes them. */
static int change_places(const struct tl_go_at *at, struct tl_goroutine *g, enum gostate from,
			 enum gostate to, uint64_t since)
{
	const struct goevent *ev = at->ev;
	const struct tl_go_proc *p;
	uint64_t proc = ev->p;
	int r = 0;

	if (is_executing(from) && !is_executing(to)) {
		tl_go_proc_leave(at->tl, at->go, g, at->mono);
		if (g->fiber.on)
			thread_leave(at->tl, g->fiber.on, at->mono);
	}
	if (is_executing(to)) {
		thread_take(at, g, since);
		/* another thread tells of it */
		if (from == GOSTATE_UNDETERMINED && ev->m != timeline_go_thread(ev)) {
			p = hashmap_pointer(&at->go->m_procs, timeline_go_thread(ev));
			proc = p ? p->id : GOFMT_NO_ID;
		}
		if (!is_executing(from) && !g->proc)
			r = tl_go_proc_run(at, proc, g, since);
	}
	if (r == 0 && to == GOSTATE_SYSCALL)
		tl_go_proc_syscall(at, g, since);
	else if (r == 0 && from == GOSTATE_SYSCALL)
		tl_go_proc_syscall_end(at->tl, at->go, g, at->mono, false);
	return r;
}

/*
 * Why it is in the state, and where. A stack beside it that is not its own is that of who did it.
 */
static void remember(const struct tl_go_at *at, struct tl_goroutine *g)
{
	const struct goevent *ev = at->ev;

	if (ev->to != GOSTATE_RUNNABLE || ev->from == GOSTATE_RUNNING)
		g->reason = tl_go_text(at, &ev->text);
	g->stack = ev->new_stack && ev->to != GOSTATE_RUNNING ? tl_go_stack(at, ev->new_stack) : 0;
}

int tl_goroutine_transition(const struct tl_go_at *at)
{
	const struct goevent *ev = at->ev;
	struct timeline_go *go = at->go;
	const uint64_t since = ev->from == GOSTATE_UNDETERMINED ? go->begin : at->mono;
	struct tl_goroutine *g;
	uint64_t *from, *to;
	int r;

	if (ev->from == ev->to) /* said again at the begin of a generation */
		return 0;
	r = tl_goroutine_get(at, ev->id, &g);
	if (r != 0)
		return r;
	from = count_of(go, ev->from);
	to = count_of(go, ev->to);
	if (from)
		--*from;
	if (to && ev->from != GOSTATE_UNDETERMINED) /* those were counted as the trace began */
		++*to;
	if (ev->from == GOSTATE_WAITING && ev->to == GOSTATE_RUNNABLE)
		flow_begin(at, g, ev->g, go->n.unblock);
	else if (ev->from == GOSTATE_SYSCALL && ev->to == GOSTATE_RUNNABLE)
		flow_begin(at, g, g->fiber.id, go->n.exit_syscall);
	if (ev->from != GOSTATE_UNDETERMINED && ev->from != GOSTATE_NOT_EXIST)
		state_end(at, g, NULL);
	r = change_places(at, g, ev->from, ev->to, since);
	if (r != 0)
		return r;
	if (ev->to == GOSTATE_NOT_EXIST) {
		destroy(at, g);
		return 0;
	}
	remember(at, g);
	if (ev->from == GOSTATE_NOT_EXIST && ev->to == GOSTATE_RUNNABLE)
		flow_begin(at, g, ev->g, go->n.go);
	state_begin(at, g, ev->to, since);
	if (ev->from == GOSTATE_UNDETERMINED && !g->early_done)
		r = tl_go_early_regions(at, g);
	g->early_done = true;
	return r;
}

/* ---- the end */

void tl_goroutines_end(const struct tl_go_at *at)
{
	struct timeline_go *go = at->go;
	const struct writer_arg arg = {.key = go->n.key_note,
				       .kind = WRITER_ARG_NAME,
				       .value.name = go->n.note_end};
	const struct writer_event ev = {.args = &arg, .n_args = 1};
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(&go->goroutines, &pos)) != 0) {
		struct tl_goroutine *g = (void *)(uintptr_t)v;

		if (g->parked && go->n_tracks < TL_GO_TRACKS)
			state_draw(at, g);
		else if (g->parked)
			go->stats.parked++;
		state_end(at, g, &ev);
		if (g->fiber.on)
			thread_leave(at->tl, g->fiber.on, at->mono);
		tl_regions_close(at->tl, &g->fiber.regions, at->mono, go->n.note_end);
		give_track(at, g);
		sum_up(go, g);
	}
}

void tl_goroutines_sum(struct timeline *tl, const struct timeline_go *go)
{
	for (uint32_t i = 0; i < go->n_groups; i++) {
		const struct tl_go_group *p = &go->groups[i];

		summary_goroutines(tl->summary,
				   &(struct summary_goroutines){
					   .pid = go->pid,
					   .function = writer_name_text(tl->w, p->function),
					   .count = p->count,
					   .running_ns = p->ns[GOSTATE_RUNNING],
					   .runnable_ns = p->ns[GOSTATE_RUNNABLE],
					   .longest_runnable_ns = p->longest_runnable_ns,
					   .waiting_ns = p->ns[GOSTATE_WAITING],
					   .syscall_ns = p->ns[GOSTATE_SYSCALL],
					   .off_known = tl->options.switches,
					   .off_cpu_ns = p->off_ns});
	}
}

void tl_goroutines_cut(struct timeline *tl, const struct timeline_go *go, uint64_t mono)
{
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(&go->goroutines, &pos)) != 0) {
		const struct tl_goroutine *g = (const void *)(uintptr_t)v;

		tl_regions_cut(tl, &g->fiber.regions, mono);
		if (g->fiber.on)
			writer_slice_end(tl->w, g->fiber.on->goroutines_track, mono, NULL);
		for (unsigned int n = g->track ? 1u + g->off_cpu + (g->lane != 0) : 0; n > 0; n--)
			writer_slice_end(tl->w, g->track, mono, NULL);
	}
}

void tl_goroutines_free(struct timeline_go *go)
{
	uint32_t pos = 0;
	uint64_t v;

	while ((v = hashmap_next(&go->goroutines, &pos)) != 0) {
		struct tl_goroutine *g = (void *)(uintptr_t)v;

		free(g->fiber.regions.open);
		free(g);
	}
}
