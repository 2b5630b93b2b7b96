#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""A CPU was not traced for a moment (blind_cpu in meta.json): a thread that ran there then goes on somewhere, and what it was in before is not
drawn around what comes after, as if it had jumped there or a signal had come. Whoever did not run there goes on as before."""
import re

from lib.pt import *

PROGRAM = """volatile int n;
#define NOINLINE __attribute__((noinline))
NOINLINE static void leaf(void) { long r = 110; __asm__ volatile("syscall" : "+a"(r) : : "rcx", "r11", "memory"); n++; }
NOINLINE static void before(void) { leaf(); n++; }
NOINLINE static void after(void) { n++; }
int main(void) { before(); after(); return 0; }
"""


def calls(work, gaps):
    """The text of the calls, and what is lost."""
    (work / "bundle/meta.json").write_text(json.dumps({"format": 1, "images": [], "gaps": gaps}))
    got = []
    for options in (["--calls"], ["--json", "--stats", "-o", work / "x.pftrace"]):
        p = subprocess.run([BUILD / "tracectl", "decode", *options, work / "bundle"], capture_output=True, text=True, timeout=PATIENCE)
        if p.returncode:
            fail(f"{gaps}: {p.stderr}")
        got.append(p.stdout)
    return got[0], json.loads(got[1])["losses"]


need_command("gcc", "gcc")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    (work / "blind.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-fno-optimize-sibling-calls", "-static", "-o", "blind", "blind.c"], cwd=work, check=True)
    r = Recording(work, "run", [keep_program(work / "blind")])
    (work / "bundle").mkdir()
    shutil.copy(r.data, work / "bundle/perf.data")
    whole, losses = calls(work, [])
    expect("not traced" not in whole and "pt_resumed_blind" not in losses, f"nothing is missing: {losses}")
    for gap in ({"blind_cpu": 0}, {"blind_cpu": 0, "blind_tid": 0}):
        text, losses = calls(work, [{"kind": "x", **gap, "from_ns": 0, "to_ns": 2**62}])
        expect("-- not traced: a snapshot was copied" in text and losses["pt_resumed_blind"] > 5,
               f"wherever it goes on while its CPU was not traced it is in doubt: {losses}")
    # A CPU that came later, and has no record of anybody.
    late = {"kind": "x", "blind_cpu": 5, "blind_late": True, "from_ns": 0, "to_ns": 2**62}
    text, losses = calls(work, [late])
    expect("-- not traced: its CPU came online later" in text and losses["pt_resumed_blind"] > 5, f"it may have been there: {losses}")
    text, losses = calls(work, [{**late, "blind_unseen": True}])
    expect(losses.get("pt_resumed_blind", 0) <= 1, f"but not if it was on its own all the time: {losses}")
    text, losses = calls(work, [{"kind": "x", "blind_cpu": 0, "blind_tid": 999999999, "from_ns": 0, "to_ns": 2**62}])
    expect(text == whole and "pt_resumed_blind" not in losses, f"another thread's says nothing of it: {losses}")

    tid = int(re.search(r"^thread \d+/(\d+) ", whole, re.M)[1])
    at = int(re.search(r" leaf \(\w+\) \{\n *(\d+) +-- system call", whole)[1])
    text, losses = calls(work, [{"kind": "x", "blind_cpu": 0, "blind_tid": tid, "from_ns": at, "to_ns": at + 1}])
    expect(losses == {"pt_resumed_blind": 1} and text.count("-- not traced: paused by a trigger") == 1, f"its own is one place: {losses}")
    head, tail = text.split("-- not traced: paused by a trigger")
    before = [x.split()[-2] for x in head.splitlines() if "} " in x][-6:]
    expect(before[:3] == ["leaf", "before", "main"], f"the calls that it was in end there: {before}")
    after = re.findall(r"^ .*? (?:(\} )?)(\w+) \(blind\)(.*)$", tail, re.M)
    again = [(f, how) for end, f, how in after if not end][:6]
    expect([f for f, _ in again] == before[::-1] and all(how.startswith(" [goes on after a gap]") for _, how in again),
           f"and what goes on there is marked: {again}")
