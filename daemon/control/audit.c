// SPDX-License-Identifier: Apache-2.0
/* Token buckets by uid, the least recently used one is given to a new user. */
#include "daemon/control/audit.h"

#include <inttypes.h>
#include <stddef.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "daemon/control/auth.h"

static struct audit_bucket *bucket_get(struct audit *a, uid_t uid, uint64_t now_ns)
{
	struct audit_bucket *oldest = &a->buckets[0];

	for (size_t i = 0; i < AUDIT_USERS; i++) {
		struct audit_bucket *b = &a->buckets[i];

		if (b->used && b->uid == uid)
			return b;
		if (oldest->used && (!b->used || b->last_ns < oldest->last_ns))
			oldest = b;
	}
	*oldest = (struct audit_bucket){.uid = uid,
					.used = true,
					.tokens = AUDIT_BURST,
					.refilled_ns = now_ns};
	return oldest;
}

bool audit_allow(struct audit *a, uid_t uid, uint64_t now_ns, uint64_t *ret_dropped)
{
	struct audit_bucket *b = bucket_get(a, uid, now_ns);

	b->tokens += (double)(now_ns - b->refilled_ns) * AUDIT_PER_S / 1e9;
	if (b->tokens > AUDIT_BURST)
		b->tokens = AUDIT_BURST;
	b->refilled_ns = now_ns;
	b->last_ns = now_ns;
	if (b->tokens < 1) {
		b->dropped++;
		a->dropped++;
		return false;
	}
	b->tokens -= 1;
	*ret_dropped = b->dropped;
	b->dropped = 0;
	a->lines++;
	return true;
}

void audit_log(struct audit *a, const struct peer *peer, const char *method, const char *object,
	       const char *outcome)
{
	uint64_t dropped = 0;

	if (!audit_allow(a, peer->uid, io_now_ns(), &dropped))
		return;
	if (dropped > 0)
		log_notice("audit: uid=%u: %" PRIu64 " lines dropped", (unsigned int)peer->uid,
			   dropped);
	log_info("audit: uid=%u pid=%d method=%s object=%s outcome=%s", (unsigned int)peer->uid,
		 (int)peer->pid, method, object[0] ? object : "-", outcome);
}
