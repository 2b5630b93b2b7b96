# SPDX-License-Identifier: Apache-2.0
"""What guest/tracerd.sh left: bundles of the back end pt against the log of what retired, and what was said and refused."""
import json
import subprocess

from truth import *

# Whole: from before the program did anything to its end, or to a moment at which it stood still.
WHOLE = ("threads", "exec", "crash", "killed", "fork", "mixed", "children")
FREE_OF_EVENTS = ("threads", "exec", "crash", "killed", "fork", "mixed", "children", "wrapped", "waits", "shared", "held", "unit", "host",
                  "processes", "storm", "many", "budget")


def perf_switchless(tree, data):
    """As perf_instructions(), of a file that may have samples of others, too."""
    text = run(["perf", "script", "-f", "-i", data, "--symfs", tree, "--itrace=i1i", "-F", "event,tid,ip"])
    lines = (line.split() for line in text.splitlines() if "instructions" in line)
    return [(int(w[0]), int(w[2], 16)) for w in lines]


def our_tree(folder, share):
    """For --symfs of ours: files, no links. A bundle knows which files were mapped, and this machine's are others."""
    for path in ("usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib64/ld-linux-x86-64.so.2"):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"/{path}", folder / path)
    (folder / "rig").mkdir()
    for name in ("life", "mixed"):
        shutil.copy(share / "rig" / name, folder / "rig" / name)
    return folder


def read_life(share):
    return {w[0]: w[1:] for w in (line.split() for line in (share / "life").read_text().splitlines())}


def meta_of(folder):
    return json.loads((folder / "meta.json").read_text())


def only(pairs, threads):
    return [p for p in pairs if p[0] in threads]


def bundle_differences(build, own, tree, folder):
    """Of what was decoded of a whole bundle, by us and by perf, and the log; and its losses."""
    decoded = our_instructions(build, own, folder)
    threads = {tid for tid, _ in decoded}
    truth = only(Retired(folder / "retired").pairs, threads)
    found = differences(truth, decoded)
    found += [f"perf: {d}" for d in differences(truth, perf_switchless(tree, folder / "perf.data"))]
    losses = {k: v for k, v in our_losses(build, own, folder).items() if v}
    if losses:
        found.append(f"losses: {losses}")
    return found, len(truth), len(threads)


def check_bundles(build, share, own, tree, ok, fail):
    for name in WHOLE:
        found, n, threads = bundle_differences(build, own, tree, share / f"pt-{name}")
        if n < 1000 and name != "crash" or n < 100 or found:
            fail(f"pt {name}: {n} instructions retired; {found}")
        ok(f"pt {name}: the {n} instructions of {threads} threads are in the snapshot, for us and for perf")
    for n in (1, 2, 3):
        folder = share / f"pt-wrapped-{n}"
        truth = Retired(folder / "retired").pairs
        decoded = our_instructions(build, own, folder)
        meta = meta_of(folder)
        if not any(cpu["wrapped"] for cpu in meta["events"]["pt"]["cpus"]) and n == 3:
            fail(f"pt wrapped-{n}: no ring has come around: {meta['events']['pt']}")
        perfs = perf_switchless(tree, folder / "perf.data")
        if differences(decoded, perfs):
            fail(f"pt wrapped-{n}: perf decodes something else: {differences(decoded, perfs)}")
        gaps = [g for g in meta["gaps"] if "blind_cpu" in g]
        if len(gaps) != (n - 1) * len(meta["events"]["pt"]["cpus"]):
            fail(f"pt wrapped-{n}: {len(gaps)} gaps of earlier copies")
        if not all(cpu["blind_ns"] > 0 for cpu in meta["events"]["pt"]["cpus"]):
            fail(f"pt wrapped-{n}: a CPU was not blind: {meta['events']['pt']}")
        ok(f"pt wrapped-{n}: {len(decoded)} of {len(truth)} instructions, as perf has them, and {len(gaps)} gaps of the copies before")


def check_life(build, share, own, ok, fail):
    life = read_life(share)
    if "end" not in life:
        fail(f"the guest's script did not come to its end: {life}")
    timeouts = [k for k in life if k == "timeout"]
    if timeouts:
        fail(f"something never came: {life['timeout']}")
    for name in FREE_OF_EVENTS:
        if life[f"{name}-events-left"] != ["0"]:
            fail(f"{name}: {life[f'{name}-events-left']} events are left after disarming")
    ok("disarming leaves no event")
    text = (share / "overlap").read_text()
    if life["overlap"] == ["0"] or "records it by PT already" not in text:
        fail(f"a recording of a thread with other settings: {life['overlap']}: {text}")
    if life["overlap-auto"] != ["0"] or "by samples, not by Intel PT" not in (share / "overlap-auto").read_text():
        fail(f"a second recording of a thread by auto: {(share / 'overlap-auto').read_text()}")
    if life["perf-beside-us"] == ["0"]:
        fail("perf traced a thread that we trace")
    text = (share / "held").read_text()
    if "somebody else uses the PMU" not in text or "perf (pid " not in text:
        fail(f"a PMU that perf holds: {text}")
    ok("who holds the PMU is named, and a target that overlaps is refused or recorded by samples")
    text = (share / "budget").read_text()
    if life["budget"] == ["0"] or "descriptors" not in text or "--backend sample" not in text:
        fail(f"a recording without descriptors: {life['budget']}: {text}")
    ok("what takes too many descriptors is refused with the alternative")
    before, after = (int(n) for n in life["grown"])
    # an event that traces and one of switches, on two CPUs
    if before < 50 * 4 or after != before + 4:
        fail(f"a unit of 51 threads, which came to have one more, had {before} events, then {after}")
    text = (share / "not-grown").read_text()
    shown = json.loads(text)
    if shown.get("target", shown)["pt"]["left_out"] != 1 or "what came into it later is not all traced" not in text:
        fail(f"a unit that could not grow says nothing of it: {text}")
    ok("a unit grows by what is new, and says what it cannot take")
    if life["perf-after-us"] != ["0"]:
        fail("an event of ours is left after the daemon was killed")
    ok("a daemon that is killed leaves no event")
    threads = int(life["many-threads"][0])
    if int(life["many-events"][0]) < threads * 4:
        fail(f"{threads} threads on 2 CPUs have {life['many-events'][0]} events")
    # The small rings of the guest have come around: they have the last of the threads, and none of these is missing.
    text = run(["perf", "script", "-f", "-i", share / "pt-storm/perf.data", "--show-task-events", "-F", "tid,event"])
    made = [int(line.split("(")[1].split(":")[1].split(")")[0]) for line in text.splitlines() if "RECORD_FORK" in line]
    ran = {tid for tid, _ in our_instructions(build, own, share / "pt-storm")}
    if len(made) != 1000 or not set(made[-300:]) <= ran:
        fail(f"of {len(made)} threads that came in a storm {len(ran)} are in the trace: missing {sorted(set(made[-300:]) - ran)}")
    ok(f"{len(made)} threads came in a storm; the rings have {len(ran)}, the last 300 among them")
    unit = {tid for tid, _ in our_instructions(build, own, share / "pt-unit")}
    wanted = {int(life[f"unit-{n}"][0]) for n in ("one", "two", "three")}
    if not wanted <= unit:
        fail(f"of the unit's processes {sorted(wanted)} these were traced: {sorted(unit)}")
    ok("a unit's processes are traced: the first, one that was moved into it, one that began in it")
    before, after = (int(n) for n in life["unit-restarted"])
    # of two processes no more, of one now
    if after != before - 4:
        fail(f"a unit of three processes had {before} events, and {after} when it was started again with one")
    if int(life["unit-again"][0]) not in {tid for tid, _ in our_instructions(build, own, share / "pt-unit-again")}:
        fail("what a unit does that was started again is not in its trace")
    ok("a unit that is started again is traced, and gives back the events of its old processes")
    host = {tid for tid, _ in our_instructions(build, own, share / "pt-host")}
    wanted = {int(life[f"host-{n}"][0]) for n in ("one", "two")}
    if not wanted <= host:
        fail(f"the host's threads {sorted(host)}, and of them {sorted(wanted)}")
    ok(f"the host: {len(host)} threads of several processes")
    # of each: a thread on two CPUs, tracing and side-band; the daemon itself may have some
    if int(life["processes-events"][0]) < 64 * 4:
        fail(f"64 processes have {life['processes-events'][0]} events")
    if int(life["processes-last"][0]) not in {tid for tid, _ in our_instructions(build, own, share / "pt-processes")}:
        fail("of 64 processes the last one is not in its trace")
    ok("64 processes are traced at once, each into rings of its own")
    if len(by_thread(our_instructions(build, own, share / "pt-children"))) != 2:
        fail("a child that was asked for is not in the trace")
    ok("a child is recorded where that is asked for")
    waits = meta_of(share / "pt-waits")
    if not waits["events"]["waits"] or not waits["records"]["switches"]:
        fail(f"waits beside PT: {waits['events']}, {waits['records']}")
    ok("waits are recorded beside the trace")


def check_daemon(build, share, tree, own, ok, fail):
    """`tree` for perf (truth.perf_tree()), `own` an empty folder for us."""
    our_tree(own, share)
    check_life(build, share, own, ok, fail)
    check_bundles(build, share, own, tree, ok, fail)
