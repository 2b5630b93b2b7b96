#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""A program that makes functions and runs them once, more than are kept: those that it always runs, which are its oldest, keep their names."""
from lib.capture import *
from lib.pythonframes import *

KEPT = 16384  # SHARE_MAX of daemon/backend/sample/python.c
MAKES = """
import time
def leaf(): time.sleep(1.5e-4)
def root():
    n = 0
    while True:
        exec(f"def made_{n}():\\n leaf()\\nmade_{n}()", {"leaf": leaf})
        n += 1
def main(): root()
main()
"""

need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    minor, python = need_pythons()[-1]
    (tmp() / "makes.py").write_text(MAKES)
    p = spawn(python, tmp() / "makes.py")
    t = c.call("target.arm", {"pid": p.pid, "fds": ["maps"], "stacks": "bpf", "wait_min_us": 0}, [open_maps(p.pid)])["target"]
    kept = lambda: c.call("status")["capture"]["python"]["functions"]
    # Each of a turn goes before the first comes again.
    wait_for("more functions than are kept", lambda: kept() >= KEPT, timeout=2 * PATIENCE)
    _, _, s = bundle(c, t["id"])
    time.sleep(3)
    meta, recs, s = bundle(c, t["id"])
    functions, parts = read(recs)
    mine = [p for p in parts if p.why == "complete" and not p.stopped and len(p.frames) >= 3]
    named = [p for p in mine if [f and f.name for f in p.frames[-3:]] == ["root", "main", "<module>"]]
    expect(len(mine) > 500, f"Python {minor}: there are stacks: {len(mine)}")
    expect(len(named) > 0.99 * len(mine), f"the main functions of {len(named)} of {len(mine)} have their names")
    p.kill()
    p.wait()
