#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A control group that is frozen, as by `systemctl freeze`: its threads are stopped for that time, and sleep in no system call of theirs."""
from lib.capture import *
from lib.texttrace import slices_of_snapshot

FROZEN = 0.4

need_root("BPF")
group = Cgroup(f"tracerd-frozen-{os.getpid()}.slice")
if not (group.path / "cgroup.freeze").exists():
    skip("control groups cannot be frozen here")
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    target = Target("frozen")
    t = c.arm(target.pid, stacks="fp")
    group.add(target.pid)
    time.sleep(0.3)
    (group.path / "cgroup.freeze").write_text("1")
    wait_for("it is frozen", lambda: "frozen 1" in (group.path / "cgroup.events").read_text())
    time.sleep(FROZEN)
    now = c.snapshot(t["id"])["summary"]
    (group.path / "cgroup.freeze").write_text("0")
    time.sleep(0.3)
    s = c.snapshot(t["id"])
    slices = slices_of_snapshot(d, s["id"], tmp() / "bundle")
    for tid in map(int, os.listdir(f"/proc/{target.pid}/task")):
        found = [(x.name, (x.end - x.begin) / 1e9) for x in slices.get(tid, []) if x.name.startswith("off CPU") and x.end - x.begin > FROZEN * 1e9]
        expect(("off CPU: stopped" in [name for name, _ in found]), f"thread {tid} was stopped: {found}")
    still = [w for w in now["waits"] if w.get("open") and w["state"] == "stopped"]
    expect(len(still) >= 1, f"and so it is said while it lasts: {[(w['state'], w['ns'], w.get('call')) for w in now['waits']]}")
    target.kill()
