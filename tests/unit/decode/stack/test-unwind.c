// SPDX-License-Identifier: Apache-2.0
/*
 * Walks this process's own stack from its registers and bytes, and compares with backtrace() and
 * with the chain of calls that is written here; then the same stack cut, damaged and without
 * registers.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <execinfo.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include "decode/stack/return_check.h"
#include "decode/stack/unwind.h"
#include "decode/stack/walk.h"

#define STACK_BYTES 65536u
#define N_REGS 24u

static struct budget budget = {.max = 512u << 20};
static struct stacktab *st;
static struct images *images;
static struct resolver *resolver;
static struct address_space *space;
static struct code code;

static uint8_t stack[STACK_BYTES];
static uint64_t regs[N_REGS];
static size_t stack_size;
static void *trace[64];
static int n_trace;
static uint8_t *stack_top;

static int ask(
	void *arg, const struct file_request *request, struct file_answer *ret_file, int *ret_fd)
{
	(void)arg;
	if (request->kind != FILE_REQUEST_OBJECT)
		return 0;
	*ret_fd = open(request->path, O_RDONLY | O_CLOEXEC);
	*ret_file = (struct file_answer){.found = true};
	return *ret_fd >= 0;
}

static const struct file_requester files = {.ask = ask};

/* What a history's MMAP2 records would say of this process. */
static void read_maps(void)
{
	FILE *f = fopen("/proc/self/maps", "re");
	char line[4096];

	assert_non_null(f);
	while (fgets(line, sizeof(line), f)) {
		struct image_key key = {.pid = 1};
		struct mapping map = {0};
		unsigned long start, end, off, ino;
		char perms[5], path[4000] = "";

		if (sscanf(line, "%lx-%lx %4s %lx %x:%x %lu %3999[^\n]", &start, &end, perms, &off,
			    &key.maj, &key.min, &ino, path) < 7)
			continue;
		if (perms[2] != 'x')
			continue;
		key.ino = ino;
		key.path = path;
		key.path_len = strlen(path);
		map.start = start;
		map.end = end;
		map.pgoff = off;
		map.image = images_get(images, &key);
		assert_non_null(map.image);
		assert_int_equal(address_space_set(&space, &map), 0);
	}
	(void)fclose(f);
	code.space = space;
}

static int setup(void **state)
{
	FILE *f;
	char line[4096];

	(void)state;
	f = fopen("/proc/self/maps", "re");
	while (f && fgets(line, sizeof(line), f)) {
		unsigned long start, end;

		if (strstr(line, "[stack]") && sscanf(line, "%lx-%lx", &start, &end) == 2)
			stack_top = (uint8_t *)end; /* NOLINT */
	}
	if (f)
		(void)fclose(f);
	code.pid = 1;
	code.serial = 1;
	code.perfmap_tried = true;
	return stack_top && stacktab_new(0, &st) == 0 &&
			       images_new(&files, &budget, &images) == 0 &&
			       resolver_new(st, images, &files, true, &budget, &resolver) == 0 &&
			       address_space_new(&budget, &space) == 0
		       ? 0
		       : -1;
}

static int teardown(void **state)
{
	(void)state;
	code_fini(&code);
	address_space_unref(space);
	resolver_free(resolver);
	images_free(images);
	stacktab_free(st);
	return 0;
}

/* Copies without the library, whose calls a sanitizer would watch. */
__attribute__((no_sanitize("address"), noinline)) static void copy_stack(
	const volatile uint8_t *from)
{
	stack_size = (size_t)(stack_top - from) < STACK_BYTES
			     ? (size_t)(stack_top - from) & ~(size_t)7
			     : STACK_BYTES;
	for (size_t i = 0; i < stack_size; i++)
		stack[i] = from[i];
}

static void take_context(const ucontext_t *uc)
{
	/* the kernel's numbers of the registers (asm/perf_regs.h), and ucontext's */
	static const int order[N_REGS] = {REG_RAX, REG_RBX, REG_RCX, REG_RDX, REG_RSI, REG_RDI,
		REG_RBP, REG_RSP, REG_RIP, REG_EFL, -1, -1, -1, -1, -1, -1, REG_R8, REG_R9, REG_R10,
		REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};

	for (unsigned i = 0; i < N_REGS; i++)
		regs[i] = order[i] >= 0 ? (uint64_t)uc->uc_mcontext.gregs[order[i]] : 0;
	copy_stack((const uint8_t *)(uintptr_t)regs[7]);
}

static struct perfevent_sample sample_of(void)
{
	return (struct perfevent_sample){.regs_abi = PERF_SAMPLE_REGS_ABI_64,
		.regs_mask = (1u << N_REGS) - 1,
		.regs = (const uint8_t *)regs,
		.stack = stack,
		.stack_size = stack_size};
}

__attribute__((noinline)) static int chain_inner(int n)
{
	ucontext_t uc;

	(void)getcontext(&uc);
	take_context(&uc);
	n_trace = backtrace(trace, ARRAY_SIZE(trace));
	return n + (int)regs[8] % 2;
}

__attribute__((noinline)) static int chain_middle(int n)
{
	/* a frame whose size the table cannot know */
	volatile char *room = __builtin_alloca((size_t)n * 16 + 16);

	room[n] = 1;
	return chain_inner(n) + room[n];
}

__attribute__((noinline)) static int chain_outer(int n)
{
	int a = chain_middle(n + 3);

	return a + chain_middle(n);
}

static const char *name_of(uint32_t frame)
{
	struct frame_info info;

	stacktab_info(st, frame, &info);
	return info.name;
}

/* A sanitizer's backtrace() has a frame of its own in front. */
static void align_trace(void)
{
	int skip = 0;

	while (skip < n_trace) {
		uint32_t frame =
			resolver_frame(resolver, &code, (uintptr_t)trace[skip], RESOLVE_RETURN);

		if (frame && strcmp(name_of(frame), "chain_inner") == 0)
			break;
		skip++;
	}
	assert_true(skip < n_trace);
	n_trace -= skip;
	memmove(trace, trace + skip, (size_t)n_trace * sizeof(trace[0]));
}

static void test_own_stack(void **state)
{
	static uint32_t frames[UNWIND_MAX_FRAMES], inlined[UNWIND_MAX_FRAMES];
	int (*volatile outer)(int) = chain_outer;
	struct perfevent_sample s;
	uint32_t n;

	(void)state;
	(void)outer(5);
	read_maps();
	align_trace();
	s = sample_of();
	assert_int_equal(unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n),
			 UNWIND_DONE);
	assert_string_equal(name_of(frames[0]), "chain_inner");
	assert_string_equal(name_of(frames[1]), "chain_middle");
	assert_string_equal(name_of(frames[2]), "chain_outer");
	assert_string_equal(name_of(frames[3]), "test_own_stack");
	assert_string_equal(name_of(frames[n - 1]), "_start");
	/* the same functions as glibc's own unwinder */
	assert_int_equal(n, n_trace);
	for (uint32_t i = 1; i < n; i++) {
		uint32_t other =
			resolver_frame(resolver, &code, (uintptr_t)trace[i], RESOLVE_RETURN);

		if (frames[i] != other)
			fail_msg("frame %u: %s and not %s", i, name_of(frames[i]), name_of(other));
	}
	assert_int_equal(resolver_stats(resolver)->wrong, 0);
}

static void on_signal(int sig)
{
	volatile int n = chain_inner(sig); /* no tail call: the handler's own frame must stay */

	(void)n;
}

__attribute__((noinline)) static int interrupted(int n)
{
	(void)raise(SIGUSR1);
	return n + 1;
}

static void test_through_a_signal(void **state)
{
	static uint32_t frames[UNWIND_MAX_FRAMES], inlined[UNWIND_MAX_FRAMES];
	struct sigaction sa = {.sa_handler = on_signal};
	int (*volatile victim)(int) = interrupted;
	struct perfevent_sample s;
	bool handler = false, below = false;
	uint32_t n;

	(void)state;
	assert_int_equal(sigaction(SIGUSR1, &sa, NULL), 0);
	(void)victim(1);
	s = sample_of();
	assert_int_equal(unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n),
			 UNWIND_DONE);
	for (uint32_t i = 0; i < n; i++) {
		handler |= strcmp(name_of(frames[i]), "on_signal") == 0;
		below |= handler && strcmp(name_of(frames[i]), "interrupted") == 0;
	}
	assert_true(handler);
	assert_true(below);
}

static void test_cut_and_damaged(void **state)
{
	static uint32_t frames[UNWIND_MAX_FRAMES], inlined[UNWIND_MAX_FRAMES];
	int (*volatile outer)(int) = chain_outer;
	struct perfevent_sample s;
	uint32_t n, seed = 3;

	(void)state;
	(void)outer(5);
	align_trace();
	s = sample_of();
	s.stack_size = 64;
	assert_int_equal(unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n),
			 UNWIND_NO_STACK);
	assert_true(n >= 1);
	s = sample_of();
	s.regs_mask = 1;
	assert_int_equal(unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n),
			 UNWIND_NO_REGS);
	assert_int_equal(n, 0);
	s = sample_of();
	s.regs_abi = PERF_SAMPLE_REGS_ABI_32;
	assert_int_equal(unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n),
			 UNWIND_NO_REGS);

	/* a call through a null pointer: the caller is still found */
	(void)outer(5);
	align_trace();
	s = sample_of();
	regs[8] = 0;
	regs[7] -= 8;
	memmove(stack + 8, stack, stack_size - 8);
	memcpy(stack, &trace[1], 8);
	assert_true(unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n) !=
		    UNWIND_NO_REGS);
	assert_true(n >= 2);
	assert_string_equal(name_of(frames[1]), "chain_middle");

	/* any words on the stack: it ends, and no frame is drawn that no call made */
	(void)outer(5);
	align_trace();
	for (unsigned round = 0; round < 20000; round++) {
		for (unsigned k = 0; k < 4; k++) {
			uint64_t v;

			seed = seed * 1664525 + 1013904223;
			v = (seed >> 8) % 3
				    ? (uint64_t)(uintptr_t)trace[(seed >> 12) % (unsigned)n_trace] +
					      (seed >> 28)
				    : (uint64_t)seed << 20;
			memcpy(stack + (seed >> 4) % (stack_size - 8), &v, 8);
		}
		s = sample_of();
		(void)unwind_sample(resolver, &code, &s, &budget, frames, inlined, NULL, &n);
		assert_true(n >= 1 && n <= UNWIND_MAX_FRAMES);
	}
}

static const struct perfattr attr; /* chains by frame pointers */

/* The kernel's chains: wrong frames are cut, marks obeyed. */
static void test_chains(void **state)
{
	struct stackwalk w = {.resolver = resolver, .st = st, .budget = &budget};
	struct perfevent ev = {.kind = PERFEVENT_SAMPLE,
			       .attr = &attr,
			       .misc = PERF_RECORD_MISC_USER};
	int (*volatile outer)(int) = chain_outer;
	uint64_t chain[70] = {PERF_CONTEXT_USER};
	uintptr_t inside = (uintptr_t)chain_outer + 1;
	uint32_t stack_id, depth, gap;

	(void)state;
	(void)outer(5);
	align_trace();
	for (int i = 0; i < n_trace; i++)
		chain[i + 1] = (uintptr_t)trace[i];
	ev.sample.chain = (const uint8_t *)chain;
	ev.sample.n_chain = (uint64_t)n_trace + 1;
	ev.sample.has_chain = true;
	ev.sample.ip = chain[1];
	stack_id = stackwalk_sample(&w, &code, &ev, true);
	/* a test built without frame pointers is told that callers are missing */
	assert_int_equal(stacktab_depth(st, stack_id),
			 n_trace + (int)(w.missing_callers.gaps + w.missing_callers.found));
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "chain_inner");
	assert_int_equal(w.cut, 0);

	/* an address at a function's front: code, but nobody called from there */
	while (return_check_follows_call((const uint8_t *)inside - RETURN_CHECK_BEFORE,
					 RETURN_CHECK_BEFORE))
		inside++;
	chain[3] = inside;
	w.missing_callers = (struct missing_caller_stats){0};
	stack_id = stackwalk_sample(&w, &code, &ev, true);
	gap = (uint32_t)(w.missing_callers.gaps + w.missing_callers.found);
	assert_true(gap <= 1);
	assert_int_equal(stacktab_depth(st, stack_id), 3 + gap);
	assert_int_equal(w.cut, 1);
	assert_int_equal(w.frames_cut, n_trace - 2);
	while (stacktab_parent(st, stack_id))
		stack_id = stacktab_parent(st, stack_id);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "[callers unknown]");

	/* in the kernel, called from here */
	chain[0] = PERF_CONTEXT_KERNEL;
	chain[1] = 0xffffffff81000010;
	chain[2] = PERF_CONTEXT_USER;
	chain[3] = (uintptr_t)trace[1];
	ev.sample.n_chain = 4;
	ev.misc = PERF_RECORD_MISC_KERNEL;
	stack_id = stackwalk_sample(&w, &code, &ev, true);
	depth = stacktab_depth(st, stack_id);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "[kernel]");
	stack_id = stackwalk_sample(&w, &code, &ev, false);
	assert_int_equal(stacktab_depth(st, stack_id), depth - 1);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "chain_middle");

	/* nothing at all */
	ev.sample.n_chain = 0;
	ev.sample.ip = 0;
	ev.misc = PERF_RECORD_MISC_USER;
	assert_int_equal(stackwalk_sample(&w, &code, &ev, true), STACKTAB_ROOT);
	assert_int_equal(w.without, 1);
}

/*
 * A page of the stack that was never touched has no bytes to copy: where it ran is known, its
 * callers are not.
 */
static void test_no_bytes(void **state)
{
	struct stackwalk w = {.resolver = resolver, .st = st, .budget = &budget};
	struct perfevent ev = {.kind = PERFEVENT_SAMPLE,
			       .attr = &attr,
			       .misc = PERF_RECORD_MISC_KERNEL};
	uint64_t chain[4] = {PERF_CONTEXT_KERNEL, 0xffffffff81000010};
	int (*volatile outer)(int) = chain_outer;
	uint32_t stack_id;

	(void)state;
	(void)outer(5);
	align_trace();
	ev.sample = sample_of();
	ev.sample.stack_size = 0;
	ev.sample.chain = (const uint8_t *)chain;
	ev.sample.n_chain = 2;
	ev.sample.has_chain = true;
	ev.sample.ip = chain[1];
	stack_id = stackwalk_sample(&w, &code, &ev, true);
	assert_int_equal(stacktab_depth(st, stack_id), 3);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "[kernel]");
	stack_id = stacktab_parent(st, stack_id);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "chain_inner");
	stack_id = stacktab_parent(st, stack_id);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "[callers unknown]");
	assert_int_equal(w.unwound[UNWIND_NO_STACK], 1);

	/* the kernel's own chain of the user's frames is more than that */
	chain[2] = PERF_CONTEXT_USER;
	chain[3] = (uintptr_t)trace[1];
	ev.sample.n_chain = 4;
	stack_id = stackwalk_sample(&w, &code, &ev, false);
	assert_string_equal(name_of(stacktab_leaf(st, stack_id)), "chain_middle");
	assert_int_equal(w.unwound[UNWIND_NO_STACK], 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_own_stack),
		cmocka_unit_test(test_through_a_signal),
		cmocka_unit_test(test_cut_and_damaged),
		cmocka_unit_test(test_chains),
		cmocka_unit_test(test_no_bytes),
	};

	return cmocka_run_group_tests(tests, setup, teardown);
}
