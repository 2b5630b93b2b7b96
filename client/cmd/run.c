// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl run`: start a program armed from its first instruction, and be its parent. The daemon
 * never executes anything for a user.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/arm.h"
#include "client/core/launch.h"
#include "client/core/step_progress.h"
#include "client/ui/command.h"
#include "client/ui/human.h"

struct options {
	struct arm_options arm;
	bool quiet, no_children;
};

static const struct option_spec specs[] = {
	ARM_OPTION_SPECS(struct options),
	{.name = "no-children",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, no_children),
	 .doc = "Do not record the processes that it starts. Without this and without --children they are recorded if you "
		"may; not with --backend=step."},
	{.name = "quiet",
	 .letter = 'q',
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, quiet),
	 .doc = "Do not report on the standard error what was armed, or how far the "
		"stepping is."},
	{0},
};

/* The request for it, with the processes that it will start or without them. */
static int arm_program(struct ctl *ctl, const struct arm_options *arm, bool children, pid_t pid,
		       const struct process_fds *fds, struct json_object **ret_result)
{
	struct json_object *params = json_object_new_object();
	struct arm_options options = *arm;

	options.children = children;
	json_add_int(params, "pid", pid);
	return arm_call(ctl, &options, params, fds, ret_result);
}

/* Arms the stopped program. EXIT_OK or EXIT_RUN_FAILED, reported. */
static int arm_stopped(struct ctl *ctl, const struct options *o, pid_t pid,
		       struct step_progress *progress)
{
	const bool by_default = !o->arm.children && !o->no_children && !arm_steps(&o->arm);
	_cleanup_(process_fds_fini) struct process_fds fds = PROCESS_FDS_INIT;
	_cleanup_json_ struct json_object *result = NULL;
	bool alone;
	int r = process_open(pid, &fds);

	if (r == 0 && arm_steps(&o->arm) && arm_start_stepper(ctl, pid, &fds) != EXIT_OK)
		return EXIT_RUN_FAILED;
	if (r == 0)
		r = arm_program(ctl, &o->arm, o->arm.children || by_default, pid, &fds, &result);
	/* by Intel PT an ordinary user may record the program alone */
	alone = r == TRACERD_E_NOT_PERMITTED && by_default;
	if (alone)
		r = arm_program(ctl, &o->arm, false, pid, &fds, &result);
	if (r != 0) {
		(void)arm_report(ctl, r, pid);
		return EXIT_RUN_FAILED;
	}
	/* the standard output belongs to the program */
	if (ctl->json) {
		human_puts(json_text(result, NULL), stderr);
	} else if (!o->quiet) {
		arm_print(ctl, stderr, result);
		if (alone)
			ctl_note(
				ctl,
				"the processes that it starts are not recorded: by Intel PT that is for root and the members of the socket's group; "
				"--backend=sample records them");
		if (arm_steps(&o->arm))
			step_progress_init(progress, ctl, field(result, "target"));
	}
	return EXIT_OK;
}

static int run_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	const bool steps = arm_steps(&o->arm);
	_cleanup_free_ char **argv = calloc(n + 1, sizeof(*argv));
	_cleanup_(launch_fini) struct launch launch = LAUNCH_INIT;
	_cleanup_(step_progress_fini) struct step_progress progress = {0};
	int r, error = 0;
	pid_t pid = 0;

	if (!argv)
		return ctl_fail(ctl, EXIT_RUN_FAILED, "ENOMEM", "out of memory");
	if (o->arm.children && o->no_children)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
				"--children or --no-children, but not both");
	for (size_t i = 0; i < n; i++)
		argv[i] = (char *)(uintptr_t)operands[i];
	if (ctl_connect(ctl) != EXIT_OK)
		return EXIT_RUN_FAILED;
	r = launch_prepare(&launch);
	if (r < 0)
		return ctl_fail(ctl, EXIT_RUN_FAILED, tracerd_error_name(r), "signals: %s",
			strerror(-r));
	r = launch_stopped(&launch, argv, steps, &error);
	if (r == LAUNCH_E_EXEC)
		return ctl_fail(ctl, error == ENOENT ? EXIT_RUN_NOT_FOUND : EXIT_RUN_NOT_EXECUTABLE,
			tracerd_error_name(-error), "cannot execute '%s': %s", operands[0],
			strerror(error));
	if (r == 0 && steps)
		r = launch_hand_over(&launch);
	if (r != 0)
		return ctl_fail(ctl, EXIT_RUN_FAILED, "run", "cannot start '%s': %s", operands[0],
			r < 0 ? strerror(-r) : "it ended at once");
	r = arm_stopped(ctl, o, launch.pid, &progress);
	if (r != EXIT_OK)
		return r;
	/* the recording does not need the connection, and the program may run for weeks */
	ctl_fini(ctl);
	r = launch_release(&launch, &pid);
	if (r < 0)
		return ctl_fail(ctl, EXIT_RUN_FAILED, tracerd_error_name(r),
			"cannot release '%s': %s", operands[0], strerror(-r));
	r = launch_wait(&launch, pid, progress.target ? step_progress_tick : NULL, &progress);
	return r >= 0 ? r
		      : ctl_fail(ctl, EXIT_RUN_FAILED, tracerd_error_name(r),
				"cannot wait for '%s'", operands[0]);
}

const struct command cmd_run = {
	.name = "run",
	.args = "[--] COMMAND [ARGUMENT...]",
	.summary = "start a program with its recording armed",
	.doc = "Starts the command as a child of tracectl, stopped at its first instruction, has "
	       "it armed, lets it run, and waits for its end. The processes that it starts are recorded "
	       "with it, for root and the members of the socket's group. Signals are passed on. The exit "
	       "code is the command's own, 128 and the signal's number if a signal ended it. If "
	       "it cannot be armed, it is not run.\n\n"
	       "Options of tracectl come before the command. A set-user-ID program started this "
	       "way does not get its privileges. With --json the armed target is printed as one "
	       "line on the standard error.",
	.example = "tracectl run --stacks=dwarf -- ./server --port 8080",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_COMMAND_LINE,
	.min_operands = 1,
	.max_operands = SIZE_MAX,
	.stop_at_operand = true,
	.exec = run_exec,
};
