#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A program without symbols: its functions are named after it and after where they begin, how many frames that are is in the
statistics, and the recording is not called incomplete for it."""
import re

from lib.pt import *

SOURCE = """volatile unsigned long x;
__attribute__((noinline)) void burn(void) { for (unsigned long i = 0; i < N; i++) x += i; }
int main(void) { burn(); burn(); return 0; }
"""


def compile_stripped(work, name, n):
    (work / "burn.c").write_text(SOURCE)
    # all in one file: the C library may have symbols, or none
    subprocess.run(["gcc", "-O1", "-static", f"-DN={n}", "-s", "-o", name, "burn.c"], cwd=work, check=True)
    return work / name


def decode(data, *options):
    p = subprocess.run([BUILD / "tracectl", "decode", *options, data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{data.name}: {options}: {p.stderr}")
    return p.stdout


def check(what, data, trace):
    report = json.loads(decode(data, "--json", "--stats"))
    n = report["stats"].get("frames_without_symbol", 0)
    expect(n > 0 and "frames_without_symbol" not in report["losses"], f"{what}: {n} frames without a symbol are no loss")
    expect(re.search(rf"^  frames without a symbol +{n}$", decode(data, "--stats"), re.M), f"{what}: --stats has them")
    said = decode(data, "-o", trace)
    expect(trace.stat().st_size > 0 and "without symbol" not in said, f"{what}: and nothing else speaks of them")
    return report["losses"], said


need_command("gcc", "gcc")
if not STEP.exists():
    skip("needs tracerd-step")
work = tmp()
r = Recording(work, "stepped", [compile_stripped(work, "nameless", 100)])
losses, said = check("stepped", r.data, work / "stepped.pftrace")
expect(not losses and "incomplete" not in said, "an exact recording is whole")
begins = re.findall(r"^ *~?\d+ .*\[nameless\+0x([0-9a-f]+)\]", decode(r.data, "--calls"), re.M)
expect(len(set(begins)) > 2, f"its {len(set(begins))} functions are told apart by where they begin")

data = work / "sampled.data"
program = compile_stripped(work, "sampled", 60000000)
if working_perf() and subprocess.run(["perf", "record", "-N", "-e", "cpu-clock", "-o", data, program], capture_output=True).returncode == 0:
    check("sampled", data, work / "sampled.pftrace")
else:
    note("no perf that works here: samples were not looked at")
