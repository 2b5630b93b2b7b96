#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""Who may not run, as the CPU quota of its cgroup is used up, is throttled and not preempted: by the kernel's own count of that time; who has
no quota is never."""
from lib.capture import *
from lib.texttrace import slices_of_snapshot

SOURCE = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
volatile unsigned long sink;
__attribute__((noinline)) void burn(void) { for (int i = 0; i < 1000; i++) sink++; }
static void *burner(void *arg) { for (;;) burn(); return arg; }
int main(void)
{
	pthread_t t;

	pthread_create(&t, NULL, burner, NULL);
	puts("ready");
	fflush(stdout);
	for (;;) usleep(5000);
}
"""
QUOTA_US, PERIOD_US = 20000, 100000


class Quota:
    """A cgroup within one that has a CPU quota, of either version."""

    def __init__(self, name):
        self.v1 = pathlib.Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").exists()
        root = pathlib.Path("/sys/fs/cgroup/cpu") if self.v1 else cgroup_mount()
        self.outer = Cgroup(f"tracerd-{name}-{os.getpid()}", root)
        if not self.v1:
            if "cpu" not in (root / "cgroup.controllers").read_text().split():
                skip("no cgroup controller for the CPU")
            for path in (root, self.outer.path):
                (path / "cgroup.subtree_control").write_text("+cpu")
        self.inner = Cgroup("inner", self.outer.path)
        self.limit(QUOTA_US)

    def limit(self, quota_us):
        if self.v1:
            (self.outer.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.outer.path / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            (self.outer.path / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")

    def stat(self):
        return {key: int(n) for key, n in (line.split() for line in (self.outer.path / "cpu.stat").read_text().splitlines())}

    def throttled_ns(self):
        return self.stat()["throttled_time"] if self.v1 else self.stat()["throttled_usec"] * 1000

    def times(self):
        return self.stat()["nr_throttled"]


need_root("cpu-wide events, cgroups")
program = build_c("burner", SOURCE, "-O1", "-fno-omit-frame-pointer", "-pthread")
quota = Quota("throttled")


# Another realtime thread, which is before it again and again, for longer than the second in which a realtime thread of a cgroup may run
# for cpu.rt_runtime_us: what remains of it may be nothing when this begins.
RIVAL = """
import os, time
os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(2))
print("ready", flush=True)
input()
for _ in range(500):
    end = time.thread_time() + 0.002
    while time.thread_time() < end: pass
    time.sleep(0.002)
"""


def start():
    # On one CPU: what the kernel counts is the time of each CPU.
    p = spawn("taskset", "-c", str(min(os.sched_getaffinity(0))), program, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    return p


def realtime(d, c):
    """The quota is not for a realtime thread, also if it became one while it was held up: the kernel leaves its mark on it."""
    rival = spawn("taskset", "-c", str(min(os.sched_getaffinity(0))), sys.executable, "-c", RIVAL,
                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if rival.stdout.readline() != "ready\n":
        skip("no realtime thread here")
    p = start()
    quota.inner.add(p.pid)
    tid = next(int(t) for t in os.listdir(f"/proc/{p.pid}/task") if int(t) != p.pid)
    try:
        for group in (quota.outer, quota.inner):
            if (group.path / "cpu.rt_runtime_us").exists():
                (group.path / "cpu.rt_runtime_us").write_text("200000")
        # Nearly always, from now on; it is counted at the end of each period.
        quota.limit(1000)
        times = quota.times()
        wait_for("it is throttled again", lambda: quota.times() > times + 1, step=0.002)
        time.sleep(PERIOD_US / 2e6)
        os.sched_setscheduler(tid, os.SCHED_RR, os.sched_param(1))
    except OSError as e:
        skip(f"no realtime thread in a cgroup here: {e}")
    target = c.arm(p.pid, wait_min_us=0)["id"]
    rival.communicate("go\n")
    s = c.snapshot(target)
    names = collections.Counter(x.name for x in slices_of_snapshot(d, s["id"], tmp() / "realtime")[tid])
    expect(names["off CPU: preempted"] >= 3 and not names["off CPU: throttled"], f"a realtime thread is preempted: {dict(names)}")
    for process in (rival, p):
        process.kill()
        process.wait()


with Tracerd(config="[capture]\nring_kib = 8192\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    limited, free = start(), start()
    quota.inner.add(limited.pid)
    # until the first period has begun with it
    wait_for("it is throttled", lambda: quota.throttled_ns() > 0)
    targets = {p.pid: c.arm(p.pid, wait_min_us=0)["id"] for p in (limited, free)}
    before, times = quota.throttled_ns(), quota.times()
    wait_for("it was throttled for 2 s", lambda: quota.throttled_ns() - before > 2e9)
    told = quota.throttled_ns() - before
    off = {}
    for p in (limited, free):
        s = c.snapshot(targets[p.pid])
        slices = slices_of_snapshot(d, s["id"], tmp() / f"bundle-{p.pid}")
        off[p] = [x for tid, per in slices.items() for x in per if tid != p.pid and x.name == "off CPU: throttled"]
        waits = s["summary"]["waits"]
        if p is limited:
            times = quota.times() - times
            text = d.tracectl("show", s["id"]).stdout
            sums = s["summary"]["throttled"]
            limited_waits = [w for w in waits if w["state"] == "throttled"]
    seen = sum(s.end - s.begin for s in off[limited])
    # The kernel counts until the quota is there again, the thread then waits for its processor; and it counts at the end of a period.
    expect(0.8 * told < seen, f"{len(off[limited])} waits are throttled, {seen / 1e6:.0f} ms; the kernel says {told / 1e6:.0f} ms")
    expect(len(off[limited]) <= times + 2, f"not more than the kernel has counted: {times}")
    others = [s.stack for s in off[limited] if "burner" not in s.stack]
    expect(off[limited] and not others, f"they have the stack of who ran: {others[:3]}")
    expect(limited_waits and limited_waits[0]["stack"] and "instead" not in limited_waits[0], "the summary has them, and nobody who ran instead")
    expect("throttled (the CPU quota of its cgroup was used up as it began)" in text and "the CPU quota of the cgroup was used up: " in text, "as text, too")
    expect(sums["waits"] >= len(off[limited]) and sums["ns"] >= seen, f"the sum is of all threads: {sums}")
    expect(not off[free], "who has no quota is not throttled")
    for p in (limited, free):
        p.kill()
        p.wait()
    realtime(d, c)
