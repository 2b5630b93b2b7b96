# SPDX-License-Identifier: Apache-2.0
"""What guest/kernel.sh left: what is asked of the PMU for a trace of the kernel, its code in the bundle, and who may have that."""
import json
import struct

from filter import attributes
from truth import *

# exclude_kernel, exclude_hv
EXCLUDE = 1 << 5 | 1 << 6


def segments(path):
    """(address, offset, bytes)"""
    data = path.read_bytes()
    at, n = struct.unpack_from("<Q", data, 32)[0], struct.unpack_from("<H", data, 56)[0]
    return [(s[3], s[2], s[5]) for s in (struct.unpack_from("<IIQQQQQQ", data, at + 56 * i) for i in range(n))]


def addresses(path, names):
    return {name: int(w[0], 16) for w in (line.split() for line in path.read_text().splitlines()) for name in [w[2]] if name in names}


def check_asked(share, ok, fail):
    ours, theirs = attributes(share / "kernel-asked-tracerd"), attributes(share / "kernel-asked-perf")
    if not ours or not theirs:
        fail(f"kernel: what was asked for: {ours} {theirs}")
    if any(int(a["flags"], 16) & EXCLUDE for a in (*ours, theirs[-1])):
        fail(f"kernel: ours leave out {[a['flags'] for a in ours]}, perf's {theirs[-1]['flags']}")
    ok("kernel: the PMU is asked for the kernel, too, as perf asks")


def check_code(share, folder, ok, fail):
    meta = json.loads((folder / "meta.json").read_text())
    lines = [line.split() for line in (share / "kernel-compared").read_text().splitlines()]
    code, compared = segments(folder / "kcore"), dict(lines[-3:])
    # Programs of BPF come and go, also the daemon's own.
    generated = {int(line.split()[0], 16) & ~0xFFF for line in (folder / "kallsyms").read_text().splitlines() if line.endswith("[bpf]")}
    other = [address for what, address in lines[:-3] if int(address, 16) not in generated]
    total = sum(size for _, _, size in code)
    if meta["kernel_code_bytes"] != total or not meta["events"]["kernel"] or meta["cut"] or meta["losses"].get("kernel_code_missing"):
        fail(f"kernel: {total} bytes of code, and meta.json says {meta.get('kernel_code_bytes')}, {meta['cut']}")
    if int(compared["pages"]) * 4096 != total or other or int(compared["different"]) > 4 or compared["missing"] != "0":
        fail(f"kernel: {total} bytes of code, and compared with /proc/kcore: {compared}: {(share / 'kernel-compared').read_text()}")
    wanted = ("_stext", "do_syscall_64", "schedule", "asm_exc_page_fault", "softpt_init", "init_module")
    where = addresses(folder / "kallsyms", (*wanted, "_etext", "_sdata"))
    module = [int(line.split()[0], 16) for line in (folder / "kallsyms").read_text().splitlines() if line.endswith("[softpt]") and line.split()[1] in "tT"]
    inside = lambda address: any(start <= address < start + size for start, _, size in code)
    if not module or not all(inside(where[n]) for n in wanted[:4]) or not all(inside(a) for a in module[:-1]) or inside(where["_sdata"]):
        fail(f"kernel: {len(module)} functions of the module, {[(n, inside(a)) for n, a in where.items()]}")
    if total > 100 << 20:
        fail(f"kernel: {total} bytes of code")
    ok(f"kernel: {total >> 20} MiB of its code in {len(code)} pieces are as in /proc/kcore, but for {compared['different']} pages of BPF programs, with that of modules and without data")


def check_read(build, own, tree, folder, ok, fail):
    """By us and by perf, which takes the bundle for what it calls a kcore_dir."""
    retired = Retired(folder / "retired").pairs
    decoded = our_instructions(build, own, folder)
    if len(decoded) < 1000 or not (is_run(retired, decoded) or not differences(retired, decoded)):
        fail(f"kernel: {len(decoded)} of {len(retired)} instructions: {differences(retired, decoded)}")
    text = run(["perf", "script", "-f", "-v", "--kallsyms", folder / "kallsyms", "-i", folder / "perf.data", "--symfs", tree, "--itrace=i1i", "-F", "event,tid,ip"])
    theirs = [(int(w[0]), int(w[2], 16)) for w in (line.split() for line in text.splitlines()) if len(w) > 2 and "instructions" in w[1]]
    if differences(decoded, theirs):
        fail(f"kernel: perf decodes something else: {differences(decoded, theirs)}")
    ok(f"kernel: {len(decoded)} instructions as they retired, for us and for perf with the bundle's kallsyms")


def check_said(share, ok, fail):
    said = {w[0]: (w[1], w[2] if len(w) > 2 else "") for w in (line.split(" ", 2) for line in (share / "kernel-said").read_text().splitlines())}
    if "end" not in said or said["arm"][0] != "0" or said["snapshot"][0] != "0" or said["compared"][0] != "0":
        fail(f"kernel: {said}")
    for name, words in (("refused", "/proc/kcore"), ("filter", "without --kernel"), ("host", "without --kernel"), ("without", "without the kernel"),
                        ("with", "with the kernel"), ("other-arm", ""), ("other-fetch", "")):
        if said[name][0] == "0" or words not in said[name][1]:
            fail(f"kernel: {name}: {said[name]}")
    if "CAP_SYS_RAWIO" not in said["refused"][1]:
        fail(f"kernel: what is missing is not said: {said['refused']}")
    shown = (share / "kernel-automatic").read_text()
    if said["automatic"][0] != "0" or '"sample"' not in shown or "by samples, not by Intel PT" not in shown:
        fail(f"kernel: auto without the right: {said['automatic']}: {shown}")
    ok("kernel: who cannot read its code, filters, hosts and other users are refused, and auto takes samples")


def check_kernel(build, share, tree, own, ok, fail):
    check_said(share, ok, fail)
    check_asked(share, ok, fail)
    check_code(share, share / "kernel", ok, fail)
    check_read(build, own, tree, share / "kernel", ok, fail)
