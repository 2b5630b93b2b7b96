/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One log line for each privileged action: who, what, on which object, with which outcome. Never
 * the request's text. Rate limited by uid, so that no user can flood the log or hide the lines
 * of another; the next line of that user reports how many were dropped.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct peer;

#define AUDIT_BURST 60          /* lines at once */
#define AUDIT_PER_S 10          /* lines a second after that */
#define AUDIT_USERS 64          /* users remembered */

struct audit_bucket {
	uid_t uid;
	bool used;
	double tokens;
	uint64_t refilled_ns, last_ns;
	uint64_t dropped;
};

struct audit {
	struct audit_bucket buckets[AUDIT_USERS];
	uint64_t lines, dropped;
};

/* `object` may be "". */
void audit_log(struct audit *a, const struct peer *peer, const char *method, const char *object,
	       const char *outcome);

/*
 * The limiter by itself: true if a line may go out now; then *ret_dropped has what went missing
 * before.
 */
bool audit_allow(struct audit *a, uid_t uid, uint64_t now_ns, uint64_t *ret_dropped);
