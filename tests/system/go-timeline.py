#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""The timeline of a Go trace, asked in SQL through Perfetto's own engine: what each processor and thread ran and when, system
calls, flows, counters, delays by stack and what goroutines did in all are what Go's own viewer and profiles say of the same
trace (../shared/data/go/ref/view)."""
import collections
import json
import lzma
import re

from lib import *
from lib.tp import TROUBLE, Engine

DATA = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "go"
if not (DATA / "ref/view").is_dir():
    skip("the recorded traces of Go (TRACERD_DATA or ../shared/data) are not here")
if not Engine("/dev/null").works():
    skip("there is no trace processor (TRACERD_TP or ../shared/tools/tp-query)")


def decoded(name):
    path, xz = DATA / f"{name}.trace", DATA / f"{name}.trace.xz"
    if not path.exists():
        path = tmp() / "in.trace"
        path.write_bytes(lzma.decompress(xz.read_bytes()))
    out = tmp() / "out.pftrace"
    p = subprocess.run([BUILD / "tracectl", "decode", "-o", out, path], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode != 0:
        fail(f"{name}: {p.stderr}")
    return Engine(out)


def reference(view, kind):
    return json.load(lzma.open(view / f"{kind}.json.xz"))["traceEvents"]


def table(view, name):
    return [line.split("\t") for line in (view / f"{name}.tsv").read_text().splitlines() if not line.startswith("#")]


def ns(us):
    return round(us * 1000)


def goroutine(name):
    """(number, function) of a name; the viewer puts a label behind it, and may not know the function yet."""
    m = re.match(r"G(\d+)(?: ([^ ]+))?", name)
    return int(m[1]), m[2]


def same_slices(found, expected, what):
    """Rows of (place, name, begin, duration)."""
    ours = {(place, goroutine(name)[0], begin, dur): goroutine(name)[1] for place, name, begin, dur in found}
    theirs = {(place, goroutine(name)[0], begin, dur): goroutine(name)[1] for place, name, begin, dur in expected}
    if ours.keys() != theirs.keys():
        fail(f"{what}: only ours {sorted(ours.keys() - theirs.keys())[:5]}, only Go's {sorted(theirs.keys() - ours.keys())[:5]}")
    other = {k: (ours[k], theirs[k]) for k in ours if theirs[k] and ours[k] != theirs[k]}
    expect(not other, f"{what}: {len(ours)} slices of goroutines are Go's, and the functions that they are named by: {dict(list(other.items())[:3])}")


# The argument is cut at a length; so many frames it always has.
FRAMES = 8


def stack_of(text):
    """The innermost frames as Go's profiles print them: function:line."""
    return tuple(f"{m[1]}:{m[2]}" for m in re.finditer(r"(\S+) \([^ ]*?:(\d+)\)", text.replace(" <- ", " ")))[:FRAMES]


STATES = """select t.name, s.name, s.ts - {t0}, s.dur, coalesce(extract_arg(s.arg_set_id, 'debug.stack'), ''),
    coalesce(extract_arg(s.arg_set_id, 'debug.note'), '') from slice s join track t on s.track_id = t.id
    where t.name glob 'G[0-9]*' and s.depth = 0 and s.category = 'goroutine' order by t.name, s.ts"""


def changes(values):
    """Without those that say what the one before has said."""
    out, last = {}, None
    for ts, value in sorted(values.items()):
        if value != last:
            out[ts] = last = value
    return out


def check(view):
    name = re.sub(r"^(golang-go|recorded|jeremyforan-go-observer-pattern)_", r"\1/", view.name)
    name = re.sub(r"/(tests-bin|flightrecorder|go1\.\d\d)_", r"/\1/", name)
    e = decoded(name)
    t0 = int(e.value("select min(ts) from slice"))
    trouble, procs, syscalls, threads, states, moments, flows, heap, gc = e.ask(
        (TROUBLE, 1),
        (f"select t.name, s.name, s.ts - {t0}, s.dur from slice s join track t on s.track_id = t.id "
         "where t.name glob 'P[0-9]*' and s.name glob 'G[0-9]*'", 4),
        (f"select t.name, s.ts - {t0}, s.dur, coalesce(extract_arg(s.arg_set_id, 'debug.blocked'), 'open') from slice s "
         "join track t on s.track_id = t.id where t.name glob 'P[0-9]*' and s.name = 'system call'", 4),
        (f"select thread.tid, s.name, s.ts - {t0}, s.dur from slice s join thread_track t on s.track_id = t.id "
         "join thread using (utid) where t.name = 'goroutines' and s.name glob 'G[0-9]*'", 4),
        (STATES.format(t0=t0), 6),
        (f"select s.name, s.ts - {t0}, extract_arg(s.arg_set_id, 'debug.goroutine'), coalesce(extract_arg(s.arg_set_id, 'debug.stack'), '') "
         "from slice s where s.name in ('go', 'unblock', 'exit blocked syscall')", 4),
        ("select o.name || coalesce(' (' || extract_arg(o.arg_set_id, 'debug.reason') || ')', ''), count(*) from flow f "
         "join slice o on f.slice_out = o.id where o.category = 'goroutine' group by 1", 2),
        (f"select c.ts - {t0}, t.name, cast(c.value as int) from counter c join track t on c.track_id = t.id where t.name like 'Go: heap%'", 3),
        (f"select s.name, s.ts - {t0}, s.dur from slice s where s.category = 'gc' and s.name like '%concurrent mark%'", 3))
    expect(trouble[0][0] == "NULL", f"{name}: the engine has nothing to say: {trouble}")

    theirs = reference(view, "proc")
    x = [ev for ev in theirs if ev["ph"] == "X"]
    same_slices([(int(p[1:]), n, int(ts), int(d)) for p, n, ts, d in procs],
                [(ev["tid"], ev["name"], ns(ev["ts"]), ns(ev["dur"])) for ev in x if re.match(r"G\d", ev["name"])], f"{name}, by processor")
    found = collections.Counter((int(p[1:]), int(ts), int(d)) for p, ts, d, blocked in syscalls)
    expected = collections.Counter((ev["tid"], ns(ev["ts"]), ns(ev["dur"])) for ev in x if ev["name"] == "syscall")
    expect(found == expected, f"{name}: system calls: {list((found - expected).items())[:5]} {list((expected - found).items())[:5]}")
    blocked = {(ev["tid"], ns(ev["ts"])): ev["args"]["blocked"] for ev in x if ev["name"] == "syscall"}
    wrong = [s for s in syscalls if s[3] != "open" and blocked[int(s[0][1:]), int(s[1])] != s[3]]
    expect(not wrong, f"{name}: whether they blocked: {wrong[:5]}")
    found = {(int(ts), int(d)) for _, ts, d in gc}
    expected = {(ns(ev["ts"]), ns(ev["dur"])) for ev in x if ev["name"] == "GC concurrent mark phase"}
    expect(found == expected, f"{name}: garbage collections: {found ^ expected}")

    theirs = reference(view, "thread")
    if all(ev.get("tid", 0) < 1 << 30 for ev in theirs):
        same_slices([(int(tid), n, int(ts), int(d)) for tid, n, ts, d in threads],
                    [(ev["tid"], ev["name"], ns(ev["ts"]), ns(ev["dur"])) for ev in theirs if ev["ph"] == "X" and re.match(r"G\d", ev["name"])],
                    f"{name}, by thread")
    ended = {(ev["name"], ev["id"]) for ev in theirs if ev["ph"] == "t"}
    expected = collections.Counter(ev["name"] for ev in theirs if ev["ph"] == "s" and (ev["name"], ev["id"]) in ended)
    found = collections.Counter({n: int(k) for n, k in flows if not n.startswith("exit blocked")})
    expect(found == expected, f"{name}: flows: {found} and {expected}")

    # The viewer's "next GC" is what is left to the goal.
    ours, goal, allocated = {}, 0, 0
    for ts, what, value in sorted(heap, key=lambda row: int(row[0])):
        goal, allocated = (int(value), allocated) if what.endswith("goal") else (goal, int(value))
        ours[int(ts)] = (allocated, max(goal - allocated, 0))
    expected = {ns(ev["ts"]): (ev["args"]["Allocated"], ev["args"]["NextGC"]) for ev in theirs if ev["ph"] == "C" and ev["name"] == "Heap"}
    expect(changes(ours) == changes(expected), f"{name}: the heap: {sorted(changes(ours).items() ^ changes(expected).items())[:6]}")

    # Delays: what a goroutine was in, by the stack of what put it there.
    by = {(int(ts), int(g)): stack_of(stack) for what, ts, g, stack in moments if what != "go"}
    delays = collections.defaultdict(lambda: [0, 0])
    ran = set()
    for track, state, ts, dur, stack, note in states:
        if state == "running":
            ran.add(track)
        kind = ("io" if state == "waiting: network" else "syscall" if state == "system call" else "sched" if state == "runnable" else
                "block" if re.search("^waiting: .*(chan|sync|select)", state) else None)
        if kind and "trace ended" not in note and not (state == "runnable" and note):
            at = (int(ts), goroutine(track)[0])
            # Go's profiles leave out what was before the goroutine first ran.
            if kind in ("sched", "syscall") and track not in ran:
                continue
            entry = delays[kind, by.get(at, stack_of(stack)) if kind == "sched" else stack_of(stack)]
            entry[0] += 1
            entry[1] += int(dur)
    for kind in ("io", "block", "syscall", "sched"):
        expected = collections.defaultdict(lambda: [0, 0])
        for count, total, *frames in table(view, kind):
            entry = expected[tuple(filter(None, frames))[:FRAMES]]
            entry[0] += int(count)
            entry[1] += int(total)
        found = {stack: v for (k, stack), v in delays.items() if k == kind}
        expect(found == expected, f"{name}: {len(expected)} delays of kind {kind} are those of Go's profile: "
                                  f"{[(k, found.get(k), expected.get(k)) for k in found.keys() | expected.keys() if found.get(k) != expected.get(k)][:3]}")

    running = collections.defaultdict(int)
    members = collections.defaultdict(set)
    for track, state, ts, dur, stack, note in states:
        number, function = goroutine(track)
        members[function].add(number)
        running[function] += int(dur) if state == "running" else 0
    units = {"ns": 1, "µs": 1e3, "ms": 1e6, "s": 1e9}
    for function, count, total in table(view, "goroutines"):
        function = None if function.startswith("(") else function
        value, unit = re.fullmatch(r"([\d.]+)(\D+)", total).groups()
        expect(len(members[function]) == int(count) and running[function] == round(float(value) * units[unit]),
               f"{name}: {count} x {function} ran for {total}: {len(members[function])} {running[function]}")


for view in sorted((DATA / "ref/view").iterdir()):
    check(view)
