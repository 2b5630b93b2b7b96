#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Where a unit has events of its own, the kernel takes all events of a CPU off it and back at each switch to another cgroup, and their
# time stands still meanwhile: by many milliseconds a second, on this CPU and not on that. No CPU has gone for that.
from lib.capture import *

# It leaves the CPU idle now and then: Linux 6.18 may run nobody else on a CPU for minutes that two cgroups hand to each other
# without a pause (mended by "sched/fair: Fix zero_vruntime tracking").
PINGPONG = r"""
import os, sys, time
os.sched_setaffinity(0, {0})
read, write = int(sys.argv[1]), int(sys.argv[2])
if sys.argv[3] == "serve": os.write(write, b"x")
n = 0
while os.read(read, 1):
    n += 1
    if n % 1000 == 0: time.sleep(0.002)
    os.write(write, b"x")
"""

need_root("cgroups")
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    groups = [Cgroup(f"tracerd-paused-{n}-{os.getpid()}.slice") for n in "ab"]
    there, back = os.pipe(), os.pipe()
    pair = [spawn(sys.executable, "-c", PINGPONG, there[0], back[1], "serve", pass_fds=(there[0], back[1])),
            spawn(sys.executable, "-c", PINGPONG, back[0], there[1], "", pass_fds=(back[0], there[1]))]
    for p, g in zip(pair, groups):
        (g.path / "cgroup.procs").write_text(str(p.pid))
    units = [c.call("target.arm", {"unit": str(g.path).removeprefix(str(cgroup_mount())), "stacks": "fp"})["target"] for g in groups]
    if any(t["method"] != "cgroup" for t in units):
        skip(f"no events of cgroups here: {units}")
    t = Target("watched")
    target = c.arm(t.pid, stacks="fp")["id"]
    for _ in range(6):
        let_work(t.pid, seconds=0.3)
        time.sleep(0.7)
        meta = bundle(c, target)[0]
        expect(meta["losses"].get("cpu_outages", 0) == 0, f"no CPU went: {meta['losses']}")
    expect(not any("came or went" in line for line in d.log_path.read_text().splitlines()), "nor is it logged")
    for p in pair:
        p.kill()
        p.wait()
