# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a program that writes events and has exited: its rings say nothing of the exit, the daemon knows it. The
summary ends there and not at the freeze. One that has only closed all its descriptors has not exited: it goes on, and so do its
regions."""
from lib.events import *
from lib.eventshell import Shell
from lib.texttrace import in_time

AFTER_S = 0.3

with Tracerd() as d, d.client() as c:
    w = Numbers(d)
    target = registered(c, w.pid)
    wait_for("both threads have written", lambda: all(w.told()))
    w.kill()
    registered(c, w.pid, "ended")
    wait_for("the target has exited", lambda: target_of(c, w.pid)["state"] == "exited")
    time.sleep(AFTER_S)
    s = c.snapshot(target["id"])
    expect(s["state"] == "done", f"the snapshot is done: {s['error']}")
    summary = s["summary"]
    frozen = next(m["ns"] for m in summary["marks"] if m["name"].startswith("snapshot"))
    expect(summary.get("exited") and summary["to_ns"] + AFTER_S * 0.9e9 < frozen,
           f"the summary ends before the freeze, at the exit: {summary['to_ns']}, {frozen}")
    shown = d.tracectl("show", s["id"]).stdout
    expect("before it exited" in shown, f"tracectl show says so: {shown}")
    w.close()

    p = Shell(d.sock)
    p.tell("start", "ok")
    p.wait_connected()
    p.tell("open around", "ok")
    p.tell("close-all", "ok")
    target = registered(c, p.pid, "ended")
    for _ in range(5):
        p.tell("region later 1", "ok")
    p.tell("shut", "ok")
    s = c.snapshot(target["id"])
    expect(s["state"] == "done" and target["state"] == "armed" and not s["summary"].get("exited") and
           "exited" not in d.tracectl("show", s["id"]).stdout, "a program that has closed all its descriptors has not exited")
    for args in (("fetch", s["id"], "-o", f"{tmp()}/closed/"), ("decode", tmp() / "closed", "--format=text", "-o", tmp() / "text")):
        if (r := d.tracectl(*args)).returncode:
            fail(r.stderr)
    drawn = [f[2:] for f in in_time((tmp() / "text").read_text()) if len(f) > 2 and f[2] in ("B", "E")]
    begin = lambda name: ["B", f'"{name}"', "[region]"]
    expect(drawn == [begin("around"), *[begin("later"), ["E"]] * 5, ["E"]],
           f"its regions after that are there, and the one that was open has its end: {drawn}")
    expect(target_of(c, p.pid) is None, "with the snapshot its rings are gone")

    # Another program in its place does not write on.
    p = Shell(d.sock)
    p.tell("start", "ok")
    p.wait_connected()
    p.tell("open around", "ok")
    p.tell("exec", "ready")
    registered(c, p.pid, "ended")
    expect(target_of(c, p.pid)["state"] == "exited", "with an exec the program has ended")
    p.end()
