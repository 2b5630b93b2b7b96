#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Triggers end to end, with a producer that writes real cause records: the slow region becomes a snapshot that
says what it was, everything that becomes none is counted once and by why, other users' triggers are not there,
programs may ask for their own snapshots within limits, and --after waits."""
import ctypes
import json
import os

from lib import *
from lib.ring import *

MS = 1000000
S = 1000 * MS
PR_SET_DUMPABLE = 4


class Program:
    """A registered program: this process, its rings and the connection that is the registration."""

    def __init__(self, d):
        self.rings = Rings()
        self.client = d.client()
        self.control = self.rings.register(self.client)
        self.target = self.control.target["id"]
        self.ring = self.rings.ring(0)

    def region(self, name, took_ns, trigger=None, late_ns=0):
        """Writes a region that has just ended, and the cause for it as the library does. Returns (begin, end)."""
        end = stamp() - late_ns
        begin = end - took_ns
        self.ring.write(REGION_BEGIN, name, at=begin)
        self.ring.write(REGION_END, name, begin, at=end)
        if trigger is None:
            trigger = self.control.find(name).id
        self.rings.cause(REGION, name, begin, end, trigger=trigger)
        return begin, end

    def request(self, reason):
        at = stamp()
        self.rings.cause(REQUEST, reason, at, at)
        return at

    def end(self):
        """The registration ends."""
        self.client.close()
        self.rings.close()
        self.control.close()

    def close(self, c):
        """And what is kept of it is forgotten."""
        self.end()
        wait_for("the target's end", lambda: c.call("target.show", {"target": self.target})["target"]["events"]["state"] == "ended")
        c.call("target.disarm", {"target": self.target})


def trigger(c, gid):
    return next((t for t in c.call("trigger.list")["triggers"] if t["id"] == gid), None)


def adds_up(t):
    return t["hits"] == t["snapshots"] + sum(t["suppressed"].values())


def totals(c):
    """Since the daemon's start. Its picture of itself is a quarter of a second old at most."""
    time.sleep(0.3)
    return c.call("status")["triggers"]


def ended(c, sid):
    def look():
        s = c.call("snapshot.show", {"snapshot": sid})["snapshot"]
        return s if s["state"] in ("done", "failed", "cancelled") else None
    return wait_for(f"the end of snapshot {sid}", look)


def add(c, target, region, over_ns, **more):
    return c.call("trigger.add", {"target": target, "region": region, "over_ns": over_ns, **more})["trigger"]


# ---- one trigger, from the region's end to the bundle

def slow_region(d):
    with d.client() as c, d.client() as watch:
        watch.call("subscribe", {"events": ["trigger.hit"]})
        p = Program(d)
        t = c.call("target.show", {"target": p.target})["target"]
        expect(t["backend"] == "events" and t["triggers"] == 0, "a program that registered is a target by itself")
        generation = p.control.generation
        g = add(c, p.target, "serve", 5 * MS, cooldown_ns=2 * S)
        entry = p.control.find("serve")
        expect(entry and (entry.threshold_ns, entry.cooldown_ns) == (5 * MS, 2 * S)
               and entry.hash == ring_hash(b"serve") and p.control.generation > generation,
               "the threshold is in the program's page")
        p.client.event("control.changed")
        ok("the program is told that its page has changed")
        expect(g["programs"] == 1 and g["hits"] == 0 and g["max_per_hour"] == 60, "the trigger has one program")

        begin, end = p.region("serve", 7310000)
        hit = watch.event("trigger.hit")["data"]
        expect(hit["trigger"] == g["id"] and hit["target"] == p.target and hit["suppressed"] is None and hit["snapshot"],
               "the hit is told as an event, with its snapshot")
        s = ended(c, hit["snapshot"])
        cause = s["cause"]
        note(json.dumps(cause))
        expect(cause["kind"] == "region" and cause["trigger"] == g["id"] and cause["region"] == "serve"
               and cause["over_ns"] == 5 * MS and cause["pid"] == os.getpid()
               and cause["tid"] == p.ring.tid and cause["uid"] == os.getuid(), "the snapshot's cause is the region")
        expect(cause["reason"] == 'region "serve" took 7.31 ms, over 5 ms', "and says so in words")
        expect((cause["begin_raw_ns"], cause["end_raw_ns"]) == (begin, end) and cause["duration_ns"] == 7310000,
               "its times are the region's, on the clock of the samples")
        expect(end <= s["frozen_raw_ns"] <= stamp(), "the freeze was behind the region's end")
        note(f"region end to freeze: {(s['frozen_raw_ns'] - end) / 1000:.1f} us")
        expect(s["state"] == "done", f"the snapshot is done ({s['error']})")
        files = c.fetch(s["id"])
        meta = json.loads(files["meta.json"])
        expect(meta["snapshot"]["cause"] == cause and meta["snapshot"]["frozen_raw_ns"] == s["frozen_raw_ns"],
               "meta.json has the cause")
        (name,) = [r["file"] for r in meta["rings"]]
        records = RingFile(files[name]).records()
        expect((begin, b"serve", REGION_BEGIN, 0, 0) in records and (end, b"serve", REGION_END, begin, 0) in records,
               "the region is in the bundle's rings")
        t = c.call("target.show", {"target": p.target})["target"]
        expect(t["triggers"] == 1, "the target says that it has a trigger")
        p.end()
        wait_for("the target's end", lambda: c.call("target.show", {"target": p.target})["target"]["events"]["state"] == "ended")
        expect(trigger(c, g["id"])["programs"] == 0, "a program that ended has no thresholds any more")
        c.call("target.disarm", {"target": p.target})
        expect(trigger(c, g["id"]) is None, "a trigger goes with its target")
    return s["id"], cause


def restart_keeps_the_cause(d, sid, cause):
    d.stop()
    d.start()
    with d.client() as c:
        s = c.call("snapshot.show", {"snapshot": sid})["snapshot"]
        expect(s["cause"] == cause and s["frozen_raw_ns"], "the cause is there after a restart")
        expect(c.call("trigger.list")["triggers"] == [], "triggers are gone with their targets")


# ---- what is suppressed is counted

def suppressed(d):
    with d.client() as c:
        p = Program(d)
        g = add(c, p.target, "slow", 2 * MS, cooldown_ns=1 * S, max_per_hour=2)["id"]
        number = p.control.find("slow").id

        def counts():
            t = trigger(c, g)
            if not adds_up(t):
                fail(f"hits are not counted once: {t}")
            return t

        def one_more():
            hits = counts()["hits"]
            p.region("slow", 3 * MS)
            wait_for("the hit", lambda: counts()["hits"] > hits)

        p.region("slow", 1 * MS)
        wait_for("a hit below the threshold", lambda: counts()["suppressed"]["below"] == 1)
        ok("numbers below the threshold are no hit to act on")
        # The cooldown goes by the regions' ends: they are together, whenever the daemon comes to look.
        p.region("slow", 3 * MS)
        p.region("slow", 3 * MS)
        sid = wait_for("the first snapshot", lambda: counts()["last_snapshot"])
        wait_for("the cooldown", lambda: counts()["suppressed"]["cooldown"] == 1)
        ended(c, sid)
        # the second of the hour, and then no more
        for _ in range(100):
            if counts()["snapshots"] == 2:
                break
            one_more()
            time.sleep(0.05)
        ended(c, counts()["last_snapshot"])
        expect(counts()["snapshots"] == 2, "behind the cooldown there is another snapshot")
        for _ in range(100):
            if counts()["suppressed"]["per_hour"]:
                break
            one_more()
            time.sleep(0.05)
        expect(counts()["suppressed"]["per_hour"] == 1 and counts()["snapshots"] == 2, "not more than max_per_hour")
        # what the program keeps back within the cooldown, by its own count
        index = next(i for i, t in p.control.thresholds().items() if t.id == number)
        p.rings.put(SUPPRESSED_OFFSET + 8 * index, "<Q", 41)
        expect(counts()["suppressed"]["program"] == 41, "what the program kept back is counted, too")
        out = d.tracectl("trigger", "list", p.target)
        expect(out.returncode == 0 and "program 41" in out.stdout and "per hour 1" in out.stdout,
               "tracectl trigger list says why")
        gone = totals(c)["suppressed"]["gone"]
        last = c.call("trigger.remove", {"trigger": g})["trigger"]
        expect(last["suppressed"]["program"] == 41 and p.control.find("slow") is None, "a trigger that is removed")
        p.region("slow", 3 * MS, trigger=number)
        p.region("slow", 3 * MS, trigger=12345)
        wait_for("two hits of nothing",
                 lambda: c.call("status")["triggers"]["suppressed"]["gone"] == gone + 2)
        ok("hits of triggers that are gone, or never were, are counted")
        all_ = totals(c)
        expect(adds_up(all_) and all_["active"] == 0, "the totals add up")
        metrics = http_get(d.status_sock, "/metrics")[1].decode()
        expect('tracerd_trigger_suppressed_total{why="program"} 41' in metrics
               and f"tracerd_trigger_hits_total {all_['hits']}" in metrics, "the metrics have them")
        p.close(c)


def busy(d):
    """While a trigger's snapshot is being made, its next hit becomes none."""
    with d.client() as c:
        p = Program(d)
        g = add(c, p.target, "often", 1 * MS, cooldown_ns=0, max_per_hour=0)["id"]
        for _ in range(20):
            p.region("often", 2 * MS)
            time.sleep(0.002)
        # a busy machine may be so late that the program has overwritten some: they are counted, too
        t = wait_for("all hits", lambda: (t := trigger(c, g))["hits"] + c.call("status")["losses"]["event_causes"] == 20 and t)
        note(f"{t['snapshots']} snapshots, {t['suppressed']}")
        expect(adds_up(t) and t["snapshots"] >= 1 and t["suppressed"]["busy"] >= 1 and not t["suppressed"]["per_hour"],
               "a hit while the last snapshot is still being made is counted as busy")
        ended(c, t["last_snapshot"])
        p.close(c)


def after(d):
    with d.client() as c:
        p = Program(d)
        g = add(c, p.target, "tail", 1 * MS, after_ns=150 * MS)["id"]
        begin, end = p.region("tail", 2 * MS)
        sid = wait_for("the snapshot", lambda: trigger(c, g)["last_snapshot"])
        s = ended(c, sid)
        expect(s["frozen_raw_ns"] >= end + 150 * MS, "--after waits, from the region's end on")
        c.call("trigger.remove", {"trigger": g})
        # one that waits when its target goes
        g = add(c, p.target, "tail", 1 * MS, after_ns=10 * S)["id"]
        p.region("tail", 2 * MS)
        wait_for("the hit", lambda: trigger(c, g)["hits"] == 1)
        last = c.call("trigger.remove", {"trigger": g})["trigger"]
        expect(last["suppressed"]["gone"] == 1 and adds_up(last), "a hit that waited when its trigger went is counted as gone")
        expect(c.call_error("trigger.add", {"target": p.target, "region": "x", "over_ns": 1, "after_ns": 10001 * MS})
               == "bad_params", "no trigger waits longer than trigger_after_ms")
        p.close(c)


def no_space(d):
    with d.client() as c:
        p = Program(d)
        g = add(c, p.target, "full", 1 * MS, cooldown_ns=0)["id"]
        p.region("full", 2 * MS)
        wait_for("the refusal", lambda: trigger(c, g)["suppressed"]["no_space"] == 1)
        ok("a full disk is counted as no_space")
        p.close(c)


# ---- what programs ask for

def requests(d):
    with d.client() as c, d.client() as watch:
        watch.call("subscribe", {"events": ["trigger.hit"]})
        p = Program(d)
        before = totals(c)
        at = p.request("queue is full\n\x1b[31m")
        p.request("again")
        hit = watch.event("trigger.hit")["data"]
        s = ended(c, hit["snapshot"])
        expect(hit["trigger"] is None and hit["target"] == p.target, "a program may ask for its own snapshot")
        expect(s["cause"] == {"kind": "program", "uid": os.getuid(), "reason": "queue is full\\x0a\\x1b[31m",
                              "pid": os.getpid(), "tid": p.ring.tid, "at_raw_ns": at}, "with its own words, escaped")
        hit = watch.event("trigger.hit")["data"]
        expect(hit["snapshot"] is None and hit["suppressed"] == "cooldown", "but not as often as it likes")
        shown = d.tracectl("show", s["id"])
        expect("the program asked: queue is full\\x0a\\x1b[31m in thread" in shown.stdout, "tracectl shows who asked")
        now = totals(c)
        expect(adds_up(now["requests"]) and now["requests"]["hits"] == 2 and now["requests"]["snapshots"] == 1 and now["hits"] == before["hits"],
               "requests are counted apart from triggers")
        lines = {line.split(None, 1)[0]: line for line in d.tracectl("show", p.target).stdout.splitlines()}
        expect("armed by" not in lines["owner"], "nobody is said to have armed a program that came by itself")
        # without a reason
        p.close(c)
        p = Program(d)
        p.request("")
        s = ended(c, watch.event("trigger.hit")["data"]["snapshot"])
        expect("the program asked in thread" in d.tracectl("show", s["id"]).stdout
               and any(line.startswith(s["id"]) and line.endswith("the program asked")
                       for line in d.tracectl("snapshots").stdout.splitlines()),
               "one that gives no reason is told as well")
        p.close(c)


# ---- tracectl

def command(d):
    with d.client() as c:
        p = Program(d)
        r = d.tracectl("trigger", "add", p.target, "--region", "serve", "--over", "5ms", "--cooldown", "0", "--after",
                       "2ms", "--max-per-hour", "7")
        expect(r.returncode == 0 and "region serve of" in r.stdout and "over 5.00 ms" in r.stdout
               and "at most 7 an hour" in r.stdout and "2.00 ms after the end" in r.stdout, "tracectl trigger add")
        (g,) = c.call("trigger.list", {"target": p.target})["triggers"]
        expect((g["over_ns"], g["cooldown_ns"], g["after_ns"], g["max_per_hour"]) == (5 * MS, 0, 2 * MS, 7),
               "the options arrive as they were given")
        r = d.tracectl("--json", "trigger", "list", os.getpid())
        expect(json.loads(r.stdout)["triggers"] == [g], "tracectl --json trigger list PID")
        expect(d.tracectl("trigger", "list", "--ids").stdout == g["id"] + "\n", "tracectl trigger list --ids")
        r = d.tracectl("list")
        expect("RINGS" in r.stdout and "1 thread," in r.stdout, "tracectl list shows rings and triggers")
        r = d.tracectl("show", p.target)
        expect("triggers    1" in r.stdout and "1 of 4 threads" in r.stdout, "tracectl show shows them")
        wait_for("no watcher", lambda: c.call("status")["clients"]["subscribers"] == 0)
        watch = spawn(BUILD / "tracectl", "watch", "--event", "trigger.hit", "--count", "1", stdout=subprocess.PIPE, text=True,
                      env={**os.environ, "TRACERD_SOCKET": str(d.sock)})
        wait_for("a watcher", lambda: c.call("status")["clients"]["subscribers"] == 1)
        p.region("serve", 7310000)
        line = watch.communicate(timeout=PATIENCE)[0]
        expect(f"{g['id']} of {p.target}: region serve took 7.31 ms (over 5.00 ms) in thread {p.ring.tid}: snapshot "
               in line, "tracectl watch prints the hit")
        sid = line.split()[-1]
        ended(c, sid)
        r = d.tracectl("snapshots")
        expect("region serve took 7.31 ms (over 5.00 ms)" in r.stdout, "tracectl snapshots says the cause")
        r = d.tracectl("show", sid)
        expect(f"in thread {p.ring.tid}, trigger {g['id']}" in r.stdout, "tracectl show says which thread and trigger")
        # the daemon's picture of itself may be a quarter of a second old
        wait_for("tracectl status with programs and triggers", lambda: "programs    1 live" in (
            out := d.tracectl("status").stdout) and "triggers    1 (at most 1024)" in out)
        ok("tracectl status has programs and triggers")
        r = d.tracectl("trigger", "add", p.target, "--region", "caf\udce9", "--over", "5ms")
        expect(r.returncode and "an argument is not valid UTF-8" in r.stderr, "a region's name is text")
        r = d.tracectl("trigger", "remove", g["id"])
        expect(r.returncode == 0 and r.stdout.startswith(f"removed {g['id']}: region serve"), "tracectl trigger remove")
        r = d.tracectl("trigger", "remove", g["id"])
        expect(r.returncode == 3 and "no such trigger" in r.stderr, "one that is not there: exit code 3")
        for args, code, words in (
                (("trigger", "add", p.target, "--region", "x"), 2, "--over is needed"),
                (("trigger", "add", p.target, "--over", "1ms"), 2, "--region is needed"),
                (("trigger", "add", p.target, "--region", "x", "--over", "5"), 2, "needs a unit"),
                (("trigger", "add", "99999", "--region", "x", "--over", "5s"), 3, "no such process"),
                (("trigger", "add", "t99", "--region", "x", "--over", "5s"), 3, "no such target"),
                (("trigger", "add", p.target, "--region", "r" * 217, "--over", "5s"), 1, "region"),
                (("trigger", "bogus"), 2, "no command 'trigger bogus'"),
                (("trigger",), 2, "")):
            r = d.tracectl(*args)
            if r.returncode != code or words not in r.stderr:
                fail(f"tracectl {' '.join(args)}: {r.returncode} {r.stderr}")
        ok("what is wrong with a command line is said")
        p.close(c)


# ---- other users

def say(word):
    """To the parent, which then does its part."""
    print("SAY", word, flush=True)


def as_other(role, parts, *args):
    """Runs a role as uid 1, which may be looked into by its user as any program that was started by one may; parts is
    what the parent does when the child says a word."""
    def body():
        os.dup2(w, 1)
        if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0) != 0:
            raise OSError("PR_SET_DUMPABLE")
        role(*args)

    r, w = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(r)
        os._exit(as_user(1, body))
    os.close(w)
    with os.fdopen(r) as out:
        for line in out:
            words = line.split()
            if words[0] == "SAY":
                parts[words[1]](*words[2:])
            elif words[0] == "ok":
                ok(line.split(" - ", 1)[1].rstrip())
            else:
                print(line, end="", flush=True)
    expect(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, f"{role.__name__}, as another user")


def stranger(d, theirs):
    with d.client() as c:
        expect(c.call("trigger.list")["triggers"] == [], "another user's triggers are not listed")
        expect(c.call_error("trigger.remove", {"trigger": "g1"}) == "not_found", "nor can they be removed")
        expect(c.call_error("trigger.add", {"target": theirs, "region": "mine", "over_ns": MS}) == "not_found",
               "nor can another user's target get one")
        p = Program(d)
        ids = [add(c, p.target, f"r{i}", MS)["id"] for i in range(3)]
        expect(c.call_error("trigger.add", {"target": p.target, "region": "r3", "over_ns": MS}) == "quota",
               "a user has no more than uid_triggers")
        page = c.call("trigger.list", {"limit": 2})
        expect([t["id"] for t in page["triggers"]] == ids[:2], "lists come in pages")
        page = c.call("trigger.list", {"limit": 2, "cursor": page["next"]})
        expect([t["id"] for t in page["triggers"]] == ids[2:] and page["next"] is None, "and go on where they ended")
        with d.client() as watch:
            watch.call("subscribe", {"events": ["trigger.hit"]})
            say("hit")
            wait_for("the other's snapshot", lambda: c.call("status")["triggers"]["snapshots"] == 1)
            p.region("r0", 2 * MS)
            hit = watch.event("trigger.hit")
            expect(hit["seq"] == 1 and hit["data"]["trigger"] == ids[0], "another user's hits are not told")
            s = ended(c, hit["data"]["snapshot"])
            expect(s["state"] == "done" and s["uid"] == os.getuid(), "the snapshot belongs to the trigger's user")
        p.close(c)


def co_owner(d):
    with d.client() as c:
        p = Program(d)
        mine = add(c, p.target, "shared", 4 * MS, cooldown_ns=3 * S)["id"]
        number = p.control.find("shared").id
        say(f"add {p.target}")
        wait_for("root's trigger", lambda: p.control.find("shared").threshold_ns == 2 * MS)
        expect(p.control.find("shared").cooldown_ns == 5 * MS and p.control.find("shared").id == number,
               "triggers on one name share an entry with the lower threshold, and a cooldown that keeps back neither's hits")
        expect([t["id"] for t in c.call("trigger.list")["triggers"]] == [mine], "and each user sees the own one only")
        p.region("shared", 5 * MS)
        s = ended(c, wait_for("mine", lambda: trigger(c, mine)["last_snapshot"]))
        expect(s["cause"]["over_ns"] == 4 * MS and s["uid"] == os.getuid(), "each has a snapshot of its own")
        say("taken")
        expect({i["uid"] for i in c.call("snapshot.list")["snapshots"]} == {os.getuid()}, "and sees only that")
        wait_for("root's removal", lambda: p.control.find("shared").threshold_ns == 4 * MS)
        ok("what is left behind is the other's threshold")
        p.close(c)


def other_users(d):
    added = {}

    def root_adds(target):
        added["id"] = add(c, target, "shared", 2 * MS, cooldown_ns=1 * S)["id"]

    def root_has_its_own():
        s = ended(c, wait_for("root's snapshot", lambda: trigger(c, added["id"])["last_snapshot"]))
        expect(s["uid"] == 0 and s["cause"]["uid"] == 0 and s["cause"]["over_ns"] == 2 * MS,
               "the administrator's snapshot is the administrator's")
        c.call("trigger.remove", {"trigger": added["id"]})

    with d.client() as c:
        root = Program(d)
        add(c, root.target, "theirs", MS)
        as_other(stranger, {"hit": lambda: root.region("theirs", 2 * MS)}, d, root.target)
        root.close(c)
        as_other(co_owner, {"add": root_adds, "taken": root_has_its_own}, d)


with Tracerd() as d:
    sid, cause = slow_region(d)
    restart_keeps_the_cause(d, sid, cause)
    suppressed(d)
    busy(d)
    after(d)
    requests(d)
    command(d)
with Tracerd(name="-full", config="[spool]\nspool_keep_free_percent = 99\n") as d:
    no_space(d)
if os.geteuid() == 0:
    with Tracerd(name="-users", config="[quota]\nuid_triggers = 3\n") as d:
        other_users(d)
else:
    note("other users: needs root")
