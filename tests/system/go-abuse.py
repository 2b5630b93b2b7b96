#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# slow
"""What programs do to the libraries in them, and daemons to their clients: the Go module never blocks or ends the program, and gives traces
again as soon as it can."""
from lib.golang import *

build_shell()


def snapshot(c, target):
    """(the entry of meta.json, the trace or None)"""
    s = c.snapshot(target)
    if s["state"] != "done":
        fail(f"a snapshot that is {s['state']}: {s['error']}")
    (g,) = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])["go"]
    return g, c.fetch(s["id"], g["file"])[g["file"]] if "file" in g else None


def has_trace(c, target, name):
    g, trace = snapshot(c, target)
    return trace is not None and f'"{name}"' in parsed(trace)


with Tracerd(config="[snapshot]\nprogram_interval_ms = 1\ngo_wait_ms = 20000\n") as d:
    with d.client() as c:
        # ---- twice, and by two libraries in one program
        p = GoShell(d, "start")
        t = p.connected() # a process has one connection: who is first has it
        expect("already" in p.tell("second")["Missing"] and "already" in p.tell("vendored")["Missing"],
               "a second agent, of a copy of the module too, says that there is a recorder already")
        p.tell("work twice")
        expect(has_trace(c, t, "twice"), "the first one's traces are there all the same")
        p.process.kill()

        # ---- processes that the program starts while it is asked
        p = GoShell(d, "start")
        t = p.connected()
        for _ in range(3):
            c.call("snapshot.create", {"target": t})
            expect(p.tell("spawn 20") == 20, "a program that is asked starts others")
        p.tell("work parent")
        expect(has_trace(c, t, "parent"), "and gives its trace")
        p.process.stdin.write("exec\n")
        p.process.stdin.flush()
        p.answer()
        p.tell("start")
        p.tell("work after-exec")
        expect(has_trace(c, p.connected(), "after-exec"), "a program that executes itself anew is there anew")
        p.process.kill()

        # ---- one thread, which is taken
        p = GoShell(d, "start")
        t = p.connected()
        p.tell("one-busy")
        p.tell("work busy")
        expect(has_trace(c, t, "busy"), "with GOMAXPROCS=1, and a goroutine that never stops and has a thread of its own")
        p.process.kill()

        # ---- very many goroutines
        p = GoShell(d, "start", "goroutines 20000")
        t = p.connected()
        p.tell("work many")
        expect(has_trace(c, t, "many"), "with 20,000 goroutines")
        p.process.kill()

        # ---- no descriptors
        p = GoShell(d, "start")
        t = p.connected()
        p.tell("work fds")
        expect(p.tell("take-fds") > 10, "a program takes all its descriptors")
        g, trace = snapshot(c, t)
        expect(trace is None and "too many open files" in g["lost"]["why"] and p.works(), "no trace, with the reason; the program goes on")
        p.tell("give-fds")
        expect(has_trace(c, t, "fds"), "and there is one again when there are descriptors")
        p.process.kill()

        # ---- memfd_create is forbidden
        p = GoShell(d, "start")
        t = p.connected()
        expect(p.tell("seccomp"), "a program forbids itself memfds and sockets")
        g, trace = snapshot(c, t)
        expect(trace is None and "not permitted" in g["lost"]["why"] and p.works(), "no trace, with the reason; the program goes on")
        p.process.kill()

        # ---- a recorder of the program's own that is stopped
        p = GoShell(d, "adopt")
        t = p.connected()
        p.tell("work adopted")
        expect(has_trace(c, t, "adopted"), "the program's own recorder is used")
        st = p.tell("stop-recorder")
        g, trace = snapshot(c, t)
        expect(not st["Recording"] and trace is None and "not running" in g["lost"]["why"] and p.works(),
               "stopped, there is no trace, with the reason; the program goes on")
        p.process.kill()

    # ---- a daemon that comes and goes
    p = GoShell(d, "start")
    p.connected()
    before = p.tell("collect")
    for _ in range(20):
        d.stop(check=False)
        expect(p.works(), "it goes on without the daemon")
        d.start()
        p.tell("region busy")
    t = p.connected()
    with d.client() as c:
        p.tell("work restarted")
        expect(has_trace(c, t, "restarted"), "20 restarts of the daemon later there is a trace")

        # A program writes one trace at a time: who asks meanwhile waits for his.
        p.tell("work together")
        def at_once(n):
            """The entries of so many snapshots that are asked for at once."""
            entries = []
            for s in [c.call("snapshot.create", {"target": t})["snapshot"]["id"] for _ in range(n)]:
                wait_for("the snapshot", lambda: c.call("snapshot.show", {"snapshot": s})["snapshot"]["state"] == "done")
                entries += json.loads(c.fetch(s, "meta.json")["meta.json"])["go"]
            return entries

        entries = at_once(3)
        expect(all("file" in g for g in entries) and len(entries) == 3, f"three snapshots at once have a trace each: {entries}")

        # What nobody waits for any more is still written when it goes on: who asks then waits for that, and is not refused.
        p.process.send_signal(signal.SIGSTOP)
        late = at_once(3)
        expect([g.get("lost", {}).get("kind") for g in late] == 3 * ["late"], f"of a program that is stopped there is none: {late}")
        p.process.send_signal(signal.SIGCONT)
        entries = at_once(2)
        expect(all("file" in g for g in entries) and len(entries) == 2, f"when it goes on there is: {entries}")

    def settled():
        now = p.tell("collect")
        return now if now[0] <= before[0] and now[1] <= before[1] else None
    wait_for("descriptors and goroutines to be as many as before", settled)
    ok("and no descriptor or goroutine is left of the connections that were")

    # ---- its descriptors are closed under it
    expect(p.tell("close-fds") > 0, "a program closes descriptors that are not its own")
    p.tell("region closed")
    expect(p.works(), "and goes on")
    p.process.kill()
