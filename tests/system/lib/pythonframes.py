# SPDX-License-Identifier: Apache-2.0
"""The part of stacks that is Python's, as a bundle's perf.data has it (common/bundle/python.h)."""
import collections
import pathlib
import re
import shutil
import struct
import subprocess
import sys

from lib.capture import SAMPLE, SCHED_MAGIC

HEAD, HEAD_MASK = 0xfeed << 48, 0xffff << 48
ENTRY, BORDER, ID = 1 << 63, 1 << 62, (1 << 40) - 1
MAGIC, FUNCTION, PYTHON, STOPPED = 0x01595054, 7, 1 << 14, 1 << 25
WHYS = ("complete", "cut", "no_thread", "no_read", "subinterpreters", "crowded", "between")

Function = collections.namedtuple("Function", "name file line")
# frames: the innermost first, each a Function or None; calls: the same for each call of the interpreter's loop; stopped: see PYTHON_STOPPED;
# words: as they are recorded, the head first; native: the addresses of the stack
Part = collections.namedtuple("Part", "pid tid time why frames calls kind stopped words native")


def pythons(oldest=11, newest=14):
    """One of each version that is here: from the path, or where pyenv and Debian put them."""
    for minor in range(oldest, newest + 1):
        name = f"python3.{minor}"
        for path in (*map(str, sorted(pathlib.Path.home().glob(f".pyenv/versions/*/bin/{name}"))), shutil.which(name), f"/usr/bin/{name}"):
            found = path and pathlib.Path(path).exists() and subprocess.run([path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
            if found and found.returncode == 0 and found.stdout.strip():
                yield minor, found.stdout.strip()
                break


def need_pythons():
    """Those whose frames are found."""
    return list(pythons()) or skip("no Python from 3.11 to 3.14")


class Loop:
    """Where the interpreter's loop is in a process: by its symbols, or, where these are stripped, anywhere in the file."""

    def __init__(self, pid):
        maps = [line.split(None, 5) for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
        maps = [(*(int(x, 16) for x in m[0].split("-")), int(m[2], 16), m[5].strip()) for m in maps if "x" in m[1] and len(m) > 5]
        self.ranges, rest = [], []
        for path in sorted({m[3] for m in maps if re.match(r"(lib)?python3", pathlib.Path(m[3]).name)}):
            symbols = subprocess.run(["nm", "-S", path], capture_output=True, text=True).stdout
            found = re.findall(r"^(\w+) (\w+) [tT] _PyEval_EvalFrameDefault(?:\.cold)?$", symbols, re.M)
            loads = subprocess.run(["readelf", "-lW", path], capture_output=True, text=True).stdout
            loads = [[int(x, 16) for x in m] for m in re.findall(r"^ +LOAD +(\w+) (\w+) \w+ (\w+) ", loads, re.M)]
            for start, end, off, _ in (m for m in maps if m[3] == path):
                for at, vaddr, size in loads:
                    if found and at & ~4095 <= off < at + size:
                        bias = start - off + at - vaddr
                        self.ranges += [(bias + int(a, 16), bias + int(a, 16) + int(n, 16)) for a, n in found]
                rest.append((start, end))
        self.ranges = self.ranges or rest

    def has(self, addr):
        return any(a <= addr < b for a, b in self.ranges)

    def is_between(self, part):
        """What was between two functions is not drawn: decode/stack/python.c."""
        return part.stopped and (not part.native or self.has(part.native[0]))


def _text(data, kind):
    return data.decode({1: "latin-1", 2: "utf-16-le", 4: "utf-32-le"}[kind])


def _payloads(recs):
    for r in recs:
        if r.type != SAMPLE:
            continue
        for at in range(48, len(r.body) - 8, 4):
            (magic,) = struct.unpack_from("<I", r.body, at)
            if magic in (MAGIC, SCHED_MAGIC):
                yield r, at, magic
                break


def _native(r):
    (n,) = struct.unpack_from("<Q", r.body, 48)
    return [a for a in struct.unpack_from(f"<{n}Q", r.body, 56) if a < 1 << 47]


def read(recs):
    """(functions by number, parts of stacks)."""
    functions, parts = {}, []
    for r, at, magic in _payloads(recs):
        if magic == SCHED_MAGIC:
            kind, flags = struct.unpack_from("<HH", r.body, at + 4)
            if kind == FUNCTION:
                f = struct.unpack_from("<QQIIIHHBBBB", r.body, at + 56)
                name = r.body[at + 96:at + 96 + f[5]]
                file = r.body[at + 96 + 256:at + 96 + 256 + f[6]]
                functions[f[0]] = Function(_text(name, f[7]), _text(file, f[8]), f[4])
                continue
            if not flags & PYTHON:
                continue
            at += 56
        else:
            kind, at = 0, at + 8
        (head,) = struct.unpack_from("<Q", r.body, at)
        assert head & HEAD_MASK == HEAD, hex(head)
        parts.append((r, at, head & 0xffff, head >> 16 & 0xff, kind))
    out = []
    for r, at, n, why, kind in parts:
        head, *words = struct.unpack_from(f"<{n + 1}Q", r.body, at)
        calls = [[]]
        for w in words:
            if not w & BORDER:
                calls[-1].append(functions.get(w & ID))
            if w & ENTRY:
                calls.append([])
        if not calls[-1]:
            calls.pop()
        # what the interpreter runs for itself
        calls = [[f for f in call if not f or f.line or f.file != "__init__"] for call in calls]
        out.append(Part(r.pid, r.tid, r.time, WHYS[why], [f for call in calls for f in call], calls, kind,
                        bool(head & STOPPED), [head, *words], _native(r)))
    return functions, out
