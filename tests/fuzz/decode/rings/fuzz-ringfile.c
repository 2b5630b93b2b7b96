// SPDX-License-Identifier: Apache-2.0
/*
 * A copy of event rings from a stranger, read to its last event. Each text must be whole: as much
 * of it is looked at as its reader would.
 */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/rings/event.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t look(const struct ringevent *ev)
{
	size_t n = (ev->name ? strlen(ev->name) : 0) + (ev->format ? strlen(ev->format) : 0);

	for (size_t i = 0; i < ev->n_args; i++) {
		n += strlen(ev->args[i].key);
		if (ev->args[i].type == RINGEVENT_TEXT)
			n += strlen(ev->args[i].value.text);
	}
	return n;
}

static void replay(int fd)
{
	/* the clocks as the corpus has them, and one that fits nothing */
	static const struct clock_bracket brackets[] = {
		{.source = 21000000000, .monotonic = 7000000000, .boottime = 7000000000},
		{.source = 24000000000, .monotonic = 8000000000},
		{.source = 5, .monotonic = UINT64_MAX},
	};
	struct budget budget = {.max = 32u << 20};
	_cleanup_(ringevents_freep) struct ringevents *r = NULL;
	_cleanup_json_ struct json_object *stats = json_object_new_object();
	uint64_t last = 0;
	struct ringevent ev;
	size_t n = 0;

	if (ringevents_new(brackets, ARRAY_SIZE(brackets), &budget, &r) < 0 ||
	    ringevents_add(r, fd) < 0)
		abort();
	if (ringevents_finish(r) < 0 || budget.used > budget.max)
		abort();
	while (ringevents_peek(r) >= last && ringevents_next(r, &ev)) {
		last = ev.ts;
		n += 1 + (look(&ev) > SIZE_MAX / 2);
	}
	if (n != ringevents_count(r))
		abort();
	ringevents_report(r, stats, stats);
	r = ringevents_free(r);
	if (budget.used)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;

	if (fd < 0)
		fd = io_memfd("fuzz-ringfile");
	if (fd < 0 || ftruncate(fd, 0) < 0 || io_pwrite_all(fd, data, size, 0) < 0)
		abort();
	replay(fd);
	return 0;
}
