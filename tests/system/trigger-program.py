#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triggers with a real program and the real library: the library binds thresholds to its names whenever they come,
compares at the region's end, keeps what comes within the cooldown to itself, and asks for snapshots in its own name."""
from lib.eventshell import *
from lib.ring import REGION_END, TRIGGER

MS = 1000000


def trigger(c, gid):
    t = next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)
    if t["hits"] != t["snapshots"] + sum(t["suppressed"].values()):
        fail(f"hits are not counted once: {t}")
    return t


def add(c, target, region, over_ms, **more):
    more = {"cooldown_ns": 0, **more}
    return c.call("trigger.add", {"target": target, "region": region, "over_ns": over_ms * MS, **more})["trigger"]["id"]


def fresh_status(c):
    """The daemon's picture of itself is a quarter of a second old at most."""
    time.sleep(0.3)
    return c.call("status")


def ended(c, sid):
    def look():
        s = c.call("snapshot.show", {"snapshot": sid})["snapshot"]
        return s if s["state"] in ("done", "failed", "cancelled") else None
    return wait_for(f"the end of snapshot {sid}", look)


def hit(c, gid, p, line):
    """Tells the program a slow region until the trigger is hit: a threshold reaches the program a moment after the daemon
    has set it. The snapshot."""
    before = trigger(c, gid)

    def told():
        p.tell(line, "ok")
        now = trigger(c, gid)
        return now if now["snapshots"] > before["snapshots"] else None
    return ended(c, wait_for("a snapshot by the trigger", told)["last_snapshot"])


with Tracerd() as d, d.client() as c:
    p = Shell(d.sock)
    p.tell("start", "ok")
    p.wait_connected()
    t = wait_for("the program is a target", lambda: target_of(c, p.pid))

    # ---- a name that the program has, and one that it does not have yet
    p.tell("region known 0", "ok")
    known, later = add(c, t["id"], "known", 30), add(c, t["id"], "later", 30)
    s = hit(c, known, p, "region known 60")
    cause = s["cause"]
    expect(s["state"] == "done" and cause["kind"] == "region" and cause["region"] == "known" and cause["pid"] == p.pid
           and cause["tid"] == p.pid, "a slow region of a real program takes a snapshot")
    expect(60 * MS <= cause["duration_ns"]
           and cause["duration_ns"] == cause["end_raw_ns"] - cause["begin_raw_ns"], "with the time that it took")
    expect(cause["end_raw_ns"] <= s["frozen_raw_ns"], "and is frozen behind its end")
    note(f"region end to freeze: {(s['frozen_raw_ns'] - cause['end_raw_ns']) / 1000:.1f} us")
    s = hit(c, later, p, "region later 60")
    expect(s["cause"]["region"] == "later", "a name that comes after its trigger is bound when it comes")
    (name,) = [f["name"] for f in s["files"] if f["name"].startswith("rings/")]
    records = RingFile(c.fetch(s["id"], name)[name]).records()
    end = next(r for r in reversed(records) if r[1] == b"later" and r[2] == REGION_END)
    mark = next(r for r in reversed(records) if r[1] == b"later" and r[2] == TRIGGER)
    expect(end[3] == mark[3] and end[0] <= mark[0], "the trigger is marked in the ring, by the same begin")

    # ---- what is quick is not told
    # A minute: no machine is so busy that a region of nothing takes as long.
    quick, before = add(c, t["id"], "quick", 60000), trigger(c, known)["hits"]
    for _ in range(50):
        p.tell("region quick 0", "ok")
    p.tell("region unknown 60", "ok")
    expect(trigger(c, quick)["hits"] == 0 and trigger(c, known)["hits"] == before, "quick regions, and others, are no hits")

    # ---- the program keeps the cooldown
    cold = add(c, t["id"], "cold", 10, cooldown_ns=3600000 * MS)
    hit(c, cold, p, "region cold 30")
    causes, kept = fresh_status(c)["events"]["causes"], trigger(c, cold)["suppressed"]["program"]
    for _ in range(5):
        p.tell("region cold 30", "ok")
    g = trigger(c, cold)
    expect(g["snapshots"] == 1 and g["suppressed"]["program"] == kept + 5 and g["suppressed"]["cooldown"] == 0,
           "within the cooldown nothing leaves the program, but its count")
    expect(fresh_status(c)["events"]["causes"] == causes, "and the daemon is not woken")

    # ---- two on one name
    high, low = add(c, t["id"], "two", 3000), add(c, t["id"], "two", 5)
    hit(c, low, p, "region two 10")
    hit(c, low, p, "region two 10")
    expect(trigger(c, high)["hits"] == 0, "a lower threshold on the same region is no hit of the higher one")
    last = c.call("trigger.remove", {"trigger": low})["trigger"]
    expect(last["snapshots"] >= 2 and hit(c, high, p, "region two 3000")["cause"]["over_ns"] == 3000 * MS,
           "which goes on when the lower one is removed")
    hour = {"cooldown_ns": 3600000 * MS}
    high, low = add(c, t["id"], "apart", 3000, **hour), add(c, t["id"], "apart", 5, **hour)
    hit(c, low, p, "region apart 10")
    expect(hit(c, high, p, "region apart 3000")["cause"]["over_ns"] == 3000 * MS, "the lower one's cooldown does not keep back a hit of the higher one")
    for g in (high, low):
        c.call("trigger.remove", {"trigger": g})

    # ---- an armed program: the snapshot has samples, too
    armed = c.arm(p.pid)
    expect(armed["id"] == t["id"] and armed["triggers"] == 5, "arming it keeps target and triggers")
    s = hit(c, known, p, "region known 60")
    files = {f["name"] for f in s["files"]}
    expect({"perf.data", name} <= files and s["state"] == "done", "then the snapshot has its samples and its rings")

    # ---- the program asks
    expect(p.tell("snapshot disk is slow") == "ok", "tracerd_snapshot() says that it has asked")
    asked = wait_for("the program's snapshot", lambda: next(
        (s for s in c.call("snapshot.list")["snapshots"] if s["cause"]["kind"] == "program"), None))
    s = ended(c, asked["id"])
    expect(s["cause"]["reason"] == "disk is slow" and s["cause"]["pid"] == p.pid and s["target"] == t["id"],
           "and there is one, of the target that is armed")
    answers = {p.tell("snapshot again") for _ in range(20)}
    expect("EAGAIN" in answers, "it cannot ask as often as it likes, and is told so")

    # ---- the daemon goes and comes: triggers are gone, programs are not
    c.close()
    d.stop()
    d.start()
    with d.client() as c2:
        p.wait_connected(2)
        t = wait_for("the program is a target again", lambda: target_of(c2, p.pid))
        expect(c2.call("trigger.list")["triggers"] == [], "triggers go with the daemon")
        p.tell("region known 60", "ok")
        again = add(c2, t["id"], "known", 30)
        s = hit(c2, again, p, "region known 60")
        expect(s["cause"]["trigger"] == again, "and new ones reach the program")

        # ---- a child that forks off has no part in it
        child = p.fork()
        before = trigger(c2, again)["hits"]
        p.tell("region known 60", "off")
        p.exit_child()
        expect(trigger(c2, again)["hits"] == before and child != p.pid, "a forked child hits nothing")

        # ---- killed in the moment of the hit: the last words count
        before = trigger(c2, again)["hits"]
        p.tell("region known 60", "ok")
        p.kill()
        wait_for("the last hit", lambda: trigger(c2, again)["hits"] == before + 1)
        ok("the hit of a program that is killed right behind it is not lost")
        s = ended(c2, trigger(c2, again)["last_snapshot"])
        expect(s["state"] == "done", "nor is its snapshot")

# ---- a connection that is lost is no end: a program that nobody armed stands still, or stops and starts
with Tracerd(name="-silent", config="[client]\nclient_ping_s = 1\nclient_read_timeout_s = 5\n") as d, d.client() as c:
    p = Shell(d.sock)
    p.tell("start", "ok")
    p.wait_connected()
    t = wait_for("the program is a target", lambda: target_of(c, p.pid))
    kept = add(c, t["id"], "kept", 30)
    for what, leave, come in (("stood still", lambda: os.kill(p.pid, signal.SIGSTOP), lambda: os.kill(p.pid, signal.SIGCONT)),
                              ("stopped and started", lambda: p.tell("stop", "ok"), lambda: p.tell("start", "ok"))):
        leave()
        wait_events(c, p.pid, "ended")
        expect(trigger(c, kept)["programs"] == 0, f"a program that {what} is watched no more")
        come()
        again = wait_events(c, p.pid, "live")
        expect(again["id"] == t["id"] and again["state"] == "armed" and again["triggers"] == 1
               and trigger(c, kept)["programs"] == 1, "and when it is back it has its target and its trigger")
        p.wait_connected()  # the daemon knows it first
        expect(hit(c, kept, p, "region kept 60")["state"] == "done", "which takes its snapshots")
    expect([t["pid"] for t in c.call("target.list")["targets"]] == [p.pid], "there is one target of it")
    p.kill()
    wait_for("the target has exited", lambda: target_of(c, p.pid)["state"] == "exited")
    ok("its end is the end")
