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

/* The chain as the kernel writes one: a mark, then addresses. What is no user's address ends it. */
static void put_chain(struct out *out, const uint8_t *addrs, size_t n)
{
	uint64_t addr[UNWIND_SAMPLE_FRAMES];
	size_t kept = 0;

	for (; kept < n && kept < UNWIND_SAMPLE_FRAMES; kept++) {
		memcpy(&addr[kept], addrs + kept * sizeof(*addr), sizeof(*addr));
		if (addr[kept] >= KERNEL_HALF)
			break;
	}
	put_u64(out, kept + 1);
	put_u64(out, (uint64_t)PERF_CONTEXT_USER);
	put(out, addr, kept * sizeof(*addr));
}

/* The payload of a switch or a wake-up: as long as the kernel makes it, so that what is behind it is aligned. */
static void put_raw(struct out *out, const struct tracerd_sched_event *ev)
{
	struct {
		uint32_t size;
		struct tracerd_sched_event ev;
		uint32_t rest;
	} raw = {.ev = *ev};

	_Static_assert(sizeof(raw) % sizeof(uint64_t) == 0, "the record stays aligned");
	raw.size = sizeof(raw) - sizeof(raw.size);
	put(out, &raw, sizeof(raw));
}

int unwound_expand(const struct event_group *group, struct record_view *view, enum group_event *event,
		   uint8_t buf[static UNWOUND_RECORD_MAX])
{
	struct perf_event_header h = *view->header;
	struct tracerd_sched_event ev;
	struct out out = {.at = buf, .end = buf + UNWOUND_RECORD_MAX};
	enum group_event to = GROUP_STACK;
	uint64_t type, ip = view->ip ? *view->ip : 0;
	uint32_t cpu[2] = {view->cpu, 0};
	size_t n;

	if (*event != GROUP_PLAIN || !record_sched(view, &ev) || !(ev.flags & SCHEDEV_ADDRESSES))
		return 0;
	n = (view->raw_size - sizeof(ev)) / sizeof(uint64_t);
	ev.flags &= (uint16_t)~SCHEDEV_ADDRESSES;
	if (ev.kind == SCHEDEV_SAMPLE) {
		to = GROUP_CLOCK;
		memcpy(&ip, ev.other_comm, sizeof(ip));
		h.misc = (uint16_t)((h.misc & ~PERF_RECORD_MISC_CPUMODE_MASK) |
				    (ev.flags & SCHEDEV_IN_KERNEL ? PERF_RECORD_MISC_KERNEL : PERF_RECORD_MISC_USER));
	}
	type = group->layouts[to].sample_type;
	if (!(type & PERF_SAMPLE_CALLCHAIN))
		return -EBADMSG;
	put(&out, &h, sizeof(h));
	put_u64(&out, view->id);
	put_u64(&out, ip);
	put(&out, view->pid, sizeof(uint64_t));
	put_u64(&out, view->time);
	put(&out, cpu, sizeof(cpu));
	put_chain(&out, (const uint8_t *)view->raw + sizeof(ev), n);
	if (type & PERF_SAMPLE_RAW)
		put_raw(&out, &ev);
	if (type & PERF_SAMPLE_REGS_USER)
		put_u64(&out, PERF_SAMPLE_REGS_ABI_NONE);
	if (type & PERF_SAMPLE_STACK_USER)
		put_u64(&out, 0);
	if (out.at == out.end)
		return -EBADMSG;
	((struct perf_event_header *)(void *)buf)->size = (uint16_t)(out.at - buf);
	*event = to;
	return record_parse(buf, &group->layouts[to], view) < 0 ? -EBADMSG : 1;
}
