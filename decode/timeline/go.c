/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The life of a Go program's trace on the timeline, which event goes where, its texts and counters.
 */
#include "config.h"

#include "decode/timeline/go_internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/escape.h"

/* bytes: of deeper ones the outer frames are left out, and it says so */
#define STACK_TEXT_MAX 2048u

/* ---- texts */

uint32_t tl_go_text(const struct tl_go_at *at, const struct gostring *s)
{
	char text[4096];

	if (!s->p || !s->len)
		return 0;
	escape_text(text, sizeof(text), s->p, s->len);
	return writer_name(at->tl->w, text);
}

/* The file's last name is enough to find it, beside the function's package. */
static size_t frame_text(char *text, size_t size, const struct goframe *f)
{
	const char *file = f->file.p, *slash = file ? memrchr(file, '/', f->file.len) : NULL;
	const size_t skip = slash ? (size_t)(slash + 1 - file) : 0;
	char function[1024], name[256];

	escape_text(function, sizeof(function), f->func.p ? f->func.p : "", f->func.len);
	escape_text(name, sizeof(name), file ? file + skip : "", f->file.len - skip);
	return (size_t)snprintf(text, size, "%s (%s:%" PRIu64 ")", function, name, f->line);
}

static uint32_t stack_text(const struct tl_go_at *at, uint64_t stack)
{
	const uint32_t n = gogeneration_stack_depth(at->gen, stack);
	char text[STACK_TEXT_MAX + 64], frame[1400];
	size_t len = 0;

	for (uint32_t i = 0; i < n; i++) {
		struct goframe f;
		size_t more;

		gogeneration_frame(at->gen, stack, i, &f);
		more = frame_text(frame, sizeof(frame), &f);
		if (more >= sizeof(frame) || len + more + 8 > STACK_TEXT_MAX) {
			(void)snprintf(text + len, sizeof(text) - len,
				       "%s\xe2\x80\xa6 %" PRIu32 " frames", len ? " <- " : "",
				       n - i);
			break;
		}
		len += (size_t)snprintf(text + len, sizeof(text) - len, "%s%s", len ? " <- " : "",
					frame);
	}
	return n ? writer_name(at->tl->w, text) : 0;
}

uint32_t tl_go_stack(const struct tl_go_at *at, uint64_t stack)
{
	struct timeline_go *go = at->go;
	uint32_t name;

	if (!stack || !at->gen)
		return 0;
	if (go->generation != at->gen->gen) {
		hashmap_fini(&go->stacks);
		go->generation = at->gen->gen;
	}
	name = hashmap_index(&go->stacks, 0, stack);
	if (name)
		return name - 1;
	name = stack_text(at, stack);
	if (hashmap_put(&go->stacks, 0, stack, (uint64_t)name + 1) < 0)
		return name; /* it only saves time */
	return name;
}

/* ---- tracks and counters */

uint32_t tl_go_process(const struct tl_go_at *at)
{
	return timeline_process_track(at->tl, at->go->pid, at->mono);
}

uint32_t tl_go_track(const struct tl_go_at *at, uint32_t *track, uint32_t parent, const char *name)
{
	if (!*track) {
		*track = writer_new_track(at->tl->w);
		writer_track(at->tl->w, *track, parent, name, NULL);
	}
	return *track;
}

int tl_go_counters(const struct tl_go_at *at)
{
	static const char *const names[] = {
		[TL_GO_RUNNING] = "Go: goroutines running",
		[TL_GO_RUNNABLE] = "Go: goroutines runnable",
		[TL_GO_WAITING] = "Go: goroutines waiting",
		[TL_GO_SYSCALL] = "Go: goroutines in system calls",
		[TL_GO_GC_WAITING] = "Go: goroutines waiting for the garbage collector",
		[TL_GO_PROCS] = "Go: processors (P) running",
	};
	struct timeline_go *go = at->go;

	for (unsigned int i = 0; i < TL_GO_N_COUNTERS; i++) {
		int r;

		if (go->counts[i] == go->shown[i])
			continue;
		if (!go->counter_tracks[i]) {
			r = timeline_counter_track(at->tl, go->pid, at->mono, names[i],
						   WRITER_UNIT_COUNT, &go->counter_tracks[i]);
			if (r != 0)
				return r;
		}
		go->shown[i] = go->counts[i];
		writer_counter(at->tl->w, go->counter_tracks[i], at->mono, (int64_t)go->counts[i]);
	}
	return 0;
}

/* ---- life */

static void make_names(struct writer *w, struct tl_go_names *n)
{
	n->goroutine = writer_name(w, "goroutine");
	n->gc = writer_name(w, "gc");
	n->proc = writer_name(w, "processor");
	n->sample = writer_name(w, "sample");
	n->running = writer_name(w, "running");
	n->runnable = writer_name(w, "runnable");
	n->waiting = writer_name(w, "waiting");
	n->syscall = writer_name(w, "system call");
	for (unsigned int i = 0; i < OFF_CPUS; i++) {
		char text[48];

		(void)snprintf(text, sizeof(text), "thread %s", off_cpu_label(i));
		n->off_cpu[i] = writer_name(w, text);
	}
	n->key_goroutine = writer_name(w, "goroutine");
	n->key_name = writer_name(w, "name");
	n->key_tid = writer_name(w, "tid");
	n->key_proc = writer_name(w, "processor");
	n->key_cpu = writer_name(w, "cpu");
	n->key_stack = writer_name(w, "stack");
	n->key_reason = writer_name(w, "reason");
	n->key_label = writer_name(w, "label");
	n->key_note = writer_name(w, "note");
	n->key_blocked = writer_name(w, "blocked");
	n->key_swept = writer_name(w, "bytes swept");
	n->key_reclaimed = writer_name(w, "bytes reclaimed");
	n->key_other = writer_name(w, "ran instead");
	n->key_other_tid = writer_name(w, "ran instead tid");
	n->key_task = writer_name(w, "task id");
	n->go = writer_name(w, "go");
	n->unblock = writer_name(w, "unblock");
	n->exit_syscall = writer_name(w, "exit blocked syscall");
	n->proc_start = writer_name(w, "proc start");
	n->proc_stop = writer_name(w, "proc stop");
	n->cpu_sample = writer_name(w, "CPU profile sample");
	n->yes = writer_name(w, "yes");
	n->no = writer_name(w, "no");
	n->note_before = writer_name(w, "since before the trace began");
	n->note_end = writer_name(w, "not over when the trace ended");
	n->note_early = writer_name(w, "its begin was not recorded");
}

/*
 * How many are in which state from the begin on is known, though the trace tells of them one after
 * the other.
 */
static void count_first(struct timeline_go *go)
{
	const uint64_t *initial = go->survey->initial;

	go->counts[TL_GO_RUNNING] = initial[GOSTATE_RUNNING];
	go->counts[TL_GO_RUNNABLE] = initial[GOSTATE_RUNNABLE];
	go->counts[TL_GO_WAITING] = initial[GOSTATE_WAITING];
	go->counts[TL_GO_SYSCALL] = initial[GOSTATE_SYSCALL];
}

int timeline_go_begin(struct timeline *tl, uint32_t pid, uint64_t ts, const struct gosurvey *survey,
		      struct timeline_go **ret)
{
	struct tl_go_at at = {.tl = tl};
	struct timeline_go *go;
	int r = timeline_enter(tl, ts, &at.mono);

	if (r != 0)
		return r;
	go = calloc(1, sizeof(*go));
	if (!go)
		return -ENOMEM;
	go->pid = pid;
	go->begin = go->last = at.mono;
	go->survey = survey;
	/* at the end they are drawn in that order */
	go->goroutines.ordered = go->procs.ordered = true;
	make_names(tl->w, &go->n);
	go->next = tl->go;
	tl->go = go;
	*ret = at.go = go;
	count_first(go);
	r = tl_go_counters(&at);
	if (r == 0)
		r = tl_go_early_tasks(&at);
	return r < 0 ? r : timeline_leave(tl);
}

uint64_t timeline_go_thread(const struct goevent *ev)
{
	if ((ev->type == GOFMT_GO_STATUS || ev->type == GOFMT_GO_STATUS_STACK) &&
	    ev->args[1] != GOFMT_NO_ID)
		return ev->args[1];
	return ev->m;
}

static int draw(const struct tl_go_at *at)
{
	switch (at->ev->kind) {
	case GOEVENT_TRANSITION:
		return at->ev->scope == GOSCOPE_PROC ? tl_go_proc_transition(at)
						     : tl_goroutine_transition(at);
	case GOEVENT_RANGE_BEGIN:
	case GOEVENT_RANGE_ACTIVE:
	case GOEVENT_RANGE_END:
		return tl_go_range(at);
	case GOEVENT_METRIC:
		return tl_go_metric(at);
	case GOEVENT_TASK_BEGIN:
	case GOEVENT_TASK_END:
	case GOEVENT_REGION_BEGIN:
	case GOEVENT_REGION_END:
	case GOEVENT_LOG:
	case GOEVENT_LABEL:
		return tl_go_user(at);
	case GOEVENT_STACK_SAMPLE:
		tl_go_cpu_sample(at);
		return 0;
	case GOEVENT_SYNC:
	case GOEVENT_EXPERIMENTAL:
		break;
	}
	return 0;
}

int timeline_go_event(struct timeline *tl, struct timeline_go *go, uint64_t ts, uint32_t tid,
		      const struct goevent *ev, const struct gogeneration *gen)
{
	struct tl_go_at at = {.tl = tl, .go = go, .ev = ev, .gen = gen};
	int r = timeline_enter(tl, ts, &at.mono);

	if (r == 0 && tid)
		r = timeline_thread_enter_of(tl, go->pid, tid, at.mono, &at.thread);
	if (r != 0)
		return r;
	go->last = at.mono;
	r = draw(&at);
	if (r == 0)
		r = tl_go_counters(&at);
	if (r == TIMELINE_E_FULL)
		tl->stats.refused_full++;
	return r != 0 ? r : timeline_leave(tl);
}

static void end(struct timeline *tl, struct timeline_go *go, uint64_t mono)
{
	const struct tl_go_at at = {.tl = tl, .go = go, .mono = mono};

	if (go->ended)
		return;
	tl_go_procs_end(&at);
	tl_goroutines_end(&at);
	tl_go_ranges_end(&at);
	tl_goroutines_sum(tl, go);
	go->ended = true;
}

int timeline_go_end(struct timeline *tl, struct timeline_go *go, uint64_t ts)
{
	uint64_t mono;
	int r = timeline_enter(tl, ts, &mono);

	if (r != 0)
		return r;
	end(tl, go, mono);
	return timeline_leave(tl);
}

void tl_go_close(struct timeline *tl)
{
	for (struct timeline_go *go = tl->go; go; go = go->next)
		end(tl, go, go->last);
}

void tl_go_cut(struct timeline *tl, uint64_t mono)
{
	for (const struct timeline_go *go = tl->go; go; go = go->next) {
		if (go->ended)
			continue;
		tl_goroutines_cut(tl, go, mono);
		tl_go_procs_cut(tl, go, mono);
		tl_go_ranges_cut(tl, go, mono);
	}
}

void tl_go_free(struct timeline *tl)
{
	struct timeline_go *go = tl->go, *next;

	for (; go; go = next) {
		next = go->next;
		tl_goroutines_free(go);
		tl_go_procs_free(go);
		hashmap_fini(&go->goroutines);
		hashmap_fini(&go->procs);
		hashmap_fini(&go->m_procs);
		hashmap_fini(&go->stacks);
		hashmap_fini(&go->group_map);
		free(go->groups);
		free(go);
	}
}

void timeline_go_stats(const struct timeline_go *go, struct timeline_go_stats *ret)
{
	*ret = go->stats;
}
