#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 400
# slow
"""Twenty clients of four users do at random, from a seed that is said, whatever the protocol lets them do and what it does
not, with quotas so small that all of them are met; each request gets its answer or the end of its connection, and nobody is
shown what is another user's. When they have gone nothing is left of them: quotas, spool, descriptors and children are as
before, no sanitizer said a word. Once as root and once with the rights of the unit; `many-clients.py --seconds 600` for long.

What is timed here is how long the storm lasts. Which requests meet is left to the machine; what is said of them is not."""
import argparse
import collections
import ctypes
import random
import re
import threading
import traceback

from lib import *
from lib.ring import REGION, REQUEST, Rings, stamp

USERS = (12400, 12401, 12402, 12403)
CLIENTS = 20
ANSWER_S = 150  # behind every time limit below
CONFIG = """[daemon]
max_connections = 60
max_targets = 20
max_triggers = 8
[capture]
sample_hz = 199
ring_kib = 64
dwarf_ring_kib = 128
ring_total_mib = 8
history_mib = 1
exited_keep_s = 2
images_max = 64
[events]
max_producers = 8
[snapshot]
snapshots_running = 2
snapshots_queued = 6
snapshot_timeout_s = 6
decoder_timeout_s = 6
max_output_mib = 8
trigger_after_ms = 500
program_interval_ms = 20
program_snapshots_per_hour = 10000
[spool]
spool_max_count = 16
spool_hold_s = 1
spool_keep_free_percent = 0
[quota]
uid_connections = 15
uid_targets = 7
uid_triggers = 3
uid_ring_mib = 6
uid_fds = 500
uid_snapshots_queued = 2
uid_spool_mib = 2
uid_producers = 3
uid_event_mib = 4
[client]
client_read_timeout_s = 2
client_write_timeout_s = 2
client_idle_s = 4
client_ping_s = 2
client_queue_kib = 64
client_events = 8
"""
PROGRAMS = ("tests/programs/eventshell", "tests/programs/large", "examples/slowlock")
PR_SET_DUMPABLE = 4

parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=int, default=10 if os.environ.get("TRACERD_SANITIZED") else 20)
parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(4), "big"))
parser.add_argument("--rights", choices=("root", "unit", "both"), default="both")
args = parser.parse_args()


def put_programs():
    """Where every user can read them, and with them the library that the event shell needs."""
    folder = tmp() / "bin"
    folder.mkdir()
    for name in PROGRAMS:
        if not (BUILD / name).exists():
            fail(f"{name} is not built: make test-programs")
        shutil.copy(BUILD / name, folder)
    for library in (BUILD / ".libs").glob("libtracerd.so*"):
        shutil.copy(library, folder)
    return folder


class Player:
    """One client process. What it does is a method do_*, as often as its line in MOVES says."""

    MOVES = {
        "spawn": 8, "kill": 6, "arm": 14, "disarm": 6, "create": 12, "cancel": 6, "delete": 8, "fetch": 8, "let_go": 4, "burst": 6,
        "look": 8, "list": 4, "subscribe": 4, "trigger": 6, "register": 6, "write": 12, "unregister": 3, "shell": 4,
        "garbage": 5, "half": 3, "hang_up": 8, "deaf": 3, "drop": 4, "drop_silent": 4, "others": 3,
    }

    def __init__(self, sock, number, uid, seed, folder):
        self.sock, self.number, self.uid, self.folder = sock, number, uid, folder
        self.dice = random.Random(f"{seed} {number}")
        self.done = collections.Counter()
        self.main = None
        self.silent = []   # connections that nobody reads
        self.held = []     # descriptors of fetched files
        self.children = [] # (Popen, input) of targets
        self.rings = None  # (connection, Rings, [descriptor of the control page])
        self.known = {what: collections.deque(maxlen=6) for what in ("target", "snapshot", "trigger")} # ids that we were told
        self.programs = [
            ["/bin/true"], ["/bin/sleep", "60"], ["/bin/cat"], [folder / "slowlock", "--every", "50"],
            ["/bin/sh", "-c", "sleep 0.05; exec sleep 60"], ["/bin/sh", "-c", "while sleep 0.05; do /bin/true; done"],
            [folder / "large", "threads", "60"], [folder / "large", "maps", "2000"],
            ["/bin/sh", "-c", "kill -STOP $$; sleep 60"],
        ]

    # ---- asking

    def count(self, what, how):
        self.done[f"{what} {how}"] += 1

    def connect(self):
        c = Client(self.sock, timeout=ANSWER_S)
        self.count("connect", "ok")
        return c

    def told(self, method, params, code):
        """An error is one of the protocol's, and none of the daemon's own failures."""
        if code == "internal":
            fail(f"{method} {params}: internal")
        self.count(method, code)
        for what, ids in self.known.items():
            if code == "not_found" and params.get(what) in ids:
                ids.remove(params[what])

    def answer(self, c, rid, method, params):
        """The result or None."""
        try:
            result = c.wait(rid)
        except Error as e:
            self.told(method, params, e.code)
            return None
        except TimeoutError:
            fail(f"{method} was not answered within {ANSWER_S} s")
        self.count(method, "ok")
        return result

    def ask(self, method, params=None, fds=()):
        try:
            self.main = c = self.main or self.connect()
            result = self.answer(c, c.send(method, params, fds), method, params or {})
            c.events.clear()
            for what in self.known:
                if result and what in result and result[what]["id"] not in self.known[what]:
                    self.known[what].append(result[what]["id"])
            return result
        except (Closed, OSError):
            self.count(method, "closed")
            self.do_drop()
            return None

    def pick(self, what):
        """The id of something of ours, which may be gone; or none."""
        if self.known[what] and self.dice.random() < 0.7:
            return self.dice.choice(self.known[what])
        method, key = {"target": ("target.list", "targets"), "snapshot": ("snapshot.list", "snapshots"),
                       "trigger": ("trigger.list", "triggers")}[what]
        got = self.ask(method, {"limit": self.dice.choice((1, 5, 50))})
        if not got or not got[key]:
            return None
        owner = "uid" if what == "snapshot" else "owner_uid"
        for one in got[key]:
            if one[owner] != self.uid:
                fail(f"uid {self.uid} is shown a {what} of uid {one[owner]}: {one}")
        return self.dice.choice(got[key])["id"]

    def arm_request(self):
        """(params, descriptors to close) of an arming."""
        alive = [p.pid for p, _ in self.children]
        pid = self.dice.choice(alive + [os.getpid()] + [1] * (self.dice.random() < 0.05))
        params, fds = {"pid": pid}, []
        if self.dice.random() < 0.9:
            try:
                fds = [open_maps(pid)]
                params["fds"] = ["maps"]
            except OSError:
                pass
        for key, values in (("waits", (True, False)), ("stacks", ("auto", "fp", "dwarf")), ("scope", ("process", "unit"))):
            if self.dice.random() < (0.05 if key == "scope" else 0.6):
                params[key] = self.dice.choice(values)
        if self.dice.random() < 0.1:
            params["tid"] = params.pop("pid")
        return params, fds

    def request(self):
        """Any request: (method, params, descriptors to close)."""
        kind = self.dice.randrange(6)
        if kind == 0:
            return ("target.arm", *self.arm_request())
        if kind == 1:
            return "snapshot.create", {"target": self.dice.choice([p.pid for p, _ in self.children] or [1]), "wait": True}, []
        return self.dice.choice(("status", "target.list", "snapshot.list", "hello", "trigger.list", "config.show", "subscribe")), \
            {}, []

    # ---- targets

    def start(self, argv, **kw):
        p = subprocess.Popen([str(a) for a in argv], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
                             bufsize=0, env={**os.environ, "TRACERD_SOCKET": str(self.sock), "LD_LIBRARY_PATH": str(self.folder)},
                             **kw)
        os.set_blocking(p.stdin.fileno(), False)
        return p

    def do_spawn(self):
        while len(self.children) >= 3:
            self.do_kill()
        self.children.append((self.start(self.dice.choice(self.programs), stdout=subprocess.DEVNULL), None))

    def do_kill(self):
        if not self.children:
            return
        p, output = self.children.pop(self.dice.randrange(len(self.children)))
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.stdin.close()
        p.wait()
        if output:
            output.close()

    def do_arm(self):
        if not self.children or self.dice.random() < 0.3:
            self.do_spawn()
        params, fds = self.arm_request()
        self.ask("target.arm", params, fds)
        for fd in fds:
            os.close(fd)

    def do_disarm(self):
        t = self.pick("target")
        if t:
            self.ask("target.disarm", {"target": t})

    def do_look(self):
        what = self.dice.choice(("target", "snapshot"))
        one = self.pick(what)
        if one:
            self.ask(f"{what}.show", {what: one})

    def do_list(self):
        self.ask(self.dice.choice(("hello", "status", "config.show", "no.method", "unsubscribe")))

    def do_others(self):
        """What is another user's, as far as one can guess its name."""
        self.ask(self.dice.choice(("target.disarm", "target.show", "snapshot.create")), {"target": f"t{self.dice.randrange(1, 200)}"})

    # ---- snapshots

    def do_create(self):
        t = self.pick("target")
        if t:
            self.ask("snapshot.create", {"target": t, "wait": self.dice.random() < 0.3, "with_objects": self.dice.random() < 0.3})

    def do_cancel(self):
        s = self.pick("snapshot")
        if s:
            self.ask("snapshot.cancel", {"snapshot": s})

    def do_delete(self):
        s = self.pick("snapshot")
        if s:
            self.ask("snapshot.delete", {"snapshot": s})

    def do_fetch(self):
        s = self.pick("snapshot")
        files = s and self.ask("snapshot.fetch", {"snapshot": s})
        if not files:
            return
        names = [f["name"] for f in files["files"]] + ["none/such", "../../x"] * (self.dice.random() < 0.1)
        if not names:
            return
        got = self.ask("snapshot.fetch", {"snapshot": s, "names": self.dice.sample(names, min(len(names), self.dice.randrange(1, 17)))})
        if got:
            fds, self.main.fds = self.main.fds, []
            if len(fds) != len(got["files"]):
                fail(f"{len(got['files'])} files and {len(fds)} descriptors")
            for fd in fds:
                os.pread(fd, 4096, 0)
            self.held += fds

    def do_let_go(self):
        for fd in self.held:
            os.close(fd)
        self.held = []

    def do_burst(self):
        """Many requests in one go, of few things: they meet in the same turns of the loop."""
        t, s = self.pick("target"), self.pick("snapshot")
        moves = [("target.list", {})]
        if t:
            moves += [("snapshot.create", {"target": t})] * 2 + [("snapshot.create", {"target": t, "wait": True}),
                                                                 ("target.disarm", {"target": t}), ("target.show", {"target": t})]
        if s:
            moves += [(f"snapshot.{m}", {"snapshot": s}) for m in ("cancel", "delete", "fetch", "show")]
        try:
            self.main = c = self.main or self.connect()
            asked = {}
            for method, params in self.dice.choices(moves, k=8):
                asked[c.send(method, params)] = method, params
            while asked:
                message = c.recv_frame()
                c._keep(message)
                if message.get("id") in asked:
                    method, params = asked.pop(message["id"])
                    if "error" in message:
                        self.told(method, params, message["error"]["code"])
                    else:
                        self.count(method, "ok")
            c.events.clear()
        except TimeoutError:
            fail(f"of many requests at a time these were not answered within {ANSWER_S} s: {asked}")
        except (Closed, OSError):
            self.count("burst", "closed")
            self.do_drop()

    # ---- triggers and event rings

    def do_trigger(self):
        if self.dice.random() < 0.4:
            t = self.pick("trigger")
            if t:
                self.ask("trigger.remove", {"trigger": t})
            return
        t = self.pick("target")
        if t:
            self.ask("trigger.add", {"target": t, "region": self.dice.choice(("request", "other")), "over_ns": 1000,
                                     "cooldown_ns": self.dice.choice((0, 10 ** 7)), "after_ns": self.dice.choice((0, 10 ** 7))})

    def do_register(self):
        if self.rings and self.dice.random() < 0.9:
            return
        wrong = {}
        if self.dice.random() < 0.2:
            wrong = {self.dice.choice(("rings", "slots", "names_max", "data_offset", "total_bytes", "pid")): self.dice.randrange(2 ** 20)}
        rings = Rings(rings=self.dice.choice((1, 4, 16)), slots=self.dice.choice((64, 1024)), header=wrong)
        c = control = None
        try:
            c = self.connect()
            if self.answer(c, c.send("target.register", {"fds": ["rings", "wake"]}, [rings.fd, rings.wake_fd]), "target.register", {}):
                control, c.fds = c.fds, []
        except (Closed, OSError):
            self.count("target.register", "closed")
        if not control or self.rings:
            rings.close()
            if c:
                c.close()
            for fd in control or ():
                os.close(fd)
        else:
            self.rings = c, rings, control

    def do_write(self):
        """Events, some of them causes, and now and then nonsense in the shared memory."""
        if not self.rings:
            return
        _, rings, _ = self.rings
        ring = rings.ring(self.dice.randrange(rings.n_rings))
        for _ in range(self.dice.randrange(1, 50)):
            begin = ring.begin("request")
            ring.end("request", begin)
        if self.dice.random() < 0.5:
            rings.cause(self.dice.choice((REGION, REQUEST)), "request", begin, stamp(), trigger=self.dice.randrange(4))
        if self.dice.random() < 0.2:
            at = self.dice.randrange(rings.size - 64)
            rings.map[at:at + 64] = self.dice.randbytes(64)
            rings.wake()
        self.count("write", "ok")

    def do_unregister(self):
        if not self.rings:
            return
        (c, rings, control), self.rings = self.rings, None
        parts = [c.close, rings.close] + [lambda fd=fd: os.close(fd) for fd in control]
        self.dice.shuffle(parts)
        for close in parts:
            close()
        self.count("unregister", "ok")

    def do_shell(self):
        """The library's own registration, in a program that forks, executes and is killed in the midst."""
        shells = [(p, o) for p, o in self.children if o]
        if not shells or self.dice.random() < 0.3:
            while len(self.children) >= 3:
                self.do_kill()
            p = self.start([self.folder / "eventshell"], stdout=subprocess.PIPE)
            self.children.append((p, p.stdout))
            lines = ["start threads=4 events=512 names=64"]
        else:
            p, _ = self.dice.choice(shells)
            lines = []
        lines += self.dice.choices(("instant x", "region request 1", "log text", "thread x", "snapshot why", "stop", "fork", "_fork",
                                    "exec", "exit", "stats", "start threads=4 events=512 names=64"), k=4)
        try:
            p.stdin.write("".join(line + "\n" for line in lines).encode())
            self.count("event shell", "ok")
        except BrokenPipeError:
            self.count("event shell", "closed")
        # What it says is not read: a full pipe makes it one that hangs.

    # ---- what is not lawful

    def raw(self, what, data, fds=(), keep=None):
        """Bytes on a connection of their own, which is ended there and then or kept and never read."""
        try:
            c = self.connect()
        except OSError:
            self.count(what, "closed")
            return
        c.sock.setblocking(False)
        try:
            c.send_bytes(data, fds)
            self.count(what, "ok")
        except (Closed, OSError):
            self.count(what, "closed")
        if self.dice.random() < 0.3:
            try:
                c.sock.shutdown(self.dice.choice((socket.SHUT_RD, socket.SHUT_WR, socket.SHUT_RDWR)))
            except OSError:
                pass # the daemon was quicker
        if keep if keep is not None else self.dice.random() < 0.5:
            self.silent.append(c)
            while len(self.silent) > 4:
                self.do_drop_silent()
        else:
            c.close()

    def frame(self):
        """One request as bytes, and the descriptors to send and close."""
        method, params, fds = self.request()
        text = json.dumps({"v": 1, "id": 1, "method": method, "params": params, **({"nfds": len(fds)} if fds else {})}).encode()
        return struct.pack(">I", len(text)) + text, fds

    def do_garbage(self):
        data, fds = self.frame()
        how = self.dice.randrange(5)
        if how == 0:
            data = self.dice.randbytes(self.dice.randrange(1, 3000))
        elif how == 1:
            broken = bytearray(data)
            for _ in range(self.dice.randrange(1, 6)):
                broken[self.dice.randrange(4, len(broken))] = self.dice.randrange(256)
            data = bytes(broken)
        elif how == 2:
            data = struct.pack(">I", self.dice.randrange(2 ** 32)) + data[4:]
        elif how == 3:
            fds += [os.open("/dev/null", os.O_RDONLY) for _ in range(self.dice.randrange(1, 20))]
        else:
            data = struct.pack(">I", 40000) + b"[" * 40000
        self.raw("garbage", data, fds)
        for fd in fds:
            os.close(fd)

    def do_half(self):
        data, fds = self.frame()
        self.raw("half a frame", data[:self.dice.randrange(1, len(data))], fds, keep=True)
        for fd in fds:
            os.close(fd)

    def do_hang_up(self):
        data, fds = self.frame()
        self.raw("hang up", data, fds, keep=False)
        for fd in fds:
            os.close(fd)

    def do_deaf(self):
        """Asks much and takes nothing of it."""
        self.raw("deaf", b"".join(self.frame_of(m) for m in self.dice.choices(("status", "snapshot.list", "target.list"), k=100)), keep=True)

    def do_subscribe(self):
        if self.dice.random() < 0.5:
            self.ask("subscribe")
        else:
            self.raw("subscribe, deaf", self.frame_of("subscribe"), keep=True)

    def frame_of(self, method):
        text = json.dumps({"v": 1, "id": 1, "method": method, "params": {}}).encode()
        return struct.pack(">I", len(text)) + text

    def do_drop(self):
        if self.main:
            self.main.close()
            self.main = None

    def do_drop_silent(self):
        if self.silent:
            self.silent.pop(self.dice.randrange(len(self.silent))).close()

    # ----

    def play(self, until):
        moves, weights = list(self.MOVES), list(self.MOVES.values())
        while time.monotonic() < until:
            getattr(self, "do_" + self.dice.choices(moves, weights)[0])()
            if self.dice.random() < 0.3:
                time.sleep(self.dice.random() / 50)

    def leave(self):
        while self.children:
            self.do_kill()
        self.do_unregister()
        self.do_drop()
        while self.silent:
            self.do_drop_silent()
        self.do_let_go()


def client(d, number, seed, until, folder, output):
    """In a process of its own, as its user. Does not come back."""
    status = 1
    try:
        uid = USERS[number % len(USERS)]
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1)  # as a program is that this user has started
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        player = Player(d.sock, number, uid, seed, folder)
        try:
            player.play(until)
        finally:
            player.leave()
        os.write(output, json.dumps(player.done).encode())
        status = 0
    except SystemExit:
        pass
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Poller(threading.Thread):
    """Root asks for the status all the while, and half of the time does not take it."""

    def __init__(self, d):
        super().__init__(daemon=True)
        self.d, self.end, self.polls, self.busy, self.wrong = d, threading.Event(), 0, 0, None

    def run(self):
        try:
            while not self.end.wait(0.05):
                with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
                    s.connect(str(self.d.status_sock))
                    s.sendall(b"GET /metrics HTTP/1.0\r\n\r\n"[:self.polls % 30])
                    try:
                        line, body = http_get(self.d.status_sock, ("/status", "/metrics")[self.polls % 2], timeout=ANSWER_S)
                    except (BrokenPipeError, ConnectionResetError):
                        line = ""
                    self.polls += 1
                    if not line.endswith("200 OK"):
                        self.busy += 1
                    elif line and self.polls % 2 and not isinstance(json.loads(body), dict):
                        self.wrong = "half a status"
        except Exception as e:
            self.wrong = repr(e)


# ---- what is left


def descriptors(d):
    found = collections.Counter()
    for fd in os.listdir(f"/proc/{d.pid}/fd"):
        try:
            found[re.sub(r"\d+", "N", os.readlink(f"/proc/{d.pid}/fd/{fd}"))] += 1
        except OSError:
            pass
    return found


def children(d):
    """{pid: name} of the daemon's children and theirs."""
    found, todo = {}, [d.pid]
    while todo:
        pid = todo.pop()
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                for child in map(int, open(f"/proc/{pid}/task/{task}/children").read().split()):
                    found[child] = open(f"/proc/{child}/comm").read().strip() # those that have ended, too
                    todo.append(child)
        except (FileNotFoundError, ProcessLookupError):
            pass
    return found


def remaining(d):
    """All that the daemon holds for anybody, by name; what is nothing is left out. One connection is ours."""
    with d.client(timeout=ANSWER_S) as c:
        for t in c.call("target.list", {"limit": 500})["targets"]:
            try:
                c.call("target.disarm", {"target": t["id"]})
            except Error as e:
                if e.code not in ("not_found", "gone", "busy"):
                    raise
        for s in c.call("snapshot.list", {"limit": 500})["snapshots"]:
            for method in ("snapshot.cancel", "snapshot.delete"):
                try:
                    c.call(method, {"snapshot": s["id"]})
                except Error as e:
                    if e.code not in ("busy", "not_found"):
                        raise
        status = c.call("status")
        left = {name: q["used"] - (name == "connections") for name, q in status["quota"].items() if isinstance(q, dict)}
        left.update({"spool " + k: status["spool"][k] for k in ("bytes", "removing_bytes", "count")})
        left.update({"targets": len(c.call("target.list")["targets"]), "triggers": len(c.call("trigger.list")["triggers"]),
                     "snapshots": sum(1 for s in c.call("snapshot.list")["snapshots"] if s["published_at"] or s["state"] not in (
                         "failed", "cancelled")),
                     "files": len(os.listdir(d.state / "spool")), "dying decoders": status["decoder"]["dying"]})
    return {k: v for k, v in left.items() if v}


def settled(d, before, seconds=PATIENCE):
    """Nothing is left, and descriptors and children are as before; else the test fails and names what is not."""
    end = time.monotonic() + seconds
    while True:
        left, fds, kids = remaining(d), descriptors(d), children(d)
        more = {k: v - before[0][k] for k, v in fds.items() if v > before[0][k]}
        if not left and not more and set(kids) == set(before[1]):
            return
        if time.monotonic() > end:
            fail(f"left behind: {left}, descriptors: {more}, children: {kids} where there were {before[1]}")
        time.sleep(0.2)


def warm(d):
    """One recording of root's: what the daemon keeps from its first one on is no leak."""
    p = spawn(tmp() / "bin" / "slowlock", "--every", "50", stdout=subprocess.DEVNULL)
    with d.client(timeout=ANSWER_S) as c:
        first_table(c, p.pid)
        c.snapshot(c.arm(p.pid)["id"], timeout=ANSWER_S)
    p.kill()
    p.wait()
    end = time.monotonic() + PATIENCE
    while (left := remaining(d)) or len(children(d)) != 1:
        if time.monotonic() > end:
            fail(f"left behind by one recording: {left} {children(d)}")
        time.sleep(0.1)
    with d.client() as c:
        c.call("hello")
    return descriptors(d), children(d)


def storm(d, seed, folder):
    note(f"{CLIENTS} clients of {len(USERS)} users, --seed {seed} --seconds {args.seconds}")
    before = warm(d)
    expect(list(before[1].values()) == ["tracerd-open"], "its only child is the front of the opener")
    until = time.monotonic() + args.seconds
    pids, outputs = [], []
    sys.stdout.flush()
    for number in range(CLIENTS):
        r, w = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(r)
            client(d, number, seed, until, folder, w)
        os.close(w)
        pids.append(pid)
        outputs.append(r)
    poller = Poller(d)
    poller.start()
    try:
        total, failed = collections.Counter(), []
        for pid, r in zip(pids, outputs):
            with os.fdopen(r) as f:
                text = f.read()
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            if status:
                failed.append(status)
            if text:
                total.update(json.loads(text))
    finally:
        poller.end.set()
    poller.join(ANSWER_S)
    if not d.alive():
        fail(f"the daemon has ended with status {d.process.poll()}")
    if failed or poller.wrong:
        fail(f"ends of clients that failed: {failed}; the poller says: {poller.wrong}")
    ok("every request was answered or its connection ended")
    ends = {}
    for what, n in total.items():
        name, _, how = what.rpartition(" ")
        ends.setdefault(name, {})[how] = n
    for name in sorted(ends):
        note(f"{sum(ends[name].values()):7} {name}: " + ", ".join(f"{how} {n}" for how, n in sorted(ends[name].items(), key=lambda e: -e[1])))
    note(f"{poller.polls:7} polls of the status, {poller.busy} of them refused")
    note(f"{sum(total.values()):7} in all")
    settled(d, before)
    expect(True, "quotas, spool, descriptors and children are as before")
    with d.client(timeout=ANSWER_S) as c:
        refused = c.call("status")["quota"]["refused"]
        p = spawn(folder / "slowlock", "--every", "50", stdout=subprocess.DEVNULL)
        t = c.arm(p.pid)["id"]

        def recorded():
            # Its limits are short, and a machine that does much else may exceed them.
            s = c.snapshot(t, timeout=ANSWER_S)
            return s["state"] == "done" and s["error"] is None
        wait_for("a snapshot", recorded)
        ok(f"and it records as before ({refused} requests were over a quota)")
    words = [l for l in d.log().splitlines() if "Sanitizer" in l or "runtime error:" in l]
    if words:
        fail(f"a sanitizer speaks: {words[0]}")
    plain = re.compile(r"\b\d{8}-\d{6}-[0-9a-f]{4}\b|\(pid [^)]*\)|\d+")
    said = collections.Counter(plain.sub("_", l) for l in d.log().splitlines() if re.search(r"error|warning|cannot|failed", l))
    for line, n in said.most_common(12):
        note(f"log, {n} times: {line}")


need_root("is four users")
folder = put_programs()
for i, rights in enumerate(("root", "unit") if args.rights == "both" else (args.rights,)):
    with Tracerd(config=CONFIG, name="-" + rights, unit_rights=rights == "unit") as d:
        note(f"tracerd with the rights of {'its unit' if rights == 'unit' else 'root'}")
        storm(d, args.seed + i, folder)
