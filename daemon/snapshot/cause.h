/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why there is a snapshot: a client asked, a region was slow, the program asked, or it came to a
 * place. All of it is a copy, with every text escaped: it outlives the trigger, the target and the
 * program.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/bundle/ringabi.h"
#include "common/control/json.h"

#define CAUSE_REASON_MAX 256 /* bytes, before they are escaped */

enum cause_kind { CAUSE_CLIENT, CAUSE_REGION, CAUSE_PROGRAM, CAUSE_HIT };

struct cause {
	enum cause_kind kind;
	uid_t uid;	     /* who asked, or whose trigger it was */
	pid_t pid;	     /* the program's; and its thread, 0 if that is not known */
	uint32_t tid;
	uint64_t trigger;    /* its number; 0: none */
	uint64_t over_ns;    /* what the region was allowed */
	/* of the region; of a request or a hit both are its moment */
	uint64_t begin_raw_ns, end_raw_ns;
	bool paused;	     /* of a hit: the thread's trace ends with it */
	/* of a hit: from it until the recording had stopped; 0: it has not yet */
	uint64_t late_ns;
	char region[RING_CONTROL_NAME * 4 + 1]; /* its name; of a hit the place's */
	char reason[CAUSE_REASON_MAX * 4 + 1]; /* in words */
};

/* What a client said; at most CAUSE_REASON_MAX bytes. */
void cause_client(struct cause *cause, uid_t uid, const char *reason);
/* The number of a trigger as clients write it. */
#define CAUSE_TRIGGER_MAX 24
const char *cause_trigger(char buf[CAUSE_TRIGGER_MAX], uint64_t trigger);
/*
 * Makes the sentence of a region's or a hit's cause, whose other members are there, if it has none.
 */
void cause_own_reason(struct cause *cause);
/* A copy that has its sentence: who is in a hurry leaves that for later. */
void cause_copy(struct cause *ret, const struct cause *cause);
/* What the program gave as its reason; escaped already. */
void cause_program_reason(struct cause *cause, const char *text);

/* "cause" of S in the protocol. */
struct json_object *cause_to_json(const struct cause *cause);
