// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/base/loss_kinds.h"
#include "common/control/json.h"

#define MAX_PIDS 65536u

void meta_fini(struct meta *m)
{
	free(m->pids);
	free(m->brackets);
	free(m->tsc);
	free(m->rings);
	for (size_t i = 0; i < m->n_go; i++)
		free(m->go[i].tids);
	free(m->go);
	free(m->notes);
	free(m->ends);
	free(m->blinds);
	json_object_put(m->only);
	*m = (struct meta){0};
}

static void read_brackets(struct meta *m, struct json_object *clocks)
{
	struct json_object *list = clocks ? json_get_array(clocks, "brackets") : NULL;
	size_t n = list ? json_object_array_length(list) : 0;

	if (n == 0 || n > CLOCK_MAP_MAX)
		return;
	m->brackets = calloc(n, sizeof(*m->brackets));
	m->tsc = calloc(n, sizeof(*m->tsc));
	if (!m->brackets || !m->tsc)
		return;
	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct clock_bracket *b = &m->brackets[m->n_brackets];
		uint64_t tsc = 0;

		if (!json_object_is_type(e, json_type_object) ||
			!json_get_uint(e, "raw", &b->raw) ||
			!json_get_uint(e, "monotonic", &b->monotonic))
			continue;
		(void)json_get_uint(e, "realtime", &b->realtime);
		(void)json_get_uint(e, "boottime", &b->boottime);
		(void)json_get_uint(e, "width_ns", &b->width);
		b->source = b->raw;
		m->n_brackets++;
		(void)json_get_uint(e, "tsc", &tsc);
		m->tsc[m->n_tsc++] = (struct clock_bracket){.source = tsc,
							    .monotonic = b->raw,
							    .boottime = b->boottime,
							    .width = b->width};
	}
}

static int pid_compare(const void *a, const void *b)
{
	const struct meta_pid *x = a, *y = b;

	return x->pid < y->pid ? -1 : x->pid > y->pid;
}

static void read_pids(struct meta *m, struct json_object *list)
{
	size_t n = list ? json_object_array_length(list) : 0;

	if (n == 0 || n > MAX_PIDS)
		return;
	m->pids = calloc(n, sizeof(*m->pids));
	if (!m->pids)
		return;
	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		uint64_t pid, nspid;

		if (!json_object_is_type(e, json_type_object) || !json_get_uint(e, "pid", &pid) ||
			!json_get_uint(e, "nspid", &nspid) || pid > INT32_MAX || nspid > INT32_MAX)
			continue;
		m->pids[m->n_pids++] =
			(struct meta_pid){.pid = (uint32_t)pid, .nspid = (uint32_t)nspid};
	}
	qsort(m->pids, m->n_pids, sizeof(*m->pids), pid_compare);
}

static int note_compare(const void *a, const void *b)
{
	const struct session_note *x = a, *y = b;

	return x->end < y->end ? -1 : x->end > y->end;
}

static void note_add(struct meta *m, const struct session_note *note)
{
	struct session_note *v;

	if (m->n_notes >= META_MAX_NOTES)
		return;
	v = reallocarray(m->notes, m->n_notes + 1, sizeof(*v));
	if (!v)
		return;
	m->notes = v;
	m->notes[m->n_notes++] = *note;
}

/*
 * Where a CPU was not traced: no other record is missing, and whose calls are, the trace tells.
 * Nobody writes more than there is room for.
 */
static bool blind_add(struct meta *m, struct json_object *gap, uint64_t from, uint64_t to)
{
	struct pt_blind b = {.from = from, .to = to}, *v;
	uint64_t cpu, tid = 0;

	if (!json_get_uint(gap, "blind_cpu", &cpu) || cpu > INT32_MAX ||
	    (json_get_uint(gap, "blind_tid", &tid) && tid > INT32_MAX))
		return false;
	(void)json_get_bool(gap, "blind_unknown", &b.unknown);
	(void)json_get_bool(gap, "blind_late", &b.late);
	(void)json_get_bool(gap, "blind_unseen", &b.unseen);
	b.cpu = (int32_t)cpu;
	b.tid = (uint32_t)tid;
	if (m->n_blinds >= META_MAX_BLINDS)
		return false;
	v = reallocarray(m->blinds, m->n_blinds + 1, sizeof(*v));
	if (!v)
		return false;
	m->blinds = v;
	m->blinds[m->n_blinds++] = b;
	return true;
}

/*
 * Losses with a time: [{"kind","from_ns","to_ns","count"}]; and, with "why", the suspension of the
 * target. Those of a cpu are how far its ring looks back, which is no loss: before the last of them
 * begins to be whole, nothing is (complete_from).
 */
static void read_gaps(struct meta *m, struct json_object *list)
{
	size_t n = list ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct session_note note = {0};
		const char *kind, *why;

		if (!json_object_is_type(e, json_type_object) ||
			!json_get_uint(e, "to_ns", &note.end))
			continue;
		note.begin = note.end;
		(void)json_get_uint(e, "from_ns", &note.begin);
		(void)json_get_uint(e, "count", &note.count);
		if (json_object_object_get_ex(e, "cpu", NULL)) {
			if (note.end > m->complete_from)
				m->complete_from = note.end;
			continue;
		}
		if (note.begin > note.end)
			note.begin = note.end;
		if (blind_add(m, e, note.begin, note.end))
			note.kind = SESSION_PROGRAM_LOSS;
		kind = json_get_string(e, "kind");
		if (!kind)
			kind = "lost";
		if (strcmp(kind, "suspended") == 0 && (why = json_get_string(e, "why"))) {
			note.kind = SESSION_SUSPENDED;
			m->suspended = note.end = note.begin;
			kind = why;
		}
		escape_text(note.text, sizeof(note.text), kind, strlen(kind));
		note_add(m, &note);
	}
}

/* LOST and LOST_SAMPLES records, which are here and not in perf.data. */
static void read_lost(struct meta *m, struct json_object *list)
{
	size_t n = list ? json_object_array_length(list) : 0;

	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct session_note note = {0};
		const char *kind;

		if (!json_object_is_type(e, json_type_object) ||
			!json_get_uint(e, "time", &note.end) || !note.end)
			continue;
		(void)json_get_uint(e, "lost", &note.count);
		note.begin = note.end;
		kind = json_get_string(e, "kind");
		(void)snprintf(note.text, sizeof(note.text), "%s",
			kind && strcmp(kind, "lost_samples") == 0 ? "samples lost"
								  : "records lost");
		note_add(m, &note);
	}
}

/* The copies of event rings: [{"file","pid","comm"}]. */
static void read_rings(struct meta *m, struct json_object *list)
{
	size_t n = list ? json_object_array_length(list) : 0;

	if (n > META_MAX_RINGS) {
		m->rings_left_out = n - META_MAX_RINGS;
		n = META_MAX_RINGS;
	}
	if (n == 0)
		return;
	m->rings = calloc(n, sizeof(*m->rings));
	if (!m->rings)
		return;
	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct meta_ring *ring = &m->rings[m->n_rings];
		const char *file, *comm;
		uint64_t pid = 0;

		if (!json_object_is_type(e, json_type_object))
			continue;
		file = json_get_string(e, "file");
		comm = json_get_string(e, "comm");
		if (!file || !*file || strlen(file) >= sizeof(ring->file))
			continue;
		memcpy(ring->file, file, strlen(file) + 1);
		if (json_get_uint(e, "pid", &pid) && pid <= INT32_MAX)
			ring->pid = (uint32_t)pid;
		if (comm)
			escape_text(ring->comm, sizeof(ring->comm), comm, strlen(comm));
		m->n_rings++;
	}
}

/* A trace that did not come: {"kind","from_raw_ns","to_raw_ns"}. */
static void read_go_loss(struct meta *m, struct json_object *lost)
{
	struct session_note note = {.kind = SESSION_PROGRAM_LOSS, .count = 1};
	const char *kind = lost ? json_get_string(lost, "kind") : NULL;
	char text[32];

	if (!kind || !json_get_uint(lost, "from_raw_ns", &note.begin) ||
	    !json_get_uint(lost, "to_raw_ns", &note.end) || note.begin > note.end)
		return;
	escape_text(text, sizeof(text), kind, strlen(kind));
	(void)snprintf(note.text, sizeof(note.text), "Go trace missing: %s", text);
	note_add(m, &note);
}

static int tid_compare(const void *a, const void *b)
{
	const struct gofeed_tid *x = a, *y = b;

	return x->inner < y->inner ? -1 : x->inner > y->inner;
}

/* [[tid, the program's own number of it]] */
static void read_go_threads(struct meta_go *go, struct json_object *list)
{
	const size_t n = list ? json_object_array_length(list) : 0;

	if (n == 0 || n > META_MAX_GO_THREADS)
		return;
	go->tids = calloc(n, sizeof(*go->tids));
	for (size_t i = 0; go->tids && i < n; i++) {
		struct json_object *pair = json_object_array_get_idx(list, i);
		int64_t tid, inner;

		if (!json_object_is_type(pair, json_type_array) ||
		    json_object_array_length(pair) != 2)
			continue;
		tid = json_object_get_int64(json_object_array_get_idx(pair, 0));
		inner = json_object_get_int64(json_object_array_get_idx(pair, 1));
		if (tid > 0 && tid <= INT32_MAX && inner > 0 && inner <= INT32_MAX)
			go->tids[go->n_tids++] =
				(struct gofeed_tid){.tid = (uint32_t)tid, .inner = (uint32_t)inner};
	}
	if (go->n_tids)
		qsort(go->tids, go->n_tids, sizeof(*go->tids), tid_compare);
}

/*
 * The traces of Go programs: [{"file","pid","nspid"}], or "lost" instead of a file: a loss that is
 * drawn where it would be.
 */
static void read_go(struct meta *m, struct json_object *list)
{
	size_t n = list ? json_object_array_length(list) : 0;

	if (n > META_MAX_GO) {
		m->go_left_out = n - META_MAX_GO;
		n = META_MAX_GO;
	}
	m->go = n ? calloc(n, sizeof(*m->go)) : NULL;
	for (size_t i = 0; m->go && i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		struct meta_go *go = &m->go[m->n_go];
		uint64_t pid = 0, nspid = 0;
		const char *file;

		if (!json_object_is_type(e, json_type_object))
			continue;
		file = json_get_string(e, "file");
		if (!file) {
			read_go_loss(m, json_get_object(e, "lost"));
			continue;
		}
		if (!*file || strlen(file) >= sizeof(go->file))
			continue;
		memcpy(go->file, file, strlen(file) + 1);
		if (json_get_uint(e, "pid", &pid) && pid <= INT32_MAX)
			go->pid = (uint32_t)pid;
		if (json_get_uint(e, "nspid", &nspid) && nspid <= INT32_MAX)
			go->nspid = (uint32_t)nspid;
		(void)json_get_bool(e, "streamed", &go->streamed);
		read_go_threads(go, json_get_array(e, "threads"));
		m->n_go++;
	}
}

static uint32_t get_tid(struct json_object *o)
{
	uint64_t tid = 0;

	return json_get_uint(o, "tid", &tid) && tid <= INT32_MAX ? (uint32_t)tid : 0;
}

/* A place in the code that a thread came to. */
static void read_hit(struct meta *m, struct json_object *cause, uint64_t at)
{
	struct session_note note = {.kind = SESSION_MARK,
				    .begin = at,
				    .end = at,
				    .tid = get_tid(cause)};
	const char *name = json_get_string(cause, "hit");
	uint64_t late = 0;
	bool paused = false;
	char text[64];
	int n;

	escape_text(text, sizeof(text), name ? name : "", name ? strlen(name) : 0);
	(void)json_get_bool(cause, "paused", &paused);
	n = snprintf(note.text, sizeof(note.text), "trigger: %s, in thread %" PRIu32 "%s", text,
		     note.tid, paused ? ", whose trace ends there" : "");
	if (json_get_uint(cause, "late_ns", &late) && late && n > 0 &&
	    (size_t)n < sizeof(note.text))
		(void)snprintf(note.text + n, sizeof(note.text) - (size_t)n,
			       ", %" PRIu64 ".%" PRIu64 " us before the freeze", late / 1000,
			       late % 1000 / 100);
	note_add(m, &note);
}

/* A region that was slow, or the program itself. */
static void read_cause(struct meta *m, struct json_object *cause)
{
	const char *kind = json_get_string(cause, "kind"), *name = json_get_string(cause, "region");
	struct session_note note = {.kind = SESSION_MARK};
	uint64_t begin, end;

	if (!kind)
		return;
	if (strcmp(kind, "region") == 0 && name && json_get_uint(cause, "begin_raw_ns", &begin) &&
		json_get_uint(cause, "end_raw_ns", &end) && begin < end) {
		escape_text(m->slow.region, sizeof(m->slow.region), name, strlen(name));
		m->slow.begin_raw = begin;
		m->slow.end_raw = end;
		m->slow.tid = get_tid(cause);
		(void)json_get_uint(cause, "over_ns", &m->slow.over);
	} else if (strcmp(kind, "hit") == 0 && json_get_uint(cause, "at_raw_ns", &note.end) &&
		   note.end) {
		read_hit(m, cause, note.end);
	} else if (strcmp(kind, "program") == 0 && json_get_uint(cause, "at_raw_ns", &note.end) &&
		   note.end) {
		uint32_t tid = get_tid(cause);

		note.begin = note.end;
		if (tid)
			(void)snprintf(note.text, sizeof(note.text),
				"trigger: the program asks, in thread %" PRIu32, tid);
		else
			(void)snprintf(note.text, sizeof(note.text), "trigger: the program asks");
		note_add(m, &note);
	}
}

/*
 * The moment that was meant, if the recording has it and goes on behind it: a mark before all that
 * it has would be drawn where it begins.
 */
static void read_late(struct meta *m, struct json_object *snapshot)
{
	struct session_note note = {.kind = SESSION_MARK};
	uint64_t late;

	if (!json_get_uint(snapshot, "late_ns", &late) || !late ||
	    !json_get_uint(snapshot, "asked_raw_ns", &note.end) || !note.end ||
	    note.end < m->complete_from)
		return;
	note.begin = note.end;
	(void)snprintf(note.text, sizeof(note.text),
		       "the snapshot was asked for, and frozen %" PRIu64 ".%" PRIu64 " ms later",
		       late / 1000000, late % 1000000 / 100000);
	note_add(m, &note);
}

static void read_freeze(struct meta *m, struct json_object *meta)
{
	struct json_object *snapshot = json_get_object(meta, "snapshot"), *cause;
	struct session_note note = {.kind = SESSION_MARK};
	const char *reason = NULL;
	char text[96];

	if (!json_get_uint(meta, "frozen_raw_ns", &m->frozen_raw) || !m->frozen_raw)
		return;
	cause = snapshot ? json_get_object(snapshot, "cause") : NULL;
	if (cause) {
		reason = json_get_string(cause, "reason");
		read_cause(m, cause);
	}
	note.begin = note.end = m->frozen_raw;
	if (reason && *reason) {
		escape_text(text, sizeof(text), reason, strlen(reason));
		(void)snprintf(note.text, sizeof(note.text), "snapshot: %s", text);
	} else {
		(void)snprintf(note.text, sizeof(note.text), "snapshot");
	}
	note_add(m, &note);
	if (snapshot)
		read_late(m, snapshot);
}

static void copy_string(char *dst, size_t size, const char *s)
{
	if (s)
		escape_text(dst, size, s, strlen(s));
}

/*
 * What the recorder has lost, or left out: when that was is not told, nor whose it was. What is in
 * the gaps, too, is read there. What was overwritten during the copy, and what that cut off, is the
 * oldest of a ring: it looks back less far, and that is no loss.
 */
static void read_losses(struct meta *m, struct json_object *losses)
{
	for (const struct loss_kind *k = loss_kinds; losses && m->frozen_raw && k->key; k++) {
		struct session_note note = {.kind = SESSION_PROGRAM_LOSS,
					    .begin = m->frozen_raw,
					    .end = m->frozen_raw};

		copy_string(note.text, sizeof(note.text), k->text);
		if (json_get_uint(losses, k->key, &note.count) && note.count)
			note_add(m, &note);
	}
}

/* A target that has exited: nothing happened from the end of its last process to the freeze. */
static void read_exit(struct meta *m, struct json_object *meta)
{
	struct json_object *target = json_get_object(meta, "target"),
			   *list = json_get_array(meta, "processes");
	const char *state = target ? json_get_string(target, "state") : NULL;
	struct session_note note = {.kind = SESSION_EXIT};
	uint64_t to;

	/* One that was suspended before has ended somewhat later, and nobody has seen that. */
	if (!state || strcmp(state, "exited") != 0 || !list || m->suspended)
		return;
	for (size_t i = 0; i < json_object_array_length(list); i++) {
		struct json_object *e = json_object_array_get_idx(list, i);

		if (!json_object_is_type(e, json_type_object) || !json_get_uint(e, "to_ns", &to))
			return;
		if (to > note.end)
			note.end = to;
	}
	note.begin = note.end;
	if (note.end && note.end <= m->frozen_raw)
		note_add(m, &note);
}

static int end_compare(const void *a, const void *b)
{
	const struct session_end *x = a, *y = b;

	return x->ns < y->ns ? -1 : x->ns > y->ns;
}

/*
 * When each process ended, or left the target, before the freeze. Of one that was recorded until
 * the suspension that is not known. Who ended as he became a member has his first records at that
 * time.
 */
static void read_ends(struct meta *m, struct json_object *list)
{
	const size_t n = list ? json_object_array_length(list) : 0;

	if (n == 0 || n > MAX_PIDS)
		return;
	m->ends = calloc(n, sizeof(*m->ends));
	for (size_t i = 0; m->ends && i < n; i++) {
		struct json_object *e = json_object_array_get_idx(list, i),
				   *next = i + 1 < n ? json_object_array_get_idx(list, i + 1)
						     : NULL;
		uint64_t pid, from, to, again = UINT64_MAX, other;
		bool goes_on = false;

		if (!json_object_is_type(e, json_type_object) || !json_get_uint(e, "pid", &pid) ||
		    pid > INT32_MAX || !json_get_uint(e, "from_ns", &from) ||
		    !json_get_uint(e, "to_ns", &to) || (m->suspended && to >= m->suspended) ||
		    (m->frozen_raw && to > m->frozen_raw))
			continue;
		if (next && json_object_is_type(next, json_type_object) &&
		    json_get_uint(next, "pid", &other) && other == pid)
			(void)json_get_uint(next, "from_ns", &again);
		if (json_get_bool(e, "goes_on", &goes_on) && goes_on)
			continue;
		m->ends[m->n_ends++] =
			(struct session_end){.ns = to == from && again > to ? to + 1 : to,
					     .pid = (uint32_t)pid};
	}
	if (m->n_ends)
		qsort(m->ends, m->n_ends, sizeof(*m->ends), end_compare);
}

/* Address filters of the processor's trace. */
static void read_filters(struct meta *m, struct json_object *events)
{
	struct json_object *pt = json_get_object(events, "pt"),
			   *list = pt ? json_get_array(pt, "filters") : NULL;
	const size_t n = list ? json_object_array_length(list) : 0;
	char text[META_MAX_FILTER_NAME];

	if (n == 0)
		return;
	m->only = json_object_new_array();
	for (size_t i = 0; i < n && i < META_MAX_FILTERS; i++) {
		struct json_object *e = json_object_array_get_idx(list, i);
		const char *name = json_object_is_type(e, json_type_object)
					   ? json_get_string(e, "name")
					   : NULL;

		copy_string(text, sizeof(text), name ? name : "?");
		json_append_string(m->only, text);
	}
	if (n > META_MAX_FILTERS) {
		(void)snprintf(text, sizeof(text), "and %zu more", n - META_MAX_FILTERS);
		json_append_string(m->only, text);
	}
}

void meta_go_ends(struct meta *m, const struct meta_go *go, uint64_t last)
{
	struct session_note note = {.kind = SESSION_PROGRAM_LOSS,
				    .begin = last,
				    .end = m->frozen_raw,
				    .count = 1,
				    .text = "Go trace missing: not streamed"};

	if (!go->streamed)
		return;
	for (size_t i = 0; i < m->n_ends; i++)
		if (m->ends[i].pid == go->pid)
			note.end = m->ends[i].ns;
	if (note.begin >= note.end)
		return;
	note_add(m, &note);
	qsort(m->notes, m->n_notes, sizeof(*m->notes), note_compare);
}

int meta_read(int fd, struct meta *ret)
{
	_cleanup_json_ struct json_object *o = NULL;
	_cleanup_free_ char *text = NULL;
	struct json_object *host, *events;
	const char *stacks;
	struct meta m = {0};
	uint64_t from;
	struct stat st;
	ssize_t n;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size < 0 || st.st_size > META_MAX_BYTES)
		return META_E_INVALID;
	text = malloc((size_t)st.st_size + 1);
	if (!text)
		return -ENOMEM;
	n = io_pread_full(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	r = json_parse(text, (size_t)n, META_MAX_BYTES, &o, NULL, 0);
	if (r)
		return r < 0 ? r : META_E_INVALID;
	if (!json_object_is_type(o, json_type_object))
		return META_E_INVALID;
	read_brackets(&m, json_get_object(o, "clocks"));
	read_pids(&m, json_get_array(o, "processes"));
	read_gaps(&m, json_get_array(o, "gaps"));
	read_lost(&m, json_get_array(o, "lost_records"));
	events = json_get_object(o, "events");
	if (events && json_get_uint(events, "complete_from_ns", &from) && from > m.complete_from)
		m.complete_from = from;
	read_freeze(&m, o);
	read_losses(&m, json_get_object(o, "losses"));
	read_exit(&m, o);
	read_ends(&m, json_get_array(o, "processes"));
	read_rings(&m, json_get_array(o, "rings"));
	read_go(&m, json_get_array(o, "go"));
	if (events) {
		(void)!json_get_uint(events, "wait_min_ns", &m.wait_min_ns);
		stacks = json_get_string(events, "stacks");
		m.unwinds = stacks && strcmp(stacks, "bpf") == 0;
		read_filters(&m, events);
		m.pt_end_raw = json_get_object(events, "pt") ? m.frozen_raw : 0;
	}
	host = json_get_object(o, "host");
	if (host) {
		copy_string(m.kernel_release, sizeof(m.kernel_release),
			json_get_string(host, "kernel"));
		copy_string(m.machine, sizeof(m.machine), json_get_string(host, "machine"));
	}
	pt_blind_sort(m.blinds, m.n_blinds);
	if (m.n_notes)
		qsort(m.notes, m.n_notes, sizeof(*m.notes), note_compare);
	*ret = m;
	return 0;
}

uint32_t meta_nspid(void *arg, uint32_t pid)
{
	const struct meta *m = arg;
	const struct meta_pid key = {.pid = pid}, *e;

	if (!m->n_pids)
		return 0;
	e = bsearch(&key, m->pids, m->n_pids, sizeof(*m->pids), pid_compare);
	return e ? e->nspid : 0;
}
