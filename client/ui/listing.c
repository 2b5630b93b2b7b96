// SPDX-License-Identifier: Apache-2.0
#include "client/ui/listing.h"

#include <stddef.h>
#include <stdlib.h>

#include "client/ui/human.h"

const struct option_spec listing_specs[] = {
	{.name = "ids",
		.letter = 'q',
		.type = OPTION_FLAG,
		.offset = offsetof(struct listing_options, ids),
		.doc = "Print the ids only, one a line."},
	{0},
};

int listing_print(struct ctl *ctl, const struct listing_options *o, const struct listing *listing)
{
	_cleanup_json_ struct json_object *list = NULL, *all = NULL;
	int r = ctl_list(ctl, listing->method, listing->params, listing->member, &list);

	if (r != EXIT_OK)
		return r;
	if (ctl->json) {
		all = json_object_new_object();
		json_add(all, listing->member, take_ptr(list));
		ctl_print_json(all);
		return EXIT_OK;
	}
	if (o->ids) {
		for (size_t i = 0; i < json_object_array_length(list); i++) {
			_cleanup_free_ char *id =
				human_name(field_text(json_object_array_get_idx(list, i), "id"));

			(void)puts(id);
		}
		return EXIT_OK;
	}
	if (!json_object_array_length(list))
		(void)puts(listing->empty);
	listing->view(stdout, list);
	return EXIT_OK;
}
