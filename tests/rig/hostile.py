# SPDX-License-Identifier: Apache-2.0
"""What guest/hostile.sh left: programs and moments that make it hard to say who executed what, and which code there was."""
import json

from truth import *

# From before the program did anything to when it slept.
WHOLE = ("migrate", "libs", "coroutines", "thread-exec", "spawn")
# Taken while it ran: the first of what each thread executed.
RUNNING = ("execs-1", "execs-2", "churn", "killed", "builds-1", "builds-2")
# Instructions up to the next decision, after which the way may be lost again.
SOON = 30
# Of the way; other losses are of what was not traced meanwhile.
WAY = ("pt_no_code", "pt_mismatch", "pt_bad_returns", "pt_bad_packets", "pt_branches_of_nobody", "code_unmapped", "code_missing")


def threads_of(folder):
    """Of each: the addresses and CPUs of what retired, in order."""
    rows = collections.defaultdict(lambda: ([], []))
    for tid, cpu, _, ip in struct.iter_unpack("<IHHQ", (folder / "retired").read_bytes()):
        rows[tid][0].append(ip)
        rows[tid][1].append(cpu)
    return rows


def follows_from(truth, decoded, may_leave_out):
    """Whether what was decoded is what retired but for what may be left out: None, or where it is not. All ways are walked at once; a
    state is where one stands in the truth, and a mark. may_leave_out(states) answers these and those that leave something out."""
    at = {(0, 0)}
    for j, ip in enumerate(decoded):
        at = may_leave_out(at)
        at = {(i + 1, mark) for i, mark in at if i < len(truth) and truth[i] == ip}
        if not at:
            return j
    return None


def newest_only(cpus, wrapped):
    """Of a CPU whose ring has come around, what is older than the first that is there: that CPU is in the mark."""
    def leave_out(states):
        found, todo = set(states), list(states)
        while todo:
            i, seen = todo.pop()
            if i < len(cpus) and cpus[i] in wrapped and not seen >> cpus[i] & 1 and (i + 1, seen) not in found:
                found.add((i + 1, seen))
                todo.append((i + 1, seen))
        return {(i, seen | (1 << cpus[i] if i < len(cpus) else 0)) for i, seen in found}
    return leave_out


def code_missing(truth, hidden, lost):
    """From where the code is not known to anywhere; and from soon after a place where our decoder says that it has lost the way."""
    def leave_out(states):
        lost_at = [i for i, _ in states if i < len(truth) and (truth[i] in hidden or lost & set(truth[max(0, i - SOON):i]))]
        return states | {(i, 0) for i in range(min(lost_at), len(truth))} if lost_at else states
    return leave_out


def places_lost(build, own, folder):
    lines = run([build / "tracectl", "decode", "--symfs", own, "--branches", folder]).splitlines()
    return {int(line.split()[3], 16) for line in lines if line.split()[2] == "lost"}


def check_jit(folder, lost, decoded, losses, ok, fail):
    (tid, (truth, _)), = threads_of(folder).items()
    mine = list(by_thread(decoded)[tid])
    # the page that nothing was decoded of
    hidden = {ip for ip in truth if ip >> 12 not in {i >> 12 for i in mine}}
    at = follows_from(truth, mine, code_missing(truth, hidden, lost))
    if not hidden or at is not None or len(mine) < 1000:
        fail(f"hostile jit: {len(hidden)} places of code that no file has; of {len(mine)} instructions those from {at} on never retired so")
    if [m["name"] for m in losses.get("code_missing", [])] != ["//anon"] or losses.get("pt_mismatch"):
        fail(f"hostile jit: {losses}")
    ok(f"hostile jit: {len(mine)} of {len(truth)} instructions, and none that did not retire")


def check_pair(share, n, decoded, ok, fail):
    folder = share / f"hostile-pair-{n}"
    cpus = json.loads((folder / "meta.json").read_text())["events"]["pt"]["cpus"]
    wrapped = {c["cpu"] for c in cpus if c["wrapped"]}
    if wrapped != {0}:
        fail(f"hostile pair-{n}: the rings of {wrapped} have come around")
    rows, mine = threads_of(folder), by_thread(decoded)
    for tid in mine:
        at = follows_from(rows[tid][0], mine[tid], newest_only(rows[tid][1], wrapped))
        if at is not None:
            fail(f"hostile pair-{n}: thread {tid}: of {len(mine[tid])} instructions those from {at} on never retired so")
    ok(f"hostile pair-{n}: {len(decoded)} instructions of {len(mine)} threads, the newest of one CPU and all of the other")


def check_hostile(build, share, own, ok, fail):
    said = {w[0]: w[1:] for w in (line.split() for line in (share / "hostile").read_text().splitlines())}
    if "end" not in said or "timeout" in said or "not-armed" in said:
        fail(f"the guest's script did not come to its end: {said}")
    left = {name: n for name, n in said.items() if name.endswith("-events-left") and n != ["0"]}
    if left:
        fail(f"hostile: events are left: {left}")
    for name in WHOLE + RUNNING + ("jit", "pair-1", "pair-2"):
        folder = share / f"hostile-{name}"
        decoded = our_instructions(build, own, folder)
        losses = our_losses(build, own, folder)
        if name == "jit":
            check_jit(folder, places_lost(build, own, folder), decoded, losses, ok, fail)
            continue
        lost = {k: v for k, v in losses.items() if v and k in WAY}
        if lost or len(decoded) < 1000:
            fail(f"hostile {name}: {len(decoded)} instructions; {lost}")
        if name.startswith("pair"):
            check_pair(share, name[-1], decoded, ok, fail)
            continue
        truth, mine = by_thread(Retired(folder / "retired").pairs), by_thread(decoded)
        if name in RUNNING:
            truth = {tid: truth[tid][: len(mine[tid])] for tid in mine}
        for tid in set(truth) | set(mine):
            if truth.get(tid) != mine[tid]:
                fail(f"hostile {name}: thread {tid}: other from {first_difference(truth.get(tid, []), mine[tid])} of {len(mine[tid])} on")
        ok(f"hostile {name}: {len(decoded)} instructions of {len(mine)} threads, as they retired")
    text = (share / "hostile-larger").read_text()
    if said["larger"] == ["0"] or "records a thread of it by PT already" not in text:
        fail(f"a process of which a thread is armed: {said['larger']}: {text}")
    text = (share / "hostile-others").read_text()
    if said["others-snapshot"] == ["0"] or said["others-arm"] == ["0"] or "owned by uid 0" not in text:
        fail(f"another user's process: {said}: {text}")
    ok("what has more than is armed is refused, and so is another user")
