#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
# Who ends a wait is told with the stack with which he did it, not with the one of the last time, however much both have in common; and
# where he does it from the same place again he has a stack, too.
from lib.capture import *
from lib.samestack import CALLERS, is_on_path

SOURCE = "#define LEAF wakes" + CALLERS + r"""
#include <pthread.h>
#include <unistd.h>
static volatile long sent, woken;
static volatile int side, way; /* in no register that would tell them */
static int pipe_[2];
KEEP void wakes(void) { sink += write(pipe_[1], "x", 1); }
KEEP void deep(int n)
{
	if (n > 0) { deep(n - 1); sink++; return; }
	ALONG(way);
}
KEEP void even(void) { deep(6); sink++; }
KEEP void odd(void) { deep(6); sink++; }
static void *waits(void *arg)
{
	char c;
	while (read(pipe_[0], &c, 1) == 1)
		woken++;
	return arg;
}
int main(void)
{
	unsigned int seed = 4;
	pthread_t t;
	if (pipe(pipe_) || pthread_create(&t, NULL, waits, NULL))
		return 1;
	for (;;) {
		PICK(way, side, seed);
		/* it waits again, also on a busy machine: else nobody is woken */
		do usleep(2000); while (woken < sent);
		sent++;
		long long begin = now(CLOCK_MONOTONIC_RAW);
		if (side)
			odd();
		else
			even();
		printf("%lld %lld %s %s\n", begin, now(CLOCK_MONOTONIC_RAW), side ? "odd" : "even", ways[way]);
		fflush(stdout);
	}
}
"""
TIMES = 400


def functions(record, symbols):
    """Of the user's part of its chain, outermost first."""
    (n,) = struct.unpack_from("<Q", record.body, 48)
    chain = [a for a in struct.unpack_from(f"<{n}Q", record.body, 56) if a < 1 << 47]
    return [next((name for start, size, name in symbols if start <= a < start + size), "?") for a in reversed(chain)]


with Tracerd() as d:
    c = d.client(timeout=60)
    need_unwinding(c)
    program = build_c("wakes-in-turn", SOURCE, "-O1", "-fno-optimize-sibling-calls", "-fomit-frame-pointer", "-no-pie", "-pthread")
    nm = [line.split() for line in subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout.splitlines()]
    symbols = [(int(x[0], 16), int(x[1], 16), x[3]) for x in nm if len(x) == 4 and x[2] in "tT"]
    log = tmp() / "log"
    with open(log, "w") as out:
        p = spawn(program, stdout=out)
    count = lambda: log.read_text().count("\n")
    wait_for("the first", lambda: count() > 2)
    t = c.arm(p.pid, stacks="bpf", wait_min_ns=1000)
    wait_for("its stacks are unwound", lambda: c.call("target.list")["targets"][-1]["sample"]["unwound"]["complete"] > 20)
    begin = count()
    wait_for("wakers", lambda: count() > begin + TIMES)
    meta, recs, s = bundle(c, t["id"])
    p.kill()
    woken = sorted((r for r in recs if r.type == SAMPLE and r.id == SCHED and sched(r).kind == WAKEUP and sched(r).other_tid == p.pid),
                   key=lambda r: r.time)
    at, seen, wrong = 0, 0, []
    for line in log.read_text().splitlines()[begin + 2:begin + TIMES]:
        first, last, side, way = line.split()
        while at < len(woken) and woken[at].time < int(first):
            at += 1
        if at == len(woken) or woken[at].time > int(last):
            continue
        seen += 1
        stack = functions(woken[at], symbols)
        if not is_on_path(stack, side, way, "wakes"):
            wrong.append((line, stack))
    expect(seen > TIMES * 3 / 4, f"{seen} of {TIMES} wakers are told where the program logged them")
    expect(not wrong, f"of {seen} wakers all have their stacks, not {len(wrong)} {wrong[:2]}")
