// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl decode`: a bundle or a perf.data file to a timeline, without the daemon.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/core/ctl.h"
#include "client/core/offline.h"
#include "client/ui/command.h"
#include "client/ui/field.h"
#include "client/ui/human.h"
#include "client/ui/interrupt.h"
#include "client/ui/output.h"
#include "client/ui/report.h"

struct options {
	const char *output, *format, *symfs, *pt_info;
	bool summary, stats, calls, branches, insns;
	bool lines, inlined, verify;
	bool uncompressed;
	uint64_t timeout, last, threads;
};

#define DEFAULT_TIMEOUT (3600 * DURATION_S)

static const struct option_spec specs[] = {
	{.name = "output",
	 .letter = 'o',
	 .type = OPTION_FILE,
	 .offset = offsetof(struct options, output),
	 .arg = "FILE",
	 .doc = "Where to write the timeline; - is the standard output."},
	{.name = "format",
	 .letter = 'f',
	 .type = OPTION_CHOICE,
	 .offset = offsetof(struct options, format),
	 .arg = "NAME",
	 .choices = "pftrace|text|go-parsed|go-wire",
	 .doc = "What to write: pftrace for ui.perfetto.dev and trace_processor, text to "
		"read and to compare. Of an execution trace of a Go program go-parsed writes "
		"its events, go-wire what is in the file, both as 'go tool trace -d' does. Not "
		"given: text to the standard output and to names that end in .txt, else pftrace."},
	{.name = "summary",
	 .letter = 's',
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, summary),
	 .doc = "Print the summary only; then --output may be left out."},
	{.name = "last",
	 .type = OPTION_DURATION,
	 .offset = offsetof(struct options, last),
	 .arg = "TIME",
	 .min = 1,
	 .max = 3600 * DURATION_S,
	 .bare_unit = DURATION_MS,
	 .doc = "Let the summary show this last part of the recording by itself first: the slow "
		"moment, where the snapshot was taken right after it. Times have a unit: ns, us, "
		"ms, s, m (minutes) or h, as in 200ms; a number without one is milliseconds."},
	{.name = "calls",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, calls),
	 .doc = "Write the calls of an Intel PT trace as text instead of the timeline: a tree "
		"for each thread, with times and instructions. To the standard output, if "
		"there is no --output. It is written when all is decoded; until then it is in a file "
		"without a name, beside the output or in $TMPDIR (/var/tmp)."},
	{.name = "branches",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, branches),
	 .doc = "Write the branches instead, in the same way: one line for each branch taken."},
	{.name = "insns",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, insns),
	 .doc = "Write the instructions instead, in the same way: the address and the function of each."},
	{.name = "lines",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, lines),
	 .doc = "Show the source line where each function is declared and the one that calls it, "
		"from the debug information of programs and libraries."},
	{.name = "inline",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, inlined),
	 .doc = "Show source lines as --lines does, and in stacks and in the calls of an Intel PT trace also "
		"those that the compiler inlined. For a trace this takes several times as long, since each "
		"branch is looked up."},
	{.name = "stats",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, stats),
	 .doc = "Print what was decoded, what was not, and what took how long; then --output "
		"may be left out."},
	{.name = "verify",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, verify),
	 .doc = "Let libipt follow the same Intel PT trace, compare the instructions, and print where "
		"and how the two decoders differ; then --output may be left out."},
	{.name = "pt-info",
	 .type = OPTION_FILE,
	 .offset = offsetof(struct options, pt_info),
	 .arg = "FILE",
	 .doc = "INPUT is nothing but the bytes of an Intel PT trace; this JSON file describes "
		"the processor, the thread and the code that it ran."},
	{.name = "symfs",
	 .type = OPTION_FILE,
	 .offset = offsetof(struct options, symfs),
	 .arg = "DIR",
	 .doc = "Look for programs, libraries and debug files in this tree first: the "
		"recorded machine's file system."},
	{.name = "threads",
	 .type = OPTION_UINT,
	 .offset = offsetof(struct options, threads),
	 .arg = "N",
	 .min = 1,
	 .max = 16,
	 .doc = "Use at most this many processors; all of them if not given. The output does not "
		"depend on it."},
	{.name = "uncompressed",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, uncompressed),
	 .doc = "Do not compress the timeline: it is larger, and finished sooner."},
	{.name = "timeout",
	 .type = OPTION_DURATION,
	 .offset = offsetof(struct options, timeout),
	 .arg = "TIME",
	 .min = DURATION_MS,
	 .max = 86400 * DURATION_S,
	 .bare_unit = DURATION_S,
	 .doc = "Give up after this time; 1h if not given. A number without a unit is seconds."},
	{0},
};

/* What the job calls the text that replaces the timeline; NULL: the timeline is written. */
static const char *view_of(const struct options *o)
{
	return o->calls ? "calls" : o->branches ? "branches" : o->insns ? "insns" : NULL;
}

static const char *format_for(const struct options *o)
{
	size_t n = o->output ? strlen(o->output) : 0;

	if (o->format)
		return o->format;
	if (view_of(o))
		return "text";
	if (!o->output || !strcmp(o->output, "-") || (n > 4 && !strcmp(o->output + n - 4, ".txt")))
		return "text";
	return "pftrace";
}

static uint64_t threads_for(const struct options *o)
{
	const long online = sysconf(_SC_NPROCESSORS_ONLN);

	return o->threads ? o->threads : online > 16 ? 16 : online > 0 ? (uint64_t)online : 1;
}

static int decode_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_(output_file_fini) struct output_file out = OUTPUT_FILE_INIT;
	_cleanup_json_ struct json_object *result = NULL;
	struct json_object *losses;
	_cleanup_close_ int interrupt_fd = -1, scratch_fd = -1;
	const char *scratch_dir;
	struct offline_request request = {
		.input = operands[0],
		.format = format_for(o),
		.symfs = o->symfs,
		.pt_info = o->pt_info,
		.timeout_ns = o->timeout ? o->timeout : DEFAULT_TIMEOUT,
	};
	const bool go = !strncmp(request.format, "go-", 3);
	const char *view = view_of(o), *path = o->output    ? o->output
					       : view || go ? "-"
							    : "/dev/null";
	bool to_stdout = !strcmp(path, "-"), report = o->summary || o->stats || o->verify;
	int r;

	if (o->calls + o->branches + o->insns > 1)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"give only one of --calls, --branches and --insns");
	if (view && strcmp(request.format, "text") != 0)
		return ctl_fail(ctl, EXIT_USAGE, "usage", "--%s writes text: use --format=text",
				view);
	if (o->inlined && (o->branches || o->insns))
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"--inline needs calls, which --%s does not write: use --lines", view);
	if (view && (o->summary || o->last))
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"--%s replaces the timeline, which --summary and --last need", view);
	if (go && (o->summary || o->last || o->verify || o->lines || o->inlined || view))
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"--format %s goes with --output and --stats only", request.format);
	if (!o->output && !view && !go && !report)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"give the output with -o FILE, or ask for --summary, --stats or --verify");
	if (to_stdout && !go && strcmp(request.format, "text") != 0 && isatty(STDOUT_FILENO))
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"a terminal cannot show a trace: use -o FILE or --format=text");
	if (to_stdout && (report || ctl->json))
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"%s and %s cannot both go to the standard output: use -o FILE",
				view || go ? "this text" : "the timeline",
				ctl->json ? "the result" : "a report on it");
	interrupt_fd = interrupt_open();
	r = output_file_begin(path, &out);
	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r),
			"cannot write %s: %s", path, strerror(-r));
	if (o->calls) {
		scratch_fd = output_scratch_open(&out, &scratch_dir);
		if (scratch_fd < 0)
			return ctl_fail(ctl, exit_code_from(scratch_fd),
					tracerd_error_name(scratch_fd),
					"cannot make a temporary file in %s: %s%s",
					scratch_dir ? scratch_dir : "the output's directory",
					strerror(-scratch_fd),
					scratch_dir ? "; TMPDIR can name another directory" : "");
	}
	request.scratch_fd = scratch_fd;
	request.out_fd = out.fd;
	request.output = to_stdout ? "the output" : path;
	request.interrupt_fd = interrupt_fd;
	request.options = json_object_new_object();
	if (o->last)
		json_add_uint(request.options, "last_ns", o->last);
	if (view)
		json_add_string(request.options, "view", view);
	if (o->lines)
		json_add_bool(request.options, "lines", true);
	if (o->inlined)
		json_add_bool(request.options, "inline", true);
	if (o->verify)
		json_add_bool(request.options, "verify", true);
	if (o->uncompressed)
		json_add_bool(request.options, "compress", false);
	/* 0: one thread does it all, without workers */
	json_add_uint(request.options, "threads", threads_for(o) > 1 ? threads_for(o) : 0);
	r = offline_decode(ctl, &request, &result);
	if (r != EXIT_OK)
		return r;
	r = output_file_commit(&out);
	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r),
			"cannot write %s: %s", path, strerror(-r));
	losses = field(result, "losses");
	if (go && field_text(losses, "go_trace_broken"))
		return ctl_fail(ctl, EXIT_NOT_DECODED, "decode_failed",
				"%s is broken at byte %" PRIu64
				": %s; what came before that was written",
				request.input, field_number(losses, "go_trace_broken_at_byte"),
				field_text(losses, "go_trace_broken"));
	if (ctl->json) {
		if (o->output)
			json_add_string(result, "output", o->output);
		ctl_print_json(result);
	} else if (report) {
		report_print_incomplete(stdout, result);
		if (o->summary)
			report_print(stdout, field(result, "summary"));
		if (o->verify)
			report_print_verify(stdout, result);
		if (o->stats)
			report_print_stats(stdout, result);
	} else if (!to_stdout) {
		report_print_incomplete(stdout, result);
		(void)printf("wrote %s\n", path);
		if (!strcmp(request.format, "pftrace"))
			report_print_how_to_open(stdout, path);
	}
	return EXIT_OK;
}

const struct command cmd_decode = {
	.name = "decode",
	.args = "INPUT",
	.summary = "decode a bundle, a perf.data file or a Go trace, without the daemon",
	.doc = "Writes the timeline of a bundle that was fetched, of any perf.data file, or of an execution trace of a Go "
	       "program (runtime/trace, go test -trace). It "
	       "needs no daemon: tracectl starts tracerd-decode itself, which runs without "
	       "privileges and opens no files of its own.\n\n"
	       "Programs and libraries are taken from the bundle, if it has them, and then from "
	       "this machine, where they are checked against what was recorded.\n\n"
	       "The description for --pt-info is an object with \"tid\", \"pid\", \"name\", \"cpu\" "
	       "(\"family\", \"model\", \"stepping\"), \"mappings\", a list of objects with \"file\" (beside "
	       "the description), \"offset\", \"length\" and \"address\", and \"time\": \"shift\", \"mult\" and "
	       "\"zero\" as in perf's mmap page, \"nominal_ratio\" (TSC frequency by 100 MHz), \"tsc_ctc\" "
	       "(CPUID.15H EBX and EAX) and \"mtc_period\". Only \"tid\" and \"mappings\" must be there; "
	       "large numbers may be strings.",
	.example = "tracectl decode slow/ -o slow.pftrace",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_FILE,
	.min_operands = 1,
	.max_operands = 1,
	.exec = decode_exec,
};
