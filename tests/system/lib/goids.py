# SPDX-License-Identifier: Apache-2.0
"""Goroutines that samples and switches are said to be of (SCHEDEV_GOROUTINE), against what tests/programs/goids says of itself."""
from lib.golang import *
from lib.capture import *

GOROUTINE, WAITED, LATER = 8, 1 << 13, 1 << 12
Shown = collections.namedtuple("Shown", "kind tid time goroutine chain")  # kind: of a sched record, 0: a sample


def shown(recs):
    """Samples, switch-outs and waits with the goroutine that they are said to be of (0: none); the chain is the user's, innermost first."""
    pending, left, out = {}, {}, []

    def of(tid, time):
        when, goroutine = pending.pop(tid, (0, 0))
        return goroutine if when == time else 0

    for r in sorted((r for r in recs if r.type == SAMPLE), key=lambda r: r.time):
        if not CLOCK <= r.id < CLOCK + 3 * 16:
            continue
        r = r._replace(id=CLOCK + (r.id - CLOCK) % 16)  # of any of the rings that it went to
        at, chain = 48, []
        if r.id != SCHED_PLAIN:
            (n,) = struct.unpack_from("<Q", r.body, at)
            chain = [a for a in struct.unpack_from(f"<{n}Q", r.body, at + 8) if a < 1 << 47]
        if r.id == CLOCK:
            out.append(Shown(0, r.tid, r.time, of(r.tid, r.time), chain))
        elif r.id in (SCHED, SCHED_PLAIN):
            e = sched(r)
            high, low = struct.unpack_from("<II", r.body, r.body.index(struct.pack("<I", SCHED_MAGIC)) + 16)
            if e.kind == GOROUTINE:
                pending[e.tid] = (r.time, high << 32 | low)
            elif e.kind == OUT:
                left[e.tid] = (r.time, of(e.tid, r.time))
                out.append(Shown(OUT, e.tid, r.time, left[e.tid][1], chain))
            elif e.kind == IN:
                began, goroutine = left.pop(e.tid, (0, 0))
                # Where the switch-out was overwritten, on another CPU's ring, it is that of an older wait.
                if e.flags & WAITED and abs(r.time - (high << 32 | low) - began) < 100000:
                    out.append(Shown(IN, e.tid, r.time, goroutine, chain))
    return out


class Said:
    """What the program has said: functions by their addresses, and whose they are."""

    def __init__(self, text, program=None):
        self.switches = []
        symbols = run("tool", "nm", "-size", program, cwd=".") if program else ""
        for at, size in re.findall(r"^ *(\w+) +(\d+) \w runtime\.mcall\S*$", symbols, re.M):
            self.switches.append((int(at, 16), int(at, 16) + int(size)))
        self.ids, self.where = collections.defaultdict(set), {}
        for line in text.splitlines():
            if re.fullmatch(r"\w+ \d+ 0x\w+ 0x\w+", line):
                name, number, begin, end = line.split()
                self.ids[name].add(int(number))
                self.where[name] = (int(begin, 16), int(end, 16))

    def functions(self, chain):
        """Of the goroutines' own, those that are in a stack. The scheduler's frames lead back to who has called it, until Go 1.20: not his."""
        if any(a <= x < b for a, b in self.switches for x in chain):
            return set()
        return {name for name, (a, b) in self.where.items() for i, x in enumerate(chain) if a <= x - (i > 0) < b}


def record(c, program, stacks="auto", least=3000, symbols=False):
    """(what the daemon says of the program, meta, records, the timeline as text, snapshot, what it said itself)"""
    said = tmp() / "said"
    with open(said, "w") as f:
        p = spawn(program, stdout=f)
    t = c.call("target.arm", {"pid": p.pid, "stacks": stacks})["target"]

    def described():
        sample = [x for x in c.call("target.list")["targets"] if x["id"] == t["id"]][0]["sample"]
        (found,) = sample["go"] or [None]
        # Whose they are is known before the files are read, and the stacks have functions after that.
        if stacks == "bpf" and sample["unwound"]["complete"] < least // 3:
            return None
        return found if found and (found["refused"] or found["found"] > least) else None

    try:
        d = wait_for("its goroutines are read", described, timeout=120)
        meta, recs, s = bundle(c, t["id"])
        data = tmp() / "perf.data"
        data.write_bytes(c.fetch(s["id"], "perf.data")["perf.data"])
    finally:
        p.kill()
        p.wait()
        c.call("target.disarm", {"target": t["id"]})
    text = subprocess.run([BUILD / "tracectl", "decode", "-f", "text", "-o", "-", data], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if text.returncode:
        fail(f"decoding as text: {text.stderr}")
    return d, meta, recs, text.stdout, s, Said(said.read_text(), program if symbols else None)


def check(what, recs, said):
    """No record is of another goroutine than the one whose function it shows. How many show one, by function."""
    counts, wrong, without, several = collections.Counter(), [], 0, 0
    kinds = collections.Counter()
    all_shown = shown(recs)
    # From when on they are read: the program was looked at after it was armed.
    known = next(i for i, x in enumerate(all_shown) if x.goroutine)
    for x in all_shown[known:]:
        names = said.functions(x.chain)
        if len(names) != 1:
            several += len(names) > 1
            continue
        (name,) = names
        if not x.goroutine:
            without += 1
        elif x.goroutine not in said.ids[name]:
            wrong.append((name, sorted(said.ids[name])[:3], x))
        else:
            counts[name] += 1
            kinds[x.kind] += 1
    for w in wrong[:5]:
        note(f"{what}: {w[0]} is of {w[1]}, not {w[2].goroutine}: kind {w[2].kind} of {w[2].tid} at {w[2].time}: {[hex(a) for a in w[2].chain]}")
    expect(not wrong and not several, f"{what}: of {sum(counts.values())} samples and waits none is of another goroutine: {len(wrong)}, {several}")
    expect(without * 50 <= sum(counts.values()), f"{what}: nearly all say of which they are: {without} do not")
    return counts, kinds
