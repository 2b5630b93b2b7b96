#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# What chains of frame pointers do not have is not invented: what a signal interrupted, behind its handler, and who calls a coroutine.
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
