// SPDX-License-Identifier: Apache-2.0
/* Producers that are Go programs: what they said of their runtime, and the request for its execution trace. */
#include <errno.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/control/json.h"
#include "daemon/producer/producer_internal.h"

void producer_set_go(struct producer *p, const char *version, uint64_t keep_ns)
{
	(void)escape_text(p->go_version, sizeof(p->go_version), version, strlen(version));
	p->go_keep_ns = keep_ns;
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

int producer_go_ask(struct producer *p, uint64_t max_bytes, uint64_t wait_ns, producer_go_fn done, void *arg, void **ret)
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
