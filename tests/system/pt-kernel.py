#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bundle of a trace of the kernel, as others read it: perf follows the kernel's code in the bundle's copy, and sees the instructions that we see. What
is drawn of it, and what a copy that is none costs. Which calls come of it show the goldens (kernel*.ptt)."""
from lib import *
from lib.perffile import PerfFile
from lib.ptpackets import Encoder

KERNEL, MODULE, PROGRAM = 0xFFFFFFFF81000000, 0xFFFFFFFFC0001000, 0x401000
# main: mov eax, 1; syscall; nop; int3
MAIN = bytes.fromhex("b801000000" "0f05" "90" "cc")
# entry: call do_syscall; sysretq. do_syscall: call rax; ret
ENTRY = bytes.fromhex("e803000000" "480f07" "ffd0" "c3")
# mod_read: nop; ret
READ = bytes.fromhex("90" "c3")
STEPS = [PROGRAM, PROGRAM + 5, KERNEL, KERNEL + 8, MODULE, MODULE + 1, KERNEL + 10, KERNEL + 5, PROGRAM + 7]
NAMES = f"{KERNEL:016x} T entry_SYSCALL_64\n{KERNEL:016x} T _stext\n{KERNEL + 8:016x} t do_syscall_64\n{KERNEL + 0x1000:016x} T _etext\n" \
        f"{MODULE:016x} t mod_read\t[mod]\n{MODULE + 2:016x} t mod_end\t[mod]\n"


def kcore(pieces):
    table, code = b"", b""
    for address, data in pieces:
        data = data.ljust(4096, b"\xcc")
        table += struct.pack("<IIQQQQQQ", 1, 5, 4096 + len(code), address, 0, len(data), len(data), 4096)
        code += data
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 4, 62, 1, 0, 4096 + len(code), 0, 0, 64, 56, len(pieces), 0, 0, 0)
    return head.ljust(4096, b"\0") + code + table


def packets():
    e = Encoder()
    for line in (f"sync {PROGRAM:#x} 1000", "tsc 1010", f"tip {KERNEL:#x}", f"tip {MODULE:#x}", f"tip {KERNEL + 10:#x}", "tnt T", "tsc 1020",
                 f"tip {PROGRAM + 7:#x}", f"fup {PROGRAM + 8:#x}", "tip.pgd"):
        e.line(line)
    return bytes(e.out)


def make(work, code):
    bundle = work / "bundle"
    shutil.rmtree(bundle, ignore_errors=True)
    bundle.mkdir()
    program = (work / "prog").resolve()
    program.write_bytes(MAIN.ljust(4096, b"\xcc"))
    st = program.stat()
    f = PerfFile()
    f.start(kernel=True)
    # as the daemon writes it: where the kernel is
    name = b"[kernel.kallsyms]_text\0\0"
    f.side(1, struct.pack("<IIQQQ", 0xFFFFFFFF, 0, 1 << 63, (1 << 63) - 4096, 0) + name, 1, 0xFFFFFFFF, 0, misc=1)
    f.comm(1, 7, 7, "prog")
    f.mmap(2, 7, 7, PROGRAM, 4096, 0, str(program), inode=(os.major(st.st_dev), os.minor(st.st_dev), st.st_ino))
    f.auxtrace(packets(), 0, tid=7, reference=1000)
    f.write_file(bundle / "perf.data")
    (bundle / "kallsyms").write_text(NAMES)
    (bundle / "modules").write_text(f"mod 16384 0 - Live {MODULE:#x}\n")
    if code is not None:
        (bundle / "kcore").write_bytes(code)
    return bundle


def decode(bundle, *options):
    p = subprocess.run([BUILD / "tracectl", *(["--json"] if "--stats" in options else []), "decode", bundle, *options], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode:
        fail(f"{options}: exit {p.returncode}: {p.stderr}")
    return p.stdout


def instructions(bundle):
    return [int(line.split()[2], 16) for line in decode(bundle, "--insns").splitlines()[1:]]


GOOD = kcore([(MODULE, READ), (KERNEL, ENTRY)])


def ours(work):
    bundle = make(work, GOOD)
    expect(instructions(bundle) == STEPS, f"the kernel's instructions are followed: {[hex(i) for i in instructions(bundle)]}")
    text = decode(bundle, "--format", "text", "-o", "-")
    for name, where in (("entry_SYSCALL_64", "[kernel]"), ("do_syscall_64", "[kernel]"), ("mod_read", "[mod]")):
        lines = [line for line in text.splitlines() if name in line]
        expect(lines and all(where in line for line in lines), f"{name} is drawn as {where}'s: {lines}")
    losses = {k: v for k, v in json.loads(decode(bundle, "--stats"))["losses"].items() if v}
    expect(not losses, f"nothing is lost: {losses}")


def perfs(work):
    perf = working_perf()
    if not perf:
        note("perf is not there: what it makes of a bundle is not looked at")
        return
    bundle = make(work, GOOD)
    p = subprocess.run([perf, "script", "-f", "--kallsyms", bundle / "kallsyms", "-i", bundle / "perf.data", "--itrace=i1i", "-F", "ip,sym"],
                       capture_output=True, text=True, timeout=PATIENCE)
    lines = [line.split() for line in p.stdout.splitlines() if line.strip()]
    expect([int(w[0], 16) for w in lines] == STEPS, f"perf follows them in the bundle's copy: {p.stdout} {p.stderr}")
    named = {w[1] for w in lines if len(w) > 1}
    expect({"do_syscall_64", "mod_read"} <= named, f"and names them: {named}")


def none(work):
    """What is no code, or has something else there, costs the kernel's part, and says so; never more."""
    user = [s for s in STEPS if s < 1 << 63]
    for what, code in (("there is none", None), ("it is empty", b""), ("it is no ELF file", b"x" * 8192), ("it is cut", GOOD[:4096 + 4]),
                       ("it has no segments", GOOD[:56] + bytes(2) + GOOD[58:]), ("a module is missing", kcore([(KERNEL, ENTRY)])),
                       ("its addresses are a program's", kcore([(PROGRAM, b"\xcc"), (KERNEL & (1 << 47) - 1, ENTRY)]))):
        bundle = make(work, code)
        got = [i for i in instructions(bundle) if i < 1 << 63]
        losses = json.loads(decode(bundle, "--stats"))["losses"]
        expect(got == user and losses.get("pt_no_code", 0) > 0, f"where {what} the program is followed, and the rest counted: {[hex(i) for i in got]} {losses}")


with tempfile.TemporaryDirectory() as folder:
    for test in (ours, perfs, none):
        test(pathlib.Path(folder))
