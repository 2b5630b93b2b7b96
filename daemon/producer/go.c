// SPDX-License-Identifier: Apache-2.0
/*
 * Producers that are Go programs: what they said of their runtime, and the request for its
 * execution trace.
 */
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/bundle/gostream.h"
#include "common/control/json.h"
#include "daemon/base/memfdcheck.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/producer/producer_internal.h"

void producer_set_go(struct producer *p, const char *version, uint64_t keep_ns)
{
	(void)escape_text(p->go_version, sizeof(p->go_version), version, strlen(version));
	p->go_keep_ns = keep_ns;
}

void producer_drop_go_stream(struct producer *p)
{
	p->go_stream_fd = close_fd(p->go_stream_fd);
	quota_release(&p->charge_stream);
}

/* Not of what a snapshot is copying: that has a descriptor of its own. */
static void drop_earlier(struct producer *p)
{
	struct producer *old = NULL;

	while ((old = producers_of(p->ps, p->pid, p->start_time, old)) != NULL)
		if (old != p)
			producer_drop_go_stream(old);
}

int producer_set_go_stream(struct producer *p, int fd, char *why, size_t size)
{
	const uint64_t max = (uint64_t)p->ps->config->go_trace_mib << 20;
	unsigned int seals = 0;
	uint64_t bytes = 0;
	int r = memfd_check(fd, "go_stream", &bytes, &seals, why, size);

	static_assert(MEMFDCHECK_E_BAD == PRODUCER_E_BAD, "");
	if (r != 0)
		return r;
	if ((seals & GOSTREAM_SEALS) != GOSTREAM_SEALS)
		return refusal(why, size, PRODUCER_E_BAD,
			       "go_stream: the memfd must have the seals SHRINK and GROW");
	if (bytes > max)
		return refusal(
			why, size, PRODUCER_E_TOO_LARGE,
			"go_stream: it has %llu bytes, but the limit is %u MiB (go_trace_mib)",
			(unsigned long long)bytes, p->ps->config->go_trace_mib);
	drop_earlier(p);
	r = quota_charge(p->ps->quota, p->uid, QUOTA_EVENT_BYTES, bytes, &p->charge_stream);
	if (r > 0)
		return refusal(why, size, PRODUCER_E_QUOTA,
			       "the memory of uid %u would exceed its limit (uid_event_mib)",
			       (unsigned int)p->uid);
	if (r < 0)
		return r;
	p->go_stream_fd = fcntl(fd, F_DUPFD_CLOEXEC, 3);
	if (p->go_stream_fd < 0)
		return refusal(why, size, PRODUCER_E_BUSY, "tracerd is out of file descriptors");
	p->go_stream_bytes = bytes;
	return 0;
}

int producer_go_stream(const struct producer *p, uint64_t *ret_bytes)
{
	*ret_bytes = p->go_stream_bytes;
	return p->go_stream_fd;
}

const char *producer_go_version(const struct producer *p)
{
	return p->go_version[0] ? p->go_version : NULL;
}

uint64_t producer_go_keep_ns(const struct producer *p)
{
	uint64_t age = io_now_ns() - p->registered_ns;

	return p->go_keep_ns < age ? p->go_keep_ns : age;
}

int producer_go_ask(struct producer *p, uint64_t max_bytes, uint64_t wait_ns, producer_go_fn done,
		    void *arg, void **ret)
{
	struct json_object *params;

	if (p->state != PRODUCER_LIVE || !p->connection.go_ask)
		return -ESRCH;
	params = json_object_new_object();
	json_add_uint(params, "max_bytes", max_bytes);
	json_add_uint(params, "wait_ns", wait_ns);
	return p->connection.go_ask(p->connection.arg, params, done, arg, ret);
}

/* The request is its connection's, which may be attached to the producer no more. */
void producer_go_drop(struct producer *p, void *request)
{
	p->go_drop(request);
}
