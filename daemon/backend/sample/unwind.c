// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/base/hashmap.h"
#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "common/control/json.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/goroutines.h"
#include "daemon/backend/sample/python.h"
#include "daemon/backend/sample/unwind_list.h"
#include "daemon/backend/sample/unwind_mappings.h"
#include "daemon/backend/sample/unwind_objects.h"
#include "daemon/target/sideband_log.h"
#include "daemon/target/target_internal.h"

#define IN_FLIGHT_NS 1000000
/* A process that maps code all the time is looked at no more often. */
#define COMPOSE_US 2000

struct process {
	pid_t pid;
	/* forked by that one at `forked_ns`, with all that it had mapped; 0: by none */
	pid_t heir_of;
	uint64_t forked_ns;
	bool has_heirs;
	struct unwind_list list;
	bool wanted;
	bool read; /* what goroutines its threads run */
	bool dirty;	 /* the programs have an old list */
	bool incomplete; /* tables of it are to come */
	bool lost;	 /* the list may lack what was mapped */
	struct unwind_counts counts; /* of lists that the programs have no more; without files */
	uint64_t files, waiting, without;
	/* of interpreters that the programs do not look into any more */
	struct python_counts python_counts;
	struct python_object python; /* the one that it runs */
	struct go_counts go_counts; /* of programs that it does not run any more */
	struct go_object go;	    /* the one that it is */
};

struct unwind {
	struct targets *targets; /* back pointer */
	const struct filter *filter; /* borrowed */
	struct unwind_objects *objects;
	struct unwind_mappings *mappings;
	struct python *python; /* NULL: Python's frames are not found */
	struct hashmap processes; /* struct process, by pid */
	struct event *compose; /* pending while a process is dirty */
	struct unwind_doubts doubts;
};

struct json_object *unwind_counts_json(const struct unwind_counts *counts)
{
	static const char *const names[UNWIND_WHYS] = {
		[UNWIND_COMPLETE] = "complete",
		[UNWIND_DEEP] = "cut",
		[UNWIND_NO_TABLE] = "no_table",
		[UNWIND_NO_RULE] = "no_rule",
		[UNWIND_NO_READ] = "no_read",
		[UNWIND_BAD] = "bad",
		[UNWIND_STACK_LEFT] = "other_stack",
		[UNWIND_NO_FRAME] = "no_frame",
	};
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	for (size_t i = 0; i < UNWIND_WHYS; i++)
		json_add_uint(o, names[i], counts->whys[i]);
	json_add_uint(o, "by_frame_pointer", counts->frame_pointers);
	json_add_uint(o, "mappings", counts->files);
	json_add_uint(o, "mappings_waiting", counts->waiting);
	json_add_uint(o, "mappings_without", counts->without);
	return o;
}

/* ---- processes */

static void schedule(struct unwind *u)
{
	const struct timeval soon = {.tv_usec = COMPOSE_US};

	if (!event_pending(u->compose, EV_TIMEOUT, NULL))
		(void)event_add(u->compose, &soon);
}

static void dirty_incomplete(struct unwind *u)
{
	struct process *p;
	uint32_t pos = 0;

	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL)
		p->dirty |= p->incomplete && (p->wanted || p->read);
	schedule(u);
}

/*
 * Where the object's code is in this mapping. False: this part of it is no code that the table
 * knows.
 */
static bool place_mapping(const struct unwind_area *area, const struct unwind_place *place,
			  struct unwind_mapping *ret)
{
	for (uint32_t i = 0; i < place->n_loads; i++) {
		const struct unwind_load *l = &place->loads[i];

		if (area->off < (l->off & ~UINT64_C(4095)) || area->off >= l->off + l->size)
			continue;
		*ret = (struct unwind_mapping){.start = area->start,
					       .end = area->end,
					       .bias = area->start - area->off + l->off - l->vaddr,
					       .lo_page = place->lo_page,
					       .n_pages = place->n_pages,
					       .page0 = place->page0};
		return true;
	}
	return false;
}

/* Of several mappings of an interpreter each says the same. */
static void look_for_python(struct unwind *u, struct process *p, const struct unwind_object *object,
			    const struct unwind_mapping *mapping)
{
	if (!u->python || !object->python || p->python.is == PYTHON_KNOWN)
		return;
	p->python = *object->python;
	if (p->python.is == PYTHON_KNOWN &&
	    python_put(u->python, p->pid, mapping->bias + p->python.runtime, &p->python.layout) < 0)
		log_debug(
			"no room for the interpreter of process %d: its Python functions are not found",
			(int)p->pid);
}

static void forget_python(struct unwind *u, struct process *p)
{
	if (u->python)
		python_drop(u->python, p->pid, &p->python_counts);
	p->python.is = PYTHON_ABSENT;
}

/*
 * The program itself is the lowest of what is mapped, and there are no others: libraries in Go say
 * that they are such.
 */
static void look_for_go(struct unwind *u, struct process *p)
{
	const struct unwind_object *object =
		p->list.n ? unwind_objects_look(u->objects, p->pid, &p->list.areas[0], p->wanted)
			  : NULL;

	if (!object)
		return;
	if (!object->looked) {
		p->incomplete = true;
		return;
	}
	if (!object->go || p->go.is == GO_KNOWN)
		return;
	p->go = *object->go;
	if (p->go.is == GO_KNOWN && goroutines_put(u->filter, p->pid, &p->go.layout) < 0)
		log_debug("no room for the Go program of process %d: its goroutines are not read",
			  (int)p->pid);
}

static void forget_go(struct unwind *u, struct process *p)
{
	goroutines_drop(u->filter, p->pid, &p->go_counts);
	p->go.is = GO_ABSENT;
}

/* Code without a table: what is behind it in memory goes with it, if it is the same. */
static void add_bare(const struct unwind_area *area, uint32_t kind, struct unwind_mapping *found,
		     uint32_t *n)
{
	struct unwind_mapping *last = *n ? &found[*n - 1] : NULL;

	if (last && last->end == area->start && !last->n_pages && last->page0 == kind)
		last->end = area->end;
	else
		found[(*n)++] = (struct unwind_mapping){.start = area->start,
							.end = area->end,
							.page0 = kind};
}

static bool is_hotspot(const struct unwind_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->areas[i].is_hotspot)
			return true;
	return false;
}

static void compose_mappings(struct unwind *u, struct process *p)
{
	static struct unwind_mapping found[UNWIND_LIST_MAX];
	const uint32_t made = is_hotspot(&p->list) ? UNWIND_MADE_HOTSPOT : UNWIND_MADE;
	uint32_t n = 0;

	p->files = p->waiting = p->without = 0;
	p->python.is = PYTHON_ABSENT;
	for (size_t i = 0; i < p->list.n && n < UNWIND_LIST_MAX; i++) {
		const struct unwind_area *area = &p->list.areas[i];
		const struct unwind_object *object =
			unwind_objects_look(u->objects, p->pid, area, p->wanted);

		if (object && object->state == UNWIND_OBJECT_READY &&
		    place_mapping(area, &object->place, &found[n])) {
			look_for_python(u, p, object, &found[n]);
			n++;
			p->files++;
			continue;
		}
		if (object && (object->state == UNWIND_OBJECT_NEW ||
			       object->state == UNWIND_OBJECT_BUILDING)) {
			p->incomplete = true;
			p->waiting++;
		} else {
			p->without++;
		}
		add_bare(area, area->ino || area->is_vdso ? 0 : made, found, &n);
	}
	if (unwind_mappings_put(u->mappings, p->pid, found,
				!p->files || p->list.full || p->lost ? 0 : n, &p->counts) < 0)
		log_debug("no room for the mappings of process %d: its stacks are copied",
			  (int)p->pid);
	/* Programs that read the old list have written their records by then. */
	unwind_doubts_end(&u->doubts, (uint32_t)p->pid, clock_raw_ns() + IN_FLIGHT_NS);
}

static void compose(struct unwind *u, struct process *p)
{
	p->dirty = false;
	p->incomplete = false;
	if (p->wanted)
		compose_mappings(u, p);
	if (p->read)
		look_for_go(u, p);
}

static void on_compose(evutil_socket_t fd, short what, void *arg)
{
	struct unwind *u = arg;
	struct process *p;
	uint32_t pos = 0;

	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL)
		if (p->dirty && (p->wanted || p->read))
			compose(u, p);
	unwind_objects_make(u->objects);
}

static void on_objects(void *arg)
{
	dirty_incomplete(arg);
}

static struct process *process_get(struct unwind *u, pid_t pid)
{
	struct process *p = hashmap_pointer(&u->processes, (uint64_t)pid);

	if (p)
		return p;
	p = calloc(1, sizeof(*p));
	if (!p || hashmap_put_pointer(&u->processes, (uint64_t)pid, p) < 0) {
		free(p);
		return NULL;
	}
	p->pid = pid;
	return p;
}

static void changed(struct unwind *u, struct process *p)
{
	p->dirty = true;
	if (p->wanted || p->read)
		schedule(u);
}

static const struct perfabi_sample_id *sample_id(const struct perf_event_header *h)
{
	return (const void *)((const uint8_t *)h + h->size - sizeof(struct perfabi_sample_id));
}

static uint64_t sample_time(const struct perf_event_header *h)
{
	return sample_id(h)->time;
}

/* From /proc, and not reported by the kernel as it happened. */
static bool was_read(const struct perf_event_header *h)
{
	return sample_id(h)->id == SIDEBAND_LOG_ID;
}

/* What the programs go by is not right until the list is composed again. */
static void doubt(struct unwind *u, const struct process *p, uint64_t from_ns, uint64_t start,
		  uint64_t end)
{
	const struct unwind_doubt d = {.pid = (uint32_t)p->pid,
				       .from_ns = from_ns,
				       .to_ns = UINT64_MAX,
				       .start = start,
				       .end = end};

	unwind_doubts_begin(&u->doubts, &d);
}

static void add_mapping(struct unwind *u, struct process *p, const struct unwind_area *area)
{
	/* A list that lacks something would give its place to what was there before. */
	if (unwind_list_add(&p->list, area) < 0)
		p->list.full = true;
	changed(u, p);
}

/*
 * What a process had mapped when it was armed is read while it runs, and kept some records at a
 * time: it may have forked before all of them are. What the heir has mapped itself since is newer.
 */
static void bequeath(struct unwind *u, const struct process *from, uint64_t time,
		     const struct unwind_area *area)
{
	struct process *p;
	uint32_t pos = 0;

	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL)
		if (p->heir_of == from->pid && time <= p->forked_ns &&
		    !unwind_list_overlaps(&p->list, area))
			add_mapping(u, p, area);
}

static void on_mapping(struct unwind *u, const struct perfabi_mmap2 *m)
{
	const size_t room = m->header.size - sizeof(*m) - sizeof(struct perfabi_sample_id);
	struct process *p;
	uint64_t time;
	struct unwind_area area = {.start = m->addr,
				   .end = m->addr + m->len,
				   .off = m->pgoff,
				   .ino = m->ino,
				   .maj = m->maj,
				   .min = m->min};

	if (!(m->prot & PROT_EXEC) ||
	    m->header.size <= sizeof(*m) + sizeof(struct perfabi_sample_id))
		return;
	p = process_get(u, (pid_t)m->pid);
	if (!p)
		return;
	time = sample_time(&m->header);
	if (strnlen(m->filename, room) < room) {
		const char *slash = strrchr(m->filename, '/');

		area.is_vdso = strcmp(m->filename, "[vdso]") == 0;
		area.is_hotspot = slash && strcmp(slash, "/libjvm.so") == 0;
	}
	if (p->wanted && unwind_list_overlaps(&p->list, &area))
		doubt(u, p, time, area.start, area.end);
	add_mapping(u, p, &area);
	if (p->has_heirs && was_read(&m->header))
		bequeath(u, p, time, &area);
}

static void on_fork(struct unwind *u, const struct target *target, const struct perfabi_task *task)
{
	struct process *parent, *root, *p;

	/* Of one that the target does not have nobody would hear that it ends. */
	if (task->pid == task->ppid || !member_find(target, (pid_t)task->pid))
		return;
	parent = process_get(u, (pid_t)task->ppid);
	p = process_get(u, (pid_t)task->pid);
	if (!parent || !p)
		return;
	if (unwind_list_copy(&p->list, &parent->list) < 0)
		p->list.full = true;
	p->lost = parent->lost;
	p->heir_of = parent->heir_of ? parent->heir_of : parent->pid;
	p->forked_ns = parent->heir_of ? parent->forked_ns : sample_time(&task->header);
	root = hashmap_pointer(&u->processes, (uint64_t)p->heir_of);
	if (root)
		root->has_heirs = true;
	changed(u, p);
}

void unwind_record(struct unwind *u, const struct target *target, const struct perf_event_header *h)
{
	const struct perfabi_comm *comm = (const void *)h;
	struct process *p;

	switch (h->type) {
	case PERF_RECORD_MMAP2:
		on_mapping(u, (const void *)h);
		break;
	case PERF_RECORD_FORK:
		on_fork(u, target, (const void *)h);
		break;
	case PERF_RECORD_COMM:
		p = hashmap_pointer(&u->processes, comm->pid);
		if (!p || !(h->misc & PERF_RECORD_MISC_COMM_EXEC))
			break;
		/* A list that was composed since the program itself has forgotten the old one. */
		if (p->wanted)
			doubt(u, p, sample_time(h), 0, UINT64_MAX);
		unwind_list_fini(&p->list);
		p->heir_of = 0;
		forget_python(u, p);
		forget_go(u, p);
		changed(u, p);
		break;
	default:
		break;
	}
}

void unwind_lost(struct unwind *u, uint64_t whole_ns)
{
	struct process *p;
	uint32_t pos = 0;

	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL) {
		if (p->wanted && !p->lost)
			doubt(u, p, whole_ns, 0, UINT64_MAX);
		p->lost = true;
		changed(u, p);
	}
}

void unwind_whole(struct unwind *u, pid_t pid)
{
	struct process *p = hashmap_pointer(&u->processes, (uint64_t)pid);

	if (!p || !p->lost)
		return;
	p->lost = false;
	changed(u, p);
}

void unwind_want(struct unwind *u, pid_t pid, bool wanted)
{
	struct process *p = wanted ? process_get(u, pid)
				   : hashmap_pointer(&u->processes, (uint64_t)pid);

	if (!p || p->wanted == wanted)
		return;
	p->wanted = wanted;
	if (wanted) {
		changed(u, p);
		return;
	}
	p->dirty = true;
	unwind_mappings_drop(u->mappings, pid, &p->counts);
	forget_python(u, p);
}

void unwind_want_goroutines(struct unwind *u, pid_t pid, bool wanted)
{
	struct process *p = wanted ? process_get(u, pid)
				   : hashmap_pointer(&u->processes, (uint64_t)pid);

	if (!p || p->read == wanted)
		return;
	p->read = wanted;
	if (wanted)
		changed(u, p);
	else
		forget_go(u, p);
}

void unwind_forget(struct unwind *u, pid_t pid)
{
	struct process *p = hashmap_pointer(&u->processes, (uint64_t)pid);

	if (!p)
		return;
	unwind_mappings_drop(u->mappings, pid, &p->counts);
	forget_python(u, p);
	forget_go(u, p);
	hashmap_drop(&u->processes, 0, (uint64_t)pid);
	unwind_list_fini(&p->list);
	free(p);
}

void unwind_images_settled(struct unwind *u)
{
	dirty_incomplete(u);
}

void unwind_count(const struct unwind *u, pid_t pid, struct unwind_counts *sum)
{
	const struct process *p = hashmap_pointer(&u->processes, (uint64_t)pid);

	if (!p)
		return;
	for (size_t i = 0; i < UNWIND_WHYS; i++)
		sum->whys[i] += p->counts.whys[i];
	sum->frame_pointers += p->counts.frame_pointers;
	sum->files += p->files;
	sum->waiting += p->waiting;
	sum->without += p->without;
	unwind_mappings_count(u->mappings, pid, sum);
}

struct json_object *unwind_python_json(const struct unwind *u, pid_t pid)
{
	const struct process *p = hashmap_pointer(&u->processes, (uint64_t)pid);
	struct python_counts sum;

	if (!u->python || !p || p->python.is == PYTHON_ABSENT)
		return NULL;
	sum = p->python_counts;
	python_count(u->python, pid, &sum);
	return python_describe(pid, &p->python, &sum);
}

struct json_object *unwind_go_json(const struct unwind *u, pid_t pid)
{
	const struct process *p = hashmap_pointer(&u->processes, (uint64_t)pid);
	struct go_counts sum;

	if (!p || p->go.is == GO_ABSENT)
		return NULL;
	sum = p->go_counts;
	goroutines_count(u->filter, pid, &sum);
	return goroutines_describe(pid, &p->go, &sum);
}

struct python *unwind_python(const struct unwind *u)
{
	return u->python;
}

int unwind_copy_doubts(const struct unwind *u, struct unwind_doubts *ret)
{
	return unwind_doubts_copy(&u->doubts, ret);
}

void unwind_status(const struct unwind *u, struct json_object *status)
{
	struct json_object *o = json_add_new_object(status, "unwinding");

	json_add_uint(o, "processes", u->processes.n);
	unwind_objects_status(u->objects, o);
	if (u->python)
		python_status(u->python, status);
}

/* ---- life */

DEFINE_CLEANUP(struct unwind *, unwind_free)

int unwind_new(struct targets *targets, const struct filter *filter, struct unwind **ret)
{
	_cleanup_(unwind_freep) struct unwind *u = calloc(1, sizeof(*u));
	int r;

	if (!u)
		return -ENOMEM;
	u->targets = targets;
	u->filter = filter;
	u->compose = evtimer_new(targets->base, on_compose, u);
	if (!u->compose)
		return -ENOMEM;
	r = unwind_objects_new(targets, filter, on_objects, u, &u->objects);
	if (r == 0)
		r = unwind_mappings_new(filter, &u->mappings);
	if (r == 0 && filter_finds_python(filter))
		r = python_new(targets->base, filter, &u->python);
	if (r < 0)
		return r;
	*ret = take_ptr(u);
	return 0;
}

struct unwind *unwind_free(struct unwind *u)
{
	struct process *p;
	uint32_t pos = 0;

	if (!u)
		return NULL;
	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL) {
		unwind_list_fini(&p->list);
		free(p);
	}
	(void)python_free(u->python);
	unwind_doubts_fini(&u->doubts);
	hashmap_fini(&u->processes);
	(void)unwind_objects_free(u->objects);
	(void)unwind_mappings_free(u->mappings);
	if (u->compose)
		event_free(u->compose);
	free(u);
	return NULL;
}
