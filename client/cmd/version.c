// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl version`: this program's version, and the daemon's if there is one. A daemon that is
 * not there is no failure here.
 */
#include <stdio.h>
#include <stdlib.h>

#include "client/core/ctl.h"
#include "client/ui/command.h"
#include "client/ui/human.h"

static int version_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	_cleanup_json_ struct json_object *hello = NULL, *all = json_object_new_object();
	int r = tracerd_connect(ctl->socket, 2000, &ctl->client);

	if (r == 0)
		r = ctl_call(ctl, "hello", NULL, NULL, 0, 2000, &hello, NULL);
	if (ctl->json) {
		json_add_string(all, "tracectl", tracerd_version());
		if (hello)
			json_add(all, "tracerd", json_object_get(hello));
		else
			json_add_null(all, "tracerd");
		ctl_print_json(all);
		return EXIT_OK;
	}
	(void)printf("tracectl %s\n", tracerd_version());
	if (hello) {
		_cleanup_free_ char *version = human_name(field_text(hello, "version"));
		_cleanup_free_ char *role = human_name(field_text(hello, "role"));

		(void)printf("tracerd  %s (protocol %d, you are %s)\n", version,
			(int)field_number(hello, "protocol"), role);
	} else {
		(void)printf("tracerd  does not answer\n");
	}
	return EXIT_OK;
}

const struct command cmd_version = {
	.name = "version",
	.args = "",
	.summary = "print versions",
	.doc = "Prints the version of tracectl and, if it runs, of tracerd.",
	.exec = version_exec,
};
