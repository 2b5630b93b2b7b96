// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/go_layout.h"

#include <errno.h>

#include "common/control/json.h"

enum { BELOW, M, STATUS, GOID, PROCID, CURG, FIELDS };

static bool is_offset(uint64_t v, uint32_t align)
{
	return v < GO_STRUCT_MAX && v % align == 0;
}

bool go_layout_ok(const struct go_layout *l)
{
	return l->below >= 8 && l->below <= GO_THREAD_POINTER_MAX && l->below % 8 == 0 &&
	       is_offset(l->m, 8) && is_offset(l->status, 4) && is_offset(l->goid, 8) &&
	       is_offset(l->procid, 8) && is_offset(l->curg, 8);
}

struct json_object *go_layout_json(const struct go_layout *l)
{
	const uint32_t numbers[FIELDS] = {
		[BELOW] = l->below, [M] = l->m,           [STATUS] = l->status,
		[GOID] = l->goid,   [PROCID] = l->procid, [CURG] = l->curg};
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; array && i < FIELDS; i++)
		json_append(array, json_object_new_uint64(numbers[i]));
	return array;
}

int go_layout_parse(struct json_object *array, struct go_layout *ret)
{
	uint32_t numbers[FIELDS];
	struct go_layout l;

	if (!array || json_object_array_length(array) != FIELDS)
		return -EBADMSG;
	for (size_t i = 0; i < FIELDS; i++) {
		struct json_object *number = json_object_array_get_idx(array, i);
		const int64_t v = json_object_is_type(number, json_type_int)
					  ? json_object_get_int64(number)
					  : -1;

		if (v < 0 || v > GO_THREAD_POINTER_MAX || (i != BELOW && v >= GO_STRUCT_MAX))
			return -EBADMSG;
		numbers[i] = (uint32_t)v;
	}
	l = (struct go_layout){.below = numbers[BELOW],
			       .m = (uint16_t)numbers[M],
			       .status = (uint16_t)numbers[STATUS],
			       .goid = (uint16_t)numbers[GOID],
			       .procid = (uint16_t)numbers[PROCID],
			       .curg = (uint16_t)numbers[CURG]};
	if (!go_layout_ok(&l))
		return -EBADMSG;
	*ret = l;
	return 0;
}
