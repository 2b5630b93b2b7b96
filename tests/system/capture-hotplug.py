#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# alone
# A CPU that goes offline takes the kernel's events with it, also when it comes back; a suspend does that with all but one. What runs
# there then is recorded again soon, what was missed is told and drawn as not known, and nobody waits in the picture who did not.
# Takes a CPU away from the whole machine for moments: in CI, or where TRACERD_TEST_HOTPLUG=1 says that it may.
from lib.capture import *

need_root("CPUs that go offline")
if os.environ.get("CI") != "true" and os.environ.get("TRACERD_TEST_HOTPLUG") != "1":
    skip("takes a CPU offline: only with TRACERD_TEST_HOTPLUG=1")
CPU = max(os.sched_getaffinity(0))
ONLINE = pathlib.Path(f"/sys/devices/system/cpu/cpu{CPU}/online")
if CPU == 0 or not ONLINE.exists():
    skip("a CPU cannot be taken offline here: there is one only, or the kernel has no hotplug")


def online(yes):
    try:
        ONLINE.write_text("1" if yes else "0")
    except OSError as e:
        skip(f"a CPU cannot be taken offline here: {e}")


# Whatever becomes of the test, the CPU comes back.
guard = subprocess.Popen(["/bin/sh", "-c", f"trap '' TERM INT HUP; sleep 240; echo 1 > {ONLINE}"], start_new_session=True)


def pin(pid):
    for tid in os.listdir(f"/proc/{pid}/task"):
        os.sched_setaffinity(int(tid), {CPU})


def losses_of(c, target):
    meta, recs, s = bundle(c, target)
    return meta, recs, s, [g for g in meta["gaps"] if "went or came" in g["kind"]]


def check(d, c, stacks, what, away=0.7):
    t = Target("burner")
    target = c.arm(t.pid, stacks=stacks)["id"]
    pin(t.pid)
    let_work(t.pid, seconds=0.3)
    online(False)
    time.sleep(away)
    online(True)
    pin(t.pid)
    back = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    # At once: what it does now is on no record, and that is known.
    meta, recs, s, gaps = losses_of(c, target)
    expect(gaps and gaps[-1]["to_ns"] >= meta["frozen_raw_ns"] - 10**9 and meta["losses"]["cpu_outages"] >= 1, f"{what}: a snapshot at once says what is missing: {gaps}")
    wait_for("it is recorded there again", lambda: any(r.id == CLOCK and r.time > back and r.pid == t.pid for r in bundle(c, target)[1]))
    let_work(t.pid, seconds=1)
    library = t.load()
    meta, recs, s, gaps = losses_of(c, target)
    expect(len(gaps) == 1, f"{what}: one outage, of {(gaps[0]['to_ns'] - gaps[0]['from_ns']) / 1e9:.2f} s: {gaps}")
    outage = gaps[0]
    # Those of rings from before a change have ids of their own.
    ran = [r.time for r in recs if r.id in (CLOCK, CLOCK + 16, CLOCK + 32) and r.pid == t.pid]
    expect(sum(x > outage["to_ns"] for x in ran) > 50 and sum(x < outage["from_ns"] for x in ran) > 10, f"{what}: before and after it there is all")
    expect(any(library.encode() in r.body for r in recs if r.type == MMAP2), f"{what}: what was mapped afterwards is known")
    # It works 3 ms and sleeps 2: no wait of its working thread is longer than a busy machine makes it.
    worker = [w for w in s["summary"]["waits"] if w["name"] == "early"]
    long = [w for w in worker if w["ns"] > 5 * 10**8 and not w.get("uncertain") and not w.get("since_before")]
    expect(worker and not long, f"{what}: nobody waits who did not: {long[:1]}")
    expect(s["summary"].get("complete_ns", 0) > 0 and "on_cpu_ns" in s["summary"]["threads"][0], f"{what}: what is known is added up")
    folder = tmp() / s["id"]
    for name, data in c.fetch(s["id"]).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    text = d.tracectl("decode", "--format", "text", "-o", "-", folder).stdout
    expect("went or came" in text and '"not known: records are missing"' in text, f"{what}: and the timeline tells it")
    c.call("target.disarm", {"target": target})
    t.process.kill()


try:
    with Tracerd(config="[capture]\nring_kib = 8192\ndwarf_ring_kib = 32768\n") as d:
        c = d.client()
        if c.call("status")["backends"]["sample"]["method"] != "cpu":
            skip("no cpu-wide events or no BPF here")
        check(d, c, "fp", "fp")
        check(d, c, "dwarf", "dwarf")
        check(d, c, "fp", "a moment only", away=0)
        c.call("status")
        wait_for("old rings go", lambda: c.call("status")["capture"]["sets"] == 0)
        ok("and nothing is left of it")

    # A CPU that comes after the daemon.
    online(False)
    with Tracerd() as d:
        c = d.client()
        t = Target("early-bird")
        target = c.arm(t.pid, stacks="fp")["id"]
        let_work(t.pid, seconds=1.2)
        _, _, _, gaps = losses_of(c, target)
        expect(not gaps, "a CPU that is away is no loss")
        online(True)
        pin(t.pid)
        back = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
        wait_for("it is recorded there", lambda: sum(r.id == CLOCK and r.time > back and r.pid == t.pid for r in bundle(c, target)[1]) > 20)
        meta, recs, s, gaps = losses_of(c, target)
        expect(len(gaps) == 1 and gaps[0]["from_ns"] < back, f"what it did before that is told: {gaps}")
finally:
    online(True)
    guard.kill()
