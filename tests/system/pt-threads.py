#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""What is decoded does not depend on how many threads do it: traces, their text, what is counted and what is lost are the same to
the byte, also where code is missing and bytes are damaged, and for many processes and buffers."""
import struct

from lib.perffile import AUX, AUXTRACE, MMAP2, PerfFile
from lib.pt import *

COUNTS = (1, 2, 3, 4, 8, 16)
OUTPUTS = {"trace": ("out.pftrace",), "trace, not compressed": ("out.pftrace", "--uncompressed"), "text": ("out.txt",)}
VARY = ("stages", "sandbox")
RECURSION = """
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int fib(int n)
{
	return n < 2 ? n : fib(n - 1) + fib(n - 2);
}

int main(void)
{
	static int v[1500];

	for (int i = 0; i < 1500; i++)
		v[i] = i * 7919 % 1500 - fib(i % 12);
	qsort(v, 1500, sizeof(*v), compare);
	return fib(15) != 610;
}
"""


def decode(data, work, threads, name, *options):
    out = work / name
    out.unlink(missing_ok=True)
    p = subprocess.run([BUILD / "tracectl", "--json", "decode", data, "-o", out, "--threads", str(threads), *options],
                       capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode:
        fail(f"{data.name} on {threads} threads: {p.stderr}")
    said = json.loads(p.stdout)
    each = said["stats"]["stages"]["following_each_ns"]
    if len(each) != threads:
        fail(f"{data.name}: {len(each)} threads instead of {threads} followed the trace")
    return out.read_bytes(), {k: v for k, v in said["stats"].items() if k not in VARY}, said["losses"], said.get("summary")


def is_same(what, data, work):
    for output, (name, *options) in OUTPUTS.items():
        one = decode(data, work, 1, name, *options)
        for n in COUNTS[1:]:
            other = decode(data, work, n, name, *options)
            for part, a, b in zip(("bytes", "stats", "losses", "summary"), one, other):
                if a != b:
                    fail(f"{what}: {output}: the {part} on {n} threads are others than on one")
    _, stats, losses, _ = one
    ok(f"{what}: {stats['calls']} calls in {stats['pt_buffers']} buffers, losses {losses or 'none'}, the same on {COUNTS} threads")
    return stats, losses


def damaged(data, work):
    """Some bytes of the trace are others."""
    f = PerfFile.read(data)
    for record in f.of_type(AUXTRACE):
        payload = bytearray(record[1])
        for i in range(3000, len(payload), 9001):
            payload[i] ^= 0xA5
        record[1] = bytes(payload)
    return f.write_file(work / "damaged.data")


def without_code(data, work):
    """A file that cannot be found."""
    f = PerfFile.read(data)
    n = 0
    for record in f.of_type(MMAP2):
        if b"/libc" in record[0]:
            record[0] = record[0].replace(b"/libc", b"/lost", 1)
            n += 1
    if n == 0:
        fail(f"{data.name}: no libc is mapped")
    return f.write_file(work / "lost.data")


def is_bounded(data, work):
    """A trace of 64 MiB, whose time stands still after the first copy, on as many threads as there can be."""
    f = PerfFile.read(data)
    record = max(f.of_type(AUXTRACE), key=lambda r: len(r[1]))
    payload = record[1] * -(-(64 << 20) // len(record[1]))
    record[:] = [record[0][:8] + struct.pack("<Q", len(payload)) + record[0][16:], payload]
    for aux in f.of_type(AUX):
        aux[0] = aux[0][:16] + struct.pack("<Q", len(payload)) + aux[0][24:]
    p = subprocess.run([BUILD / "tracectl", "--json", "decode", f.write_file(work / "large.data"), "-o", work / "large.pftrace",
                        "--threads", "16"], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode:
        fail(f"64 MiB: {p.stderr}")
    said = json.loads(p.stdout)
    mib = said["max_rss_bytes"] / 2**20
    expect(said["stats"]["pt_bytes"] >= 64 << 20 and mib <= 200, f"{said['stats']['pt_bytes'] >> 20} MiB, {said['stats']['calls']} calls: "
           f"{mib:.0f} MiB of memory on 16 threads")


def main():
    work = tmp()
    recursion = work / "recursion.c"
    recursion.write_text(RECURSION)
    short = work / "short.c"
    short.write_text("int main(void) { return 0; }\n")
    short = compile_calls(work, "short", [str(short)], "-static")
    computes = compile_calls(work, "computes", [str(recursion)], "-O1", "-fno-inline")
    made = record_all(work, {
        "threads": ([common_program(work, "threads")], 0),
        "computes": ([computes], 1500000),
        "processes": (["sh", "-c", f"for i in 1 2 3 4 5 6 7 8; do {short}; done; exit 0"], 0),
    })
    stats, _ = is_same("threads", made["threads"].data, work)
    expect(stats["pt_buffers"] > 2, "the program has threads")
    stats, _ = is_same("a program that computes", made["computes"].data, work)
    expect(stats["bytes_raw"] > 4 << 18, "its trace has more pieces than threads compress at a time")
    stats, _ = is_same("processes", made["processes"].data, work)
    expect(stats["processes"] > 4, "there are more processes than spaces that a thread keeps")
    _, losses = is_same("damaged bytes", damaged(made["computes"].data, work), work)
    expect(losses, "the damage is told")
    _, losses = is_same("missing code", without_code(made["computes"].data, work), work)
    expect("pt_no_code" in losses, "the missing code is told")
    if "AddressSanitizer" not in subprocess.run(["nm", "-D", BUILD / "tracerd-decode"], capture_output=True, text=True).stdout \
            and "asan" not in subprocess.run(["ldd", BUILD / "tracerd-decode"], capture_output=True, text=True).stdout:
        is_bounded(made["computes"].data, work)


main()
