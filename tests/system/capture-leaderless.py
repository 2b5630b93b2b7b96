#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A process whose main thread has ended is one as any other: its files in /proc, which are those of that thread, have no memory map, no program
# and no root directory any more, and those of the other threads do.
from lib.capture import *

need_root("other users' /proc")
with Tracerd() as d:
    c = d.client()
    if not c.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    p = spawn(BUILD / "tests/programs/leaderless", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    expect(p.stdout.readline() == "ready\n" and pathlib.Path(f"/proc/{p.pid}/maps").read_text() == "", "its main thread has ended")
    t = c.call("target.arm", {"pid": p.pid, "backend": "sample"})["target"]
    expect(t["exe"] and t["exe"].endswith("/leaderless"), f"it is armed, with its program: {t['exe']}")
    wait_for("it has samples", lambda: (x := c.call("target.show", {"target": t["id"]})["target"])["samples"] > 50)
    s = c.snapshot(t["id"])
    stacks = [h["stack"] for h in s["summary"]["heaviest"]]
    expect(any("burn_on" in x for x in stacks), f"its functions have names: {stacks[:2]}")
    expect(not s["summary"]["losses"], f"nothing is missing: {s['summary']['losses']}")
    kernel = next((int(x) for x in os.listdir("/proc") if x.isdigit() and not os.path.exists(f"/proc/{x}/exe") and
                   pathlib.Path(f"/proc/{x}/stat").read_text().rpartition(")")[2].split()[0] != "Z"), None)
    if kernel:
        expect(c.call_error("target.arm", {"pid": kernel}) in ("unsupported", "gone"), "a kernel thread is refused, as before")
    p.stdin.close()
    wait_for("it has exited", lambda: c.call("target.show", {"target": t["id"]})["target"]["state"] == "exited")
    ok("and its end is seen")
