#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A process that is in more targets with rings of their own than there is room for: the older ones go on as they are, and the newer one is
# refused, or, where the process comes to it later, says that it misses it.
from lib.capture import *

need_root("cgroups")
ROOM = 4
top = Cgroup(f"tracerd-crowd-{os.getpid()}.slice")
paths = [top.path]
for i in range(ROOM + 1):
    paths.append(paths[-1] / f"in{i}")
try:
    for p in paths[1:]:
        p.mkdir()
    with Tracerd() as d:
        c = d.client()
        if c.call("status")["backends"]["sample"]["method"] != "cpu":
            skip("no cpu-wide events or no BPF here")

        def unit(path):
            return str(path).removeprefix(str(cgroup_mount()))

        def switches(target):
            meta, recs, s = bundle(c, target)
            return sum(r.id in (SCHED, SCHED_PLAIN) and sched(r).pid == t.pid for r in recs)

        t = Target("crowded")
        (paths[-1] / "cgroup.procs").write_text(str(t.pid))
        armed = [c.call("target.arm", {"unit": unit(p), "stacks": "fp"})["target"]["id"] for p in paths[:ROOM]]
        try:
            c.call("target.arm", {"unit": unit(paths[ROOM]), "stacks": "fp"})
            fail("one more was not refused")
        except Error as e:
            expect(e.code == "busy" and "other kinds of rings" in str(e), f"one more is refused: {e}")
        let_work(t.pid, seconds=0.3)
        expect(all(switches(x) > 20 for x in armed), "the others have all of it")
        expect(not any(c.call("target.show", {"target": x})["target"]["warnings"] for x in armed), "and nothing to say")

        # One with a target of its own comes to all of them: that target is the newest.
        late = Target("late")
        own = c.arm(late.pid, stacks="fp")["id"]
        (paths[ROOM - 1] / "cgroup.procs").write_text(str(late.pid))
        said = wait_for("it says so", lambda: [w for w in c.call("target.show", {"target": own})["target"]["warnings"] if "other kinds" in w])
        ok(f"who comes later says what it misses: {said[0]}")
        for x in armed:
            wait_for("it has come", lambda: late.pid in {p["pid"] for p in bundle(c, x)[0]["processes"]})
        expect(not any(c.call("target.show", {"target": x})["target"]["warnings"] for x in armed), "and the others have it")
finally:
    for p in reversed(paths[1:]):
        for pid in (p / "cgroup.procs").read_text().split() if p.exists() else []:
            (cgroup_mount() / "cgroup.procs").write_text(pid)
        if p.exists():
            p.rmdir()
