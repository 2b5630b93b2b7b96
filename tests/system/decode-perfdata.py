#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""`tracectl decode` on files that it did not write: what is no perf.data is refused in words;
recordings of many versions of perf are read, whole and cut at every 4 KiB; a recording made here
has as many samples as stock perf finds, and the functions that ran; a damaged executable costs
names, nothing more."""
import random
import re

from lib import *

UNDECODED = 8  # tracectl's exit code
RECORDINGS = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "pt" / "perfdata"


def decode(path, *more):
    p = subprocess.run([BUILD / "tracectl", "decode", path, "--format", "text", "-o", "-", *more],
                       capture_output=True, timeout=PATIENCE, env={**os.environ, "LC_ALL": "C"})
    return p.returncode, p.stdout.decode("utf-8", "replace"), p.stderr.decode("utf-8", "replace")


def died(stderr):
    return re.search(r"died|signal|Sanitizer|runtime error", stderr) is not None


def refusals(work):
    bad = work / "bad"
    for what, data in (("an empty file", b""), ("a script", b"#!/bin/sh\necho hello\n"), ("zeros", bytes(10000)),
                       ("the other byte order", b"2ELIFREP" + bytes(200)),
                       ("half a header", b"PERFILE2" + struct.pack("<Q", 104) + bytes(20))):
        bad.write_bytes(data)
        code, out, err = decode(bad)
        if code != UNDECODED or died(err) or not err.strip() or out:
            fail(f"{what}: exit {code}: {err}")
    ok("what is no perf.data is refused in words")
    code, out, err = decode("/dev/null")
    expect(code not in (0, -signal.SIGABRT) and err.strip() and not died(err), "a device is refused")


def recordings(work):
    if not RECORDINGS.is_dir():
        note(f"no recordings in {RECORDINGS} ($TRACERD_DATA): their part is left out")
        return
    files = [f for f in sorted(RECORDINGS.glob("*/*")) if f.suffix in (".data", ".perf") or f.name.startswith("perf.data")]
    files = [f for f in files if f.suffix not in (".xz", ".buildids")]
    runs = 0
    for f in files:
        code, out, err = decode(f)
        if code != 0 or died(err):
            fail(f"{f.name}: exit {code}: {err}")
    ok(f"{len(files)} recordings are read")
    cut = work / "cut.data"
    for f in files:
        data = f.read_bytes()
        for end in range(0, len(data), 4096):
            cut.write_bytes(data[:end])
            code, out, err = decode(cut)
            if code not in (0, UNDECODED) or died(err):
                fail(f"{f.name} cut at {end}: exit {code}: {err}")
            if code and not err.strip():
                fail(f"{f.name} cut at {end}: refused without a word")
            runs += 1
    ok(f"{runs} cut ones are read or refused")


def processes_that_are_none(work):
    """The programs of a process whose number no process has: the one who is asked for them must not end it for that."""
    f = RECORDINGS.parent / "wrapped" / "lldb-single.data"
    if not f.exists():
        return
    data = bytearray(f.read_bytes())
    at, size = struct.unpack_from("<QQ", data, 40)
    changed = 0
    while at + 8 <= len(data):
        kind, _, n = struct.unpack_from("<IHH", data, at)
        if n == 0 or kind == 71:  # AUXTRACE: the last
            break
        if kind == 10:
            struct.pack_into("<I", data, at + 8, 0xffffff00)
            changed += 1
        at += n
    bad = work / "process.data"
    bad.write_bytes(data)
    code, out, err = decode(bad, "--symfs", RECORDINGS.parent)
    expect(changed and code == 0 and not died(err), f"a process with an impossible number does no harm: {err}")


def record(work, name, *options):
    data = work / name
    p = subprocess.run(["perf", "record", "-N", "-q", "-e", "cpu-clock", "-F", "997", *options, "-o", data, "--",
                        work / "busy"], capture_output=True, cwd=work)
    if p.returncode != 0:
        note("perf record does not work here: " + p.stderr.decode("utf-8", "replace").strip()[:200])
        return None
    return data


BUSY = r"""
#include <stdio.h>
#include <stdlib.h>
static volatile double sink;
__attribute__((noinline)) void busy_leaf(int n) { for (int i = 0; i < n; i++) sink = sink + i; }
__attribute__((noinline)) void busy_middle(int n) { busy_leaf(n * 1000); sink = sink + 1; }
static int by_size(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(void)
{
	static int v[20000];
	for (int k = 0; k < 40; k++) {
		for (int i = 0; i < 60; i++) busy_middle(60);
		for (int i = 0; i < 20000; i++) v[i] = rand();
		qsort(v, 20000, sizeof(v[0]), by_size);
	}
	return 0;
}
"""


def live(work):
    if not working_perf() or not shutil.which("cc"):
        note("no perf or no compiler: nothing is recorded here")
        return
    (work / "busy.c").write_text(BUSY)
    subprocess.run(["cc", "-O1", "-fno-omit-frame-pointer", "-o", "busy", "busy.c"], cwd=work, check=True)
    for name, options in (("fp.data", ["-g"]), ("dwarf.data", ["--call-graph", "dwarf"]), ("flat.data", [])):
        data = record(work, name, *options)
        if not data:
            return
        stock = subprocess.run(["perf", "script", "-i", data, "-F", "tid,time"], capture_output=True, text=True)
        samples = len([line for line in stock.stdout.splitlines() if re.match(r"\s*\d+\s+\d+\.\d+:", line)])
        code, out, err = decode(data)
        if code != 0:
            fail(f"{name}: exit {code}: {err}")
        for f in ("busy_leaf",) if name == "flat.data" else ("busy_leaf", "busy_middle", "main"):
            if f'"{f}"' not in out:
                fail(f"{name}: {f} is not in the timeline")
        stats = json.loads(subprocess.run([BUILD / "tracectl", "decode", data, "--summary", "--json"],
                                          capture_output=True, check=True).stdout)["stats"]
        if stats["samples"] != samples:
            fail(f"{name}: {samples} samples by perf, {stats['samples']} here")
        note(f"{name}: {samples} samples, as by perf; sandbox: {stats['sandbox']}")
        if stats["sandbox"]["denied_calls"]:
            fail(f"{name}: the decoder tried what it may not")
    ok("functions that ran are in the timeline")
    damaged(work, work / "fp.data")


def damaged(work, data):
    """The executable, damaged in a hundred ways, in the place where it is looked for first."""
    tree = work / "symfs"
    place = tree / str(work / "busy").lstrip("/")
    place.parent.mkdir(parents=True, exist_ok=True)
    whole = (work / "busy").read_bytes()
    rnd = random.Random(3)
    for i in range(100):
        b = bytearray(whole)
        for _ in range(rnd.randint(1, 8)):
            at = rnd.randrange(64) if rnd.random() < 0.3 else rnd.randrange(len(b))
            b[at] = rnd.randrange(256)
        place.write_bytes(b[:rnd.randrange(len(b))] if i % 10 == 0 else b)
        code, out, err = decode(data, f"--symfs={tree}")
        if code != 0 or died(err):
            fail(f"damaged executable {i}: exit {code}: {err}")
    ok("a damaged executable costs names, nothing more")


work = pathlib.Path(tmp())
refusals(work)
recordings(work)
processes_that_are_none(work)
live(work)
