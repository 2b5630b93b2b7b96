# SPDX-License-Identifier: Apache-2.0
"""The text form of a trace (decode/writer/text.c): the slices of its threads."""
import collections

from lib import *

# `args` are those of its begin and of its end, as text; `stack` the names of the slices around it, outermost first.
Slice = collections.namedtuple("Slice", "name begin end args stack")


def slices_of(text):
    """{tid: [Slice]}, by their ends."""
    tid_of, open_, out = {}, collections.defaultdict(list), collections.defaultdict(list)
    for line in text.splitlines():
        f = line.split("\t")
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
