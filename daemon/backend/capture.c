// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "common/base/safefile.h"
#include "common/base/wall_clock.h"
#include "common/bundle/bundle.h"
#include "common/bundle/perfdata_write.h"
#include "daemon/backend/frozen.h"
#include "daemon/target/backend.h"

#define RESYNC_SECONDS 5 /* the longest wait for a target that cannot be read */

/* ---- freezing */

static int member_cmp(const void *a, const void *b)
{
	const struct frozen_member *x = a, *y = b;

	if (x->pid != y->pid)
		return x->pid < y->pid ? -1 : 1;
	return x->from_ns < y->from_ns ? -1 : x->from_ns > y->from_ns;
}

static int freeze_members(const struct target *target, struct frozen *frozen)
{
	const struct member *member;

	frozen->members =
		calloc(target->n_members ? target->n_members : 1, sizeof(*frozen->members));
	if (!frozen->members)
		return -ENOMEM;
	TAILQ_FOREACH(member, &target->members, link)
	{
		struct frozen_member *out = &frozen->members[frozen->n_members++];

		*out = (struct frozen_member){.pid = member->pid,
					      .nspid = member->nspid,
					      .from_ns = member->from_ns,
					      .to_ns = member->to_ns,
					      .hidden = member->proof != PROOF_GIVEN,
					      .unseen = member->unseen};
		frozen->n_hidden += out->hidden;
		if (member->root)
			out->root = root_ref(member->root);
		if (member->cred)
			out->cred = cred_ref(member->cred);
		memcpy(out->comm, member->comm, sizeof(out->comm));
	}
	qsort(frozen->members, frozen->n_members, sizeof(*frozen->members), member_cmp);
	return 0;
}

static int freeze_images(const struct target *target, struct frozen *frozen)
{
	frozen->images = calloc(target->n_images ? target->n_images : 1, sizeof(struct image *));
	if (!frozen->images)
		return -ENOMEM;
	for (size_t i = 0; i < target->n_images; i++)
		frozen->images[frozen->n_images++] = image_ref(target->images[i]);
	return 0;
}

static int freeze_texts(const struct target *target, struct frozen *frozen)
{
	memcpy(frozen->name, target->name, sizeof(frozen->name));
	memcpy(frozen->comm, target->comm, sizeof(frozen->comm));
	memcpy(frozen->suspended, target->suspended, sizeof(frozen->suspended));
	frozen->suspended_ns = target->ended_ns;
	if (target->unit && !(frozen->unit = strdup(target->unit)))
		return -ENOMEM;
	if (target->exe && !(frozen->exe = strdup(target->exe)))
		return -ENOMEM;
	for (size_t i = 0; i < target->n_warnings; i++) {
		frozen->warnings[i] = strdup(target->warnings[i]);
		if (!frozen->warnings[i])
			return -ENOMEM;
		frozen->n_warnings++;
	}
	return 0;
}

static int freeze_producers(const struct target *target, struct frozen *frozen)
{
	const struct member *member = NULL;
	struct producer *p = NULL;

	while ((p = target_next_producer(target, &member, p)) != NULL) {
		struct frozen_producer *bigger;

		if (frozen->n_producers == FROZEN_PRODUCERS_MAX) {
			frozen->producers_left_out++;
			continue;
		}
		bigger = reallocarray(frozen->producers, frozen->n_producers + 1, sizeof(*bigger));
		if (!bigger)
			return -ENOMEM;
		frozen->producers = bigger;
		frozen->producers[frozen->n_producers++] =
			(struct frozen_producer){.producer = producer_ref(p), .aside_fd = -1};
	}
	return 0;
}

/* What explains the recording. */
static int freeze_history(const struct target *target, struct frozen *frozen)
{
	int r;

	frozen->history_lost = target_history_lost(target);
	frozen->images_missing = target_images_missing(target);
	frozen->left_out = target->left_out;
	r = freeze_members(target, frozen);
	if (r == 0)
		r = freeze_images(target, frozen);
	return r < 0 ? r : sideband_log_freeze(&target->log, &frozen->sideband);
}

static void free_history(struct frozen *frozen)
{
	for (size_t i = 0; i < frozen->n_members; i++) {
		(void)root_put(frozen->members[i].root);
		(void)cred_unref(frozen->members[i].cred);
	}
	for (size_t i = 0; i < frozen->n_images; i++)
		(void)image_put(frozen->images[i]);
	sideband_log_view_fini(&frozen->sideband);
	free(frozen->members);
	free(frozen->images);
}

void frozen_renew(struct frozen *frozen)
{
	struct target *target = targets_next(frozen->targets, frozen->target_id - 1);
	struct frozen new = {0}, old = *frozen;

	/* What was read again in the place of lost records is in it. */
	if (!target || target_id(target) != frozen->target_id || frozen->resync.begun)
		return;
	sideband_events_drain(frozen->targets->sideband);
	target_recheck(target);
	if (freeze_history(target, &new) < 0) {
		free_history(&new);
		return;
	}
	frozen->admin_only |= target_is_admins(target);
	frozen->history_lost = new.history_lost;
	frozen->images_missing = new.images_missing;
	frozen->left_out = new.left_out;
	frozen->n_hidden = new.n_hidden;
	frozen->members = new.members;
	frozen->n_members = new.n_members;
	frozen->images = new.images;
	frozen->n_images = new.n_images;
	frozen->sideband = new.sideband;
	free_history(&old);
}

/* ---- waiting for lost records */

static void resync_end(struct frozen *frozen)
{
	if (!frozen->resync.waits)
		return;
	frozen->resync.waits = false;
	event_free(frozen->resync.limit);
	frozen->resync.limit = NULL;
}

static void add_sideband(struct frozen *frozen, const struct target *target,
			 const struct sideband_log *log)
{
	struct image **images = frozen->images;
	size_t n_images = frozen->n_images;
	struct sideband_log_view more;

	if (sideband_log_freeze(log, &more) == 0 &&
	    sideband_log_view_join(&frozen->sideband, &more) < 0)
		sideband_log_view_fini(&more);
	/* With the files that it maps. */
	frozen->n_images = 0;
	if (freeze_images(target, frozen) < 0) {
		frozen->images = images;
		frozen->n_images = n_images;
		return;
	}
	while (n_images > 0)
		(void)image_put(images[--n_images]);
	free(images);
}

/* It is out of the target's list. */
static void on_resynced(struct resync_wait *wait, const struct target *target,
			const struct sideband_log *log)
{
	struct frozen *frozen =
		(struct frozen *)((char *)wait - offsetof(struct frozen, resync.wait));

	resync_end(frozen);
	if (log)
		add_sideband(frozen, target, log);
	frozen_go_on(frozen);
}

static void on_resync_limit(evutil_socket_t fd, short what, void *arg)
{
	struct frozen *frozen = arg;

	LIST_REMOVE(&frozen->resync.wait, link);
	resync_end(frozen);
	frozen_go_on(frozen);
}

/*
 * The moment of the freeze does not move: the records that are read again carry the time of the
 * loss, which is before it, and later ones of the kernel are in the log with their own time. The
 * snapshot reports the loss in any case.
 */
static int await_resync(struct target *target, struct frozen *frozen)
{
	const struct timeval limit = {.tv_sec = RESYNC_SECONDS};

	frozen->resync.limit = evtimer_new(target->targets->base, on_resync_limit, frozen);
	if (!frozen->resync.limit || event_add(frozen->resync.limit, &limit) < 0)
		return -ENOMEM;
	frozen->resync.begun = frozen->resync.waits = true;
	frozen->resync.wait.done = on_resynced;
	LIST_INSERT_HEAD(&target->waiting, &frozen->resync.wait, link);
	return 0;
}

int target_freeze(struct target *target, bool admin, struct frozen **ret)
{
	_cleanup_(frozen_freep) struct frozen *frozen = NULL;
	struct targets *targets = target->targets;
	int r;

	frozen = calloc(1, sizeof(*frozen));
	if (!frozen)
		return -ENOMEM;
	frozen->vdso_fd = frozen->kallsyms_fd = frozen->kcore_fd = -1;
	frozen->raw_ns = clock_raw_ns();
	frozen->unix_ns = wall_clock_ns();
	/* What happened until this moment may still lie in the side-band rings. */
	sideband_events_drain(targets->sideband);
	target_recheck(target);

	frozen->backend = target->backend;
	frozen->scope = target->scope;
	frozen->pid = target_pid(target);
	frozen->tid = target->tid;
	frozen->start_time = target->proc.start_time;
	frozen->targets = targets;
	frozen->target_id = target->id;
	frozen->openings = targets->openings;
	frozen->uid = target->uid;
	frozen->owner = target->owner;
	frozen->admin_only = target_is_admins(target);
	frozen->state = target->state;
	frozen->stacks = target->stacks;
	frozen->waits = target->waits;
	frozen->armed_ns = target->armed_ns;
	frozen->armed_unix_ns = target->armed_unix_ns;
	frozen->admin = admin;
	frozen->oldest_ns = target->armed_ns;
	frozen->method = "none";
	r = freeze_texts(target, frozen);
	if (r == 0)
		r = freeze_history(target, frozen);
	if (r < 0)
		return r;
	if (target->kallsyms_fd >= 0)
		frozen->kallsyms_fd = fcntl(target->kallsyms_fd, F_DUPFD_CLOEXEC, 3);
	if (target->kcore_fd >= 0 && admin)
		frozen->kcore_fd = fcntl(target->kcore_fd, F_DUPFD_CLOEXEC, 3);
	if (targets->vdso_fd >= 0)
		frozen->vdso_fd = fcntl(targets->vdso_fd, F_DUPFD_CLOEXEC, 3);
	r = frozen->backend->freeze ? frozen->backend->freeze(target, frozen) : 0;
	if (!frozen->stopped_ns)
		frozen->stopped_ns = clock_raw_ns();
	if (r == 0)
		r = freeze_producers(target, frozen);
	if (r == 0)
		r = frozen_go_ask(frozen, targets);
	if (r == 0 && target_has_work(target, WORK_RESYNC))
		r = await_resync(target, frozen);
	if (r < 0)
		return r;
	*ret = take_ptr(frozen);
	return 0;
}

bool frozen_waits(const struct frozen *frozen)
{
	return frozen->pending || frozen->resync.waits;
}

void frozen_go_on(struct frozen *frozen)
{
	if (!frozen->pending && frozen->ready)
		frozen->ready(frozen->ready_arg);
}

void frozen_when_ready(struct frozen *frozen, void (*fn)(void *arg), void *arg)
{
	frozen->ready = fn;
	frozen->ready_arg = arg;
}

void frozen_about(const struct frozen *frozen, struct perfdata_about *about)
{
	about->aux_pmu = frozen->aux_pmu;
	about->aux_pmu_type = frozen->aux_pmu_type;
	about->vdso = frozen->aux_pmu && frozen->vdso_fd >= 0;
}

bool frozen_comes_later(const struct frozen *frozen)
{
	return frozen->pending && frozen->backend->set_aside;
}

/* Rings that nobody has written to are holes, and take none. */
static uint64_t memory_of(int fd, const struct producer_copy_stats *stats)
{
	struct stat st;
	uint64_t bytes;

	if (fstat(fd, &st) < 0)
		return stats->bytes;
	bytes = (uint64_t)st.st_blocks * 512;
	return bytes < stats->bytes ? bytes : stats->bytes;
}

/* Programs write on, too. What does not fit is copied later. */
static uint64_t set_aside_producers(struct frozen *frozen, uint64_t max_bytes)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < frozen->n_producers && !atomic_load(frozen->cancel); i++) {
		struct frozen_producer *p = &frozen->producers[i];
		_cleanup_close_ int fd = io_memfd("event-rings");

		if (fd < 0 ||
		    producer_copy(p->producer, fd, max_bytes - bytes, frozen->cancel,
				  &p->stats) < 0 ||
		    p->stats.rings_left_out) {
			p->stats = (struct producer_copy_stats){0};
			frozen->not_aside = true;
			continue;
		}
		bytes += memory_of(fd, &p->stats);
		p->aside_fd = take_fd(&fd);
	}
	return bytes;
}

uint64_t frozen_set_aside(struct frozen *frozen, uint64_t max_bytes, const atomic_bool *cancel,
			  bool *ret_all)
{
	uint64_t bytes;

	frozen->cancel = cancel;
	bytes = set_aside_producers(frozen, max_bytes);
	if (frozen->backend->set_aside && !atomic_load(cancel))
		bytes += frozen->backend->set_aside(frozen, max_bytes - bytes);
	*ret_all = !frozen->not_aside;
	return bytes;
}

int frozen_take(struct frozen *frozen)
{
	return frozen->backend->take ? frozen->backend->take(frozen) : 0;
}

int frozen_import(struct frozen *frozen, int dir_fd, uint64_t max_bytes, const atomic_bool *cancel,
		  uint64_t *ret_bytes)
{
	return frozen->backend->import
		       ? frozen->backend->import(frozen, dir_fd, max_bytes, cancel, ret_bytes)
		       : CAPTURE_E_OWN;
}

const char *frozen_missing(const struct frozen *frozen, const char **ret_why)
{
	*ret_why = frozen->missing_why;
	return frozen->missing;
}

bool frozen_has_producers(const struct frozen *frozen)
{
	return frozen->n_producers > 0;
}

void frozen_resume(struct frozen *frozen)
{
	if (frozen->backend->resume)
		frozen->backend->resume(frozen);
}

struct frozen *frozen_free(struct frozen *frozen)
{
	if (!frozen)
		return NULL;
	if (frozen->resync.waits)
		LIST_REMOVE(&frozen->resync.wait, link);
	if (frozen->resync.limit)
		event_free(frozen->resync.limit);
	if (frozen->recording) {
		frozen_resume(frozen);
		frozen->backend->free(frozen);
	}
	free_history(frozen);
	for (size_t i = 0; i < frozen->n_warnings; i++)
		free(frozen->warnings[i]);
	frozen_go_fini(frozen);
	for (size_t i = 0; i < frozen->n_producers; i++) {
		close_fdp(&frozen->producers[i].aside_fd);
		(void)producer_unref(frozen->producers[i].producer);
	}
	free(frozen->producers);
	(void)close_fd(frozen->vdso_fd);
	(void)close_fd(frozen->kallsyms_fd);
	(void)close_fd(frozen->kcore_fd);
	hashmap_fini(&frozen->kernel_addrs);
	free(frozen->unit);
	free(frozen->exe);
	free(frozen);
	return NULL;
}

/* ---- asking */

/* Whether an entry of the process, hidden or not, is of that time. */
static bool has_entry(const struct frozen *frozen, bool hidden, uint32_t pid, uint64_t time_ns)
{
	size_t low = 0, high = frozen->n_members;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if ((uint32_t)frozen->members[mid].pid < pid)
			low = mid + 1;
		else
			high = mid;
	}
	for (; low < frozen->n_members && (uint32_t)frozen->members[low].pid == pid; low++)
		if (frozen->members[low].hidden == hidden &&
		    time_ns >= frozen->members[low].from_ns &&
		    time_ns <= frozen->members[low].to_ns)
			return true;
	return false;
}

bool frozen_has(const struct frozen *frozen, uint32_t pid, uint64_t time_ns)
{
	return has_entry(frozen, false, pid, time_ns);
}

bool frozen_hides(const struct frozen *frozen, uint32_t pid, uint64_t time_ns)
{
	return frozen->n_hidden && has_entry(frozen, true, pid, time_ns);
}

const struct frozen_member *frozen_member(const struct frozen *frozen, pid_t pid)
{
	for (size_t i = frozen->n_members; i > 0; i--)
		if (frozen->members[i - 1].pid == pid && !frozen->members[i - 1].hidden)
			return &frozen->members[i - 1];
	return NULL;
}

uint64_t frozen_recorded_from(const struct frozen *frozen)
{
	uint64_t from = UINT64_MAX;

	for (size_t i = 0; i < frozen->n_members; i++)
		if (frozen->members[i].from_ns < from)
			from = frozen->members[i].from_ns;
	return from == UINT64_MAX ? 0 : from;
}

uid_t frozen_uid(const struct frozen *frozen)
{
	return frozen->uid;
}

bool frozen_has_kernel_stacks(const struct frozen *frozen)
{
	return frozen->kernel_stacks || frozen->kernel_waits;
}

const struct hashmap *frozen_kernel_addresses(const struct frozen *frozen)
{
	return frozen->kernel_stacks ? NULL : &frozen->kernel_addrs;
}

int frozen_see_kernel(struct frozen *frozen, const uint64_t *addrs, size_t n)
{
	int r = 0;

	for (size_t i = 0; i < n && r == 0; i++)
		r = hashmap_put(&frozen->kernel_addrs, 0, addrs[i], addrs[i]);
	return r;
}

int frozen_kallsyms_fd(const struct frozen *frozen)
{
	return frozen->kallsyms_fd;
}

int frozen_kcore_fd(const struct frozen *frozen)
{
	return frozen->kcore_fd;
}

bool frozen_admin_only(const struct frozen *frozen)
{
	return frozen->admin_only;
}

bool frozen_was_armed(const struct frozen *frozen)
{
	return frozen->state == TARGET_ARMED;
}

uint64_t frozen_raw_ns(const struct frozen *frozen)
{
	return frozen->raw_ns;
}

uint64_t frozen_until_ns(const struct frozen *frozen)
{
	return frozen->until_ns > frozen->raw_ns ? frozen->until_ns : frozen->raw_ns;
}

uint64_t frozen_stopped_ns(const struct frozen *frozen)
{
	return frozen->stopped_ns;
}

uint64_t frozen_unix_ns(const struct frozen *frozen)
{
	return frozen->unix_ns;
}

int frozen_image_fd(const struct frozen *frozen, uint32_t major, uint32_t minor, uint64_t ino,
		    const struct filenote **ret_note)
{
	for (size_t i = 0; i < frozen->n_images; i++) {
		const struct image_key *key = image_key(frozen->images[i]);

		if (key->ino != ino || key->maj != major || key->min != minor)
			continue;
		*ret_note = image_note(frozen->images[i]);
		return image_fd(frozen->images[i]);
	}
	return -1;
}

int frozen_open(struct frozen *frozen, const struct file_request *file, uint64_t max_copy,
		opening_fn fn, void *arg, struct opening **ret)
{
	const struct frozen_member *member =
		frozen_member(frozen, file->pid > 0 ? file->pid : frozen->pid);
	struct file_request own = *file;
	struct opening_request request = {.file = &own, .mapped_fd = -1, .max_copy = max_copy};

	/*
	 * A process that a stepped program started is no member of the target; most likely it sees
	 * the same files.
	 */
	if (!member && frozen->backend->import)
		member = frozen_member(frozen, frozen->pid);
	if (!member || !member->root || !member->cred || !frozen->openings)
		return -ESRCH;
	/* A user's snapshot has what that user could read, whatever the process is now. */
	if (!frozen->admin_only && !cred_is_of(member->cred, frozen->uid))
		return -EACCES;
	own.nspid = member->pid == file->pid ? member->nspid : -1;
	request.cred = member->cred;
	request.root_fd = root_fd(member->root);
	return opening_start(frozen->openings, &request, fn, arg, ret);
}

int frozen_vdso_fd(const struct frozen *frozen)
{
	return frozen->vdso_fd;
}

/* ---- copying */

int frozen_copy(struct frozen *frozen, struct perfdata_writer *writer, struct frozen_stats *ret)
{
	struct frozen_stats stats = {
		.history_lost = frozen->history_lost,
		.history_dropped = frozen->sideband.dropped,
		.images_missing = frozen->images_missing,
		.processes_left_out = frozen->left_out,
		.processes_refused = frozen->n_hidden,
	};
	int r;

	r = frozen_copy_sideband(frozen, writer, &stats);
	if (r < 0)
		return r;
	r = frozen->backend->copy ? frozen->backend->copy(frozen, writer, &stats) : 0;
	if (r < 0)
		return r;
	*ret = stats;
	return 0;
}

/* ---- event rings */

/* By the process; a number is appended where one process has registered twice. */
static void name_producer(const struct frozen *frozen, size_t index, char *buf, size_t size)
{
	const struct producer *p = frozen->producers[index].producer;
	unsigned long long start = producer_start_time(p);
	unsigned int before = 0;

	for (size_t i = 0; i < index; i++)
		before += producer_pid(frozen->producers[i].producer) == producer_pid(p) &&
			  producer_start_time(frozen->producers[i].producer) == start;
	if (before)
		(void)snprintf(buf, size, BUNDLE_RINGS "/%d-%llu-%u.ring", (int)producer_pid(p),
			       start, before);
	else
		(void)snprintf(buf, size, BUNDLE_RINGS "/%d-%llu.ring", (int)producer_pid(p),
			       start);
}

/* Holes stay holes. */
static int copy_data(int from, int to)
{
	const off_t size = lseek(from, 0, SEEK_END);
	off_t at = 0;

	while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
		const off_t end = lseek(from, at, SEEK_HOLE);

		if (end < 0 || lseek(to, at, SEEK_SET) < 0)
			return -errno;
		while (at < end) {
			const ssize_t n = sendfile(to, from, &at, (size_t)(end - at));

			if (n <= 0)
				return n < 0 ? -errno : -EIO;
		}
	}
	return size < 0 || errno != ENXIO || ftruncate(to, size) < 0 ? -errno : 0;
}

static int copy_producer(struct frozen_producer *p, int fd, uint64_t left,
			 const atomic_bool *cancel)
{
	_cleanup_close_ int aside = take_fd(&p->aside_fd);

	/*
	 * Of what does not fit as a whole the rings that do are kept: they are read where they are.
	 */
	if (aside < 0 || p->stats.bytes > left)
		return producer_copy(p->producer, fd, left, cancel, &p->stats);
	return copy_data(aside, fd);
}

int frozen_copy_producers(struct frozen *frozen, int dir_fd, uint64_t max_bytes,
			  const atomic_bool *cancel, bool *ret_cut)
{
	bool cut = frozen->producers_left_out > 0;
	uint64_t left = max_bytes;

	for (size_t i = 0; i < frozen->n_producers; i++) {
		struct frozen_producer *p = &frozen->producers[i];
		_cleanup_close_ int fd = -1;
		char name[sizeof(p->file)];
		int r;

		name_producer(frozen, i, name, sizeof(name));
		r = safefile_create(dir_fd, name, &fd);
		if (r < 0)
			return r;
		r = copy_producer(p, fd, left, cancel);
		if (r == -EFBIG) {
			cut = true;
			(void)unlinkat(dir_fd, name, 0);
			continue;
		}
		if (r < 0)
			return r;
		memcpy(p->file, name, sizeof(name));
		left -= p->stats.bytes;
		cut = cut || p->stats.rings_left_out > 0;
	}
	*ret_cut = cut;
	return 0;
}

void frozen_published(struct frozen *frozen)
{
	for (size_t i = 0; i < frozen->n_producers; i++)
		if (frozen->producers[i].file[0] && frozen->producers[i].stats.ended)
			producer_collected(frozen->producers[i].producer);
}
