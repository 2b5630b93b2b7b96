// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/record.h"

#include <errno.h>
#include <string.h>

#include "common/base/address.h"
#include "common/bundle/python.h"

#define CHAIN_CONTEXT_MAX ((uint64_t)PERF_CONTEXT_MAX)

bool record_header_ok(const void *p, size_t size)
{
	struct perf_event_header h;

	if (size < sizeof(h))
		return false;
	memcpy(&h, p, sizeof(h));
	return h.size >= sizeof(h) && h.size % 8 == 0 && h.size <= size;
}

int record_id(const void *record, uint64_t *ret)
{
	struct perf_event_header h;

	memcpy(&h, record, sizeof(h));
	if (h.size < sizeof(h) + sizeof(uint64_t))
		return -EBADMSG;
	if (h.type == PERF_RECORD_SAMPLE)
		memcpy(ret, (const uint8_t *)record + sizeof(h), sizeof(*ret));
	else
		memcpy(ret, (const uint8_t *)record + h.size - sizeof(*ret), sizeof(*ret));
	return 0;
}

/* A cursor over a record; all of its steps fail once one has. */
struct cursor {
	uint8_t *at, *end;
};

static void *take(struct cursor *c, uint64_t bytes)
{
	void *p = c->at;

	if (!c->at || bytes > (uint64_t)(c->end - c->at)) {
		c->at = NULL;
		return NULL;
	}
	c->at += bytes;
	return p;
}

static uint64_t take_u64(struct cursor *c)
{
	uint64_t *p = take(c, sizeof(*p));

	return p ? *p : 0;
}

static int parse_trailer(struct perf_event_header *h, struct record_view *out)
{
	struct perfabi_sample_id *id;

	if (h->size < sizeof(*h) + sizeof(*id))
		return -EBADMSG;
	id = (struct perfabi_sample_id *)((uint8_t *)h + h->size - sizeof(*id));
	out->pid = &id->pid;
	out->tid = &id->tid;
	out->time = id->time;
	out->cpu = id->cpu;
	out->id = id->id;
	return 0;
}

static int parse_tail(struct cursor *c, const struct record_layout *layout, struct record_view *out)
{
	uint64_t type = layout->sample_type;

	if (type & PERF_SAMPLE_PERIOD)
		(void)take_u64(c);
	if (type & PERF_SAMPLE_CALLCHAIN) {
		out->n_chain = take_u64(c);
		if (out->n_chain > RECORD_MAX_BYTES / sizeof(uint64_t))
			return -EBADMSG;
		out->chain = take(c, out->n_chain * sizeof(uint64_t));
	}
	if (type & PERF_SAMPLE_RAW) {
		uint32_t *size = take(c, sizeof(*size));

		if (!size)
			return -EBADMSG;
		out->raw_size = *size;
		out->raw = take(c, out->raw_size);
	}
	if (type & PERF_SAMPLE_REGS_USER) {
		out->regs_abi = take(c, sizeof(uint64_t));
		if (out->regs_abi && *out->regs_abi)
			(void)take(c, (uint64_t)__builtin_popcountll(layout->regs_user) *
					      sizeof(uint64_t));
	}
	if (type & PERF_SAMPLE_STACK_USER) {
		out->stack_size = take(c, sizeof(uint64_t));
		if (out->stack_size && *out->stack_size)
			(void)take(c, *out->stack_size <= RECORD_MAX_BYTES
					      ? *out->stack_size + sizeof(uint64_t)
					      : UINT64_MAX);
	}
	return c->at ? 0 : -EBADMSG;
}

int record_parse(void *record, const struct record_layout *layout, struct record_view *ret)
{
	struct perf_event_header *h = record;
	struct record_view out = {.header = h};
	struct cursor c = {.at = (uint8_t *)record + sizeof(*h),
			   .end = (uint8_t *)record + h->size};
	uint32_t *ids, *cpu;
	int r;

	if (h->type != PERF_RECORD_SAMPLE) {
		r = parse_trailer(h, &out);
		if (r < 0)
			return r;
		*ret = out;
		return 0;
	}
	/* The order is the kernel's: see perf_event_open(2), PERF_RECORD_SAMPLE. */
	out.id = take_u64(&c);
	if (layout->sample_type & PERF_SAMPLE_IP)
		out.ip = take(&c, sizeof(uint64_t));
	ids = take(&c, 2 * sizeof(*ids));
	out.time = take_u64(&c);
	cpu = take(&c, 2 * sizeof(*cpu));
	if (!c.at)
		return -EBADMSG;
	out.pid = ids;
	out.tid = ids + 1;
	out.cpu = *cpu;
	r = parse_tail(&c, layout, &out);
	if (r < 0)
		return r;
	*ret = out;
	return 0;
}

bool record_sched(const struct record_view *view, struct tracerd_sched_event *ret)
{
	struct tracerd_sched_event ev;

	if (!view->raw || view->raw_size < sizeof(ev))
		return false;
	memcpy(&ev, view->raw, sizeof(ev));
	if (ev.magic != SCHEDEV_MAGIC)
		return false;
	*ret = ev;
	return true;
}

void record_sched_put(struct record_view *view, const struct tracerd_sched_event *ev)
{
	memcpy(view->raw, ev, sizeof(*ev));
	if (!(ev->flags & SCHEDEV_PYTHON))
		memset((uint8_t *)view->raw + sizeof(*ev), 0, view->raw_size - sizeof(*ev));
}

void record_set_time(struct record_view *view, uint64_t time_ns)
{
	/* It is behind the ids, in a sample and in a trailer. */
	memcpy(view->tid + 1, &time_ns, sizeof(time_ns));
	view->time = time_ns;
}

void record_clear_unwritten(struct record_view *view)
{
	uint64_t size, filled;
	uint8_t *bytes;

	if (!view->stack_size || !*view->stack_size)
		return;
	size = *view->stack_size;
	bytes = (uint8_t *)(view->stack_size + 1);
	memcpy(&filled, bytes + size, sizeof(filled));
	if (filled < size)
		memset(bytes + filled, 0, size - filled);
}

static void move_back(void *pointer_to_field, size_t bytes)
{
	uint8_t *field;

	memcpy(&field, pointer_to_field, sizeof(field));
	if (field)
		field -= bytes;
	memcpy(pointer_to_field, &field, sizeof(field));
}

/* What is behind the chain moves up, so that nothing tells how long it was. */
static void chain_shorten(struct record_view *view, uint64_t n)
{
	const size_t bytes = (view->n_chain - n) * sizeof(*view->chain);
	uint8_t *end = (uint8_t *)view->header + view->header->size,
		*behind = (uint8_t *)(view->chain + view->n_chain);

	if (!bytes)
		return;
	memmove(behind - bytes, behind, (size_t)(end - behind));
	view->header->size = (uint16_t)(view->header->size - bytes);
	view->n_chain = n;
	view->chain[-1] = n;
	move_back(&view->raw, bytes);
	move_back(&view->regs_abi, bytes);
	move_back(&view->stack_size, bytes);
}

void record_mask_kernel(struct record_view *view)
{
	bool kernel = false;
	uint64_t kept = 0;

	if ((view->header->misc & PERF_RECORD_MISC_CPUMODE_MASK) != PERF_RECORD_MISC_USER &&
	    view->ip)
		*view->ip = 0;
	for (uint64_t i = 0; i < view->n_chain; i++) {
		const uint64_t addr = view->chain[i];

		if (addr >= CHAIN_CONTEXT_MAX)
			kernel = addr != (uint64_t)PERF_CONTEXT_USER;
		if (!kernel && (addr >= CHAIN_CONTEXT_MAX || addr < KERNEL_HALF))
			view->chain[kept++] = addr;
	}
	chain_shorten(view, kept);
}

/* The part that is Python's. */
static void drop_python(struct record_view *view)
{
	struct tracerd_sched_event ev;
	uint32_t magic;

	if (!view->raw || view->raw_size < sizeof(magic))
		return;
	memcpy(&magic, view->raw, sizeof(magic));
	if (magic == PYTHON_MAGIC)
		memset(view->raw, 0, view->raw_size);
	if (!record_sched(view, &ev))
		return;
	ev.flags &= (uint16_t)~SCHEDEV_PYTHON;
	record_sched_put(view, &ev);
}

void record_drop_stack(struct record_view *view)
{
	drop_python(view);
	if (view->ip)
		*view->ip = 0;
	/* The size stays, so the entries become markers, which readers skip. */
	for (uint64_t i = 0; i < view->n_chain; i++)
		view->chain[i] = (uint64_t)PERF_CONTEXT_USER;
	if (view->regs_abi && *view->regs_abi) {
		uint8_t *end = view->stack_size ? (uint8_t *)view->stack_size
						: (uint8_t *)view->header + view->header->size;

		memset(view->regs_abi + 1, 0, (size_t)(end - (uint8_t *)(view->regs_abi + 1)));
	}
	if (view->stack_size && *view->stack_size) {
		uint64_t size = *view->stack_size;

		/* The bytes go, and so does the count of those that matter. */
		memset(view->stack_size + 1, 0, size + sizeof(uint64_t));
	}
}
