#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A trigger on a unit watches each of its programs: those that are there, those that are started in it, and those that
were moved into it after they had begun. The snapshot is one of the whole unit."""
from lib.capture import Cgroup
from lib.eventshell import *

need_root("cgroups")
MS = 1000000


def trigger(c, gid):
    return next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)


def shell(d, group=None):
    p = Shell(d.sock)
    if group:
        group.add(p.pid)
    p.tell("start", "ok")
    p.wait_connected()
    return p


def hit(c, gid, p, region):
    """Slow regions until the trigger has taken a snapshot of this program's, which is then waited for: another
    hit would be another snapshot."""
    taken = []

    def told():
        if not taken:
            p.tell(f"region {region} 20", "ok")
            sid = trigger(c, gid)["last_snapshot"]
            s = sid and c.call("snapshot.show", {"snapshot": sid})["snapshot"]
            if s and s["cause"]["pid"] == p.pid:
                taken.append(sid)
        s = taken and c.call("snapshot.show", {"snapshot": taken[0]})["snapshot"]
        return s if s and s["state"] == "done" else None
    return wait_for(f"a snapshot by process {p.pid}", told)


with Tracerd() as d, d.client() as c:
    if not c.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    group = Cgroup(f"tracerd-test-{os.getpid()}.service")
    first = shell(d, group)
    other = shell(d)
    unit = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    g = c.call("trigger.add", {"target": unit["id"], "region": "work", "over_ns": 10 * MS, "cooldown_ns": 0,
                               "max_per_hour": 0})["trigger"]
    expect(g["programs"] == 1, "the program that is in the unit has the threshold, the other has not")
    for _ in range(3):
        other.tell("region work 20", "ok")
    expect(trigger(c, g["id"])["hits"] == 0, "what is outside of the unit hits nothing")
    s = hit(c, g["id"], first, "work")
    expect(s["target"] == unit["id"] and s.get("unit") == group.path.name, "the snapshot is the unit's, and has its name")
    expect(f"of unit {group.path.name} (" in d.tracectl("show", s["id"]).stdout, "its title is the unit's")

    second = shell(d, group)
    wait_for("the new program has it", lambda: trigger(c, g["id"])["programs"] == 2)
    hit(c, g["id"], second, "work")
    ok("a program that is started in the unit is watched")

    group.add(other.pid)
    wait_for("the one that was moved has it", lambda: trigger(c, g["id"])["programs"] == 3)
    s = hit(c, g["id"], other, "work")
    rings = [f["name"] for f in s["files"] if f["name"].startswith("rings/")]
    expect(len(rings) == 3, f"a program that moves into it as well; the snapshot has the rings of all ({rings})")

    second.kill()
    wait_for("one less", lambda: trigger(c, g["id"])["programs"] == 2)
    ok("a program that ends is not watched any more")
    first.end()
    other.end()
