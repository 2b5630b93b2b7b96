#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""Stacks of goroutines follow the goroutine, from thread to thread: each call is there once, in what the program itself says has
called it, or within a mark that this is in doubt, or nobody is said to have called it."""
import collections
import re

from lib.pt import *

LINE = re.compile(r" *~?\d+ +(?:\d+ +\d+ +)?(\} )?(.+) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")
# These are no calls: what goes on, or is seen only now, or where its way back is.
ON = re.compile(r"goes on|begin not recorded|unwound to")


def calls_of(text, functions):
    """Counter of (function, the nearest one around it of these functions, or None), and those of which that is in doubt."""
    sure, doubtful = collections.Counter(), collections.Counter()
    stacks, stack = {}, []  # lines of a thread are together, but threads alternate
    for line in text.splitlines():
        if line.startswith("thread "):
            stack = stacks.setdefault(line.split()[1], [])
        m = LINE.match(line)
        if not m:
            continue
        end, name, how, begin = m.groups()
        if end:
            stack.pop()
            continue
        how = how or ""
        doubt = "in doubt" in how
        if name in functions and not ON.search(how):
            around = next((f for f, _ in reversed(stack) if f in functions), None)
            (doubtful if any(d for _, d in stack) else sure)[name, around] += 1
        if begin:
            stack.append((name, doubt))
    for tid, stack in stacks.items():
        if stack:
            fail(f"thread {tid}: {stack} have not ended")
    return sure, doubtful


def noted(text):
    """What the program says."""
    said = collections.Counter()
    for line in text.splitlines():
        f, around, n = line.split()
        said[f"main.{f}", None if around == "-" else f"main.{around}"] += int(n)
    return said


def follows(work, program, name, count, env, options):
    r = Recording(work, name, [program, str(count)], env={"GOGC": "off", **env}, options=options)
    p = subprocess.run([program, str(count)], capture_output=True, text=True, timeout=PATIENCE)
    said = noted(p.stdout)
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", r.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode or not said:
        fail(f"tracectl decode: {p.stderr}")
    functions = {f for f, _ in said}
    sure, doubtful = calls_of(p.stdout, functions)
    unknown = 0
    for f in sorted(functions):
        have = sum(n for found in (sure, doubtful) for (g, _), n in found.items() if g == f)
        want = sum(n for (g, _), n in said.items() if g == f)
        if have != want:
            fail(f"{name}: {have} calls of {f}, not {want}")
    for (f, around), n in sure.items():
        if around is None:
            unknown += n - said[f, None] if n > said[f, None] else 0
        elif n > said[f, around]:
            fail(f"{name}: {n} calls of {f} in {around}, the program says {said[f, around]}")
    marked = doubtful.total()
    ok(f"{name}: {said.total()} calls, each in what has called it, {marked} in doubt and {unknown} of which it is not known")


need_command("go", "go")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    env = {"GO111MODULE": "off", "GOCACHE": str(work / "cache"), "GOFLAGS": "", "HOME": folder}
    p = subprocess.run(["go", "build", "-o", work / "switches", CALLS / "switches.go"], capture_output=True, text=True, cwd=work,
                       env={**os.environ, **env})
    if p.returncode:
        skip(f"go does not build here: {p.stderr.strip().splitlines()[-1:]}")
    # How many are certain depends on what else the runtime's threads do meanwhile, and so on the machine's load: unit tests tell when.
    follows(work, work / "switches", "one thread", 10, {"GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"}, ["--time-insns", "1"])
    # Threads that run at the same time, whose times are interpolated, and preemption by signals.
    follows(work, work / "switches", "three threads", 10, {"GOMAXPROCS": "3"}, [])
