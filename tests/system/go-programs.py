#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 200
# slow
"""Several Go programs in one target: each one's trace is in the bundle under its process, Go's own tool opens each as it is, and one that
does not answer costs the others nothing."""
from lib.capture import Cgroup
from lib.golang import *

need_root("cgroups")
build_shell()


def bundle(c, target, want):
    s = c.snapshot(target)
    files = {f["name"] for f in s["files"]}
    meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
    by_pid = {g["pid"]: g for g in meta["go"]}
    expect(s["state"] == "done" and set(by_pid) == want, f"a snapshot asks each of its {len(want)} Go programs")
    there = {g["file"] for g in meta["go"] if "file" in g}
    expect({n for n in files if n.startswith("go")} == there, "the files are those that meta.json names")
    return s, by_pid


def own(c, s, g, name):
    text = parsed(c.fetch(s["id"], g["file"])[g["file"]])
    return f'"work-{name}"' in text and not any(f'"work-{n}"' in text for n in NAMES if n != name)


NAMES = ["first", "second", "third"]
with Tracerd(config="[snapshot]\ngo_wait_ms = 1000\n") as d, d.client() as c:
    if not c.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    group = Cgroup(f"tracerd-test-{os.getpid()}.service")
    programs = {name: GoShell(d) for name in NAMES}
    for p in programs.values():
        group.add(p.pid)
        p.tell("start")
    outside = GoShell(d, "start")
    other = spawn("sleep", "1000")
    group.add(other.pid)
    unit = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]["id"]
    for name, p in [*programs.items(), ("outside", outside)]:
        p.connected()
        p.tell(f"work work-{name}")
    pids = {p.pid for p in programs.values()}
    s, by_pid = bundle(c, unit, pids)
    for name, p in programs.items():
        expect(own(c, s, by_pid[p.pid], name), f"the {name} program's trace is its own, and Go's tool opens it")
    expect(len({g["file"] for g in by_pid.values()}) == 3 and "go.trace" in {g["file"] for g in by_pid.values()},
           "the first has the name that readers know, the others their process in it")

    # ---- one that does not answer, one that has ended
    programs["second"].process.send_signal(signal.SIGSTOP)
    programs["third"].process.kill()
    programs["third"].process.wait()
    programs["first"].tell("work work-first")
    s, by_pid = bundle(c, unit, pids)
    expect(own(c, s, by_pid[programs["first"].pid], "first") and by_pid[programs["second"].pid]["lost"]["kind"] == "late"
           and by_pid[programs["third"].pid]["lost"]["kind"] in ("gone", "refused"), "the one that answers is there, of the others it says why not")
    programs["second"].process.send_signal(signal.SIGCONT)

    def again():
        """Not at once: it may still write what it was asked for before."""
        programs["second"].tell("work work-second")
        s = c.snapshot(unit)
        meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
        return next(((s, g) for g in meta["go"] if g["pid"] == programs["second"].pid and "file" in g), None)
    expect(own(c, *wait_for("the trace of the one that was stopped", again), "second"), "and is there again when it answers")
