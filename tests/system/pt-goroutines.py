#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Stacks of goroutines, which the Go runtime exchanges by jumps: they are parked and found again. No call of a goroutine is ever in
the frames of another one's stack."""
import collections
import re

from lib.pt import *

LINE = re.compile(r" *~?\d+ +(?:\d+ +\d+ +)?(\} )?(.+) \([^()]*\)(?: \[[^\]]*\])?( \{)?$")


def callers(text):
    """{function of main: Counter of the nearest function of main around it}"""
    found = collections.defaultdict(collections.Counter)
    stacks = {}  # lines of a thread are together, but threads alternate
    for line in text.splitlines():
        if line.startswith("thread "):
            stack = stacks.setdefault(line.split()[1], [])
        m = LINE.match(line)
        if not m:
            continue
        if m[1]:
            stack.pop()
            continue
        # What is found again, or seen only now, is no call; nor is what begins anew by a jump after its stack had to grow, or
        # after somebody else had his turn.
        if m[2].startswith("main.") and not re.search(r"\[(its stack goes on(, in doubt: others wait there)?|begin not recorded|tail call)\]", line):
            found[m[2]][next((f for f in reversed(stack) if f.startswith("main.")), None)] += 1
        if m[3]:
            stack.append(m[2])
    return found


need_command("go", "go")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    env = {"GO111MODULE": "off", "GOCACHE": str(work / "cache"), "GOFLAGS": "", "HOME": folder}
    p = subprocess.run(["go", "build", "-o", work / "goroutines", CALLS / "goroutines.go"], capture_output=True, text=True, cwd=work,
                       env={**os.environ, **env})
    if p.returncode:
        skip(f"go does not build here: {p.stderr.strip().splitlines()[-1:]}")
    # The runtime may hand a goroutine to another thread; what was called around it is not known there, and nothing is
    # shown in its place.
    r = Recording(work, "goroutines", [work / "goroutines"], env={"GODEBUG": "asyncpreemptoff=1", "GOMAXPROCS": "1", "GOGC": "off"})
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", r.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"tracectl decode: {p.stderr}")
    found = callers(p.stdout)
    for function, n, around in (("ask", 4, {"main.main"}), ("work", 4, {"main.worker"}), ("done", 2, {"main.worker"}),
                                ("leaf", 10, {"main.work", "main.done"})):
        expect(found[f"main.{function}"].total() == n and set(found[f"main.{function}"]) <= around | {None},
               f"main.{function}: each of its {n} calls is there, in what called it: {dict(found[f'main.{function}'])}")
    expect(found["main.leaf"]["main.work"] == 8 and found["main.leaf"]["main.done"] == 2, "calls within a goroutine's turn are exact")
    expect(found["main.work"]["main.worker"] >= 2, "stacks that waited are found again")
