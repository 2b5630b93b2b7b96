// SPDX-License-Identifier: Apache-2.0
/*
 * `tracectl arm`: start recording processes, a thread or a unit. It opens /proc/PID/maps itself: an
 * ordinary user's right to record a process is the kernel's answer to that.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/core/arm.h"
#include "client/core/filter.h"
#include "client/ui/command.h"
#include "client/ui/human.h"

struct options {
	struct arm_options arm;
	uint64_t tid;
	const char *unit;
	bool host;
	const char *filter;
};

static const struct option_spec specs[] = {
	{.name = "tid",
	 .letter = 't',
	 .type = OPTION_UINT,
	 .offset = offsetof(struct options, tid),
	 .arg = "TID",
	 .min = 1,
	 .max = 1 << 22,
	 .doc = "Record this thread only, instead of a whole process. When it executes a program its recording "
		"ends, since it has the number of its process then."},
	{.name = "unit",
	 .letter = 'u',
	 .type = OPTION_UNIT,
	 .offset = offsetof(struct options, unit),
	 .arg = "NAME",
	 .doc = "Record all processes of this systemd unit (nginx.service) or control "
		"group, and those that it starts later. One that is moved into it from outside is "
		"noticed within a second, and so is one that is moved out. When the unit is restarted "
		"it goes on; one that has been gone for longer than exited_keep_s (tracerd.conf(5)) ends."},
	{.name = "host",
	 .type = OPTION_FLAG,
	 .offset = offsetof(struct options, host),
	 .doc = "Record all CPUs, and so every process; for root and the members of the socket's group. "
		"With Intel PT nothing else can be recorded meanwhile; samples have no such limit."},
	{.name = "filter",
	 .type = OPTION_STRING,
	 .offset = offsetof(struct options, filter),
	 .arg = "CODE",
	 .doc = "Have Intel PT trace only this function (FUNCTION or FUNCTION@FILE), or only this program or "
		"library (a path, or the name of a mapped file); several with commas between, as many as the "
		"processor has filters. What else is executed is not in the trace. A filter is of the file: "
		"a program that is executed later, and maps it, is traced there, too."},
	ARM_OPTION_SPECS(struct options),
	{0},
};

/* Arms a process (or a thread) and appends its target to `targets`. Returns an exit code. */
static int arm_number(struct ctl *ctl, const struct options *o, const char *kind, pid_t pid,
	struct json_object *targets)
{
	_cleanup_(process_fds_fini) struct process_fds fds = PROCESS_FDS_INIT;
	_cleanup_json_ struct json_object *result = NULL;
	struct json_object *params;
	int r;

	r = o->tid ? process_open_thread(pid, &fds) : process_open(pid, &fds);
	if (r == 0 && arm_steps(&o->arm)) {
		r = arm_start_stepper(ctl, pid, &fds);
		if (r != EXIT_OK)
			return r;
	}
	if (r == 0) {
		params = json_object_new_object();
		json_add_int(params, kind, pid);
		if (o->filter) {
			r = filter_add(ctl, pid, o->filter, params);
			if (r != EXIT_OK) {
				json_object_put(params);
				return r;
			}
		}
		r = arm_call(ctl, &o->arm, params, &fds, &result);
	}
	if (r != 0)
		return o->tid ? arm_report_thread(ctl, r, pid) : arm_report(ctl, r, pid);
	if (!ctl->json)
		arm_print(ctl, stdout, result);
	if (!o->tid && !field_bool(field(result, "target"), "children") && !arm_steps(&o->arm))
		arm_note_children(ctl, pid);
	json_append(targets, json_object_get(field(result, "target")));
	return EXIT_OK;
}

/*
 * Has a process recorded with the first one, or, where that cannot be, by itself. Returns an exit
 * code.
 */
static int join_number(struct ctl *ctl, const struct options *o, pid_t pid,
		       struct json_object *targets)
{
	struct json_object *first =
		json_object_array_length(targets) ? json_object_array_get_idx(targets, 0) : NULL;
	_cleanup_(process_fds_fini) struct process_fds fds = PROCESS_FDS_INIT;
	_cleanup_json_ struct json_object *result = NULL;
	int r;

	if (!first || o->filter || arm_steps(&o->arm))
		return arm_number(ctl, o, "pid", pid, targets);
	r = process_open(pid, &fds);
	if (r == 0)
		r = arm_join(ctl, field_text(first, "id"), pid, &fds, &result);
	if (r == TRACERD_E_UNSUPPORTED)
		return arm_number(ctl, o, "pid", pid, targets);
	if (r != 0)
		return arm_report(ctl, r, pid);
	if (!ctl->json)
		arm_print_joined(stdout, result, pid);
	if (!field_bool(first, "children"))
		arm_note_children(ctl, pid);
	json_object_array_put_idx(targets, 0, json_object_get(field(result, "target")));
	return EXIT_OK;
}

static int arm_unit(struct ctl *ctl, const struct options *o, struct json_object *targets)
{
	const struct process_fds none = PROCESS_FDS_INIT;
	_cleanup_json_ struct json_object *result = NULL;
	struct json_object *params = json_object_new_object();
	_cleanup_free_ char *what = o->host ? human_format("the host")
					    : human_format("unit %s", o->unit);
	int r;

	if (o->host)
		json_add_string(params, "scope", "host");
	else
		json_add_string(params, "unit", o->unit);
	r = arm_call(ctl, &o->arm, params, &none, &result);
	if (r != 0)
		return ctl_report(ctl, r, what);
	if (!ctl->json)
		arm_print(ctl, stdout, result);
	json_append(targets, json_object_get(field(result, "target")));
	return EXIT_OK;
}

static int arm_exec(struct ctl *ctl, const void *options, const char *const *operands, size_t n)
{
	const struct options *o = options;
	_cleanup_json_ struct json_object *all = json_object_new_object();
	struct json_object *targets = json_add_new_array(all, "targets");
	_cleanup_free_ uint64_t *pids = calloc(n ? n : 1, sizeof(*pids));
	int code = EXIT_OK, r;

	if (!pids)
		return ctl_fail(ctl, EXIT_FAILED, "ENOMEM", "out of memory");
	if ((n > 0) + (o->tid != 0) + (o->unit != NULL) + o->host != 1)
		return ctl_fail(
			ctl, EXIT_USAGE, "usage",
			"give process ids, or --tid, or --unit, or --host, and only one of the four");
	if (o->filter && (o->unit || o->host))
		return ctl_fail(ctl, EXIT_USAGE, "usage", "--filter is of a process or a thread");
	if (arm_steps(&o->arm) && n == 0)
		return ctl_fail(ctl, EXIT_USAGE, "usage",
			"--backend=step records whole processes: give their ids");
	for (size_t i = 0; i < n; i++) {
		if (option_parse_u64(operands[i], 1, 1 << 22, &pids[i]) < 0)
			return ctl_fail(
				ctl, EXIT_USAGE, "usage", "not a process id: '%s'", operands[i]);
	}
	r = ctl_connect(ctl);
	if (r != EXIT_OK)
		return r;
	if (o->unit || o->host)
		code = arm_unit(ctl, o, targets);
	else if (o->tid)
		code = arm_number(ctl, o, "tid", (pid_t)o->tid, targets);
	for (size_t i = 0; i < n; i++) {
		r = join_number(ctl, o, (pid_t)pids[i], targets);
		/* the others are armed all the same; the first failure is the command's */
		code = code == EXIT_OK ? r : code;
	}
	if (ctl->json && json_object_array_length(targets))
		ctl_print_json(all);
	return code;
}

const struct command cmd_arm = {
	.name = "arm",
	.args = "PID...",
	.summary = "start recording processes, a thread or a unit",
	.doc = "Starts the flight recording of the processes, with all their threads, present and "
	       "future. By samples several are one target, with one timeline, which ends with the last "
	       "of them; by Intel PT and by steps each is one. From then on their last moments are in "
	       "memory and can be taken by 'tracectl snapshot'; nothing is written to disk before.\n\n"
	       "Root and the members of the socket's group may record everything. Everybody else "
	       "may record what the kernel lets them trace: their own processes that are not "
	       "set-user-ID. When such a process executes another program, its recording is "
	       "suspended and it must be armed again; with --children, or of several processes, it goes "
	       "on if the kernel lets them look into that, too.\n\n"
	       "The numbers of processes and threads are those of the daemon's pid namespace, here and "
	       "wherever a target is named by one.",
	.example = "tracectl arm $(pidof nginx)",
	.options = specs,
	.options_size = sizeof(struct options),
	.operand = OPERAND_PID,
	.max_operands = 4096,
	.exec = arm_exec,
};
