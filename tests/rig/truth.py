# SPDX-License-Identifier: Apache-2.0
"""What retired in the guest, and what decoders make of the recording: each as a list of (tid, address) in order, and the ways in
which one may differ from the other. Knows nothing of how the guest is run."""
import array
import collections
import shutil
import struct
import subprocess

# Of an overflow the decoder has nothing, nor of the straight line that led up to it.
STRAIGHT_LINE = 200


class Retired:
    """The module's log (tests/rig/pmu/retired.h)."""

    def __init__(self, path):
        rows = list(struct.iter_unpack("<IHHQ", path.read_bytes()))
        self.pairs = [(tid, ip) for tid, _, _, ip in rows]
        self.lost = [lost for _, _, lost, _ in rows]

    def threads(self):
        return by_thread(self.pairs)


def by_thread(pairs):
    threads = collections.defaultdict(lambda: array.array("Q"))
    for tid, ip in pairs:
        threads[tid].append(ip)
    return threads


def first_difference(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))


def differences(truth, decoded):
    """Of each thread, in words; empty: they are equal."""
    mine, theirs = by_thread(truth), by_thread(decoded)
    found = []
    for tid in sorted(set(mine) | set(theirs)):
        a, b = mine[tid], theirs[tid]
        if a != b:
            i = first_difference(a, b)
            found.append(f"thread {tid}: {len(a)} retired, {len(b)} decoded, other from {i} on: "
                         f"{[hex(x) for x in a[max(0, i - 2):i + 3]]}, {[hex(x) for x in b[max(0, i - 2):i + 3]]}")
    return found


def is_run(truth, decoded):
    """Whether what was decoded is one run of what retired."""
    if not decoded:
        return False
    first = decoded[0]
    return any(truth[i] == first and truth[i : i + len(decoded)] == decoded for i in range(len(truth) - len(decoded) + 1))


def overflow_differences(retired, decoded):
    """Each thread's instructions but those that an overflow lost, and at most a straight line before each."""
    theirs = by_thread(decoded)
    kept, found = collections.defaultdict(list), []
    before = {}
    for (tid, ip), lost in zip(retired.pairs, retired.lost):
        runs = kept[tid]
        if not lost:
            if before.get(tid, True):
                runs.append(array.array("Q"))
            runs[-1].append(ip)
        before[tid] = bool(lost)
    for tid, runs in kept.items():
        rest = theirs[tid]
        at = 0
        for run, following in zip(runs, runs[1:] + [None]):
            n = first_difference(run, rest[at : at + len(run)])
            if following is not None:
                # the next run may begin like what is missing of this one
                n = next((k for k in range(n, max(-1, n - STRAIGHT_LINE), -1) if rest[at + k : at + k + 8] == following[:8]), n)
            if len(run) - n > (STRAIGHT_LINE if following is not None else 0):
                found.append(f"thread {tid}: of {len(run)} instructions in a row only {n} were decoded")
                break
            at += n
        else:
            if at != len(rest):
                found.append(f"thread {tid}: {len(rest) - at} instructions are decoded that never retired")
    return found


def run(command):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=600)
    if p.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}: {p.stderr}")
    return p.stdout


def our_instructions(build, tree, bundle):
    """By tracectl decode, of a bundle whose programs are in TREE."""
    lines = run([build / "tracectl", "decode", "--symfs", tree, "--insns", bundle]).splitlines()
    return [(int(w[1]), int(w[2], 16)) for w in (line.split(" ", 3) for line in lines[1:])]


def our_branches(build, tree, bundle):
    """(tid, from, to), of the branches that are followed at both ends; how often the trace stopped."""
    found, stops = [], 0
    for line in run([build / "tracectl", "decode", "--symfs", tree, "--branches", bundle]).splitlines()[1:]:
        left, right = line.split(" -> ")
        w = left.split(" ", 4)
        stops += w[2] == "stop"
        if w[3] != "-" and right != "-":
            found.append((int(w[1]), int(w[3], 16), int(right.split(" ", 1)[0], 16)))
    return found, stops


def our_losses(build, tree, bundle):
    import json

    p = run([build / "tracectl", "--json", "decode", "--symfs", tree, "--summary", bundle])
    return json.loads(p)["losses"]


def branch_differences(truth, branches, stops):
    """Each thread's branches, in their order, go from one retired instruction to the next; or to where it went on after a signal,
    which came at one of so many stops."""
    mine = by_thread(truth)
    at, signals = collections.Counter(), 0
    for tid, source, target in branches:
        ips, i = mine[tid], at[tid]
        while i < len(ips) and ips[i] != source:
            i += 1
        if i == len(ips):
            return [f"thread {tid}: a branch from {source:x} to {target:x} that nobody took there"]
        signals += i + 1 == len(ips) or ips[i + 1] != target
        at[tid] = i + 1
    return [f"{signals} branches go elsewhere, at {stops} stops"] if signals > stops else []


def perf_tree(folder, tree, vdso):
    """A tree for perf's --symfs, which looks nowhere else: this machine's libraries, TREE's programs and the guest's vDSO."""
    for name in ("usr", "lib", "lib64"):
        (folder / name).symlink_to(f"/{name}")
    (folder / "rig").symlink_to(tree / "rig")
    note = run(["readelf", "-n", vdso])
    build_id = note.split("Build ID: ")[1].split()[0]
    cache = folder / ".debug"
    (cache / "[vdso]" / build_id).mkdir(parents=True)
    shutil.copy(vdso, cache / "[vdso]" / build_id / "vdso")
    (cache / ".build-id" / build_id[:2]).mkdir(parents=True)
    (cache / ".build-id" / build_id[:2] / build_id[2:]).symlink_to(f"../../[vdso]/{build_id}")


def perf_instructions(tree, data):
    """By stock perf."""
    text = run(["perf", "script", "-f", "-i", data, "--symfs", tree, "--itrace=i1i", "-F", "tid,event,ip"])
    words = (line.split() for line in text.splitlines())
    # the recording may have samples of another event
    return [(int(w[0]), int(w[-1], 16)) for w in words if w[1].startswith("instructions")]
