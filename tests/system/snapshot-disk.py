#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""A full disk: a snapshot for which there is no room is refused before anything is frozen; one that runs into the end of the
disk is dropped and counted, and nothing half-made stays; retention makes room where it can."""
import os

from lib.snapshot import *

need_root("mounts a small file system")
state = tmp() / "small"
state.mkdir()
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tracerd-test", state]).returncode != 0:
    skip("cannot mount a tmpfs here")


@atexit.register
def umount():
    subprocess.run(["umount", "-l", state])


def fill(leave):
    """A file of somebody else that leaves `leave` bytes."""
    (state / "filler").unlink(missing_ok=True)
    v = os.statvfs(state)
    with open(state / "filler", "wb") as f:
        os.posix_fallocate(f.fileno(), 0, v.f_bavail * v.f_frsize - leave)


d = Wrapped("[capture]\nring_kib = 1024\ndwarf_ring_kib = 1024\n[spool]\nspool_keep_free_percent = 10\nspool_max_count = 2\n", state=state).start()
target = service()
c = d.client()
t = c.arm(target.pid, stacks="fp")["id"]
let_work(target.pid)
first = c.snapshot(t)
expect(first["state"] == "done", "there is room")

fill(2 << 20)
expect(c.call_error("snapshot.create", {"target": t}) == "no_space", "too full: refused at once")
expect(d.spool()[0] == [first["id"]], "and nothing was removed for it in vain")


def lost():
    return d.status()["losses"]["snapshots_no_space"]


wait_for("it is counted", lambda: lost() == 1)

# Room when it starts, none when the trace is to be written.
(state / "filler").unlink()
go = tmp() / "go"
d.behave(f"while [ ! -e '{go}' ]; do sleep 0.05; done")
rid = c.send("snapshot.create", {"target": t, "wait": True})
wait_for("the decoder waits", d.decoders)
fill(0)
go.write_text("")
s = c.wait(rid)["snapshot"]
expect(s["state"] == "failed" and s["error"]["code"] in ("no_space", "decode_failed"), f"failed: {s['error']}")
wait_for("nothing half-made", lambda: not d.spool()[1])
whole = d.spool()[0]
expect(whole in ([first["id"]], [first["id"], s["id"]]), f"whole or not at all: {whole}")
if s["id"] in whole:
    names = list(c.fetch(s["id"]))
    expect("trace.pftrace" not in names and "perf.data" in names, "what could be kept has no half-made trace")
else:
    expect(s["error"]["code"] == "no_space", f"nothing could be kept: {s['error']}")
    wait_for("it is counted", lambda: lost() == 2)
(state / "filler").unlink()
d.behave("real")
s = c.snapshot(t)
expect(s["state"] == "done", "with room again it works again")

# Retention: the oldest goes for the new one.
s = c.snapshot(t)
expect(s["state"] == "done" and first["id"] not in d.spool()[0] and len(d.spool()[0]) == 2, "the oldest makes room")
wait_for("it is told", lambda: d.status()["spool"]["evicted"] == 1)
expect(c.call_error("snapshot.show", {"snapshot": first["id"]}) == "not_found", "and is gone for everybody")
is_well(target)
expect(d.stop() == 0, "the daemon ends well")
