#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""tracerd is killed by SIGKILL in each state of a snapshot: after a restart nothing half-made is in the spool, what
is there is whole, no decoder is left behind, and the target never noticed."""
import os
import random
import shutil
import signal

from lib.snapshot import *

need_root()
perf = working_perf()
d = Wrapped("decoder_timeout_s = 3600\n")
target = service()
random.seed(20261121)


def kill_and_check(what):
    children = d.decoders()
    status = d.stop(signal.SIGKILL)
    if status != -signal.SIGKILL:
        fail(f"{what}: status {status}")
    wait_for("decoders die with the daemon", lambda: not any(os.path.exists(f"/proc/{p}") for p in children))
    is_well(target)
    d.behave("real")
    d.start()
    whole, half, other = d.spool()
    if half or other:
        fail(f"{what}: left in the spool: {half + other}")
    with d.client() as c:
        listed = [s["id"] for s in c.call("snapshot.list", {"limit": 100})["snapshots"]]
        if sorted(listed) != whole:
            fail(f"{what}: listed {listed}, on disk {whole}")
        for s in listed:
            files = c.fetch(s)
            meta = json.loads(files["meta.json"])
            # published means whole: state and files agree
            if (meta["snapshot"]["state"] == "done") != ("trace.pftrace" in files):
                fail(f"{what}: {meta['snapshot']['state']} with {list(files)}")
            if not files["perf.data"].startswith(b"PERFILE2"):
                fail(f"{what}: perf.data is not whole")
            if perf:
                path = tmp() / "whole.perf.data"
                path.write_bytes(files["perf.data"])
                p = subprocess.run([perf, "script", "-i", path, "-F", "tid,event"], capture_output=True)
                if p.returncode != 0:
                    fail(f"{what}: perf script: {p.stderr.decode()}")
            c.call("snapshot.delete", {"snapshot": s})
    return len(whole)


# decoding, and queued behind it
d.behave("exec sleep 6000")
d.start()
with d.client() as c:
    t = c.arm(target.pid, stacks="fp")["id"]
    time.sleep(0.5)
    ids = [c.call("snapshot.create", {"target": t})["snapshot"]["id"] for _ in range(3)]
    wait_for("decoding", lambda: state_of(c, ids[0])["state"] == "decoding")
    wait_for("queued", lambda: state_of(c, ids[2])["state"] == "queued" and state_of(c, ids[2])["frozen_at"])
kill_and_check("decoding")
ok("while one decodes and two wait")

# the short states: at some moment from the request to after the end
published = 0
for i in range(25):
    try:
        with d.client() as c:
            t = c.arm(target.pid, stacks="fp")["id"]
            time.sleep(0.2)
            for _ in range(2):
                c.send("snapshot.create", {"target": t})
            time.sleep(random.uniform(0, 0.02 if i % 2 else 0.4))
    except Closed:
        fail(f"round {i}: the daemon ended by itself")
    published += kill_and_check(f"round {i}")
ok(f"at 25 random moments of freezing, copying, decoding and publishing ({published} were published)")
if published in (0, 50):
    note("the moments were all before or all after the end: this machine is unusually slow or fast")
expect(d.stop() == 0, "the daemon ends well")
is_well(target)
