// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/unwound.h"

#include <errno.h>
#include <string.h>

#include "common/base/address.h"
#include "common/bundle/perfabi.h"
#include "daemon/backend/sample/bpf/unwind.h"

struct out {
	uint8_t *at, *end;
};

/* What a record is made of. */
struct unwound {
	struct perf_event_header header;
	uint64_t id, time, ip;
	uint32_t pid, tid, cpu; /* whose stack it is */
	struct tracerd_sched_event ev;
	const uint8_t *addrs;
	size_t n;
	const uint64_t *kernel; /* the kernel's part, where it is not among the addresses */
	size_t n_kernel;
};

/* What addresses are followed by. */
struct words {
	const uint8_t *at;
	size_t n;
};

static void put(struct out *out, const void *data, size_t size)
{
	if (size > (size_t)(out->end - out->at)) {
		out->end = out->at; /* and all that follows */
		return;
	}
	memcpy(out->at, data, size);
	out->at += size;
}

static void put_u64(struct out *out, uint64_t v)
{
	put(out, &v, sizeof(v));
}

/*
 * The chain as the kernel writes one: marks, and behind each addresses. What is no user's address
 * ends that part.
 */
static void put_chain(struct out *out, struct words kernel, const uint8_t *addrs, size_t n)
{
	uint64_t addr[UNWIND_SAMPLE_FRAMES];
	size_t kept = 0;

	for (; kept < n && kept < UNWIND_SAMPLE_FRAMES; kept++) {
		memcpy(&addr[kept], addrs + kept * sizeof(*addr), sizeof(*addr));
		if (addr[kept] >= KERNEL_HALF)
			break;
	}
	put_u64(out, kept + 1 + (kernel.n ? kernel.n + 1 : 0));
	if (kernel.n) {
		put_u64(out, (uint64_t)PERF_CONTEXT_KERNEL);
		put(out, kernel.at, kernel.n * sizeof(*addr));
	}
	put_u64(out, (uint64_t)PERF_CONTEXT_USER);
	put(out, addr, kept * sizeof(*addr));
}

_Static_assert(sizeof(struct tracerd_sched_event) % sizeof(uint64_t) == 0,
	       "the record stays aligned");

/* A payload: as long as the kernel makes it, so that what is behind it is aligned. */
static void put_raw(struct out *out, const void *head, size_t size, struct words words)
{
	const uint32_t all = (uint32_t)(size + words.n * sizeof(uint64_t) + sizeof(uint32_t)),
		       rest = 0;

	put(out, &all, sizeof(all));
	put(out, head, size);
	if (words.n)
		put(out, words.at, words.n * sizeof(uint64_t));
	put(out, &rest, sizeof(rest));
}

static uint64_t word(const uint8_t *words, size_t i)
{
	uint64_t v;

	memcpy(&v, words + i * sizeof(v), sizeof(v));
	return v;
}

/*
 * Splits what the program has written: the first address of the kernel's half is no address, but
 * the head of what follows.
 */
static void take_words(const uint8_t *addrs, size_t *n, struct words *ret_python,
		       struct words *ret_kernel)
{
	const size_t all = *n;
	size_t at = 0;

	*ret_python = *ret_kernel = (struct words){.n = 0};
	while (at < all && word(addrs, at) < KERNEL_HALF)
		at++;
	*n = at;
	if (at < all && (word(addrs, at) & PYTHON_HEAD_MASK) == PYTHON_HEAD) {
		const size_t words = PYTHON_COUNT(word(addrs, at)) + 1u;

		if (words > all - at)
			return;
		*ret_python = (struct words){.at = addrs + at * sizeof(uint64_t), .n = words};
		at += words;
	}
	if (at < all && (word(addrs, at) & SCHEDEV_KERNEL_HEAD_MASK) == SCHEDEV_KERNEL_HEAD) {
		const size_t words = SCHEDEV_KERNEL_COUNT(word(addrs, at));

		if (words < all - at)
			*ret_kernel = (struct words){.at = addrs + (at + 1) * sizeof(uint64_t),
						     .n = words};
	}
}

static void put_payload(struct out *out, struct tracerd_sched_event *ev, struct words python)
{
	const uint32_t magic[2] = {PYTHON_MAGIC, 0};

	if (ev->kind == SCHEDEV_SAMPLE) {
		put_raw(out, magic, python.n ? sizeof(magic) : 0, python);
		return;
	}
	if (python.n)
		ev->flags |= SCHEDEV_PYTHON;
	put_raw(out, ev, sizeof(*ev), python);
}

/* One record of the group's event: its header's size is set here. */
static int put_record(const struct event_group *group, enum group_event event,
		      const struct unwound *u, uint8_t buf[static UNWOUND_RECORD_MAX])
{
	const uint64_t type = group->layouts[event].sample_type;
	struct out out = {.at = buf, .end = buf + UNWOUND_RECORD_MAX};
	const uint32_t ids[2] = {u->pid, u->tid}, cpu[2] = {u->cpu, 0};
	struct tracerd_sched_event ev = u->ev;
	struct words python, kernel;
	size_t n = u->n;

	take_words(u->addrs, &n, &python, &kernel);
	if (u->n_kernel)
		kernel = (struct words){.at = (const uint8_t *)u->kernel, .n = u->n_kernel};
	if (!(type & PERF_SAMPLE_CALLCHAIN))
		return -EBADMSG;
	put(&out, &u->header, sizeof(u->header));
	put_u64(&out, u->id);
	put_u64(&out, u->ip);
	put(&out, ids, sizeof(ids));
	put_u64(&out, u->time);
	put(&out, cpu, sizeof(cpu));
	put_chain(&out, kernel, u->addrs, n);
	if (type & PERF_SAMPLE_RAW)
		put_payload(&out, &ev, python);
	if (type & PERF_SAMPLE_REGS_USER)
		put_u64(&out, PERF_SAMPLE_REGS_ABI_NONE);
	if (type & PERF_SAMPLE_STACK_USER)
		put_u64(&out, 0);
	if (out.at == out.end)
		return -EBADMSG;
	((struct perf_event_header *)(void *)buf)->size = (uint16_t)(out.at - buf);
	return 0;
}

int unwound_expand(const struct event_group *group, struct record_view *view,
		   enum group_event *event, uint8_t buf[static UNWOUND_RECORD_MAX])
{
	struct unwound u = {.header = *view->header,
			    .id = view->id,
			    .time = view->time,
			    .ip = view->ip ? *view->ip : 0,
			    .cpu = view->cpu};
	enum group_event to = GROUP_STACK;
	int r;

	if (*event != GROUP_PLAIN || !record_sched(view, &u.ev) ||
	    !(u.ev.flags & SCHEDEV_ADDRESSES))
		return 0;
	u.ev.flags &= (uint16_t)~SCHEDEV_ADDRESSES;
	u.addrs = (const uint8_t *)view->raw + sizeof(u.ev);
	u.n = (view->raw_size - sizeof(u.ev)) / sizeof(uint64_t);
	u.pid = *view->pid;
	u.tid = *view->tid;
	if (u.ev.kind == SCHEDEV_SAMPLE) {
		to = GROUP_CLOCK;
		memcpy(&u.ip, u.ev.other_comm, sizeof(u.ip));
		u.header.misc =
			(uint16_t)((u.header.misc & ~PERF_RECORD_MISC_CPUMODE_MASK) |
				   (u.ev.flags & SCHEDEV_IN_KERNEL ? PERF_RECORD_MISC_KERNEL
								   : PERF_RECORD_MISC_USER));
	} else if (u.ev.kind == SCHEDEV_IN) {
		/* The current thread is still the one that leaves. */
		u.pid = u.ev.pid;
		u.tid = u.ev.tid;
	}
	r = put_record(group, to, &u, buf);
	if (r < 0)
		return r;
	*event = to;
	return record_parse(buf, &group->layouts[to], view) < 0 ? -EBADMSG : 1;
}

int unwound_blocked(const struct event_group *group, const struct filter_kept *kept,
		    const struct filter_task *task, uint64_t id, uint64_t time_ns,
		    uint8_t buf[static UNWOUND_RECORD_MAX])
{
	struct unwound u = {
		.header = {.type = PERF_RECORD_SAMPLE, .misc = PERF_RECORD_MISC_USER},
		.id = id,
		.time = time_ns,
		.pid = kept->ev.pid,
		.tid = kept->ev.tid,
		.cpu = kept->ev.cpu,
		.ev = kept->ev,
		.addrs = (const uint8_t *)kept->addrs,
		.n = kept->n < FILTER_KEPT_FRAMES ? kept->n : FILTER_KEPT_FRAMES,
		.kernel = task ? task->kernel : NULL,
		.n_kernel = task ? task->n_kernel : 0,
	};

	u.ev.kind = SCHEDEV_BLOCKED;
	/* Who came instead is in the switch-out. */
	u.ev.flags |= SCHEDEV_OTHER_MASKED;
	u.ev.other_pid = u.ev.other_tid = u.ev.other_uid = SCHEDEV_MASKED_ID;
	memset(u.ev.other_comm, 0, sizeof(u.ev.other_comm));
	memcpy(u.ev.other_comm, "other", sizeof("other"));
	return put_record(group, GROUP_STACK, &u, buf);
}

/* What a record without a stack is made of, in the layout of the event PLAIN. */
struct plain {
	uint16_t misc;
	uint64_t id, time;
	uint32_t pid, tid, cpu;
};

static size_t put_plain(const struct plain *p, const struct tracerd_sched_event *ev,
			struct words words, uint8_t buf[static UNWOUND_RECORD_MAX])
{
	const uint32_t ids[2] = {p->pid, p->tid}, cpu[2] = {p->cpu, 0};
	struct perf_event_header h = {.type = PERF_RECORD_SAMPLE, .misc = p->misc};
	struct out out = {.at = buf, .end = buf + UNWOUND_RECORD_MAX};

	put(&out, &h, sizeof(h));
	put_u64(&out, p->id);
	put_u64(&out, 0);
	put(&out, ids, sizeof(ids));
	put_u64(&out, p->time);
	put(&out, cpu, sizeof(cpu));
	put_raw(&out, ev, sizeof(*ev), words);
	h.size = (uint16_t)(out.at - buf);
	memcpy(buf, &h, sizeof(h));
	return h.size;
}

int unwound_plain(const struct event_group *group, const struct filter_record *record,
		  uint8_t buf[static UNWOUND_RECORD_MAX])
{
	const struct tracerd_sched_event *ev = &record->ev;
	const bool is_wakers = ev->kind == SCHEDEV_WAKEUP && (ev->flags & SCHEDEV_WAKER_TARGET);
	const struct plain plain = {
		.misc = PERF_RECORD_MISC_KERNEL,
		.time = record->time,
		.pid = is_wakers ? ev->other_pid : ev->pid,
		.tid = is_wakers ? ev->other_tid : ev->tid,
		.cpu = ev->cpu,
	};

	if (group->layouts[GROUP_PLAIN].sample_type !=
	    (PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP | PERF_SAMPLE_RAW))
		return -EBADMSG;
	(void)put_plain(&plain, ev, (struct words){.n = 0}, buf);
	return 0;
}

size_t unwound_python(const struct record_view *view, const uint8_t **ret_words)
{
	struct tracerd_sched_event ev;
	uint32_t magic;
	size_t n, skip;

	if (!view->raw || view->raw_size < sizeof(magic))
		return 0;
	memcpy(&magic, view->raw, sizeof(magic));
	if (record_sched(view, &ev) && (ev.flags & SCHEDEV_PYTHON))
		skip = sizeof(ev);
	else if (magic == PYTHON_MAGIC)
		skip = 2 * sizeof(magic);
	else
		return 0;
	if (view->raw_size < skip + sizeof(uint64_t))
		return 0;
	*ret_words = (const uint8_t *)view->raw + skip;
	n = PYTHON_COUNT(word(*ret_words, 0)) + 1u;
	return n <= (view->raw_size - skip) / sizeof(uint64_t) ? n : 0;
}

size_t unwound_function(const struct python_function *function, uint64_t id, uint64_t time_ns,
			uint8_t buf[static UNWOUND_RECORD_MAX])
{
	const struct tracerd_sched_event ev = {.magic = SCHEDEV_MAGIC,
					       .kind = SCHEDEV_FUNCTION,
					       .pid = function->pid};
	const struct words words = {.at = (const uint8_t *)function,
				    .n = sizeof(*function) / sizeof(uint64_t)};
	const struct plain nobody = {.misc = PERF_RECORD_MISC_USER,
				     .id = id,
				     .time = time_ns,
				     .pid = function->pid};

	_Static_assert(sizeof(*function) % sizeof(uint64_t) == 0, "the record stays aligned");
	return put_plain(&nobody, &ev, words, buf);
}
