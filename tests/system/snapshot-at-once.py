#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Several targets' moments are asked for while the copier is held up: each is frozen then, and what its rings had is set aside, so that it
is there when they have long been overwritten. Where a moment is frozen later than it was meant, that is said, and by how much; else not."""
import ctypes

from lib.capture import *
from lib.events import Numbers, registered

PTRACE_SEIZE, PTRACE_INTERRUPT, PTRACE_DETACH, WALL = 0x4206, 0x4207, 17, 0x40000000
LATE_NS = 10**7
HOLES_MIB = 24
# Its rings have some seconds: more than a busy machine needs to set them aside, and soon overwritten.
BUSY = r"""
import time
print("ready", flush=True)
while True: time.sleep(0.0003)
"""
need_root("cpu-wide events")
libc = ctypes.CDLL(None, use_errno=True)


def ptrace(request, tid):
    if libc.ptrace(request, tid, None, None) < 0:
        fail(f"ptrace {request} of {tid}: {os.strerror(ctypes.get_errno())}")


def now():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def thread_before(pid, name):
    """The one that was made just before the thread of this name. Behind the largest number the smallest come again."""
    tids = sorted((int(t) for t in os.listdir(f"/proc/{pid}/task")), key=lambda t: (t < pid, t))
    for i, tid in enumerate(tids):
        if pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text().strip() == name:
            return tids[i - 1]
    fail(f"no thread {name}")


def hold(d):
    """Its copier stops: it is to be let go."""
    copier = thread_before(d.pid, "tracerd-hurry")
    ptrace(PTRACE_SEIZE, copier)
    ptrace(PTRACE_INTERRUPT, copier)
    os.waitpid(copier, WALL)
    return copier


def marked(d, snapshot):
    """Whether the timeline says that it was late."""
    out = tmp() / snapshot
    d.tracectl("fetch", snapshot, "-o", f"{out}/")
    text = d.tracectl("decode", "--format", "text", "-o", "-", out)
    if text.returncode:
        fail(text.stderr)
    return "the snapshot was asked for, and frozen" in text.stdout


def said(s, asked, what):
    """What is said of the freeze agrees with the times that are told."""
    if s["asked_raw_ns"] != asked:
        fail(f"{what}: asked for at {s['asked_raw_ns']}, not {asked}")
    apart = s["frozen_raw_ns"] - asked
    if s["late_ns"] != (apart if apart > LATE_NS else 0):
        fail(f"{what}: {apart} ns late, and {s['late_ns']} are said")


with Tracerd(config="[capture]\nring_kib = 256\n[snapshot]\nsnapshot_timeout_s = 600\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    programs = [spawn(interpreter(), "-c", BUSY, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    for p in programs:
        p.stdout.readline()
    targets = [c.arm(p.pid)["id"] for p in programs]
    for t in targets:
        wait_for("records", lambda: c.call("target.show", {"target": t})["target"]["switches"] > 0)

    copier = hold(d)
    asked = [now() for _ in targets]
    ids = [c.call("snapshot.create", {"target": t, "asked_raw_ns": asked[i]})["snapshot"]["id"] for i, t in enumerate(targets)]

    def state(i):
        return c.call("snapshot.show", {"snapshot": ids[i]})["snapshot"]

    for i in range(1, len(ids)):
        wait_for("it waits for its copy", lambda: state(i)["progress"]["stage"] == "waiting")
        expect(state(i)["state"] == "freezing" and state(i)["frozen_at"], f"{targets[i]} is frozen while the copier is held up")
    # One is gone, and its program with it: it has had its moment.
    c.call("target.disarm", {"target": targets[2]})
    programs[2].kill()
    for t in targets[:2]:
        def overwritten():
            shown = c.call("target.show", {"target": t})["target"]
            return now() - shown["lookback_ns"] > max(asked) + 10**9
        wait_for("its rings to be overwritten", overwritten)
    note(f"rings reach back {c.call('target.show', {'target': targets[0]})['target']['lookback_ns'] / 1e9:.1f} s")
    ptrace(PTRACE_DETACH, copier)

    for i, s in enumerate(ids):
        wait_for("its end", lambda: state(i)["state"] == "done")
        files = c.fetch(s, "meta.json", "perf.data")
        meta, times = json.loads(files["meta.json"]), [r.time for r in records(files["perf.data"]) if r.time and r.id in (SCHED, SCHED_PLAIN)]
        expect(meta["events"]["complete_from_ns"] < asked[i], f"{targets[i]}: complete since before it was asked for")
        expect(any(t < asked[i] for t in times) and max(times) <= meta["frozen_raw_ns"], f"{targets[i]}: with what was before ({len(times)} switches)")
        said(meta["snapshot"], asked[i], targets[i])
        said(state(i), asked[i], targets[i])
        is_late = meta["snapshot"]["late_ns"] > 0
        expect(marked(d, s) == is_late, f"{targets[i]}: the trace says if it was late ({is_late})")
        note(f"frozen {(meta['frozen_raw_ns'] - asked[i]) / 1e6:.1f} ms after it was asked for")

    # A request that was a second on its way.
    meant = now() - 10**9
    meta, recs, s = bundle(c, targets[0], asked_raw_ns=meant)
    said(meta["snapshot"], meant, "late")
    expect(s["late_ns"] >= 10**9, "one that came late is late")
    shown = d.tracectl("show", s["id"]).stdout
    expect("after it was asked for" in shown, "which tracectl says")
    within = meta["events"]["complete_from_ns"] <= meant
    expect(marked(d, s["id"]) == within, f"and the timeline, if the recording has that moment ({within})")
    expect(d.status()["losses"]["snapshots_not_set_aside"] == 0, "there was memory for all")
    # One of which nothing is recorded any more has its end long before.
    programs[0].kill()
    wait_for("its exit", lambda: c.call("target.show", {"target": targets[0]})["target"]["state"] == "exited")
    meta, recs, s = bundle(c, targets[0], asked_raw_ns=now() - 10**9)
    expect(s["late_ns"] == 0 and "after it was asked for" not in d.tracectl("show", s["id"]).stdout, "a target that has exited is not late")

# Without memory for it, it is what the rings have when its turn comes.
with Tracerd(name="small", config="[capture]\nring_kib = 64\n[snapshot]\nfrozen_mib = 0\n") as d:
    c = d.client()
    t = c.arm(programs[1].pid)["id"]
    wait_for("records", lambda: c.call("target.show", {"target": t})["target"]["switches"] > 0)
    meta, recs, s = bundle(c, t)
    expect(any(r.id in (SCHED, SCHED_PLAIN) for r in recs), "with frozen_mib = 0 it is copied from the rings")
    expect(d.status()["losses"]["snapshots_not_set_aside"] == 1, "which is counted")

# What nobody has written to takes no memory: event rings are far larger than what is in them.
with Tracerd(name="holes", config=f"[snapshot]\nfrozen_mib = {HOLES_MIB}\n") as d:
    c = d.client()
    w = Numbers(d, 64, 100000)
    t = registered(c, w.pid)["id"]
    wait_for("all threads have written", lambda: all(w.told()))
    copier = hold(d)
    ids = [c.call("snapshot.create", {"target": t})["snapshot"]["id"] for _ in range(3)]
    for i in ids[1:]:
        wait_for("it waits for its copy", lambda: c.call("snapshot.show", {"snapshot": i})["snapshot"]["progress"]["stage"] == "waiting")
    ptrace(PTRACE_DETACH, copier)
    for i in ids:
        wait_for("its end", lambda: c.call("snapshot.show", {"snapshot": i})["snapshot"]["state"] == "done")
    rings = json.loads(c.fetch(ids[0], "meta.json")["meta.json"])["rings"][0]
    if not HOLES_MIB << 19 < rings["bytes"] < HOLES_MIB << 20 or rings["rings"] < 60:
        fail(f"its rings are not what this test is for: {rings}")
    expect(d.status()["losses"]["snapshots_not_set_aside"] == 0, "several times what could be in the rings is set aside")
    w.close()

# What is set aside and does not fit the bundle is not left out as a whole.
with Tracerd(name="cut", config="[snapshot]\nmax_output_mib = 8\n") as d:
    c = d.client()
    w = Numbers(d, 64, 100000)
    t = registered(c, w.pid)["id"]
    wait_for("all threads have written", lambda: all(w.told()))
    rings = bundle(c, t)[0].get("rings", [])
    expect(len(rings) == 1 and rings[0]["rings"] > 0 and rings[0]["rings_left_out"] > 0, f"the rings that fit are kept: {rings}")
