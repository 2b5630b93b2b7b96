#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What a target starts is recorded where that is asked for, and only there.
from lib.capture import *

need_root("targets of several users")
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")

    with_them, without = Target("with"), Target("without")
    a = c.call("target.arm", {"pid": with_them.pid, "stacks": "fp", "backend": "sample", "children": True})["target"]
    b = c.call("target.arm", {"pid": without.pid, "stacks": "fp", "backend": "sample"})["target"]
    first, second = with_them.fork(), without.fork()
    for pid in (first, second):
        wait_for("the child's end", lambda: not os.path.exists(f"/proc/{pid}") or
                 open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z", timeout=60)
    meta, recs, _ = bundle(c, a["id"])
    expect(first in {p["pid"] for p in meta["processes"]}, "a child is one of the target's processes")
    expect(any(r.type == SAMPLE and r.pid == first for r in recs), "and what it did is recorded")
    meta, recs, _ = bundle(c, b["id"])
    expect(second not in {p["pid"] for p in meta["processes"]} and not any(r.pid == second for r in recs if r.type == SAMPLE),
           "without being asked for it is not")

    mine = Target("mine")
    expect(c.call_error("target.arm", {"tid": mine.pid, "children": True}) == "bad_params", "a thread starts nothing of its own")
