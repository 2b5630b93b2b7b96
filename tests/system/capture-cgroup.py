#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A cgroup that holds only the target has events of its own; a unit is all processes of a cgroup, those that
# come included; when the membership changes, another way is chosen.
from lib.capture import *



def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


need_root("cgroups")
group = Cgroup(f"tracerd-test-{os.getpid()}.service")
with Tracerd() as d:
    c = d.client()
    if not c.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    alone = Target("alone")
    group.add(alone.pid)
    t = c.call("target.arm", {"pid": alone.pid, "stacks": "fp"})["target"]
    expect(t["method"] == "cgroup" and group.path.name in " ".join(t["why"]), "alone in its cgroup: events of the cgroup")
    expect(t["ring_bytes"] > 0, "its rings are its own")
    alone.tell("thread late")
    let_work(alone.pid, "early", "late")
    meta, recs, _ = bundle(c, t["id"])
    by_name = collections.Counter(names(recs).get(r.tid) for r in recs if r.type == SAMPLE and r.id == CLOCK)
    expect(by_name["early"] > 50 and by_name["late"] > 50, f"its threads are sampled: {dict(by_name)}")
    expect({r.pid for r in recs if r.type == SAMPLE} == {alone.pid}, "and nobody else's")
    kinds = collections.Counter(sched(r).kind for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN))
    if c.call("status")["capture"]["bpf"]:
        expect(min(kinds[OUT], kinds[IN], kinds[WAKEUP]) > 10, f"with its waits: {dict(kinds)}")
    else:
        plain = sum(r.type in (SWITCH, SWITCH_CPU_WIDE) for r in recs)
        expect(plain > 20, f"with its switches, which have no stacks without BPF: {plain}")

    # The unit: the one that is there, one that it forks, one that is moved in.
    u = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    expect(u["scope"] == "unit" and u["method"] == "cgroup", "a unit is armed by name")
    child = alone.fork()
    second = Target("second")
    group.add(second.pid)
    # Who enters is looked for once a second, and belongs to the unit from then on.
    wait_for("the one that was moved in", lambda: c.call("target.show", {"target": u["id"]})["target"]["processes"] >= 3)
    let_work(second.pid)
    wait_for("the child's end", lambda: state(child) == "Z")
    meta, recs, _ = bundle(c, u["id"])
    pids = collections.Counter(r.pid for r in recs if r.type == SAMPLE and r.id == CLOCK)
    expect(set(pids) == {alone.pid, child, second.pid}, f"all its processes are sampled: {dict(pids)}")
    expect(pids[child] > 15, "a forked one from its first moment")
    expect({p["pid"] for p in meta["processes"]} >= {alone.pid, child, second.pid}, "and told in meta.json")
    expect(any(r.type == FORK and r.pid != alone.pid for r in recs), "with the fork")

    # The first target is not alone any more.
    now = wait_for("another choice", lambda: (x := c.call("target.show", {"target": t["id"]})["target"])["method"] != "cgroup" and x)
    expect(now["method"] in ("cpu", "task"), "no longer alone: recorded another way")
    meta, recs, _ = bundle(c, t["id"])
    expect({r.pid for r in recs if r.type == SAMPLE} == {alone.pid}, "still nobody else in it")

    # A user's target that executes another program: nothing of that is recorded, though the cgroup's events are its own.
    jail = Cgroup(f"tracerd-test-{os.getpid()}-user.service")
    mover = Target("mover", uid=65534)
    jail.add(mover.pid)

    def user():
        with Client(d.sock) as k:
            x = k.arm(mover.pid, stacks="fp")
            expect(x["method"] == "cgroup", "a user's target alone in its cgroup")
            let_work(mover.pid, seconds=0.1)
            mover.tell("exec", answer=None)
            wait_for("the end of the authority",
                     lambda: k.call("target.show", {"target": x["id"]})["target"]["state"] == "suspended")
            time.sleep(1.5)
            m, r, _ = bundle(k, x["id"])
            executed = [q.time for q in r if q.type == COMM and q.misc & (1 << 13)]
            last = max(q.time for q in r if q.type == SAMPLE)
            expect(not executed and m["frozen_raw_ns"] - last > 1.4e9, "after an exec nothing more is recorded")
    if as_user(65534, user) != 0:
        fail("the user's half")

    # Descriptors of events are the user's: not only of files that he maps.
    poor = Cgroup(f"tracerd-test-{os.getpid()}-poor.service")
    owned = Target("owned", "idle", uid=65534)
    poor.add(owned.pid)

    def charged():
        return c.call("status")["quota"]["fds"]["used"]

    def arm():
        with Client(d.sock) as k:
            k.arm(owned.pid, stacks="fp")
    before, events = charged(), c.call("status")["capture"]["event_fds"]
    if as_user(65534, arm) != 0:
        fail("arming as a user")
    x = c.call("target.show", {"target": str(owned.pid)})["target"]
    used = wait_for("the charge", lambda: charged() - before)
    events = c.call("status")["capture"]["event_fds"] - events
    expect(x["method"] == "cgroup" and events > 0 and used == x["fds"] > events,
           f"the user is charged for {used} descriptors, the {events} of its events among them")

    # A threaded cgroup has threads and no list of processes.
    domain = Cgroup(f"tracerd-test-{os.getpid()}-domain.service")
    parts = [domain.path / "part", domain.path / "part/inner"]
    for part in parts:
        part.mkdir()
        (part / "cgroup.type").write_text("threaded")
    threaded = Target("threaded", "idle")
    domain.add(threaded.pid)
    (parts[1] / "cgroup.threads").write_text(str(threaded.pid))
    for part in parts:
        try:
            fail(f"armed: {c.call('target.arm', {'unit': '/' + str(part.relative_to(cgroup_mount()))})}")
        except Error as e:
            expect(e.code == "unsupported" and e.message.endswith(f"a threaded cgroup, which has no list of processes: arm /{domain.path.name}"),
                   f"a threaded cgroup is refused, with the one to arm: {e.message}")
    x = c.call("target.arm", {"unit": domain.path.name, "stacks": "fp"})["target"]
    expect(x["living"] == 1 and x["pid"] == threaded.pid, "which has the process")
    c.call("target.disarm", {"target": x["id"]})
    threaded.kill()
    for part in reversed(parts):
        wait_for("it is empty", lambda: "populated 0" in (part / "cgroup.events").read_text())
        part.rmdir()

    # Names that are none.
    for unit in ("no-such.service", "../../etc", "/", "a\nb", "x" * 600):
        code = c.call_error("target.arm", {"unit": unit})
        if code not in ("gone", "bad_params"):
            fail(f"unit {unit[:20]!r}: {code}")
    ok("names that are no unit are refused")

    alone.kill(), second.kill()
    wait_for("cgroup empties", lambda: not (group.path / "cgroup.procs").read_text())
    group.path.rmdir()
    wait_for("the unit's stop", lambda: (x := c.call("target.show", {"target": u["id"]})["target"])["living"] == 0 and x["warnings"])
    ok("that the unit's cgroup is gone is noticed: tests/system/unit-restart.py")

# More processes than a target may have, and rings that do not wrap: what is in them is not forgotten. The bundle says that some are missing.
with Tracerd(name="-many", config="[capture]\nring_kib = 65536\n") as d:
    c = d.client()
    many = Cgroup(f"tracerd-test-{os.getpid()}-many.service")
    p = spawn(interpreter(), "-c", "import os, sys\nsys.stdin.readline()\nfor i in range(9000): os.waitpid(os.fork() or os._exit(0), 0)\nprint('done', flush=True)\nsys.stdin.read()",
              stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    many.add(p.pid)
    x = c.call("target.arm", {"unit": many.path.name, "stacks": "fp", "waits": False})["target"]
    p.stdin.write("go\n")
    p.stdout.readline()
    meta, _, _ = bundle(c, x["id"])
    told = meta["snapshot"]["summary"]["losses"].get("processes over the limit", {}).get("count")
    left_out = c.call("target.show", {"target": x["id"]})["target"]["lost"]["processes"]
    expect(left_out > 0 and meta["losses"]["processes_left_out"] == told == left_out and len(meta["processes"]) <= 8192,
           f"processes over the limit are counted in meta.json and in the summary: {left_out}, {meta['losses']['processes_left_out']}, {told}, "
           f"{len(meta['processes'])}")
    c.call("target.disarm", {"target": x["id"]})
    p.kill()
