/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a program belongs to no thread: its tasks, on lanes below the process (each on the first
 * lane that is free), and the numbers by which flows are known in the whole trace.
 */
#include "config.h"

#include "common/base/hashmap.h"
#include "decode/timeline/timeline_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "decode/base/strtab.h"

/* Ids are unique in a process only; those of the timeline itself are small numbers. */
uint64_t tl_flow_number(uint32_t pid, uint64_t id)
{
	return hash_mix(pid, id) | 1ull << 63;
}

/* ---- lanes */

static bool lane_add(struct timeline *tl, struct tl_lanes *l, uint32_t parent, const char *name)
{
	if (l->n == TL_MAX_LANES)
		return false;
	if (l->n == l->max) {
		uint32_t max = l->max ? l->max * 2 : 16;
		uint32_t *tracks = reallocarray(l->tracks, max, sizeof(*tracks));
		bool *busy;

		if (!tracks)
			return false;
		l->tracks = tracks;
		busy = reallocarray(l->busy, max, sizeof(*busy));
		if (!busy)
			return false;
		l->busy = busy;
		l->max = max;
	}
	l->tracks[l->n] = writer_new_track(tl->w);
	l->busy[l->n] = false;
	writer_lane(tl->w, l->tracks[l->n], parent, name);
	l->n++;
	return true;
}

bool tl_lane_take(struct timeline *tl, struct tl_lanes *l, uint32_t parent, const char *name,
		  uint32_t *ret_lane, uint32_t *ret_track)
{
	uint32_t i = l->maybe_free;

	while (i < l->n && l->busy[i])
		i++;
	l->maybe_free = i;
	if (i == l->n && !lane_add(tl, l, parent, name))
		return false;
	l->busy[i] = true;
	*ret_lane = i + 1;
	*ret_track = l->tracks[i];
	return true;
}

void tl_lane_give(struct tl_lanes *l, uint32_t lane)
{
	l->busy[lane - 1] = false;
	if (lane - 1 < l->maybe_free)
		l->maybe_free = lane - 1;
}

/* ---- tasks */

static int task_room(struct timeline *tl)
{
	uint32_t max = tl->max_tasks ? tl->max_tasks * 2 : 64;
	struct tl_task *tasks;
	uint32_t *list;

	if (tl->n_free_tasks || tl->n_tasks < tl->max_tasks)
		return 0;
	if (tl->n_tasks == TL_MAX_TASKS)
		return TIMELINE_E_FULL;
	tasks = reallocarray(tl->tasks, max, sizeof(*tasks));
	if (!tasks)
		return -ENOMEM;
	tl->tasks = tasks;
	list = reallocarray(tl->free_tasks, max, sizeof(*list));
	if (!list)
		return -ENOMEM;
	tl->free_tasks = list;
	tl->max_tasks = max;
	return 0;
}

static void task_end(struct timeline *tl, uint32_t i, uint64_t mono, const struct writer_event *ev)
{
	struct tl_task *k = &tl->tasks[i];
	struct tl_process *p = timeline_process_enter(tl, k->pid, mono);

	writer_slice_end(tl->w, k->track, mono, ev);
	if (p)
		tl_lane_give(&p->tasks, k->lane);
	hashmap_drop(&tl->task_map, k->owner, k->id);
	k->track = 0;
	tl->free_tasks[tl->n_free_tasks++] = i;
}

static void task_end_with_note(struct timeline *tl, uint32_t i, uint64_t mono, uint32_t note)
{
	const struct writer_arg arg = {
		.key = tl->event_names->key_note, .kind = WRITER_ARG_NAME, .value.name = note};

	task_end(tl, i, mono, &(struct writer_event){.args = &arg, .n_args = 1});
}

int tl_task_begin(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	const struct tl_event_names *n = tl->event_names;
	uint32_t i = hashmap_index(&tl->task_map, tl_task_owner(ev), ev->task), lane, track;
	struct tl_process *p;
	struct tl_args a;
	int r;

	tl->stats.tasks++;
	if (i) /* the id is in use again */
		task_end_with_note(tl, i - 1, at->mono, n->note_closed);
	r = task_room(tl);
	if (r != 0)
		return r;
	p = timeline_process_enter(tl, ev->pid, at->mono);
	if (!p || !tl_lane_take(tl, &p->tasks, p->track, "tasks", &lane, &track))
		return TIMELINE_E_FULL;
	i = tl->n_free_tasks ? tl->free_tasks[tl->n_free_tasks - 1] : tl->n_tasks;
	r = hashmap_put(&tl->task_map, tl_task_owner(ev), ev->task, i + 1);
	if (r < 0)
		return r;
	if (tl->n_free_tasks)
		tl->n_free_tasks--;
	else
		tl->n_tasks++;
	tl->tasks[i] =
		(struct tl_task){.owner = tl_task_owner(ev),
				 .pid = ev->pid,
				 .tid = ev->tid,
				 .id = ev->task,
				 .name = writer_name(tl->w, *ev->name ? ev->name : "(no name)"),
				 .lane = lane,
				 .track = track};
	tl_args_event(tl, &a, ev);
	tl_args_uint(&a, n->key_task_id, ev->task);
	if (ev->parent)
		tl_args_uint(&a, n->key_parent, ev->parent);
	if (ev->tid)
		tl_args_uint(&a, n->key_tid, ev->tid);
	if (ev->began_early)
		tl_args_name(&a, n->key_note, n->note_early);
	writer_slice_begin(
		tl->w, track, at->mono,
		&(struct writer_event){.name = tl->tasks[i].name,
				       .category = n->task,
				       .args = a.a,
				       .n_args = a.n,
				       .flow_end = tl_task_part(tl, tl_task_owner(ev), ev->parent,
								tl->tasks[i].name, at->mono)});
	return 0;
}

int tl_task_end(struct timeline *tl, const struct tl_place *at, const struct ringevent *ev)
{
	uint32_t i = hashmap_index(&tl->task_map, tl_task_owner(ev), ev->task);
	struct tl_args a;

	if (!i)
		return 0; /* its begin was refused */
	tl_args_event(tl, &a, ev);
	if (tl->tasks[i - 1].tid != ev->tid)
		tl_args_uint(&a, tl->event_names->key_ended_by, ev->tid);
	task_end(tl, i - 1, at->mono,
		 a.n ? &(struct writer_event){.args = a.a, .n_args = a.n} : NULL);
	return 0;
}

uint64_t tl_task_owner(const struct ringevent *ev)
{
	return ev->pid | (uint64_t)ev->of_runtime << 32;
}

uint32_t tl_task_name(const struct timeline *tl, uint64_t owner, uint64_t id)
{
	uint32_t i = hashmap_index(&tl->task_map, owner, id);

	return i ? tl->tasks[i - 1].name : 0;
}

uint64_t tl_task_part(struct timeline *tl, uint64_t owner, uint64_t id, uint32_t part,
		      uint64_t mono)
{
	uint32_t i = id ? hashmap_index(&tl->task_map, owner, id) : 0;
	char text[160];

	if (!i)
		return 0;
	(void)snprintf(text, sizeof(text), "begins %.*s",
		       (int)writer_text_len(writer_name_text(tl->w, part), 128),
		       writer_name_text(tl->w, part));
	writer_instant(tl->w, tl->tasks[i - 1].track, mono,
			    &(struct writer_event){.name = writer_name(tl->w, text),
						   .category = tl->event_names->task,
						   .flow = ++tl->next_flow});
	return tl->next_flow;
}

void tl_tasks_close(struct timeline *tl, uint64_t mono)
{
	for (uint32_t i = 0; i < tl->n_tasks; i++)
		if (tl->tasks[i].track)
			task_end_with_note(tl, i, mono, tl->event_names->note_open);
}

void tl_tasks_cut(struct timeline *tl, uint64_t mono)
{
	for (uint32_t i = 0; i < tl->n_tasks; i++)
		if (tl->tasks[i].track)
			writer_slice_end(tl->w, tl->tasks[i].track, mono, NULL);
}

void tl_tasks_free(struct timeline *tl)
{
	for (uint32_t i = 0; i < tl->n_processes; i++) {
		free(tl->processes[i].tasks.tracks);
		free(tl->processes[i].tasks.busy);
		free(tl->processes[i].fibers.tracks);
		free(tl->processes[i].fibers.busy);
		free(tl->processes[i].goroutines.tracks);
		free(tl->processes[i].goroutines.busy);
		free(tl->processes[i].goroutine_regions.tracks);
		free(tl->processes[i].goroutine_regions.busy);
	}
	free(tl->tasks);
	free(tl->free_tasks);
	hashmap_fini(&tl->task_map);
}
