#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 120
"""A file system that does not answer when a process is armed, and does later: the names of its functions come, without another mapping."""
import atexit

from lib import *

need_root("mounts a file system")
HUNGFS = BUILD / "tests/programs/hungfs"
if not HUNGFS.exists() or not os.path.exists("/dev/fuse"):
    skip("there is no FUSE here")

spin = build_c("spin", "int main(void) { for (volatile unsigned n = 0;; n++) ; }\n", "-O1", "-g", "-fno-omit-frame-pointer")
where = tmp() / "fs"
where.mkdir()
fs = spawn(HUNGFS, "-", "/dev/fuse", where, "spin", spin, "lookup", "getattr", "open", "read",
           stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
if fs.stdout.readline() != b"ready\n":
    skip(f"FUSE cannot be mounted here: {fs.stderr.read().decode()}")


def end():
    fs.kill()
    subprocess.run(["umount", "-l", where])


atexit.register(end)


def opener(c):
    return c.call("status")["opener"]


def named(c, target):
    stacks = [h["stack"] for h in c.snapshot(target)["summary"]["heaviest"]]
    note(f"stacks: {stacks[:2]}")
    return any("main" in s for s in stacks)


with Tracerd() as d:
    c = d.client()
    p = spawn(where / "spin")
    wait_for("it runs", lambda: cpu_seconds(p.pid) > 0.1)
    fs.send_signal(signal.SIGUSR1)
    target = c.arm(p.pid)["id"]
    wait_for("its file is given up", lambda: opener(c)["timeouts"] > 0)
    lost = c.call("target.show", {"target": target})["target"]["lost"]
    expect(lost["images_missing"] == 1 and not named(c, target), f"without it there are no names: {lost}")
    fs.send_signal(signal.SIGUSR1)
    wait_for("it is asked for again", lambda: not c.call("target.show", {"target": target})["target"]["lost"]["images_missing"])
    expect(named(c, target), "and the functions have names")
    ok("a file system that answers later gives names later")
    p.kill()
