# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""Programs of other people's making, with regions put around their work by LD_PRELOAD (examples/shims/):
sqlite3's statements, and the callbacks of libevent in memcached.

A slow one takes a snapshot by itself. In it the region and the sampled stacks of its thread must agree in time: from the
region's begin to the first stack with its function in it, and from the last such stack to the region's end,
it runs for one sample period at most; in between no stack is without it. How closely they agree is printed.
"""
import re
import statistics

import lib.capture as capturelib
from lib.events import *

need_root("samples of other programs, and their waits")
SHIMS = BUILD / "examples" / "shims" / ".libs"
TIMES = 5


class Timeline:
    """What the text output has of slices, by thread: [(begin, end, name, rest)], and the instants of all tracks."""

    def __init__(self, text):
        tracks, self.slices, self.regions, self.instants = {}, {}, {}, []
        kinds, parents, open_ = {}, {}, {}
        for line in text.splitlines():
            f = line.split("\t")
            if f[0] == "T":
                tracks[f[1]] = int(f[4])
            elif f[0] == "K":
                kinds[f[1]], parents[f[1]] = f[3], f[2]
            elif len(f) > 3 and f[2] == "B":
                open_.setdefault(f[1], []).append((int(f[0]), json.loads(f[3]), "\t".join(f[4:])))
            elif len(f) > 2 and f[2] == "E" and open_.get(f[1]):
                begin, name, rest = open_[f[1]].pop()
                if f[1] in tracks:
                    self.slices.setdefault(tracks[f[1]], []).append((begin, int(f[0]), name, rest))
                elif kinds.get(f[1]) == '"regions"':
                    self.regions.setdefault(tracks[parents[f[1]]], []).append((begin, int(f[0]), name, rest))
            elif len(f) > 3 and f[2] == "I":
                self.instants.append((int(f[0]), json.loads(f[3]), "\t".join(f[4:])))


def us(ns):
    return f"{ns / 1e3:,.0f} µs"


def agreement(out, cause, frame, binary, cut):
    """For the slow region of a snapshot: (begin, end, arguments), ns from its begin to the first stack with `frame`, ns from
    the last one to its end, the timeline, and the sample period."""
    meta = json.loads((out / "meta.json").read_text())
    timeline = Timeline((out / "text").read_text())
    bracket = min(meta["clocks"]["brackets"], key=lambda b: abs(b["raw"] - cause["end_raw_ns"]))
    offset = bracket["monotonic"] - bracket["raw"]
    tid = cause["tid"]
    begin, end, _, rest = min((r for r in timeline.regions[tid] if r[2] == cause["region"]),
                                 key=lambda r: abs(r[0] - cause["begin_raw_ns"] - offset))
    if abs(begin - cause["begin_raw_ns"] - offset) > 2000 or abs(end - cause["end_raw_ns"] - offset) > 2000:
        fail(f"the region is at {begin}..{end} in the timeline, its cause says {cause} at {offset}")
    mine = [(b, e) for b, e, n, r in timeline.slices[tid]
            if n == frame and r.startswith(f"[{binary}") or cut and n == "[callers unknown]"]
    # When the thread's stack was seen: by samples of the timer, and where it left the processor, until it was back.
    seen = [r.time + offset for r in capturelib.records((out / "perf.data").read_bytes())
            if r.type == capturelib.SAMPLE and r.id == capturelib.CLOCK and r.tid == tid]
    for b, e, n, _ in timeline.slices[tid]:
        if n.startswith("off CPU"):
            seen += [b, e - 2000]
    # A busy machine loses records: what the thread did meanwhile is said to be not known.
    lost = [(b, e) for b, e, n, _ in timeline.slices[tid] if n.startswith("not known")]
    # A conversion of clocks lies between a stack's own time and its slice's.
    away = lost + [(b, e) for b, e, n, _ in timeline.slices[tid] if n.startswith("off CPU")]
    seen = [t for t in seen if not any(b <= t + 1000 < e for b, e in lost)]
    inside = [(t, any(b <= t + 1000 < e for b, e in mine)) for t in sorted(seen) if begin + 1000 <= t <= end - 1000]
    with_it = [t for t, there in inside if there]
    if not with_it:
        fail(f"{len(inside)} stacks in the region, none of them with {frame} of {binary}")
    strays = [t - begin for t, there in inside if not there and with_it[0] < t < with_it[-1]]
    if strays:
        fail(f"stacks without {frame} in the middle of its region, ns after its begin: {strays[:5]}")

    def ran(first, last):
        """How long the thread ran between the two: a busy machine takes the processor away where no stack is seen."""
        return last - first - sum(max(0, min(last, e) - max(first, b)) for b, e in away)
    return (begin, end, rest), ran(begin, with_it[0]), ran(with_it[-1], end), timeline, 1e9 / meta["events"]["hz"]


def compare(d, c, program, over, frame, binary, slow, check, cut=False):
    """Runs the slow thing some times, each of which must take a snapshot. `cut`: stacks whose beginning could not be copied
    are of that function, too."""
    c.call("subscribe", {"events": ["trigger.hit", "snapshot.state"]})
    region = "sqlite3_step" if program == "sqlite3" else "event_callback"
    done = d.tracectl("trigger", "add", slow.pid, "--region", region, "--over", over, "--cooldown", "0")
    if done.returncode:
        fail(f"trigger add: {done.stderr}")
    firsts, lasts, took = [], [], []
    for i in range(TIMES):
        slow()
        hit = c.event("trigger.hit", match=lambda data: data["snapshot"])["data"]
        s = c.event("snapshot.state", match=lambda data: data["id"] == hit["snapshot"] and data["state"] in ("done", "failed"))["data"]
        if s["state"] != "done":
            fail(f"{program}: the snapshot is {s['state']}: {s['error']}")
        cause = s["cause"]
        if cause["region"] != region or cause["pid"] != slow.pid:
            fail(f"{program}: the cause is {cause}")
        out = tmp() / f"{program}-{i}"
        for args in (("fetch", s["id"], "-o", f"{out}/"), ("decode", out, "-o", out / "text", "--format", "text")):
            ran = d.tracectl(*args)
            if ran.returncode:
                fail(f"{program}: tracectl {args[0]}: {ran.stderr}")
        (begin, end, rest), first, last, timeline, period = agreement(out, cause, frame, binary, cut)
        check(rest)
        marks = [t for t, name, r in timeline.instants if name.startswith(f"trigger: {region} took ")]
        if not any(abs(t - end) < 2000 for t in marks):
            fail(f"{program}: no mark at the region's end {end}: {marks}")
        firsts.append(first)
        lasts.append(last)
        took.append(end - begin)
        c.call("snapshot.delete", {"snapshot": s["id"]})
        c.events.clear()
        shutil.rmtree(out)
    note(f"{program}: {TIMES} regions of {us(min(took))} to {us(max(took))}; the first stack came {', '.join(map(us, firsts))} after the "
         f"begin, the last one {', '.join(map(us, lasts))} before the end")
    # Nor does the host of a virtual machine say when it takes the processor away: not each single one is the measure.
    expect(statistics.median(firsts) <= period and statistics.median(lasts) <= period,
           f"{program}: region and stacks agree within a sample period of {us(period)}: "
           f"{us(statistics.median(firsts))} at the begin, {us(statistics.median(lasts))} at the end (medians)")


def preloaded(d, shim, *argv, **kw):
    library = SHIMS / shim
    if not library.exists():
        fail(f"{library} is not built")
    return spawn(*argv, env={**os.environ, "TRACERD_SOCKET": str(d.sock), "LD_PRELOAD": str(library)}, **kw)


class Sqlite:
    def __init__(self, d, c):
        self.process = preloaded(d, "shim-sqlite3.so", "sqlite3", ":memory:", stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 text=True, bufsize=1)
        self.pid = self.process.pid
        registered(c, self.pid)
        self.say("create table t(a integer primary key, b text); with recursive c(x) as (select 1 union all select x+1 from c "
                 "where x<20000) insert into t select x, hex(randomblob(16)) from c; select 'ready';")

    def say(self, sql):
        self.process.stdin.write(sql + "\n")
        return self.process.stdout.readline()

    def __call__(self):
        self.say("select count(*) from (select * from t limit 2000) x join (select * from t limit 400) y on x.b < y.b "
                 "where x.b like '%7%';")


class Memcached:
    """Its slow callback is one request for 30,000 keys that are not there."""

    def __init__(self, d, c):
        path = d.dir / "memcached.sock"
        p = preloaded(d, "shim-libevent.so", "memcached", "-u", "root", "-s", path, "-m", "64", "-t", "1")
        self.pid = p.pid
        registered(c, self.pid)
        wait_for("memcached listens", path.exists)
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(PATIENCE)
        self.sock.connect(str(path))
        self.request = b"get" + b"".join(b" %05d" % i for i in range(30000)) + b"\r\n"

    def say(self, command):
        self.sock.sendall(command)
        answer = b""
        while not answer.endswith(b"END\r\n"):
            answer += self.sock.recv(1 << 20)
        return answer

    def __call__(self):
        self.say(self.request)


def has_sql(rest):
    if 'sql="select count(*) from (select * from t limit 2000) x' not in rest:
        fail(f"the statement is not the region's argument: {rest}")


def has_function(rest):
    if not re.search(r"function=0x[0-9a-f]+\tfd=\d+\tevents=2\b", rest):
        fail(f"the callback is not the region's argument: {rest}")


found = [p for p in ("sqlite3", "memcached") if shutil.which(p)]
if not found:
    skip("needs sqlite3 or memcached (Debian/Ubuntu packages: sqlite3, memcached)")
for name in ("sqlite3", "memcached"):
    if name not in found:
        note(f"no {name} (Debian/Ubuntu package: {name}): left out")
        continue
    # Both have frames of many KiB: copies of the stack long enough to hold them.
    conf = "[capture]\ndwarf_stack_bytes = 32768\ndwarf_ring_kib = 65536\n"
    with Tracerd(name=f"-{name}", config=conf) as d, d.client() as c:
        slow = (Sqlite if name == "sqlite3" else Memcached)(d, c)
        c.arm(slow.pid, stacks="dwarf")
        if name == "sqlite3":
            compare(d, c, name, "20ms", "sqlite3_step", "libsqlite3", slow, has_sql)
        else:
            # It has an array of 16 KiB on the stack and uses little of it: the kernel's copy ends at a page that was never
            # touched, inside a callback. In the loop its stack is short.
            compare(d, c, name, "2ms", "call", "shim-libevent", slow, has_function, cut=True)
