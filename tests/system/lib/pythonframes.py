# SPDX-License-Identifier: Apache-2.0
"""The part of stacks that is Python's, as a bundle's perf.data has it (common/bundle/python.h)."""
import collections
import pathlib
import shutil
import struct
import subprocess
import sys

from lib.capture import SAMPLE, SCHED_MAGIC

HEAD, HEAD_MASK = 0xfeed << 48, 0xffff << 48
ENTRY, BORDER, ID = 1 << 63, 1 << 62, (1 << 40) - 1
MAGIC, FUNCTION, PYTHON = 0x01595054, 7, 1 << 12
WHYS = ("complete", "cut", "no_thread", "no_read", "subinterpreters", "crowded")

Function = collections.namedtuple("Function", "name file line")
# frames: the innermost first, each a Function or None; calls: the same for each call of the interpreter's loop
Part = collections.namedtuple("Part", "pid tid time why frames calls kind")


def pythons(oldest=11, newest=14):
    """One of each version that is here: from the path, or where pyenv and Debian put them."""
    for minor in range(oldest, newest + 1):
        name = f"python3.{minor}"
        for path in (*map(str, sorted(pathlib.Path.home().glob(f".pyenv/versions/*/bin/{name}"))), shutil.which(name), f"/usr/bin/{name}"):
            found = path and pathlib.Path(path).exists() and subprocess.run([path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
            if found and found.returncode == 0 and found.stdout.strip():
                yield minor, found.stdout.strip()
                break


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
        parts.append((r, at + 8, head & 0xffff, head >> 16 & 0xff, kind))
    out = []
    for r, at, n, why, kind in parts:
        words = struct.unpack_from(f"<{n}Q", r.body, at)
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
        out.append(Part(r.pid, r.tid, r.time, WHYS[why], [f for call in calls for f in call], calls, kind))
    return functions, out
