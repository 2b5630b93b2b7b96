#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A process whose main thread has ended is one as any other: its files in /proc, which are those of that thread, have no memory map, no program
# and no root directory any more, and those of the other threads do.
from lib.capture import *

NOBODY = 65534
CLOSES_ITSELF = """
import ctypes, sys, threading
def rest():
    sys.stdin.readline()
    ctypes.CDLL(None).prctl(4, 0)
    print("closed", flush=True)
    sys.stdin.read()
threading.Thread(target=rest).start()
ctypes.CDLL(None).syscall(EXIT, 0)
""".replace("EXIT", "93" if os.uname().machine in ("aarch64", "riscv64") else "60")


def has_ended(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def thread_maps(pid):
    """The maps of a thread that lives, as its client opens them."""
    return os.open(next(t for t in pathlib.Path(f"/proc/{pid}/task").iterdir() if t.name != str(pid)) / "maps", os.O_RDONLY)


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

    # A user's: a thread that lives proves it, and goes on doing so.
    p = spawn(BUILD / "tests/programs/leaderless", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, uid=NOBODY)
    p.stdout.readline()
    q = spawn(interpreter(), "-c", CLOSES_ITSELF, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, uid=NOBODY)
    wait_for("its main thread ends", lambda: has_ended(q.pid))

    def user():
        with Client(d.sock) as u:
            def arm(pid, fd, **more):
                return u.call("target.arm", {"pid": pid, "fds": ["maps"], "backend": "sample", "stacks": "fp", **more}, [fd])["target"]["id"]

            def refused(pid, fd):
                return u.call_error("target.arm", {"pid": pid, "fds": ["maps"], "backend": "sample"}, [fd]) == "not_permitted"
            expect(refused(p.pid, open_maps(p.pid)), "the empty map of the main thread proves nothing")
            expect(refused(p.pid, thread_maps(q.pid)), "nor does a thread of another process")
            t = arm(p.pid, thread_maps(p.pid))
            wait_for("it has samples", lambda: u.call("target.show", {"target": t})["target"]["samples"] > 50)
            for i in range(2):
                meta, recs, s = bundle(u, t)
                expect(any("burn_on" in h["stack"] for h in s["summary"]["heaviest"]), "its functions have names, and its user may see them")
            expect(u.call("target.show", {"target": t})["target"]["state"] == "armed", "and it is recorded on")
            u.call("target.disarm", {"target": t})
            # Of a family the kernel is asked by a worker.
            t = arm(p.pid, thread_maps(p.pid), children=True)
            wait_for("it has samples", lambda: u.call("target.show", {"target": t})["target"]["samples"] > 50)
            meta, recs, s = bundle(u, t)
            expect([x["pid"] for x in meta["processes"]] == [p.pid] and not meta["losses"]["processes_refused"], "as a family as well")

            # One that does not let itself be looked at any more.
            fd = thread_maps(q.pid)
            t = arm(q.pid, fd)
            q.stdin.write("go\n")
            q.stdout.readline()
            expect(refused(q.pid, fd), "one that closed itself is refused, though its map was opened before")
            expect(u.snapshot(t)["state"] == "failed", "and what was recorded of it is its user's no more")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")
    q.stdin.close()
    p.stdin.close()
