#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Where instructions end and which of them branch: our decoder and objdump say the same of every instruction of the
C and C++ libraries and of the loader."""
import re

from lib import *

PREFIXES = re.compile(r"^(?:bnd|notrack|repz?|repnz|lock|data16|addr32|xacquire|xrelease|[c-gs]s|rex(?:\.[WRXB]+)?|\{\w+\})\s+")
# The privileged ones that are branches to a trace of the kernel, with kinds of their own; prefixes with nothing behind
# them, which objdump sees in data between functions.
NOT_COMPARED = re.compile(r"vmlaunch|vmresume|%cr3|uiret|^(rex(\.[WRXB]+)?|data16|repz|repnz|lock|addr32|[c-gs]s)\s*$")


def kind(text):
    while PREFIXES.match(text):
        text = PREFIXES.sub("", text)
    name = text.split()[0]
    star = " *" in text
    if name.startswith("call"):
        return "call*" if star else "call"
    if name.startswith("jmp"):
        return "jump*" if star else "jump"
    if name.startswith(("j", "loop")):
        return "cond"
    if name.startswith("ret"):
        return "ret"
    if name.startswith(("lret", "iret", "sysret", "sysexit")):
        return "farret"
    if name.startswith(("lcall", "syscall", "sysenter", "int", "vmcall")):
        return "farcall"
    if name.startswith("ljmp"):
        return "farjump"
    return "ptwrite" if name.startswith("ptwrite") else "other"


def compare(path, program):
    dump = subprocess.Popen(["objdump", "-d", "-w", "--show-raw-insn", path],
                            stdout=subprocess.PIPE, text=True, errors="replace")
    wanted, lines = [], []
    for line in dump.stdout:
        fields = line.rstrip("\n").split("\t")
        if len(fields) < 3 or "(bad)" in fields[2] or NOT_COMPARED.search(fields[2]):
            continue
        n = len(fields[1].split())
        # objdump joins FWAIT, an instruction of its own, with what it is for.
        if n > 15 or (n > 1 and fields[1].startswith("9b ")):
            continue
        wanted.append((n, fields[2]))
        lines.append(fields[1])
    if dump.wait() != 0:
        skip(f"objdump does not read {path}")
    out = subprocess.run([program, "64"], input="\n".join(lines) + "\n", capture_output=True, text=True, check=True)
    got = out.stdout.splitlines()
    expect(len(got) == len(wanted), f"{path}: each of {len(wanted)} instructions is answered")
    bad = 0
    for line, (n, text), answer in zip(lines, wanted, got):
        if answer != f"{n} {kind(text)}":
            bad += 1
            if bad <= 10:
                note(f"{line}: {text}: {answer}, wanted {n} {kind(text)}")
    expect(bad == 0 and len(wanted) > 1000, f"{path}: lengths and kinds are objdump's")


def libraries():
    """Those that hold no data among their code."""
    with open("/proc/self/maps") as f:
        mapped = {line.split()[-1] for line in f if "/" in line}
    names = {p for p in mapped if re.search(r"/(libc|ld-linux-x86-64|libm)[.-]", p)}
    for d in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64"):
        names |= {f"{d}/{n}" for n in ("libstdc++.so.6", "libm.so.6") if os.path.exists(f"{d}/{n}")}
    return sorted({os.path.realpath(p) for p in names})


need_command("objdump", "binutils")
if os.uname().machine != "x86_64":
    skip("not an x86-64 machine")
program = BUILD / "tests/programs/insns"
files = libraries()
expect(files, "libraries are found")
for f in files:
    compare(f, program)
