#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# The number of a process that has ended is another's at once: before anybody has looked whether the first one still is. Nothing of
# the other one is the target's.
from lib.capture import *

# Takes the number as soon as it is free; its child says when it began, by the clock of the records, and works under a name of its own.
TAKER = r"""
#define _GNU_SOURCE
#include <errno.h>
#include <linux/sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
static uint64_t now(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}
int main(int argc, char **argv)
{
	int32_t pid = argc > 1 ? atoi(argv[1]) : 0;
	struct clone_args args = {.exit_signal = 17, .set_tid = (uintptr_t)&pid, .set_tid_size = 1};
	long r;

	puts("ready");
	fflush(stdout);
	do
		r = syscall(SYS_clone3, &args, sizeof(args));
	while (r < 0 && errno == EEXIST);
	if (r < 0) {
		printf("refused %d\n", errno);
		return 1;
	}
	if (r == 0) {
		uint64_t begin = now(CLOCK_MONOTONIC_RAW), until = now(CLOCK_PROCESS_CPUTIME_ID) + 80000000;

		prctl(PR_SET_NAME, "impostor");
		while (now(CLOCK_PROCESS_CPUTIME_ID) < until)
			;
		printf("%llu\n", (unsigned long long)begin);
		fflush(stdout);
		fclose(stdout);
		pause();
	}
	wait(NULL);
}
"""


def taken(taker, target):
    """Ends the process; its number goes on. When the other one began to run."""
    p = spawn(taker, target.pid, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    target.kill()
    line = p.stdout.readline()
    if line.startswith("refused"):
        skip(f"no process can be made with a given number here: {line}")
    return p, int(line)


def check(what, pid, began, recs):
    late = [r for r in recs if r.pid == pid and r.time > began]
    expect(not late, f"{what}: nothing of the process that has its number is in the snapshot: {collections.Counter(r.type for r in late)}")
    expect("impostor" not in names(recs).values(), f"{what}: nor its name")
    expect(any(r.type == SAMPLE and r.pid == pid and r.time < began for r in recs), f"{what}: what it did itself is")


need_root("a process with a given number")
taker = build_c("taker", TAKER)
with Tracerd() as d, d.client() as c:
    if not c.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    for what, params in (("a process", {}), ("a family", {"children": True})):
        t = Target("first")
        other = Target("other", "idle")
        target = c.call("target.arm", {"pid": t.pid, "stacks": "fp", **params})["target"]["id"]
        if params:
            # With another member it goes on.
            c.call("target.join", {"target": target, "pid": other.pid})
        let_work(t.pid)
        p, began = taken(taker, t)
        check(what, t.pid, began, bundle(c, target)[1])
        time.sleep(0.3)
        check(f"{what}, later", t.pid, began, bundle(c, target)[1])
        os.kill(t.pid, signal.SIGKILL)
        p.wait()
        other.kill()
        c.call("target.disarm", {"target": target})
    group = Cgroup(f"tracerd-reused-{os.getpid()}.service")
    t = Target("first")
    group.add(t.pid)
    target = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]["id"]
    let_work(t.pid)
    p, began = taken(taker, t)
    check("a unit", t.pid, began, bundle(c, target)[1])
    os.kill(t.pid, signal.SIGKILL)
    p.wait()
