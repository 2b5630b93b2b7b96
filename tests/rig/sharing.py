# SPDX-License-Identifier: Apache-2.0
"""What guest/share.sh left: targets that have threads in common, a target's own settings, and the host."""
import json

from daemon import perf_switchless
from truth import *


def check_part(name, build, share, one, tree, own, ok, fail):
    """The rings have two processes; the snapshot of one has that, whole, for us and for perf."""
    folder = share / f"shared-{name}"
    truth = [p for p in Retired(folder / "retired").pairs if p[0] == one]
    decoded = our_instructions(build, own, folder)
    if len(decoded) < 1000 or {tid for tid, _ in decoded} != {one}:
        fail(f"shared {name}: {len(decoded)} instructions of {({tid for tid, _ in decoded})}, not of {one} alone")
    if not is_run(truth, decoded):
        fail(f"shared {name}: what was decoded is no run of what retired: {differences(truth, decoded)}")
    perfs = {tid for tid, _ in perf_switchless(tree, folder / "perf.data")}
    if not perfs <= {one}:
        fail(f"shared {name}: perf has instructions of {perfs}")
    losses = {k: v for k, v in our_losses(build, own, folder).items() if v and k.startswith("pt_")}
    meta = json.loads((folder / "meta.json").read_text())
    # Who was in the kernel while an earlier snapshot was copied may have been back in between, as far as anybody knows.
    if any("blind_cpu" in g for g in meta["gaps"]):
        losses.pop("pt_resumed_blind", None)
    # On a fast machine the ring comes around, and begins in the middle of a packet.
    if any(cpu["wrapped"] for cpu in meta["events"]["pt"]["cpus"]):
        losses.pop("pt_bytes_before_sync", None)
    if losses:
        fail(f"shared {name}: losses without a reason: {losses}")
    ok(f"shared {name}: {len(decoded)} instructions of one process, and none of the other")


def check_sharing(build, share, tree, own, ok, fail):
    said = {w[0]: w[1:] for w in (line.split() for line in (share / "shared").read_text().splitlines())}
    if "end" not in said or "timeout" in said:
        fail(f"the guest's script did not come to its end: {said}")
    if said["part-armed"] != ["0"] or said["both-events"] != said["unit-events"] or said["alone-events"] != said["unit-events"]:
        fail(f"a process of a unit does not share its recording: {said}: {(share / 'shared-part.said').read_text()}")
    text = (share / "shared-other.said").read_text()
    if said["other-settings"] == ["0"] or "arm it without settings of its own" not in text:
        fail(f"a thread with other settings: {said['other-settings']}: {text}")
    ok("a process of a unit shares the unit's recording, also after the unit was disarmed")
    for name in ("share", "settings", "host"):
        if said[f"{name}-events-left"] != ["0"]:
            fail(f"{name}: {said[f'{name}-events-left']} events are left")
    target = json.loads((share / "shared-settings.json").read_text())
    trace = target.get("target", target)["pt"]
    if trace["ring_bytes"] != 64 << 10 or trace["timing"] != "high":
        fail(f"settings of a target: {trace}")
    ok("a target has its own settings")
    one, two = int(said["one"][0]), int(said["two"][0])
    for name in ("part", "alone"):
        check_part(name, build, share, one, tree, own, ok, fail)
    host = {tid for tid, _ in our_instructions(build, own, share / "shared-host")}
    if len(host) < 3 or not {one, two} & host:
        fail(f"the host's threads: {sorted(host)}")
    ok(f"the host: {len(host)} threads of all processes, and its snapshot is published")
