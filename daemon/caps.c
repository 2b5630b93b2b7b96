// SPDX-License-Identifier: Apache-2.0
/*
 * Reads the effective set through libcap; the numbers of newer ones are spelled out for older
 * headers.
 */
#include "daemon/caps.h"

#include <errno.h>
#include <stdbool.h>
#include <sys/capability.h>

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#ifndef CAP_BPF
#define CAP_BPF 39
#endif
#ifndef CAP_CHECKPOINT_RESTORE
#define CAP_CHECKPOINT_RESTORE 40
#endif

static const struct {
	cap_value_t value;
	bool in_sys_admin; /* the kernel takes CAP_SYS_ADMIN instead */
	const char *name, *cost;
} wanted[] = {
	{CAP_PERFMON, true, "perfmon",
	 "CAP_PERFMON: only processes of tracerd's own user can be recorded, each thread with events of its own, "
	 "as far as perf_event_paranoid allows"},
	{CAP_BPF, true, "bpf",
	 "CAP_BPF: no BPF programs, so no stacks of waits, no wake-ups and no cpu-wide sampling"},
	{CAP_SYS_PTRACE, false, "sys_ptrace",
	 "CAP_SYS_PTRACE: maps and executables of other users' processes cannot be read"},
	{CAP_IPC_LOCK, false, "ipc_lock",
	 "CAP_IPC_LOCK: ring memory is limited by perf_event_mlock_kb and RLIMIT_MEMLOCK"},
	{CAP_CHECKPOINT_RESTORE, true, "checkpoint_restore",
	 "CAP_CHECKPOINT_RESTORE: mapped files are found by their paths only, not where they were removed or replaced"},
	{CAP_SETUID, false, "setuid",
	 "CAP_SETUID: executables of other users' processes cannot be opened, which gives frames without names"},
	{CAP_SETGID, false, "setgid",
	 "CAP_SETGID: executables of processes with other groups cannot be opened, which gives frames without names"},
	{CAP_DAC_READ_SEARCH, false, "dac_read_search",
	 "CAP_DAC_READ_SEARCH: executables in folders that other users have closed give root's programs no names"},
};

static bool has(cap_t set, cap_value_t value)
{
	cap_flag_value_t on = CAP_CLEAR;

	/* A kernel that does not know the capability says EINVAL: then nobody has it. */
	return set && cap_get_flag(set, value, CAP_EFFECTIVE, &on) == 0 && on == CAP_SET;
}

static bool has_nth(cap_t set, size_t i)
{
	return has(set, wanted[i].value) || (wanted[i].in_sys_admin && has(set, CAP_SYS_ADMIN));
}

/* What only the opener (daemon/target/opening.h) has once it runs. */
static const cap_value_t openers[] = {CAP_SETUID, CAP_SETGID};
static const cap_value_t read_search = CAP_DAC_READ_SEARCH;

static cap_t at_start; /* what the daemon and its opener have between them; NULL: not split yet */
/* without and with the right to look into closed folders; NULL: no difference */
static cap_t low, high;

int caps_give_up(void)
{
	cap_t set = cap_get_proc();

	at_start = set ? cap_dup(set) : NULL;
	if (!at_start) {
		(void)cap_free(set);
		return -ENOMEM;
	}
	for (size_t i = 0; i < ARRAY_SIZE(openers); i++) {
		(void)cap_set_flag(set, CAP_PERMITTED, 1, &openers[i], CAP_CLEAR);
		(void)cap_set_flag(set, CAP_EFFECTIVE, 1, &openers[i], CAP_CLEAR);
		(void)cap_set_flag(set, CAP_INHERITABLE, 1, &openers[i], CAP_CLEAR);
	}
	low = set;
	/* Root reads its own files by it, too. */
	if (geteuid() != 0 && has(set, CAP_DAC_READ_SEARCH)) {
		(void)cap_set_flag(set, CAP_INHERITABLE, 1, &read_search, CAP_CLEAR);
		high = cap_dup(set);
		if (!high)
			return -ENOMEM;
		(void)cap_set_flag(set, CAP_EFFECTIVE, 1, &read_search, CAP_CLEAR);
	}
	return cap_set_proc(low) < 0 ? -errno : 0;
}

void caps_look_into_folders(bool on)
{
	if (high)
		(void)cap_set_proc(on ? high : low);
}

static cap_t held(void)
{
	return at_start ? cap_dup(at_start) : cap_get_proc();
}

struct json_object *caps_have(void)
{
	struct json_object *list = json_object_new_array();
	cap_t set = held();

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (has_nth(set, i))
			json_append_string(list, wanted[i].name);
	(void)cap_free(set);
	return list;
}

void caps_lack(struct json_object *list)
{
	cap_t set = held();

	for (size_t i = 0; i < ARRAY_SIZE(wanted); i++)
		if (!has_nth(set, i)) {
			struct json_object *o = json_object_new_object();

			json_add_string(o, "what", wanted[i].name);
			json_add_string(o, "cost", wanted[i].cost);
			json_append(list, o);
		}
	(void)cap_free(set);
}
