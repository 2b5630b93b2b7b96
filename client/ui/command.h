/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The commands of tracectl: one const descriptor each, defined in the command's own file. The
 * table of them drives the parser, --help, `tracectl help`, the manual page's generated part and
 * the shell completion.
 *
 * A command may consist of others ("trigger add"): then it has a table of those and nothing to run.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "client/ui/option.h"

struct ctl;

/* What the operands of a command name; the completion offers those. */
enum operand_kind {
	OPERAND_NONE,
	OPERAND_PID,
	OPERAND_TARGET,
	OPERAND_SNAPSHOT,
	OPERAND_TARGET_OR_SNAPSHOT,
	OPERAND_FILE,
	OPERAND_COMMAND_LINE,
	OPERAND_COMMAND,
	OPERAND_TRIGGER,
};

struct command {
	const char *name;    /* of a sub-command after its command's: "trigger add" */
	const char *args;    /* the operands in the usage line, "" for none */
	const char *summary; /* one line for the list of commands */
	const char *doc;     /* paragraphs, separated by an empty line; no other newlines */
	const char *example; /* one command line, or NULL */
	const struct option_spec *options; /* NULL: only the common ones */
	size_t options_size;               /* of the struct that the options point into */
	enum operand_kind operand;
	size_t min_operands, max_operands;
	bool stop_at_operand; /* the operands are a command line with options of its own */
	const struct command *const
		*commands; /* sub-commands, ended by NULL; NULL: it is run itself */
	/*
	 * Runs the command; `options` is its struct of values, zero where nothing was given.
	 * Returns the program's exit code.
	 */
	int (*exec)(struct ctl *ctl, const void *options, const char *const *operands,
		size_t n_operands);
};

/* The options that every command takes. */
struct common_options {
	bool json;
	bool wide;
	bool help;
	const char *socket;
};
extern const struct option_spec common_option_specs[];

/* All commands in the order of the help, ended by NULL. */
extern const struct command *const commands[];

/* The one of a table, by the last word of its name; NULL. */
const struct command *command_find(const struct command *const *table, const char *word);

extern const struct command cmd_run;
extern const struct command cmd_arm;
extern const struct command cmd_disarm;
extern const struct command cmd_list;
extern const struct command cmd_show;
extern const struct command cmd_snapshot;
extern const struct command cmd_snapshots;
extern const struct command cmd_cancel;
extern const struct command cmd_fetch;
extern const struct command cmd_delete;
extern const struct command cmd_decode;
extern const struct command cmd_trigger;
extern const struct command cmd_trigger_add;
extern const struct command cmd_trigger_list;
extern const struct command cmd_trigger_remove;
extern const struct command cmd_status;
extern const struct command cmd_watch;
extern const struct command cmd_version;
extern const struct command cmd_help;
