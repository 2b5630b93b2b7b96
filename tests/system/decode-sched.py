#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""perf sched record, which has nothing but the kernel's tracepoints: they become switches, waits and wake-ups, those that
perf script prints of the program that was recorded, and no samples."""
from lib import *

SLEEPER = """
import os, time
print(os.getpid())
for _ in range(5):
    time.sleep(0.03)
"""

need_root("tracepoints")
need_command("perf", "linux-perf")
data, trace = tmp() / "sched.data", tmp() / "trace.txt"


def recorded():
    """A recording of the sleeper -> its pid, what tracectl says of it, the lines of the trace."""
    p = subprocess.run(["perf", "sched", "record", "-N", "-o", data, sys.executable, "-c", SLEEPER], capture_output=True, text=True)
    if p.returncode or not data.exists():
        skip(f"perf sched record does not work here: {p.stderr.strip()[-200:]}")
    sleeper = p.stdout.strip()
    p = subprocess.run([BUILD / "tracectl", "decode", data, "-o", trace, "--json"], capture_output=True, text=True)
    if p.returncode:
        fail(f"decode: {p.stderr}")
    return sleeper, json.loads(p.stdout), [line.split("\t") for line in trace.read_text().splitlines()]


def sleeps_of_perf(sleeper):
    script = subprocess.run(["perf", "script", "-i", data, "--ns", "-F", "time,event,trace"], capture_output=True, text=True)
    sleeps, out = [], None
    for line in script.stdout.splitlines():
        time, _, event = line.partition(": ")
        if "sched_switch:" not in event:
            continue
        time = int(time.strip().replace(".", ""))
        if f" prev_pid={sleeper} " in event:
            out = time if "prev_state=S " in event else None
        elif f" next_pid={sleeper} " in event and out is not None:
            sleeps.append((out, time))
            out = None
    return sleeps


def sleeps_drawn(sleeper, text):
    tracks = [f[1] for f in text if f[0] == "T" and f[4] == sleeper]
    sleeps, began = [], None
    for f in text:
        if len(f) < 3 or f[1] not in tracks:
            continue
        if f[2] == "B" and f[3].startswith('"off CPU: sleeping'):
            began = int(f[0])
        elif f[2] == "E" and began is not None:
            if not any(word in "".join(f[3:]) for word in ("was not recorded", "not over")):
                sleeps.append((began, int(f[0])))
            began = None
    return sleeps


# Some recordings lack what an idle processor does: who is woken there comes back without a switch. Another one is made then.
for _ in range(20):
    sleeper, result, text = recorded()
    slept, drawn = sleeps_of_perf(sleeper), sleeps_drawn(sleeper, text)
    if set(slept) != set(drawn):
        fail(f"the sleeps that perf script prints are not those that are drawn: {sorted(set(slept) ^ set(drawn))}")
    if len(slept) >= 5:
        break
else:
    skip("perf records no whole sleep")
ok(f"{len(slept)} sleeps are drawn, each from its switch to its switch, and no other")

stats = result["stats"]
expect(stats["samples"] == 0 and stats["switches"] > 10 and stats["wakeups"] >= 5,
       f"{stats['switches']} switches, {stats['wakeups']} wake-ups, no samples")
expect(any(f[1].startswith("cpu") and f[2] == "S" for f in text if len(f) > 2), "the scheduler's tracks have them")
expect(all(t["samples"] == 0 for t in result["summary"]["threads"]) and not result["summary"]["heaviest"],
       "nothing is a stack that took time")
expect("bad_sched_events" not in result["losses"], "the kernel's structs are as they are known")
