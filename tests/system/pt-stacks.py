#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""The stacks that are rebuilt from branches against what the programs themselves say: compiled with -finstrument-functions, they
log each entry and exit with the address of the frame. Each entry of theirs is in our tree, in the same order, under the same callers, from
the first function of its stack: also where exceptions and longjmp leave calls, in signal handlers, and on the stacks of coroutines, whatever
switches them and in whatever order they go on. What is not sure is marked; no entry is under other callers without a mark."""
from lib.ptstacks import *
from lib.texttrace import calls_of

def same_as_drawn(r, text):
    """The timeline has the same calls under the same callers, and says the same of them."""
    p = subprocess.run([BUILD / "tracectl", "decode", "--format", "text", "-o", "-", r.data], capture_output=True, text=True, timeout=PATIENCE)
    drawn = calls_of(p.stdout)
    for tid, calls in all_paths(text).items():
        told = [(tuple(name for name, _ in stack), how) for stack, _, how in calls]
        if drawn[tid] != told:
            i = next((i for i, (a, b) in enumerate(zip(told, drawn[tid])) if a != b), -1)
            fail(f"{r.name}: thread {tid}: call {i} is {under(told[i][0])} [{told[i][1]}] in text, "
                 f"{under(drawn[tid][i][0])} [{drawn[tid][i][1]}] in the timeline")


def compare(r, program, log, at_most, last=False):
    """`last`: the recording has only how it ended."""
    want, functions = truth(log, symbols(program))
    text = decode(r.data)
    same_as_drawn(r, text)
    n, marked = judge(r.name, want, entries(text, functions), last)
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
    run, programs = {}, {}
    only = sys.argv[1:]
    for name, (source, *flags) in PROGRAMS.items():
        if only and name not in only:
            continue
        programs[name] = compile_hooked(work, name, source, *flags)
        run[name] = ([programs[name]], 0, {"CALLS_LOG": "hooks"})
    # what has been left before the recording begins may go on, and nobody has seen it
    tails = {f"{name}, the end": run[name] for name in run if name.startswith("switches-") and name != "switches-threads"}
    for name, r in record_all(work, tails, ["--ring", "--max-bytes", "8192", "--psb-bytes", "512"]).items():
        compare(r, programs[name.split(",")[0]], r.folder / "hooks", 1, last=True)
    for name, r in record_all(work, run).items():
        compare(r, programs[name], r.folder / "hooks", next((v for k, v in IN_DOUBT.items() if name.startswith(k)), 0))
