#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Targets with other rings beside it are nothing to a target: a tick goes to the rings of those alone that record its thread, so that a
# busy target does not write over what a quiet one's rings hold.
from lib.capture import *

need_root("cpu-wide events")
# The kernel's stacks make rings of their own, of the same size.
with Tracerd(config="[capture]\nring_kib = 256\nsample_hz = 10000\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    quiet, busy = Target("quiet", "idle"), Target("busy", "idle")
    begun = time.monotonic()
    q = c.arm(quiet.pid, stacks="fp")["id"]
    b = c.arm(busy.pid, stacks="fp", kernel=True)["id"]
    for i in range(2):
        busy.tell(f"thread t{i}")

    # What is told is a second old at most.
    def wrapped():
        return c.call("target.show", {"target": b})["target"]["lookback_ns"] / 1e9 < (time.monotonic() - begun - 1) / 4
    time.sleep(3)
    wait_for("the busy target's own rings have wrapped", wrapped)
    meta, recs, s = bundle(c, b)
    expect(sum(r.id == CLOCK for r in recs) > 100, "a busy target has its samples")
    elapsed = time.monotonic() - begun
    back = {t["id"]: t["lookback_ns"] for t in c.call("target.list")["targets"]}
    expect(back[q] / 1e9 > elapsed / 2, f"and no other's rings have lost anything to its samples ({back[q] / 1e9:.1f} s are there, {back[b] / 1e9:.1f} s of its own)")

    # One that joins records to the rings that are there, with what they have of others before it.
    again = Target("again")
    a = c.arm(again.pid, stacks="fp", kernel=True)["id"]
    let_work(again.pid, seconds=0.3)
    meta, recs, s = bundle(c, a)
    expect(sum(r.id == CLOCK and r.pid == again.pid for r in recs) > 10, "a third one shares the busy one's rings")
    expect(not any(r.pid == busy.pid for r in recs), "and leaves its records out")
