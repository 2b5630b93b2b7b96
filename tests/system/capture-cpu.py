#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# The machine-wide set with its BPF filter: all threads of a process are sampled, also those that come
# later, waits have stacks and wakers, and nothing of anybody else is in a user's bundle.
import struct

from lib.capture import *

NOBODY = 65534

need_root("cpu-wide events")
with Tracerd() as d:
    c = d.client()
    status = c.call("status")
    if status["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here: " + status["backends"]["sample"]["why"])

    # Names of this test only: a user sees those of all own processes, and tests beside this one have some, too.
    mine = Target(f"mine-{os.getpid()}")
    theirs = Target("theirs", uid=NOBODY)
    bystander = Target(f"by-{os.getpid()}")
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    t = c.call("target.arm", {"pid": mine.pid, "stacks": "fp", "wait_min_us": 0})["target"]
    expect(t["method"] == "cpu" and t["stacks"] == "fp" and t["state"] == "armed", "armed on the machine's set")
    again = c.call("target.arm", {"pid": mine.pid, "stacks": "fp"})
    expect(again["already"] and again["target"]["id"] == t["id"], "armed again, it is the target that it was")
    expect(c.call_error("target.arm", {"pid": mine.pid, "children": True}) == "busy", "but not where more is asked for")
    mine.tell("thread late")
    let_work(mine.pid, "early", "late")

    meta, recs, s = bundle(c, t["id"])
    samples = [r for r in recs if r.type == SAMPLE and r.id == CLOCK]
    expect({r.pid for r in samples} == {mine.pid}, "samples are of the target only")
    by_name = collections.Counter(names(recs).get(r.tid) for r in samples)
    expect(by_name["early"] > 50 and by_name["late"] > 50, f"all threads are sampled, the new one too: {dict(by_name)}")
    expect(meta["records"]["samples"] == len(samples), "meta.json counts them as they are")
    expect(all(b.time <= meta["frozen_raw_ns"] for b in recs if b.time), "nothing is younger than the freeze")

    switches = [sched(r) for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN)]
    kinds = collections.Counter(w.kind for w in switches)
    expect(min(kinds[OUT], kinds[IN], kinds[WAKEUP]) > 20, f"switches and wake-ups are there: {dict(kinds)}")
    expect({w.pid for w in switches} == {mine.pid}, "their subjects are the target's threads")
    expect(any(w.kind == WAKEUP and w.flags & 6 == 6 for w in switches), "timers wake from interrupts, and it is known")
    chains = [struct.unpack_from("<Q", r.body, 48)[0] for r in recs
              if r.type == SAMPLE and r.id == SCHED and sched(r).kind == OUT]
    expect(sum(n >= 2 for n in chains) > len(chains) / 2, "switches have the stacks of their waits")
    maps = [r for r in recs if r.type == MMAP2]
    expect(any(b"libc" in r.body for r in maps) and {r.pid for r in maps} == {mine.pid}, "maps from before are told")
    if kinds[OUT]:
        expect(any(w.other_tid not in (0, 0xffffffff) and w.comm not in ("other", "") for w in switches),
               "an administrator sees who ran instead")

    # A user, on the same rings.
    def user():
        with Client(d.sock) as u:
            t2 = u.arm(theirs.pid, stacks="fp")
            let_work(theirs.pid)
            m2, r2, _ = bundle(u, t2["id"])
            mine_too = {r.pid for r in r2 if r.type == SAMPLE} - {theirs.pid}
            expect(not mine_too, "a user's bundle has samples of nobody else")
            sw = [sched(r) for r in r2 if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN)]
            expect(len(sw) > 20 and {w.pid for w in sw} == {theirs.pid}, "and no switches of anybody else")
            others = {(w.comm, w.other_pid) for w in sw if w.other_pid != theirs.pid and w.other_tid != 0
                      and w.other_uid != NOBODY}
            expect(others <= {("other", 0xffffffff)}, f"who ran instead has no name: {others}")
            text = b"".join(r.body for r in r2)
            for word in (f"mine-{os.getppid()}", f"by-{os.getppid()}"):
                if word.encode() in text:
                    fail(f"a user's bundle names {word}")
            ips = [struct.unpack_from("<Q", r.body, 16)[0] for r in r2 if r.type == SAMPLE]
            expect(not any(ip >> 63 for ip in ips), "kernel addresses are zeroed")
            expect(u.call_error("target.show", {"target": t["id"]}) == "not_found", "foreign targets are not visible")
            expect(u.call_error("target.arm", {"pid": bystander.pid}) == "not_permitted", "nor can they be armed")
            expect(m2["target"]["uid"] == NOBODY, "the bundle says whose it is")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")

    # A single thread.
    tid = next(tid for tid, name in names(recs).items() if name == "late")
    t3 = c.call("target.arm", {"tid": tid, "stacks": "fp", "waits": False})["target"]
    expect(t3["scope"] == "thread" and t3["pid"] == mine.pid, "a thread is armed by its tid")
    let_work(mine.pid, "late", seconds=0.2)
    m3, r3, _ = bundle(c, t3["id"])
    expect({r.tid for r in r3 if r.type == SAMPLE} == {tid}, "and only it is sampled")
    ours = [r for r in r3 if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN)]
    marker = (1 << 64) - 512  # PERF_CONTEXT_USER, in the place of each address
    chains = [struct.unpack_from(f"<{struct.unpack_from('<Q', r.body, 48)[0]}Q", r.body, 56) for r in ours if r.id == SCHED]
    expect(ours and not any(ip != marker for chain in chains for ip in chain),
           f"without waits it has its {len(ours)} switches and wake-ups, and none has a stack")
    shown = c.call("target.show", {"target": t["id"]})["target"]
    since = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - begin
    expect(shown["samples"] > 100 and 10**8 < shown["lookback_ns"] < since, "list tells the real look-back")

    # No target runs: the clocks stop, and start again.
    for target in (mine, theirs):
        target.kill()
    idle = Target("idle", "idle")
    t4 = c.call("target.arm", {"pid": idle.pid, "stacks": "fp"})["target"]
    def resting():
        cap = c.call("status")["capture"]
        return cap["cpus_resting"] == cap["cpus"]
    wait_for("clocks rest while no target runs", resting, step=0.2)
    ok("clocks rest while no target runs")
    idle.tell("thread woken")
    let_work(idle.pid, "woken", seconds=0.2)
    wait_for("clocks run when a target does", lambda: not resting())
    ok("and run when one does")
    m4, r4, _ = bundle(c, t4["id"])
    woken = next(tid for tid, name in names(r4).items() if name == "woken")
    ticks = [r.time for r in r4 if r.type == SAMPLE and r.id == CLOCK and r.tid == woken]
    switches = sorted((r.time, sched(r).kind) for r in r4 if r.type == SAMPLE and r.id != CLOCK and sched(r).tid == woken
                      and sched(r).kind in (IN, OUT))
    # What counts is how long it had run, not how long it had waited for a processor.
    ran, since = 0, None
    for at, kind in [s for s in switches if s[0] < min(ticks)] + [(min(ticks), OUT)]:
        ran += at - since if kind == OUT and since else 0
        since = at if kind == IN else None
    expect(len(ticks) > 30 and 0 < ran < 50e6,
           f"from its first moment on: {len(ticks)} samples, the first when it had run for {ran / 1e6:.1f} ms")
