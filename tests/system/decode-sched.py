#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf sched record, which has nothing but the kernel's tracepoints: they become switches, waits and wake-ups, as the
program that was recorded knows of them, and no samples."""
from lib import *

SLEEPER = """
import time
for _ in range(5):
    begin = time.monotonic_ns()
    time.sleep(0.03)
    print(time.monotonic_ns() - begin)
"""

need_root("tracepoints")
need_command("perf", "linux-perf")
data, trace = tmp() / "sched.data", tmp() / "trace.txt"
p = subprocess.run(["perf", "sched", "record", "-o", data, sys.executable, "-c", SLEEPER], capture_output=True, text=True)
if p.returncode or not data.exists():
    skip(f"perf sched record does not work here: {p.stderr.strip()[-200:]}")
slept = sorted(int(line) for line in p.stdout.split())
p = subprocess.run([BUILD / "tracectl", "decode", data, "-o", trace, "--json"], capture_output=True, text=True)
if p.returncode:
    fail(f"decode: {p.stderr}")
result = json.loads(p.stdout)
stats, text = result["stats"], trace.read_text().splitlines()
expect(stats["samples"] == 0 and stats["switches"] > 10 and stats["wakeups"] >= 5,
       f"{stats['switches']} switches, {stats['wakeups']} wake-ups, no samples")
expect(any("\tcpu" in line and "\tS\t" in line for line in text), "the scheduler's tracks have them")
expect(all(t["samples"] == 0 for t in result["summary"]["threads"]) and not result["summary"]["heaviest"],
       "nothing is a stack that took time")
expect("bad_sched_events" not in result["losses"], "the kernel's structs are as they are known")

if result["losses"].get("records_lost"):
    skip("perf has lost records: the waits that are left cannot be counted on")
# The sleeper's track is the one with five waits of that length; each is as long as the program was away, or shorter.
tracks, open_at = {}, {}
for f in (line.split("\t") for line in text):
    if len(f) > 3 and f[2] == "B" and f[3] == '"off CPU: sleeping"':
        open_at[f[1]] = int(f[0])
    elif len(f) > 2 and f[2] == "E" and f[1] in open_at:
        tracks.setdefault(f[1], []).append(int(f[0]) - open_at.pop(f[1]))
found = [sorted(w for w in waits if w >= 29000000)[:len(slept)] for waits in tracks.values()]
expect(any(len(w) == len(slept) and all(a <= b + 1000000 for a, b in zip(w, slept)) for w in found),
       f"the program slept five times, {slept[0] / 1e6:.1f} ms and more, and so it is drawn")
