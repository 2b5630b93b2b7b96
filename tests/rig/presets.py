# SPDX-License-Identifier: Apache-2.0
"""What guest/presets.sh left: what tracerd asked of the PMU, by its presets of times and by what the processor lacks, and what perf
record asks of it."""
import json
import re

from truth import *

FIELDS = {"pt": (0, 1), "cyc": (1, 1), "fup_on_ptw": (5, 1), "mtc": (9, 1), "tsc": (10, 1), "noretcomp": (11, 1), "ptw": (12, 1),
          "branch": (13, 1), "mtc_period": (14, 4), "cyc_thresh": (19, 4), "psb_period": (24, 4)}
ALWAYS = {"pt": 1, "tsc": 1, "branch": 1}
WRITES = {"ptw": 1, "fup_on_ptw": 1}
LOW = {**ALWAYS, **WRITES, "psb_period": 3}
NORMAL = {**LOW, "mtc": 1, "mtc_period": 3}
HIGH = {**LOW, "mtc": 1, "cyc": 1}

# By name: the config, and a pattern of the warning.
PRESETS = {
    "low": (LOW, None),
    "normal": (NORMAL, None),
    "high": (HIGH, None),
    "no-mtc": ({**LOW, "cyc": 1}, r"no packets .*\(MTC\)"),
    "no-cyc": ({**ALWAYS, **WRITES, "mtc": 1}, r"no packets .*\(CYC\)"),
    "nothing": (ALWAYS, r"\(MTC\).*\(CYC\)"),
    "other-periods": ({**ALWAYS, **WRITES, "mtc": 1, "cyc": 1, "mtc_period": 6, "cyc_thresh": 4},
                      "mtc_period 6 instead of 0; cyc_thresh 4 instead of 0"),
    "one-region": (NORMAL, None),
}

INHERIT_THREAD, USE_CLOCKID = 1 << 35, 1 << 25
CLOCK_MONOTONIC_RAW = 4


def fields(config):
    found = {name: config >> at & (1 << bits) - 1 for name, (at, bits) in FIELDS.items()}
    return {name: value for name, value in found.items() if value}


def asked(path):
    """The one attribute that all events were opened with."""
    lines = set(path.read_text().splitlines())
    if len(lines) != 1:
        raise RuntimeError(f"{path.name}: {lines}")
    words = dict(w.split("=") for w in lines.pop().split())
    return {k: int(v, 16 if k in ("config", "sample_type", "read_format", "flags") else 10) for k, v in words.items()}


def against_perf(ours, perfs):
    """What differs from perf record --snapshot, but for what is meant to."""
    found = []
    a, b = fields(ours["config"]), fields(perfs["config"])
    for name in WRITES:  # perf asks for PTWRITE only where it is told to
        a.pop(name)
    if "mtc" not in b:  # a period of nothing
        b.pop("mtc_period", None)
    if a != b:
        found.append(f"config {a}, and perf's {b}")
    # the clock of everything else that tracerd records; and children are asked for by an option of their own
    if ours["flags"] != perfs["flags"] | INHERIT_THREAD | USE_CLOCKID or ours["clockid"] != CLOCK_MONOTONIC_RAW:
        found.append(f"flags {ours['flags']:x}, clock {ours['clockid']}, and perf's {perfs['flags']:x}")
    # nobody reads the events' numbers, so read_format is none of this
    for name in ("sample_type", "sample_period", "wakeup_watermark", "aux_watermark", "aux_sample_size"):
        if ours[name] != perfs[name]:
            found.append(f"{name} {ours[name]:x}, and perf's {perfs[name]:x}")
    return found


def check_presets(build, share, own, ok, fail):
    folder = share / "presets"
    for name, (config, warning) in PRESETS.items():
        found = fields(asked(folder / f"{name}.asked")["config"])
        if found != config:
            fail(f"{name}: the PMU was asked for {found}")
        said = (folder / f"{name}.said").read_text()
        warnings = " ".join(json.loads(said)["targets"][0]["warnings"])
        if not re.search(warning, warnings) if warning else "this processor" in warnings:
            fail(f"{name}: arming warned of: {warnings}")
    ok(f"{len(PRESETS)} presets and processors: each is asked for what it has, and what it lacks is said")
    for name in ("low", "normal", "high"):
        found = against_perf(asked(folder / f"{name}.asked"), asked(folder / f"perf-{name}.asked"))
        if found:
            fail(f"{name}: {found}")
    ok("the PMU is asked for what perf record asks for")
    bundle = share / "overflow-bundle"
    retired = Retired(bundle / "retired")
    n = dict(line.split() for line in (bundle / "counts").read_text().splitlines())["overflows"]
    found = overflow_differences(retired, our_instructions(build, own, bundle))
    losses = our_losses(build, own, bundle)
    if found or int(n) < 5 or losses.get("pt_overflows") != int(n):
        fail(f"a snapshot with {n} overflows: {found}, {losses}")
    ok(f"a snapshot has {len(retired.pairs)} instructions but what {n} overflows lost")
