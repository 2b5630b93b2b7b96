// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/exported_functions.h"

#include <string.h>

#include "daemon/backend/sample/python.h"

void exported_functions_fini(struct exported_functions *f)
{
	hashmap_fini(&f->wanted);
}

/* What finds no memory has no name. */
void exported_functions_see(struct exported_functions *f, const struct record_view *view)
{
	const uint8_t *words;
	size_t n = f->from ? unwound_python(view, &words) : 0;

	for (size_t i = 1; i < n; i++) {
		uint64_t number;

		memcpy(&number, words + i * sizeof(number), sizeof(number));
		number &= PYTHON_ID_MASK;
		if (number && !hashmap_get(&f->wanted, 0, number))
			(void)!hashmap_put(&f->wanted, 0, number, number);
	}
}

size_t exported_functions_next(struct exported_functions *f, uint32_t *pos, uint64_t id,
			       uint64_t time_ns, uint8_t buf[static UNWOUND_RECORD_MAX])
{
	struct python_function function;
	uint64_t number;

	while ((number = hashmap_next(&f->wanted, pos)) != 0) {
		if (python_function_get(f->from, number, &function) == 0)
			return unwound_function(&function, id, time_ns, buf);
		f->missing++;
	}
	return 0;
}
