#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""A decoder that crashes, hangs, is killed or is not there: the snapshot fails with a clear error, but the
recording is kept, without a half-made trace, and decodes later; the daemon and the target go on. Cancel, queue and the
limits of it, with a decoder that never comes back."""
import os
import signal

from lib.snapshot import *

need_root()
# stacks=fp: for "auto" the daemon would ask a decoder for tables, too. Whether a program is one of Go it asks at any rate.
d = Wrapped("decoder_timeout_s = 3600\nsnapshots_queued = 3\n")
target = service()


def start_anew(timeout_s):
    """A busy machine's decoder may take longer than one that is to be given up soon: where none is, it has an hour."""
    d.behave("real")
    if d.alive():
        d.stop()
    d.conf.write_text(re.sub(r"(decoder_timeout_s) = \d+", rf"\1 = {timeout_s}", d.conf.read_text()))
    d.start()
    c = d.client()
    t = c.arm(target.pid, stacks="fp")["id"]
    let_work(target.pid, seconds=0.2)
    wait_for("no decoder works for what was armed", lambda: not d.decoders())
    return c, t


c, t = start_anew(3600)


def failed(behaviour, *words):
    d.behave(behaviour)
    s = c.snapshot(t)
    if s["state"] != "failed" or s["error"]["code"] != "decode_failed":
        fail(f"{behaviour}: {s['state']} {s['error']}")
    for word in words:
        if word not in s["error"]["message"]:
            fail(f"{behaviour}: no {word!r} in {s['error']['message']!r}")
    names = [f["name"] for f in s["files"]]
    if "perf.data" not in names or "meta.json" not in names or any("trace" in n for n in names):
        fail(f"{behaviour}: files {names}")
    return s


failed("kill -SEGV $$", "signal 11")
failed("echo this is why >&2; exit 3", "exit code 3", "this is why")
failed("exit 0", "no result")
failed("echo garbage >&3; sleep 6000")
ok("a decoder that dies: decode_failed, its last words are told, the bundle is kept")
c, t = start_anew(2)
s = failed("exec sleep 6000", "did not finish within 2 s")
ok("a decoder that hangs: the same, in time")
wait_for("no decoder is left", lambda: not d.decoders())

# What was kept decodes to a trace, and its meta.json says what happened.
bundle = tmp() / "kept"
r = d.tracectl("fetch", s["id"], "-o", f"{bundle}/")
if r.returncode != 0:
    fail(f"fetch: {r.stderr}")
meta = json.loads((bundle / "meta.json").read_text())
expect(meta["snapshot"]["state"] == "failed" and meta["decoder"]["end"] == "timeout", "meta.json tells it")
r = d.tracectl("decode", bundle, "-o", tmp() / "later.pftrace")
expect(r.returncode == 0 and os.path.getsize(tmp() / "later.pftrace") > 100, "it decodes later, without the daemon")

# Killed from outside while it works.
c, t = start_anew(3600)
d.behave("exec sleep 6000")
rid = c.send("snapshot.create", {"target": t, "wait": True})
pid = wait_for("the decoder runs", d.decoders)[0]
# Not the moment between fork and exec.
wait_for("it executes", lambda: pathlib.Path(f"/proc/{pid}/comm").read_text() == "sleep\n")
oom = {p: pathlib.Path(f"/proc/{p}/oom_score_adj").read_text().strip() for p in (pid, d.pid, "self")}
expect(oom[pid] == "1000" and oom[d.pid] == oom["self"], "where memory ends the kernel ends it, not the daemon")
with open(f"/proc/{pid}/status") as f:
    status = f.read()
expect("CapEff:\t0000000000000000" in status and "NoNewPrivs:\t1" in status, "it runs without privilege")
# Nor that of the loader, which has a library open.
wait_for("it sleeps", lambda: pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0] in ("35", "230", "115", "101"))
fds = {int(fd): os.readlink(f"/proc/{pid}/fd/{fd}") for fd in os.listdir(f"/proc/{pid}/fd")}
expect(set(fds) <= {0, 1, 2, 3} and fds[0] == "/dev/null", f"it inherits nothing but its link: {fds}")
with open(f"/proc/{pid}/environ") as f:
    environ = f.read()
expect("HOME=" not in environ and "PATH=" not in environ.replace("DEBUGINFOD", ""), "its environment is empty")
other = d.client()


def killed():
    """It may not be the only one, see above."""
    for p in d.decoders():
        os.kill(p, signal.SIGKILL)
    return all(s["state"] != "decoding" for s in other.call("snapshot.list")["snapshots"])


wait_for("none is left that decodes it", killed)
s = c.wait(rid)["snapshot"]
expect(s["state"] == "failed" and "signal 9" in s["error"]["message"], "a decoder that is killed")

# Queue: one decodes for ever, the others wait, recorded already; then the limit.
c, t = start_anew(3600)
d.behave("exec sleep 6000")
ids = [c.call("snapshot.create", {"target": t})["snapshot"]["id"]]
wait_for("the first decodes", lambda: state_of(c, ids[0])["state"] == "decoding")
ids += [c.call("snapshot.create", {"target": t})["snapshot"]["id"] for _ in range(3)]
for i in ids[1:]:
    wait_for("the others wait", lambda: state_of(c, i)["state"] == "queued" and state_of(c, i)["frozen_at"])
expect(c.call_error("snapshot.create", {"target": t}) == "busy", "the queue is bounded; who waits is recorded already")
wait_for("status counts them", lambda: (d.status()["snapshots"]["running"], d.status()["snapshots"]["queued"]) == (1, 3))
ok("status counts them")
expect(c.call_error("snapshot.delete", {"snapshot": ids[0]}) == "busy", "what runs cannot be deleted")
for i in (ids[1], ids[0]):
    if c.call("snapshot.cancel", {"snapshot": i})["snapshot"]["state"] != "cancelled":
        fail("cancel")
expect(c.call_error("snapshot.cancel", {"snapshot": ids[0]}) == "busy", "cancel, queued and decoding; once")
d.behave("real")
for p in d.decoders():
    os.kill(p, signal.SIGKILL)  # the third began as the first was cancelled
wait_for("the last is done", lambda: state_of(c, ids[3])["state"] == "done")
wait_for("nothing half-made", lambda: not d.spool()[1])
whole, _, other = d.spool()
expect(ids[0] not in whole and ids[1] not in whole and ids[3] in whole and not other, "the cancelled left nothing")
is_well(target)
expect(d.stop() == 0, "the daemon ends well")

# SIGTERM while one decodes: its waiter is told, nothing half-made stays, no decoder is left.
d.behave("exec sleep 6000")
d.start()
c = d.client()
t = c.arm(target.pid, stacks="fp")["id"]
rid = c.send("snapshot.create", {"target": t, "wait": True})
pid = wait_for("the decoder runs", d.decoders)[0]
whole = d.spool()[0]
d.process.send_signal(signal.SIGTERM)
try:
    s = c.wait(rid)["snapshot"]
    expect(s["state"] == "cancelled", "SIGTERM cancels what decodes")
except (Error, Closed) as e:
    fail(f"the waiter was not told: {e}")
expect(d.stop() == 0 and d.spool() == (whole, [], []), "and leaves nothing half-made")
expect(not os.path.exists(f"/proc/{pid}"), "and no decoder")
is_well(target)
