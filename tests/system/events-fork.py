# SPDX-License-Identifier: Apache-2.0
"""fork, exec and closed descriptors: a child has nothing of its parent's registration and may have one of its own; a
program that replaces itself ends it; one that closes everything harms nobody."""
from lib.eventshell import *

with Tracerd() as d, d.client() as c:
    p = Shell(d.sock)
    clean = fds_of(p.pid)
    p.tell("start", "ok")
    p.wait_connected()
    p.tell("instant parent", "ok")
    parent = wait_events(c, p.pid, "live")

    child = p.fork()
    s = p.stats()
    expect(fds_of(child) == clean and not s["enabled"] and not s["connected"] and s["registrations"] == 0 and
           p.tell("instant nothing") == "off" and p.tell("snapshot x") == "ENOTCONN",
           "a child has no descriptor of its parent's, and records nothing")
    p.tell("start", "ok")
    p.wait_connected()
    p.tell("instant child", "ok")
    t = wait_events(c, child, "live")
    expect(t["id"] != parent["id"] and instants(c, t["id"]) == ["child"], "it starts its own")
    expect(instants(c, parent["id"]) == ["parent"], "its parent has only its own")
    grandchild = p.fork()
    p.tell("instant nothing", "off")
    p.tell("stop", "ok")
    p.tell("exit", f"parent {child} 0")
    wait_events(c, child, "live")
    p.tell("exit", f"parent {p.pid} 0")
    wait_events(c, child, "ended")
    p.tell("instant parent", "ok")
    expect(p.stats()["connected"] and target_of(c, p.pid)["events"]["state"] == "live",
           "children come and go, the parent's registration stays")

    # A child that lives on does not keep it alive.
    for how in ("fork", "_fork"):
        q = Shell(d.sock)
        q.tell("start", "ok")
        q.wait_connected()
        q.tell("instant before", "ok")
        child = q.fork(how)
        q.tell("stats")
        q.kill()
        t = wait_events(c, q.pid, "ended")
        expect(instants(c, t["id"]) == ["before"], f"the parent is killed, its child ({how}) lives: the registration ends")
        q.tell("start", "ok")
        q.wait_connected()
        q.tell("instant orphan", "ok")
        expect(instants(c, wait_events(c, child, "live")["id"]) == ["orphan"], "the child has its own")
        os.kill(child, signal.SIGKILL)

    # The helper may be anywhere when it happens.
    q = Shell(d.sock)
    for _ in range(100):
        q.tell("start", "ok")
        q.fork()
        q.tell("stats")
        if not q.exit_child().endswith(" 0"):
            fail("a child ended badly")
        q.tell("stop", "ok")
    expect(fds_of(q.pid).keys() - clean.keys() <= fds_of(p.pid).keys(), "a hundred children in the middle of starting")
    # A thread that was joined may be in /proc for a moment more.
    wait_for("the helper to be gone", lambda: len(threads_of(q.pid)) == 1)

    # exec ends it; the new program begins from nothing.
    q.tell("start", "ok")
    q.wait_connected()
    q.tell("instant old", "ok")
    q.tell("exec", "ready")
    t = wait_events(c, q.pid, "ended")
    expect(fds_of(q.pid) == clean, "exec ends the registration, and leaves no descriptor")
    q.tell("start", "ok")
    q.wait_connected()
    q.tell("instant new", "ok")
    t = wait_events(c, q.pid, "live")
    if "new" not in instants(c, t["id"]):
        fail("the new program's events are missing")
    ok("the new program registers")

    # A program that closes all descriptors: the numbers are other files' then.
    for start in ("start", "start no-thread"):
        q = Shell(d.sock)
        q.tell(start, "ok")
        q.wait_connected()
        q.tell("close-all", "ok")
        wait_events(c, q.pid, "ended")
        q.tell("instant alone", "ok")
        q.tell("region r 1", "ok")
        q.tell("snapshot now", "ENOTCONN")
        if q.stats()["connected"]:
            fail("the program does not know that the daemon does not hear it")
        q.tell("stop", "ok")
        q.tell("start", "ok")
        q.wait_connected()
        q.tell("instant new", "ok")
        t = wait_events(c, q.pid, "live")
        if "new" not in instants(c, t["id"]):
            fail("the events after the new start are missing")
        q.end()
    ok("a program that closes every descriptor goes on, and may start again")
    p.end()
