#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Without any capability: events on each task of the user's own processes, with a warning, and status says
# what is missing and what that costs.
import shutil

from lib.capture import *

# The memory that a user may lock for events is one of all processes of that user: nobody else is this one.
UID = 20000 + os.getpid() % 20000

need_root("to become another user")
programs = tmp() / "bin"
programs.mkdir()
for name in ("tracerd", "tracerd-decode"):
    shutil.copy(BUILD / name, programs / name)
paranoid = int(open("/proc/sys/kernel/perf_event_paranoid").read())
if paranoid > 2:
    skip(f"perf_event_paranoid is {paranoid}: users may not use perf events at all")

with Tracerd(uid=UID, binary=programs / "tracerd") as d:
    target = Target("plain", uid=UID)
    foreign = Target("foreign")
    others = [Target(f"other{i}", "idle", uid=UID) for i in range(5)]

    def user():
        with Client(d.sock) as c:
            status = c.call("status")
            if paranoid > 0:
                expect(status["backends"]["sample"]["method"] == "task", "status says how it would record")
                expect({"cpu_events", "bpf_programs"} <= {x["what"] for x in status["capabilities"]["lack"]},
                       "and what is missing")
            t = c.call("target.arm", {"pid": target.pid, "stacks": "fp"})["target"]
            expect(t["method"] == "task" and t["warnings"], f"recorded by its tasks, with warnings: {t['warnings']}")
            target.tell("thread late")
            let_work(target.pid, "early", "late")
            meta, recs, _ = bundle(c, t["id"])
            by_name = collections.Counter(names(recs).get(r.tid) for r in recs if r.type == SAMPLE)
            expect(by_name["early"] > 50 and by_name["late"] > 50, f"all threads are sampled: {dict(by_name)}")
            expect(any(r.type in (SWITCH, SWITCH_CPU_WIDE) for r in recs), "switches are told, without stacks")
            expect(any(r.type == MMAP2 for r in recs), "maps are told")
            expect(c.call_error("target.arm", {"pid": foreign.pid}) in ("not_permitted", "unsupported", "io", "internal"),
                   "another user's process is refused")
            # More than the locked memory of an ordinary user: told as what it is.
            for other in others:
                try:
                    c.call("target.arm", {"pid": other.pid, "stacks": "fp"})
                except Error as e:
                    expect(e.code == "busy" and "locked memory" in str(e), f"no locked memory left: {e}")
                    break
            else:
                note("locked memory for all targets")
            os.kill(target.pid, 9)
            wait_for("the exit", lambda: c.call("target.show", {"target": t["id"]})["target"]["state"] == "exited")
            ok("its exit is noticed")
    if as_user(UID, user) != 0:
        fail("the user's half")

    def stranger():
        """What this user may do itself, this tracerd may not: the answer does not put it on the user."""
        own = spawn("sleep", 6000)
        with Client(d.sock) as c:
            try:
                fail(f"armed: {c.arm(own.pid)}")
            except Error as e:
                expect(e.code == "unsupported" and "tracerd itself" in e.message, f"its own rights do not do: {e}")
        own.kill()
    if as_user(UID + 20000, stranger) != 0:
        fail("another user's half")
    # An ended task's fds are readable for ever: the loop must not spin on them.
    def ticks():
        return sum(map(int, open(f"/proc/{d.pid}/stat").read().rpartition(")")[2].split()[11:13]))
    before = ticks()
    time.sleep(1)
    expect(ticks() - before < 20, "an exited target costs nothing")
