# SPDX-License-Identifier: Apache-2.0
"""What guest/callers.sh left: the callers of a program that was deep in them all along have their names."""
import struct
import subprocess

SCHED, STACK = b"TSE\1", 4  # common/bundle/schedev.h
SEEN = "begin not recorded, from its stack"


def decode(build, own, folder):
    """[(name, how)] of all slices of the thread."""
    p = subprocess.run([build / "tracectl", "decode", "--symfs", own, "--format", "text", "-o", "-", folder], capture_output=True, text=True)
    lines = [line.split("\t") for line in p.stdout.splitlines()]
    return [(f[3].strip('"'), next((x[5:-1] for x in f if x.startswith("how=")), None)) for f in lines if len(f) > 3 and f[2] == "B"]


def check_callers(build, share, own, ok, fail):
    folder = share / "callers"
    pid = int((folder / "pid").read_text())
    data = bytearray((folder / "perf.data").read_bytes())
    mine, at = {}, data.find(SCHED)
    while at >= 0:
        kind, _, who = struct.unpack_from("<HHI", data, at + 4)
        if who == pid:
            mine.setdefault(kind, []).append(at)
        at = data.find(SCHED, at + 1)
    if STACK not in mine:
        fail(f"no stack was taken of a thread that runs: {({k: len(v) for k, v in mine.items()})}")
    # Of all stacks only that of the freeze is left.
    for kind, places in mine.items():
        for at in places if kind != STACK else []:
            data[at] = 0
    (folder / "perf.data").write_bytes(data)
    slices = decode(build, own, folder)
    named = [s for s in slices if s[0] in ("main", "outer", "middle")]
    if [n for n, how in named if how and how.startswith(SEEN)] != ["main", "outer", "middle"]:
        fail(f"callers that were there all along: {named} of {len(slices)} slices")
    ok(f"a thread that runs at the freeze: {' '.join(n for n, _ in named)} are around its calls, by its stack")
