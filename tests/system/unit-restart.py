#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A unit that is restarted has another control group under the same path: the target goes on with it, and still has what the old
# processes left. One that stays away ends, and says why.
from lib.capture import *

need_root("cgroups")


def stop(group, target):
    """As the service manager does: its processes end, the group goes."""
    target.kill()
    wait_for("the group is empty", lambda: not (group.path / "cgroup.procs").read_text())
    group.path.rmdir()


def show(c, u):
    return c.call("target.show", {"target": u["id"]})["target"]


def inode(group):
    return group.path.stat().st_ino


def clocked(recs):
    return collections.Counter(r.pid for r in recs if is_clock(r))


def restarted(d, c, group):
    first = Target("first")
    group.add(first.pid)
    u = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    let_work(first.pid)
    before = inode(group)
    stop(group, first)
    # Between two looks, so that nobody can have seen that it was gone.
    group.path.mkdir()
    expect(inode(group) != before, "the unit has another control group")
    second = Target("second")
    group.add(second.pid)
    wait_for("its new process", lambda: show(c, u)["living"] == 1)
    let_work(second.pid)
    t = show(c, u)
    expect((t["state"], t["pid"], t["comm"], t["method"]) == ("armed", second.pid, "second", u["method"]),
           f"the same target records it: {t['state']}, {t['pid']} {t['comm']}, {t['method']}")
    expect(not t["warnings"], f"and has nothing to warn of: {t['warnings']}")
    meta, recs, _ = bundle(c, u["id"])
    n = clocked(recs)
    expect(n[second.pid] > 30 and n[first.pid] > 30, f"samples of the process before and of the one after it: {dict(n)}")
    pids = {p["pid"]: p for p in meta["processes"]}
    expect({first.pid, second.pid} <= set(pids), "both are in meta.json")
    if c.call("status")["capture"]["bpf"]:
        waits = collections.Counter(sched(r).pid for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN))
        expect(waits[second.pid] > 30, f"with the waits of the new one: {waits[second.pid]}")
    again = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})
    expect(again.get("already") and again["target"]["id"] == u["id"], "arming it anew is no other target")

    # Stopped for a while.
    stop(group, second)
    t = wait_for("that it is gone", lambda: (x := show(c, u))["warnings"] and x)
    expect(t["state"] == "armed" and t["living"] == 0 and "not running" in t["warnings"][0], f"a stopped unit is waited for: {t['warnings']}")
    meta, recs, _ = bundle(c, u["id"])
    expect(clocked(recs)[second.pid] > 30, "what it left is in a snapshot meanwhile")
    group.path.mkdir()
    # The group is there, and watched, before anybody is in it.
    wait_for("the group is noticed", lambda: not show(c, u)["warnings"])
    third = Target("third")
    group.add(third.pid)
    let_work(third.pid)
    wait_for("its process", lambda: show(c, u)["pid"] == third.pid)
    meta, recs, _ = bundle(c, u["id"])
    expect(clocked(recs)[third.pid] > 30, f"it is recorded when it is back: {dict(clocked(recs))}")
    stop(group, third)
    return u


def crashes(c):
    """As often as systemd starts it again: what each has left is there, and the empty group behind the last one."""
    group = Cgroup(f"tracerd-restart-{os.getpid()}-d.service")
    u = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    pids = []
    for _ in range(5):
        target = Target("crashes")
        group.add(target.pid)
        wait_for("its process", lambda: show(c, u)["pid"] == target.pid)
        let_work(target.pid)
        stop(group, target)
        pids.append(target.pid)
        group.path.mkdir()
        wait_for("the group is noticed", lambda: (t := show(c, u))["living"] == 0 and not t["warnings"])
    n = clocked(bundle(c, u["id"])[1])
    expect(all(n[pid] > 30 for pid in pids), f"samples of all five: {[n[pid] for pid in pids]}")


def storm(c):
    """The owner of the group makes it again and again: each time that it is followed costs events on all CPUs."""
    group = Cgroup(f"tracerd-restart-{os.getpid()}-c.service")
    target = Target("moves")
    group.add(target.pid)
    u = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    wait_for("its process", lambda: show(c, u)["living"] == 1)
    begin = time.monotonic()
    for _ in range(80):
        (cgroup_mount() / "cgroup.procs").write_text(str(target.pid))
        group.path.rmdir()
        group.path.mkdir()
        group.add(target.pid)
        time.sleep(0.025)
    # eight looks and that of the tick, in each second
    most = 9 * (time.monotonic() - begin + 2)
    n = show(c, u)["processes"]
    expect(n <= most, f"of 80 restarts so many were followed: {n}, not more than {most:.0f}")
    wait_for("its process in the last group", lambda: (t := show(c, u)) and t["living"] == 1 and not t["warnings"])
    let_work(target.pid)
    expect(clocked(bundle(c, u["id"])[1])[target.pid] > 30, "and it is recorded")
    stop(group, target)


group = Cgroup(f"tracerd-restart-{os.getpid()}.service")
with Tracerd() as d, d.client() as c:
    if not c.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    restarted(d, c, group)
    crashes(c)
    storm(c)

# The end of one that does not come back.
group = Cgroup(f"tracerd-restart-{os.getpid()}-b.service")
with Tracerd(name="-short", config="[capture]\nexited_keep_s = 2\n") as d, d.client() as c:
    only = Target("only")
    group.add(only.pid)
    u = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    c.call("subscribe", {"events": ["target.state"]})
    let_work(only.pid, seconds=0.1)
    stop(group, only)
    gone = c.event("target.state", match=lambda e: e["id"] == u["id"] and e["state"] == "exited")["data"]
    expect(any("gone for longer than 2 s" in w for w in gone["warnings"]), f"a unit that stays away ends, and says so: {gone['warnings']}")
    group.path.mkdir()
    late = Target("late")
    group.add(late.pid)
    c.event("target.state", match=lambda e: e["id"] == u["id"] and e["state"] == "disarmed")
    ok("and is not armed by a later start")
    late.kill()
