#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# What chains of frame pointers do not have is not invented: what a signal interrupted, behind its handler, and who calls a coroutine.
# Nobody is left out without a mark: who calls a function without a frame, be it the innermost or not, or generated code.
from lib.capture import *
from lib.texttrace import slices_of_snapshot

SOURCE = r"""
#include <signal.h>
#include <stdio.h>
#include <sys/time.h>
#include <time.h>
#include <ucontext.h>
static volatile long sink;
static ucontext_t own, other;
static char room[65536];
static long ms(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000 + t.tv_nsec / 1000000; }
__attribute__((noinline)) void in_handler(void) { for (long end = ms() + 3; ms() < end;) sink++; sink--; }
__attribute__((noinline)) void on_signal(int n) { in_handler(); sink += n; }
__attribute__((noinline)) void tick(void) { sink++; }
__attribute__((noinline)) void interrupted(void) { for (long i = 0; i < 10000000; i++) tick(); }
__attribute__((noinline)) void caller(void) { interrupted(); sink--; }
__attribute__((noinline)) void in_coroutine(void) { for (long end = ms() + 10; ms() < end;) sink++; sink--; }
static void coroutine(void) { for (;;) { in_coroutine(); swapcontext(&other, &own); } }
int main(void)
{
	struct itimerval every = {{0, 8000}, {0, 8000}};
	signal(SIGALRM, on_signal);
	getcontext(&other);
	other.uc_stack.ss_sp = room;
	other.uc_stack.ss_size = sizeof(room);
	makecontext(&other, coroutine, 0);
	puts("ready");
	fflush(stdout);
	for (;;) {
		setitimer(ITIMER_REAL, &every, 0);
		caller();
		setitimer(ITIMER_REAL, &(struct itimerval){0}, 0);
		swapcontext(&own, &other);
	}
}
"""
# Each leaf that runs, and who has truly called it, from the inside out.
CALLERS = {"framed": ["plain", "via_plain", "inner1", "main"], "bare": ["plain2", "via_plain2", "inner2", "main"],
           "[anon]": ["via_jit", "inner3", "main"]}
LIBRARIES = {"framed": ("""int framed(int n) { for (volatile int i = 0; i < 2000000; i++) n++; return n; }""", "-fno-omit-frame-pointer"),
             "plain": ("""int framed(int n);
             __attribute__((noinline)) static int bare(int n) { for (volatile int i = 0; i < 2000000; i++) n++; return n; }
             int plain(int n) { return framed(n) + 1; }
             int plain2(int n) { return bare(n) + 1; }""", "-fomit-frame-pointer")}
MIXED = r"""
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
int plain(int n), plain2(int n);
static volatile int sink;
typedef void (*leaf)(long);
static leaf jit;
#define STILL __attribute__((noinline)) void
STILL via_plain(void) { sink += plain(1); sink--; }
STILL via_plain2(void) { sink += plain2(1); sink--; }
/* at its end it jumps into another library */
__attribute__((noinline)) int via_jit(void) { jit(2000000); return fflush(stdout); }
STILL inner1(void) { via_plain(); sink--; }
STILL inner2(void) { via_plain2(); sink--; }
STILL inner3(void) { via_jit(); sink--; }
int main(void)
{
	/* dec %rdi; jnz; ret */
	void *page = mmap(0, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	memcpy(page, "\x48\xff\xcf\x75\xfb\xc3", 6);
	memcpy(&jit, &page, sizeof(jit));
	puts("ready");
	fflush(stdout);
	for (;;) {
		inner1();
		inner2();
		inner3();
	}
}
"""


def left_out(stack):
    """Whether somebody is missing in it, from the inside out, without a mark."""
    truth = [stack[0], *CALLERS[stack[0]]]
    at, gap = 0, False
    for name in stack[1:stack.index("main") + 1 if "main" in stack else None]:
        if name == "[caller not recorded]":
            gap = True
            continue
        if name not in truth[at + 1:] or (not gap and truth[at + 1] != name):
            return True
        at, gap = truth.index(name), False
    return False


if os.uname().machine != "x86_64":
    skip("frame pointers of x86-64")
program = build_c("chains", SOURCE, "-O1", "-g", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls")
with Tracerd() as d:
    c = d.client()
    p = spawn(program, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    t = c.arm(p.pid, stacks="fp")

    def stacks():
        s = c.snapshot(t["id"])
        slices = slices_of_snapshot(d, s["id"], tmp() / f"bundle-{s['id']}").get(p.pid, [])
        return [[*s.stack, s.name] for s in slices if s.name in ("in_handler", "in_coroutine")]

    found = wait_for("stacks of both", lambda: (v := stacks()) and {"in_handler", "in_coroutine"} <= {s[-1] for s in v} and len(v) > 20 and v)
    handled = [s for s in found if s[-1] == "in_handler"]
    note(handled[0])
    wrong = [s for s in handled if "on_signal" not in s or "[caller not recorded]" not in s[:s.index("on_signal")]]
    expect(not wrong, f"of {len(handled)} stacks in the handler all say that who was interrupted is not recorded: {wrong[:2]}")
    known = [s for s in handled if s[s.index("[caller not recorded]") - 1] == "caller"]
    expect(len(known) > len(handled) / 2, f"and who had called that is in {len(known)}")
    moved = [s for s in found if s[-1] == "in_coroutine"]
    note(moved[0])
    wrong = [s for s in moved if "main" in s or "caller" in s or "coroutine" not in s]
    expect(not wrong, f"of {len(moved)} stacks in the coroutine none goes on by what its creator had in the register: {wrong[:2]}")

    for name, (source, flag) in LIBRARIES.items():
        needs = ["-Wl,--no-as-needed", tmp() / "libframed.so"] if name == "plain" else []
        build_c(f"lib{name}.so", source, "-O1", "-shared", "-fPIC", flag, *needs)
    mixed = build_c("mixed", MIXED, "-O1", "-fno-omit-frame-pointer", "-foptimize-sibling-calls", "-Wl,--no-as-needed",
                    tmp() / "libplain.so", tmp() / "libframed.so", f"-Wl,-rpath,{tmp()}")
    p = spawn(mixed, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    t = c.arm(p.pid, stacks="fp")

    def mixed_stacks():
        s = c.snapshot(t["id"])
        slices = slices_of_snapshot(d, s["id"], tmp() / f"bundle-{s['id']}").get(p.pid, [])
        return [[s.name, *reversed(s.stack)] for s in slices if s.name in CALLERS]

    found = wait_for("stacks of all three", lambda: (v := mixed_stacks()) and all(sum(s[0] == leaf for s in v) > 5 for leaf in CALLERS) and v)
    wrong = [s for s in found if left_out(s)]
    expect(not wrong, f"of {len(found)} stacks through code without frames none leaves a caller out without a mark: {wrong[:3]}")
    for leaf, caller in (("framed", "via_plain"), ("[anon]", "via_jit")):
        of = [s for s in found if s[0] == leaf]
        note(of[0])
        expect(sum(caller in s for s in of) > len(of) / 2, f"who is in the code is there: {caller} above {leaf}")
