# SPDX-License-Identifier: Apache-2.0
"""What guest/hotplug.sh left: what ran on a CPU that came online after the program was armed is in the trace, or is said not to be."""
import json
import shutil
import struct

from truth import *

LATE = "not traced: its CPU came online later"


def cpus_of(path):
    """How many instructions retired on each CPU."""
    found = {}
    for _, cpu, _, _ in struct.iter_unpack("<IHHQ", path.read_bytes()):
        found[cpu] = found.get(cpu, 0) + 1
    return found


def check_whole(name, build, share, own, threads, ok, fail):
    folder = share / f"hotplug-{name}"
    meta = json.loads((folder / "meta.json").read_text())
    retired = Retired(folder / "retired")
    cpus = cpus_of(folder / "retired")
    if cpus.get(0, 0) < 1000 or cpus.get(1, 0) < 1000 or len(retired.threads()) != threads:
        fail(f"hotplug {name}: {len(retired.threads())} threads, and of the CPUs {cpus}")
    found = differences(retired.pairs, our_instructions(build, own, folder))
    if found:
        fail(f"hotplug {name}: {found}")
    if meta["losses"]["pt_cpus_not_traced"] or any("blind_late" in g for g in meta["gaps"]):
        fail(f"hotplug {name}: {meta['losses']}, {meta['gaps']}")
    ok(f"hotplug {name}: all {len(retired.pairs)} instructions of {threads} threads are decoded, of which {cpus[1]} are of the CPU that came")


def late_gaps(name, folder, fail):
    """Of the one CPU that has come."""
    meta = json.loads((folder / "meta.json").read_text())
    gaps = [g for g in meta["gaps"] if g.get("blind_late")]
    if meta["losses"]["pt_cpus_not_traced"] != 1 or [g["blind_cpu"] for g in gaps] != [1] or gaps[0]["to_ns"] <= gaps[0]["from_ns"]:
        fail(f"hotplug {name}: {meta['losses']}, {meta['gaps']}")
    return gaps[0]


def check_poor(build, share, own, ok, fail):
    folder = share / "hotplug-poor"
    gap = late_gaps("poor", folder, fail)
    text = (share / "hotplug-poor.said").read_text()
    if "for CPUs that are offline now there is no memory" not in text:
        fail(f"hotplug poor: arming says nothing of the CPU that is offline: {text}")
    listed = json.loads((share / "hotplug-poor.list").read_text())["targets"][0]
    status = json.loads((share / "hotplug-poor.status").read_text())
    shown = (share / "hotplug-poor.show").read_text()
    if listed["pt"]["cpus_not_traced"] != 1 or not any("a CPU has come online" in w for w in listed["warnings"]):
        fail(f"hotplug poor: list says {listed}")
    if '"pt_cpus_not_traced": 1' not in json.dumps(status) or "CPUs that came online later, and are not traced: 1" not in shown:
        fail(f"hotplug poor: status or show do not say it: {status} {shown}")
    retired = Retired(folder / "retired")
    if set(cpus_of(folder / "retired")) != {0}:
        fail(f"hotplug poor: it was traced on {cpus_of(folder / 'retired')}")
    found = differences(retired.pairs, our_instructions(build, own, folder))
    if found:
        fail(f"hotplug poor: {found}")
    text = run([build / "tracectl", "decode", "--symfs", own, "--calls", folder])
    if text.count(LATE) < 2:
        fail(f"hotplug poor: of each of two threads the trace is to say that it ran where nobody saw it: {text[-3000:]}")
    ok(f"hotplug: a CPU without events is counted, in the list and the status, too, and for {(gap['to_ns'] - gap['from_ns']) / 1e9:.1f} s its threads "
       "are drawn as not traced")


def check_hotplug(build, share, own, ok, fail):
    said = {w[0]: w[1:] for w in (line.split() for line in (share / "hotplug").read_text().splitlines())}
    if "end" not in said or "timeout" in said or "not" in said or said["offline"] != ["0"]:
        fail(f"hotplug: the guest's script says {said}: {(share / 'hotplug.log').read_text()}")
    for name in ("events-left", "host-events-left", "missed"):
        if said[name] != ["0"]:
            fail(f"hotplug: {name} is {said[name]}")
    shutil.copy(share / "rig/hit", own / "rig/hit")
    check_whole("came", build, share, own, 4, ok, fail)
    check_whole("again", build, share, own, 4, ok, fail)
    text = run([build / "tracectl", "decode", "--symfs", own, "--calls", share / "hotplug-hit"])
    cause = json.loads((share / "hotplug-hit/meta.json").read_text())["snapshot"]["cause"]
    if cause["kind"] != "hit" or "the_place" not in text:
        fail(f"hotplug: a hit on the CPU that came: {cause}: {text[-3000:]}")
    ok("hotplug: a trigger's place is watched on a CPU that came, and the trace there leads to it")
    check_poor(build, share, own, ok, fail)
    late_gaps("host", share / "hotplug-host", fail)
    ok("hotplug: of the host a CPU that has come is counted, and a gap")
