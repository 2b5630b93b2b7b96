#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""What is written of a trace does not depend on how many threads have decoded it: the same bytes, compressed or not, with so much of it
that many blocks and pieces are under way at once."""
import tempfile

from lib.perffile import AUX, AUXTRACE, EXIT, PerfFile
from lib.pt import *

PIECE = 256 << 10  # of the writer
OVERFLOW = b"\x02\xf3"


def again_and_again(recording, times, out):
    """Its longest trace, so many times. Between two a loss, so that nobody takes the next one for what the one before has called."""
    f = PerfFile.read(recording.data)
    record, trace = max(f.of_type(AUXTRACE), key=lambda r: len(r[1]))
    more = (trace + OVERFLOW) * times
    more += bytes(-len(more) % 8)
    f.records = [r for r in f.records if struct.unpack_from("<I", r[0])[0] not in (AUXTRACE, EXIT)]
    for r in f.of_type(AUX):
        r[0] = r[0][:16] + struct.pack("<Q", len(more)) + r[0][24:]
    f.records.append([record[:8] + struct.pack("<Q", len(more)) + record[16:], more])
    for beside in recording.data.parent.glob(recording.data.name + ".*"):
        shutil.copy(beside, out.parent / (out.name + beside.name[len(recording.data.name):]))
    return f.write_file(out)


def written(work, data, *options):
    out = work / "out.pftrace"
    p = subprocess.run([BUILD / "tracectl", "decode", data, "-o", out, *options], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{options}: {p.stderr}")
    return out.read_bytes()


def same(work, data, what, pieces):
    for options in ([], ["--uncompressed"]):
        want = written(work, data, "--threads", "1", *options)
        if options and len(want) < pieces * PIECE:
            fail(f"{what}: {len(want)} bytes are too few to say anything")
        for threads in (2, 3, 8, 8):
            got = written(work, data, "--threads", str(threads), *options)
            if got != want:
                at = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), min(len(got), len(want)))
                fail(f"{what} {options}: {threads} threads write something else than one, from byte {at} on: {len(got)}, {len(want)} bytes")
    ok(f"{what}: the same bytes with one, two, three and eight threads ({len(want)} uncompressed)")


need_command("gcc", "gcc")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    jumps = Recording(work, "jumps", [common_program(work, "jumps")])
    same(work, again_and_again(jumps, 100, work / "again.data"), "one thread, again and again", 4)
    same(work, Recording(work, "threads", [common_program(work, "threads")]).data, "several threads", 0)
