// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl fetch`: fetch the files of a snapshot. The daemon hands over descriptors; the
 * files are written by this process with its own rights.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/ctl.h"
#include "client/core/snapshot.h"
#include "client/ui/command.h"
#include "client/ui/field.h"
#include "client/ui/human.h"
#include "client/ui/interrupt.h"
#include "client/ui/output.h"
#include "client/ui/report.h"
#include "common/bundle/bundle.h"

struct options {
	const char *output, *file;
	bool list;
};

/* The files that every snapshot has; a bundle with programs in it has more. */
static const char *file_word(size_t i)
{
	static const char *const names[] = {BUNDLE_TRACE, BUNDLE_PERFDATA, BUNDLE_META};

	return i < ARRAY_SIZE(names) ? names[i] : NULL;
}

static const struct option_spec specs[] = {
	{.name = "output",
		.letter = 'o',
		.type = OPTION_FILE,
		.offset = offsetof(struct options, output),
		.arg = "PATH",
		.doc = "Where to write: a file for one file of the snapshot, a name that ends in "
		       "a slash for the whole bundle. SNAPSHOT.pftrace in the current directory "
		       "if not given."},
	{.name = "file",
		.letter = 'f',
		.type = OPTION_SNAPSHOT_FILE,
		.offset = offsetof(struct options, file),
		.arg = "NAME",
		.words = file_word,
		.doc = "Which file of the snapshot; trace.pftrace, the decoded trace, if not "
		       "given."},
	{.name = "list",
		.letter = 'l',
		.type = OPTION_FLAG,
		.offset = offsetof(struct options, list),
		.doc = "Print the names of the snapshot's files and fetch none."},
	{0},
};

static int list_files(struct ctl *ctl, const char *id)
{
	_cleanup_json_ struct json_object *files = NULL;
	int r = snapshot_files(ctl, id, &files);

	if (r != EXIT_OK)
		return r;
	if (ctl->json)
		ctl_print_json(files);
	else
		for (size_t i = 0; i < field_count(files, "files"); i++)
			(void)printf("%s\n", field_text(field_at(files, "files", i), "name"));
	return EXIT_OK;
}

static int fetch_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *result = json_object_new_object();
	_cleanup_free_ char *safe = human_name(operands[0]),
			    *standard = human_format("%s.pftrace", safe);
	const char *path = o->output ? o->output : standard,
		   *file = o->file ? o->file : BUNDLE_TRACE;
	_cleanup_close_ int interrupt_fd = -1;
	bool as_dir = o->output && output_is_dir(o->output);
	char buf[HUMAN_SIZE];
	uint64_t bytes = 0;
	int r;

	if (o->list && (o->file || o->output))
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"--list fetches nothing: leave out --output and --file");
	if (as_dir && o->file)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"--file names one file, but %s is a directory", o->output);
	/* the id becomes a file name */
	if (!o->output && strchr(operands[0], '/'))
		return ctl_fail(
			ctl, EXIT_NOT_FOUND, "not_found", "no such snapshot: %s", operands[0]);
	r = ctl_connect(ctl);
	if (r != EXIT_OK)
		return r;
	if (o->list)
		return list_files(ctl, operands[0]);
	interrupt_fd = interrupt_open();
	if (as_dir)
		r = snapshot_fetch_dir(ctl, operands[0], path, interrupt_fd, &bytes);
	else
		r = snapshot_fetch_file(ctl, operands[0], file, path, interrupt_fd, &bytes);
	if (r != EXIT_OK || !strcmp(path, "-"))
		return r;
	if (ctl->json) {
		json_add_string(result, "snapshot", operands[0]);
		json_add_string(result, "output", path);
		json_add_uint(result, "bytes", bytes);
		ctl_print_json(result);
		return EXIT_OK;
	}
	(void)printf("wrote %s (%s)\n", path, human_bytes(buf, bytes));
	if (!as_dir && !strcmp(file, BUNDLE_TRACE))
		report_print_how_to_open(stdout, path);
	return EXIT_OK;
}

const struct command cmd_fetch = {
	.name = "fetch",
	.args = "SNAPSHOT",
	.summary = "fetch a snapshot's trace or bundle",
	.doc = "Writes the decoded trace of a snapshot, another of its files, or the whole "
	       "bundle. The files are yours and readable by you only.",
	.example = "tracectl fetch 20261121-101500-3f9a -o slow/",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_SNAPSHOT,
	.min_operands = 1,
	.max_operands = 1,
	.exec = fetch_exec,
};
