// SPDX-License-Identifier: Apache-2.0
/*
 * tracectl: finds the command, parses its options, runs it, turns the end into an exit code.
 */
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/command.h"
#include "client/ctl.h"
#include "client/help.h"
#include "client/human.h"

static int usage_error(struct ctl *ctl, const struct command *command, const char *message)
{
	(void)ctl_fail(ctl, EXIT_USAGE, "usage", "%s", message);
	if (command) {
		help_print_usage(stderr, command);
		(void)fprintf(stderr, "'tracectl %s --help' says more.\n", command->name);
	} else {
		(void)fputs("'tracectl help' lists the commands.\n", stderr);
	}
	return EXIT_USAGE;
}

static int run_command(const struct command *command, int argc, char *const *argv)
{
	_cleanup_free_ void *values = calloc(1, command->options_size ? command->options_size : 1);
	_cleanup_free_ const char **operands = calloc((size_t)argc + 1, sizeof(*operands));
	struct common_options common = {0};
	struct ctl ctl = {.command = command->name};
	const struct option_set sets[] = {
		{command->options, values},
		{common_option_specs, &common},
	};
	char error[OPTION_ERROR_SIZE];
	size_t n_operands = 0;
	int r;

	if (!values || !operands)
		return ctl_fail(&ctl, EXIT_FAILED, "ENOMEM", "out of memory");
	if (options_parse(sets, ARRAY_SIZE(sets), argc, argv, command->stop_at_operand, operands,
		    &n_operands, error) < 0) {
		ctl.json = common.json;
		return usage_error(&ctl, command, error);
	}
	if (common.help) {
		help_print_command(stdout, command);
		return EXIT_OK;
	}
	ctl.json = common.json;
	ctl.socket = common.socket;
	if (n_operands < command->min_operands)
		return usage_error(&ctl, command, "an operand is missing");
	if (n_operands > command->max_operands)
		return usage_error(&ctl, command, "there are too many operands");
	r = command->exec(&ctl, values, operands, n_operands);
	ctl_fini(&ctl);
	return r;
}

/* Output that did not get to where it was sent is a failure, whatever the command thought. */
static int flush_output(int code)
{
	if (!ferror(stdout) && fflush(stdout) == 0)
		return code;
	if (errno != EPIPE)
		(void)fprintf(stderr, "tracectl: cannot write the output: %s\n", strerror(errno));
	return code == EXIT_OK ? EXIT_FAILED : code;
}

int main(int argc, char **argv)
{
	const struct command *command;
	struct ctl ctl = {0};
	const char *word = argc > 1 ? argv[1] : "";
	_cleanup_free_ char *message = NULL;

	(void)setlocale(LC_TIME, "");
	/* a reader that left ("| head") is an error of a write, not a death */
	(void)signal(SIGPIPE, SIG_IGN);
	if (!strcmp(word, "--help") || !strcmp(word, "-h"))
		word = "help";
	else if (!strcmp(word, "--version"))
		word = "version";
	if (!*word) {
		help_print(stderr);
		return EXIT_USAGE;
	}
	command = command_find(word);
	if (!command) {
		message = word[0] == '-'
				  ? human_format("options come after the command: '%s'", word)
				  : human_format("there is no command '%s'", word);
		return usage_error(&ctl, NULL, message);
	}
	return flush_output(run_command(command, argc - 2, argv + 2));
}
