#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Threads that slept already when they were armed have the stack of that wait, through all that is recorded or until they came back,
and it says that it began before. Nothing is taken for it that is not: who ran has the waits that are on record. With frame pointers and
without, for a user, with the rights of the unit. Memory that hangs whoever reads it hangs no snapshot, and what is missing is counted."""
import platform

from lib.capture import *

X86_64 = platform.machine() == "x86_64"
USER = 12347
WHERE = {"poller": ("wait_poll", "poll"), "getter": ("wait_get", "futex"), "napper": ("wait_nap", "clock_nanosleep"), "reader": ("first_read", "read")}


def program(uid=None):
    p = spawn(BUILD / "tests/programs/sleepers", uid=uid, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    expect_quietly(p.stdout.readline() == "ready\n", "the program is ready")
    for name in WHERE:
        tid = []
        wait_for(f"{name} is there", lambda name=name: tid.append(thread_named(p.pid, name)) or tid[-1])
        wait_for(f"{name} sleeps", lambda: pathlib.Path(f"/proc/{p.pid}/task/{tid[-1]}/stat").read_text().rsplit(")", 1)[1].split()[0] == "S"
                 and pathlib.Path(f"/proc/{p.pid}/task/{tid[-1]}/syscall").read_text() != "running\n")
    return p


def expect_quietly(good, what):
    if not good:
        fail(what)


def tell(p, word):
    p.stdin.write(word + "\n")
    return p.stdout.readline().strip()


def waits_of(summary, name):
    return [w for w in summary["waits"] if w["name"] == name]


def check_open(summary, names, what):
    """Each has one wait, through all of it."""
    whole = summary["to_ns"] - summary.get("complete_from_ns", summary["from_ns"])
    for name in names:
        function, call = WHERE[name]
        its = waits_of(summary, name)
        if len(its) != 1 or not its[0].get("open") or not its[0].get("since_before"):
            fail(f"{what}: {name} has one wait, since before: {its}")
        w = its[0]
        expect_quietly(function in w["stack"] and w["state"] == "sleeping", f"{what}: {name} waits in {function}: {w}")
        expect_quietly(not X86_64 or w["call"] == call, f"{what}: {name} waits in {call}(): {w}")
        expect_quietly(abs(w["ns"] - whole) <= whole // 100 + 1000000, f"{what}: {name} waits all the time, {whole} ns: {w}")


def turner_is_itself(summary, what):
    for w in waits_of(summary, "turner"):
        expect_quietly("wait_nap" in w["stack"] or not w["stack"], f"{what}: turner: {w}")
        expect_quietly(not w.get("since_before") or w["ns"] < 1000000000, f"{what}: turner has slept for {w}")


def blocked(d, c, p, stacks, what):
    target = c.arm(p.pid, stacks=stacks)["id"]
    # Until there is something on record.
    got = {}

    def recorded():
        got["s"] = c.snapshot(target)
        return sum(w["count"] for w in waits_of(got["s"]["summary"], "turner")) > 20

    wait_for("turns on record", recorded)
    s = got["s"]
    check_open(s["summary"], WHERE, what)
    if stacks == "dwarf":
        turner_is_itself(s["summary"], what)
    events = json.loads(c.fetch(s["id"])["meta.json"])
    expect_quietly(events["events"]["stacks_since_before"] >= 4 and events["losses"]["blocked_stacks_missing"] == 0, f"{what}: {events['events']}, {events['losses']}")
    # One comes back: its wait from before is over, with its stack; the next one is on record.
    expect_quietly(tell(p, "wake") == "woken", "the reader is woken")

    def came_back():
        got["s"] = c.snapshot(target)
        its = waits_of(got["s"]["summary"], "reader")
        # Its library keeps no frame pointers: what is on record has not all callers with them. Who was woken need not have run yet.
        return any("later_read" in w["stack"] or (stacks == "fp" and w.get("open") and "first_read" not in w["stack"]) for w in its)

    wait_for("the reader reads again", came_back)
    summary = got["s"]["summary"]
    # Within a call it may also wait for the pipe's lock.
    first = [w for w in waits_of(summary, "reader") if "first_read" in w["stack"]]
    later = [w for w in waits_of(summary, "reader") if w not in first]
    expect_quietly(any(w.get("since_before") and w["state"] == "sleeping" for w in first), f"{what}: the first wait: {waits_of(summary, 'reader')}")
    expect_quietly(not any(w.get("open") for w in first), f"{what}: it is over: {waits_of(summary, 'reader')}")
    expect_quietly(later and not any(w.get("since_before") for w in later), f"{what}: the later one: {waits_of(summary, 'reader')}")
    check_open(summary, ("poller", "getter", "napper"), what)
    done = d.tracectl("show", s["id"])
    expect_quietly("since before what is recorded" in done.stdout, f"{what}: the summary says it: {done.stdout}")
    c.call("target.disarm", {"target": target})
    ok(what)


need_root("BPF")
with Tracerd(config="[capture]\ndwarf_ring_kib = 65536\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no BPF here")
    for stacks in ("dwarf", "fp"):
        blocked(d, c, program(), stacks, f"root's program, stacks {stacks}")
    mine = program(USER)

    def user():
        with Client(d.sock) as u:
            blocked(d, u, mine, "dwarf", "a user's program")

    expect(as_user(USER, user) == 0, "the user's part")

    # A thread whose frames nobody gets to read: the snapshot goes without, and another user's program is as before.
    p = program()
    said = tell(p, "hang")
    if said != "hangs":
        note(f"a stack that hangs is not tried: {said}")
    else:
        target = c.arm(p.pid, stacks="fp")["id"]
        for _ in range(2):
            s = c.snapshot(target)
            losses = json.loads(c.fetch(s["id"])["meta.json"])["losses"]
            expect_quietly(s["state"] == "done" and losses["blocked_stacks_missing"] > 0, f"a stack that hangs is missing, and counted: {losses}")
        ok("a stack that hangs is missing, and counted")
        blocked(d, c, program(USER), "fp", "another user's program beside it")
        target = c.arm(program().pid, stacks="fp")["id"]
        expect(c.snapshot(target)["state"] == "done", "one of the same user is recorded, too")

with Tracerd(name="-unit", unit_rights=True) as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("the rights of the unit give no BPF here")
    blocked(d, c, program(), "fp", "with the rights of the unit")
