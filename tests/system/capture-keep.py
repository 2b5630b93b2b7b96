#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# arm --keep: rings grow until they reach back as far as was asked for, and nothing is lost on the way; a quiet target costs nothing;
# where memory, a user's or that of all, does not suffice, it is said; what the rings do reach is told; what cannot be is refused.
from lib.capture import *

need_root("cpu-wide events")
USER = 12351
KEEP_S = 3
# Of stacks with their memory so seldom that what they need is well within keep_total_mib, on one CPU, too.
PAUSE_S = {"fp": 0.0002, "dwarf": 0.002}
# Waits as often as it can, and says when: each line is a time before which it waited, and one after which it did again.
BUSY = r"""
import os, sys, time
r, w = os.pipe()
if os.fork() == 0:
    os.close(w)
    while os.read(r, 1): pass
    os._exit(0)
os.close(r)
print("ready", flush=True)
end = time.monotonic() + float(sys.argv[1])
pause = float(sys.argv[2])
while time.monotonic() < end:
    for i in range(50): os.write(w, b"x"); time.sleep(pause)
"""


def busy(pause=PAUSE_S["fp"], uid=None):
    p = spawn(interpreter(), "-c", BUSY, "100000", str(pause), uid=uid, stdout=subprocess.PIPE, text=True)
    p.stdout.readline()
    return p


def shown(c, target):
    return c.call("target.show", {"target": target})["target"]


def reaches(c, target, seconds):
    t = wait_for(f"it reaches back {seconds} s", lambda: (t := shown(c, target)) and (t["lookback_ns"] >= seconds * 1e9 or t["keep_short"]) and t)
    if t["keep_short"]:
        fail(f"it reaches back {t['lookback_ns'] / 1e9:.1f} s of {seconds}: {t['keep_short']}")


def whole(c, d, target, pid, seconds, what):
    """A bundle that says it is complete for so long has all switches of that time: each OUT of the thread has its IN."""
    meta, recs, s = bundle(c, target)
    events = meta["events"]
    have = (meta["frozen_raw_ns"] - events["complete_from_ns"]) / 1e9
    # What is written while the survey is older than the freeze is missing in it.
    expect(have > seconds * 0.8, f"{what}: a snapshot is complete for {have:.1f} s")
    # Those of the rings from before a change have ids of their own.
    switches = [(r.time, sched(r._replace(id=SCHED if r.id in (SCHED, SCHED + 16) else SCHED_PLAIN))) for r in recs
                if r.id in (SCHED, SCHED + 16, SCHED_PLAIN, SCHED_PLAIN + 16) and r.time >= events["complete_from_ns"]]
    times = [(q.kind, t) for t, q in sorted(switches) if q.tid == pid and q.kind in (OUT, IN)]
    twice = [k for (k, t), (k2, t2) in zip(times, times[1:]) if k == k2]
    # A kernel may trace no switch from a thread of process 1 (6.18 as a guest does not): a way back is missing then.
    expect(len(times) > 100 and IN not in twice and len(twice) <= len(times) / 100, f"{what}: its {len(times)} switches are there ({len(twice)} are not)")
    gap = max(b[1] - a[1] for a, b in zip(times, times[1:]))
    note(f"longest time without a switch: {gap / 1e6:.1f} ms")
    return meta


config = "[capture]\nring_kib = 256\ndwarf_ring_kib = 1024\nsample_hz = 99\n"
with Tracerd(config=config) as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    for stacks in ("fp", "dwarf"):
        p = busy(PAUSE_S[stacks])
        t = c.arm(p.pid, stacks=stacks, keep_ms=KEEP_S * 1000)["id"]
        before = shown(c, t)
        expect(before["keep_ns"] == KEEP_S * 10**9 and before["keep_short"] is None, f"{stacks}: what is wanted is told")
        reaches(c, t, KEEP_S)
        whole(c, d, t, p.pid, KEEP_S, stacks)
        # While it goes on, they stay.
        time.sleep(3)
        reaches(c, t, KEEP_S)
        ok(f"{stacks}: and later, too")
        text = d.tracectl("list").stdout
        expect(t in text and "looks back" not in text, f"{stacks}: list has nothing to complain of")
        c.call("target.disarm", {"target": t})
        p.kill()

    # One that asks for nothing has the configured rings, and the busy one's are not its.
    quiet, p = Target("quiet", "idle"), busy()
    q = c.arm(quiet.pid, stacks="fp", keep_ms=KEEP_S * 1000)["id"]
    t = c.arm(p.pid, stacks="fp", keep_ms=KEEP_S * 1000)["id"]
    reaches(c, t, KEEP_S)
    reaches(c, q, KEEP_S)
    ok("a quiet one beside it reaches back as far")
    expect(c.call_error("target.arm", {"pid": p.pid, "stacks": "fp", "keep_ms": 2 * KEEP_S * 1000}) == "busy", "more is another way")
    again = c.call("target.arm", {"pid": p.pid, "stacks": "fp", "keep_ms": 1000})["target"]
    expect(again["id"] == t, "less than what is kept is kept already")
    for ms in (-1, 0, 99, 600001):
        expect(c.call_error("target.arm", {"pid": p.pid, "keep_ms": ms}) == "bad_params", f"keep_ms {ms} is out of range")
    p.kill()

# All of them together have no more than is allowed.
with Tracerd(config=config + "keep_total_mib = 2\nkeep_ms = 60000\n") as d:
    c = d.client()
    p = busy(0)
    t = c.arm(p.pid, stacks="fp")["id"]
    s = wait_for("it cannot be had", lambda: shown(c, t)["keep_short"] and shown(c, t))
    expect("keep_total_mib" in s["keep_short"] and s["keep_ns"] == 60 * 10**9, f"why it is short is told: {s['keep_short']}")
    expect(s["state"] == "armed" and c.call("status")["capture"]["ring_bytes"] <= 4 << 20, "and it goes on with the memory that there is")
    bundle(c, t)
    text = d.tracectl("list").stdout
    expect(f"{t} looks back" in text and "keep_total_mib" in text and " of 1 min" in text or " of 60" in text, "list tells it")
    text = d.tracectl("show", t).stdout
    expect("keep_total_mib" in text, "and show")
    p.kill()

# A user has no more than that user may.
with Tracerd(config=config + "[quota]\nuid_ring_mib = 2\n") as d:
    mine = busy(0, uid=USER)

    def user():
        with Client(d.sock) as u:
            t = u.arm(mine.pid, stacks="fp", keep_ms=60000)["id"]
            s = wait_for("it cannot be had", lambda: shown(u, t)["keep_short"] and shown(u, t))
            expect("uid_ring_mib" in s["keep_short"], f"a user's limit is told: {s['keep_short']}")
            expect(s["state"] == "armed", "and it goes on")
            bundle(u, t)
    expect(as_user(USER, user) == 0, "the user's part")
    mine.kill()

with Tracerd(config=config) as d:
    c = d.client()
    p = busy(PAUSE_S["dwarf"])
    # Others fill the rings that a target has left: what it is to reach back is not shortened by them.
    other = busy(0)
    o = c.arm(other.pid, stacks="dwarf")["id"]
    t = c.arm(p.pid, stacks="dwarf", keep_ms=KEEP_S * 1000)["id"]
    reaches(c, t, KEEP_S)
    whole(c, d, t, p.pid, KEEP_S, "others in the rings that it left")
