#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What the kernel had no room for is counted and told, and a mapping that went by unseen is found again. A ring
# that wraps keeps the newest, says how far it reaches, and gives a file that stock perf reads.
import shutil

from lib.capture import *

need_root("cpu-wide events")
with Tracerd(config="[capture]\nring_kib = 256\nsample_hz = 5000\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    t = Target("lossy")
    armed = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    x = c.call("target.arm", {"pid": t.pid, "stacks": "fp"})["target"]

    # The daemon stands still while far more happens on the machine than its rings hold.
    os.kill(d.pid, signal.SIGSTOP)
    try:
        seen = t.load()
        subprocess.run(["/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done"], check=True)
        unseen = t.load()
    finally:
        os.kill(d.pid, signal.SIGCONT)
    lost = wait_for("the loss", lambda: c.call("status")["losses"]["history_lost"])
    ok(f"side-band records that were lost are counted: {lost}")
    meta, recs, s = bundle(c, x["id"])
    expect(meta["losses"]["history_lost"] == lost, "and told in the bundle")
    paths = b"".join(r.body for r in recs if r.type == MMAP2)
    expect(seen.encode() in paths and unseen.encode() in paths, "the maps are whole all the same")

    # Rings of a quarter of the smallest: they wrap at once.
    for i in range(3):
        t.tell(f"thread t{i}")

    def wrapped():
        recorded = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - armed
        return c.call("target.show", {"target": x["id"]})["target"]["lookback_ns"] < recorded / 2
    wait_for("the look-back is what the rings hold", wrapped)
    ok("the look-back is what the rings hold")
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    let_work(t.pid, seconds=0.2)
    meta, recs, s = bundle(c, x["id"])
    expect(meta["losses"]["malformed"] == 0, "no record is malformed")
    times = [r.time for r in recs if r.type == SAMPLE and r.id not in (BLOCKED, BLOCKED_ARMED)]
    expect(before < max(times) <= meta["frozen_raw_ns"], "the newest are kept")
    expect(min(times) == meta["records"]["first_ns"] and max(times) == meta["records"]["last_ns"], "and the times are told")
    if working_perf():
        for _ in range(5):
            data = c.fetch(c.snapshot(x["id"])["id"], "perf.data")["perf.data"]
            (tmp() / "perf.data").write_bytes(data)
            r = subprocess.run(["perf", "script", "-i", tmp() / "perf.data", "-F", "event,time"],
                               capture_output=True, text=True, errors="replace")
            n = sum("cpu-clock" in line for line in r.stdout.splitlines())
            if r.returncode or r.stderr or n != sum(q.id == CLOCK for q in records(data)):
                fail(f"perf script: status {r.returncode}, {n} samples, {r.stderr[:300]}")
        ok("perf script reads them without a word")
