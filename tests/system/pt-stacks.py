#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""The stacks that are rebuilt from branches against what the programs themselves say: compiled with -finstrument-functions, they
log each entry and exit with the address of the frame. The calls of their functions in our tree begin and end in the same order,
also where an exception or longjmp leaves them, in signal handlers and on the stacks of coroutines."""
import re

from lib.pt import *

MIB = 20


class Truth:
    """One thread's log to what begins and ends. A frame is gone when its own stack is used at its address or above."""

    def __init__(self):
        self.first = None
        self.open = []  # (function, frame) from the outermost; what is on other stacks stays in `parked`
        self.parked = {}
        self.events = []

    def area(self, frame):
        if self.first is None:
            self.first = frame
        return "own" if -(8 << MIB) < frame - self.first < 1 << MIB else frame >> MIB

    def end(self):
        self.events.append(("x", self.open.pop()[0]))

    def to_area(self, area):
        """What runs on another stack stands on top of the thread's own; going back, or to a third one, it ends until it goes on."""
        others = [i for i, (_, frame) in enumerate(self.open) if self.area(frame) != "own"]
        now = self.area(self.open[-1][1]) if self.open else "own"
        if area == now:
            return
        if others and now != "own":
            i = others[0]
            self.parked[now] = self.open[i:]
            while len(self.open) > i:
                self.end()
        return

    def resume(self, area, lowest):
        for function, frame in self.parked.pop(area, []):
            if frame > lowest:
                self.open.append((function, frame))
                self.events.append(("e", function))

    def line(self, what, function, frame):
        area = self.area(frame)
        before = self.area(self.open[-1][1]) if self.open else "own"
        self.to_area(area)
        if area != before and area != "own":
            self.resume(area, frame if what == "e" else frame - 1)
        # exits of frames whose hooks were not called
        while self.open and self.area(self.open[-1][1]) == area and self.open[-1][1] <= frame - (what == "x"):
            self.end()
        if what == "e":
            self.open.append((function, frame))
            self.events.append(("e", function))
        elif self.open and self.open[-1] == (function, frame):
            self.end()
        else:
            fail(f"the log has an exit of {function} that was not entered: {self.open}")


def bare(name):
    """Without the parameters, as our names are."""
    if not name.endswith((")", " const")):
        return name
    at, depth = name.rindex(")"), 0
    while True:
        depth += {")": 1, "(": -1}.get(name[at], 0)
        if depth == 0:
            return name[:at]
        at -= 1


def symbols(program):
    out = subprocess.run(["nm", "-C", "--defined-only", program], capture_output=True, text=True, check=True).stdout
    return {int(a, 16): bare(name) for a, kind, name in (line.split(" ", 2) for line in out.splitlines()) if kind in "tTwWi"}


def truth(path, names):
    data = path.read_bytes()
    threads = {}
    for function, frame, tid, what in struct.iter_unpack("<QQii", data):
        threads.setdefault(tid, Truth()).line(chr(what), names[function], frame)
    for t in threads.values():
        while t.open:
            t.end()
    return {tid: t.events for tid, t in threads.items()}, {name for name in (names[f] for f, *_ in struct.iter_unpack("<QQii", data))}


LINE = re.compile(r" *~?\d+ +(?:\d+ +\d+ +)?(\} )?(.+) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")


def ours(recording, functions):
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", recording.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording.name}: {p.stderr}")
    if os.environ.get("PT_STACKS_KEEP"):
        pathlib.Path(os.environ["PT_STACKS_KEEP"]).write_text(p.stdout)
    threads, events = {}, None
    for line in p.stdout.splitlines():
        if line.startswith("thread "):
            events = threads.setdefault(int(line.split()[1].split("/")[1]), [])
            continue
        m = LINE.match(line)
        if not m or m[2] not in functions:
            continue
        if not m[1]:
            events.append(("e", m[2]))
        if m[1] or not m[4]:
            events.append(("x", m[2]))
    return threads


def shown(events, i):
    return " ".join((">" if what == "e" else "<") + name for what, name in events[max(0, i - 8) : i + 6])


def compare(r, program, log):
    want, functions = truth(log, symbols(program))
    got = ours(r, functions)
    n = 0
    for tid, events in want.items():
        mine = got.get(tid, [])
        if mine != events:
            i = next((i for i, (a, b) in enumerate(zip(mine, events)) if a != b), min(len(mine), len(events)))
            keep = os.environ.get("PT_STACKS_KEEP")
            note(f"wanted: {shown(events, i)}")
            note(f"got:    {shown(mine, i)}")
            (fail if not keep else note)(f"{r.name}: thread {tid}: {i} of {len(events)} entries and exits are right, {len(mine)} seen")
        n += len(events)
    ok(f"{r.name}: {n} entries and exits of {len(functions)} functions in {len(want)} threads")


PROGRAMS = {
    "plain": ("plain.c", "-O0"),
    "plain-o2": ("plain.c", "-O2"),
    "jumps": ("jumps.c", "-O0"),
    "jumps-o2": ("jumps.c", "-O2"),
    # not static: there the runtime sorts all unwind tables first, 5 million instructions
    "throws": ("throws.cc", "-O0", "-static-libstdc++", "-static-libgcc"),
    "throws-o2": ("throws.cc", "-O2", "-static-libstdc++", "-static-libgcc"),
    "coroutines": ("coroutines.c", "-O0"),
    "signals": ("signals.c", "-O0"),
    "signals-o2": ("signals.c", "-O2"),
    "threads": ("threads.c", "-O1"),
}

need_command("gcc", "gcc")
need_command("g++", "g++")
need_command("nm", "binutils")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    hooks = work / "hooks.o"
    subprocess.run(["gcc", "-O2", "-c", "-o", hooks, CALLS / "hooks.c"], check=True)
    run, programs = {}, {}
    only = sys.argv[1:]
    for name, (source, *flags) in PROGRAMS.items():
        if only and name not in only:
            continue
        programs[name] = compile_calls(work, name, [source], *([] if "-static-libgcc" in flags else ["-static"]), "-no-pie", "-fno-omit-frame-pointer",
                                       "-fno-optimize-sibling-calls", "-fno-inline", "-finstrument-functions",
                                       "-finstrument-functions-exclude-file-list=/usr/", hooks, *flags)
        run[name] = ([programs[name]], 0, {"CALLS_LOG": "hooks"})
    for name, r in record_all(work, run).items():
        compare(r, programs[name], r.folder / "hooks")
