// SPDX-License-Identifier: Apache-2.0
/*
 * The machine of snapshots against all that can happen to it: every interleaving of create, cancel,
 * delete, disarm, deadline, the copier's steps, the decoder's end, fetch and purge, from several
 * beginnings, to a depth. The copier and the decoding are the test's own and move only when the
 * model says so; the spool is a real one on tmpfs.
 *
 * A sequence that comes to a state from which as much was tried already is not gone on with; every
 * other one is run from its beginning. After each event, and once all has run to its end, and
 * behind a restart: what is in the spool's folder is what its list says and what the quota charges;
 * what a snapshot says of itself is what its meta.json says; each waiter is called once; no
 * descriptor and no recording stays behind.
 *
 *	test-snapshot-model [DEPTH]	6 if not given
 */
#include "daemon/snapshot/snapshot_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/safefile.h"
#include "common/bundle/bundle.h"
#include "common/control/json.h"
#include "daemon/base/clockseries.h"
#include "daemon/snapshot/spool.h"
#include "tests/unit/daemon/snapshot/recording-make.h"

#define DEPTH 6
#define MAX_DEPTH 40 /* a beginning included */
#define MAX_ALIVE 4
#define MAX_HELD 2
#define REMEMBERED 2
#define SOMEBODY 1000
#define PROCESSES 2
#define AHEAD 2 /* a beginning that has something in it is gone on from so much less far */

static char sequence[MAX_DEPTH + 1]; /* what has happened, for whoever reads a failure */
static const char *beginning = "";
static bool lazy; /* the loop turns only when a step or a decoder comes back */

#define CHECK(c)                                                                                                         \
	do {                                                                                                             \
		if (!(c)) {                                                                                              \
			(void)fprintf(stderr, "%s:%d: not so: %s, after %s%s, %s\n", __FILE__, __LINE__, #c, beginning, \
				      sequence, lazy ? "lazy" : "eager");                                              \
			abort();                                                                                         \
		}                                                                                                        \
	} while (0)

/* ---- the copier: a queue, and one job that may have run without the loop having heard of it */

struct copier {
	struct copier_job *queue[64];
	unsigned n;
	struct copier_job *ran;
};

/* The other one is never busy: its jobs are done within a turn. */
static struct copier copier, hurry;

void copier_submit(struct copier *c, struct copier_job *job)
{
	CHECK(!job->submitted && c->n < ARRAY_SIZE(c->queue));
	job->submitted = true;
	c->queue[c->n++] = job;
}

bool copier_withdraw(struct copier *c, struct copier_job *job)
{
	for (unsigned i = 0; i < c->n; i++)
		if (c->queue[i] == job) {
			memmove(c->queue + i, c->queue + i + 1, (--c->n - i) * sizeof(*c->queue));
			job->submitted = false;
			return true;
		}
	return false;
}

static void copier_run(struct copier *c)
{
	struct copier_job *job = c->queue[0];

	CHECK(!c->ran && c->n > 0);
	memmove(c->queue, c->queue + 1, --c->n * sizeof(*c->queue));
	c->ran = job;
	job->run(job);
}

/* Its owners forget them, as at the daemon's end. */
static void drop_all(void)
{
	for (unsigned i = 0; i < copier.n; i++)
		copier.queue[i]->submitted = false;
	if (copier.ran)
		copier.ran->submitted = false;
	for (unsigned i = 0; i < hurry.n; i++)
		hurry.queue[i]->submitted = false;
	hurry = (struct copier){0};
	copier = (struct copier){0};
}

static void copier_done(struct copier *c)
{
	struct copier_job *job;

	if (!c->ran)
		copier_run(c);
	job = take_ptr(c->ran);
	job->submitted = false;
	job->done(job);
}

uint64_t copier_stuck_ns(struct copier *c)
{
	return 0;
}

unsigned copier_queued(struct copier *c)
{
	return c->n;
}

/* ---- the decoding */

struct decoding {
	struct decoding_callbacks callbacks;
	void *arg;
	struct decoding *next;
};

static struct decoding *decodings;

int decoding_start(const struct decoding_request *request,
		   const struct decoding_callbacks *callbacks, void *arg, struct decoding **ret)
{
	struct decoding *d = calloc(1, sizeof(*d));

	CHECK(d);
	*d = (struct decoding){.callbacks = *callbacks, .arg = arg, .next = decodings};
	decodings = d;
	*ret = d;
	return 0;
}

void decoding_free(struct decoding *d)
{
	struct decoding **p = &decodings;

	if (!d)
		return;
	while (*p != d)
		p = &(*p)->next;
	*p = d->next;
	free(d);
}

static void decoder_ends(bool well)
{
	static const struct decoder_result result = {.ok = true};
	struct decoder_outcome o = {.end = well ? DECODER_DONE : DECODER_CRASHED,
				    .message = well ? "" : "crashed",
				    .stderr_text = "",
				    .result = well ? &result : NULL};
	struct decoding *d = decodings;

	while (d->next) /* the first that was started */
		d = d->next;
	d->callbacks.on_end(&o, false, d->arg);
}

/* ---- the clocks: none is read */

const struct clocks *clockseries_get(const struct clockseries *s)
{
	static struct clocks clocks;

	return &clocks;
}

void clockseries_take(struct clockseries *s)
{
}

/* ---- the world */

static char root[64];
static int root_fd = -1, proc_fd = -1;
static struct config config;
static struct quota quota;
static struct event_base *base;
static struct spool *spool;
static struct snapshots *snapshots;
static unsigned char answers[MAX_DEPTH];
static unsigned created, n_held;
static int held[MAX_HELD];
static char held_id[MAX_HELD][SPOOL_ID_LEN + 1];

static void open_daemon(void)
{
	const struct spool_limits limits = {.hold_ns = UINT64_MAX};
	struct snapshots_context c = {.config = &config,
				      .quota = &quota,
				      .copier = &copier,
				      .hurry = &hurry,
				      .remembered = REMEMBERED};

	base = c.base = event_base_new();
	CHECK(base && spool_open(root, &limits, &quota, &spool) == 0);
	c.spool = spool;
	CHECK(snapshots_new(&c, &snapshots) == 0);
}

static void close_daemon(void)
{
	snapshots_free(snapshots);
	spool_close(spool);
	event_base_free(base);
}

static void turn(void)
{
	CHECK(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	while (hurry.n > 0) {
		copier_done(&hurry);
		CHECK(event_base_loop(base, EVLOOP_NONBLOCK) >= 0);
	}
}

static unsigned open_descriptors(void)
{
	int fd = dup(proc_fd);
	DIR *d = fdopendir(fd);
	unsigned n = 0;

	CHECK(d);
	rewinddir(d);
	while (readdir(d))
		n++;
	(void)closedir(d);
	return n;
}

/* ---- what must be so */

static const struct spool_item *item_of(const char *id, bool removed)
{
	const struct spool_item *item;

	for (size_t i = 0; (item = spool_at(spool, i)) != NULL; i++)
		if (!strcmp(item->id, id) && (item->state != SPOOL_KEPT) == removed)
			return item;
	return NULL;
}

static struct snapshot *snapshot_of(const char *id)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		if (!strcmp(n->id, id))
			return n;
	return NULL;
}

/*
 * What is on the disk is in the list, with the size that it has, but for what a step or a purge has
 * just done.
 */
static void check_entry(int spool_fd, const char *name)
{
	bool removed = !strncmp(name, ".removed-", 9), half = !strncmp(name, ".tmp-", 5);
	const char *id = name + (removed ? 9 : half ? 5 : 0);
	const struct spool_item *item;
	uint64_t size = 0;
	int fd;

	CHECK(spool_id_is_valid(id));
	if (half) {
		const struct snapshot *n = snapshot_of(id);

		CHECK(n && n->deadline);
		return;
	}
	item = item_of(id, removed);
	if (!item) {
		/* its rename has happened, and the loop has not heard of it */
		CHECK(!removed && copier.ran && snapshot_of(id)->state == SNAPSHOT_PUBLISHING);
		return;
	}
	fd = openat(spool_fd, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0 && safefile_tree_size(fd, &size) == 0);
	(void)close(fd);
	CHECK(copier.ran ? size <= item->bytes : size == item->bytes);
}

static void check_folder(void)
{
	unsigned entries = 0, items = 0;
	struct dirent *e;
	DIR *d = fdopendir(openat(root_fd, "spool", O_RDONLY | O_DIRECTORY | O_CLOEXEC));

	CHECK(d);
	while ((e = readdir(d)) != NULL) {
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		entries += strncmp(e->d_name, ".tmp-", 5) != 0;
		check_entry(dirfd(d), e->d_name);
	}
	(void)closedir(d);
	while (spool_at(spool, items))
		items++;
	if (!copier.ran)
		CHECK(entries == items);
}

static void check_snapshots(void)
{
	unsigned decoding = 0, remembered = 0, on_disk = 0;
	struct snapshot *n;

	TAILQ_FOREACH(n, &snapshots->all, entry) {
		CHECK(n->on_disk == (item_of(n->id, false) != NULL));
		CHECK(!n->on_disk ||
		      (snapshot_has_ended(n) && !n->deleted && n->state != SNAPSHOT_CANCELLED));
		CHECK(!n->item || n->state == SNAPSHOT_PUBLISHING ||
		      (lazy && snapshot_has_ended(n)));
		if (snapshot_has_ended(n)) {
			CHECK(snapshot_cancel(n) == SNAPSHOT_E_STATE);
			CHECK(lazy || !n->done);
		} else {
			CHECK(snapshot_delete(n) == SNAPSHOT_E_STATE);
			CHECK(n->state == SNAPSHOT_DECODING || n->stopped ||
			      evtimer_pending(n->deadline, NULL));
		}
		decoding += n->has_slot;
		on_disk += n->on_disk;
		remembered += snapshot_has_ended(n) && !n->on_disk && !n->deleted;
	}
	CHECK(decoding == snapshots->n_slots && decoding <= config.snapshots_running);
	CHECK(decoding == quota_used(&quota, SOMEBODY, QUOTA_SNAPSHOTS_RUNNING));
	CHECK(lazy || remembered <= REMEMBERED);
	CHECK(on_disk == spool_count(spool));
}

static void check_all(void)
{
	check_folder();
	check_snapshots();
	CHECK(quota_used(&quota, SOMEBODY, QUOTA_SPOOL_BYTES) == spool_bytes(spool));
	CHECK(quota.totals[QUOTA_SPOOL_BYTES] == spool_bytes(spool));
	for (unsigned i = 0; i < created; i++)
		CHECK(answers[i] <= 1);
}

/* meta.json of each says what the list says. */
static void check_meta(void)
{
	const struct spool_item *item;
	struct bundle bundle;

	for (size_t i = 0; (item = spool_at(spool, i)) != NULL; i++) {
		const struct snapshot *n = snapshot_of(item->id);
		int fd = openat(spool_dir_fd(spool), item->id, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
		struct json_object *o;

		CHECK(n && fd >= 0 && bundle_open(fd, &bundle) == 0 && bundle.meta);
		o = json_get_object(bundle.meta, "snapshot");
		CHECK(o &&
		      !strcmp(json_get_string(o, "state"), snapshot_state_to_string(n->state)));
		CHECK(!strcmp(json_get_string(o, "id"), n->id));
		bundle_close(&bundle);
		(void)close(fd);
	}
}

/* ---- what can happen */

static void on_done(struct snapshot *n, void *arg)
{
	CHECK(snapshot_has_ended(n));
	(*(unsigned char *)arg)++;
}

static struct snapshot *running(bool last)
{
	struct snapshot *n, *found = NULL;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		if (!snapshot_has_ended(n) && (!found || last))
			found = n;
	return found;
}

static struct snapshot *ended(bool last)
{
	struct snapshot *n, *found = NULL;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		if (snapshot_has_ended(n) && !n->deleted && (!found || last))
			found = n;
	return found;
}

static struct snapshot *published(void)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		if (n->on_disk)
			return n;
	return NULL;
}

static struct snapshot *timed(bool last)
{
	struct snapshot *n, *found = NULL;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		if (n->deadline && evtimer_pending(n->deadline, NULL) && (!found || last))
			found = n;
	return found;
}

static void create(void)
{
	const struct snapshot_request r = {.uid = SOMEBODY, .reason = "model"};
	struct snapshot *n;
	char why[256];

	if (made.target.gone) {
		made.target.gone = false;
		made.target.id++;
	}
	CHECK(snapshots_create(snapshots, &made.target, &r, on_done, &answers[created], &n, why,
			       sizeof(why)) == 0);
	created++;
}

static void fetch(void)
{
	uint64_t size;

	CHECK(snapshot_open_file(published(), BUNDLE_PERFDATA, &held[n_held], &size) == 0 &&
	      size > 0);
	memcpy(held_id[n_held++], published()->id, sizeof(held_id[0]));
}

static void let_go(void)
{
	while (n_held > 0)
		(void)close(held[--n_held]);
}

static const char all_events[] = "CxXdDAtTrskKflp";

static bool can_happen(char event)
{
	unsigned alive = 0;
	struct snapshot *n;

	switch (event) {
	case 'C': /* create */
		TAILQ_FOREACH(n, &snapshots->all, entry)
			alive += !snapshot_has_ended(n);
		return alive < MAX_ALIVE;
	case 'x': /* cancel the oldest, the youngest */
		return running(false);
	case 'X':
		return running(false) != running(true);
	case 'd': /* delete the oldest, the youngest */
		return ended(false);
	case 'D':
		return ended(false) != ended(true);
	case 'A': /* disarm */
		return !made.target.gone && running(false);
	case 't': /* the time of the oldest, the youngest is over */
		return timed(false);
	case 'T':
		return timed(false) != timed(true);
	case 'r': /* the copier runs a step; it comes back later */
		return !copier.ran && copier.n > 0;
	case 's': /* a step comes back */
		return copier.ran || copier.n > 0;
	case 'k': /* the decoder ends well, badly */
	case 'K':
		return decodings;
	case 'f': /* fetch: a descriptor is held */
		return n_held < MAX_HELD && published();
	case 'l': /* all of them are closed */
		return n_held > 0;
	case 'p': /* the purge is tried again */
		return evtimer_pending(snapshots->purge_again, NULL);
	}
	return false;
}

static void happen(char event)
{
	sequence[strlen(sequence)] = event;
	switch (event) {
	case 'C':
		create();
		break;
	case 'x':
	case 'X':
		CHECK(snapshot_cancel(running(event == 'X')) == 0);
		break;
	case 'd':
	case 'D':
		CHECK(snapshot_delete(ended(event == 'D')) == 0);
		break;
	case 'A':
		made.target.gone = true;
		break;
	case 't':
	case 'T':
		event_active(timed(event == 'T')->deadline, EV_TIMEOUT, 0);
		turn(); /* it is the loop that calls it */
		break;
	case 'r':
		copier_run(&copier);
		break;
	case 's':
		copier_done(&copier);
		turn();
		break;
	case 'k':
	case 'K':
		decoder_ends(event == 'k');
		turn();
		break;
	case 'f':
		fetch();
		break;
	case 'l':
		let_go();
		break;
	case 'p':
		event_active(snapshots->purge_again, EV_TIMEOUT, 0);
		turn();
		break;
	}
	if (!lazy)
		turn();
}

/* All that is under way comes to its end, by itself. */
static void drain(void)
{
	unsigned steps = 0;

	let_go();
	turn();
	for (;;) {
		CHECK(++steps < 200);
		if (copier.ran || copier.n > 0)
			copier_done(&copier);
		else if (decodings)
			decoder_ends(true);
		else if (evtimer_pending(snapshots->purge_again, NULL))
			event_active(snapshots->purge_again, EV_TIMEOUT, 0);
		else
			break;
		turn();
		check_all();
	}
	CHECK(!running(false));
	for (unsigned i = 0; i < created; i++)
		CHECK(answers[i] == 1);
	CHECK(made.frozen_alive == 0);
	CHECK(quota.totals[QUOTA_SNAPSHOTS_QUEUED] == 0 &&
	      quota.totals[QUOTA_SNAPSHOTS_RUNNING] == 0);
	check_meta();
}

static void restart(void)
{
	struct {
		char id[SPOOL_ID_LEN + 1];
		enum snapshot_state state;
	} was[MAX_DEPTH];
	uint64_t bytes = spool_bytes(spool);
	size_t n = 0;
	struct snapshot *i;

	TAILQ_FOREACH(i, &snapshots->all, entry)
		if (i->on_disk) {
			memcpy(was[n].id, i->id, sizeof(was[n].id));
			was[n++].state = i->state;
		}
	close_daemon();
	CHECK(quota.totals[QUOTA_SPOOL_BYTES] == 0);
	open_daemon();
	check_all();
	check_meta();
	CHECK(spool_count(spool) == n && spool_bytes(spool) == bytes);
	for (size_t k = 0; k < n; k++)
		CHECK(snapshot_of(was[k].id) && snapshot_of(was[k].id)->state == was[k].state);
}

/* ---- states that were seen */

static struct seen {
	uint64_t hash; /* 0: free */
	unsigned depth; /* what was tried from there */
} *seen;
static size_t n_seen, size_seen;

static void mix(uint64_t *h, uint64_t v)
{
	*h = (*h ^ v) * UINT64_C(0x9e3779b97f4a7c15);
	*h ^= *h >> 29;
}

/* By place, since ids and addresses differ: 1 is the oldest, 0 none. */
static unsigned place_of(const struct snapshot *of)
{
	struct snapshot *n;
	unsigned i = 0;

	TAILQ_FOREACH(n, &snapshots->all, entry) {
		i++;
		if (n == of)
			return i;
	}
	return 0;
}

static void mix_job(uint64_t *h, const struct copier_job *job)
{
	struct snapshot *n;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		if (job == &n->job)
			break;
	mix(h, job ? 2 + place_of(n) : 1);
}

static void mix_snapshot(uint64_t *h, struct snapshot *n)
{
	const bool flags[] = {
		n->on_disk,
		n->deleted,
		n->is_aside,
		n->reported,
		n->has_slot,
		n->failed_decode,
		n->stopped,
		n->job.submitted,
		n->frozen,
		n->item,
		n->deadline,
		n->deadline && evtimer_pending(n->deadline, NULL),
		n->done,
		atomic_load(&n->build.cancel),
		n->build.dir.dir_fd >= 0,
		n->queued.user,
		n->running.user,
		n->target_id == made.target.id,
	};
	uint64_t bits = 0;

	for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
		bits |= (uint64_t)flags[i] << i;
	mix(h, bits);
	mix(h, n->state * 1000u + n->step * 100u + n->stopped_by);
	mix(h, (uint64_t)n->step_result);
	for (const char *p = n->error_code ? n->error_code : ""; *p; p++)
		mix(h, (unsigned char)*p);
}

static uint64_t state_hash(void)
{
	const struct spool_item *item;
	struct snapshot *n;
	uint64_t h = lazy;

	TAILQ_FOREACH(n, &snapshots->all, entry)
		mix_snapshot(&h, n);
	for (size_t i = 0; (item = spool_at(spool, i)) != NULL; i++) {
		mix(&h, item->state * 8u + item->handed_out * 2u + item->in_purge);
		for (unsigned k = 0; k < n_held; k++)
			mix(&h, !strcmp(held_id[k], item->id));
		mix(&h, place_of(snapshot_of(item->id)));
	}
	mix_job(&h, copier.ran);
	for (unsigned i = 0; i < copier.n; i++)
		mix_job(&h, copier.queue[i]);
	for (const struct decoding *d = decodings; d; d = d->next)
		mix(&h, place_of(d->arg));
	mix(&h, made.target.gone * 4u + (evtimer_pending(snapshots->purge_again, NULL) != 0) * 2u +
			(event_pending(snapshots->schedule, EV_TIMEOUT, NULL) != 0));
	return h ? h : 1;
}

/* True if as much was tried from this state; else it is from now on. */
static bool was_tried(uint64_t hash, unsigned depth)
{
	size_t i;

	if (2 * n_seen >= size_seen) {
		struct seen *old = seen;
		size_t size = size_seen;

		size_seen = size ? 2 * size : 1 << 16;
		seen = calloc(size_seen, sizeof(*seen));
		CHECK(seen);
		n_seen = 0;
		for (size_t k = 0; k < size; k++)
			if (old[k].hash)
				(void)was_tried(old[k].hash, old[k].depth);
		free(old);
	}
	for (i = hash % size_seen; seen[i].hash && seen[i].hash != hash; i = (i + 1) % size_seen)
		;
	if (seen[i].hash && seen[i].depth >= depth)
		return true;
	n_seen += !seen[i].hash;
	seen[i] = (struct seen){.hash = hash, .depth = depth};
	return false;
}

/* ---- all of them */

static uint64_t sequences, states;

/*
 * Runs one sequence from the beginning, and to its end if it comes to a state that is new. What it
 * begins with was checked when that was run by itself. Returns false for a state that was tried,
 * else what can happen next.
 */
static bool run(const char *path, unsigned depth, bool lazily, char ret_next[sizeof(all_events)])
{
	bool tried;
	unsigned descriptors = open_descriptors();
	size_t n = 0;

	memset(sequence, 0, sizeof(sequence));
	memset(answers, 0, sizeof(answers));
	created = 0;
	made.target.gone = false;
	quota_init(&quota, &config);
	quota.exempt = (uid_t)-1;
	open_daemon();
	lazy = false;
	for (const char *p = beginning; *p; p++) {
		CHECK(can_happen(*p));
		happen(*p);
	}
	lazy = lazily;
	memset(sequence, 0, sizeof(sequence));
	for (; *path; path++)
		happen(*path);
	check_all();
	for (const char *p = all_events; *p; p++)
		if (can_happen(*p))
			ret_next[n++] = *p;
	ret_next[n] = '\0';
	tried = was_tried(state_hash(), depth);
	if (!tried) {
		drain();
		restart();
		states++;
	} else {
		let_go();
		drop_all();
	}
	close_daemon();
	quota_fini(&quota);
	CHECK(safefile_remove_tree(root_fd, "spool") == 0);
	CHECK(open_descriptors() == descriptors);
	sequences++;
	return !tried;
}

static void explore(char *path, unsigned length, unsigned depth, bool lazily)
{
	char next[sizeof(all_events)];

	path[length] = '\0';
	if (!run(path, depth - length, lazily, next) || length == depth)
		return;
	for (const char *p = next; *p; p++) {
		path[length] = *p;
		explore(path, length + 1, depth, lazily);
	}
}

/* All sequences from nothing; and from where those do not come in so few events. */
static const char *const beginnings[] = {
	"",
	"CxCxCrCC",   /* as many are remembered as can be, the copier is busy, two wait behind it */
	"Cssk",	      /* about to publish */
	"CsskrC",     /* published, and nobody knows; another waits */
	"CssksCssKs",  /* one is done, one failed without a trace */
	"CssksCssksf", /* two are done, a descriptor of one is held */
};

/* The beginnings and both kinds of turning are shared out by number. */
static int work(unsigned first, unsigned depth)
{
	char path[MAX_DEPTH + 1] = "", dir[64];
	const char *const tmpfs = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
	int parent;

	log_init("test-snapshot-model", LOG_L_ERROR);
	(void)snprintf(root, sizeof(root), "%s/tracerd-model-XXXXXX", tmpfs);
	CHECK(mkdtemp(root));
	root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	proc_fd = open("/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(root_fd >= 0 && proc_fd >= 0 && config_init(&config) == 0);
	free(config.decoder);
	config.decoder = strdup("/bin/true"); /* it only has to be there */
	config.spool_keep_free_percent = 0;
	made.brings = true;
	config.uid_snapshots_queued = config.snapshots_queued = MAX_ALIVE;
	for (unsigned i = first; i < 2 * ARRAY_SIZE(beginnings); i += PROCESSES) {
		const uint64_t before = sequences, new = states, at = io_now_ns();

		beginning = beginnings[i / 2];
		explore(path, 0, i < 2 || depth <= AHEAD ? depth : depth - AHEAD, i % 2);
		(void)printf("# %s from '%s': %llu sequences, %llu states, %.1f s\n",
			     i % 2 ? "lazy" : "eager", beginning,
			     (unsigned long long)(sequences - before),
			     (unsigned long long)(states - new), (double)(io_now_ns() - at) / 1e9);
		(void)fflush(stdout);
	}
	(void)snprintf(dir, sizeof(dir), "%s", root + strlen(tmpfs) + 1);
	parent = open(tmpfs, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(safefile_remove_tree(parent, dir) == 0);
	(void)close(parent);
	(void)close(root_fd);
	(void)close(proc_fd);
	config_fini(&config);
	return 0;
}

int main(int argc, char **argv)
{
	const char *text = argc > 1 ? argv[1] : getenv("TRACERD_MODEL_DEPTH");
	unsigned long depth = text ? strtoul(text, NULL, 10) : DEPTH;
	int failed = 0;

	if (depth < 1 || depth > 12) {
		(void)fprintf(stderr, "the depth is 1 to 12\n");
		return 2;
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		pid_t pid = fork();

		if (pid < 0)
			return 1;
		if (pid == 0)
			exit(work(i, (unsigned)depth));
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		int status;

		if (wait(&status) < 0 || status != 0)
			failed = 1;
	}
	(void)printf("%s\n", failed ? "not ok" : "ok");
	return failed;
}
