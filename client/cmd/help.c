// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl help`: the help of all or of one command; also what is generated from the same tables.
 */
#include <stdio.h>

#include "client/core/ctl.h"
#include "client/ui/command.h"
#include "client/ui/help.h"

struct options {
	bool man, completion;
};

static const struct option_spec specs[] = {
	{.name = "man",
		.type = OPTION_FLAG,
		.offset = offsetof(struct options, man),
		.doc = "Print the part of the manual page that is made from the commands' tables."},
	{.name = "completion",
		.type = OPTION_FLAG,
		.offset = offsetof(struct options, completion),
		.doc = "Print the completion script for bash."},
	{0},
};

static int help_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	const struct command *command = NULL;

	if (o->man) {
		help_print_man(stdout);
	} else if (o->completion) {
		help_print_completion(stdout);
	} else if (n) {
		for (size_t i = 0; i < n; i++) {
			const struct command *const *table = command ? command->commands : commands;

			command = table ? command_find(table, operands[i]) : NULL;
			if (!command)
				return ctl_fail(ctl, EXIT_USAGE, "usage",
						"there is no command '%s%s%s'",
						i ? operands[0] : "", i ? " " : "", operands[i]);
		}
		help_print_command(stdout, command);
	} else {
		help_print(stdout);
	}
	return EXIT_OK;
}

const struct command cmd_help = {
	.name = "help",
	.args = "[COMMAND]",
	.summary = "print the help of a command",
	.doc = "Prints the list of commands, or the help of one.",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_COMMAND,
	.max_operands = 2,
	.exec = help_exec,
};
