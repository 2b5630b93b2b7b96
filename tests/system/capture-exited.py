#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What a target leaves when it exits stays for as long as the target is kept, whatever others do meanwhile: the rings that it shared with
# them are written over many times before anybody asks.
from lib.capture import *

need_root("cpu-wide events")
USER = 12352


def left(c, target):
    """(samples, switches, the newest time) of a snapshot."""
    meta, recs, s = bundle(c, target)
    return sum(r.id == CLOCK for r in recs), sum(r.id in (SCHED, SCHED_PLAIN) for r in recs), meta


def busy_for(c, other, seconds):
    """Until the rings that it shares have none of what was there before."""
    begun = time.monotonic()

    def wrapped():
        return c.call("target.show", {"target": other})["target"]["lookback_ns"] / 1e9 < time.monotonic() - begun - 2
    time.sleep(seconds)
    wait_for("the rings have been written over", wrapped)


config = "[capture]\nring_kib = 1024\ndwarf_ring_kib = 8192\nsample_hz = 4000\n"
with Tracerd(config=config) as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    busy = Target("busy")
    for stacks in ("fp", "dwarf"):
        short, moment = Target("short"), Target("moment")
        o = c.arm(busy.pid, stacks=stacks)["id"]
        t, m = c.arm(short.pid, stacks=stacks)["id"], c.arm(moment.pid, stacks=stacks)["id"]
        let_work(short.pid, seconds=0.2)
        short.process.kill()
        short.process.wait()
        wait_for("it has exited", lambda: c.call("target.show", {"target": t})["target"]["state"] == "exited")
        wait_for("what it has left is set aside", lambda: c.call("status")["capture"]["aside_bytes"] > 0)
        # One that is disarmed at once leaves nothing.
        moment.process.kill()
        moment.process.wait()
        c.call("target.disarm", {"target": m})
        at_once = left(c, t)
        before = c.call("target.show", {"target": t})["target"]
        busy_for(c, o, 4)
        later = left(c, t)
        expect(at_once[0] > 10 and later[:2] == at_once[:2], f"{stacks}: {at_once[0]} samples and {at_once[1]} switches are there, and stay: {later[:2]}")
        # Between two readings of the clocks it is known to some nanoseconds, and the second one may have come in between.
        apart = abs(later[2]["events"]["complete_from_ns"] - at_once[2]["events"]["complete_from_ns"])
        expect(apart < 1e6, f"{stacks}: complete since the same moment, to {apart} ns")
        after = c.call("target.show", {"target": t})["target"]
        expect(after["lookback_ns"] == before["lookback_ns"] > 0 and not after["warnings"], f"{stacks}: show says so: {after['lookback_ns'] / 1e6:.0f} ms")
        for x in (t, o):
            c.call("target.disarm", {"target": x})
        wait_for("nothing of it is left", lambda: c.call("status")["capture"]["aside_bytes"] == 0)
        ok(f"{stacks}: and goes with the target")

    # A crowd that ends at once, while one of them is being copied; they are found in one reading of the rings.
    crowd = [Target(f"c{i}") for i in range(8)]
    ids = [c.arm(x.pid, stacks="fp")["id"] for x in crowd]
    for x in crowd:
        x.process.kill()
    for i in ids[::2]:
        c.call("target.disarm", {"target": i})
    for i in ids[1::2]:
        wait_for("it has exited", lambda: c.call("target.show", {"target": i})["target"]["state"] == "exited")
        wait_for("it is set aside", lambda: c.call("status")["capture"]["aside_bytes"] > 0)
        samples, switches, meta = left(c, i)
        expect(meta["losses"]["malformed"] == 0 and switches > 0, f"each of a crowd has its own: {samples} samples, {switches} switches")

with Tracerd(config=config + "[quota]\nuid_ring_mib = 1\n") as d:
    if d.client().call("status")["backends"]["sample"]["method"] == "cpu":
        mine = Target("mine", uid=USER)
        for i in range(3):
            mine.tell(f"thread t{i}")

        def user():
            with Client(d.sock) as u:
                t = u.arm(mine.pid, stacks="dwarf")["id"]
                time.sleep(3)
                os.kill(mine.pid, signal.SIGKILL)
                shown = lambda: u.call("target.show", {"target": t})["target"]
                w = wait_for("that it is not set aside is said", lambda: [w for w in shown()["warnings"] if "set it aside" in w])
                expect(shown()["state"] == "exited", f"who may not have the memory is told: {w[0]}")
                expect(u.snapshot(t)["state"] == "done", "and gets what is there still")
        expect(as_user(USER, user) == 0, "the user's part")

# The clocks of its time are still known when somebody arms another one.
with Tracerd() as d:
    c = d.client()
    alone = Target("alone")
    t = c.arm(alone.pid)["id"]
    let_work(alone.pid, seconds=1.2)
    alone.kill()
    wait_for("it has exited", lambda: c.call("target.show", {"target": t})["target"]["state"] == "exited")
    time.sleep(2.5)  # so long the clocks were read no more
    c.arm(busy.pid)
    meta, recs, s = bundle(c, t)
    first = min(r.time for r in recs if r.id == CLOCK)
    brackets = [b["raw"] for b in meta["clocks"]["brackets"]]
    expect(brackets[0] <= first and len(brackets) > 2, f"{len(brackets)} readings of the clocks, the first {(first - brackets[0]) / 1e6:.0f} ms before the first sample")
