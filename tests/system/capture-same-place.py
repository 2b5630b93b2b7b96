#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# A wait has the stack that it has, not the thread's last one, however much both have in common: where it runs, the stack pointer, the
# length of the stack, all return addresses but one; the place of a frame; the frame pointer that a function has saved.
from lib.capture import *
from lib.samestack import CALLERS, is_on_path
from lib.texttrace import slices_of_snapshot

SOURCE = "#define LEAF waits" + CALLERS + r"""
#include <poll.h>
KEEP void waits(void) { poll(0, 0, 1); sink++; }
KEEP void deep(int n, int way)
{
	if (n > 0) { deep(n - 1, way); sink++; return; }
	ALONG(way);
}
KEEP void even(int way) { deep(6, way); sink++; }
KEEP void odd(int way) { deep(6, way); sink++; }
int main(void)
{
	unsigned int seed = 4;
	int way = 0, side = 0;
	puts("ready");
	for (;;) {
		PICK(way, side, seed);
		long long begin = now(CLOCK_MONOTONIC);
		(side ? odd : even)(way);
		printf("%lld %lld %s %s\n", begin, now(CLOCK_MONOTONIC), side ? "odd" : "even", ways[way]);
		fflush(stdout);
	}
}
"""
WAITS = 400


def recorded(name, *flags):
    """Runs it for that many waits: the log since it was armed, and what is drawn."""
    log = tmp() / f"{name}.log"
    with open(log, "w") as out:
        p = spawn(build_c(name, SOURCE, "-O1", "-fno-optimize-sibling-calls", *flags), stdout=out)
    count = lambda: log.read_text().count("\n")
    wait_for("its first wait", lambda: count() > 2)
    t = c.arm(p.pid, stacks="bpf", wait_min_ns=1000)
    begin = count()
    wait_for("waits", lambda: count() > begin + WAITS)
    s = c.snapshot(t["id"])
    p.kill()
    return log.read_text().splitlines()[begin + 2:], slices_of_snapshot(d, s["id"], tmp() / f"bundle-{name}").get(p.pid, [])


with Tracerd() as d:
    c = d.client(timeout=60)
    need_unwinding(c)
    for name, *flags in (("no-frame-pointers", "-fomit-frame-pointer"), ("frame-pointers", "-fno-omit-frame-pointer")):
        log, slices = recorded(name, *flags)
        waits = sorted((s for s in slices if s.name.startswith("off CPU: sleeping") and "poll" in str(s.args)), key=lambda s: s.begin)
        at, seen, wrong, unknown = 0, 0, [], 0
        for line in log:
            begin, end, side, way = line.split()
            while at < len(waits) and waits[at].begin < int(begin):
                at += 1
            if at == len(waits) or waits[at].end > int(end):
                continue
            seen += 1
            stack = waits[at].stack
            if not stack:
                unknown += 1  # its table was not there yet
            elif not is_on_path(stack, side, way, "waits"):
                wrong.append((line, stack))
        note(f"{name}: {seen} waits")
        expect(seen > WAITS * 3 / 4, f"{name}: {seen} of {WAITS} waits are drawn where the program logged them")
        expect(unknown < 20, f"{name}: of {seen} waits few have no stack: {unknown}")
        expect(not wrong, f"{name}: of {seen} waits all have their stacks, not {len(wrong)} {wrong[:2]}")
