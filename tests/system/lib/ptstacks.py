# SPDX-License-Identifier: Apache-2.0
"""The calls of programs that log their own (tests/programs/calls/hooks.c), by that log and by `tracectl decode --calls`."""
import re

from lib.pt import *


class Truth:
    """One process's log to the callers of each entry. A frame is gone when its own stack is used at its address or above."""

    def __init__(self):
        self.areas = []  # that programs have said are stacks; else it is the thread's own
        self.stacks = {}
        self.copies = {}  # by thread and number: of stacks that are copied
        self.entries = {}  # by thread: (function, its callers and itself)

    def fork(self, parent, child):
        """A child of vfork runs first, or its parent again."""
        self.stacks.setdefault(f"thread {child}", list(self.stacks[f"thread {parent}"]))

    def copied(self, tid, from_, to, begins):
        stack = self.stacks.setdefault(f"thread {tid}", [])
        self.copies[tid, from_] = list(stack)
        if not begins:
            stack[:] = self.copies.pop((tid, to))

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


def loaded(names, path):
    """The symbols of a program where the one that has made this log was loaded."""
    functions = {line[0] for line in struct.iter_unpack("<QQii", path.read_bytes()) if chr(line[3]) not in "abcf"}
    one = min(functions)
    for base in {one - address for address in names if one >= address and (one - address) % 4096 == 0}:
        if all(f - base in names for f in functions):
            return {address + base: name for address, name in names.items()}
    fail(f"{path}: not a log of that program")


def with_names(text, program, names):
    """The text of a stripped program's calls with the names of its twin's functions."""
    at = re.compile(rf"\[{re.escape(program.name)}\+0x([0-9a-f]+)\]")
    return at.sub(lambda m: f"{names.get(int(m[1], 16), m[0])} ({program.name})", text)


def truth(path, names):
    t, functions = Truth(), set()
    for function, frame, tid, what in struct.iter_unpack("<QQii", path.read_bytes()):
        if chr(what) == "a":
            t.areas.append((function, frame))
            continue
        if chr(what) == "f":
            t.fork(frame, tid)
            continue
        if chr(what) in "bc":
            t.copied(tid, function, frame, chr(what) == "b")
            continue
        functions.add(names[function])
        t.line(chr(what), names[function], frame, tid)
    return t.entries, functions


LINE = re.compile(r" *~?\d+ +(?:\d+ +\d+ +)?(?:<\d+> )?(\} )?(.+?) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")
NO_ENTRY = re.compile("goes on|unwound|not recorded|gap|forked")
DOUBT = re.compile("not recorded|in doubt|gap")


def decode(path):
    """The text of its calls."""
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", path], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{path}: {p.stderr}")
    return p.stdout


def all_paths(text):
    """By thread: each call's callers and itself, whether they are sure, whether this call is an entry that a program would log, and what is said about it."""
    threads = {}
    for line in text.splitlines():
        if line.startswith("thread "):
            tid = int(line.split()[1].split("/")[1])
            stack, calls = [], threads.setdefault(tid, [])
            continue
        m = LINE.match(line)
        if not m:
            continue
        if m[1]:
            stack.pop()
            continue
        stack.append((m[2], bool(DOUBT.search(m[3] or ""))))
        calls.append((tuple(stack), not NO_ENTRY.search(m[3] or ""), m[3]))
        if not m[4]:
            stack.pop()
    return threads


def entries(text, functions):
    """By thread: (function, its callers and itself among those, whether that is sure)."""
    return {tid: [(stack[-1][0], tuple(name for name, _ in stack if name in functions), not any(doubt for _, doubt in stack))
                  for stack, is_entry, _ in calls if is_entry and stack[-1][0] in functions]
            for tid, calls in all_paths(text).items()}


def under(path):
    return " > ".join(path[-12:])


def judge(name, want, got, last=False):
    """The entries by the log against those by us: how many there are, and how many are in doubt. `last`: the recording has only how it ended."""
    n = marked = 0
    for tid, its in want.items():
        mine = got.get(tid, [])
        if last:
            its = its[len(its) - len(mine):]
        for i, (a, b) in enumerate(zip(its, mine)):
            if a[0] != b[0]:
                fail(f"{name}: thread {tid}: entry {i} is {under(a[1])}, not {under(b[1])}")
            if b[2] and b[1] != a[1]:
                fail(f"{name}: thread {tid}: entry {i}, not in doubt, is {under(a[1])}, not {under(b[1])}")
            marked += not b[2]
        if len(mine) != len(its):
            fail(f"{name}: thread {tid}: {len(its)} entries, {len(mine)} seen")
        n += len(its)
    return n, marked


def compile_hooked(work, name, source, *flags, tool="gcc"):
    """tests/programs/calls/SOURCE that logs its calls where CALLS_LOG says."""
    hooks = work / "hooks.o"
    if not hooks.exists():
        subprocess.run(["gcc", "-O2", "-c", "-o", hooks, CALLS / "hooks.c"], check=True)
    shared = any(f == "-static-libgcc" or f.startswith("-Wl,") for f in flags)
    headers = ["-finstrument-functions-exclude-file-list=/usr/"] if tool == "gcc" else []
    return compile_calls(work, name, [source], *([] if shared else ["-static"]), "-no-pie", "-fno-omit-frame-pointer",
                         "-fno-optimize-sibling-calls", "-fno-inline", "-finstrument-functions", *headers, hooks, *flags, tool=tool)
