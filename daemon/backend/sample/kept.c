// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/kept.h"

#include "daemon/backend/frozen.h"

#ifdef HAVE_BPF

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "daemon/backend/sample/filter.h"

/*
 * Two clocks are not read at once: a wait that began so short a time before the freeze may have
 * begun after it.
 */
#define CLOCKS_APART_NS 20000u
/* So many are read at a time: at least what has one hash value. */
#define BATCH 256u

void kept_freeze(const struct filter *filter, const struct frozen *frozen, struct kept *ret)
{
	/*
	 * If time passes between the two, the freeze seems to be earlier: no later wait is
	 * believed.
	 */
	const uint64_t mono = io_now_ns(), raw = clock_raw_ns();

	*ret = (struct kept){.fd = fcntl(filter_map_fd(filter, "kept"), F_DUPFD_CLOEXEC, 3),
			     .frozen_mono = mono - (raw - frozen->raw_ns)};
}

void kept_fini(struct kept *kept)
{
	close_fdp(&kept->fd);
	free(kept->v);
	kept->v = NULL;
	kept->n = 0;
}

uint64_t kept_since(const struct kept *kept, const struct frozen *frozen,
		    const struct filter_kept *k)
{
	const uint64_t ago = kept->frozen_mono > k->out_ns ? kept->frozen_mono - k->out_ns : 0;

	return frozen->raw_ns > ago ? frozen->raw_ns - ago : 0;
}

/* The programs go on while the map is read. */
static bool is_wanted(const struct kept *kept, const struct frozen *frozen,
		      const struct filter_kept *k)
{
	if (k->done != k->begun || !k->out_ns || k->n == FILTER_KEPT_NOTHING ||
	    k->out_ns + CLOCKS_APART_NS > kept->frozen_mono)
		return false;
	if (frozen->scope == TARGET_THREAD && k->ev.tid != (uint32_t)frozen->tid)
		return false;
	/* It could be seen all the time. */
	return frozen_has(frozen, k->ev.pid, frozen->raw_ns) &&
	       frozen_has(frozen, k->ev.pid, kept_since(kept, frozen, k));
}

static int add(struct kept *kept, const struct filter_kept *k)
{
	struct filter_kept *v = reallocarray(kept->v, kept->n + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	kept->v = v;
	v[kept->n++] = *k;
	return 0;
}

int kept_take(struct kept *kept, const struct frozen *frozen)
{
	_cleanup_free_ struct filter_kept *batch = calloc(BATCH, sizeof(*batch));
	_cleanup_free_ uint32_t *keys = calloc(BATCH, sizeof(*keys));
	uint32_t at, *from = NULL;
	int r = 0, end = 0;

	if (!batch || !keys)
		return -ENOMEM;
	/* The map has so many at most, whatever comes and goes meanwhile. */
	for (uint32_t seen = 0; kept->fd >= 0 && !end && r == 0 && seen <= 2 * FILTER_KEPT_MAX;) {
		LIBBPF_OPTS(bpf_map_batch_opts, opts);
		uint32_t n = BATCH;

		end = bpf_map_lookup_batch(kept->fd, from, &at, keys, batch, &n, &opts);
		if (end < 0 && end != -ENOENT) {
			log_debug("stacks of waits that go on: %s", strerror(-end));
			return 0;
		}
		for (uint32_t i = 0; i < n && r == 0; i++)
			if (is_wanted(kept, frozen, &batch[i]))
				r = add(kept, &batch[i]);
		from = &at;
		seen += n;
	}
	return r;
}

#else /* !HAVE_BPF */

void kept_freeze(const struct filter *filter, const struct frozen *frozen, struct kept *ret)
{
	*ret = (struct kept)KEPT_INIT;
}

void kept_fini(struct kept *kept)
{
}

uint64_t kept_since(const struct kept *kept, const struct frozen *frozen,
		    const struct filter_kept *k)
{
	return 0;
}

int kept_take(struct kept *kept, const struct frozen *frozen)
{
	return 0;
}

#endif
