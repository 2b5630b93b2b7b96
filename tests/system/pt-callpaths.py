#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Programs that do odd things with their stacks: each call is within the functions that the program itself says it is in, which it logs;
and none of them is in doubt."""
import re

from lib.pt import *

LINE = re.compile(r" *~?(\d+) +(?:(\d+) +\d+ +)?(\} )?(\S+) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")
COMMON_FLAGS = ("-O1", "-finstrument-functions", "-fno-inline", "-fno-optimize-sibling-calls", "-static", "-no-pie", "-fcf-protection=none")
PROGRAMS = {
    "retpolines": ("thunks.c", "-mindirect-branch=thunk"),
    "retpolines inline": ("thunks.c", "-mindirect-branch=thunk-inline"),
    "return thunks": ("thunks.c", "-mindirect-branch=thunk", "-mfunction-return=thunk"),
    "return thunks inline": ("thunks.c", "-mindirect-branch=thunk-inline", "-mfunction-return=thunk-inline"),
    "push and ret": ("pushes.c",),
    "generated code": ("exits.c",),
}


def truth(recording, program):
    """The path of each entry, by the program's log; and which functions it logs."""
    names = {}
    for line in subprocess.run(["nm", "--defined-only", program], capture_output=True, text=True, check=True).stdout.splitlines():
        address, kind, name = line.split(" ", 2)
        if kind in "tT":
            names[int(address, 16)] = name
    around, paths = [], []
    for line in (recording.folder / "calls.truth").read_text().splitlines():
        depth, address = line.split()
        around[int(depth):] = [names[int(address, 16)]]
        paths.append(tuple(around))
    return paths


def drawn(recording, functions):
    """Likewise, by the decoder: and whether it says that something around the entry is not known."""
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", recording.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording.name}: {p.stderr}")
    around, paths = [], []
    for m in filter(None, map(LINE.match, p.stdout.splitlines())):
        how = m[5] or ""
        if m[3]:
            around.pop()
            continue
        around.append((m[4], "not recorded" in how or "after a gap" in how))
        if m[4] in functions and not re.match("goes on|its stack|unwound", how):
            paths.append((tuple(name for name, _ in around if name in functions), any(doubt for _, doubt in around)))
        if not m[6]:
            around.pop()
    return paths


need_command("gcc", "gcc")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    programs = {name: compile_calls(work, name.replace(" ", "-"), [source], *COMMON_FLAGS, *flags)
                for name, (source, *flags) in PROGRAMS.items()}
    recordings = record_all(work, {name: ([program], 0) for name, program in programs.items()})
    for name, r in recordings.items():
        want = truth(r, programs[name])
        got = drawn(r, {path[-1] for path in want})
        expect(len(want) > 100, f"{name}: {len(want)} calls were logged")
        for i, (path, doubt) in enumerate(got):
            if doubt or i >= len(want) or path != want[i]:
                fail(f"{name}: entry {i} is {path}{', in doubt' if doubt else ''}, not {want[i] if i < len(want) else 'logged'}")
        if len(got) != len(want):
            fail(f"{name}: {len(got)} calls are drawn, {len(want)} were made")
        ok(f"{name}: {len(want)} calls, each within the functions that it was made in")
