// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/describe.h"

#include "common/control/json.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/backend/sample/unwind.h"

/* So many processes with an interpreter, or of Go. */
#define PYTHONS_MAX 16
#define GOS_MAX 16

struct json_object *describe_target(const struct target *target)
{
	const struct unwind *unwind = sampler_unwind(sampler_of(target->targets));
	struct json_object *o = json_object_new_object(), *pythons, *gos, *one;
	struct unwind_counts sum = {.files = 0};
	const struct member *member;
	size_t n = 0, n_go = 0;

	if (!o)
		return NULL;
	pythons = json_add_new_array(o, "python");
	gos = json_add_new_array(o, "go");
	TAILQ_FOREACH(member, &target->members, link) {
		if (!unwind || member->to_ns != UINT64_MAX)
			continue;
		one = n_go < GOS_MAX ? unwind_go_json(unwind, member->pid) : NULL;
		if (one) {
			json_append(gos, one);
			n_go++;
		}
		if (target->stacks != STACKS_BPF)
			continue;
		unwind_count(unwind, member->pid, &sum);
		one = n < PYTHONS_MAX ? unwind_python_json(unwind, member->pid) : NULL;
		if (one) {
			json_append(pythons, one);
			n++;
		}
	}
	if (!unwind || target->stacks != STACKS_BPF) {
		json_add_null(o, "unwound");
		return o;
	}
	json_add(o, "unwound", unwind_counts_json(&sum));
	return o;
}
