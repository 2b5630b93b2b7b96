#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What a target starts is recorded where that is asked for, and only there; only administrators may ask.
from lib.capture import *

NOBODY = 65534

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

    mine = Target("mine", uid=NOBODY)

    def user():
        with Client(d.sock) as u:
            fd = open_maps(mine.pid)
            expect(u.call_error("target.arm", {"pid": mine.pid, "fds": ["maps"], "children": True}, [fd]) == "not_permitted",
                   "an ordinary user records one process at a time")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")
    expect(c.call_error("target.arm", {"tid": mine.pid, "children": True}) == "bad_params", "a thread starts nothing of its own")
