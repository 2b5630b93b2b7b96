// SPDX-License-Identifier: Apache-2.0
#include "client/lib/state.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/lib/name.h"
#include "client/lib/ringmem.h"
#include "client/lib/threshold.h"

__attribute__((visibility("default"),
	       aligned(TRACERD_STATE_ALIGN))) struct tracerd_state tracerd_state;

static_assert(sizeof(struct tracerd_state) == TRACERD_STATE_ALIGN,
	      "nothing else may be on its pages");
static_assert(offsetof(struct tracerd_state, on) == offsetof(struct state_page, on), "state_page");

enum { NOT_ENTERED, ENTERING, ENTERED };

/* These are not on the page, so a child inherits them. */
static bool prepared; /* the page is emptied at fork, by the kernel or by us */
static bool used;     /* by this process or the one that it was forked from */

/* For kernels before Linux 4.14, and for a loader that has put the symbol across pages. */
static void empty_page(void)
{
	struct state_page *page = state_page();

	__atomic_store_n(&page->on, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&page->mem, NULL, __ATOMIC_RELAXED);
	__atomic_store_n(&page->entered, NOT_ENTERED, __ATOMIC_RELAXED);
}

static void on_fork(void)
{
	int saved = errno;

	empty_page();
	process_enter();
	errno = saved;
}

static void prepare(void)
{
	long page = sysconf(_SC_PAGESIZE);

	if (page > 0 && page <= TRACERD_STATE_ALIGN)
		(void)madvise(&tracerd_state, (size_t)page, MADV_WIPEONFORK);
	(void)pthread_atfork(NULL, NULL, on_fork);
	names_prepare();
}

void process_enter(void)
{
	struct state_page *page = state_page();
	uint32_t expected = NOT_ENTERED;

	if (__atomic_load_n(&page->entered, __ATOMIC_ACQUIRE) == ENTERED)
		return;
	if (!__atomic_compare_exchange_n(&page->entered, &expected, ENTERING, false,
					 __ATOMIC_ACQUIRE, __ATOMIC_ACQUIRE)) {
		/* Another thread executes the few lines below. */
		while (__atomic_load_n(&page->entered, __ATOMIC_ACQUIRE) != ENTERED)
			(void)sched_yield();
		return;
	}
	if (!prepared)
		prepare();
	prepared = true;
	if (used) {
		ringmem_forget();
		thresholds_forget();
		start_forked();
	}
	used = true;
	__atomic_store_n(&page->entered, ENTERED, __ATOMIC_RELEASE);
}

void events_enable(bool on)
{
	struct state_page *page = state_page();

	__atomic_store_n(&page->on, on && page->mem ? page->mem->epoch : 0, __ATOMIC_RELEASE);
}

bool events_enabled(void)
{
	return state_on() != 0;
}
