#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""Stacks do not depend on who has compiled a program, and how: with gcc and clang, retpolines and return thunks, CET's landing pads, stubs
that are bound late; C++20 coroutines that jump from one to the next; and recursion of thousands of calls that longjmp leaves. By the
programs' own logs: no entry is under other callers without a mark."""
from lib.ptstacks import *

THUNKS = ("-mindirect-branch=thunk", "-mfunction-return=thunk", "-fcf-protection=none")
INLINE = ("-mindirect-branch=thunk-inline", "-mfunction-return=thunk-inline", "-fcf-protection=none")
PIE = ("-pie", "-fPIE")
STRIPPED = ("-s",)
LATE = ("-Wl,-z,lazy", "-Wl,-z,ibtplt", "-fcf-protection=full")
# whose log is of entries and exits (hooks.c); how much may be in doubt
HOOKED = {
    "plain, clang": ("clang", "plain.c", 0, "-O1"),
    "plain, clang, retpolines": ("clang", "plain.c", 0, "-O2", "-mretpoline"),
    "plain, late stubs": ("gcc", "plain.c", 0, "-O1", *LATE),
    "jumps, clang, CET": ("clang", "jumps.c", 0, "-O1", "-fcf-protection=full"),
    "jumps, return thunks": ("gcc", "jumps.c", 0, "-O2", *THUNKS),
    "signals, inline thunks": ("gcc", "signals.c", 0, "-O2", *INLINE),
    "throws, return thunks": ("gcc", "throws.cc", 0, "-O2", "-static-libstdc++", "-static-libgcc", *THUNKS),
    "coroutines, clang, retpolines": ("clang", "coroutines.c", 0.5, "-O1", "-mretpoline"),
    "switches, clang": ("clang", "stacks.c", 0.9, "-O1", "-DKIND=0"),
    "switches, thunks": ("gcc", "stacks.c", 0.9, "-O2", "-DKIND=1", *THUNKS),
    # cold parts have no names then; at -O3 functions are copied, and the log has not the names of the copies
    "throws, stripped": ("gcc", "throws.cc", 0, "-O2", "-static-libstdc++", "-static-libgcc", *STRIPPED),
    "throws, stripped, PIE": ("gcc", "throws.cc", 0, "-O2", "-static-libstdc++", "-static-libgcc", *PIE, *STRIPPED),
    "throws, stripped, clang": ("clang", "throws.cc", 0, "-O2", "-static-libstdc++", "-static-libgcc", *STRIPPED),
    "jumps, stripped": ("gcc", "jumps.c", 0, "-O2", *STRIPPED),
}
TASKS = {"tasks": "-O1", "tasks, transferred": "-O2"}


def compare(r, program, named, at_most):
    names = symbols(named)
    want, functions = truth(r.folder / "hooks", loaded(names, r.folder / "hooks"))
    text = decode(r.data)
    if named != program:
        text = with_names(text, program, names)
    n, marked = judge(r.name, want, entries(text, functions))
    expect(n > 30 and marked <= at_most * n, f"{r.name}: {n} entries, {marked} in doubt")


def calls_to(r, function):
    """The callers of each call of it, and whether all are sure."""
    (_, calls), = all_paths(decode(r.data)).items()
    return [([name.split("(")[0] for name, _ in stack[:-1]], not any(doubt for _, doubt in stack))
            for stack, _, _ in calls if stack[-1][0].split("(")[0] == function]


def tasks(r, transferred):
    """`transferred`: by jumps, so that nothing is between drive() and the one that runs; else each has called the next."""
    who = ("main", "drive", "root", "middle", "leaf", "thrower")
    want = (r.folder / "hooks").read_text().split()
    got = calls_to(r, "mark")
    if len(want) != len(got):
        fail(f"{r.name}: {len(want)} marks, {len(got)} seen")
    for i, (name, (callers, sure)) in enumerate(zip(want, got)):
        named = [c for c in callers if c in who]
        if not sure or callers[-1] != name or named[:2] != ["main", "drive"] or (transferred and len(named) != 3):
            fail(f"{r.name}: mark {i}, of {name}, is under {named}")
    ok(f"{r.name}: {len(want)} marks, each under the coroutine that made it")


def deep(r):
    got = [callers[callers.index("main"):] for callers, sure in calls_to(r, "after") if sure]
    expect(got == [["main", *c] for c in (["plain"], ["jumps"], [], ["plain"], [])], f"{r.name}: what comes after is where it belongs")
    most = max(len(callers) for callers, _ in calls_to(r, "dig"))
    expect(most > 6000, f"{r.name}: {most} calls deep")


need_command("gcc", "gcc")
need_command("g++", "g++")
need_command("nm", "binutils")
if not STEP.exists():
    skip("needs tracerd-step")
if not shutil.which("clang"):
    note("there is no clang: what it compiles is left out")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    programs, named = {}, {}  # and those with the names of what is stripped
    for name, (tool, source, _, *flags) in HOOKED.items():
        if shutil.which(tool):
            programs[name] = named[name] = compile_hooked(work, name, source, *flags, tool=tool)
            if "-s" in flags:
                named[name] = compile_hooked(work, f"{name}, named", source, *(f for f in flags if f != "-s"), tool=tool)
    for name, level in TASKS.items():
        programs[name] = compile_calls(work, name, ["tasks.cc"], "-std=c++20", level, "-static-libstdc++", "-static-libgcc")
    programs["deep"] = compile_calls(work, "deep", ["deep.c"], "-O1", "-fno-optimize-sibling-calls", "-static")
    recordings = record_all(work, {name: ([program], 0, {"CALLS_LOG": "hooks"}) for name, program in programs.items()})
    for name, r in recordings.items():
        if name in HOOKED:
            compare(r, programs[name], named[name], HOOKED[name][2])
    for name in TASKS:
        tasks(recordings[name], "transferred" in name)
    deep(recordings["deep"])
