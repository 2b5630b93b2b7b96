#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who may include whom: the one table of the rooms (docs/architecture.md draws it), and no circle of files over it."""
import re

from lib import *

# A room: the rooms, and the headers of others by their path, that its files may include. Its own are not named.
BASE, BUNDLE, CONTROL, DECODER = "common/base", "common/bundle", "common/control", "common/decoder"
LOW = "daemon/base daemon/config.h daemon/caps.h"
CHARGES = "daemon/control/quota.h daemon/control/subscribers.h daemon/control/auth.h"
ROOMS = {
    # what two programs must agree on
    BASE: "",
    CONTROL: BASE,
    BUNDLE: f"{BASE} {CONTROL}",
    DECODER: f"{BASE} {BUNDLE} {CONTROL}",
    # tracerd
    "daemon/base": f"{BASE} {BUNDLE} {DECODER}",
    "daemon/perf": f"{BASE} {BUNDLE} daemon/base",
    "daemon/backend/sample/bpf": BUNDLE,
    "daemon/backend/sample": f"{BASE} {BUNDLE} {CONTROL} {DECODER} {LOW} daemon/control/quota.h daemon/backend daemon/backend/sample/bpf daemon/perf daemon/target",
    "daemon/backend/pt": f"{BASE} {BUNDLE} {CONTROL} {LOW} daemon/control/quota.h daemon/backend daemon/perf daemon/target",
    "daemon/backend/step": f"{BASE} {BUNDLE} {CONTROL} {LOW} daemon/backend daemon/target",
    "daemon/backend/events": "daemon/target",
    "daemon/backend": f"{BASE} {BUNDLE} {CONTROL} {LOW} daemon/producer daemon/target",
    "daemon/producer": f"{BASE} {BUNDLE} {CONTROL} {LOW} {CHARGES}",
    "daemon/target": f"{BASE} {BUNDLE} {CONTROL} {DECODER} {LOW} {CHARGES} daemon/perf daemon/producer",
    "daemon/snapshot": f"{BASE} {BUNDLE} {CONTROL} {DECODER} {LOW} {CHARGES} daemon/backend daemon/target",
    "daemon/trigger": f"{BASE} {BUNDLE} {CONTROL} {LOW} {CHARGES} daemon/perf daemon/producer daemon/snapshot daemon/target",
    "daemon/status": f"{BASE} {CONTROL} {LOW} daemon/control daemon/producer daemon/snapshot daemon/target daemon/trigger",
    "daemon/control": f"{BASE} {CONTROL} {LOW}",
    "daemon/methods": f"{BASE} {LOW} daemon/control daemon/producer daemon/snapshot daemon/status daemon/target daemon/trigger",
    "daemon": f"{BASE} {CONTROL} {DECODER} daemon/base daemon/control daemon/methods daemon/producer daemon/snapshot daemon/status daemon/target "
              "daemon/trigger",
    # tracerd-step, tracerd-open
    "step": f"{BASE} {BUNDLE} {CONTROL}",
    "open": f"{BASE} {DECODER}",
    # tracerd-decode
    "decode/base": f"{BASE} {DECODER}",
    "decode/perf": f"{BASE} decode/base",
    "decode/object": f"{BASE} {BUNDLE} {CONTROL} decode/base decode/perf",
    "decode/dwarf": f"{BASE} {CONTROL} decode/base decode/object",
    "decode/stack": f"{BASE} {CONTROL} common/bundle decode/base decode/dwarf decode/object decode/perf",
    "decode/calls": f"{BASE} decode/base decode/object",
    "decode/pt": f"{BASE} {BUNDLE} {CONTROL} decode/base decode/calls decode/object decode/perf",
    "decode/rings": f"{BASE} {BUNDLE} {CONTROL} decode/base",
    "decode/go": f"{BASE} decode/base",
    "decode/summary": f"{BASE} {CONTROL} decode/base",
    "decode/writer": f"{BASE} decode/base",
    "decode/timeline": f"{BASE} {BUNDLE} decode/base decode/calls/call.h decode/go decode/rings decode/summary decode/writer",
    "decode/replay": f"{BASE} {BUNDLE} {CONTROL} decode/base decode/calls decode/dwarf decode/go decode/object decode/perf decode/pt decode/rings "
                     "decode/stack decode/timeline",
    "decode/job": f"{BASE} {CONTROL} {DECODER} common/bundle/go_layout.h common/bundle/python_layout.h decode/base decode/dwarf decode/go decode/object decode/pt decode/replay decode/rings decode/timeline/go.h decode/writer",
    # libtracerd, tracectl
    "client/include": "",
    "client/include/tracerd": "",
    "client/lib": f"{BASE} {BUNDLE} {CONTROL}",
    "client/ui": f"{BASE} {CONTROL} client/core/ctl.h",
    "client/core": f"{BASE} {BUNDLE} {CONTROL} {DECODER} client/lib client/ui",
    "client/cmd": f"{BUNDLE} {CONTROL} client/core client/ui",
    "client": f"{BASE} client/core client/ui",
}
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.M)
FOREIGN = {"config.h", "tracerd.h"}
sources = sorted(f.relative_to(SRC).as_posix() for top in ("common", "daemon", "step", "open", "decode", "client")
                 for f in (SRC / top).rglob("*") if f.suffix in (".c", ".h", ".cc"))
includes = {f: INCLUDE.findall((SRC / f).read_text()) for f in sources}


def room(f):
    return f.rpartition("/")[0]


unknown = sorted({room(f) for f in sources} - ROOMS.keys())
expect(not unknown, f"each room is in the table: {unknown}")
bad, used = [], set()
for f in sources:
    allowed = ROOMS[room(f)].split()
    for i in includes[f]:
        if i in FOREIGN or room(i) == room(f):
            continue
        by = [a for a in (i, room(i)) if a in allowed]
        used.update((room(f), a) for a in by)
        if not by:
            bad.append(f"{f}: {i}")
expect(not bad, f"each include is of the room's own files or of what the table allows: {bad}")
idle = sorted((r, a) for r in ROOMS for a in ROOMS[r].split() if (r, a) not in used and a not in LOW.split() + CHARGES.split())
expect(not idle, f"nothing is allowed that nobody does: {idle}")

# A noun is x.c and x.h together.
noun = {f: f.rpartition(".")[0] for f in sources}
graph = {}
for f in sources:
    graph.setdefault(noun[f], set()).update(n for i in includes[f] if (n := i.rpartition(".")[0]) != noun[f])


def circles():
    index, low, stack, found = {}, {}, [], []

    def visit(v):
        index[v] = low[v] = len(index)
        stack.append(v)
        for w in graph.get(v, ()):
            if w not in index:
                visit(w)
                low[v] = min(low[v], low[w])
            elif w in stack:
                low[v] = min(low[v], index[w])
        if low[v] == index[v]:
            circle = stack[stack.index(v):]
            del stack[stack.index(v):]
            if len(circle) > 1:
                found.append(sorted(circle))
    for v in graph:
        if v not in index:
            visit(v)
    return found


over = [c for c in circles() if len({room(n) for n in c}) > 1]
expect(not over, f"no circle of files goes over rooms: {over}")

# The same by what is linked: no program takes an object of another folder.
tops = ("daemon", "step", "open", "decode", "client")
for top in tops:
    makefile = (SRC / top / "Makefile.inc").read_text()
    foreign = [w for w in re.findall(r"[\w/-]+\.[ch]\b", re.sub(r"#.*", "", makefile)) if w.split("/")[0] in tops and not w.startswith(f"{top}/")]
    expect(not foreign, f"{top}/ builds no other folder's sources: {foreign}")
