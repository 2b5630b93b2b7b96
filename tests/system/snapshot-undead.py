#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 120
"""A decoder that was killed and does not die, as one that reads a file on a hung file system: nobody waits for it. It is made
by holding a process at its exit with ptrace. The snapshot ends, status counts what is dying, the next ones are decoded; only
who has too many of them gets no more, and is told so."""
import ctypes

from lib.snapshot import *

PTRACE_SEIZE, PTRACE_DETACH, PTRACE_O_TRACEEXIT, WALL = 0x4206, 17, 0x40, 0x40000000
MAX_DYING_USER = 4
libc = ctypes.CDLL(None, use_errno=True)


def ptrace(request, pid, data):
    if libc.ptrace(request, pid, None, ctypes.c_void_p(data)) < 0:
        fail(f"ptrace {request}: {os.strerror(ctypes.get_errno())}")


def hold(pid):
    """It will not get past its exit."""
    wait_for("it executes", lambda: pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
    ptrace(PTRACE_SEIZE, pid, PTRACE_O_TRACEEXIT)
    return pid


def let_go(pid):
    os.waitpid(pid, WALL)
    ptrace(PTRACE_DETACH, pid, 0)


def dying():
    return d.status()["decoder"]["dying"]


def new_decoder():
    """The decoder that began last."""
    return wait_for("the decoder runs", lambda: [p for p in d.decoders() if p not in held])[0]


def kept(snapshot):
    names = {f["name"] for f in snapshot["files"]}
    return {"perf.data", "meta.json"} <= names and not any("trace" in n for n in names)


need_root()
d = Wrapped("decoder_timeout_s = 10\n").start()
target = service()
c = d.client()
t = c.arm(target.pid, stacks="fp")["id"]
time.sleep(0.5)
held = []

d.behave("exec sleep 6000")
rid = c.send("snapshot.create", {"target": t, "wait": True})
held.append(hold(new_decoder()))
s = c.wait(rid)["snapshot"]
expect(s["state"] == "failed" and "did not finish within 10 s" in s["error"]["message"], f"it ends in time: {s['error']}")
expect(kept(s), "what was recorded is kept")
expect(dying() == 1 and d.status()["decoder"]["running"] == 0, "the slot is free, and what has not died is counted")
d.behave("real")
expect(c.snapshot(t)["state"] == "done", "the next is decoded")

d.behave("exec sleep 6000")
while len(held) < MAX_DYING_USER:
    i = c.call("snapshot.create", {"target": t})["snapshot"]["id"]
    held.append(hold(new_decoder()))
    if c.call("snapshot.cancel", {"snapshot": i})["snapshot"]["state"] != "cancelled":
        fail("cancel")
wait_for(f"cancel waits for none of them: {dying()}", lambda: dying() == MAX_DYING_USER)
d.behave("real")
s = c.snapshot(t)
expect(s["state"] == "failed" and "have not ended yet" in s["error"]["message"] and kept(s), f"no more of them: {s['error']['message']}")
other = spawn(SLOWLOCK, "--every", "300", uid=65534, stdout=subprocess.DEVNULL)
theirs = c.arm(other.pid, stacks="fp")["id"]
time.sleep(0.5)
expect(c.snapshot(theirs)["state"] == "done", "other users are decoded for")

for pid in held[1:]:
    let_go(pid)
wait_for("those that can are reaped", lambda: dying() == 1)
expect(c.snapshot(t)["state"] == "done" and d.decoders() == held[:1], "then there is room again")
expect(d.stop() == 0 and pathlib.Path(f"/proc/{held[0]}").exists(), "the daemon ends without the last")
let_go(held[0])
is_well(target)

# tracectl does not wait for its own, either.
d.start()
s = d.client().call("snapshot.list", {})["snapshots"][0]
d.behave("exec sleep 6000")
bundle = tmp() / "bundle"
expect(d.tracectl("fetch", s["id"], "-o", f"{bundle}/").returncode == 0, "fetch")
p = spawn(BUILD / "tracectl", "decode", bundle, "-s", "--timeout=10", env={**os.environ, "TRACERD_DECODE": str(d.script)},
          stderr=subprocess.PIPE, text=True)


def child():
    return pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split()


pid = hold(int(wait_for("its decoder runs", child)[0]))
expect(p.wait(PATIENCE) != 0 and "takes too long" in p.stderr.read(), "tracectl decode ends")
let_go(pid)
