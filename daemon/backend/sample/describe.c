// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/describe.h"

#include "common/control/json.h"
#include "daemon/backend/sample/sampling.h"
#include "daemon/backend/sample/unwind.h"

/* So many processes with an interpreter. */
#define PYTHONS_MAX 16

struct json_object *describe_target(const struct target *target)
{
	const struct unwind *unwind = sampler_unwind(sampler_of(target->targets));
	struct json_object *o = json_object_new_object(), *pythons, *python;
	struct unwind_counts sum = {.files = 0};
	const struct member *member;
	size_t n = 0;

	if (!o)
		return NULL;
	pythons = json_add_new_array(o, "python");
	if (!unwind || target->stacks != STACKS_BPF) {
		json_add_null(o, "unwound");
		return o;
	}
	TAILQ_FOREACH(member, &target->members, link) {
		if (member->to_ns != UINT64_MAX)
			continue;
		unwind_count(unwind, member->pid, &sum);
		python = n < PYTHONS_MAX ? unwind_python_json(unwind, member->pid) : NULL;
		if (python) {
			json_append(pythons, python);
			n++;
		}
	}
	json_add(o, "unwound", unwind_counts_json(&sum));
	return o;
}
