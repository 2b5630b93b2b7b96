# SPDX-License-Identifier: Apache-2.0
"""A snapshot of a program that writes events and has exited: its rings say nothing of the exit, the daemon knows it. The
summary ends there and not at the freeze."""
from lib.events import *

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
