#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""magic-trace's own goldens (branches as perf prints them, and the slices that it makes of them) through our rules: the same
functions are called as often, but for stubs, which we take for what they stand for."""
import bisect
import collections
import re

from lib import *

DATA = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "pt/magic-trace"
WALK = BUILD / "tests/unit/decode/calls/call-walk"
BRANCH = re.compile(r"\s*\d+/\d+\s+([\d.]+):\s+\d+\s+branches:\w+:\s+(.*?)\s+([0-9a-f]+) (\S+(?: \S+)*?) \(.*?\) =>\s+([0-9a-f]+) (\S+(?: \S+)*?) \(")
SLICE = re.compile(r"->\s+(?:[\d.]+\w+)?\s*(BEGIN|END)\s+(.*)")

# What they draw and we do not: by golden, and why.
STUBS = re.compile(r"@plt$|^_dl_runtime_resolve")
KNOWN = {
    # a label within _start, where that goes on behind its call
    "hello_world_userspace": {"_dl_start_user": -1},
}


def branches(path):
    functions, rows = {}, []

    def see(ip, name):
        m = re.match(r"(.*)\+0x([0-9a-f]+)$", name)
        if m and ip:
            start = ip - int(m[2], 16)
            functions[start] = (m[1].replace(" ", "_"), max(functions.get(start, ("", 0))[1], ip - start + 1))

    for line in path.read_text().splitlines():
        m = BRANCH.match(line)
        if "instruction trace error" in line:
            rows.append(("gap", rows[-1][1] if rows else 0, 0, 0))
        elif m:
            source, target = int(m[3], 16), int(m[5], 16)
            see(source, m[4])
            see(target, m[6])
            rows.append((m[2].strip(), int(m[1].replace(".", "")), source, target))
    return functions, rows


def script(functions, rows):
    """For call-walk. The text has no lengths: a call goes back to the nearest place behind it that something returns to."""
    starts = sorted(functions)
    for i, start in enumerate(starts):
        name, seen = functions[start]
        room = starts[i + 1] - start if i + 1 < len(starts) else 1 << 20
        yield f"function {start:x} {min(seen + 64, room):x} {name if not name.startswith('_dl_runtime_resolve') else name + '@plt'}"
    returns = {target for kind, _, _, target in rows if kind == "return"}
    for kind, time, source, target in rows:
        back = next((source + n for n in range(2, 8) if source + n in returns), source + 5)
        ours = {"call": "call", "return": "return", "iret": "return", "hw int": "call", "gap": "gap", "tr strt": "resume"}
        what = ours.get(kind, "stop" if kind.startswith("tr end") else "jump")
        if what == "stop" or kind == "hw int":
            back = source + 2 if "syscall" in kind else source if kind == "hw int" else 0
        # The text does not tell jumps apart: to the begin of the own function it is a loop.
        if what == "jump" and target in functions and starts[bisect.bisect(starts, source) - 1] == target:
            what = "loop"
        yield f"{what} {time} {source:x} {back:x} {target:x}"


def calls_of_ours(name):
    lines = "\n".join(script(*branches(DATA / f"{name}.perf"))) + "\n"
    p = subprocess.run([WALK], input=lines, capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{name}: {p.stderr}")
    words = [line.split(" ", 2) for line in p.stdout.splitlines()]
    times = [int(w[0]) for w in words if int(w[0])]
    if times != sorted(times):
        fail(f"{name}: time runs backwards")
    s = p.stderr.split()
    return collections.Counter(w[2] for w in words if w[1] == "begin"), dict(zip(s[::2], map(int, s[1::2])))


def calls_of_theirs(name):
    found = (SLICE.match(line) for line in (DATA / f"{name}.expected").read_text().splitlines())
    begins = (m[2].replace(" [inferred start time]", "").strip().replace(" ", "_") for m in found if m and m[1] == "BEGIN")
    return collections.Counter(b for b in begins if not b.startswith("["))


if not DATA.is_dir():
    skip(f"no recordings in {DATA} ($TRACERD_DATA)")
for name in ("hello_world_userspace", "page_fault", "ocaml_exceptions", "memmove_decode_error"):
    got, stats = calls_of_ours(name)
    want = calls_of_theirs(name)
    other = {f: got[f] - want[f] for f in got | want if got[f] != want[f] and not STUBS.search(f)}
    if other != KNOWN.get(name, {}):
        fail(f"{name}: ours against theirs: {other}")
    expect(stats["unexplained"] == 0 and sum(got.values()) > 4, f"{name}: {sum(got.values())} calls, as magic-trace; all branches explained")
