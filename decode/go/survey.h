/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A first look at a whole Go trace: what its beginning does not say yet. What a goroutine is called
 * is known at its first stack, which goroutines do anything by the end only, and that a region or
 * task was open from the begin on, when it ends.
 *
 * Owns the names. It keeps some bytes for each goroutine, whatever the trace's length, charged to
 * the budget.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/hashmap.h"
#include "decode/base/budget.h"
#include "decode/go/batch.h"
#include "decode/go/event.h"

#define GOSURVEY_MAX_NAMES (16u << 20) /* bytes, of functions and regions */
#define GOSURVEY_MAX_EARLY 65536u      /* regions and tasks that were open when the trace began */

struct gosurvey {
	uint64_t first_ns, last_ns;
	struct goclock clock; /* the first; mono 0: none */
	/* goroutines that were in that state when the trace began */
	uint64_t initial[GOSTATE_SYSCALL + 1];
	/*
	 * Open when the trace began: by goroutine (a task's is GOFMT_NO_ID), what ended last first.
	 */
	struct gosurvey_early {
		uint64_t g, task;
		uint32_t name; /* gosurvey_name() */
		uint32_t order;
	} *early;
	uint32_t n_early, max_early;
	uint64_t early_left_out;
	bool full; /* the budget was used up: what comes later has no names */

	struct budget *budget;
	uint64_t taken;
	struct strtab *names;
	struct hashmap goroutines; /* -> what gosurvey_goroutine() takes apart */
	struct hashmap depths;	   /* of goroutines with open regions -> how many, + 1 */
	struct hashmap tasks;	   /* that have begun */
};

/*
 * Reads it to its end, or to where it breaks. 0, or -errno: of the input, or -ENOMEM where the
 * reader itself has no memory.
 */
int gosurvey_run(gobatch_read_fn read, void *arg, struct budget *budget,
		 struct gosurvey *ret) _must_check_;
void gosurvey_fini(struct gosurvey *s);

/*
 * The function that the goroutine began with, escaped; "" where no stack tells. *ret_active: it
 * does more than wait.
 */
const char *gosurvey_goroutine(const struct gosurvey *s, uint64_t g, bool *ret_active);
/* Where its own begin in `early`, and how many they are. */
uint32_t gosurvey_early(const struct gosurvey *s, uint64_t g, uint32_t *ret_n);
/* Escaped. */
const char *gosurvey_name(const struct gosurvey *s, uint32_t name);
