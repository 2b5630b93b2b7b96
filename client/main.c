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

static int run_command(
	const struct command *command, struct common_options common, int argc, char *const *argv)
{
	_cleanup_free_ void *values = calloc(1, command->options_size ? command->options_size : 1);
	_cleanup_free_ const char **operands = calloc((size_t)argc + 1, sizeof(*operands));
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
	r = options_parse(sets, ARRAY_SIZE(sets), argc, argv, command->stop_at_operand, operands,
		&n_operands, error);
	ctl.json = common.json;
	ctl.socket = common.socket;
	if (r < 0)
		return usage_error(&ctl, command, error);
	if (common.help) {
		help_print_command(stdout, command);
		return EXIT_OK;
	}
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
	_cleanup_free_ const char **words = calloc((size_t)argc + 1, sizeof(*words));
	struct common_options common = {0};
	const struct option_set set = {common_option_specs, &common};
	const struct command *command;
	struct ctl ctl = {0};
	char error[OPTION_ERROR_SIZE];
	const char *word;
	size_t n = 0;

	(void)setlocale(LC_TIME, "");
	/* a reader that left ("| head") is an error of a write, not a death */
	(void)signal(SIGPIPE, SIG_IGN);
	if (!words)
		return ctl_fail(&ctl, EXIT_FAILED, "ENOMEM", "out of memory");
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return flush_output(run_command(&cmd_version, common, 0, argv + argc));
	if (options_parse(&set, 1, argc - 1, argv + 1, true, words, &n, error) < 0)
		return usage_error(&ctl, NULL, error);
	if (common.help) {
		help_print(stdout);
		return flush_output(EXIT_OK);
	}
	if (n == 0) {
		help_print(stderr);
		return EXIT_USAGE;
	}
	word = words[0];
	command = command_find(word);
	if (!command) {
		(void)snprintf(error, sizeof(error), "there is no command '%.80s'", word);
		return usage_error(&ctl, NULL, error);
	}
	/* what is behind the command's name are the last words of argv, as they were */
	return flush_output(run_command(command, common, (int)n - 1, argv + argc - (n - 1)));
}
