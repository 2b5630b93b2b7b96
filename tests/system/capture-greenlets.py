#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A greenlet's stack begins where the greenlet does. What is below its first frame was left there, or is another one's: here a library with
# greenlet's function, on whose stack that is garbage.
from lib.capture import *

SOURCE = r"""
#include <stdint.h>
#include <string.h>
#include <time.h>
#define FN __attribute__((noinline, noclone))
static volatile int sink;
static void run(int ms)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
}
FN static void naps(void) { const struct timespec t = {0, 2000000}; nanosleep(&t, NULL); sink++; }
FN static void works(void) { run(3); naps(); sink++; }
FN static void begins(void) { for (;;) works(); }
/* On a stack of its own, whose end says nothing that is true. */
static uint64_t stack[65536];
FN void _ZN8greenlet12UserGreenlet13g_initialstubEPv(void *arg)
{
	begins();
	sink++;
}
FN void switches(void)
{
	uint64_t *top = &stack[65000];

	for (int i = 65000; i < 65536; i++)
		stack[i] = GARBAGE;
	__asm__ volatile("mov %0, %%rsp\n\tpush %1\n\tjmp *%2" : : "r"(top), "r"(stack[65100]), "r"(&_ZN8greenlet12UserGreenlet13g_initialstubEPv) : "memory");
}
FN static void is_no_caller(void) { switches(); sink++; }
int main(void) { is_no_caller(); return 0; }
"""

need_root("BPF")
if os.uname().machine != "x86_64":
    skip("its code is x86-64's")
flags = ["-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", "-rdynamic"]
# Nothing, or what looks like a return to one who has not called.
for name, garbage in (("nothing", "0x7777777777"), ("another", "(uint64_t)&switches + 4")):
    build_c(name, SOURCE, *flags, f"-DGARBAGE={garbage}")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    for name in ("nothing", "another"):
        p = spawn(tmp() / name)
        for stacks in ("bpf", "dwarf"):
            t = c.arm(p.pid, stacks=stacks)
            let_work(p.pid, seconds=0.5)
            s = c.snapshot(t["id"])
            its = [w["stack"] for w in s["summary"]["waits"] if "naps" in w["stack"]]
            its += [h["stack"] for h in s["summary"]["heaviest"] if "works" in h["stack"]]
            wanted = "greenlet::UserGreenlet::g_initialstub"
            note(f"{name}, {stacks}: {its[:2]}")
            expect(len(its) >= 2 and all(st[0].startswith(wanted) and st[1] == "begins" for st in its), f"{stacks}: they begin there")
            c.call("target.disarm", {"target": t["id"]})
        p.kill()
        p.wait()
