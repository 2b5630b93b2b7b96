#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""What is shown of a program that burns CPU on two processors is what it did itself, also where the ring of one of them
begins long after that of the other: no wait lies over time in which the program was running, by its own clock; what is not
recorded of both is "not known", and not in the sums. Where no ring wraps all of it is known, from arming on."""
from lib.capture import *
from lib.texttrace import slices_of

# Burns on the first processor, on the second, on the first again; then sleeps. It writes down from when to when it looked
# at the clock without a jump: then it was running, but for others that took the processor for less than a jump. So it also
# writes down the processor time that it was charged.
BURNER = r"""
import os, sys, time
first, second, ms, jump = *map(int, sys.argv[1:4]), 20000
clock, ran = time.monotonic_ns, []
def burn(ms):
    begin = last = clock()
    end = begin + ms * 1000000
    while last < end:
        now = clock()
        if now - last > jump:
            ran.append((begin, last))
            begin = now
        last = now
    ran.append((begin, last))
os.sched_setaffinity(0, {first})
print("ready", flush=True)
sys.stdin.readline()
charged = time.thread_time_ns()
burn(100)
os.sched_setaffinity(0, {second})
burn(ms)
os.sched_setaffinity(0, {first})
burn(100)
print(time.thread_time_ns() - charged, *(f"{a}-{b}" for a, b in ran), flush=True)
sys.stdin.readline()
"""

# Two processes that take turns on one processor for as long as they live.
NOISE = r"""
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
a, b = os.pipe(), os.pipe()
if os.fork() == 0:
    os.close(a[1]), os.close(b[0])
    while os.read(a[0], 1): os.write(b[1], b"x")
    os._exit(0)
os.close(a[0]), os.close(b[1])
print("ready", flush=True)
os.write(a[1], b"x")
while os.read(b[0], 1): os.write(a[1], b"x")
"""
SLACK = 100000  # the clocks' error, and how long the program takes to look at its clock


def python(text, *args):
    p = spawn(interpreter(), "-c", text, *map(str, args), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    if p.stdout.readline().strip() != "ready":
        fail("the program did not start")
    return p


def children(pid):
    return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def record(ring_kib, noisy, ms=600):
    """What the burner did by its own account and by the kernel's, its slices, the summary, meta.json, and tracectl's text."""
    with Tracerd(config=f"[capture]\nring_kib = {ring_kib}\n", name=f"lookback-{ring_kib}-{ms}") as d:
        c = d.client()
        if c.call("status")["backends"]["sample"]["method"] != "cpu":
            skip("no cpu-wide events or no BPF here")
        burner = python(BURNER, first, second, ms)
        noise = python(NOISE, second) if noisy else None
        armed = []
        for pid in [burner.pid] + ([noise.pid, *children(noise.pid)] if noisy else []):
            armed.append(c.call("target.arm", {"pid": pid, "stacks": "fp"})["target"])
        burner.stdin.write("go\n")
        charged, *ran = burner.stdout.readline().split()
        ran = [tuple(map(int, r.split("-"))) for r in ran]
        s = c.snapshot(armed[0]["id"])
        if s["state"] != "done":
            fail(f"the snapshot is {s['state']}: {s['error']}")
        out = tmp() / f"bundle-{ring_kib}-{ms}"
        r = d.tracectl("fetch", s["id"], "-o", f"{out}/")
        if r.returncode:
            fail(f"fetch: {r.stderr}")
        r = d.tracectl("decode", out, "--format=text", "-o", tmp() / f"trace-{ring_kib}", "--summary")
        if r.returncode:
            fail(f"decode: {r.stderr}")
        burner.kill()
        if noise:
            for pid in children(noise.pid):
                os.kill(pid, signal.SIGKILL)
            noise.kill()
        meta = json.loads((out / "meta.json").read_text())
        text = (tmp() / f"trace-{ring_kib}").read_text()
        return (ran, int(charged), slices_of(text)[burner.pid], meta, next(t for t in s["summary"]["threads"] if t["tid"] == burner.pid),
                s["summary"], r.stdout + r.stderr)


def not_known(drawn):
    """But for where the kernel had no room for a single switch on a busy machine."""
    return [s for s in drawn if s[0].startswith("not known") and not any(a.startswith("left the CPU=") for a in s[3])]


def lies(ran, drawn):
    """The waits that lie over time in which the program was running, and how long each does."""
    over = [(s, sum(max(0, min(s[2], b) - max(s[1], a)) for a, b in ran)) for s in drawn if s[0].startswith("off CPU")]
    return [(s[0], s[2] - s[1], ns) for s, ns in over if ns > SLACK]


need_root("cpu-wide events")
cpus = sorted(os.sched_getaffinity(0))
if len(cpus) < 2:
    skip("one processor")
first, second = cpus[:2]

# On a busy machine those that take turns take fewer of them, or others fill both rings before the snapshot.
kib, ms = 64, 600
for attempt in range(8):
    ran, charged, drawn, meta, thread, summary, text = record(kib, True, ms)
    unknown = not_known(drawn)
    if second not in {g["cpu"] for g in meta["gaps"]}:
        ms *= 4
    elif any(u[1] > ran[-1][1] for u in unknown):
        kib *= 2
    else:
        break
else:
    fail("the second processor's ring never wraps alone")
wrong = lies(ran, drawn)
expect(not wrong, f"no wait lies over time in which it ran: {wrong[:3]}")
expect("complete_from_ns" in summary, "what is known of both processors begins later than the rest")
expect(len(unknown) == 1 and unknown[0][2] == summary["complete_from_ns"] and unknown[0][1] <= ran[-1][1],
       "the time before is one slice, \"not known\"")
expect(all(s[1] >= unknown[0][2] for s in drawn if s != unknown[0]), "nothing else of it is drawn as time")
span = summary["to_ns"] - summary["complete_from_ns"]
expect(summary["complete_ns"] == span < summary["to_ns"] - summary["from_ns"], "the summary says how much is complete")
expect((thread["off_cpu_ns"] or 0) + (thread["on_cpu_ns"] or 0) <= span, "and adds up no more than that")
expect(all(w["begin_ns"] >= summary["complete_from_ns"] for w in summary["waits"]), "nor are waits ranked from before")
expect("recorded    complete for " in text and ", parts back to " in text, "and so says its text")
expect(not any("ring" in kind for kind in summary["losses"]) and "overwritten" not in text, "that a ring has wrapped is no loss")

ran, charged, drawn, meta, thread, summary, text = record(4096, False)
if meta["gaps"]:
    fail(f"rings of 4 MiB have wrapped: {meta['gaps']}")
expect("complete_ns" not in summary and not not_known(drawn),
       "where no ring has wrapped all of it is known")
wrong = lies(ran, drawn)
expect(any(s[0].startswith("off CPU") for s in drawn) and not wrong, f"no wait lies over time in which it ran: {wrong[:3]}")
missed = sum(s[2] - s[1] for s in drawn if s[0].startswith("not known"))
print(f"# charged {charged}, ran {sum(b - a for a, b in ran)}, on CPU {thread['on_cpu_ns']}, not known {missed}")
expect(thread["on_cpu_ns"] + missed >= charged - charged // 10,
       f"it ran {charged / 1e6:.0f} ms by the kernel's account, {thread['on_cpu_ns'] / 1e6:.0f} by ours")
