// SPDX-License-Identifier: Apache-2.0
/*
 * elfutils' word on stacks. From stdin: process, 17 registers in DWARF's order, the number of bytes of the stack and these, the
 * number of addresses and these, as another unwinder has found them. A line each: "equal", "copy" (equal as far as the copy of the
 * stack goes), "shorter", "longer", or "differs", then both stacks where they are not the same.
 */
#include <elfutils/libdwfl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAMES_MAX 256

static uint64_t regs[17], ips[FRAMES_MAX], found[FRAMES_MAX];
static uint32_t stack_size, n_ips, n_found;
static uint8_t stack[65536];
static bool outside;

static pid_t next_thread(Dwfl *dwfl, void *arg, void **thread_arg)
{
	if (*thread_arg)
		return 0;
	*thread_arg = arg;
	return *(pid_t *)arg;
}

static bool memory_read(Dwfl *dwfl, Dwarf_Addr addr, Dwarf_Word *result, void *arg)
{
	if (addr < regs[7] || addr - regs[7] + 8 > stack_size) {
		outside = true;
		return false;
	}
	memcpy(result, stack + (addr - regs[7]), 8);
	return true;
}

static bool set_registers(Dwfl_Thread *thread, void *arg)
{
	return dwfl_thread_state_registers(thread, 0, 17, (Dwarf_Word *)regs);
}

static int on_frame(Dwfl_Frame *frame, void *arg)
{
	Dwarf_Addr pc;

	if (!dwfl_frame_pc(frame, &pc, NULL) || n_found == FRAMES_MAX || !pc)
		return DWARF_CB_ABORT;
	found[n_found++] = pc;
	return DWARF_CB_OK;
}

static const char *verdict(void)
{
	uint32_t n = n_found < n_ips ? n_found : n_ips;

	for (uint32_t i = 0; i < n; i++)
		if (found[i] != ips[i])
			return "differs";
	if (n_found == n_ips)
		return "equal";
	if (n_found < n_ips && outside)
		return "copy";
	return n_ips < n_found ? "shorter" : "longer";
}

static bool take(void *to, size_t size)
{
	return fread(to, 1, size, stdin) == size;
}

static Dwfl *attach(pid_t *pid)
{
	static const Dwfl_Callbacks callbacks = {
		.find_elf = dwfl_linux_proc_find_elf, .find_debuginfo = dwfl_standard_find_debuginfo};
	static const Dwfl_Thread_Callbacks threads = {
		.next_thread = next_thread, .memory_read = memory_read, .set_initial_registers = set_registers};
	Dwfl *dwfl = dwfl_begin(&callbacks);

	if (!dwfl || dwfl_linux_proc_report(dwfl, *pid) != 0 || dwfl_report_end(dwfl, NULL, NULL) != 0 ||
	    !dwfl_attach_state(dwfl, NULL, *pid, &threads, pid)) {
		fprintf(stderr, "process %d: %s\n", (int)*pid, dwfl_errmsg(-1));
		exit(1);
	}
	return dwfl;
}

int main(void)
{
	static pid_t pid;
	int32_t of, now = -1;
	Dwfl *dwfl = NULL;

	while (take(&of, sizeof(of))) {
		const char *v;

		if (!take(regs, sizeof(regs)) || !take(&stack_size, 4) || stack_size > sizeof(stack) || !take(stack, stack_size) ||
		    !take(&n_ips, 4) || n_ips > FRAMES_MAX || !take(ips, n_ips * 8))
			return 1;
		if (of != now) {
			if (dwfl)
				dwfl_end(dwfl);
			now = pid = of;
			dwfl = attach(&pid);
		}
		n_found = 0;
		outside = false;
		(void)dwfl_getthread_frames(dwfl, pid, on_frame, NULL);
		v = verdict();
		printf("%s", v);
		if (strcmp(v, "equal") != 0 && strcmp(v, "copy") != 0) {
			printf(" ours");
			for (uint32_t i = 0; i < n_ips; i++)
				printf(" %llx", (unsigned long long)ips[i]);
			printf(" elfutils");
			for (uint32_t i = 0; i < n_found; i++)
				printf(" %llx", (unsigned long long)found[i]);
		}
		printf("\n");
	}
	return 0;
}
