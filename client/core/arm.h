/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arming, as `arm` and `run` share it: the options, the request, the words for its failures.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "client/core/ctl.h"
#include "client/lib/process.h"
#include "client/ui/option.h"

struct arm_options {
	const char *stacks, *backend, *pt_timing;
	uint64_t pt_ring_kib;
	uint64_t keep_ns, wait_min_ns;
	bool wait_min; /* given */
	bool no_waits, children, kernel;
};

/* The options' rows of a command's table; `owner` is its struct, which has a member `arm`. */
#define ARM_OPTION_SPECS(owner)                                                                    \
	{.name = "stacks",                                                                         \
		.type = OPTION_CHOICE,                                                             \
		.offset = offsetof(owner, arm.stacks),                                             \
		.arg = "HOW",                                                                      \
		.choices = "auto|fp|dwarf|bpf",                                                    \
		.doc = "How stacks are found: fp follows frame pointers and is cheap; the others " \
		       "work for programs built without frame pointers: bpf unwinds in the "       \
		       "kernel, by tables made of the program's files, and copies what these do "  \
		       "not do for, and dwarf copies a piece of the stack with each sample. auto " \
		       "(the default) looks at the program and takes fp, else bpf, else dwarf, "    \
		       "and for Go's, many of whose functions have no frame, bpf, else fp."},      \
		{.name = "backend",                                                                \
			.type = OPTION_CHOICE,                                                     \
			.offset = offsetof(owner, arm.backend),                                    \
			.arg = "NAME",                                                             \
			.choices = "auto|pt|sample|step",                                          \
			.doc = "What records: auto (the default) takes the best that this "        \
			       "machine has. pt is the processor itself (Intel PT): every call, "  \
			       "at the hardware's own cost. sample takes stacks by a clock. "      \
			       "step executes the program one instruction at a "      \
			       "time: every call, exactly, and very slowly; see "                  \
			       "tracerd-step(8)."},                                                \
	{.name = "children", .type = OPTION_FLAG, .offset = offsetof(owner, arm.children),         \
		.doc = "Record also the processes that it has started, those that it starts, and what "   \
		       "they start, until the last of them ends. For users other than root and the "      \
		       "members of the socket's group those are left out that the kernel does not let "   \
		       "them look into, such as set-user-ID programs; by Intel PT they record one "       \
		       "process only. A unit's are recorded in any case."},  \
	{.name = "kernel", .type = OPTION_FLAG, .offset = offsetof(owner, arm.kernel),             \
		.doc = "Record also what the kernel does for it, with the names of its functions: what in "       \
		       "the kernel each wait waits for, and by Intel PT each call of the kernel. For root "    \
		       "and the members of the socket's group; by Intel PT whoever arms it must be able to "   \
		       "read /proc/kcore (CAP_SYS_RAWIO, no lockdown), of which each snapshot gets a copy of " \
		       "the kernel's code. Without it, those of them who may see addresses in "               \
		       "/proc/kallsyms have what long waits wait for."},  \
	{.name = "keep",                                                                           \
		.type = OPTION_DURATION,                                                           \
		.offset = offsetof(owner, arm.keep_ns),                                            \
		.arg = "TIME",                                                                     \
		.min = 100000000,                                                                  \
		.max = 600000000000,                                                               \
		.doc = "How far back samples and waits are to reach, e.g. 10s, instead of the "    \
		       "configured keep_ms: the target's rings grow until they do, as far as "     \
		       "memory may be used for it. list and show tell how far they reach."},       \
	{.name = "wait-min",                                                                       \
		.type = OPTION_DURATION,                                                           \
		.offset = offsetof(owner, arm.wait_min_ns),                                        \
		.given = offsetof(owner, arm.wait_min),                                            \
		.arg = "TIME",                                                                     \
		.max = 60000000000,                                                                \
		.doc = "Waits shorter than this are recorded without a stack, e.g. 20us, instead " \
		       "of the configured wait_min_us; 0: all waits have one, which costs more. "  \
		       "With stacks=fp and bpf."},                                                 \
	{.name = "pt-ring",                                                                        \
		.type = OPTION_UINT,                                                               \
		.offset = offsetof(owner, arm.pt_ring_kib),                                        \
		.arg = "KIB",                                                                      \
		.min = 16,                                                                         \
		.max = 1048576,                                                                    \
		.doc = "With Intel PT: how much trace of each CPU is kept, instead of the "        \
		       "configured pt_ring_kib; a power of two."},                                 \
	{.name = "pt-timing",                                                                      \
		.type = OPTION_CHOICE,                                                             \
		.offset = offsetof(owner, arm.pt_timing),                                          \
		.arg = "HOW",                                                                      \
		.choices = "low|normal|high",                                                      \
		.doc = "With Intel PT: how often the trace has the time, instead of the "          \
		       "configured pt_timing. More often is more exact, and takes more of the ring."}, \
	{                                                                                          \
		.name = "no-waits", .type = OPTION_FLAG, .offset = offsetof(owner, arm.no_waits),  \
		.doc = "Do not record the stack of each wait, only its times: cheaper for "        \
		       "programs that switch very often."                                          \
	}

/*
 * Asks for the recording of what `params` names (pid, tid or unit; consumed), with the descriptors
 * that are there. Returns what tracerd_call() returned.
 */
int arm_call(struct ctl *ctl, const struct arm_options *options, struct json_object *params,
	const struct process_fds *fds, struct json_object **ret_result) _must_check_;

/* Whether the stepping back end is what was asked for; then arm_start_stepper() comes first. */
bool arm_steps(const struct arm_options *options);

/*
 * Starts the stepper of process `pid`, which `fds` are of, and keeps its channel there. An exit
 * code; a failure has been reported.
 */
int arm_start_stepper(struct ctl *ctl, pid_t pid, struct process_fds *fds) _must_check_;

/* Reports why process `pid`, or thread `tid`, could not be armed; returns the exit code. */
int arm_report(struct ctl *ctl, int error, pid_t pid);
int arm_report_thread(struct ctl *ctl, int error, pid_t tid);

/* Prints the answer to target.arm, "armed t3: ..." and the target's warnings, for people. */
void arm_print(struct ctl *ctl, FILE *out, struct json_object *result);

/*
 * Has a further process recorded with `target`, on one timeline. Returns what tracerd_call()
 * returned; TRACERD_E_UNSUPPORTED: not as this target is recorded.
 */
int arm_join(struct ctl *ctl, const char *target, pid_t pid, const struct process_fds *fds,
	     struct json_object **ret_result) _must_check_;

/* Prints the answer to target.join. */
void arm_print_joined(FILE *out, struct json_object *result, pid_t pid);

/* Says how many processes that `pid` has started are not recorded with it. */
void arm_note_children(struct ctl *ctl, pid_t pid);
