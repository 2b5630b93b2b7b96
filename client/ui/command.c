// SPDX-License-Identifier: Apache-2.0
/*
 * The table of commands and the options that all of them take.
 */
#include "client/ui/command.h"

#include <string.h>

const struct option_spec common_option_specs[] = {
	{.name = "json",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct common_options, json),
	 .doc = "Print JSON, the protocol's own objects, instead of text for people."},
	{.name = "wide",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct common_options, wide),
	 .doc = "Print stacks and tables whole, even if the terminal is narrower. Output that does "
		"not go to a terminal is always whole."},
	{.name = "socket",
	 .type = OPTION_FILE,
	 .offset = offsetof(struct common_options, socket),
	 .arg = "PATH",
	 .doc = "The daemon's control socket; else $TRACERD_SOCKET, else the one built in."},
	{.name = "help",
	 .letter = 'h',
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct common_options, help),
	 .doc = "Print the command's help and exit."},
	{0},
};

const struct command *const commands[] = {
	&cmd_run,
	&cmd_arm,
	&cmd_disarm,
	&cmd_list,
	&cmd_show,
	&cmd_snapshot,
	&cmd_snapshots,
	&cmd_cancel,
	&cmd_fetch,
	&cmd_delete,
	&cmd_decode,
	&cmd_trigger,
	&cmd_status,
	&cmd_watch,
	&cmd_version,
	&cmd_help,
	NULL,
};

const struct command *command_find(const struct command *const *table, const char *word)
{
	for (size_t i = 0; table[i]; i++) {
		const char *last = strrchr(table[i]->name, ' ');

		if (!strcmp(last ? last + 1 : table[i]->name, word))
			return table[i];
	}
	return NULL;
}
