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

#include "client/core/ctl.h"
#include "client/ui/command.h"
#include "client/ui/help.h"
#include "client/ui/human.h"
#include "client/ui/stdout.h"
#include "common/base/escape.h"

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

/*
 * Parses common options and then one word of `table`. *ret_rest counts the words after it, the last
 * of argv. NULL: the program ends with *ret_code.
 */
static const struct command *next_command(const struct command *const *table,
	const struct command *parent, int argc, char *const *argv, struct common_options *common,
	int *ret_rest, int *ret_code)
{
	_cleanup_free_ const char **words = calloc((size_t)argc + 1, sizeof(*words));
	const struct option_set set = {common_option_specs, common};
	struct ctl ctl = {.command = parent ? parent->name : NULL};
	const struct command *command;
	char error[OPTION_ERROR_SIZE], safe[80];
	size_t n = 0;

	*ret_code = EXIT_USAGE;
	if (!words) {
		*ret_code = ctl_fail(&ctl, EXIT_FAILED, "ENOMEM", "out of memory");
		return NULL;
	}
	if (option_parse(&set, 1, argc, argv, true, words, &n, error) < 0) {
		(void)usage_error(&ctl, parent, error);
		return NULL;
	}
	ctl.json = common->json;
	if (n == 0 || common->help) {
		FILE *out = common->help ? stdout : stderr;

		if (parent)
			help_print_command(out, parent);
		else
			help_print(out);
		if (common->help)
			*ret_code = EXIT_OK;
		return NULL;
	}
	command = command_find(table, words[0]);
	if (!command) {
		(void)escape_text(safe, sizeof(safe), words[0], strlen(words[0]));
		(void)snprintf(error, sizeof(error), "there is no command '%s%s%s'",
			parent ? parent->name : "", parent ? " " : "", safe);
		(void)usage_error(&ctl, parent, error);
		return NULL;
	}
	*ret_rest = (int)n - 1;
	return command;
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
	r = option_parse(sets, ARRAY_SIZE(sets), argc, argv, command->stop_at_operand, operands,
		&n_operands, error);
	ctl.json = common.json;
	ctl.socket = common.socket;
	if (r < 0)
		return usage_error(&ctl, command, error);
	if (common.wide)
		human_set_wide();
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

static void on_pipe(int signal)
{
	(void)signal;
}

/* Output that did not get to where it was sent is a failure, whatever the command thought. */
static int flush_output(int code)
{
	int r = stdout_flush();

	if (r == 0)
		return code;
	if (r != -EPIPE)
		(void)fprintf(stderr, "tracectl: cannot write the output: %s\n", strerror(-r));
	return code == EXIT_OK ? EXIT_FAILED : code;
}

int main(int argc, char **argv)
{
	struct common_options common = {0};
	const struct command *command = NULL;
	int rest = argc - 1, code;

	(void)setlocale(LC_TIME, "");
	stdout_open();
	/*
	 * A reader that left ("| head") makes a write fail and does not kill us. This is a handler,
	 * not SIG_IGN, since an exec resets it: a command that we run gets the signal as we found
	 * it.
	 */
	if (signal(SIGPIPE, SIG_IGN) != SIG_IGN)
		(void)signal(SIGPIPE, on_pipe);
	if (argc > 1 && !strcmp(argv[1], "--version"))
		return flush_output(run_command(&cmd_version, common, 0, argv + argc));
	do {
		command = next_command(command ? command->commands : commands, command, rest,
			argv + argc - rest, &common, &rest, &code);
		if (!command)
			return flush_output(code);
	} while (command->commands);
	return flush_output(run_command(command, common, rest, argv + argc - rest));
}
