// SPDX-License-Identifier: Apache-2.0
/*
 * The request that arms, and the messages for its failures.
 */
#include "client/core/arm.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/core/stepper.h"
#include "client/ui/human.h"
#include "client/ui/view.h"
#include "common/base/proctree.h"

/* Descriptors that go with a request, and what it says they are. */
struct passed {
	struct json_object *names; /* the request's */
	int fds[4];
	size_t n;
};

static void pass(struct passed *passed, const char *name, int fd)
{
	if (fd < 0)
		return;
	json_append_string(passed->names, name);
	passed->fds[passed->n++] = fd;
}

static const char *next_line(const char *p)
{
	p = strchr(p, '\n');
	return p ? p + 1 : NULL;
}

/*
 * Who may not see addresses sees zeros. The first symbols may be at 0, or near it, all the same:
 * those of each CPU's data.
 */
static bool shows_addresses(int kallsyms)
{
	enum { DIGITS = 16 };
	char text[4096];
	const ssize_t n = pread(kallsyms, text, sizeof(text) - 1, 0);

	if (n <= 0)
		return false;
	text[n] = '\0';
	for (const char *p = text; p && text + n - p >= DIGITS; p = next_line(p))
		if (strspn(p, "0") < DIGITS)
			return true;
	return false;
}

/* Whether the kernel's functions have names is decided by who opens it: the service may not. */
static int open_kallsyms(bool asked)
{
	_cleanup_close_ int fd = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);

	return fd >= 0 && (asked || shows_addresses(fd)) ? take_fd(&fd) : -1;
}

/*
 * Likewise its code, which a trace of it is followed in. Who may not, or where there is none, is
 * told by tracerd what that means.
 */
static int open_kcore(bool asked)
{
	return asked ? open("/proc/kcore", O_RDONLY | O_CLOEXEC) : -1;
}

int arm_call(struct ctl *ctl, const struct arm_options *options, struct json_object *params,
	const struct process_fds *fds, struct json_object **ret_result)
{
	struct passed passed = {.names = json_add_new_array(params, "fds")};
	_cleanup_close_ int kallsyms = -1, kcore = -1;

	if (options->stacks)
		json_add_string(params, "stacks", options->stacks);
	if (options->backend)
		json_add_string(params, "backend", options->backend);
	if (options->pt_ring_kib)
		json_add_uint(params, "pt_ring_kib", options->pt_ring_kib);
	if (options->pt_timing)
		json_add_string(params, "pt_timing", options->pt_timing);
	if (options->keep_ns)
		json_add_uint(params, "keep_ms", options->keep_ns / 1000000);
	if (options->wait_min)
		json_add_uint(params, "wait_min_us", options->wait_min_ns / 1000);
	if (options->children)
		json_add_bool(params, "children", true);
	if (options->kernel)
		json_add_bool(params, "kernel", true);
	if (options->no_waits)
		json_add_bool(params, "waits", false);
	pass(&passed, "pidfd", fds->pidfd);
	pass(&passed, "maps", fds->maps);
	pass(&passed, "step", fds->step);
	/* a stepper records no waits */
	if (fds->step < 0) {
		kallsyms = open_kallsyms(options->kernel);
		kcore = open_kcore(options->kernel);
	}
	pass(&passed, "kallsyms", kallsyms);
	pass(&passed, "kcore", kcore);
	return ctl_call(ctl, "target.arm", params, passed.fds, passed.n, CTL_TIMEOUT_MS, ret_result,
			NULL);
}

void arm_print_joined(FILE *out, struct json_object *result, pid_t pid)
{
	struct json_object *target = field(result, "target");
	_cleanup_free_ char *id = human_name(field_text(target, "id"));

	(void)fprintf(out, "armed %sin %s: process %d (%s has %" PRIu64 " processes)\n",
		      field_bool(result, "already") ? "already " : "", id, (int)pid, id,
		      field_number(target, "living"));
}

int arm_join(struct ctl *ctl, const char *target, pid_t pid, const struct process_fds *fds,
	     struct json_object **ret_result)
{
	struct json_object *params = json_object_new_object();
	struct passed passed = {.names = json_add_new_array(params, "fds")};

	json_add_string(params, "target", target);
	json_add_int(params, "pid", pid);
	pass(&passed, "pidfd", fds->pidfd);
	pass(&passed, "maps", fds->maps);
	return ctl_call(ctl, "target.join", params, passed.fds, passed.n, CTL_TIMEOUT_MS,
			ret_result, NULL);
}

void arm_note_children(struct ctl *ctl, pid_t pid)
{
	_cleanup_free_ pid_t *below = NULL;
	size_t n;

	if (proctree_below(&pid, 1, &below, &n) == 0 && n > 0)
		ctl_note(
			ctl,
			"process %d has started %zu that %s not recorded: --children records them, too",
			(int)pid, n, n == 1 ? "is" : "are");
}

bool arm_steps(const struct arm_options *options)
{
	return options->backend && strcmp(options->backend, "step") == 0;
}

int arm_start_stepper(struct ctl *ctl, pid_t pid, struct process_fds *fds)
{
	char why[STEPPER_WHY_SIZE] = "";
	int error = 0;
	int r = stepper_start(pid, &fds->step, &error, why);

	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r), "%s", why);
	if (r == STEPPER_E_REFUSED)
		return ctl_fail(ctl, exit_code_from(error),
			error == -ESRCH	  ? "gone"
			: error == -EPERM ? "not_permitted"
					  : tracerd_error_name(error),
			"%s", why);
	/* The stepper knows a number only: make sure that it is still the same process. */
	if (!process_lives(fds))
		return arm_report(ctl, -ESRCH, pid);
	return EXIT_OK;
}

static int report_gone(struct ctl *ctl, bool thread, pid_t number)
{
	pid_t pid;

	if (!thread && process_of_thread(number, &pid) == 0 && pid != number)
		return ctl_fail(ctl, EXIT_NOT_FOUND, "gone",
				"%d is a thread of process %d: --tid arms one thread", (int)number,
				(int)pid);
	return ctl_fail(ctl, EXIT_NOT_FOUND, "gone", "no such %s: %d",
			thread ? "thread" : "process", (int)number);
}

static int report(struct ctl *ctl, int error, bool thread, pid_t number)
{
	const char *kind = thread ? "thread" : "process";
	_cleanup_free_ char *what = human_format("%s %d", kind, (int)number);
	uid_t owner;

	if (error == -ESRCH || error == TRACERD_E_GONE || error == TRACERD_E_NOT_FOUND)
		return report_gone(ctl, thread, number);
	if (error == TRACERD_E_NOT_PERMITTED && process_owner(number, &owner) == 0 &&
		owner != geteuid())
		return ctl_fail(ctl, EXIT_NOT_PERMITTED, "not_permitted",
			"not permitted: %s %d is owned by uid %u", kind, (int)number,
			(unsigned int)owner);
	return ctl_report(ctl, error, what);
}

int arm_report(struct ctl *ctl, int error, pid_t pid)
{
	return report(ctl, error, false, pid);
}

int arm_report_thread(struct ctl *ctl, int error, pid_t tid)
{
	return report(ctl, error, true, tid);
}

void arm_print(struct ctl *ctl, FILE *out, struct json_object *result)
{
	struct json_object *target = field(result, "target");
	_cleanup_free_ char *name = view_target_name(target), *how = view_target_how(target);

	(void)fprintf(out, "armed %s%s, %s\n", field_bool(result, "already") ? "already: " : "",
		      name, how);
	for (size_t i = 0; i < field_count(target, "warnings"); i++)
		ctl_note(ctl, "warning: %s",
			json_object_get_string(field_at(target, "warnings", i)));
}
