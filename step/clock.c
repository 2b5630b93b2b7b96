// SPDX-License-Identifier: Apache-2.0
#include "step/clock.h"

#include <string.h>
#include <sys/mman.h>
#include <x86intrin.h>

#include "common/base/raw_clock.h"
#include "common/bundle/perfabi.h"

/* The least distance of two results: some nanoseconds at any frequency. */
#define TSC_GAP 64u
#define NS_GAP 8u
#define MAX_SHIFT 31u

/*
 * The kernel's own conversion, from the first page of any event's ring; false if it exports none to
 * us.
 */
static bool read_perf_page(struct step_clock *c)
{
	struct perf_event_attr attr = {.type = PERF_TYPE_SOFTWARE,
				       .size = PERF_ATTR_SIZE_VER5,
				       .config = PERF_COUNT_SW_DUMMY,
				       .exclude_kernel = 1,
				       .exclude_hv = 1};
	const size_t size = (size_t)sysconf(_SC_PAGESIZE);
	const volatile struct perf_event_mmap_page *page;
	_cleanup_close_ int fd = -1;
	uint32_t seq;
	bool ok;
	void *p;

	fd = perfabi_open(&attr, 0, -1, -1, 0);
	if (fd < 0)
		return false;
	p = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED)
		return false;
	page = p;
	do {
		seq = page->lock;
		__sync_synchronize();
		ok = page->cap_user_time_zero;
		c->conv.shift = page->time_shift;
		c->conv.mult = page->time_mult;
		c->conv.zero = page->time_zero;
		__sync_synchronize();
	} while (page->lock != seq);
	(void)munmap(p, size);
	return ok && c->conv.mult && c->conv.shift <= MAX_SHIFT + 1;
}

void step_clock_init(struct step_clock *c, bool raw)
{
	*c = (struct step_clock){.tsc = clocks_tsc_usable(), .conv.mult = 1, .raw = raw};
	clocks_read(c->tsc, &c->first);
	if (c->tsc && !raw && read_perf_page(c))
		c->perf_clock = true;
	else
		c->conv = (struct timeconv){.mult = 1};
	c->last = c->tsc ? c->first.tsc : c->first.raw;
}

uint64_t step_clock_now(struct step_clock *c)
{
	const uint64_t least = c->last + (c->tsc ? TSC_GAP : NS_GAP);
	const uint64_t now = c->tsc ? __rdtsc() : clock_raw_ns();
	c->last = now > least ? now : least;
	return c->last;
}

void step_clock_settle(struct step_clock *c)
{
	const struct timeconv_moment first = {c->first.tsc, c->first.raw};
	struct timeconv_moment last;
	struct clocks_bracket now;

	if (!c->tsc || c->perf_clock)
		return;
	clocks_read(true, &now);
	last = (struct timeconv_moment){now.tsc, now.raw};
	c->conv = timeconv_fit(&first, &last, c->raw ? &last : &first);
}

uint64_t step_clock_ns(const struct step_clock *c, uint64_t ticks)
{
	return timeconv_ns(&c->conv, ticks);
}

uint32_t step_clock_ratio(const struct step_clock *c)
{
	const uint64_t hundreds =
		((UINT64_C(10) << c->conv.shift) + c->conv.mult / 2) / c->conv.mult;

	/* 1 GHz is 10; one tick for a nanosecond where ticks are nanoseconds */
	return hundreds > 0 && hundreds < 256 ? (uint32_t)hundreds : 1;
}
