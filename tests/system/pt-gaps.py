#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
"""Packets are lost, anywhere: a part of the trace, up to the next synchronisation point, is an overflow, or bytes that nobody understands. Each
call that is drawn before and after is one of the program's own log, under the callers that it has there, or it is marked."""
import random

from lib.pt import *
from lib import ptpackets, ptstacks

PSB = ptpackets.PSB
PROGRAMS = {
    "plain": ("plain.c", "-O1"),
    "jumps": ("jumps.c", "-O1"),
    "throws": ("throws.cc", "-O1", "-static-libstdc++", "-static-libgcc"),
    "signals": ("signals.c", "-O1"),
    "coroutines": ("coroutines.c", "-O1"),
    "stacks": ("stacks.c", "-O1", "-DKIND=0"),
}
PLACES = int(os.environ.get("PT_GAPS", 40))  # of each program


def packets(data):
    """[(place, bytes)] of all packets, and the place of the next PSB for each."""
    at, found = data.find(PSB), []
    while at >= 0:
        following = data.find(PSB, at + len(PSB))
        end, p = following if following >= 0 else len(data), at
        while p < end:
            n = len(PSB) if data[p:p + len(PSB)] == PSB else ptpackets.length(data, p)
            if n == 0 or p + n > end:
                break
            if following >= 0:
                found.append((p, following))
            p += n
        at = following
    return found


def gap(work, r, data, where, kind):
    broken = bytearray(data)
    for place, until in where:
        broken[place:until] = bytes(until - place)
        filler = b"\x02\xf3" if kind == "overflow" else b"\x02\xfe\x02\xfe"
        broken[place:place + len(filler)] = filler
    path = work / f"{r.name}-{'-'.join(str(place) for place, _ in where)}-{kind}.data"
    path.write_bytes(broken)
    try:
        return ptstacks.decode(path)
    finally:
        path.unlink()


def fits(ours, its):
    return ours[0] == its[0] and (not ours[2] or ours[1] == its[1] or isinstance(its[2], int) and ours[1][-len(its[1]):] == its[1])


def wrong_order(want, mine):
    """Where several parts are missing: the first that is not there in order."""
    at = 0
    for i, entry in enumerate(mine):
        while at < len(want) and not fits(entry, want[at]):
            at += 1
        if at == len(want):
            return i, f"{' > '.join(entry[1][-8:])}, as nothing there"
        at += 1
    return None


def wrong(want, mine):
    """The first of our entries that is not one of the log under the same callers, and unmarked. What is missing is one part in the middle: some from the
    begin are there, and some up to the end; where the one ends and the other begins may be any place that fits."""
    n, lost = len(mine), len(want) - len(mine)
    if lost < 0:
        return 0, f"{n} entries of {len(want)}"
    front = 0
    while front < n and fits(mine[front], want[front]):
        front += 1
    back = n
    while back > 0 and fits(mine[back - 1], want[back - 1 + lost]):
        back -= 1
    if front >= back:
        return None
    return front, f"{' > '.join(mine[front][1][-8:])}, not {' > '.join(want[front][1][-8:])} and not {' > '.join(want[front + lost][1][-8:])}"


def check(work, r, program):
    want, functions = ptstacks.truth(r.folder / "hooks", ptstacks.symbols(program))
    data = r.data.read_bytes()
    places = packets(data)
    rng = random.Random(7)
    bad, marked, entries = [], 0, 0
    places = [(place, until) for place, until in places if until - place >= 4]
    one = [[p] for p in sorted(rng.sample(places, min(PLACES, len(places))))]
    # in a header, before it says where the processor is: what is lost there is of nobody
    starts = [p + len(PSB) for p in range(len(data)) if data.startswith(PSB, p)]
    headers = [(place, until) for place, until in places if any(0 < place - start < 24 for start in starts)]
    one += [[p] for p in sorted(rng.sample(headers, min(PLACES // 2, len(headers)))) if [p] not in one]
    several = [sorted({until: (place, until) for place, until in rng.sample(places, min(5, len(places)))}.values()) for _ in range(PLACES // 2)]
    jobs = [(where, kind) for where in one + several for kind in ("overflow", "bytes")]
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        answers = list(pool.map(lambda j: (j, ptstacks.entries(gap(work, r, data, *j), functions)), jobs))
    for (where, kind), got in answers:
        for tid, mine in got.items():
            entries += len(mine)
            marked += sum(not e[2] for e in mine)
            why = (wrong if len(where) == 1 else wrong_order)(want.get(tid, []), mine)
            if why:
                bad.append(f"{kind} at {where}, thread {tid}, entry {why[0]}: {why[1]}")
    for text in bad[:8]:
        note(text)
    expect(not bad, f"{r.name}: {len(jobs)} gaps, {entries} entries, {marked} of them marked, {len(bad)} gaps with others")


def missing(work):
    """The code of a library is away. Where returns have their addresses in the trace, who has called what goes on after it is known."""
    library, made = work / "libmissing.so", compile_calls(work, "missing-made.so", ["missing.c"], "-DPART=1", "-O1", "-shared", "-fPIC")
    shutil.copy(made, library)
    # (with lazy binding the linker's own code would be around most of it)
    program = ptstacks.compile_hooked(work, "missing", "missing.c", "-O1", "-Wl,-z,now", "-Wl,-rpath,.", f"-Wl,-rpath,{work}", "-Wl,--no-as-needed", str(library))
    r = Recording(work, "missing", [program], 0, {"CALLS_LOG": "hooks"}, ["--plain-returns"])
    want, functions = ptstacks.truth(r.folder / "hooks", ptstacks.symbols(program))
    functions -= {"compare"}  # called by the library
    away = library.with_suffix(".away")
    library.rename(away)
    try:
        got = ptstacks.entries(ptstacks.decode(r.data), functions)
    finally:
        away.rename(library)
    for tid, mine in got.items():
        log = [(name, tuple(n for n in path if n in functions), area) for name, path, area in want[tid] if name in functions]
        why = wrong_order(log, mine)
        right = wrong_order(log, [(name, path, True) for name, path, _ in mine])
        expect(not why and len(mine) > len(log) * 9 // 10, f"a library that is away: {len(mine)} entries of {len(log)}, {why}")
        expect(right is None, f"and all are under their callers: {right}")


need_command("gcc", "gcc")
need_command("g++", "g++")
need_command("nm", "binutils")
if not STEP.exists():
    skip("needs tracerd-step")
only = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    programs = {name: ptstacks.compile_hooked(work, name, source, *flags) for name, (source, *flags) in PROGRAMS.items() if not only or name in only}
    run = {name: ([p], 0, {"CALLS_LOG": "hooks"}) for name, p in programs.items()}
    for name, r in record_all(work, run, ["--psb-bytes", "512"]).items():
        check(work, r, programs[name])
    if not only or "missing" in only:
        missing(work)
