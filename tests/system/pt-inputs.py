#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""One recording in every form that Intel PT comes in: the file and the pipe layout, compressed records, buffers of CPUs with both
kinds of switch records and threads that move between them, snapshots that overlap, the bytes alone with a description, a bundle, parts
that were cut at PSBs, any number of workers, and damage. The instructions, calls and times are those of the recording as it was made; and
stock perf, which is given the same files but where it is said why not, finds the same calls and returns in them."""
import random
import re

from lib.pt import *
from lib.perffile import AUX, AUXTRACE, AUXTRACE_INFO, EXIT, ITRACE_START, MMAP2, SWITCH_OUT, PerfFile, SWITCH, SWITCH_CPU_WIDE
from lib.ptpackets import Encoder, blocks

SWITCHES = {"switch": (SWITCH, 2), "switch_cpu_wide": (SWITCH_CPU_WIDE, 3)}
NOBODY = 0xFFFFFFFF


def decode(data, *options):
    p = subprocess.run([BUILD / "tracectl", "decode", data, *map(str, options)], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode or p.stderr:
        fail(f"{data.name} {options}: exit {p.returncode}: {p.stderr}")
    return p.stdout


def instructions(data, *options):
    """{tid: [address]}"""
    threads = {}
    for line in decode(data, "--insns", *options).splitlines()[1:]:
        _, tid, ip = line.split()[:3]
        threads.setdefault(tid, []).append(ip)
    return threads


def calls(data):
    """{thread and its name: [(begins or ends, function)]}; without remarks, which say where tracing stopped, and without times."""
    threads, events = {}, None
    for line in decode(data, "--calls").splitlines():
        if line.startswith("thread "):
            events = threads.setdefault(line, [])
        m = re.match(r" *~?\d+ +(?:\d+ +\d+ +)?(\} )?([^-\s].*?)( \{)?$", line)
        if not m or events is None:
            continue
        name = re.sub(r" \[.*\]$", "", m[2])
        if not m[1]:
            events.append(("begins", name))
        if m[1] or not m[3]:
            events.append(("ends", name))
    return threads


def losses(data, *options):
    answer = json.loads(subprocess.run([BUILD / "tracectl", "--json", "decode", data, "--stats", *options], capture_output=True, text=True,
                                     timeout=PATIENCE, check=True,
                                     env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")}).stdout)
    return {k: v for k, v in answer["losses"].items() if v}


def perfs(data):
    """Stock perf's calls and returns of each thread; None: it does not decode PT here."""
    if not working_perf():
        return None
    p = subprocess.run(["perf", "script", "-i", data, "--itrace=cr", "-F", "tid,flags,ip,addr"], capture_output=True,
                       text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{data.name}: perf script: {p.stderr}")
    threads = {}
    for line in p.stdout.splitlines():
        words = line.replace("=>", "").split()
        if len(words) > 3 and words[1] in ("call", "return"):
            threads.setdefault(words[0], []).append((words[1], words[-2], words[-1]))
    return threads


def same(what, got, want):
    for tid in sorted(want.keys() | got.keys()):
        a, b = got.get(tid, []), want.get(tid, [])
        if a != b:
            i = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
            fail(f"{what}: thread {tid}: {i} of {len(b)} are right, then {a[i:i + 3]} instead of {b[i:i + 3]}; {len(a)} in all")


class Plain:
    """A recording as it was made, and what it gives."""

    def __init__(self, r):
        self.name, self.data, self.file = r.name, r.data, PerfFile.read(r.data)
        self.insns, self.calls, self.perf = instructions(r.data), calls(r.data), perfs(r.data)
        self.text = {view: decode(r.data, view) for view in ("--calls", "--branches", "--insns")}
        same(f"{r.name}: the stepper's instructions", self.insns, r.log())
        self.count = sum(map(len, self.insns.values()))
        if losses(r.data):
            fail(f"{r.name}: losses in an exact recording: {losses(r.data)}")
        words = struct.unpack_from("<17Q", self.file.of_type(AUXTRACE_INFO)[0][0], 16)
        self.shift, self.mult, self.zero = words[1:4]
        self.streams = []  # (pid, tid, bytes)
        for record, payload in self.file.of_type(AUXTRACE):
            tid = struct.unpack_from("<I", record, 36)[0]
            self.streams.append((self.pid_of(tid), tid, payload.rstrip(b"\0")))

    def pid_of(self, tid):
        for record, _ in self.file.of_type(ITRACE_START):
            pid, this = struct.unpack_from("<II", record, 8)
            if this == tid:
                return pid
        fail(f"{self.name}: nothing says whose thread {tid} is")

    def ns(self, tsc):
        return self.zero + (tsc * self.mult >> self.shift) & (1 << 64) - 1

    def without_trace(self):
        """Its side-band alone, to be given other buffers."""
        f = PerfFile()
        f.attrs, f.features = list(self.file.attrs), dict(self.file.features)
        f.records = [list(r) for r in self.file.records if struct.unpack_from("<I", r[0])[0] not in (AUXTRACE, AUX)]
        return f

    def is_right(self, what, data, text=True, perf=True):
        """`text`: what is written is the same to the byte. Otherwise each thread's instructions and calls are."""
        if text:
            for view, want in self.text.items():
                if decode(data, view) != want:
                    fail(f"{self.name}, {what}: {view}")
        else:
            same(f"{self.name}, {what}: instructions", instructions(data), self.insns)
            same(f"{self.name}, {what}: calls", calls(data), self.calls)
        if losses(data):
            fail(f"{self.name}, {what}: {losses(data)}")
        theirs = ""
        if perf and self.perf is not None:
            same(f"{self.name}, {what}: stock perf's calls and returns", perfs(data), self.perf)
            theirs = f", {sum(map(len, self.perf.values()))} calls and returns by stock perf, too"
        ok(f"{self.name}, {what}: {self.count} instructions{theirs}")


def set_info(f, **words):
    """Words of AUXTRACE_INFO."""
    numbers = {"switch": 7, "snapshot": 8, "per_cpu": 9}
    record = f.of_type(AUXTRACE_INFO)[0]
    raw = bytearray(record[0])
    for name, value in words.items():
        struct.pack_into("<Q", raw, 16 + 8 * numbers[name], value)
    record[0] = bytes(raw)


# ---- layouts


def layouts(plain, work):
    plain.is_right("written again", plain.file.write_file(work / "again.data"))
    # stock perf 6.1 leaves threads out where bytes of traces are read from a pipe: it is not asked
    plain.is_right("pipe layout", plain.file.write_pipe(work / "pipe.data"), perf=False)
    packed = plain.file.compress()
    size = sum(len(r) for r, _ in packed.records)
    if size >= sum(len(r) for r, _ in plain.file.records):
        fail(f"{plain.name}: nothing was compressed")
    plain.is_right("compressed records", packed.write_file(work / "zstd.data"))
    plain.is_right("compressed records in the pipe layout", packed.write_pipe(work / "zstd-pipe.data"), perf=False)


def workers(plain):
    for n in range(1, 9):
        for view, want in plain.text.items():
            if decode(plain.data, view, "--threads", n) != want:
                fail(f"{plain.name}: {view} on {n} threads")
    ok(f"{plain.name}: the same on 1 to 8 threads, to the byte")


# ---- buffers of CPUs


class Piece:
    """A block of one thread: it runs from .begin to .end (TSC)."""

    def __init__(self, pid, tid, data, block, following):
        self.pid, self.tid, self.begin = pid, tid, block.tsc
        self.end = following.tsc if following else block.last_tsc + 1
        body = data[block.begin : following.begin if following else len(data)]
        if block.ip is not None:
            body = to_pge(body, block)
        if following and block.on:
            # as a switch: tracing stops in front of the instruction that comes next
            e = Encoder()
            e.ip("fup", following.ip, 3)
            e.ip("tip.pgd")
            body += e.out
        self.body, self.is_last = body, not following


def to_pge(body, block):
    """A PSB of a trace that is off, at which it is turned on."""
    begin, end = block.fup
    behind = body.index(b"\x02\x23", end) + 2
    e = Encoder()
    e.ip("tip.pge", block.ip, 3)
    return body[:begin] + body[end:behind] + bytes(e.out) + body[behind:]


def on_cpus(plain, how):
    """Each thread's blocks, wherever a CPU is free; who runs is told by switches alone."""
    pieces = []
    for pid, tid, data in plain.streams:
        these = blocks(data)
        if these[0].begin:
            fail(f"{plain.name}: bytes in front of the first PSB of {tid}")
        pieces += [Piece(pid, tid, data, b, following) for b, following in zip(these, these[1:] + [None])]
    exits = {struct.unpack_from("<I", r, 16)[0]: struct.unpack_from("<Q", r, 24)[0] for r, _ in plain.file.of_type(EXIT)}
    for p in pieces:
        if p.is_last and p.tid in exits:
            p.end = max(p.end, ((exits[p.tid] - plain.zero) % 2**64 << plain.shift) // plain.mult + 2)
    pieces.sort(key=lambda p: p.begin)
    cpus, last_of, moves = [], {}, 0
    for p in pieces:
        free = [c for c in cpus if c[-1].end + 1000 < p.begin]
        # the one that is free for the longest time: threads do move
        cpu = min(free, key=lambda c: c[-1].end) if free else None
        if cpu is None:
            cpus.append([])
            cpu = cpus[-1]
        cpu.append(p)
        moves += last_of.get(p.tid, cpus.index(cpu)) != cpus.index(cpu)
        last_of[p.tid] = cpus.index(cpu)
    f = plain.without_trace()
    kind, number = SWITCHES[how]
    set_info(f, switch=number, per_cpu=1)
    # the attribute says that there are switch records
    f.attrs = [(a[:40] + struct.pack("<Q", struct.unpack_from("<Q", a, 40)[0] | 1 << 26) + a[48:] if struct.unpack_from("<I", a)[0] == 1 else a,
                ids) for a, ids in f.attrs]
    # where a thread begins was told with its CPU, which it has no more
    f.records = [r for r in f.records if struct.unpack_from("<I", r[0])[0] != ITRACE_START]
    for r in f.of_type(EXIT):
        tid = struct.unpack_from("<I", r[0], 16)[0]
        r[0] = r[0][:-16] + struct.pack("<I", last_of[tid]) + r[0][-12:]
    changes = []
    for n, cpu in enumerate(cpus):
        for p in cpu:
            # it may go on at once elsewhere
            came, went = plain.ns(p.begin) - 1, plain.ns(p.end) + (1 if p.is_last else -2)
            # a thread that has ended is not told to leave; of a CPU somebody leaves who is nobody any more
            gone = (NOBODY, NOBODY) if p.is_last else (p.pid, p.tid)
            if kind == SWITCH:
                changes += [(came, False, (p.pid, p.tid), n)] + ([] if p.is_last else [(went, True, gone, n)])
            else:
                changes += [(came, True, (0, 0), n, (p.pid, p.tid)), (came, False, (p.pid, p.tid), n, (0, 0)),
                            (went, True, gone, n, (0, 0)), (went, False, (0, 0), n, gone)]
    for time, out, who, n, *other in sorted(changes, key=lambda c: c[0]):
        f.side(kind, struct.pack("<II", *other[0]) if other else b"", time, *who, n, SWITCH_OUT if out else 0)
    for n, cpu in enumerate(cpus):
        data = b"".join(p.body for p in cpu)
        f.aux(plain.ns(cpu[-1].end) + 2, NOBODY, NOBODY, 0, len(data) + 7 & ~7, cpu=n)
        f.auxtrace(data, n, cpu=n, reference=cpu[0].begin)
    return f, len(cpus), moves


def per_cpu(plain, work):
    for how in SWITCHES:
        f, n, moves = on_cpus(plain, how)
        if moves < 2:
            fail(f"{plain.name}: no thread moves between the CPUs")
        plain.is_right(f"buffers of {n} CPUs, {moves} moves, {how}", f.write_file(work / f"{how}.data"), text=False)


# ---- snapshots


def snapshots(plain, align):
    """Every so often the last bytes of each buffer are copied: most of them were copied before. perf fills each up to 8 bytes."""
    f = plain.without_trace()
    set_info(f, snapshot=1)
    twice = n = 0
    for i, (pid, tid, data) in enumerate(plain.streams):
        these = blocks(data)
        at = 0
        while at < len(data):
            end = min(len(data), at + max(1501, len(data) // 8) // align * align)
            # what is common must have a PSB, or nobody can tell
            psb = [b.begin for b in these if b.begin < at]
            begin = psb[-2] if len(psb) > 1 else 0
            begin = max(0, begin - (begin - end) % align)
            stamp = max([b.last_tsc for b in these if b.begin < end])
            # the time at which it was taken, and how far the ring had been written
            f.aux(plain.ns(stamp), pid, tid, begin, end - begin, 2)
            piece = data[begin:end]
            f.records.append([struct.pack("<IHHQQQIIII", AUXTRACE, 0, 48, len(piece) + (-len(piece) % 8), begin, stamp, i, tid, NOBODY, 0),
                              piece + bytes(-len(piece) % 8)])
            twice += at - begin
            n += 1
            at = end
    if twice < 1000 or n < 2 * len(plain.streams):
        fail(f"{plain.name}: {n} snapshots that have {twice} bytes in common")
    return f, n, twice


# ---- the bytes alone


def bare_bytes(plain, work):
    pid, tid, data = plain.streams[0]
    blob, info = work / "pt.bin", work / "info.json"
    blob.write_bytes(data)
    maps = []
    for record, _ in plain.file.of_type(MMAP2):
        _, _, start, size, offset = struct.unpack_from("<IIQQQ", record, 8)
        prot = struct.unpack_from("<I", record, 64)[0]
        path = record[72:].split(b"\0")[0].decode()
        if prot & 4 and path.startswith("/"):
            maps.append(dict(file=path, offset=offset, length=size, address=start))
    info.write_text(json.dumps(dict(pid=pid, tid=tid, name="x", mappings=maps, time=dict(
        shift=plain.shift, mult=plain.mult, zero=str(plain.zero)))))
    same(f"{plain.name}, bytes alone", instructions(blob, "--pt-info", info), {str(tid): plain.insns[str(tid)]})
    want = [line for line in plain.text["--branches"].splitlines()[1:] if line.split()[1] == str(tid)]
    got = decode(blob, "--pt-info", info, "--branches").splitlines()[1:]
    same(f"{plain.name}, bytes alone: branches and times", {"": got}, {"": want})
    ok(f"{plain.name}, the bytes alone with a description: {len(plain.insns[str(tid)])} instructions, {len(got)} branches with their times")


# ---- a bundle


def bundle(plain, work, program):
    """The recording as tracerd keeps it, with the program in it: where it was it is no more."""
    folder = work / "bundle"
    image = folder / "images" / str(program).lstrip("/")
    image.parent.mkdir(parents=True)
    shutil.copy(plain.data, folder / "perf.data")
    (folder / "meta.json").write_text(json.dumps(dict(format=1)))
    shutil.move(program, image)
    for view, want in plain.text.items():
        if decode(folder, view) != want:
            fail(f"{plain.name}, bundle: {view}")
    if losses(folder):
        fail(f"{plain.name}, bundle: {losses(folder)}")
    image.rename(program)
    ok(f"{plain.name}, in a bundle with its program: {plain.count} instructions")


def parts(plain, work):
    """A trace that is cut at any of its PSBs: what is in front of it and what is behind it are the whole."""
    pid, tid, data = max(plain.streams, key=lambda s: len(s[2]))
    these = blocks(data)
    whole = plain.insns[str(tid)]
    step = max(1, len(these) // 6)
    for b in these[1::step]:
        halves = []
        for piece in (data[: b.begin], data[b.begin :]):
            f = plain.without_trace()
            f.auxtrace(piece, 0, tid)
            halves.append(instructions(f.write_file(work / "part.data")).get(str(tid), []))
        # the walk stops where the decisions end: what comes up to the next one is not known without the other part
        got, n = halves[0] + halves[1], len(whole) - len(halves[1])
        if halves[1] != whole[n:] or halves[0] != whole[: len(halves[0])] or len(halves[0]) > n:
            fail(f"{plain.name}: cut at {b.begin:#x}: {len(halves[0])} and {len(halves[1])} of {len(whole)} instructions")
        missing = whole[len(halves[0]) : n]
        if len(missing) > 200:
            fail(f"{plain.name}: cut at {b.begin:#x}: {len(missing)} instructions in front of it are missing")
    ok(f"{plain.name}: cut at {len(these[1::step])} of {len(these)} PSBs, both parts are the whole")


def damage(plain, work):
    """Bytes that are wrong somewhere in a trace: its other blocks and the other threads give what they gave; what is lost is said."""
    dice, hurt, said, rounds = random.Random(7), 0, 0, 12
    pid, tid, data = max(plain.streams, key=lambda s: len(s[2]))
    these, whole = blocks(data), plain.insns[str(tid)]

    def with_trace(piece):
        f = plain.without_trace()
        for i, (_, other, theirs) in enumerate(plain.streams):
            f.auxtrace(piece if other == tid else theirs, i, other)
        return f.write_file(work / "damaged.data")

    # What a damage does depends on where the program was loaded: on until enough of them did harm.
    n = 0
    while n < rounds or hurt < rounds // 2:
        n += 1
        if n > 8 * rounds:
            fail(f"{plain.name}: of {n} damages {hurt} did harm")
        k = dice.randrange(1, len(these) - 1)
        begin, end = these[k].begin, these[k + 1].begin
        front = len(instructions(with_trace(data[:begin]))[str(tid)])
        behind = len(instructions(with_trace(data[end:]))[str(tid)])
        bad = bytearray(data)
        for at in range(begin + dice.randrange(end - begin), end):
            bad[at] = dice.randrange(256)
            if dice.randrange(8) == 0:
                break
        path = with_trace(bad)
        p = subprocess.run([BUILD / "tracectl", "decode", path, "--insns"], capture_output=True, text=True, timeout=PATIENCE,
                           env={**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
        if p.returncode:
            fail(f"{plain.name}: damage at {begin:#x}: exit {p.returncode}: {p.stderr}")
        got = {}
        for line in p.stdout.splitlines()[1:]:
            _, who, ip = line.split()[:3]
            got.setdefault(who, []).append(ip)
        mine = got.pop(str(tid))
        same(f"{plain.name}: other threads than the damaged one", got, {t: v for t, v in plain.insns.items() if t != str(tid)})
        if mine[:front] != whole[:front] or mine[len(mine) - behind :] != whole[len(whole) - behind :]:
            fail(f"{plain.name}: damage at {begin:#x}..{end:#x}: {front} instructions in front and {behind} behind it are not all right")
        # hardly more than was run, whatever the bytes are
        if len(mine) > len(whole) + 512 * 256 * (end - begin):
            fail(f"{plain.name}: damage at {begin:#x}: {len(mine)} instructions of {len(whole)}")
        hurt += mine != whole
        said += mine != whole and bool(losses(path))
    # another decision may be as good as the right one, and lead to the same place
    if said < hurt // 2:
        fail(f"{plain.name}: of {n} damages {hurt} did harm and {said} are told of")
    ok(f"{plain.name}: damaged {n} times, all but the damaged block is right")


need_command("gcc", "gcc")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    threads = compile_calls(work, "threads", ["threads.c"], "-O1", "-static", "-no-pie")
    plain = compile_calls(work, "plain", ["plain.c"], "-O1", "-static", "-no-pie")
    more = ["--psb-bytes", "512", "--time-insns", "32"]
    run = {"threads": ([threads], 0), "processes": (["sh", "-c", f"true; {plain}; (exit 3); {plain}"], 0)}
    for name, r in record_all(work, run, more).items():
        p = Plain(r)
        layouts(p, work)
        workers(p)
        per_cpu(p, work)
        for align in (8, 1):
            f, n, twice = snapshots(p, align)
            # stock perf 6.1 has some calls at their seams twice, and takes the zeros for packets: it is not asked
            p.is_right(f"{n} snapshots, filled up by {'none' if align == 8 else 'some'}, with {twice} bytes in common",
                       f.write_file(work / "snapshots.data"), perf=False)
        if name == "threads":
            bare_bytes(p, work)
            bundle(p, work, threads)
        parts(p, work)
        damage(p, work)
