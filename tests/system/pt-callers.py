#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Who was there all along: a snapshot of a program that was deep in calls before it was armed has these by name, from the
stack that the freeze has taken of each thread; one that is not that of the calls is counted, and names nobody."""
import pathlib
import re
import select

from lib import ptpackets
from lib.perffile import *
from lib.pt import *
from lib.texttrace import in_time

SAMPLE, STACK = 9, 102
TIMELINE = ("--format", "text", "-o", "-")
SEEN = "begin not recorded, from its stack"
MAIN = ["main", "a"] + 5 * ["deep"] + ["b", "loop", "work", "leaf"]
THREAD = ["routine", "first", "second", "loop", "work", "leaf"]


def calls(text):
    """{tid: [(path, how)]} of each slice of a thread, in the order of their begins: the names of those around it, and its own."""
    tracks, open_, out = {}, {}, {}
    for f in in_time(text):
        if f[0] == "T":
            tracks[f[1]] = int(f[4])
        elif len(f) > 2 and f[1] in tracks and f[2] == "B":
            how = next((x[5:-1] for x in f if x.startswith("how=")), None)
            around = open_.setdefault(f[1], [])
            around.append(f[3].strip('"'))
            out.setdefault(tracks[f[1]], []).append((list(around), how))
        elif len(f) > 2 and f[1] in tracks and f[2] == "E":
            expect_quietly(open_[f[1]], "an end has its begin")
            open_[f[1]].pop()
    expect(not any(open_.values()), "all slices end")
    return out


def expect_quietly(true, what):
    if not true:
        fail(what)


def decode(recording, *options):
    p = subprocess.run([BUILD / "tracectl", "decode", *options, recording], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording}: {p.stderr}")
    return p.stdout


def report(recording):
    r = json.loads(decode(recording, "--json", "--stats"))
    return r["stats"], r.get("losses", {})


class Program:
    def __init__(self, program, how):
        self.process = spawn(program, how, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.pid = self.process.pid

    def turn(self):
        self.process.stdin.write(b"x")
        if not select.select([self.process.stdout], [], [], PATIENCE)[0] or os.read(self.process.stdout.fileno(), 1) != b"d":
            fail("the program does not answer")


def snapshot(d, c, program, how, turns=2):
    """Its bundle, after so many turns."""
    p = Program(program, how)
    p.turn()
    if d.tracectl("arm", "--backend", "step", p.pid).returncode:
        fail("it cannot be armed")
    for _ in range(turns):
        p.turn()
    # where each thread waits again, in read()
    calls_in = lambda: [path.read_text().split()[0] for path in pathlib.Path(f"/proc/{p.pid}/task").glob("*/syscall")]
    wait_for("it waits", lambda: set(calls_in()) == {"0"})
    n = c.snapshot(str(p.pid))
    if n["state"] != "done":
        fail(f"{how}: {n}")
    out = tmp() / how
    for file, data in c.fetch(n["id"]).items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    d.tracectl("disarm", p.pid)
    p.process.stdin.close()
    if p.process.wait(PATIENCE) != 0:
        fail(f"it ended with {p.process.returncode}")
    return out, p.pid


def named(path):
    """From the program's own functions on: what is around these is the C library's."""
    at = next((i for i, f in enumerate(path) if f in ("main", "routine")), len(path))
    return path[:at], path[at:]


def whole(paths, want, what, turns=2):
    """All calls of leaf have the whole path, and of each caller there is one call, which was named by its stack."""
    leaves = [p for p, _ in paths if p[-1] == "leaf"]
    expect(len(leaves) == 3 * turns and all(named(p)[1] == want and named(p)[0] for p in leaves),
           f"{what}: {' '.join(named(leaves[0])[1]) if leaves else leaves}")
    outer = [(p[-1], how) for p, how in paths if p[-1] in ("main", "a", "deep", "b", "routine", "first", "second")]
    expect(outer == [(f, SEEN) for f in want[:-3]], f"{what}: and each of them once, since it began before: {outer}")
    expect([how for p, how in paths if p[-1] == "loop"] == ["begin not recorded"], f"{what}: which a return has shown says only that")


def plain(d, c, program):
    out, pid = snapshot(d, c, program, "plain")
    paths = calls(decode(out, *TIMELINE))[pid]
    whole(paths, MAIN, "one thread")
    stats, losses = report(out)
    expect(stats["callers_from_stacks"] >= 8 and stats["stacks_that_agree"] == 1 and not losses, f"and nothing is in doubt: {losses}")
    expect(SEEN in decode(out, "--calls"), "the dump of calls has them, too")
    return out


def others(d, c, program):
    out, pid = snapshot(d, c, program, "threads")
    threads = calls(decode(out, *TIMELINE))
    whole(threads.pop(pid), MAIN, "of three threads the main one")
    expect(len(threads) == 2, "and two more")
    for paths in threads.values():
        whole(paths, THREAD, "a thread")
    stats, losses = report(out)
    expect(stats["stacks_that_agree"] == 3 and not losses, f"and nothing is in doubt: {losses}")

    out, pid = snapshot(d, c, program, "handler")
    paths = calls(decode(out, *TIMELINE))[pid]
    leaf = named(next(p for p, _ in paths if p[-1] == "leaf"))[1]
    expect(leaf[:8] == MAIN[:8] and leaf[-4:] == ["handler", "loop", "work", "leaf"] and "raise" in leaf,
           f"in a handler: what that has interrupted is around it: {' '.join(leaf)}")

    # On another stack than that of the thread: of its own there is nothing, and nothing is made up.
    out, pid = snapshot(d, c, program, "fiber")
    paths = calls(decode(out, *TIMELINE))[pid]
    leaf = next(p for p, _ in paths if p[-1] == "leaf")
    expect(leaf == ["__start_context", "fiber", "loop", "work", "leaf"] and not any(p[-1] in MAIN[:8] for p, _ in paths),
           f"on a stack of its own: no more than that: {' '.join(leaf)}")


def rewritten(bundle, change, trace=lambda data: data, event=lambda attr: attr):
    """The bundle's perf.data, with the bytes of its stack record changed, those of its trace, and the event of the record."""
    f = PerfFile.read(bundle / "perf.data")
    f.attrs = [(event(a) if STACK in ids else a, ids) for a, ids in f.attrs]
    for x in f.of_type(AUXTRACE):
        x[1] = trace(x[1])
    x = next(x for x in f.records if struct.unpack_from("<IHHQ", x[0])[::3] == (SAMPLE, STACK))
    x[0] = change(x[0])
    out = tmp() / "rewritten"
    shutil.copytree(bundle, out, dirs_exist_ok=True)
    f.write_file(out / "perf.data")
    return out


def disagreeing(out, program):
    # header, id, ip, tid, time, cpu; abi, 17 registers, the stack's size
    head, regs = 8 + 8 + 8 + 8 + 8 + 8, 8 + 17 * 8
    at = head + regs + 8
    record = next(x[0] for x in PerfFile.read(out / "perf.data").records if struct.unpack_from("<IHHQ", x[0])[::3] == (SAMPLE, STACK))
    expect(len(record) > at and struct.unpack_from("<Q", record, head)[0] == 2, "the stack is there, in 64 bits")

    def elsewhere(b):
        ip = head + 8 + 8 * 8
        return b[:ip] + struct.pack("<Q", struct.unpack_from("<Q", b, ip)[0] - 1) + b[ip + 8:]

    def cut(b):
        """Its innermost part, up to one of the calls of deep."""
        keep = 160
        b = b[:at - 8] + struct.pack("<Q", keep) + b[at:at + keep] + struct.pack("<Q", keep)
        return b[:6] + struct.pack("<H", len(b)) + b[8:]

    def other(b):
        """Its innermost return address is another one of it, into deep."""
        words = struct.unpack_from("<400Q", b, at)
        deep = next(w for w in words if 0x400000 < w < 1 << 32 and words.count(w) == 4)
        return b[:at] + struct.pack("<Q", deep) + b[at + 8:]

    stops = [int(line.split()[0].lstrip("~")) for line in decode(out, "--calls").splitlines() if line.endswith("-- system call")]

    def early(b):
        """Dated to just before the trace stops there: a trace's times may be coarse."""
        return b[:32] + struct.pack("<Q", stops[-1] - 1) + b[40:]

    stats, losses = report(rewritten(out, early))
    expect(stats.get("callers_from_stacks", 0) >= 8 and not losses, f"a stack counts where the trace stops next: {losses}")

    def clock(a):
        """No dummy: the CPU clock, each millisecond."""
        return struct.pack("<I", 1) + a[4:8] + struct.pack("<QQ", 0, 1000000) + a[24:]

    text = decode(rewritten(out, early, event=clock), *TIMELINE)
    moments = re.findall(r'	I	"(.*)"	\[sample\]', text)
    paths = [path for per in calls(text).values() for path, _ in per]
    expect(moments == ["__libc_read"] and any(path[-9:] == MAIN[:9] for path in paths), f"a sample within the calls is a moment, and changes none of them: {moments}")

    table = [x.split() for x in subprocess.run(["nm", "-S", program], capture_output=True, text=True, check=True).stdout.splitlines()]
    spans = [(int(x[0], 16), int(x[1], 16), x[3]) for x in table if len(x) == 4 and x[2] in "tT"]
    words = struct.unpack_from("<200Q", record, at)
    returns = [(w, name) for w in words for begin, size, name in spans if begin < w < begin + size and name in MAIN + ["_start"]]
    expect([name for _, name in returns][:9] == MAIN[8::-1], f"its return addresses: {returns}")

    def chain(missing):
        """The record, of a chain of frame pointers that misses the callers of these numbers, and read's, which has no frame itself."""
        ip = struct.unpack_from("<Q", record, head + 8 + 8 * 8)[0]
        found = [ip] + [w for i, (w, _) in enumerate(returns) if i and i not in missing]
        b = struct.pack(f"<Q{len(found)}Q", len(found), *found)
        return lambda r: r[:6] + struct.pack("<H", head + len(b)) + r[8:head] + b

    def with_chains(a):
        kept = struct.unpack_from("<Q", a, 24)[0] & ~0x3000
        return a[:24] + struct.pack("<Q", kept | 0x20) + a[32:]

    def outermost_of(p):
        paths = [x for per in calls(decode(p, *TIMELINE)).values() for x in per]
        return {(path[0], how) for path, how in paths if len(path) == 1}

    whole = outermost_of(rewritten(out, chain([]), event=with_chains))
    expect(whole == {("_start", SEEN)}, f"a chain of frame pointers to the begin: {whole}")
    a = [name for _, name in returns].index("a")
    holed = outermost_of(rewritten(out, chain([a]), event=with_chains))
    expect(holed == {("deep", SEEN + ": callers unknown")}, f"one that passes over a caller ends before it: {holed}")

    def waits(r):
        """The record, as BPF makes one of a thread that goes to sleep, with the whole chain; before the end, so that it takes time."""
        pid, tid = struct.unpack_from("<II", r, 24)
        b = chain([])(r) + struct.pack("<IIHHIIQIIII16s4x", 60, 0x01455354, 1, 0, pid, tid, 1, 0, 0, 0, 0, b"swapper/0")
        return b[:6] + struct.pack("<H", len(b)) + b[8:32] + struct.pack("<Q", stops[-1] + 1) + b[40:]

    def of_bpf(a):
        """Its event: BPF's output, with chains and raw data."""
        a = with_chains(a)
        return struct.pack("<I", 1) + a[4:8] + struct.pack("<QQ", 10, 1) + struct.pack("<Q", struct.unpack_from("<Q", a, 24)[0] | 0x400) + a[32:]

    p = rewritten(out, waits, event=of_bpf)
    # of a program that was stepped the summary has no waits
    (p / "perf.data").write_bytes((p / "perf.data").read_bytes().replace(b"tracerd-step\0", b"tracerd-sued\0"))
    found = [w["stack"] for w in json.loads(decode(p, "--json", "--summary"))["summary"]["waits"]]
    expect(len(found) == 1 and [x for x in found[0] if x in MAIN] == MAIN[:9], f"a wait within calls has the callers that its stack has named: {found}")
    paths = [path for per in calls(decode(p, *TIMELINE)).values() for path, _ in per]
    expect(sum(path[-1] == "main" for path in paths) == 1, "and they are drawn once")

    def overflow(data):
        """In place of all branches that the trace has between where it goes on last and the next system call, at the time of that."""
        at, last, began, ended = 0, 0, 0, 0
        while (n := ptpackets.length(data, at) if at < len(data) else 0):
            kind, ip = ptpackets.address(data, at, last)
            began = at + n if kind == "tip.pge" else began
            ended = at if kind == "tip.pgd" else ended
            resumed = ip if kind == "tip.pge" else last
            last, at = ip or last, at + n
        expect(began < ended and data[ended - 8] == 0x19, "the trace goes on and stops, and has the time")
        e = ptpackets.Encoder()
        e.last = resumed
        e.out += data[ended - 8 : ended]
        e.word("ovf")
        e.ip("fup", struct.unpack_from("<Q", record, head + 8 + 8 * 8)[0] - 2)
        expect(len(e.out) <= ended - began, "there is room for an overflow")
        return data[:began] + e.out.ljust(ended - began, b"\0") + data[ended:]

    stats, losses = report(rewritten(out, early, overflow))
    expect(losses.get("pt_overflows") == 1 and stats.get("stacks_of_another_place") == 1 and "callers_from_stacks" not in stats,
           f"a stack from before a gap names nobody behind it: {stats.get('callers_from_stacks')} {losses}")
    p = rewritten(out, other)
    stats, losses = report(p)
    expect(losses.get("stacks_that_disagree") == 1 and "callers_from_stacks" not in stats and
           not any(path[-1] == "deep" for per in calls(decode(p, *TIMELINE)).values() for path, _ in per),
           f"one that says something else than the calls is a loss, and they are right: {losses}")
    p = rewritten(out, elsewhere)
    stats, losses = report(p)
    expect(stats.get("stacks_of_another_place") == 1 and "callers_from_stacks" not in stats,
           "a stack of another place names nobody, and is counted")
    p = rewritten(out, cut)
    paths = [x for per in calls(decode(p, *TIMELINE)).values() for x in per]
    outermost = [how for path, how in paths if len(path) == 1]
    expect(outermost == [SEEN + ": callers unknown"] and {path[0] for path, _ in paths} == {"deep"},
           f"one that is cut names whom it has, and says that there are more: {outermost}")


def main():
    need_command("gcc", "gcc")
    if not STEP.exists():
        skip("needs tracerd-step")
    with tempfile.TemporaryDirectory() as folder:
        program = compile_calls(pathlib.Path(folder), "callers", ["callers.c"], "-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-fno-omit-frame-pointer", "-static")
        with Tracerd() as d, d.client() as c:
            out = plain(d, c, program)
            others(d, c, program)
            disagreeing(out, program)


main()
