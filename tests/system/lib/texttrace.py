# SPDX-License-Identifier: Apache-2.0
"""The text form of a trace (decode/writer/text.c): the slices of its threads."""
import collections

from lib import *

# `args` are those of its begin and of its end, as text; `stack` the names of the slices around it, outermost first.
Slice = collections.namedtuple("Slice", "name begin end args stack")


def in_time(text):
    """The lines in fields, as a viewer sorts them: tracks, and then events by time. Callers that show themselves late are written late."""
    lines = [line.split("\t") for line in text.splitlines() if line[:1] != "#"]
    return sorted(lines, key=lambda f: int(f[0]) if f[0].isdigit() else -1)


def calls_of(text):
    """{tid: [(names, how)]} of each exact call, in the order of their begins: of those around it, and its own."""
    tid_of, open_, out = {}, collections.defaultdict(list), collections.defaultdict(list)
    for f in in_time(text):
        if f[0] == "T":
            tid_of[f[1]] = int(f[4])
        elif len(f) > 2 and f[1] in tid_of and f[2] == "B":
            open_[f[1]].append(f[3].strip('"'))
            if any(x.startswith("object=") for x in f):
                out[tid_of[f[1]]].append((tuple(open_[f[1]]), next((x[5:-1] for x in f if x.startswith("how=")), None)))
        elif len(f) > 2 and f[1] in tid_of and f[2] == "E":
            open_[f[1]].pop()
    return out


def slices_of(text):
    """{tid: [Slice]}, by their ends."""
    tid_of, open_, out = {}, collections.defaultdict(list), collections.defaultdict(list)
    for f in in_time(text):
        if f[0] == "T":
            tid_of[f[1]] = int(f[4])
        elif len(f) > 2 and f[1] in tid_of and f[2] == "B":
            open_[f[1]].append((f[3].strip('"'), int(f[0]), f[4:]))
        elif len(f) > 2 and f[1] in tid_of and f[2] == "E":
            name, begin, args = open_[f[1]].pop()
            out[tid_of[f[1]]].append(Slice(name, begin, int(f[0]), args + f[3:], [s[0] for s in open_[f[1]]]))
    if any(open_.values()):
        fail("slices that do not end")
    return out


def slices_of_snapshot(d, snapshot, out):
    """The same of a snapshot, by its id, which is fetched into the folder `out`."""
    for args in (("fetch", snapshot, "-o", f"{out}/"), ("decode", out, "--format=text", "-o", tmp() / "trace")):
        r = d.tracectl(*args)
        if r.returncode:
            fail(f"{out.name}: {args[0]}: {r.stderr}")
    return slices_of((tmp() / "trace").read_text())
