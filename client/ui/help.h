/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Words made from the tables of commands, options and exit codes: help on a terminal, the
 * generated part of the manual page, the shell completion.
 */
#pragma once

#include <stdio.h>

struct command;

/* `tracectl help`: what it is and the list of commands. */
void help_print(FILE *out);

/* `tracectl COMMAND --help`. */
void help_print_command(FILE *out, const struct command *command);

/* One line: how the command is used. */
void help_print_usage(FILE *out, const struct command *command);

/* The sections COMMANDS, OPTIONS and EXIT STATUS of tracectl(1), as man(7) source. */
void help_print_man(FILE *out);

/* The completion script for bash. */
void help_print_completion(FILE *out);
