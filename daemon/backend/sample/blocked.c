// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/blocked.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "common/base/address.h"
#include "common/base/hashmap.h"
#include "common/base/log.h"
#include "common/base/pids.h"
#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"
#include "daemon/base/readers.h"
#include "daemon/caps.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/sample/filter.h"
#include "daemon/backend/sample/sampling.h"

#define KEPT_MAX (16u << 20)
#define KEPT_THREADS_MAX 512
#define STACK_MAX 61440u /* a record has 64 KiB */
#define CS_64 0x33u	 /* of the ABI: the code segment of 64-bit programs */

/* Places in struct pt_regs. */
enum {
	R15,
	R14,
	R13,
	R12,
	BP,
	BX,
	R11,
	R10,
	R9,
	R8,
	AX,
	CX,
	DX,
	SI,
	DI,
	ORIG_AX,
	IP,
	CS,
	FLAGS,
	SP,
	SS
};

struct blocked {
	struct reader_job job; /* first */
	/* the loop's */
	unsigned int refs;
	struct targets *targets;
	/* of a freeze for a user: whose authority must not have ended; "": nobody asks */
	char target[24];
	bool of_freeze;
	bool keeps; /* what it has counts in kept_bytes */
	/* of the loop, and of who waits for it */
	pthread_mutex_t mutex;
	pthread_cond_t cond;
	bool done;
	/* the thread's, then the copier's */
	int tasks_fd;
	pid_t tid; /* 0: all threads */
	pid_t *pids; /* sorted */
	size_t n_pids;
	size_t stack_bytes;
	struct blocked_stack *stacks;
	size_t n_stacks, max_stacks;
	struct hashmap by_tid; /* index + 1 */
	uint64_t asleep_ns;    /* all of them were */
	uint64_t missing;
	int result;
};

/* Of all targets, from when they were armed. */
static size_t kept_bytes;

/* ---- on a thread */

static void on_sleeping(void *arg, const struct filter_task *task)
{
	struct blocked *b = arg;
	const pid_t pid = (pid_t)task->pid;

	if (b->tid ? (pid_t)task->tid != b->tid : !pids_have(b->pids, b->n_pids, pid))
		return;
	if (b->n_stacks == b->max_stacks || task->regs[CS] != CS_64 ||
	    hashmap_put(&b->by_tid, 0, task->tid, b->n_stacks + 1) < 0) {
		b->missing++;
		return;
	}
	b->stacks[b->n_stacks++] = (struct blocked_stack){.task = *task};
}

/*
 * By /proc/PID/task/TID/mem: who waits for memory there can be killed, as he cannot in
 * process_vm_readv(). What is there is had where the stack ends.
 */
static void read_stack(struct blocked *b, int mem_fd, struct blocked_stack *s)
{
	ssize_t got;

	s->bytes = calloc(1, b->stack_bytes);
	if (!s->bytes || s->task.regs[SP] >= KERNEL_HALF)
		return;
	got = pread(mem_fd, s->bytes, b->stack_bytes, (off_t)s->task.regs[SP]);
	s->size = got > 0 ? (uint32_t)got & ~7u : 0;
}

static void read_stacks(struct blocked *b)
{
	_cleanup_close_ int mem_fd = -1;
	uint32_t pid = 0;
	char path[48];

	for (size_t i = 0; i < b->n_stacks; i++) {
		if (mem_fd < 0 || b->stacks[i].task.pid != pid) {
			pid = b->stacks[i].task.pid;
			close_fdp(&mem_fd);
			/* The process has none where its main thread has ended and others go on. */
			(void)snprintf(path, sizeof(path), "/proc/%" PRIu32 "/task/%" PRIu32 "/mem",
				       pid, b->stacks[i].task.tid);
			/* its owner's alone; besides, the kernel asks for CAP_SYS_PTRACE */
			caps_look_into_folders(true);
			mem_fd = open(path, O_RDONLY | O_CLOEXEC);
			caps_look_into_folders(false);
		}
		if (mem_fd >= 0)
			read_stack(b, mem_fd, &b->stacks[i]);
	}
}

/* Those that were let go of are still in the map. */
static struct blocked_stack *find(const struct blocked *b, uint32_t tid)
{
	const uint32_t i = hashmap_index(&b->by_tid, 0, tid);

	return i && i <= b->n_stacks ? &b->stacks[i - 1] : NULL;
}

static void on_still_sleeping(void *arg, const struct filter_task *task)
{
	struct blocked_stack *s = find(arg, task->tid);

	if (s && s->task.pid == task->pid && s->task.switches == task->switches)
		s->slept = true;
}

static void run(struct reader_job *job)
{
	struct blocked *b = (struct blocked *)job;

	if (job->risks_last) {
		b->result = -EBUSY;
		return;
	}
	b->result = filter_tasks(b->tasks_fd, on_sleeping, b);
	b->asleep_ns = clock_raw_ns();
	read_stacks(b);
	if (b->result == 0)
		b->result = filter_tasks(b->tasks_fd, on_still_sleeping, b);
	for (size_t i = 0; i < b->n_stacks; i++)
		b->missing += b->stacks[i].slept && b->stacks[i].size == 0;
}

/* ---- on the loop */

static size_t bytes_of(const struct blocked *b)
{
	return b->n_stacks * (sizeof(*b->stacks) + b->stack_bytes);
}

static void drop_stacks(struct blocked *b)
{
	if (b->keeps)
		kept_bytes -= bytes_of(b);
	b->keeps = false;
	for (size_t i = 0; i < b->n_stacks; i++)
		free(b->stacks[i].bytes);
	b->n_stacks = 0;
}

struct blocked *blocked_ref(struct blocked *b)
{
	if (b)
		b->refs++;
	return b;
}

static struct blocked *unref(struct blocked *b)
{
	if (--b->refs > 0)
		return NULL;
	drop_stacks(b);
	(void)pthread_cond_destroy(&b->cond);
	(void)pthread_mutex_destroy(&b->mutex);
	free(b->stacks);
	free(b->pids);
	hashmap_fini(&b->by_tid);
	(void)close_fd(b->tasks_fd);
	free(b);
	return NULL;
}

struct blocked *blocked_put(struct blocked *b)
{
	return b ? unref(b) : NULL;
}

/*
 * A user's program may have become one that he may not look into, before its stack was read. Then
 * its recording has ended, and whoever keeps those of when it was armed has let go of them.
 */
static bool may_have(const struct blocked *b)
{
	const struct target *target;

	sideband_events_drain(b->targets->sideband);
	if (!b->target[0])
		return true;
	target = targets_find(b->targets, b->target, 0, true, NULL);
	return target && target->state == TARGET_ARMED;
}

/* Those of when a target was armed stay, as long as they are few. */
static void keep(struct blocked *b)
{
	struct blocked_stack *fewer =
		b->n_stacks ? reallocarray(b->stacks, b->n_stacks, sizeof(*fewer)) : NULL;

	if (fewer)
		b->stacks = fewer;
	if (kept_bytes + bytes_of(b) > KEPT_MAX) {
		drop_stacks(b);
		return;
	}
	kept_bytes += bytes_of(b);
	b->keeps = true;
}

static void on_done(struct reader_job *job)
{
	struct blocked *b = (struct blocked *)job;

	if (b->result < 0)
		log_debug("threads that are blocked: %s", strerror(-b->result));
	/* Asking may have them let go of. At the daemon's end there is nobody to ask. */
	if (b->refs == 1 || b->result < 0 || !may_have(b) || b->refs == 1)
		drop_stacks(b);
	b->missing += b->result < 0;
	if (!b->of_freeze)
		keep(b);
	(void)pthread_mutex_lock(&b->mutex);
	b->done = true;
	(void)pthread_cond_broadcast(&b->cond);
	(void)pthread_mutex_unlock(&b->mutex);
	(void)unref(b);
}

/* On its way, with a reference of the caller's and one of the thread's. 0, -errno. */
static int begin(const struct target *target, const struct frozen *frozen, size_t stack_bytes,
		 struct blocked **ret)
{
	const struct filter *filter = sampler_filter(sampler_of(target->targets));
	/* the registers are those of x86-64 */
	const int fd = filter && PERFABI_REGS_USER == PERFABI_REGS_X86_64 ? filter_tasks_fd(filter)
									  : -EOPNOTSUPP;
	pthread_condattr_t clock;
	struct blocked *b;
	int r;

	if (fd < 0)
		return fd;
	b = calloc(1, sizeof(*b));
	if (!b) {
		(void)close_fd(fd);
		return -ENOMEM;
	}
	(void)pthread_mutex_init(&b->mutex, NULL);
	(void)pthread_condattr_init(&clock);
	(void)pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
	(void)pthread_cond_init(&b->cond, &clock);
	(void)pthread_condattr_destroy(&clock);
	b->refs = 1;
	b->tasks_fd = fd;
	b->targets = target->targets;
	b->tid = target->scope == TARGET_THREAD ? target->tid : 0;
	b->stack_bytes = (stack_bytes < STACK_MAX ? stack_bytes : STACK_MAX) & ~(size_t)7;
	b->of_freeze = frozen != NULL;
	if (frozen && !frozen->admin)
		(void)snprintf(b->target, sizeof(b->target), "%s", frozen->name);
	b->max_stacks = frozen ? BLOCKED_THREADS_MAX : KEPT_THREADS_MAX;
	b->stacks = calloc(b->max_stacks, sizeof(*b->stacks));
	r = b->stacks ? members_pids(target, true, &b->pids, &b->n_pids) : -ENOMEM;
	b->job = (struct reader_job){.run = run, .done = on_done};
	if (r == 0 && !work_queue_read(target, &b->job))
		r = -EBUSY;
	if (r < 0) {
		(void)unref(b);
		return r;
	}
	b->refs++;
	pids_sort(b->pids, b->n_pids);
	*ret = b;
	return 0;
}

int blocked_at_arming(const struct target *target, size_t stack_bytes, struct blocked **ret)
{
	return begin(target, NULL, stack_bytes, ret);
}

int blocked_at_freeze(const struct target *target, const struct frozen *frozen, size_t stack_bytes,
		      struct blocked **ret)
{
	return begin(target, frozen, stack_bytes, ret);
}

bool blocked_is_done(const struct blocked *b)
{
	return b->done;
}

/* ---- on the copier thread */

const struct blocked_stack *blocked_next(const struct blocked *b, const struct hashmap *seen,
					 uint64_t complete_ns, size_t *pos)
{
	while (*pos < b->n_stacks) {
		const struct blocked_stack *s = &b->stacks[(*pos)++];
		const uint64_t seen_ns = seen ? hashmap_get(seen, 0, s->task.tid) : 0;

		/*
		 * What the rings have of its wait is more, and what ran after the freeze may wait
		 * in something else.
		 */
		if (s->slept && s->size > 0 && (seen_ns == 0 || seen_ns < complete_ns))
			return s;
	}
	return NULL;
}

bool blocked_is_later(const struct blocked *b, uint32_t tid, uint64_t switches)
{
	const struct blocked_stack *s = find(b, tid);

	return s && s->task.switches != switches;
}

const struct filter_task *blocked_task(const struct blocked *b, uint32_t tid, uint64_t switches)
{
	const struct blocked_stack *s = find(b, tid);

	return s && s->slept && s->task.switches == switches ? &s->task : NULL;
}

bool blocked_await(struct blocked *b, unsigned int ms)
{
	struct timespec until;
	bool done;
	int r = 0;

	(void)clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += (long)ms * 1000000;
	until.tv_sec += until.tv_nsec / 1000000000;
	until.tv_nsec %= 1000000000;
	(void)pthread_mutex_lock(&b->mutex);
	while (!b->done && ms && r == 0)
		r = pthread_cond_timedwait(&b->cond, &b->mutex, &until);
	done = b->done;
	(void)pthread_mutex_unlock(&b->mutex);
	return done;
}

uint64_t blocked_asleep_ns(const struct blocked *b)
{
	return b->asleep_ns;
}

uint64_t blocked_missing(const struct blocked *b)
{
	return b->missing;
}

void blocked_attr(const struct blocked *b, struct perf_event_attr *attr)
{
	attr->sample_type |= PERF_SAMPLE_CALLCHAIN | PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER;
	attr->exclude_callchain_user = 1;
	attr->sample_regs_user = PERFABI_REGS_USER;
	attr->sample_stack_user = (uint32_t)b->stack_bytes;
}

size_t blocked_record(const struct blocked *b, const struct blocked_stack *s, bool kernel,
		      uint64_t id, uint64_t time_ns, void *record)
{
	/* in the order of PERF_REG_X86_*, those that PERFABI_REGS_X86_64 has */
	static const uint8_t regs[] = {AX, BX, CX, DX, SI,  DI,  BP,  SP,  IP,  FLAGS,
				       CS, SS, R8, R9, R10, R11, R12, R13, R14, R15};
	struct {
		struct perf_event_header header;
		uint64_t id, ip;
		uint32_t pid, tid;
		uint64_t time;
		uint32_t cpu, reserved;
		uint64_t n_chain;
	} head = {
		.header = {.type = PERF_RECORD_SAMPLE, .misc = PERF_RECORD_MISC_USER},
		.id = id,
		.ip = s->task.regs[IP],
		.pid = s->task.pid,
		.tid = s->task.tid,
		.time = time_ns,
	};
	struct {
		uint32_t raw_size;
		struct tracerd_sched_event ev;
		uint32_t raw_padding;
		uint64_t abi, regs[ARRAY_SIZE(regs)];
		uint64_t stack_size;
	} rest = {
		.raw_size = sizeof(rest.ev) + sizeof(rest.raw_padding),
		.ev = {.magic = SCHEDEV_MAGIC,
		       .kind = SCHEDEV_BLOCKED,
		       .flags = s->task.flags,
		       .pid = s->task.pid,
		       .tid = s->task.tid,
		       .state = s->task.state,
		       .call = s->task.call,
		       .other_pid = SCHEDEV_MASKED_ID,
		       .other_tid = SCHEDEV_MASKED_ID,
		       .other_uid = SCHEDEV_MASKED_ID},
		.abi = PERF_SAMPLE_REGS_ABI_64,
		.stack_size = b->stack_bytes,
	};
	const uint64_t valid = s->size, mark = (uint64_t)PERF_CONTEXT_KERNEL;
	const size_t n = kernel ? s->task.n_kernel : 0;
	uint8_t *at = record;

	for (size_t i = 0; i < ARRAY_SIZE(regs); i++)
		rest.regs[i] = s->task.regs[regs[i]];
	head.n_chain = n ? n + 1 : 0;
	head.header.size = (uint16_t)(sizeof(head) + head.n_chain * sizeof(mark) + sizeof(rest) +
				      b->stack_bytes + sizeof(valid));
	at = mempcpy(at, &head, sizeof(head));
	if (n) {
		at = mempcpy(at, &mark, sizeof(mark));
		at = mempcpy(at, s->task.kernel, n * sizeof(*s->task.kernel));
	}
	at = mempcpy(at, &rest, sizeof(rest));
	at = mempcpy(at, s->bytes, b->stack_bytes);
	memcpy(at, &valid, sizeof(valid));
	return head.header.size;
}
