#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""Programs that do to their stacks what breaks a tree of calls: signal handlers that leave their stack for coroutines, by siglongjmp and by the
registers that they return to, longjmp to places further out on other stacks, stacks that are copied, children of vfork, trampolines by hand, __builtin_eh_return, exceptions through coroutines, longjmp within them and inline, stacks in pieces, functions in parts
that have no names, functions that go on by a jump to themselves, coroutines by each way to another stack, and the generated code of PCRE2 and LuaJIT. By the programs' own logs: no
entry is under other callers without a mark."""
from lib.ptstacks import *

# how much may be in doubt: stacks that are left again before it is known which they are
PROGRAMS = {
    "handlers": ("handlers.c", 0.97),
    "vforks": ("vforks.c", 0),
    "trampolines": ("trampolines.c", 0),
    "returns": ("returns.c", 0.3),
    "cothrows": ("cothrows.cc", 0.8, "-static-libstdc++", "-static-libgcc"),
    "cojumps": ("cojumps.c", 0.99),
    "jumpsout": ("jumpsout.c", 0.5),
    "ways": ("ways.c", 0.6),
    "crossjumps": ("crossjumps.c", 0.7),
    "tails": ("tails.c", 0.8, "-O2", "-foptimize-sibling-calls"),
    # which stack it is that goes on, nothing says
    "copies": ("copies.c", 1),
    "preempts": ("preempts.c", 1),
    "opcodes": ("opcodes.c", 0, "-O2", "-foptimize-sibling-calls"),
    "matches": ("matches.c", 0, "-Wl,--no-as-needed", "-lpcre2-8"),
    "traces": ("traces.c", 0.5, "-I/usr/include/luajit-2.1", "-Wl,--no-as-needed", "-lluajit-5.1"),
}
# what those need that call libraries
LIBRARIES = {
    "matches": ("libpcre2-dev", "#define PCRE2_CODE_UNIT_WIDTH 8\n#include <pcre2.h>\nint main(void) { return !pcre2_compile; }"),
    "traces": ("libluajit-5.1-dev", "#include <lauxlib.h>\nint main(void) { return !luaL_newstate; }"),
}
SPLIT = ("-O1", "-static", "-no-pie", "-fsplit-stack", "-fuse-ld=gold", "-fno-inline", "-fno-optimize-sibling-calls", "-finstrument-functions")
PARTS = ("-O2", "-static", "-no-pie", "-fno-optimize-sibling-calls", "-fcf-protection=none")


def compare(name, r, program, at_most):
    want, functions = truth(r.folder / "hooks", symbols(program))
    n, marked = judge(name, want, entries(decode(r.data), functions))
    expect(n > 50 and marked <= at_most * n, f"{name}: {n} entries, {marked} in doubt")


def splits(r, program):
    """The log has how many functions each entry is in."""
    names, around, want = symbols(program), [], []
    for line in (r.folder / "calls.truth").read_text().splitlines():
        depth, address = line.split()
        around[int(depth):] = [names[int(address, 16)]]
        want.append(tuple(around))
    (got,) = entries(decode(r.data), {path[-1] for path in want}).values()
    for i, (a, (_, b, sure)) in enumerate(zip(want, got)):
        if not sure or a != b:
            fail(f"splits: entry {i} is {under(a)}, not {under(b)}{'' if sure else ', in doubt'}")
    expect(len(want) == len(got) > 200, f"splits: {len(want)} entries, {len(got)} seen")


def to_leaves(text, ours):
    (calls,) = all_paths(text).values()
    return [(tuple(name for name, _ in stack if name.removesuffix(".cold") in ours), any(doubt for _, doubt in stack))
            for stack, _, _ in calls if stack[-1][0] in ("leaf", "last")]


def parts(named, stripped, program):
    """
    Without names it is the same function that goes on in its other part, where code goes back from there or enters it in its middle. What a part
    that does neither is called for is under that, as a tail call.
    """
    ours = {"main", "many", "wrapped", "back", "ends", "again", "compare", "rare", "leaf", "last"}
    starts = sorted(symbols(program).items())

    def name_of(m):
        before = [name for address, name in starts if address <= int(m[1], 16)]
        return f"{before[-1]} (parts)" if before else m[0]

    text = re.sub(r"\[parts-stripped\+0x([0-9a-f]+)\]", name_of, decode(stripped.data))
    want, got = to_leaves(decode(named.data), ours), to_leaves(text, ours)
    alone = {f"{name}.cold" for name in ("wrapped", "compare", "ends")}
    for i, ((a, _), (b, doubt)) in enumerate(zip(want, got)):
        if doubt or a != tuple(name.removesuffix(".cold") if name in alone else name for name in b):
            fail(f"parts: call {i} is {under(a)}, not {under(b)}{', in doubt' if doubt else ''}")
    expect(len(want) == len(got) > 200, f"parts: {len(want)} calls, {len(got)} without names")


def can(work, what, *flags):
    """Whether the compiler can make that."""
    p = subprocess.run(["gcc", *flags, "-x", "c", "-", "-o", work / "can"], input=what, capture_output=True, text=True)
    return p.returncode == 0


need_command("gcc", "gcc")
need_command("g++", "g++")
need_command("nm", "binutils")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    only = sys.argv[1:]
    wanted = [name for name in [*PROGRAMS, "splits", "parts"] if not only or name in only]
    for name, (package, text) in LIBRARIES.items():
        if name in wanted and not can(work, text, *PROGRAMS[name][2:]):
            note(f"there is no {package}: {name} is left out")
            wanted.remove(name)
    if not can(work, "int main(void) { return 0; }", *SPLIT[:5]):
        note("gcc makes no split stacks here, which want ld.gold: they are left out")
        wanted = [name for name in wanted if name != "splits"]
    programs, run = {}, {}
    for name in wanted:
        if name in PROGRAMS:
            source, _, *flags = PROGRAMS[name]
            programs[name] = compile_hooked(work, name, source, "-O1", *flags)
        elif name == "splits":
            programs[name] = compile_calls(work, name, ["splits.c"], *SPLIT)
        else:
            programs[name] = compile_calls(work, name, ["colds.c"], *PARTS)
            programs["parts-stripped"] = compile_calls(work, "parts-stripped", ["colds.c"], *PARTS, "-s")
    for name, program in programs.items():
        run[name] = ([program], 0, {"CALLS_LOG": "hooks"})
    recordings = record_all(work, run)
    for name in wanted:
        if name in PROGRAMS:
            compare(name, recordings[name], programs[name], PROGRAMS[name][1])
        elif name == "splits":
            splits(recordings[name], programs[name])
        else:
            parts(recordings[name], recordings["parts-stripped"], programs[name])
