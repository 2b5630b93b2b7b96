#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Stacks of goroutines, which the Go runtime exchanges by jumps: they are parked and found again. Each call of a goroutine is in
the frames of its own stack, also those after it has waited."""
import collections
import re

from ptlib import *

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
        if m[2].startswith("main.") and "its stack goes on" not in line:
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
    # The runtime may hand a goroutine to another thread while one is in a system call, which takes long here: what was called
    # around it is not known there. That is another picture than the one that is looked for.
    for attempt in range(4):
        r = Recording(work, f"goroutines{attempt}", [work / "goroutines"], env={"GODEBUG": "asyncpreemptoff=1"})
        p = subprocess.run([BUILD / "tracectl", "decode", "--calls", r.data], capture_output=True, text=True, timeout=120)
        if p.returncode:
            fail(f"tracectl decode: {p.stderr}")
        if not re.search(r"^ *~?[0-9]+ +(?:[0-9]+ +[0-9]+ +)?main[.].*\[begin not recorded\]", p.stdout, re.M):
            break
    else:
        skip("goroutines have changed their threads in each of 4 recordings")
    found = callers(p.stdout)
    expect(found["main.ask"] == {"main.main": 4}, "the first goroutine asks four times")
    expect(found["main.work"] == {"main.worker": 4}, "the work is done in workers, also in those that have waited")
    expect(found["main.leaf"] == {"main.work": 8, "main.done": 2}, "with the calls in it")
    expect(found["main.done"] == {"main.worker": 2}, "and both workers end where they began")
