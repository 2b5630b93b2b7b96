#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""Code from anywhere: a file that is no ELF file, by its offset, also beyond 4 GiB; pieces of pages; objects of many segments; addresses of the
kernel. The same few instructions are followed wherever they are. A file that nobody has named is not read."""
from lib import *
from lib.perffile import PerfFile
from lib.ptpackets import Encoder

CODE = bytes.fromhex("90" "e806000000" "90" "6690" "f4" "0f0b" "0f1f00" "c3")  # nop; call +6; nop; xchg ax, ax; hlt; ud2; nop; ret
STEPS = [0, 1, 12, 15, 6, 7]
STOP = 9
ORDINARY = 0x401000


def packets(base):
    e = Encoder()
    for line in ("sync {:#x} 1000", "tnt T", "tsc 1010", "fup {:#x}", "tip.pgd"):
        e.line(line.format(base if "sync" in line else base + STOP))
    return bytes(e.out)


def instructions(what, command):
    p = subprocess.run([BUILD / "tracectl", "decode", "--insns", *command], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode or p.stderr:
        fail(f"{what}: exit {p.returncode}: {p.stderr}")
    return [int(line.split()[2], 16) for line in p.stdout.splitlines()[1:]]


def check(work, what, mappings, base=ORDINARY):
    trace, info = work / "trace", work / "info.json"
    trace.write_bytes(packets(base))
    info.write_text(json.dumps(dict(tid=7, mappings=mappings)))
    got = instructions(what, [trace, "--pt-info", info])
    expect(got == [base + s for s in STEPS], f"{what}: {[hex(x) for x in got]}")


def mapping(file, offset=0, length=len(CODE), address=ORDINARY):
    return dict(file=file, offset=offset, length=length, address=str(address))


def put(path, at, data):
    with open(path, "r+b" if path.exists() else "w+b") as f:
        f.seek(at)
        f.write(data)


def elf(n):
    """A program of so many segments, in the reverse order of their addresses; the last has the code. Its bytes, and where in the file that is."""
    begin = 64 + 56 * n
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, 0, 64, 0, 0, 64, 56, n, 0, 0, 0)
    table = b"".join(struct.pack("<IIQQQQQQ", 1, 5, begin + 32 * i, 0x10000000 - 0x1000 * i, 0, 32, 32, 1) for i in range(n))
    return head + table + b"\xcc" * (32 * (n - 1)) + CODE.ljust(32, b"\xcc"), begin + 32 * (n - 1)


def flat(work):
    put(work / "flat", 0, CODE)
    check(work, "a file that is no ELF file", [mapping("flat")])
    put(work / "pages", 0x123, CODE)
    check(work, "by its offset", [mapping("pages", 0x123)])
    check(work, "at an address of the kernel", [mapping("flat", address=0xFFFFFFFF81000000)], base=0xFFFFFFFF81000000)
    last = (1 << 64) - 4096
    check(work, "in the last page of all", [mapping("flat", address=last)], base=last)
    for offset in (5 << 30, 0x123456789ABC):
        try:
            put(work / "dump", offset, CODE)
        except OSError as e:
            note(f"no file of {offset:#x} bytes here: {e.strerror}")
            continue
        check(work, f"{offset:#x} bytes into a dump of memory", [mapping("dump", offset)])


def pieces(work):
    put(work / "wrong", 0, b"\xcc" * 4096)
    put(work / "begin", 0, CODE[:6])
    put(work / "end", 0, b"\xcc" * 7 + CODE[6:])
    around = mapping("wrong", length=4096, address=ORDINARY & ~0xFFF)
    check(work, "pieces in a mapping, none of them a page", [around, mapping("begin", length=6), mapping("end", 7, len(CODE) - 6, ORDINARY + 6)])
    check(work, "an instruction in two pieces", [around, mapping("begin", length=3), mapping("flat", 3, len(CODE) - 3, ORDINARY + 3)])
    check(work, "one piece replaces part of another", [mapping("flat", length=len(CODE)), mapping("end", 7 + 6, 1, ORDINARY + 12),
                                                       mapping("flat", 12, 1, ORDINARY + 12)])


def segments(work):
    for n in (1, 33, 400, 5000):
        data, offset = elf(n)
        (work / f"elf-{n}").write_bytes(data)
        check(work, f"an object of {n} segments", [mapping(f"elf-{n}", offset)])


def recorded(work):
    """In a recording the file of its record is read, by the inode; another one's is not, unless a user has put it there."""
    path = (work / "code.bin").resolve()
    path.write_bytes(CODE)
    device = path.stat().st_dev
    for what, ino, symfs, wanted in (("the file that was mapped", path.stat().st_ino, False, True), ("another one at its path", 1, False, False),
                                     ("one whose inode is not known", 0, False, False), ("one in a tree that is named", 0, True, True)):
        f = PerfFile()
        f.start()
        f.comm(1, 7, 7, "prog")
        f.mmap(2, 7, 7, ORDINARY, 4096, 0, str(path), inode=(os.major(device), os.minor(device), ino))
        f.auxtrace(packets(ORDINARY), 0, tid=7)
        f.write_file(work / "perf.data")
        fs = work / "fs"
        (fs / path.relative_to("/")).parent.mkdir(parents=True, exist_ok=True)
        (fs / path.relative_to("/")).write_bytes(CODE)
        got = instructions(what, [*(["--symfs", fs] if symfs else []), work / "perf.data"])
        expect(bool(got) == wanted, f"{what} is {'read' if wanted else 'not read'}")


with tempfile.TemporaryDirectory() as folder:
    for test in (flat, pieces, segments, recorded):
        test(pathlib.Path(folder))
