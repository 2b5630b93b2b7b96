#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Intel PT without the hardware: boots a guest whose intel_pt PMU is software (tests/rig/pmu), records in it, and compares what is
decoded outside with the log of the instructions that retired. make check-rig, or scripts/test rig.

    check.py		everything
    check.py perf	only what stock perf records: proves the rig and our decoder
    check.py tracerd	only what tracerd's own back end records
    check.py hit	only a trigger on a place in the code
    check.py share	only targets that have threads in common, and the host
    check.py callers	only the names of who called what is traced
    check.py filter	only address filters, PTWRITE, and what the PMU is asked for
    check.py kernel	only what a trace of the kernel takes: what is asked for, and its code
    check.py hostile	only programs and moments that make it hard to say who executed what
    check.py hotplug	only CPUs that come and go
    check.py samples	only the sampling back end, on that kernel
    check.py presets	only what tracerd asks of processors that lack something
    check.py --sid	on the newest kernel of Debian unstable, which can pause Intel PT: hit, hotplug, samples, and what pausing does (pause)
    check.py --again	compares what the last boot left
"""
import sys

sys.path.insert(0, str(__import__("pathlib").Path(__file__).resolve().parents[1] / "system"))

from lib import *
from callers import check_callers
from daemon import check_daemon, our_tree
from filter import check_filters
from hit import check_place
from hostile import check_hostile
from hotplug import check_hotplug
from kernel import check_kernel
from pause import check_pause
from presets import check_presets
from samples import check_samples
from sharing import check_sharing
from truth import *

RIG = SRC / "tests/rig"
# A kernel is a folder of its own, and so is what its guest leaves.
SID = "--sid" in sys.argv
FOLDER = BUILD / ("rig-sid" if SID else "rig")
SHARE = FOLDER / "share"
# A busy machine takes many times as long as an idle one.
BOOT_LIMIT = 1500
# Where Linux puts programs that are not moved about (randomize_va_space).
FIXED = 0x555555554000

# Everything that retired is decoded, and nothing else.
EXACT = ("default", "noretcomp", "mtc", "cyc", "often-psb", "short-tnt", "no-deferral", "per-thread", "untimed", "cpu-wide", "small-ring",
         "filter", "ptwrite", "attach", "uprobe", "breakpoint", "slow-reader")
# perf takes an untimed trace for that of one thread on a CPU.
WITHOUT_PERF = ("untimed",)


def compiled(name):
    out = SHARE / "rig" / name
    run(["gcc", "-O1", "-g", "-pthread", "-o", out, RIG / f"programs/{name}.c"])
    return out


def symbols(program):
    """For the guest's scripts."""
    for line in run(["nm", program]).splitlines():
        w = line.split()
        if w[-1] == "descend":
            at = int(w[0], 16)
            (SHARE / "symbols").write_text(f"descend_offset={at:x}\ndescend_fixed={FIXED + at:x}\n")
            return
    fail("the program has no function")


def boot(parts):
    p = subprocess.run(["nice", RIG / "prepare", *(["--sid"] if SID else []), FOLDER, BUILD], capture_output=True, text=True)
    if p.returncode == 77:
        skip(p.stdout.strip().splitlines()[-1].removeprefix("SKIP: "))
    if p.returncode:
        fail(f"what the guest boots from could not be made: {p.stdout}{p.stderr}")
    shutil.rmtree(SHARE, ignore_errors=True)
    (SHARE / "rig").mkdir(parents=True)
    shutil.copytree(RIG / "guest", SHARE / "guest")
    symbols(compiled("mixed"))
    compiled("ptwrites")
    compiled("life")
    compiled("hit")
    compiled("deep")
    compiled("pause")
    compiled("exits")
    compiled("hostile")
    compiled("kcore")
    for name, flags in (("plugin", []), ("other-plugin", ["-DOTHER"])):
        run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-fno-optimize-sibling-calls", "-Wl,-z,noseparate-code", *flags,
             "-o", SHARE / "rig" / f"{name}.so", RIG / "programs/plugin.c"])
    script = SHARE / "script"
    script.write_text("".join(f"sh /share/guest/{part}.sh || exit 1\n" for part in parts))
    began = time.monotonic()
    p = subprocess.run(["nice", RIG / "boot", "--build", BUILD, "--timeout", str(BOOT_LIMIT), FOLDER, SHARE, script])
    if p.returncode:
        fail(f"the guest: exit status {p.returncode}, see {SHARE}/serial.log")
    ok(f"the guest ran in {time.monotonic() - began:.0f} s")


def as_bundle(folder):
    (folder / "images").mkdir(exist_ok=True)
    shutil.copy(SHARE / "vdso.so", folder / "images/vdso.so")
    return folder


def counts(folder):
    return {what: int(n) for what, n in (line.split() for line in (folder / "counts").read_text().splitlines())}


def equal(what, found):
    if found:
        fail(f"{what}: {'; '.join(found)}")


def check_exact(name, folder, tree):
    retired = Retired(folder / "retired")
    if len(retired.pairs) < 1000:
        fail(f"{name}: only {len(retired.pairs)} instructions retired: {(folder / 'output').read_text()}")
    equal(f"{name}: our decoder", differences(retired.pairs, our_instructions(BUILD, SHARE, folder)))
    if name != "filter":  # there a branch may leave what is traced
        equal(f"{name}: our branches", branch_differences(retired.pairs, *our_branches(BUILD, SHARE, folder)))
    theirs = ""
    if name not in WITHOUT_PERF:
        equal(f"{name}: perf script", differences(retired.pairs, perf_instructions(tree, folder / "perf.data")))
        theirs = ", and by perf script"
    ok(f"{name}: the {len(retired.pairs)} instructions of {len(retired.threads())} threads are decoded as they retired{theirs}")


def check_snapshots(tree):
    """A ring has the last that was written to it; what is in it begins at a PSB and has no gap."""
    for name in ("snapshot", "snapshot-midway"):
        folder = as_bundle(SHARE / name)
        retired = Retired(folder / "retired").pairs
        decoded = our_instructions(BUILD, SHARE, folder)
        if not 1000 < len(decoded) < len(retired):
            fail(f"{name}: {len(decoded)} of {len(retired)} instructions: {(folder / 'output').read_text()}")
        if name == "snapshot" and decoded != retired[-len(decoded) :]:
            fail(f"{name}: what was decoded is not the last that retired")
        if not is_run(retired, decoded):
            fail(f"{name}: what was decoded is no run of what retired")
        equal(f"{name}: perf script", differences(decoded, perf_instructions(tree, folder / "perf.data")))
        ok(f"{name}: the ring had {len(decoded)} of {len(retired)} instructions, in a row")


def check_overflow():
    folder = as_bundle(SHARE / "overflow")
    retired = Retired(folder / "retired")
    found = overflow_differences(retired, our_instructions(BUILD, SHARE, folder))
    equal("overflow", found)
    losses = our_losses(BUILD, SHARE, folder)
    n = counts(folder)["overflows"]
    if n < 5 or losses.get("pt_overflows") != n:
        fail(f"overflow: {n} happened, and these were seen: {losses}")
    ok(f"overflow: {n} overflows lost {sum(retired.lost)} instructions, and nothing else is missing")


def check_losses():
    """What was not lost has no losses, and what was has them."""
    for name in ("default", "cpu-wide", "small-ring"):
        losses = {k: v for k, v in our_losses(BUILD, SHARE, SHARE / name).items() if k.startswith("pt_")}
        if losses:
            fail(f"{name}: losses without a reason: {losses}")
    truncations = counts(SHARE / "slow-reader")["truncations"]
    if not truncations:
        fail("slow-reader: the ring was never full")
    ok(f"nothing is said to be lost where nothing was; {truncations} times a ring was full")


def check_ptwrites(tree):
    text = run(["perf", "script", "-f", "-i", SHARE / "ptwrite/perf.data", "--symfs", tree, "--itrace=w", "-F", "event,ip,synth"])
    values = [int(line.split("payload:")[1].split()[0], 16) for line in text.splitlines() if "payload:" in line]
    if values != list(range(1, 11)):
        fail(f"ptwrite: {values}: {text}")
    ok("ptwrite: the values are those that the program wrote")


def check_perf():
    tree = tmp() / "tree"
    tree.mkdir()
    perf_tree(tree, SHARE, SHARE / "vdso.so")
    for name in EXACT:
        check_exact(name, as_bundle(SHARE / name), tree)
    check_snapshots(tree)
    check_overflow()
    check_losses()
    check_ptwrites(tree)


def check_tracerd():
    tree, own = tmp() / "tracerd-tree", tmp() / "own"
    tree.mkdir()
    own.mkdir()
    perf_tree(tree, SHARE, SHARE / "pt-mixed/images/vdso.so")
    check_daemon(BUILD, SHARE, tree, own, ok, fail)


def check_hit():
    own = tmp() / "hit"
    own.mkdir()
    check_place(BUILD, SHARE, own, SID, ok, fail)


def check_pausing():
    check_pause(SHARE, ok, fail)


def check_share():
    tree, own = tmp() / "share-tree", tmp() / "share-own"
    tree.mkdir()
    own.mkdir()
    perf_tree(tree, SHARE, SHARE / "shared-part/images/vdso.so")
    check_sharing(BUILD, SHARE, tree, our_tree(own, SHARE), ok, fail)


def check_outer():
    own = tmp() / "callers-own" / "rig"
    own.mkdir(parents=True)
    shutil.copy(SHARE / "rig" / "deep", own)
    check_callers(BUILD, SHARE, own.parent, ok, fail)


def check_sampled():
    own = tmp() / "samples-own" / "rig"
    own.mkdir(parents=True)
    shutil.copy(SHARE / "rig" / "exits", own)
    check_samples(BUILD, SHARE, own.parent, ok, fail)


def check_filter():
    check_filters(BUILD, SHARE, ok, fail)


def check_traced_kernel():
    tree, own = tmp() / "kernel-tree", tmp() / "kernel-own"
    tree.mkdir()
    own.mkdir()
    perf_tree(tree, SHARE, SHARE / "kernel/images/vdso.so")
    check_kernel(BUILD, SHARE, tree, our_tree(own, SHARE), ok, fail)


def check_cpus():
    own = tmp() / "hotplug-own"
    own.mkdir()
    check_hotplug(BUILD, SHARE, our_tree(own, SHARE), ok, fail)


def check_hard():
    own = tmp() / "hostile-own"
    own.mkdir()
    our_tree(own, SHARE)
    for name in ("hostile", "plugin.so", "other-plugin.so"):
        shutil.copy(SHARE / "rig" / name, own / "rig" / name)
    check_hostile(BUILD, SHARE, own, ok, fail)


def check_asked():
    own = tmp() / "presets-own"
    own.mkdir()
    check_presets(BUILD, SHARE, our_tree(own, SHARE), ok, fail)


# presets loads the module anew, so it is the last one.
PARTS = {"perf": check_perf, "tracerd": check_tracerd, "hit": check_hit, "share": check_share, "callers": check_outer,
         "filter": check_filter, "kernel": check_traced_kernel, "hostile": check_hard, "hotplug": check_cpus, "samples": check_sampled, "presets": check_asked}
ON_SID = {"hit": check_hit, "hotplug": check_cpus, "pause": check_pausing, "samples": check_sampled}


def main(names):
    checks = {**PARTS, **ON_SID} if SID else PARTS
    parts = [n for n in names if n in checks] or list(ON_SID if SID else PARTS)
    if "--again" not in names:
        boot(parts)
    for part in parts:
        checks[part]()


main(sys.argv[1:])
