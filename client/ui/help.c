// SPDX-License-Identifier: Apache-2.0
/*
 * Help, manual and completion from the tables. Knows no command by name.
 */
#include "client/ui/help.h"

#include <stdbool.h>
#include <string.h>

#include "client/ui/command.h"
#include "client/ui/exitcode.h"
#include "client/ui/human.h"

#define WIDTH 92

/* Prints `text` wrapped at words, each line indented by `indent` spaces; an empty line parts paragraphs.
 */
static void print_wrapped(FILE *out, const char *text, size_t indent)
{
	size_t column = 0;

	while (*text) {
		size_t n = strcspn(text, " \n"), width = 0;

		for (size_t i = 0; i < n; i++)
			width += ((unsigned char)text[i] & 0xc0) != 0x80;
		if (column && column + 1 + width > WIDTH) {
			(void)fputc('\n', out);
			column = 0;
		}
		if (column)
			column += (size_t)fprintf(out, " ");
		else
			column = (size_t)fprintf(out, "%*s", (int)indent, "");
		(void)fwrite(text, 1, n, out);
		column += width;
		text += n;
		if (!strncmp(text, "\n\n", 2)) {
			(void)fputs("\n\n", out);
			column = 0;
		}
		text += strspn(text, " \n");
	}
	(void)fputc('\n', out);
}

static void print_option(FILE *out, const struct option_spec *s)
{
	if (s->letter)
		(void)fprintf(out, "  -%c, --%s", s->letter, s->name);
	else
		(void)fprintf(out, "      --%s", s->name);
	if (s->arg)
		(void)fprintf(out, "=%s", s->choices ? s->choices : s->arg);
	(void)fputc('\n', out);
	print_wrapped(out, s->doc, 10);
}

void help_print_usage(FILE *out, const struct command *command)
{
	if (command->commands) {
		for (size_t i = 0; command->commands[i]; i++)
			help_print_usage(out, command->commands[i]);
		return;
	}
	(void)fprintf(out, "usage: tracectl %s%s%s%s\n", command->name,
		command->options ? " [options]" : "", *command->args ? " " : "", command->args);
}

void help_print_command(FILE *out, const struct command *command)
{
	help_print_usage(out, command);
	(void)fputc('\n', out);
	print_wrapped(out, command->doc, 0);
	if (command->commands)
		(void)fputs("\ncommands:\n", out);
	for (size_t i = 0; command->commands && command->commands[i]; i++)
		(void)fprintf(out, "  %-14s %s\n", command->commands[i]->name,
			command->commands[i]->summary);
	if (command->example)
		(void)fprintf(out, "\nexample: %s\n", command->example);
	(void)fputs("\noptions:\n", out);
	for (const struct option_spec *s = command->options; s && s->name; s++)
		print_option(out, s);
	for (const struct option_spec *s = common_option_specs; s->name; s++)
		print_option(out, s);
}

void help_print(FILE *out)
{
	(void)fputs("usage: tracectl COMMAND [options] [operands]\n\n", out);
	print_wrapped(out,
		"Controls tracerd, the flight recorder for running programs: arm a process, and "
		"when something "
		"was slow, take a snapshot of its last moments as a timeline.",
		0);
	(void)fputs("\ncommands:\n", out);
	for (size_t i = 0; commands[i]; i++)
		(void)fprintf(out, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
	(void)fputs("\noptions of every command:\n", out);
	for (const struct option_spec *s = common_option_specs; s->name; s++)
		print_option(out, s);
	(void)fputs("\nexit codes:\n", out);
	for (const struct exit_code_doc *e = exit_code_docs; e->doc; e++)
		(void)fprintf(out, "  %3d  %s\n", (int)e->code, e->doc);
	(void)fputs("\n'tracectl COMMAND --help' and tracectl(1) say more.\n", out);
}

/* ---- man(7) */

/* Text with what man(7) would interpret escaped; an empty line becomes a new paragraph. */
static void man_text(FILE *out, const char *text)
{
	bool line_start = true;

	for (const char *p = text; *p; p++) {
		if (p[0] == '\n' && p[1] == '\n') {
			(void)fputs("\n.PP\n", out);
			p++;
			line_start = true;
			continue;
		}
		if (line_start && (*p == '.' || *p == '\''))
			(void)fputs("\\&", out);
		line_start = *p == '\n';
		if (*p == '\\')
			(void)fputs("\\e", out);
		else if (*p == '-')
			(void)fputs("\\-", out);
		else
			(void)fputc(*p, out);
	}
	(void)fputc('\n', out);
}

static void man_option(FILE *out, const struct option_spec *s)
{
	(void)fputs(".TP\n", out);
	if (s->letter)
		(void)fprintf(out, "\\fB\\-%c\\fR, ", s->letter);
	(void)fputs("\\fB\\-\\-", out);
	for (const char *p = s->name; *p; p++)
		(void)fputs(*p == '-' ? "\\-" : (char[]){*p, 0}, out);
	(void)fputs("\\fR", out);
	if (s->arg)
		(void)fprintf(out, "=\\fI%s\\fR", s->choices ? s->choices : s->arg);
	(void)fputc('\n', out);
	man_text(out, s->doc);
}

static void man_command(FILE *out, const struct command *c)
{
	(void)fprintf(out, ".SS tracectl %s%s\\fI%s%s\\fR\n", c->name,
		c->options ? " [options]" : "", *c->args ? " " : "", c->args);
	man_text(out, c->doc);
	for (const struct option_spec *s = c->options; s && s->name; s++)
		man_option(out, s);
	if (c->example) {
		(void)fputs(".PP\nExample:\n.PP\n.RS 4\n.nf\n", out);
		man_text(out, c->example);
		(void)fputs(".fi\n.RE\n", out);
	}
}

void help_print_man(FILE *out)
{
	(void)fputs(".SH COMMANDS\n", out);
	for (size_t i = 0; commands[i]; i++) {
		man_command(out, commands[i]);
		for (size_t k = 0; commands[i]->commands && commands[i]->commands[k]; k++)
			man_command(out, commands[i]->commands[k]);
	}
	(void)fputs(".SH OPTIONS\nEvery command takes these.\n", out);
	for (const struct option_spec *s = common_option_specs; s->name; s++)
		man_option(out, s);
	(void)fputs(".SH \"EXIT STATUS\"\n", out);
	for (const struct exit_code_doc *e = exit_code_docs; e->doc; e++) {
		(void)fprintf(out, ".TP\n\\fB%d\\fR\n", (int)e->code);
		man_text(out, e->doc);
	}
}

/* ---- bash */

static void completion_words(FILE *out, const struct option_spec *specs)
{
	for (const struct option_spec *s = specs; s && s->name; s++) {
		(void)fprintf(out, " --%s%s", s->name, s->arg ? "=" : "");
		if (s->letter)
			(void)fprintf(out, " -%c", s->letter);
	}
}

/* A name as a pattern of a case: the space of "trigger add" is one of its characters. */
static void completion_pattern(FILE *out, const char *name)
{
	for (; *name; name++)
		(void)fprintf(out, "%s%c", *name == ' ' ? "\\" : "", *name);
}

/* What completes an option's value, as a command of bash; NULL: nothing. */
static const char *completion_generator(const struct option_spec *s)
{
	switch (s->type) {
	case OPTION_FILE:
		return "-f";
	case OPTION_UNIT:
		return "-W \"$(systemctl list-units --all --plain --no-legend 2>/dev/null | cut -d' ' -f1)\"";
	default:
		return NULL;
	}
}

static bool completion_has_value(const struct option_spec *s)
{
	return s->choices || s->words || completion_generator(s);
}

static void completion_choice(FILE *out, const char *command, const struct option_spec *s)
{
	(void)fputc('\t', out);
	completion_pattern(out, command);
	(void)fprintf(out, ":--%s", s->name);
	if (s->letter) {
		(void)fputc('|', out);
		completion_pattern(out, command);
		(void)fprintf(out, ":-%c", s->letter);
	}
	if (completion_generator(s)) {
		(void)fprintf(out, ") COMPREPLY=($(compgen %s -- \"$cur\")); return ;;\n",
			      completion_generator(s));
		return;
	}
	(void)fputs(") COMPREPLY=($(compgen -W \"", out);
	for (const char *p = s->choices; p && *p; p++)
		(void)fputc(*p == '|' ? ' ' : *p, out);
	for (size_t i = 0; s->words && s->words(i); i++)
		(void)fprintf(out, "%s%s", i ? " " : "", s->words(i));
	/* compgen expands words: a name with anything else in it is none */
	if (s->type == OPTION_SNAPSHOT_FILE)
		(void)fputs(
			" $(for w in \"${words[@]:2:cword-2}\"; do [[ $w == -* ]] || tracectl fetch --list \"$w\"; done 2>/dev/null | "
			"grep -x '[[:alnum:]._/+-]*')",
			out);
	(void)fputs("\" -- \"$cur\")); return ;;\n", out);
}

/* The case branches for options of this command whose values can be completed. */
static void completion_values(FILE *out, const struct command *c)
{
	for (const struct option_spec *s = c->options; s && s->name; s++)
		if (completion_has_value(s))
			completion_choice(out, c->name, s);
}

static void completion_options(FILE *out, const struct command *c)
{
	(void)fputc('\t', out);
	completion_pattern(out, c->name);
	(void)fputs(") options=\"", out);
	completion_words(out, c->options);
	(void)fputs("\" ;;\n", out);
}

static const char *completion_operand(enum operand_kind kind)
{
	switch (kind) {
	case OPERAND_PID:
		return "$(compgen -W \"$(cd /proc && echo [0-9]*)\" -- \"$cur\")";
	case OPERAND_TARGET:
		return "$(compgen -W \"$(tracectl list --ids 2>/dev/null)\" -- \"$cur\")";
	case OPERAND_SNAPSHOT:
		return "$(compgen -W \"$(tracectl snapshots --ids 2>/dev/null)\" -- \"$cur\")";
	case OPERAND_TARGET_OR_SNAPSHOT:
		return "$(compgen -W \"$(tracectl list --ids 2>/dev/null; tracectl snapshots --ids 2>/dev/null)\" "
		       "-- \"$cur\")";
	case OPERAND_TRIGGER:
		return "$(compgen -W \"$(tracectl trigger list --ids 2>/dev/null)\" -- \"$cur\")";
	case OPERAND_FILE:
		return "$(compgen -f -- \"$cur\")";
	case OPERAND_COMMAND_LINE:
		return "$(compgen -c -- \"$cur\")";
	case OPERAND_COMMAND:
		return "$(compgen -W \"$commands\" -- \"$cur\")";
	case OPERAND_NONE:
		break;
	}
	return NULL;
}

static void completion_operands(FILE *out, const struct command *c)
{
	const char *operand = completion_operand(c->operand);

	if (!operand)
		return;
	(void)fputc('\t', out);
	completion_pattern(out, c->name);
	(void)fprintf(out, ") COMPREPLY=(%s) ;;\n", operand);
}

/* Every command that can be run: those of a command in its place. */
static void each_command(FILE *out, void (*fn)(FILE *out, const struct command *c))
{
	for (size_t i = 0; commands[i]; i++) {
		if (!commands[i]->commands)
			fn(out, commands[i]);
		for (size_t k = 0; commands[i]->commands && commands[i]->commands[k]; k++)
			fn(out, commands[i]->commands[k]);
	}
}

/* "trigger" completes to its own commands; after one of those the two words are the command. */
static void completion_sub_commands(FILE *out)
{
	for (size_t i = 0; commands[i]; i++) {
		if (!commands[i]->commands)
			continue;
		(void)fprintf(out,
			"\tif [[ $command == %s ]]; then\n\t\tif [[ $cword -eq 2 ]]; then\n"
			"\t\t\tCOMPREPLY=($(compgen -W \"",
			commands[i]->name);
		for (size_t k = 0; commands[i]->commands[k]; k++)
			(void)fprintf(out, "%s ",
				commands[i]->commands[k]->name + strlen(commands[i]->name) + 1);
		(void)fputs("--help\" -- \"$cur\")); return\n\t\tfi\n\t\tcommand+=\" "
			    "${words[2]}\"\n\tfi\n",
			out);
	}
}

void help_print_completion(FILE *out)
{
	(void)fputs("# SPDX-License-Identifier: Apache-2.0\n"
		    "# bash completion for tracectl; written by 'tracectl help --completion'.\n"
		    "_tracectl() {\n"
		    "\tlocal cur prev command i words cword options= operand=\n"
		    "\tlocal commands=\"",
		out);
	for (size_t i = 0; commands[i]; i++)
		(void)fprintf(out, "%s%s", i ? " " : "", commands[i]->name);
	(void)fputs("\"\n"
		    "\twords=(\"${COMP_WORDS[@]}\") cword=$COMP_CWORD\n"
		    "\tcur=${words[cword]} prev=${words[cword-1]} command=${words[1]}\n"
		    "\tCOMPREPLY=()\n"
		    "\t# \"--name=value\" comes as three words\n"
		    "\tif [[ $cur == = ]]; then cur=\n"
		    "\telif [[ $prev == = ]]; then prev=${words[cword-2]}; fi\n"
		    "\tif [[ $cword -eq 1 ]]; then\n"
		    "\t\tCOMPREPLY=($(compgen -W \"$commands --help\" -- \"$cur\")); return\n"
		    "\tfi\n",
		out);
	completion_sub_commands(out);
	(void)fputs("\tcase $command:$prev in\n", out);
	each_command(out, completion_values);
	for (const struct option_spec *s = common_option_specs; s->name; s++)
		if (completion_has_value(s))
			completion_choice(out, "*", s);
	(void)fputs("\tesac\n"
		    "\tcase $command in\n",
		out);
	each_command(out, completion_options);
	(void)fputs("\tesac\n"
		    "\tif [[ $cur == -* ]]; then\n"
		    "\t\tCOMPREPLY=($(compgen -W \"$options",
		out);
	completion_words(out, common_option_specs);
	(void)fputs("\" -- \"$cur\"))\n"
		    "\t\t[[ ${COMPREPLY[0]} == *= ]] && compopt -o nospace\n"
		    "\t\treturn\n"
		    "\tfi\n"
		    "\tcase $command in\n",
		out);
	each_command(out, completion_operands);
	(void)fputs("\tesac\n"
		    "} && complete -F _tracectl tracectl\n",
		out);
}
