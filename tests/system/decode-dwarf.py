#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Functions, inlined calls, files and lines of every instruction: our reader of debug information and llvm-symbolizer say the
same, for each version of DWARF, compiler, optimisation and way to store it."""
import re

from lib import *

WALK = BUILD / "tests/unit/decode/dwarf/dwarf-walk"
# A function's clones have the name of what they are clones of; several constructors of a class are one where they do the same.
CLONE = re.compile(r"\.(part|isra|constprop|cold|localalias|lto_priv|llvm|\d+).*")
SAME = re.compile(r"([CD])[1245](?=[EI])")


def instructions(program):
    out = subprocess.run(["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True).stdout
    return re.findall(r"^ +([0-9a-f]+):\t", out, re.M)


def frames(text):
    """{address: [(function, file, line)...]}, the innermost first."""
    at, out, lines = {}, None, iter(text.splitlines())
    for line in lines:
        if line.startswith("0x"):
            out = at.setdefault(int(line, 16), [])
            continue
        file, _, number = re.sub(r" \(discriminator \d+\)$", "", next(lines)).rpartition(":")
        out.append((SAME.sub(r"\g<1>0", CLONE.sub("", line)), os.path.normpath(file), number))
    return at


def told(frames):
    """What a symbol table alone tells (no file), and the file of a line that is none, count for nothing."""
    frames = [(f, "??", "0") if line in ("0", "?") else (f, file, line) for f, file, line in frames]
    return frames if any(line != "0" for _, _, line in frames) else []


def same(ours, theirs):
    """The function itself has its symbol's name there, and that of the debug information here."""
    if not ours or not theirs:
        return ours == theirs
    name, mangled = ours[-1][0].split("<")[0], theirs[-1][0]
    return ours[:-1] == theirs[:-1] and ours[-1][1:] == theirs[-1][1:] and (name in mangled or name == "operator()")


def walk(name, program, asked, *shared):
    p = subprocess.run([WALK, program, *shared], input=asked, capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode or p.stderr:
        fail(f"{name}: {p.returncode}: {p.stderr}")
    return frames(p.stdout)


def compare(name, program):
    ips = instructions(program)
    asked = "".join(f"0x{ip}\n" for ip in ips)
    mine = walk(name, program, asked)
    theirs = subprocess.run(["llvm-symbolizer", "--functions=linkage", "--inlines", "--no-demangle", "--output-style=GNU",
                             "--addresses", "--exe", program], input=asked, capture_output=True, text=True, timeout=PATIENCE)
    want = frames(theirs.stdout)
    n, inlined = 0, 0
    for ip, w in want.items():
        if not same(told(mine[ip]), told(w)):
            fail(f"{name}: {ip:#x}: wanted {w}, got {mine[ip]}")
        n += bool(told(w))
        inlined += len(w) > 1
    if n < 100 or len(mine) != len(set(ips)):
        fail(f"{name}: only {n} of {len(ips)} instructions have a line")
    ok(f"{name}: {n} instructions, {inlined} of them of inlined calls")
    return inlined


def compare_shared(work, source):
    """What dwz moves into a file of its own changes nothing; without that file, names are missing and nothing else is."""
    a, b = build(work, "s1", "g++", "-g", "-O2", source), build(work, "s2", "g++", "-g", "-O2", "-DOTHER", source)
    asked = "".join(f"0x{ip}\n" for ip in instructions(a))
    before = walk("dwz", a, asked)
    subprocess.run(["dwz", "-m", work / "shared", a, b], check=True)
    expect(walk("dwz", a, asked, work / "shared") == before, "shared by several files (dwz)")
    alone = walk("dwz", a, asked)
    expect(alone != before and all([x[2] for x in alone[ip]] == [x[2] for x in before[ip]] for ip in before),
           "without the shared file: the same lines")


def build(work, name, *command):
    out = work / name
    p = subprocess.run([*command, "-o", out], capture_output=True, text=True)
    if p.returncode:
        fail(f"{name}: {p.stderr}")
    return out


def main():
    for name, package in (("llvm-symbolizer", "llvm"), ("objdump", "binutils"), ("g++", "g++")):
        need_command(name, package)
    work = tmp()
    cxx, c = SRC / "tests/programs/calls/throws.cc", SRC / "tests/programs/calls/jumps.c"
    tools = ["g++"] + (["clang++"] if shutil.which("clang++") else [])
    for tool in tools:
        for version in (2, 3, 4, 5):
            for level in ("-O0", "-O2"):
                name = f"{tool}, DWARF {version}, {level}"
                inlined = compare(name, build(work, "a", tool, f"-gdwarf-{version}", level, cxx))
                if level == "-O2" and inlined < 100:
                    fail(f"{name}: the program has hardly anything inlined: it tests nothing")
    compare("C", build(work, "c", "gcc", "-g", "-O2", c))
    compare("compressed sections", build(work, "z", "g++", "-g", "-gz", "-O2", cxx))
    compare("link time optimisation", build(work, "lto", "g++", "-g", "-O2", "-flto", cxx))
    compare("types in units of their own", build(work, "types", "g++", "-gdwarf-4", "-fdebug-types-section", "-O2", cxx))
    compare("64-bit offsets", build(work, "wide", "g++", "-g", "-gdwarf64", "-O2", cxx))
    compare("code that the linker drops", build(work, "gc", "g++", "-g", "-O2", "-ffunction-sections", "-Wl,--gc-sections", cxx))
    compare("not relocatable", build(work, "fixed", "g++", "-g", "-O2", "-no-pie", cxx))
    if shutil.which("dwz"):
        compare_shared(work, cxx)
    else:
        note("no dwz here: what several files share is not compared")


main()
