/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The truth about a program's calls, by itself: compiled with -finstrument-functions it keeps its own stack, and writes each entry, with
 * how many functions are around it, to "calls.truth" where it runs. For programs of one thread and one stack.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define NOT_LOGGED __attribute__((no_instrument_function))

static uint32_t depth, n_entries;
static struct {
	void *function;
	uint32_t depth;
} entries[1u << 14];

NOT_LOGGED void __cyg_profile_func_enter(void *function, void *site)
{
	(void)site;
	if (n_entries == sizeof(entries) / sizeof(*entries))
		abort();
	entries[n_entries].function = function;
	entries[n_entries++].depth = depth++;
}

NOT_LOGGED void __cyg_profile_func_exit(void *function, void *site)
{
	(void)function;
	(void)site;
	depth--;
}

NOT_LOGGED __attribute__((destructor)) static void write_entries(void)
{
	FILE *f = fopen("calls.truth", "w");

	if (!f)
		abort();
	for (uint32_t i = 0; i < n_entries; i++)
		fprintf(f, "%u %lx\n", entries[i].depth, (unsigned long)entries[i].function);
	if (fclose(f) != 0)
		abort();
}

static volatile int sink;

static void low(int x)
{
	sink += x;
}

static void high(int x)
{
	low(x);
	low(x + 1);
}
