#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
# waits
"""The daemon asks a registered Go program for its execution trace, and puts what comes into the bundle byte by byte. A program that
hangs, lies, sends rubbish, too much, too late or for another's request harms nobody: the snapshot is made, and says what is lost."""
import fcntl
import threading

from lib.ring import *
from lib import *
from lib import _children

SEALED = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL
TRACE = b"go 1.26 trace\0\0\0" + bytes(range(256)) * 300
WAIT_MS = 1000
MIB = 1 << 20


def memfd(data=TRACE, seals=SEALED, size=None):
    fd = os.memfd_create("trace", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if size is not None:
        os.ftruncate(fd, size)
    fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Program:
    """A process that registers as a Go program; `behaviour` gets each request and its connection."""

    def __init__(self, d, behaviour, keep_s=3600):
        r, w = os.pipe()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                rings = Rings(rings=1, slots=64, names_max=1, text_bytes=PAGE)
                c = d.client()
                target = c.call("target.register", {"fds": ["rings", "wake"], "go": "go1.26 X:‮", "go_keep_ns": keep_s * 10**9},
                                [rings.fd, rings.wake_fd])["target"]
                os.write(w, target["id"].encode())
                os.close(w)
                while True:
                    message = c.recv_frame()
                    if message.get("method") == "go.trace":
                        behaviour(c, message)
                    else:
                        c._keep(message)
            except (Closed, OSError):
                time.sleep(1000)
            finally:
                os._exit(0)
        os.close(w)
        _children.append(self)
        self.target = os.read(r, 64).decode()
        os.close(r)

    def poll(self):
        return None if self.pid else 0

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.pid = None

    def wait(self, _):
        pass


def answer(c, message, fds, result=None, rid=None):
    c.send_frame({"v": 1, "id": message["id"] if rid is None else rid, "result": result or {"begin_ns": 5, "end_ns": 7},
                  "nfds": len(fds)}, fds)


def honest(c, m):
    if m["params"]["max_bytes"] != 1 * MIB or m["params"]["wait_ns"] != WAIT_MS * 10**6 or m["id"] >= 0:
        answer(c, m, [memfd(b"the request is wrong")])
    answer(c, m, [memfd()])


def late(c, m):
    time.sleep(WAIT_MS / 1000 + 1)
    answer(c, m, [memfd()])


def thousand(c, m):
    for i in range(1000):
        answer(c, m, [memfd()] if i == 0 else [])


def others(c, m):
    # The ids of our requests count down: those around it are of others.
    for rid in range(m["id"] - 3, m["id"] + 4):
        if rid < 0 and rid != m["id"]:
            answer(c, m, [], rid=rid)
    time.sleep(1000)


def stolen(c, m):
    answer(c, m, [memfd(b"not mine")], rid=m["id"] - 1)


def pipe_end(c, m):
    answer(c, m, [os.pipe()[0]])


def unreadable(c, m):
    answer(c, m, [os.open(f"/proc/self/fd/{memfd()}", os.O_PATH)])


def plain_file(c, m):
    fd = os.open(tmp() / "file", os.O_RDWR | os.O_CREAT)
    os.write(fd, TRACE)
    answer(c, m, [fd])


def rubbish(c, m):
    c.send_bytes(struct.pack(">I", 40) + b"\0" * 40)


def says_no(c, m):
    c.send_frame({"v": 1, "id": m["id"], "error": {"code": "busy", "message": "no\x1b[31m trace"}})


def dies(c, m):
    os._exit(0)


HOSTILE = {
    "hangs": (lambda c, m: time.sleep(1000), "late", "go_wait_ms"),
    "is late": (late, "late", "go_wait_ms"),
    "answers for others": (others, "late", "go_wait_ms"),
    "answers for others with a descriptor": (stolen, "refused", "connection"),
    "does not seal": (lambda c, m: answer(c, m, [memfd(seals=0)]), "bad", "seals"),
    "leaves it writable": (lambda c, m: answer(c, m, [memfd(seals=F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)]), "bad", "seals"),
    "leaves it to shrink": (lambda c, m: answer(c, m, [memfd(seals=F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SEAL)]), "bad", "seals"),
    "passes what cannot be read": (unreadable, "bad", "trace"),
    "sends too much": (lambda c, m: answer(c, m, [memfd(size=MIB + 1)]), "too_large", "go_trace_mib"),
    "sends nothing": (lambda c, m: answer(c, m, [memfd(b"")]), "bad", "empty"),
    "sends a pipe": (pipe_end, "bad", "not a memfd"),
    "sends a file": (plain_file, "bad", "memfd"),
    "sends no descriptor": (lambda c, m: answer(c, m, []), "refused", "one descriptor"),
    "sends two": (lambda c, m: answer(c, m, [memfd(), memfd()]), "refused", "one descriptor"),
    "sends rubbish": (rubbish, "refused", "connection"),
    "closes": (lambda c, m: c.sock.shutdown(socket.SHUT_RDWR), "refused", "connection"),
    "refuses": (says_no, "refused", "trace"),
    "dies": (dies, "refused", "connection"),
}
CONFIG = f"[capture]\nexited_keep_s = 1\n[snapshot]\ngo_wait_ms = {WAIT_MS}\ngo_trace_mib = 1\nsnapshots_queued = 64\nprogram_interval_ms = 1\n" \
         "[quota]\nuid_snapshots_queued = 64\n"


def fds_of(d):
    return len(os.listdir(f"/proc/{d.process.pid}/fd"))


with Tracerd(config=CONFIG) as d, d.client() as c:
    good = Program(d, honest)
    s = c.snapshot(good.target)
    files = c.fetch(s["id"], "go.trace", "meta.json")
    expect(s["state"] == "done" and files["go.trace"] == TRACE, "the trace is in the bundle, byte by byte")
    meta = json.loads(files["meta.json"])
    (go,) = meta["go"]
    expect(go["file"] == "go.trace" and go["bytes"] == len(TRACE) and go["pid"] == good.pid and (go["begin_ns"], go["end_ns"]) == (5, 7)
           and meta["losses"]["go_traces"] == 0 and "lost" not in go, "and meta.json says whose it is")
    expect("‮" not in go["version"] and go["version"].startswith("go1.26"), "what the program calls itself is harmless text")

    before, asleep = fds_of(d), c.call("status")["losses"]["go_traces"]
    programs = {what: Program(d, behaviour) for what, (behaviour, _, _) in HOSTILE.items()}
    # All at once: who waits for one does not wait for the others.
    answers = {}

    def take(what):
        with d.client() as mine:
            answers[what] = mine.snapshot(programs[what].target)

    threads = [threading.Thread(target=take, args=(what,)) for what in programs]
    for t in threads:
        t.start()
    s = c.snapshot(good.target)
    expect(c.fetch(s["id"], "go.trace")["go.trace"] == TRACE, "an honest program is not held up by hostile ones")
    for t in threads:
        t.join(PATIENCE)
    for what, (_, kind, why) in HOSTILE.items():
        s = answers.get(what) or fail(f"a program that {what}: no snapshot")
        meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
        (go,) = meta["go"]
        lost = go.get("lost", {})
        names = {f["name"] for f in s["files"]}
        expect(s["state"] == "done" and lost.get("kind") == kind and why in lost["why"] and "go.trace" not in names
               and any(n.startswith("rings/") for n in names) and meta["losses"]["go_traces"] == 1
               and s["summary"]["losses"]["go_traces"] == 1,
               f"a program that {what} gets its snapshot without: {lost.get('kind')}, {lost.get('why')!r}")
        if not lost["from_raw_ns"] < lost["to_raw_ns"] == s["frozen_raw_ns"] or "\x1b" in lost["why"]:
            fail(f"{what}: the interval or the text of the loss is wrong: {lost}")
    expect(c.call("status")["losses"]["go_traces"] - asleep == len(HOSTILE), "the status counts them all")

    s = c.snapshot(programs["is late"].target)
    expect(json.loads(c.fetch(s["id"], "meta.json")["meta.json"])["go"][0]["lost"]["kind"] == "late",
           "an honest program that is late keeps its connection, and its answer counts for no later request")

    many = Program(d, thousand)
    s = c.snapshot(many.target)
    expect(c.fetch(s["id"], "go.trace")["go.trace"] == TRACE, "of a thousand answers the first counts")

    for p in [*programs.values(), many]:
        if p.pid:
            p.kill()
    wait_for("all descriptors to be closed", lambda: fds_of(d) <= before + 2)
    ok("no descriptor of theirs is left in the daemon")

    # ---- it is waited for after the rings run again, and a snapshot that waits can be cancelled
    hung = Program(d, lambda c, m: time.sleep(1000))
    rid = c.send("snapshot.create", {"target": hung.target})
    sid = c.wait(rid)["snapshot"]["id"]
    wait_for("the wait", lambda: c.call("snapshot.show", {"snapshot": sid})["snapshot"]["state"] == "copying", step=0.005)
    c.call("snapshot.cancel", {"snapshot": sid})
    wait_for("its end", lambda: c.call("snapshot.show", {"snapshot": sid})["snapshot"]["state"] == "cancelled")
    ok("a snapshot that waits for a program can be cancelled")

with Tracerd(name="-off", config="[snapshot]\ngo_wait_ms = 0\n") as d, d.client() as c:
    p = Program(d, lambda c, m: os._exit(9))
    s = c.snapshot(p.target)
    lost = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])["go"][0]["lost"]
    expect(lost["kind"] == "left_out" and "go_wait_ms" in lost["why"], "with go_wait_ms = 0 nobody is asked, and the bundle says so")
