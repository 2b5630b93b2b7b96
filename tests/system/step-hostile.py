#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Steppers that do not do as common/control/stepabi.h says: what they had to give is lost, and that is told; nothing else
is lost, and nobody else waits for it. The stepped program has event rings, which must be in each snapshot."""
import atexit
import errno

from lib.capture import Target
from lib.ring import Rings
from lib.step import *

NOBODY = 65534
I64 = 2**63 - 1


class Program:
    """A process that registers event rings with one region in them, and then waits."""

    def __init__(self, d, uid=None):
        r, w = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                os.close(r)
                if uid is not None:
                    os.setgroups([])
                    os.setgid(uid)
                    os.setuid(uid)
                rings = Rings(rings=1, slots=256)
                c = Client(d.sock)
                rings.register(c)
                ring = rings.ring(0)
                ring.end("ours", ring.begin("ours"))
                os.write(w, b"!")
                while True:
                    signal.pause()
            finally:
                os._exit(1)
        atexit.register(self.end)
        os.close(w)
        if os.read(r, 1) != b"!":
            fail("the program did not register")
        os.close(r)

    def end(self):
        atexit.unregister(self.end)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def recording():
    """What a stepper would give: a recording of the real one."""
    out = tmp() / "true.data"
    p = subprocess.run([BUILD / "tracerd-step", "-o", out, "--", "/bin/true"], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"tracerd-step: {p.stderr}")
    return out.read_bytes()


def answer_with(data, *fds):
    def answer(sock):
        made = [f() for f in fds]
        send(sock, data() if callable(data) else data, made)
        for fd in made:
            os.close(fd)
    return answer


def fifo():
    r, w = os.pipe()
    os.close(w)
    return r


def plain_file():
    return os.open(tmp() / "plain", os.O_RDWR | os.O_CREAT)


def write_only():
    fd = memfd(b"x")
    only = os.open(f"/proc/self/fd/{fd}", os.O_PATH)
    os.close(fd)
    return only


def meta(c, s):
    return json.loads(c.fetch(s["id"], "meta.json")["meta.json"])


def check_rings_only(c, s, what, why):
    """The snapshot is whole but for the recording, and says so everywhere."""
    if s["state"] != "done":
        fail(f"{what}: the snapshot is {s['state']}: {s['error']}")
    m = meta(c, s)
    lacks = [cut["why"] for cut in m["cut"] if cut["what"] == "recording"]
    regions = [r["name"] for r in s["summary"]["regions"]]
    told = [k for k in s["summary"]["losses"] if k.startswith("not recorded: ")]
    if not (len(lacks) == 1 and why in lacks[0] and regions == ["ours"] and len(told) == 1
            and m["losses"]["step_missing"] == 1 and m["events"]["step"]["recorded"] is False):
        fail(f"{what}: {lacks} {regions} {told} {m['losses']} {m['events']}")
    ok(f"{what}: the event rings are there, and it says: {lacks[0]}")


# ---- what is no connection at all

def refused(d, c):
    p = spawn("sleep", "1000")
    maps = open_maps(p.pid)
    stream, dgram = socket.socketpair(), socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    alone = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pipe = fifo()

    def arm(fd, backend="step", **params):
        names = ["maps"] + (["step"] if fd is not None else [])
        return c.call_error("target.arm", {"pid": p.pid, "backend": backend, "fds": names, **params},
                            [maps] + ([fd] if fd is not None else []))
    expect(arm(None) == "bad_params", "the back end step needs a stepper's connection")
    expect(arm(pipe) == "bad_params", "which is no pipe")
    expect(arm(stream[0].fileno()) == "bad_params", "no stream")
    expect(arm(dgram[0].fileno()) == "bad_params", "no datagram socket")
    expect(arm(alone.fileno()) == "bad_params", "and is connected")
    s = Stepper()
    fd = s.theirs.fileno()
    expect(arm(fd, "sample") == "bad_params" and arm(fd, "auto") == "bad_params", "no other back end takes one")
    expect(arm(fd, tid=p.pid) == "bad_params", "a thread alone cannot be stepped")
    expect(c.call("target.list")["targets"] == [], "nothing is armed by all that")
    sample = c.arm(p.pid, stacks="fp")
    expect(arm(fd) == "busy", "what is armed already is not stepped, too")
    c.call("target.disarm", {"target": sample["id"]})
    t = arm_step(c, p.pid, s)
    expect(t["backend"] == "step" and t["method"] == "ptrace" and t["step"]["state"] == "stepping" and not t["waits"],
           "a stepper's is taken")
    c.call("target.disarm", {"target": t["id"]})
    expect(s.ended.wait(PATIENCE), "when the target is disarmed the connection ends")
    for x in (*stream, *dgram, alone):
        x.close()
    os.close(pipe)
    os.close(maps)
    p.kill()
    p.wait()


# ---- answers

def bad_answers(d, c, data):
    p = Program(d)
    s = Stepper()
    t = arm_step(c, p.pid, s)
    expect(t["events"]["state"] == "live" and t["backend"] == "step", "a program with event rings is stepped under its id")
    good = lambda: memfd(data)
    head = lambda files, **how: lambda: frozen_bytes(files, **how)
    cases = [
        ("never answers", None, "did not answer in time"),
        ("hangs up", lambda sock: None, "has not answered"),
        ("half an answer", answer_with(lambda: frozen_bytes(PERFDATA)[:50], good), "is malformed"),
        ("an answer of another type", answer_with(stats_bytes(), good), "is malformed"),
        ("names files that do not come", answer_with(head(PERFDATA | CODE), good), "is malformed"),
        ("files that it does not name", answer_with(head(PERFDATA), good, good), "is malformed"),
        ("a hundred files", answer_with(head(PERFDATA), *[good] * 100), "is malformed"),
        ("files of no kind", answer_with(head(8), good), "is malformed"),
        ("no recording among the files", answer_with(head(CODE), good), "no perf.data"),
        ("no file", answer_with(head(0)), "no perf.data"),
        ("a pipe", answer_with(head(PERFDATA), fifo), "a pipe"),
        ("a directory", answer_with(head(PERFDATA), lambda: os.open("/", os.O_RDONLY)), "a directory"),
        ("a file that can be changed", answer_with(head(PERFDATA), plain_file), "not a memfd"),
        ("a memfd without seals", answer_with(head(PERFDATA), lambda: memfd(data, seals=0)), "seals"),
        ("a memfd that can be written", answer_with(head(PERFDATA), lambda: memfd(data, seals=SEAL | SHRINK | GROW)), "seals"),
        ("a memfd whose seals can change", answer_with(head(PERFDATA), lambda: memfd(data, seals=SEALS & ~SEAL)), "seals"),
        ("code that can be written", answer_with(head(PERFDATA | CODE), good, lambda: memfd(b"x", seals=0)), "seals"),
        ("what cannot be read", answer_with(head(PERFDATA), write_only), "step"),
        ("a terabyte of holes", answer_with(head(PERFDATA), lambda: memfd(b"x", size=1 << 40)), "larger than max_output_mib"),
        ("too large, it says itself", answer_with(head(0, error=-errno.EFBIG)), "larger than max_output_mib"),
        ("an error", answer_with(head(0, error=-errno.ENOMEM)), "Cannot allocate memory"),
        ("an error that there is not", answer_with(head(0, error=77)), "could not copy"),
    ]
    before = None
    for what, answer, why in cases:
        s.answer = answer
        check_rings_only(c, c.snapshot(t["id"]), what, why)
        before = before or d.fds()
    wait_for("all descriptors that came are closed", lambda: d.fds() <= before)
    ok("no descriptor stays behind")
    expect(len(s.requests) == len(cases) and set(s.requests) == {64 << 20}, "each was asked for at most max_output_mib")
    lost = d.status()["losses"]["snapshots_without_recording"]
    expect(lost == len(cases), "and each is counted")

    # What it gives is no recording: that is for the decoder to find out.
    for what, junk in (("an empty file", b""), ("noise", os.urandom(100000)),
                       ("a recording of noise", data[:200] + os.urandom(len(data) - 200))):
        s.answer = files(junk)
        n = c.snapshot(t["id"])
        if n["state"] != "done" or [r["name"] for r in n["summary"]["regions"]] != ["ours"]:
            fail(f"{what} for a recording: {n}")
        ok(f"{what} for a recording: the event rings are there")
    s.answer = files(data)
    n = c.snapshot(t["id"])
    m = meta(c, n)
    expect(n["state"] == "done" and m["decoder"]["stats"]["instructions"] > 10000 and m["events"]["step"]["recorded"]
           and [r["name"] for r in n["summary"]["regions"]] == ["ours"], "and a good answer is taken after all that")

    # Nobody else waits for one that does not answer.
    s.answer = None
    other = Program(d)
    o = wait_for("the other target", lambda: next(
        (x for x in c.call("target.list")["targets"] if x["pid"] == other.pid), None))
    slow = c.call("snapshot.create", {"target": t["id"]})["snapshot"]
    n = c.snapshot(o["id"])
    state = c.call("snapshot.show", {"snapshot": slow["id"]})["snapshot"]["state"]
    expect(n["state"] == "done" and state == "freezing", "while one is awaited others are taken")
    c.call("snapshot.cancel", {"snapshot": slow["id"]})
    s.answer = files(data)
    expect(c.snapshot(t["id"])["state"] == "done", "what is awaited can be cancelled")
    c.call("target.disarm", {"target": t["id"]})
    expect(s.ended.wait(PATIENCE), "disarmed, the connection ends")
    left = {x["pid"]: x["backend"] for x in c.call("target.list")["targets"]}
    expect(left == {p.pid: "events", other.pid: "events"}, "and the program is what it was before")
    other.end()
    p.end()


def nothing_else(d, c):
    """Without event rings there is nothing to publish: the snapshot fails with the reason."""
    p = spawn("sleep", "1000")
    s = Stepper(answer_with(lambda: frozen_bytes(0, error=-errno.EFBIG)))
    t = arm_step(c, p.pid, s)
    n = c.snapshot(t["id"])
    expect(n["state"] == "failed" and n["error"]["code"] == "too_large" and n["files"] == [], "too large: failed, and why")
    s.answer = lambda sock: None
    n = c.snapshot(t["id"])
    expect(n["state"] == "failed" and n["error"]["code"] == "gone", "no answer: failed")
    s.close()
    t = wait_for("the end of the stepper", lambda: next(
        x for x in c.call("target.list")["targets"] if x["id"] == t["id"] and x["state"] == "suspended"))
    expect(t["step"]["state"] == "gone" and any("stepper has ended" in w for w in t["warnings"]), "a stepper that dies suspends")
    n = c.snapshot(t["id"])
    expect(n["state"] == "failed" and n["error"]["code"] == "gone" and "stepper has ended" in n["error"]["message"],
           "and what it had is gone")
    s = Stepper()
    t2 = arm_step(c, p.pid, s)
    expect(t2["id"] != t["id"] and t2["state"] == "armed", "it can be armed again")
    for x in (t, t2):
        c.call("target.disarm", {"target": x["id"]})
    p.kill()
    p.wait()


# ---- what it says of itself

def bad_words(d, c):
    p = spawn("sleep", "1000")
    show = lambda t: c.call("target.show", {"target": t["id"]})["target"]
    s = Stepper()
    t = arm_step(c, p.pid, s)
    big = {f: 2**64 - 1 for f in STATS_FIELDS}
    s.stats(threads=2**32 - 1, **big)
    step = wait_for("numbers", lambda: (lambda x: x if x["insns"] else None)(show(t)["step"]))
    lost = {"unexpected_jumps": I64, "threads_not_recorded": I64, "stacks_not_written": I64}
    expect(step["insns"] == I64 and step["threads"] == 2**32 - 1 and step["lost"] == lost,
           "numbers stay within what can be told")
    shown = d.tracectl("show", t["id"])
    listed = d.tracectl("list")
    expect(shown.returncode == 0 and f"{I64} instructions" in shown.stdout and listed.returncode == 0
           and f"{I64} insns" in listed.stdout, "and are shown")

    # It is held back, not the daemon.
    s.ours.setblocking(False)
    sent = 0
    try:
        while sent < 20000:
            s.stats(insns=sent)
            sent += 1
    except BlockingIOError:
        pass
    expect(sent < 20000, f"who says too much is read later ({sent} packets were taken)")
    expect(c.call("status")["state"] in ("running", "degraded"), "and the daemon answers meanwhile")
    c.call("target.disarm", {"target": t["id"]})

    for what, words in (("rubbish", b"rubbish"), ("hello, once more", struct.pack(HELLO_FORMAT, HELLO, VERSION, 1, 0, b"")),
                        ("an empty packet", b""), ("stats with a tail", stats_bytes() + b"x" * 400)):
        s = Stepper()
        t = arm_step(c, p.pid, s)
        s.ours.send(words)
        wait_for("it is suspended", lambda: show(t)["state"] == "suspended")
        expect(s.ended.wait(PATIENCE), f"{what}: the connection ends")
        c.call("target.disarm", {"target": t["id"]})
    # Descriptors that nobody asked for are not kept.
    before = d.fds()
    s = Stepper()
    t = arm_step(c, p.pid, s)
    with_it = d.fds()
    send(s.ours, stats_bytes(insns=4711), [s.ours.fileno()] * 50)
    wait_for("the word", lambda: show(t)["step"]["insns"] == 4711)
    # Files of the target are opened and closed meanwhile; fifty it would be that are kept.
    wait_for("descriptors with a word go", lambda: d.fds() < with_it + 25)
    ok("descriptors with a word are not kept")
    s.stats(ended=ERROR, error=-errno.ENOSPC)
    t = wait_for("it is suspended", lambda: (lambda x: x if x["state"] == "suspended" else None)(show(t)))
    expect(t["step"]["state"] == "ended" and t["step"]["error"] == "No space left on device"
           and any("not stepped any more" in w for w in t["warnings"]), "a stepper that says that it has ended suspends")
    s.answer = files(true_data)
    n = c.snapshot(t["id"])
    expect(n["state"] == "done" and meta(c, n)["events"]["step"]["recorded"], "and can still be asked for what it has")
    c.call("target.disarm", {"target": t["id"]})
    # An opener without work is let go after ten seconds: there may have been one before, and be one now.
    wait_for("all descriptors are closed", lambda: d.fds() <= before)
    p.kill()
    p.wait()


# ---- a user's

def as_a_user(d, c):
    """Runs with the rights of that user."""
    target = Target("mine", uid=NOBODY)
    other = spawn("sleep", "1000", uid=NOBODY)

    def user():
        with Client(d.sock) as u:
            s, s2 = Stepper(files(true_data)), Stepper()
            t = arm_step(u, target.pid, s)
            fd = open_maps(other.pid)
            expect(u.call_error("target.arm", {"pid": other.pid, "backend": "step", "fds": ["maps", "step"]},
                                [fd, s2.theirs.fileno()]) == "quota", "uid_steppers limits a user's steppers")
            s2.theirs.close()
            expect(s2.ended.wait(PATIENCE), "what is refused is let go")
            target.tell("exec", answer=None)
            if not s.ended.wait(PATIENCE):
                fail("the connection of a program that was executed does not end")
            expect(s.requests == [64 << 20], "in front of its end it was asked for what there was")
            t = u.call("target.show", {"target": t["id"]})["target"]
            expect(t["state"] == "suspended" and t["step"]["state"] == "gone" and any("another program" in w for w in t["warnings"]),
                   "an exec suspends what a user steps")
            for _ in range(2):
                n = u.snapshot(t["id"])
                expect(n["state"] == "done" and meta(u, n)["events"]["step"]["recorded"] and n["uid"] == NOBODY,
                       "what there was before can be had")
            u.call("target.disarm", {"target": t["id"]})
    if as_user(NOBODY, user) != 0:
        fail("the user's part")


def as_user(uid, work):
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(uid)
            os.setuid(uid)
            work()
            status = 0
        except SystemExit:
            pass
        except BaseException as e:
            print(f"not ok - {type(e).__name__}: {e}", flush=True)
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


true_data = recording()
with Tracerd(config="[snapshot]\nstep_freeze_s = 10\nmax_output_mib = 64\n[quota]\nuid_steppers = 1\n") as d:
    c = d.client()
    refused(d, c)
    bad_answers(d, c, true_data)
    nothing_else(d, c)
    bad_words(d, c)
    if os.geteuid() == 0:
        as_a_user(d, c)
    expect(d.alive() and d.status()["quota"]["steppers"]["used"] == 0, "the daemon is well, and nothing is charged any more")
