# SPDX-License-Identifier: Apache-2.0
"""What guest/filter.sh left: only what was asked for is traced, what the PMU was asked for, and PTWRITE."""
import json
import shutil
import tempfile
from pathlib import Path

from truth import *

# What we ask for otherwise than perf does; docs/pt.md says why.
DIFFERENT = {"read_format", "flags", "clockid"}
PTWRITE = 1 << 12 | 1 << 5


def said(share):
    return {w[0]: (int(w[1]), w[2]) for w in (line.split(" ", 2) for line in (share / "filters").read_text().splitlines())}


def size_of(program, function):
    for line in run(["nm", "-S", program]).splitlines():
        w = line.split()
        if w[-1] == function:
            return int(w[1], 16)
    raise RuntimeError(f"{program} has no {function}")


def summary_of(build, tree, bundle):
    return json.loads(run([build / "tracectl", "--json", "decode", "--symfs", tree, "--summary", bundle]))


def check_refused(talk, ok, fail):
    for name, words in (("unknown", "similar are"), ("elsewhere", "has no code of /bin/busybox mapped"), ("many", "filters"),
                        ("unit", "--filter is of a process")):
        if talk[name][0] == 0 or words not in talk[name][1]:
            fail(f"filter {name}: {talk[name]}")
    if "descend" not in talk["unknown"][1]:
        fail(f"a wrong name gets no candidates: {talk['unknown']}")
    ok("wrong names are refused with those that are like them, and more filters than the processor has")


def check_trace(build, share, tree, name, limit, ok, fail):
    folder = share / f"filter-{name}"
    retired, decoded = Retired(folder / "retired").pairs, our_instructions(build, tree, folder)
    if len(decoded) < 1000 or not (is_run(retired, decoded) or not differences(retired, decoded)):
        fail(f"filter {name}: {len(decoded)} of {len(retired)} instructions: {differences(retired, decoded)}")
    ips = {ip for _, ip in decoded}
    if max(ips) - min(ips) >= limit:
        fail(f"filter {name}: something else is traced: {min(ips):x} to {max(ips):x}")
    meta = json.loads((folder / "meta.json").read_text())
    filters = meta["events"]["pt"]["filters"]
    if [f["name"] for f in filters] != [name] or filters[0]["path"] != "/rig/mixed":
        fail(f"filter {name}: {filters}")
    answer = summary_of(build, tree, folder)
    if answer["summary"].get("only") != [name]:
        fail(f"filter {name}: the summary does not say it: {answer['summary']}")
    losses = {k: v for k, v in answer["losses"].items() if v and k.startswith("pt_")}
    if losses:
        fail(f"filter {name}: {losses}")
    theirs = run(["perf", "script", "-f", "-i", folder / "perf.data", "--symfs", tree, "--itrace=i1i", "-F", "event,tid,ip"])
    theirs = [(int(w[0]), int(w[2], 16)) for w in (line.split() for line in theirs.splitlines()) if len(w) > 2 and "instructions" in w[1]]
    if differences(decoded, theirs):
        fail(f"filter {name}: perf decodes something else: {differences(decoded, theirs)}")
    ok(f"filter {name}: {len(decoded)} instructions, none outside of it, as they retired and as perf has them")


def attributes(path):
    return [dict(w.split("=") for w in line.split()) for line in path.read_text().splitlines()]


def check_asked(share, ok, fail):
    ours, theirs = attributes(share / "filter-asked-tracerd"), attributes(share / "filter-asked-perf")
    if not ours or not theirs or any(a != ours[0] for a in ours):
        fail(f"what was asked for: {ours} {theirs}")
    different = {k for k in ours[0] if ours[0][k] != theirs[-1][k]}
    # with the values of PTWRITE, which perf leaves out
    if int(ours[0]["config"], 16) == int(theirs[-1]["config"], 16) | PTWRITE:
        different.discard("config")
    if not different <= DIFFERENT:
        fail(f"ours: {ours[0]}, perf's: {theirs[-1]}")
    ok(f"the PMU is asked for what perf asks for, but for {', '.join(sorted(different))}: ours {ours[0]}, perf's {theirs[-1]}")


def check_filters(build, share, ok, fail):
    tree = Path(tempfile.mkdtemp())
    try:
        (tree / "rig").mkdir()
        for name in ("mixed", "ptwrites"):
            shutil.copy(share / "rig" / name, tree / "rig" / name)
        talk = said(share)
        check_refused(talk, ok, fail)
        check_trace(build, share, tree, "descend", size_of(share / "rig/mixed", "descend"), ok, fail)
        check_trace(build, share, tree, "mixed", 0x10000, ok, fail)
        check_asked(share, ok, fail)
        stats = summary_of(build, tree, share / "filter-ptwrites")["stats"]
        if stats.get("ptwrites") != 10:
            fail(f"ptwrites: {stats}")
        ok("the values of PTWRITE are in the trace")
    finally:
        shutil.rmtree(tree)
