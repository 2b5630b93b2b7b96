#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
# slow
"""The n-th allocation of the daemon fails, in each thing that it does for a client: it does not crash, the request is
answered or its connection closed, the same request then succeeds, and quotas, descriptors and the spool are as before.
A few of them at random fit a minute; `oom-nth.py every [STEP...]` takes each n once, `2/5` the second fifth of them, and
`tell` names the places in tracerd's log."""
import mmap
import random
import re
from collections import Counter

from lib import *
from lib.ring import Rings

need_root("records, and compares what the daemon holds")
LIBRARY = BUILD / "tests" / "programs" / ".libs" / "oomnth.so"
NUMBERS = BUILD / "tests" / "programs" / "numbers"
SLOWLOCK = BUILD / "examples" / "slowlock"
EVERY = "every" in sys.argv
TELL = "tell" in sys.argv
PART, PARTS = next((map(int, a.split("/")) for a in sys.argv[1:] if "/" in a), (0, 1))
WANTED = [a for a in sys.argv[1:] if a not in ("every", "tell") and "/" not in a]
TRIES = 8            # of each step, where not every n is tried
OFF, ALL = 0, 1 << 40
ANSWER_S = PATIENCE
CONFIG = """[client]
client_read_timeout_s = 30
[spool]
spool_max_count = 100
"""


class Injector:
    """The shared words of tests/programs/oomnth.c."""
    PID, NTH, MORE, COUNT, FAILED, TELL = range(6)

    def __init__(self, name):
        self.path = tmp() / f"oom{name}"
        self.path.write_bytes(bytes(4096))
        with open(self.path, "r+b") as f:
            self.map = mmap.mmap(f.fileno(), 4096)
        self.env = {"LD_PRELOAD": str(LIBRARY), "TRACERD_OOM": str(self.path)}

    def get(self, which):
        return struct.unpack_from("<q", self.map, 8 * which)[0]

    def put(self, which, value):
        struct.pack_into("<q", self.map, 8 * which, value)

    def begin(self, nth, more=0):
        self.put(self.NTH, OFF)
        self.put(self.COUNT, 0)
        self.put(self.FAILED, 0)
        self.put(self.MORE, more)
        self.put(self.TELL, TELL)
        self.put(self.NTH, nth)

    def end(self):
        """How many allocations there were, and how many have failed."""
        self.put(self.NTH, OFF)
        self.put(self.MORE, 0)
        return self.get(self.COUNT), self.get(self.FAILED)


class World:
    """The daemon, a program to record, and what the steps know of each other."""

    def __init__(self, d, inject, program):
        self.d, self.inject, self.program = d, inject, program
        self.snapshot = None

    def client(self):
        return self.d.client(timeout=ANSWER_S)

    def armed(self):
        with self.client() as c:
            return any(t["pid"] == self.program.pid for t in c.call("target.list")["targets"])

    def arm(self):
        with self.client() as c:
            return c.arm(self.program.pid)["id"]

    def disarm(self):
        with self.client() as c:
            for t in c.call("target.list")["targets"]:
                c.call("target.disarm", {"target": t["id"]})

    def snapshots(self):
        with self.client() as c:
            return c.call("snapshot.list")["snapshots"]

    def delete_all(self):
        """What has not ended is waited for."""
        def go():
            with self.client() as c:
                for s in c.call("snapshot.list")["snapshots"]:
                    try:
                        c.call("snapshot.delete", {"snapshot": s["id"]})
                    except Error as e:
                        if e.code not in ("busy", "not_found"):
                            raise
                return not c.call("snapshot.list")["snapshots"]
        wait_for("all snapshots can be deleted", go)

    def one_snapshot(self):
        have = self.snapshots()
        if not have:
            with self.client() as c:
                c.snapshot(self.program.pid, timeout=ANSWER_S)
            have = self.snapshots()
        return have[0]["id"]


# ---- the steps: before() without failures, run() with one, after() without; run() twice must do


class Step:
    one_request = False

    def before(self, w):
        pass

    def after(self, w):
        pass


class Calls(Step):
    """Requests that change nothing, on a connection of their own each."""

    def __init__(self, name, *calls):
        self.name, self.calls = name, calls

    def run(self, w):
        for method, params in self.calls:
            with w.client() as c:
                c.call(method, params)


class Http(Step):
    name = "http"

    def run(self, w):
        for path in ("/status", "/metrics"):
            try:
                line, body = http_get(w.d.status_sock, path, timeout=ANSWER_S)
            except (BrokenPipeError, ConnectionResetError) as e:
                raise Closed(str(e)) from e
            if line == "HTTP/1.0 503 Service Unavailable":
                raise Error("busy", line)
            if not line:
                raise Closed("no answer")
            if path == "/status":
                json.loads(body)
            elif not body.endswith(b"# EOF\n"):
                fail("half of the metrics were sent")

    def before(self, w):
        time.sleep(0.3)  # so that the picture is made anew


class Arm(Step):
    name = "arm"
    one_request = True

    def before(self, w):
        w.disarm()

    def run(self, w):
        w.arm()

    after = before


class Disarm(Step):
    name = "disarm"

    def before(self, w):
        if not w.armed():
            w.arm()

    def run(self, w):
        with w.client() as c:
            try:
                c.call("target.disarm", {"target": w.program.pid})
            except Error as e:
                if e.code != "not_found":
                    raise

    def after(self, w):
        w.disarm()


class Register(Step):
    name = "register"

    def run(self, w):
        with w.client() as c:
            Rings(rings=2, slots=64).register(c)

    def after(self, w):
        w.disarm()


class Subscribe(Step):
    """A subscriber that is told of an arming; it may miss it, and is told then that it has."""
    name = "subscribe"

    def before(self, w):
        w.disarm()

    def run(self, w):
        with w.client() as c:
            c.call("subscribe")
            w.arm()
            w.disarm()
            w.inject.put(Injector.NTH, OFF)
            w.arm()
            w.disarm()
            c.call("unsubscribe")
            seen = [e for e in c.events if e["event"] == "target.state"]
            if not seen or seen[-1]["data"]["state"] != "disarmed":
                fail(f"a subscriber was not told what happened after a failure: {seen}")
            if seen[-1]["seq"] != len(seen) + sum(e["missed"] for e in c.events):
                fail(f"events are lost and not counted: {[(e['seq'], e['missed']) for e in c.events]}")

    after = before


class Trigger(Step):
    name = "trigger"

    def before(self, w):
        if not w.armed():
            w.arm()

    def run(self, w):
        with w.client() as c:
            c.call("trigger.add", {"target": w.program.pid, "region": "no such", "over_ns": 1000000})
            for t in c.call("trigger.list")["triggers"]:
                c.call("trigger.remove", {"trigger": t["id"]})

    def after(self, w):
        with w.client() as c:
            for t in c.call("trigger.list")["triggers"]:
                c.call("trigger.remove", {"trigger": t["id"]})
        w.disarm()


class Place(Trigger):
    """A trigger on a place in the code: where the program's first mapping of code begins."""
    name = "place"

    def run(self, w):
        maps = (line.split() for line in pathlib.Path(f"/proc/{w.program.pid}/maps").read_text().splitlines())
        _, _, pgoff, dev, inode = next(m for m in maps if "x" in m[1] and m[4] != "0")[:5]
        major, minor = (int(n, 16) for n in dev.split(":"))
        with w.client() as c:
            c.call("trigger.add", {"target": w.program.pid, "hit": "a place", "hit_major": major, "hit_minor": minor,
                                   "hit_inode": int(inode), "hit_offset": int(pgoff, 16)})
            for t in c.call("trigger.list")["triggers"]:
                c.call("trigger.remove", {"trigger": t["id"]})


class Snapshot(Step):
    name = "snapshot"

    def __init__(self, objects=False):
        self.objects = objects
        self.name = "snapshot-objects" if objects else "snapshot"

    def before(self, w):
        if not w.armed():
            w.arm()

    def run(self, w):
        with w.client() as c:
            s = c.snapshot(w.program.pid, timeout=ANSWER_S, with_objects=self.objects)
            if s["state"] == "failed":
                raise Error(s["error"]["code"], s["error"]["message"])
            if s["error"]:
                raise Error("decode_failed", s["error"]["message"])
            names = [f["name"] for f in s["files"]]
            if "trace.pftrace" not in names or "meta.json" not in names:
                fail(f"published without an error, but there are only {names}")

    def after(self, w):
        w.delete_all()
        w.disarm()


class Snapshots(Step):
    """list, show, fetch, delete of a published one."""
    name = "snapshots"

    def before(self, w):
        if not w.armed():
            w.arm()
        self.id = w.one_snapshot()

    def run(self, w):
        with w.client() as c:
            c.call("snapshot.list")
            try:
                c.call("snapshot.show", {"snapshot": self.id})
                meta = json.loads(c.fetch(self.id, "meta.json")["meta.json"])
                if "perf_data" not in meta:
                    fail("half a meta.json")
                c.call("snapshot.fetch", {"snapshot": self.id})
                c.call("snapshot.delete", {"snapshot": self.id})
            except Error as e:
                if e.code != "not_found":
                    raise

    def after(self, w):
        w.delete_all()
        w.disarm()


MAPPER = """
import glob, mmap, sys, threading
files = iter(sorted(glob.glob("/usr/lib/*/*.so.*") + glob.glob("/usr/bin/*")) * 1000)
for line in sys.stdin.buffer:
    for name in (next(files), next(files)):
        try:
            with open(name, "rb") as f:
                mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ | mmap.PROT_EXEC)
        except (OSError, ValueError):
            pass
    t = threading.Thread(target=int)
    t.start()
    t.join()
    sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
"""


class History(Step):
    """Nobody asks for anything, but an armed target maps files and starts threads."""
    name = "history"
    mapper = None

    def before(self, w):
        if self.mapper:
            self.after(w)
        self.mapper = spawn(sys.executable, "-c", MAPPER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        with w.client() as c:
            self.id = c.arm(self.mapper.pid)["id"]

    def run(self, w):
        for _ in range(2):
            self.mapper.stdin.write(b"\n")
            self.mapper.stdin.flush()
            if self.mapper.stdout.readline() != b"\n":
                fail("the program that is recorded has ended")
            time.sleep(0.1)  # for the openers, too
        with w.client() as c:
            if c.call("target.show", {"target": self.id})["target"]["state"] != "armed":
                fail("a target is not armed any more after an allocation failed")

    def after(self, w):
        w.disarm()
        self.mapper.kill()
        self.mapper.wait()
        self.mapper.stdin.close()
        self.mapper.stdout.close()
        self.mapper = None


STEPS = [
    Calls("questions", ("hello", None), ("status", None), ("config.show", None), ("target.list", None), ("no.method", None)),
    Http(), Subscribe(), Arm(), Disarm(), Register(), Trigger(), Place(), History(), Snapshots(), Snapshot(), Snapshot(objects=True),
]


# ---- one try, and what must hold behind it


def fd_names(d, openers):
    """Not those of openers, which end by themselves when they had nothing to do for a while."""
    out = []
    for fd in os.listdir(f"/proc/{d.pid}/fd"):
        try:
            out.append(re.sub(r"\d+", "N", os.readlink(f"/proc/{d.pid}/fd/{fd}")))
        except OSError:
            pass
    for _ in range(openers):
        if "socket:[N]" in out:
            out.remove("socket:[N]")
    return sorted(out)


def holds(d):
    """What the daemon holds for others: its quotas, its descriptors, its spool."""
    status = d.status()
    q = {k: v["used"] for k, v in status["quota"].items() if isinstance(v, dict)}
    q.pop("connections", None)
    openers = status["opener"]["workers"] + status["opener"]["hanging"]
    return [q, fd_names(d, openers), sorted(os.listdir(d.state / "spool"))]


def left(now, base):
    """What it holds now and did not before. Fewer descriptors are right: some had not been closed yet when they were counted."""
    more = Counter(now[1]) - Counter(base[1])
    return [f"{a} and not {b}" for a, b in ((now[0], base[0]), (now[2], base[2])) if a != b] + sorted(more.elements())


def attempt(w, step):
    """The name of its end."""
    try:
        step.run(w)
        return "ok"
    except Error as e:
        if e.code in ("unknown_method",):
            return "ok"
        return e.code
    except Closed:
        return "closed"
    except (TimeoutError, socket.timeout):
        fail(f"{step.name}: a request was neither answered nor its connection closed")


def one(w, step, nth, more, base, ends):
    what = f"{step.name}, allocation {nth}" + (f" and {more} more" if more else "")
    step.before(w)
    w.inject.begin(nth, more)
    end = attempt(w, step)
    count, failed = w.inject.end()
    if not w.d.alive():
        fail(f"{what}: the daemon has ended with status {w.d.process.returncode}")
    ends[end] = ends.get(end, 0) + 1
    if TELL and end != "ok":
        note(f"{what}: {end}")
    if end == "ok" or not step.one_request:  # it can be asked for again once what was done is undone
        step.before(w)
    end = attempt(w, step)
    if end != "ok":
        fail(f"{what}: the same again, with memory, is {end}")
    step.after(w)
    if wrong := spool_wrong(w.d.sock, w.d.state):
        fail(f"{what}: {wrong}")
    try_until = time.monotonic() + PATIENCE
    while (wrong := left(now := holds(w.d), base)):
        if time.monotonic() > try_until:
            fail(f"{what}: left behind: {wrong}")
        time.sleep(0.05)
    base[:] = now
    return failed > 0


def numbers(total):
    """Those of a step with about so many allocations."""
    if EVERY:
        return range(PART or 1, total + total // 4 + 50, PARTS)
    dice = random.Random(total)
    return sorted({1} | {dice.randint(2, max(total, 3)) for _ in range(TRIES - 1)})


def work(w, step):
    began = time.monotonic()
    # Without failures, twice: what is kept from the first time on is no leak; and how many there are.
    for _ in range(2):
        step.before(w)
        w.inject.begin(ALL)
        end = attempt(w, step)
        total, _failed = w.inject.end()
        if end != "ok":
            fail(f"{step.name} without any failure: {end}")
        step.after(w)
    wait_for("the spool is empty again", lambda: not holds(w.d)[2] and not holds(w.d)[0]["spool_bytes"])
    base, last = None, None
    for _ in range(40):
        base, last = holds(w.d), base
        if base == last:
            break
        time.sleep(0.1)
    tried, ends, beyond = 0, {}, 0
    for nth in numbers(total):
        for more in (0, 3) if EVERY else (3 if nth % 3 == 0 else 0,):
            hit = one(w, step, nth, more, base, ends)
        tried += 1
        beyond = 0 if hit else beyond + 1
        if beyond == 20:
            break
    expect(tried > 0, f"{step.name}: {total} allocations, {tried} tried: {ends} in {time.monotonic() - began:.0f} s")


# ---- the start


def start():
    inject = Injector("-start")
    d = Tracerd(config=CONFIG, name="-start", env=inject.env)
    began = time.monotonic()
    inject.begin(ALL)
    with d:
        total, _ = inject.end()
    tried, ends = 0, {}
    for nth in numbers(total):
        inject.begin(nth, 0 if EVERY else nth % 2 * 3)
        inject.put(Injector.TELL, 1)
        size = d.log_path.stat().st_size
        notify_path = d.dir / "notify.sock"
        notify_path.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(notify_path))
        with open(d.log_path, "ab") as log:
            p = spawn(d.binary, "--foreground", "--config", d.conf, "--runtime-dir", d.run, "--state-dir", d.state,
                      stdout=log, stderr=log, env={**os.environ, "NOTIFY_SOCKET": str(notify_path), **inject.env})
        ready = lambda: select.select([notify], [], [], 0)[0] and b"READY=1" in notify.recv(65536)
        wait_for(f"start, allocation {nth}: it is ready or has ended", lambda: p.poll() is not None or ready())
        _, failed = inject.end()
        status = p.poll()
        if status is None:
            d.process = p
            with d.client() as c:
                c.call("hello")
            p.send_signal(signal.SIGTERM)
            if p.wait(PATIENCE) != 0:
                fail(f"start, allocation {nth}: it ran, and ended with status {p.returncode}")
            d.process = None
            ends["ready"] = ends.get("ready", 0) + 1
        else:
            with open(d.log_path, errors="replace") as f:
                f.seek(size)
                words = f.read()
            if status in (-signal.SIGABRT, -signal.SIGSEGV, 127) and "(getgrnam_r+" in words:
                end = "glibc's end"  # 2.36 cannot bear it when it first looks for a group; nothing was begun then
            elif status < 0 or status > 2 or "tracerd: " not in words:
                fail(f"start, allocation {nth}: it ended with status {status} and said: {words}")
            else:
                end = "refused"
            ends[end] = ends.get(end, 0) + 1
        notify.close()
        tried += 1
        if not failed:
            break
    expect(tried > 0, f"start: {total} allocations, {tried} tried: {ends} in {time.monotonic() - began:.0f} s")


# ---- the clients: they may end with a message; what they say is whole; no program of the user's dies


def tracectl(d, *args):
    inject = Injector("-tracectl")
    began = time.monotonic()

    def keys(text):
        try:
            return sorted(json.loads(text))
        except ValueError:
            fail(f"tracectl {args[0]}: half of its output, and status 0: {text[:200]}")
    inject.begin(ALL)
    want = keys(d.tracectl(*args, env=inject.env).stdout)
    total, _ = inject.end()
    ends, tried = {}, 0
    for nth in numbers(total):
        inject.begin(nth)
        p = d.tracectl(*args, env=inject.env)
        _, failed = inject.end()
        if p.returncode < 0 or p.returncode > 125:
            fail(f"tracectl {args[0]}, allocation {nth}: it ended with status {p.returncode}: {p.stderr}")
        if p.returncode == 0 and keys(p.stdout) != want:
            fail(f"tracectl {args[0]}, allocation {nth}: not all of it: {p.stdout[:200]}")
        if p.returncode != 0 and not p.stderr:
            fail(f"tracectl {args[0]}, allocation {nth}: it failed without a word")
        ends[p.returncode] = ends.get(p.returncode, 0) + 1
        tried += 1
        if not failed:
            break
    expect(tried > 0, f"tracectl {args[0]}: {total} allocations, {tried} tried: {ends} in {time.monotonic() - began:.0f} s")


def registration(d):
    """A program that registers event rings by the library goes on, with them or without."""
    inject = Injector("-program")
    began = time.monotonic()
    ends, tried, total = {}, 0, 0
    while True:
        inject.begin(tried + 1)
        p = spawn(NUMBERS, tmp() / "told", 1, 1000, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                  env={**os.environ, **inject.env, "TRACERD_SOCKET": str(d.sock)})
        wait_for("a word of the program, or the allocation", lambda: select.select([p.stdout], [], [], 0)[0] or inject.get(
            Injector.FAILED))
        said = select.select([p.stdout], [], [], 3)[0] and p.stdout.readline()
        count, failed = inject.end()
        if p.poll() is None and not said:
            end = "goes on without"
        else:
            p.stdin.close()
            p.wait(PATIENCE)
            if p.returncode not in (0, 1):
                fail(f"a program with event rings, allocation {tried + 1}: it ended with status {p.returncode}")
            end = "goes on" if said else "tracerd_start() failed"
        p.kill()
        p.wait()
        p.stdout.close()
        ends[end] = ends.get(end, 0) + 1
        tried += 1
        total = max(total, count)
        if not failed or (not EVERY and tried == TRIES):
            break
    expect(tried > 3, f"registration: {tried} tried: {ends} in {time.monotonic() - began:.0f} s")


if not LIBRARY.exists():
    fail(f"{LIBRARY} is not built: make test-programs")
inject = Injector("")
program = spawn(SLOWLOCK, "--every", "300", stdout=subprocess.DEVNULL)
with Tracerd(config=CONFIG, env=inject.env) as d:
    if inject.get(Injector.PID) != d.pid:
        skip("the library is not preloaded: this build has an allocator of its own")
    with d.client() as c:
        first_table(c, program.pid)
    for s in STEPS:
        if not WANTED or s.name in WANTED:
            work(World(d, inject, program), s)
    if not WANTED or "tracectl" in WANTED:
        tracectl(d, "status", "--json")
        tracectl(d, "list", "--json")
    if not WANTED or "registration" in WANTED:
        registration(d)
if not WANTED or "start" in WANTED:
    start()
