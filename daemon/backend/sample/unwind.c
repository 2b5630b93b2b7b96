// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwind.h"

#include <errno.h>
#include <event2/event.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "common/base/hashmap.h"
#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/base/wall_clock.h"
#include "common/bundle/perfabi.h"
#include "common/control/json.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/goroutines.h"
#include "daemon/backend/sample/python.h"
#include "daemon/backend/sample/unwind_builder.h"
#include "daemon/backend/sample/unwind_list.h"
#include "daemon/backend/sample/unwind_mappings.h"
#include "daemon/backend/sample/unwind_tables.h"
#include "daemon/target/sideband_log.h"
#include "daemon/target/target_internal.h"

#define OBJECTS_MAX 16384
#define VDSO_MAX 65536
#define IN_FLIGHT_NS 1000000
#define TRIES 3
/* A process that maps code all the time is looked at no more often. */
#define COMPOSE_US 2000

struct object {
	enum { OBJECT_NEW, OBJECT_BUILDING, OBJECT_READY, OBJECT_NONE } state;
	struct stat stat; /* of the file that it was made of */
	unsigned int failures; /* builds that told nothing of it */
	struct unwind_place place;
	struct python_object *python; /* NULL: it is no interpreter; owned */
	struct go_object *go;	      /* NULL: it is no Go program; owned */
	bool looked;		      /* what it is is known, also where no table was asked for */
};

struct process {
	pid_t pid;
	pid_t heir_of; /* forked by that one at `forked_ns`, with all that it had mapped; 0: by none */
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
	struct python_counts python_counts; /* of interpreters that the programs do not look into any more */
	struct python_object python; /* the one that it runs */
	struct go_counts go_counts; /* of programs that it does not run any more */
	struct go_object go;	    /* the one that it is */
};

struct unwind {
	struct targets *targets; /* back pointer */
	const struct filter *filter; /* borrowed */
	struct unwind_tables *tables;
	struct unwind_builder *builder;
	struct unwind_mappings *mappings;
	struct python *python; /* NULL: Python's frames are not found */
	struct hashmap processes; /* struct process, by pid */
	struct hashmap objects;	  /* struct object, by device and inode */
	struct object vdso;
	struct event *compose; /* pending while a process is dirty */
	struct object *building[UNWIND_BATCH_MAX];
	size_t n_building;
	bool building_tables; /* else it is only asked what the files are */
	struct unwind_doubts doubts;
	uint64_t refused; /* files of which no table could be made */
	bool full;
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

/* ---- objects */

static bool is_same_file(const struct stat *a, const struct stat *b)
{
	return a->st_dev == b->st_dev && a->st_ino == b->st_ino && a->st_size == b->st_size &&
	       a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec &&
	       a->st_ctim.tv_sec == b->st_ctim.tv_sec && a->st_ctim.tv_nsec == b->st_ctim.tv_nsec;
}

static uint64_t device_of(const struct unwind_area *area)
{
	return (uint64_t)area->maj << 32 | area->min;
}

/* NULL: there is no memory. */
static struct object *object_get(struct unwind *u, const struct unwind_area *area)
{
	struct object *object;

	if (area->is_vdso)
		return &u->vdso;
	object = (void *)(uintptr_t)hashmap_get(&u->objects, device_of(area), area->ino);
	if (object)
		return object;
	if (u->objects.n >= OBJECTS_MAX)
		return NULL;
	object = calloc(1, sizeof(*object));
	if (!object || hashmap_put(&u->objects, device_of(area), area->ino, (uintptr_t)object) < 0) {
		free(object);
		return NULL;
	}
	return object;
}

/* The file of a mapping. */
struct found {
	int fd; /* -1: no target of the process has it open */
	bool opening;
	uid_t uid; /* of the target */
	const uint8_t *head; /* see image_head() */
};

static struct found file_of(const struct unwind *u, pid_t pid, const struct unwind_area *area)
{
	const struct member *member = NULL;
	struct found f = {.fd = -1};

	while ((member = member_next(u->targets, pid, member)) != NULL) {
		const struct target *target = member->target;

		f.uid = target_uid(target);
		if (area->is_vdso) {
			f.fd = u->targets->vdso_fd;
			return f;
		}
		for (size_t i = 0; i < target->n_images; i++) {
			const struct image_key *key = image_key(target->images[i]);

			if (key->ino != area->ino || key->maj != area->maj || key->min != area->min)
				continue;
			f.fd = image_fd(target->images[i]);
			f.head = image_head(target->images[i]);
			if (f.fd >= 0)
				return f;
			f.opening |= image_is_opening(target->images[i]);
		}
	}
	return f;
}

/* ---- building */

struct batch {
	struct unwind_source sources[UNWIND_BATCH_MAX];
	uid_t uid, owner;
};

/* Whoever takes over a decoder decides about all tables that it makes: it reads files of one owner, and what is kept apart from the rest. */
static bool goes_with(const struct unwind *u, const struct batch *batch, const struct unwind_source *source, uid_t uid, uid_t owner,
		      bool tables)
{
	return u->n_building == 0 ||
	       (batch->uid == uid && batch->owner == owner && batch->sources[0].kept == source->kept &&
		u->building_tables == tables);
}

static void batch_add(struct unwind *u, struct batch *batch, struct object *object, const struct unwind_source *source, uid_t uid,
		      bool tables)
{
	if (u->n_building == UNWIND_BATCH_MAX || !goes_with(u, batch, source, uid, object->stat.st_uid, tables))
		return;
	/* One that failed is built alone: it may be the fault of another one, or be the fault. */
	if (u->n_building && (object->failures || u->building[0]->failures))
		return;
	batch->uid = uid;
	u->building_tables = tables;
	batch->owner = object->stat.st_uid;
	batch->sources[u->n_building] = *source;
	u->building[u->n_building++] = object;
	object->state = OBJECT_BUILDING;
}

/* What the kernel gives to all processes is known by all of its bytes. */
static bool key_of_vdso(int fd, const struct stat *st, struct unwind_key *ret)
{
	uint8_t bytes[VDSO_MAX];
	ssize_t n = st->st_size <= VDSO_MAX ? io_pread_full(fd, bytes, sizeof(bytes), 0) : -1;

	if (n <= 0)
		return false;
	unwind_key_of_bytes(bytes, (size_t)n, ret);
	return true;
}

static struct unwind_source source_of(const struct unwind_area *area, const struct found *f, const struct stat *st)
{
	struct unwind_source source = {.fd = f->fd};

	source.kept = area->is_vdso ? key_of_vdso(f->fd, st, &source.key) :
				      unwind_key_of(st, f->head, (int64_t)(wall_clock_ns() / 1000000000u), &source.key);
	return source;
}

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

/* The builder failed, which says nothing of the file. */
static bool is_transient(int result)
{
	return result == -EIO || result == -ENOMEM || result == -EAGAIN || result == -EBUSY;
}

/* Without memory it is none. */
static void keep_runtimes(struct object *object, const struct python_object *python, const struct go_object *go)
{
	free(object->python);
	object->python = python->is == PYTHON_ABSENT ? NULL : malloc(sizeof(*python));
	if (object->python)
		*object->python = *python;
	free(object->go);
	object->go = go->is == GO_ABSENT ? NULL : malloc(sizeof(*go));
	if (object->go)
		*object->go = *go;
}

static void on_built(void *arg, const struct unwind_built *built, size_t n)
{
	struct unwind *u = arg;

	for (size_t i = 0; i < n && i < u->n_building; i++) {
		struct object *object = u->building[i];

		object->place = built[i].place;
		keep_runtimes(object, &built[i].python, &built[i].go);
		if (is_transient(built[i].result) && ++object->failures < TRIES) {
			object->state = OBJECT_NEW;
			continue;
		}
		object->looked = true;
		if (!u->building_tables) {
			object->state = OBJECT_NEW;
			object->failures = 0;
			continue;
		}
		object->state = built[i].result == 0 ? OBJECT_READY : OBJECT_NONE;
		u->refused += built[i].result < 0;
		if (built[i].result == -ENOSPC && !u->full) {
			log_notice("no room is left for tables of unwind rules: stacks with code of further files are copied");
			u->full = true;
		}
	}
	u->n_building = 0;
	dirty_incomplete(u);
}

static void batch_start(struct unwind *u, const struct batch *batch)
{
	int r;

	if (!u->n_building || unwind_builder_is_busy(u->builder))
		return;
	r = unwind_builder_start(u->builder, batch->uid, batch->sources, u->n_building, u->building_tables);
	if (r < 0) {
		struct unwind_built failed[UNWIND_BATCH_MAX];

		log_debug("tables of unwind rules: %s", strerror(-r));
		for (size_t i = 0; i < u->n_building; i++)
			failed[i] = (struct unwind_built){.result = r};
		on_built(u, failed, u->n_building);
	}
}

/* ---- processes */

/* Where the object's code is in this mapping. False: this part of it is no code that the table knows. */
static bool place_mapping(const struct unwind_area *area, const struct unwind_place *place, struct unwind_mapping *ret)
{
	for (uint32_t i = 0; i < place->n_loads; i++) {
		const struct unwind_load *l = &place->loads[i];

		if (area->off < (l->off & ~UINT64_C(4095)) || area->off >= l->off + l->size)
			continue;
		*ret = (struct unwind_mapping){.start = area->start, .end = area->end,
			.bias = area->start - area->off + l->off - l->vaddr, .lo_page = place->lo_page,
			.n_pages = place->n_pages, .page0 = place->page0};
		return true;
	}
	return false;
}

/* The object of a mapping, as far as it is known; asks for its table. NULL: it will have none. */
static const struct object *look_at(struct unwind *u, struct process *p, const struct unwind_area *area, struct batch *batch)
{
	static const struct object coming = {.state = OBJECT_NEW};
	struct unwind_source source;
	struct object *object;
	struct found file;
	struct stat st;

	if (!area->ino && !area->is_vdso)
		return NULL;
	object = object_get(u, area);
	if (!object)
		return NULL;
	file = file_of(u, p->pid, area);
	if (object->state == OBJECT_BUILDING)
		return object;
	/* Until it is open nothing says that it is the file that a table was made of: another one may have had the inode. */
	if (file.fd < 0)
		return file.opening ? &coming : NULL;
	if (fstat(file.fd, &st) < 0)
		return NULL;
	/* The inode has become another file's, or the file another program. */
	if ((object->state != OBJECT_NEW || object->looked) && !is_same_file(&object->stat, &st)) {
		object->state = OBJECT_NEW;
		object->looked = false;
		object->failures = 0;
	}
	if (object->state == OBJECT_NEW && (p->wanted ? !u->full : !object->looked)) {
		object->stat = st;
		if (!unwind_builder_is_busy(u->builder)) {
			source = source_of(area, &file, &st);
			source.kept &= p->wanted;
			batch_add(u, batch, object, &source, file.uid, p->wanted);
		}
	}
	return p->wanted && u->full && object->state == OBJECT_NEW ? NULL : object;
}

/* Of several mappings of an interpreter each says the same. */
static void look_for_python(struct unwind *u, struct process *p, const struct object *object, const struct unwind_mapping *mapping)
{
	if (!u->python || !object->python || p->python.is == PYTHON_KNOWN)
		return;
	p->python = *object->python;
	if (p->python.is == PYTHON_KNOWN && python_put(u->python, p->pid, mapping->bias + p->python.runtime, &p->python.layout) < 0)
		log_debug("no room for the interpreter of process %d: its Python functions are not found", (int)p->pid);
}

static void forget_python(struct unwind *u, struct process *p)
{
	if (u->python)
		python_drop(u->python, p->pid, &p->python_counts);
	p->python.is = PYTHON_ABSENT;
}

/* The program itself is the lowest of what is mapped, and there are no others: libraries in Go say that they are such. */
static void look_for_go(struct unwind *u, struct process *p, struct batch *batch)
{
	const struct object *object = p->list.n ? look_at(u, p, &p->list.areas[0], batch) : NULL;

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
		log_debug("no room for the Go program of process %d: its goroutines are not read", (int)p->pid);
}

static void forget_go(struct unwind *u, struct process *p)
{
	goroutines_drop(u->filter, p->pid, &p->go_counts);
	p->go.is = GO_ABSENT;
}

/* Code without a table: what is behind it in memory goes with it, if it is the same. */
static void add_bare(const struct unwind_area *area, uint32_t kind, struct unwind_mapping *found, uint32_t *n)
{
	struct unwind_mapping *last = *n ? &found[*n - 1] : NULL;

	if (last && last->end == area->start && !last->n_pages && last->page0 == kind)
		last->end = area->end;
	else
		found[(*n)++] = (struct unwind_mapping){.start = area->start, .end = area->end, .page0 = kind};
}

static bool is_hotspot(const struct unwind_list *list)
{
	for (size_t i = 0; i < list->n; i++)
		if (list->areas[i].is_hotspot)
			return true;
	return false;
}

static void compose_mappings(struct unwind *u, struct process *p, struct batch *batch)
{
	static struct unwind_mapping found[UNWIND_LIST_MAX];
	const uint32_t made = is_hotspot(&p->list) ? UNWIND_MADE_HOTSPOT : UNWIND_MADE;
	uint32_t n = 0;

	p->files = p->waiting = p->without = 0;
	p->python.is = PYTHON_ABSENT;
	for (size_t i = 0; i < p->list.n && n < UNWIND_LIST_MAX; i++) {
		const struct unwind_area *area = &p->list.areas[i];
		const struct object *object = look_at(u, p, area, batch);

		if (object && object->state == OBJECT_READY && place_mapping(area, &object->place, &found[n])) {
			look_for_python(u, p, object, &found[n]);
			n++;
			p->files++;
			continue;
		}
		if (object && (object->state == OBJECT_NEW || object->state == OBJECT_BUILDING)) {
			p->incomplete = true;
			p->waiting++;
		} else {
			p->without++;
		}
		add_bare(area, area->ino || area->is_vdso ? 0 : made, found, &n);
	}
	if (unwind_mappings_put(u->mappings, p->pid, found, !p->files || p->list.full || p->lost ? 0 : n, &p->counts) < 0)
		log_debug("no room for the mappings of process %d: its stacks are copied", (int)p->pid);
	/* Programs that read the old list have written their records by then. */
	unwind_doubts_end(&u->doubts, (uint32_t)p->pid, clock_raw_ns() + IN_FLIGHT_NS);
}

static void compose(struct unwind *u, struct process *p, struct batch *batch)
{
	p->dirty = false;
	p->incomplete = false;
	if (p->wanted)
		compose_mappings(u, p, batch);
	if (p->read)
		look_for_go(u, p, batch);
}

static void on_compose(evutil_socket_t fd, short what, void *arg)
{
	struct batch batch = {.uid = 0};
	struct unwind *u = arg;
	struct process *p;
	uint32_t pos = 0;

	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL)
		if (p->dirty && (p->wanted || p->read))
			compose(u, p, &batch);
	batch_start(u, &batch);
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
static void doubt(struct unwind *u, const struct process *p, uint64_t from_ns, uint64_t start, uint64_t end)
{
	const struct unwind_doubt d = {
		.pid = (uint32_t)p->pid, .from_ns = from_ns, .to_ns = UINT64_MAX, .start = start, .end = end};

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
 * What a process had mapped when it was armed is read while it runs, and kept some records at a time: it may have forked before all
 * of them are. What the heir has mapped itself since is newer.
 */
static void bequeath(struct unwind *u, const struct process *from, uint64_t time, const struct unwind_area *area)
{
	struct process *p;
	uint32_t pos = 0;

	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL)
		if (p->heir_of == from->pid && time <= p->forked_ns && !unwind_list_overlaps(&p->list, area))
			add_mapping(u, p, area);
}

static void on_mapping(struct unwind *u, const struct perfabi_mmap2 *m)
{
	const size_t room = m->header.size - sizeof(*m) - sizeof(struct perfabi_sample_id);
	struct process *p;
	uint64_t time;
	struct unwind_area area = {.start = m->addr, .end = m->addr + m->len, .off = m->pgoff, .ino = m->ino, .maj = m->maj, .min = m->min};

	if (!(m->prot & PROT_EXEC) || m->header.size <= sizeof(*m) + sizeof(struct perfabi_sample_id))
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
	struct process *p = wanted ? process_get(u, pid) : hashmap_pointer(&u->processes, (uint64_t)pid);

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
	struct process *p = wanted ? process_get(u, pid) : hashmap_pointer(&u->processes, (uint64_t)pid);

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
	struct unwind_usage usage;

	unwind_tables_usage(u->tables, &usage);
	json_add_uint(o, "processes", u->processes.n);
	json_add_uint(o, "files", u->objects.n);
	json_add_uint(o, "files_refused", u->refused);
	json_add_uint(o, "rows", usage.rows);
	json_add_uint(o, "rules", usage.rules);
	json_add_uint(o, "table_bytes", usage.slabs * UNWIND_SLAB_ROWS * sizeof(uint32_t));
	json_add_bool(o, "full", u->full);
	unwind_builder_status(u->builder, o);
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
	r = unwind_tables_new(filter, &u->tables);
	if (r == 0)
		r = unwind_mappings_new(filter, &u->mappings);
	if (r == 0 && filter_finds_python(filter))
		r = python_new(targets->base, filter, &u->python);
	if (r == 0)
		r = unwind_builder_new(targets, u->tables, on_built, u, &u->builder);
	if (r < 0)
		return r;
	*ret = take_ptr(u);
	return 0;
}

struct unwind *unwind_free(struct unwind *u)
{
	struct process *p;
	uint32_t pos = 0;
	struct object *object;

	if (!u)
		return NULL;
	while ((p = (struct process *)(uintptr_t)hashmap_next(&u->processes, &pos)) != NULL) {
		unwind_list_fini(&p->list);
		free(p);
	}
	pos = 0;
	while ((object = (struct object *)(uintptr_t)hashmap_next(&u->objects, &pos)) != NULL) {
		free(object->python);
		free(object->go);
		free(object);
	}
	(void)python_free(u->python);
	unwind_doubts_fini(&u->doubts);
	hashmap_fini(&u->processes);
	hashmap_fini(&u->objects);
	(void)unwind_builder_free(u->builder);
	(void)unwind_mappings_free(u->mappings);
	(void)unwind_tables_free(u->tables);
	if (u->compose)
		event_free(u->compose);
	free(u);
	return NULL;
}
