#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""The stacks that are rebuilt from branches against what the programs themselves say: compiled with -finstrument-functions, they
log each entry and exit with the address of the frame. Each entry of theirs is in our tree, in the same order, under the same callers, from
the first function of its stack: also where exceptions and longjmp leave calls, in signal handlers, and on the stacks of coroutines, whatever
switches them and in whatever order they go on. What is not sure is marked; no entry is under other callers without a mark."""
import re

from lib.pt import *
from lib.texttrace import calls_of

class Truth:
    """One process's log to the callers of each entry. A frame is gone when its own stack is used at its address or above."""

    def __init__(self):
        self.areas = []  # that programs have said are stacks; else it is the thread's own
        self.stacks = {}
        self.entries = {}  # by thread: (function, its callers and itself)

    def line(self, what, function, frame, tid):
        area = next((i for i, (low, high) in enumerate(self.areas) if low <= frame < high), f"thread {tid}")
        stack = self.stacks.setdefault(area, [])
        # exits of frames whose hooks were not called
        while stack and (stack[-1][1] < frame or what == "e" and stack[-1][1] == frame):
            stack.pop()
        if what == "e":
            stack.append((function, frame))
            self.entries.setdefault(tid, []).append((function, tuple(name for name, _ in stack), area))
        elif stack and stack[-1] == (function, frame):
            stack.pop()


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
    t, functions = Truth(), set()
    for function, frame, tid, what in struct.iter_unpack("<QQii", path.read_bytes()):
        if chr(what) == "a":
            t.areas.append((function, frame))
            continue
        functions.add(names[function])
        t.line(chr(what), names[function], frame, tid)
    return t.entries, functions


LINE = re.compile(r" *~?\d+ +(?:\d+ +\d+ +)?(\} )?(?:<\d+> )?(.+?) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")
NO_ENTRY = re.compile("goes on|unwound|not recorded|gap")
DOUBT = re.compile("not recorded|in doubt|gap")


def ours(recording, functions):
    """By thread: (function, its callers and itself, whether that is sure). The timeline has the same calls under the same callers."""
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", recording.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording.name}: {p.stderr}")
    if os.environ.get("PT_STACKS_KEEP"):
        pathlib.Path(os.environ["PT_STACKS_KEEP"]).write_text(p.stdout)
    threads, kept, paths = {}, {}, {}
    for line in p.stdout.splitlines():
        if line.startswith("thread "):
            tid = int(line.split()[1].split("/")[1])
            stack, entries = kept.setdefault(tid, []), threads.setdefault(tid, [])
            continue
        m = LINE.match(line)
        if not m:
            continue
        if m[1]:
            stack.pop()
            continue
        stack.append((m[2], bool(DOUBT.search(m[3] or ""))))
        paths.setdefault(tid, []).append(tuple(name for name, _ in stack))
        if m[2] in functions and not NO_ENTRY.search(m[3] or ""):
            path = tuple(name for name, _ in stack if name in functions)
            entries.append((m[2], path, not any(doubt for _, doubt in stack)))
        if not m[4]:
            stack.pop()
    p = subprocess.run([BUILD / "tracectl", "decode", "--format", "text", "-o", "-", recording.data], capture_output=True, text=True,
                       timeout=PATIENCE)
    drawn = calls_of(p.stdout)
    for tid, of_text in paths.items():
        if drawn[tid] != of_text:
            i = next((i for i, (a, b) in enumerate(zip(of_text, drawn[tid])) if a != b), -1)
            fail(f"{recording.name}: thread {tid}: call {i} is {under(of_text[i])} in text, {under(drawn[tid][i])} in the timeline")
    return threads


def under(path):
    return " > ".join(path[-12:])


def compare(r, program, log, at_most, last=False):
    """`last`: the recording has only how it ended."""
    want, functions = truth(log, symbols(program))
    got = ours(r, functions)
    n = marked = 0
    for tid, entries in want.items():
        mine = got.get(tid, [])
        if last:
            entries = entries[len(entries) - len(mine):]
        for i, (a, b) in enumerate(zip(entries, mine)):
            if a[0] != b[0]:
                fail(f"{r.name}: thread {tid}: entry {i} is {under(a[1])}, not {under(b[1])}")
            # a stack that a call has begun stands on that of its caller
            if b[2] and b[1] != a[1] and (isinstance(a[2], str) or b[1][-len(a[1]):] != a[1]):
                fail(f"{r.name}: thread {tid}: entry {i}, not in doubt, is {under(a[1])}, not {under(b[1])}")
            marked += not b[2]
        if len(mine) != len(entries):
            fail(f"{r.name}: thread {tid}: {len(entries)} entries, {len(mine)} seen")
        n += len(entries)
    if marked > at_most * n:
        fail(f"{r.name}: {marked} of {n} entries are in doubt")
    ok(f"{r.name}: {n} entries of {len(functions)} functions in {len(want)} threads, {marked} in doubt")


# How tests/programs/calls/stacks.c switches, in order of KIND; and how much of the calls may be in doubt.
KINDS = ["pop-ret", "jump", "pushed", "exchange", "inlined", "ucontext", "setjmp"]
IN_DOUBT = {"coroutines": 0.5, "switches": 0.9}

PROGRAMS = {
    "plain": ("plain.c", "-O0"),
    "plain-o2": ("plain.c", "-O2"),
    "jumps": ("jumps.c", "-O0"),
    "jumps-o2": ("jumps.c", "-O2"),
    # not static: there the runtime sorts all unwind tables first, 5 million instructions
    "throws": ("throws.cc", "-O0", "-static-libstdc++", "-static-libgcc"),
    "throws-o2": ("throws.cc", "-O2", "-static-libstdc++", "-static-libgcc"),
    "coroutines": ("coroutines.c", "-O0"),
    **{f"switches-{kind}": ("stacks.c", "-O1", f"-DKIND={i}") for i, kind in enumerate(KINDS)},
    "switches-100": ("stacks.c", "-O2", "-DKIND=0", "-DTASKS=100", "-DSTEPS=600"),
    "switches-threads": ("stacks.c", "-O1", "-DKIND=1", "-DTHREADS=3", "-pthread"),
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
    # what has been left before the recording begins may go on, and nobody has seen it
    tails = {f"{name}, the end": run[name] for name in run if name.startswith("switches-") and name != "switches-threads"}
    for name, r in record_all(work, tails, ["--ring", "--max-bytes", "8192", "--psb-bytes", "512"]).items():
        compare(r, programs[name.split(",")[0]], r.folder / "hooks", 1, last=True)
    for name, r in record_all(work, run).items():
        compare(r, programs[name], r.folder / "hooks", next((v for k, v in IN_DOUBT.items() if name.startswith(k)), 0))
