#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Who a target is: a pid that was reused, an fd of another process or an exec do not pass for it; its exit
# is noticed and what it recorded stays for a while.
from lib.capture import *

NOBODY = 65534

need_root("targets of several users")
with Tracerd(config="[capture]\nexited_keep_s = 5\n") as d:
    c = d.client()
    c.call("subscribe", {"events": ["target.state"]})

    # The fd that proves the right to trace.
    a, b = Target("alpha", uid=NOBODY), Target("beta", uid=NOBODY)
    foreign = Target("root-owned")

    def user():
        with Client(d.sock) as u:
            def arm_with(path, pid):
                fd = os.open(path, os.O_RDONLY)
                try:
                    return u.call_error("target.arm", {"pid": pid, "fds": ["maps"]}, [fd])
                finally:
                    os.close(fd)
            expect(u.call_error("target.arm", {"pid": a.pid}) == "not_permitted", "no fd, no target")
            expect(arm_with(f"/proc/{b.pid}/maps", a.pid) == "not_permitted", "the maps of another process do not do")
            expect(arm_with(f"/proc/{a.pid}/smaps", a.pid) == "not_permitted", "nor another file of it")
            expect(arm_with(f"/proc/{a.pid}/task/{a.pid}/maps", a.pid) == "not_permitted", "nor a thread's")
            expect(arm_with("/etc/passwd", a.pid) == "not_permitted", "nor a file")
            path_fd = os.open(f"/proc/{a.pid}/maps", os.O_PATH)
            expect(u.call_error("target.arm", {"pid": a.pid, "fds": ["maps"]}, [path_fd]) == "not_permitted",
                   "nor an O_PATH fd, which proves nothing")
            fd = os.open(f"/proc/{foreign.pid}/stat", os.O_RDONLY)
            expect(u.call_error("target.arm", {"pid": foreign.pid, "fds": ["maps"]}, [fd]) == "not_permitted",
                   "root's process is refused")
            # Opened before an exec: the right is gone with the old program.
            fd = open_maps(b.pid)
            b.tell("exec", answer=None)
            wait_for("the exec", lambda: b"-c\0import time" in open(f"/proc/{b.pid}/cmdline", "rb").read())
            expect(u.call_error("target.arm", {"pid": b.pid, "fds": ["maps"]}, [fd]) == "not_permitted",
                   "an fd from before an exec is refused")
            t = u.arm(a.pid, stacks="fp")
            expect(t["owner_uid"] == NOBODY and t["state"] == "armed", "the right fd does")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")

    # By its number each finds the target of his own, also when somebody else records the process, too.
    other = c.call("target.arm", {"pid": a.pid, "stacks": "fp"})["target"]

    def by_number():
        with Client(d.sock) as u:
            t = u.call("target.show", {"target": str(a.pid)})["target"]
            expect(t["owner_uid"] == NOBODY, "a pid is looked for among one's own targets")
    if as_user(NOBODY, by_number) != 0:
        fail("the user's target by its number")
    c.call("target.disarm", {"target": other["id"]})

    # The number of a process that has ended, given to another one.
    first = Target("first", uid=NOBODY)
    number, last = first.pid, pathlib.Path("/proc/sys/kernel/ns_last_pid")
    maps = open_maps(number)
    pidfd = os.pidfd_open(number)
    first.kill()
    second = None
    for _ in range(200 if last.exists() else 0):
        last.write_text(str(number - 1))
        second = spawn("/bin/sleep", "6000", uid=NOBODY)
        if second.pid == number:
            break
        second.kill()
    if second and second.pid == number:
        wait_for("the second's program", lambda: "sleep" in os.readlink(f"/proc/{number}/exe"))

        def reuse():
            with Client(d.sock) as u:
                expect(u.call_error("target.arm", {"pid": number, "fds": ["maps"]}, [maps]) == "not_permitted",
                       "the fd of a reused pid's former owner is refused")
                expect(u.call_error("target.arm", {"pid": number, "fds": ["pidfd"]}, [pidfd]) == "gone",
                       "and so is its pidfd")
        if as_user(NOBODY, reuse) != 0:
            fail("the reused pid")
    else:
        note("no pid could be used again: not tried")

    # Exec ends a user's authority, not an administrator's.
    t = next(x for x in c.call("target.list")["targets"] if x["pid"] == a.pid)
    let_work(a.pid, seconds=0.2)
    before_exec = time.time_ns()
    a.tell("exec", answer=None)
    e = c.event("target.state", match=lambda x: x["id"] == t["id"] and x["state"] == "suspended")
    ok("exec suspends a user's target")
    expect("executed" in " ".join(e["data"]["warnings"]), "and says why")
    meta, recs, _ = bundle(c, t["id"])
    expect(meta["records"]["samples"] > 20, "what was recorded before is kept")
    expect(e["data"]["state_at"] > before_exec > t["state_at"] == t["armed_at"], "with the time since when it is")
    # What comes after it is not known: nobody runs or waits there, and no time is counted.
    gap = next(g for g in meta["gaps"] if g["kind"] == "suspended")
    s = meta["snapshot"]["summary"]
    own = next(x for x in meta["processes"] if x["pid"] == a.pid)
    expect("executed" in gap["why"] and gap["from_ns"] == own["to_ns"] and gap["to_ns"] == meta["frozen_raw_ns"],
           f"the time after it is a gap that says so: {gap}")
    frozen = next(m["ns"] for m in s["marks"] if m["name"].startswith("snapshot"))
    expect(s.get("suspended", {}).get("why") == gap["why"] and s["to_ns"] + s["suspended"]["ns"] == frozen
           and abs(s["suspended"]["ns"] - (gap["to_ns"] - gap["from_ns"])) < 1e6, f"the summary ends there: {s.get('suspended')}")
    sums = {x["name"]: (x["on_cpu_ns"] or 0) + (x["off_cpu_ns"] or 0) for x in s["threads"]}
    expect(max(sums.values()) <= s["to_ns"] - s["from_ns"], f"and so does what its threads did: {sums}")

    admin = Target("admin")
    t = c.call("target.arm", {"pid": admin.pid, "stacks": "fp"})["target"]
    admin.tell("exec", answer=None)
    wait_for("the new program's maps", lambda: c.call("target.show", {"target": t["id"]})["target"]["comm"] != "admin")
    expect(c.call("target.show", {"target": t["id"]})["target"]["state"] == "armed", "an administrator's goes on")
    meta, recs, _ = bundle(c, t["id"])
    expect(any(r.type == COMM and r.misc & (1 << 13) for r in recs), "the exec is in its history")

    # Exit: noticed, kept for exited_keep_s, then gone.
    leaving = Target("leaving")
    t = c.call("target.arm", {"pid": leaving.pid, "stacks": "fp"})["target"]
    let_work(leaving.pid)
    fds = d.fds()
    before_exit = time.time_ns()
    leaving.kill()
    e = c.event("target.state", match=lambda x: x["id"] == t["id"] and x["state"] == "exited")
    expect(e["data"]["state_at"] > before_exit, "the exit is noticed, with its time")
    meta, recs, _ = bundle(c, t["id"])
    expect(meta["records"]["samples"] > 50 and meta["target"]["state"] == "exited", "a snapshot still has its last moments")
    expect(any(r.type == EXIT and r.tid == leaving.pid for r in recs), "with its end")
    c.event("target.state", match=lambda x: x["id"] == t["id"] and x["state"] == "disarmed")
    expect(c.call_error("target.show", {"target": t["id"]}) == "not_found", "then it is forgotten")

    # Pids: none, a zombie's, a kernel thread's, a thread's.
    expect(c.call_error("target.arm", {"pid": leaving.pid}) == "gone", "a pid that is gone is refused")
    zombie = Target("zombie")
    os.kill(zombie.pid, 9)
    os.waitid(os.P_PID, zombie.pid, os.WEXITED | os.WNOWAIT)
    expect(c.call_error("target.arm", {"pid": zombie.pid}) == "gone", "a zombie is gone")
    kernel = next((int(p) for p in os.listdir("/proc") if p.isdigit() and os.path.exists(f"/proc/{p}/comm")
                   and open(f"/proc/{p}/comm").read() == "kthreadd\n"), 0)
    if kernel:
        expect(c.call_error("target.arm", {"pid": kernel}) == "unsupported", "a kernel thread has nothing to record")
    pidfd = os.pidfd_open(admin.pid)
    expect(c.call_error("target.arm", {"pid": os.getpid(), "fds": ["pidfd"]}, [pidfd]) == "bad_params",
           "a pid and a pidfd must agree")

    # Names are bytes: nothing of them is believed.
    evil = Target(") R 1 1\n\x1b[31m")
    t = c.call("target.arm", {"pid": evil.pid, "stacks": "fp"})["target"]
    expect("\x1b" not in t["comm"] and "\n" not in t["comm"], f"an evil name is escaped: {t['comm']!r}")

    # Disarmed: everything is given back.
    for x in c.call("target.list")["targets"]:
        c.call("target.disarm", {"target": x["id"]})
    status = c.call("status")
    expect(status["targets"] == {**status["targets"], "armed": 0, "suspended": 0, "exited": 0}, "all are disarmed")
    expect(status["capture"]["sets"] == 0 and status["capture"]["images"] == 0, "rings and files are given back")
