#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""A program that registers its event rings: it is a target from then on, and arming it keeps the id; its rings are in
the bundle; what it wrote last can be had after it was killed; whoever is left with its socket has no part in it;
an ordinary user sees its own programs only."""
import ctypes
import select

from lib.ring import *
from lib import *

need_root("kills programs of other users")
USER, OTHER = 65534, 65533
PR_SET_DUMPABLE = 4


class Program:
    """A child with rings and a connection of its own; ask() makes it do something."""

    def __init__(self, d, uid=None, **rings):
        self.to, pipe = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                self.to.close()
                if uid is not None:
                    os.setgroups([])
                    os.setresgid(uid, uid, uid)
                    os.setresuid(uid, uid, uid)
                    # Who has just given up root is an administrator's only.
                    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
                self.child(d, pipe, rings)
                status = 0
            except BaseException:
                import traceback
                traceback.print_exc()
            os._exit(status)
        pipe.close()
        _children.append(self)
        hello = self.read()
        self.target, self.control = hello["target"], hello

    def read(self):
        if not select.select([self.to], [], [], PATIENCE)[0]:
            fail("the program says nothing")
        return json.loads(self.to.recv(65536))

    def ask(self, what):
        self.to.send(what.encode())
        return self.read()

    def end(self, sig=signal.SIGKILL):
        if self.pid:
            os.kill(self.pid, sig)
            os.waitpid(self.pid, 0)
            self.to.close()
            self.pid = None

    @staticmethod
    def child(d, pipe, sizes):
        def start():
            rings, c = Rings(**sizes), d.client()
            control = rings.register(c)
            return rings, c, control, rings.ring(0, name="worker")
        rings, c, control, ring = start()
        pipe.send(json.dumps({"target": control.target, "interval": control.request_interval_ns,
                              "magic": control.magic.decode()}).encode())
        n, answer = 0, None
        while what := pipe.recv(64).decode():
            if what == "write":
                begin = ring.begin("request")
                ring.log(f"number {n}")
                ring.end("request", begin)
                n += 1
            elif what == "twice":  # on the same connection, and on another one
                answer = [Rings().register_error(c)[0]]
                with d.client() as other:
                    answer.append(Rings().register_error(other)[0])
            elif what == "stop":
                c.close()
            elif what == "start":
                rings, c, control, ring = start()
                answer = control.target["id"]
            elif what == "fork":  # the child has the socket and the memory
                answer = os.fork()
                if answer == 0:
                    time.sleep(6000)
                    os._exit(0)
            elif what == "exec":  # the connection ends by it
                os.execvp("sleep", ["sleep", "6000"])
            elif what == "ping":  # answers nothing until the daemon has asked
                while not c.requests:
                    message = c.recv_frame()
                    if message.get("method") == "ping":
                        c.send_frame({"v": 1, "id": message["id"], "result": {}})
                        break
                answer = c.call("hello")["role"]
            pipe.send(json.dumps(answer).encode())


_children = []


def of_pid(c, pid):
    return [t for t in c.call("target.list")["targets"] if t["pid"] == pid]


def counted(d, what, predicate):
    """The status is a picture that may be a quarter of a second old."""
    wait_for(what, lambda: predicate(d.status()))
    ok(what)


def forget_all(d, c):
    """What has ended is kept for a while: it is disarmed."""
    wait_for("all have ended", lambda: d.status()["events"]["programs"] == 0)
    for t in c.call("target.list", {"limit": 500})["targets"]:
        c.call("target.disarm", {"target": t["id"]})
    wait_for("all are forgotten", lambda: not d.status()["quota"]["producers"]["used"])


def show(c, target):
    return c.call("target.show", {"target": str(target)})["target"]


def rings_of(c, s):
    """[(entry of meta.json, RingFile)], meta.json"""
    meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
    entries = meta.get("rings", [])
    files = c.fetch(s["id"], *[r["file"] for r in entries]) if entries else {}
    return [(r, RingFile(files[r["file"]])) for r in entries], meta


def kinds(f):
    return [(name, kind) for _, name, kind, _, _ in f.records()]


REQUEST_RECORDS = [(b"request", REGION_BEGIN), (b"", LOG), (b"request", REGION_END)]


def a_target_of_its_own(d, c):
    p = Program(d)
    t = p.target
    expect(t["pid"] == p.pid and t["backend"] == "events" and t["state"] == "armed" and t["scope"] == "process" and
           t["method"] == "none" and t["ring_bytes"] == 0, "registering makes a target that records nothing else")
    expect(p.control["magic"] == "TRCDCTRL" and p.control["interval"] == 10**9, "the program has its control page")
    e = t["events"]
    expect((e["state"], e["programs"], e["threads"], e["threads_max"], e["ring_bytes"], e["clock"]) ==
           ("live", 1, 0, 4, 256 * 32, "monotonic_raw"), "the target tells of its events")
    expect([x["id"] for x in of_pid(c, p.pid)] == [t["id"]], "it is in the list, once")
    p.ask("write")
    e = show(c, p.pid)["events"]
    expect(e["threads"] == 1 and e["names"] == 2, "threads and names are counted as it writes")
    counted(d, "the daemon's status counts it", lambda s: [s["events"][k] for k in (
        "programs", "ended", "registered", "bytes")] == [1, 0, 1, e["bytes"]])
    expect(b"tracerd_event_programs 1\n" in http_get(d.status_sock, "/metrics")[1], "and so do the metrics")
    expect(c.call_error("target.disarm", {"target": t["id"]}) == "bad_params", "nobody armed it: it cannot be disarmed")
    expect(p.ask("twice") == ["busy", "busy"], "one process has one registration")

    s = c.snapshot(t["id"], reason="by hand")
    expect(s["state"] == "done", f"a snapshot of it is decoded ({s['error']})")
    rings, meta = rings_of(c, s)
    expect(len(rings) == 1 and rings[0][0]["file"] == f"rings/{p.pid}-{t['start_time']}.ring" and
           rings[0][0]["state"] == "live" and rings[0][0]["rings_left_out"] == 0 and meta["cut"] == [] and
           meta["perf_data"]["samples"] == 0, "meta.json has its rings, and no samples")
    entry, f = rings[0]
    expect(kinds(f) == [(b"worker", THREAD)] + REQUEST_RECORDS, "the copy has what it wrote")
    expect(entry["bytes"] == len(f.data) and f.pid == p.pid == f.nspid and not f.ended and not f.cut and
           f.table[0]["host_tid"] == p.pid, "and says whose it is")
    expect(meta["frozen_raw_ns"] <= f.begin_raw_ns <= f.end_raw_ns, "and when it was taken")
    out = tmp() / "x.pftrace"
    done = d.tracectl("fetch", s["id"], "-o", f"{tmp()}/bundle/")
    if done.returncode == 0:
        done = d.tracectl("decode", tmp() / "bundle", "-o", out)
    expect(done.returncode == 0 and out.stat().st_size > 0, f"tracectl decodes the bundle by itself {done.stderr}")

    # arming and disarming
    armed = c.arm(p.pid)
    expect(armed["id"] == t["id"] and armed["backend"] == "sample" and armed["events"]["state"] == "live" and
           len(of_pid(c, p.pid)) == 1, "arming it records samples too, with the same id")
    again = c.call("target.arm", {"pid": p.pid})
    expect(again["already"] and again["target"]["id"] == t["id"], "arming it again answers with the same")
    rings, meta = rings_of(c, c.snapshot(t["id"]))
    expect(len(rings) == 1 and meta["records"]["mmaps"] > 0, "a snapshot has both")
    c.call("target.disarm", {"target": t["id"]})
    left = of_pid(c, p.pid)
    expect(len(left) == 1 and left[0]["backend"] == "events" and left[0]["events"]["state"] == "live",
           "disarmed, it is a target with its events again")

    # stopping and starting again
    t = left[0]["id"]
    p.ask("stop")
    wait_for("the end of the registration", lambda: show(c, t)["events"]["state"] == "ended")
    expect(show(c, t)["state"] == "armed", "a program that stops leaves its rings, and has not exited")
    again = p.ask("start")
    expect(again == t and len(of_pid(c, p.pid)) == 1 and show(c, t)["state"] == "armed", "one that starts again is the same target")
    p.ask("write")
    rings, _ = rings_of(c, c.snapshot(again))
    expect(sorted((r["state"], r["file"].count("-")) for r, _ in rings) in
           ([("ended", 1), ("live", 2)], [("ended", 2), ("live", 1)]),
           "a snapshot has what both wrote, in files of their own")
    wait_for("the first rings have gone with that snapshot", lambda: d.status()["events"]["ended"] == 0)
    pid = p.pid
    p.end()
    wait_for("the second has ended", lambda: d.status()["events"]["ended"] == 1)
    c.call("target.disarm", {"target": again})
    expect(not of_pid(c, pid), "one that has ended can be disarmed")
    counted(d, "which frees its rings", lambda s: s["events"]["ended"] == 0)


def armed_before(d, c):
    """The recording was there first: the registration attaches to it."""
    p = Program(d)
    p.ask("stop")
    wait_for("the end of the registration", lambda: of_pid(c, p.pid)[0]["events"]["state"] == "ended")
    c.call("target.disarm", {"target": str(p.pid)})
    t = c.arm(p.pid)
    expect(t["events"] is None, "an armed program without rings")
    expect(p.ask("start") == t["id"] and show(c, t["id"])["events"]["state"] == "live" and len(of_pid(c, p.pid)) == 1,
           "its registration belongs to the target that is there")
    p.end()
    wait_for("its end", lambda: show(c, t["id"])["state"] == "exited")
    rings, meta = rings_of(c, c.snapshot(t["id"]))
    expect(kinds(rings[0][1]) == [(b"worker", THREAD)] and meta["records"]["mmaps"] > 0,
           "after its death a snapshot has samples and events")
    expect(show(c, t["id"])["events"] is None, "and with it the rings are gone, the recording is not")
    c.call("target.disarm", {"target": t["id"]})


def crash(d, c):
    p = Program(d)
    pid = p.pid
    for _ in range(3):
        p.ask("write")
    p.end()
    t = wait_for("its end", lambda: [x for x in of_pid(c, pid) if x["state"] == "exited"])[0]
    expect(t["events"]["state"] == "ended" and t["events"]["programs"] == 1, "a killed program is there with its rings")
    done = d.tracectl("snapshot", str(pid))
    expect(done.returncode == 0, f"tracectl snapshot PID of a program that is dead {done.stderr}")
    s = next(s for s in c.call("snapshot.list")["snapshots"] if s["id"] in done.stdout)
    rings, _ = rings_of(c, s)
    entry, f = rings[0]
    expect(s["state"] == "done" and entry["state"] == "ended" and f.ended and kinds(f) ==
           [(b"worker", THREAD)] + REQUEST_RECORDS * 3, "it has the last that was written")
    expect(not of_pid(c, pid), "then its target is gone")
    counted(d, "and its memory is freed", lambda s: s["events"]["bytes"] == 0)

    # its socket lives on in a child
    p = Program(d)
    child = p.ask("fork")
    p.end()
    t = wait_for("its end", lambda: [x for x in of_pid(c, p.target["pid"]) if x["state"] == "exited"])[0]
    expect(t["events"]["state"] == "ended", "a program ends with its process, whoever has its socket")
    os.kill(child, signal.SIGKILL)
    c.call("target.disarm", {"target": t["id"]})

    # it becomes another program
    p = Program(d)
    p.to.send(b"exec")
    t = wait_for("the end by exec", lambda: [x for x in of_pid(c, p.pid) if x["state"] == "exited"])[0]
    expect(t["events"]["state"] == "ended" and is_alive(p.pid), "exec ends a registration")
    p.end()
    c.call("target.disarm", {"target": t["id"]})


def is_alive(pid):
    try:
        os.kill(pid, 0)
        return True
    except ProcessLookupError:
        return False


def as_user(uid, body, *args):
    """Runs body(...) as that user in a child; it returns None or the words of what is wrong."""
    r, w = os.pipe()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
        try:
            words = body(*args) or ""
        except BaseException as e:
            words = f"{type(e).__name__} {e}"
        os.write(w, words.encode())
        os._exit(0)
    os.close(w)
    with os.fdopen(r) as f:
        words = f.read()
    os.waitpid(pid, 0)
    return words


def users(d, c):
    p = Program(d, uid=USER)
    p.ask("write")
    t = p.target

    def own():
        with d.client() as u:
            if [x["id"] for x in u.call("target.list")["targets"]] != [t["id"]]:
                return "the user does not see its program"
            s = u.snapshot(t["id"])
            rings, _ = rings_of(u, s)
            if s["state"] != "done" or kinds(rings[0][1])[1:] != REQUEST_RECORDS:
                return f"{s['state']} {rings}"

    def foreign():
        with d.client() as u:
            if u.call("target.list")["targets"] or u.call("snapshot.list")["snapshots"]:
                return "another user sees it"
            try:
                u.snapshot(t["id"])
            except Error as e:
                return "" if e.code == "not_found" else e.code
            return "another user may have it"

    wrong = as_user(USER, own)
    expect(not wrong, f"an ordinary user has the events of its own program {wrong}")
    wrong = as_user(OTHER, foreign)
    expect(not wrong, f"another user does not know of it {wrong}")
    armed = c.arm(p.pid)
    expect(armed["id"] != t["id"] and armed["events"]["state"] == "live" and
           show(c, t["id"])["backend"] == "events", "an administrator's recording is another target and has the events too")
    rings, meta = rings_of(c, c.snapshot(str(p.pid)))
    expect(len(rings) == 1 and meta["target"]["id"] == armed["id"], "by its pid it is the one that records")
    c.call("target.disarm", {"target": armed["id"]})
    expect([x["id"] for x in of_pid(c, p.pid)] == [t["id"]], "disarmed, the user's own is left")
    p.end()
    wait_for("its end", lambda: show(c, t["id"])["state"] == "exited")
    wrong = as_user(USER, own)
    expect(not wrong, f"and has them when it has died {wrong}")

    # a process that has become more than its user
    def dumpable(yes):
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, yes, 0, 0, 0)

    def more():
        dumpable(1)
        with d.client() as u:
            rings = Rings()
            control = rings.register(u)
            g = u.call("trigger.add", {"target": control.target["id"], "region": "x", "over_ns": 1000})["trigger"]
            if g["programs"] != 1 or not control.find("x"):
                return "the trigger does not watch the program"
        rings.close()
        dumpable(0)
        with d.client() as u:
            rings = Rings()
            control = rings.register(u)
            if control.thresholds() or [g["programs"] for g in u.call("trigger.list")["triggers"]] != [0]:
                return "the trigger watches it still"
            try:
                if any(rings_of(u, u.snapshot(g["target"]))):
                    return "its rings are in a snapshot of the user's"
            except Error as e:
                return "" if e.code in ("not_found", "not_permitted") else str(e)

    wrong = as_user(USER, more)
    expect(not wrong, f"the user's triggers do not watch what the user may not look into {wrong}")
    for t in c.call("target.list")["targets"]:
        c.call("target.disarm", {"target": t["id"]})

    # what cannot be armed stays what it was
    first, second = Program(d, uid=USER), Program(d, uid=USER)

    def arm_both():
        with d.client() as u:
            u.arm(first.pid)
            try:
                u.arm(second.pid)
                return "two targets where one is the limit"
            except Error as e:
                if e.code != "quota":
                    return str(e)
            s = u.snapshot(str(second.pid))
            rings, _ = rings_of(u, s)
            return "" if s["target"] == second.target["id"] and len(rings) == 1 else f"{s} {rings}"

    wrong = as_user(USER, arm_both)
    expect(not wrong, f"a program that may not be armed is as it was before {wrong}")
    t = show(c, second.pid)
    expect(t["id"] == second.target["id"] and t["backend"] == "events" and t["state"] == "armed" and t["why"] == [] and
           t["processes"] == 1, "with its id, and nothing recorded")
    counted(d, "while the other one keeps its history", lambda s: s["capture"]["history"] != "idle")
    c.call("target.disarm", {"target": str(first.pid)})
    expect(of_pid(c, first.pid)[0]["backend"] == "events", "the other one can be disarmed")
    counted(d, "then no history is kept for anybody", lambda s: s["capture"]["history"] == "idle" and
            s["targets"]["armed"] == 0 and s["targets"]["events"] == 2)
    first.end()
    second.end()

    forget_all(d, c)
    # connections that are registrations do not count as connections
    programs = [Program(d, uid=USER) for _ in range(6)]
    counted(d, "more programs than a user may have connections", lambda s: s["quota"]["producers"]["used"] == 6)
    for p in programs:
        p.end()
    wait_for("their ends", lambda: d.status()["events"]["programs"] == 0)


def units(d, c):
    """Everything that was registered in a unit, also by programs that came later or have ended."""
    from lib.capture import Cgroup
    if not os.path.exists("/sys/fs/cgroup/cgroup.controllers") and "cgroup2" not in open("/proc/mounts").read():
        note("no unified cgroup hierarchy: not tried with a unit")
        return
    group = Cgroup(f"tracerd-events-{os.getpid()}.service")
    first = Program(d)
    group.add(first.pid)
    u = c.call("target.arm", {"unit": group.path.name, "stacks": "fp"})["target"]
    expect(u["events"]["programs"] == 1, "a unit has the events of the program that is in it")
    second, third = Program(d, uid=USER), Program(d)
    group.add(second.pid)
    group.add(third.pid)
    third.ask("write")
    e = wait_for("those that came", lambda: (x := show(c, u["id"])["events"])["programs"] == 3 and x)
    expect(e["bytes"] == 3 * u["events"]["bytes"] and e["threads"] == 3, "and of those that come, added up")
    third_pid = third.pid
    third.end()
    wait_for("the end of one", lambda: show(c, u["id"])["events"]["programs"] == 2)
    rings, _ = rings_of(c, c.snapshot(u["id"]))
    expect({(r["pid"], r["state"]) for r, _ in rings} == {(first.pid, "live"), (second.pid, "live"), (third_pid, "ended")},
           "its snapshot has the rings of all")
    expect({f.pid: kinds(f) for _, f in rings}[third_pid][1:] == REQUEST_RECORDS, "each its own")
    c.call("target.disarm", {"target": u["id"]})
    first.end()
    second.end()
    group.remove()


def silence(d):
    """Little patience: a registered program is asked, one that does not answer has ended."""
    with Tracerd(config="[client]\nclient_idle_s = 1\nclient_ping_s = 1\nclient_read_timeout_s = 8\n", name="-short") as d:
        p, deaf = Program(d), Program(d)
        expect(p.ask("ping") == "admin", "a registered program is asked whether it is there, and goes on")
        wait_for("the end of one that does not answer", lambda: d.status()["events"]["ended"] >= 1)
        expect(is_alive(deaf.pid), "one that does not answer has ended as a producer only")
        p.end()
        deaf.end()


def forgotten():
    with Tracerd(config="[capture]\nexited_keep_s = 1\n", name="-keep") as d, d.client() as c:
        p = Program(d)
        target = p.target["id"]
        p.end()
        wait_for("its end", lambda: not c.call("target.list")["targets"])
        expect(c.call_error("target.show", {"target": target}) == "not_found", "what has ended is forgotten after exited_keep_s")
        counted(d, "with its rings", lambda s: (s["events"]["ended"], s["events"]["registered"]) == (0, 1))


def fds_of_a_register(d):
    """What register takes: two descriptors, by name."""
    with d.client() as c:
        rings = Rings()
        expect(rings.register_error(c, names=["rings", "rings"])[0] == "bad_params" and
               rings.register_error(c, names=["rings", "maps"])[0] == "bad_params" and
               rings.register_error(c, fds=[rings.fd])[0] == "bad_params" and
               c.call_error("target.register", {}) == "bad_params", "two descriptors, by their names")
        expect(rings.register_error(c, fds=[rings.wake_fd, rings.fd])[0] == "bad_params", "in their order")
        control = rings.register(c, fds=[rings.wake_fd, rings.fd], names=["wake", "rings"])
        expect(control.target["events"]["state"] == "live", "in any order, if it is said")
    wait_for("its end", lambda: d.status()["events"]["programs"] == 0)


def namespaces(d, c):
    """In a pid namespace of its own a program has other numbers than here."""
    if not shutil.which("unshare"):
        note("no unshare: not tried in a pid namespace")
        return
    script = f"""
import sys, os
sys.path.insert(0, {str(SRC / 'tests/system')!r})
from lib.ring import *
from lib import Client
import threading, time
c = Client({str(d.sock)!r})
rings = Rings()
control = rings.register(c)
def work():
    rings.ring(1, name="second").begin("x")
    print(os.getpid(), threading.get_native_id(), flush=True)
    for line in sys.stdin:
        rings.cause(REQUEST, line.strip(), stamp(), stamp(), tid=threading.get_native_id())
rings.ring(0, name="first")
t = threading.Thread(target=work, daemon=True)
t.start()
t.join()
"""
    outer = spawn("unshare", "--pid", "--fork", sys.executable, "-c", script, stdin=subprocess.PIPE,
                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    if not select.select([outer.stdout], [], [], PATIENCE)[0]:
        fail("the program in a pid namespace says nothing")
    nspid, nstid = map(int, outer.stdout.readline().split())
    with open(f"/proc/{outer.pid}/task/{outer.pid}/children") as f:
        pid = int(f.read().split()[0])
    tids = {int(t) for t in os.listdir(f"/proc/{pid}/task")}
    t = show(c, pid)
    rings, _ = rings_of(c, c.snapshot(t["id"]))
    entry, f = rings[0]
    expect(nspid != pid and entry["pid"] == f.pid == pid and entry["nspid"] == f.nspid == nspid, "both numbers of a process")
    expect(f.table[0]["host_tid"] == pid and f.table[1]["host_tid"] == (tids - {pid}).pop() and nstid not in tids,
           "its threads are told by ours")
    for reason in ("the first time", "from what is known"):
        outer.stdin.write(reason + "\n")
        outer.stdin.flush()
        s = wait_for("what it asks for", lambda: next((s for s in c.call("snapshot.list")["snapshots"] if s["cause"].get(
            "reason") == reason), None))
        expect(s["cause"]["tid"] == f.table[1]["host_tid"], "and so is the thread that asks for a snapshot")
        time.sleep(1.1)  # the interval between two
    os.kill(pid, signal.SIGKILL)


def what_was_lost(d, c):
    """What the library could not keep is in front of who looks at the snapshot."""
    rings = Rings()
    with d.client() as own:
        target = rings.register(own).target["id"]
        rings.ring(0).instant("kept")
        for field, n in (("lost_events", 3600), ("lost_names", 7), ("lost_long", 2)):
            rings.set(field, n)
        s = c.snapshot(target)
        losses = {k: v["count"] for k, v in s["summary"]["losses"].items()}
        expect(losses == {"events without a ring or a name": 3600, "names without room": 7, "texts cut": 2},
               f"a snapshot's summary has what the library lost {losses}")
        shown = d.tracectl("show", s["id"]).stdout
        expect("events without a ring or a name 3600" in shown, "and tracectl shows it")
        for field in ("lost_events", "lost_names", "lost_long"):
            rings.set(field, 2**64 - 1)
        expect(c.snapshot(target)["state"] == "done", "numbers that cannot be are no reason to have no trace")
    rings.close()
    wait_for("its end", lambda: show(c, target)["events"]["state"] == "ended")
    c.call("target.disarm", {"target": target})


def many(d, c):
    """Two hundred programs: a few descriptors each, no work while they are silent."""
    before = d.fds()
    programs = [Program(d, rings=2, slots=64, names_max=16, text_bytes=PAGE) for _ in range(200)]
    each = (d.fds() - before) / len(programs)
    note(f"{each:.1f} descriptors a program")
    expect(each <= 7, "a registered program needs few descriptors")

    def wakes():
        with open(f"/proc/{d.pid}/status") as f:
            return next(int(l.split()[1]) for l in f if l.startswith("voluntary_ctxt_switches"))

    def quiet():
        was = wakes()
        time.sleep(2)
        return wakes() - was < 40
    wait_for("programs that write nothing for it do not wake the daemon", quiet)
    ok("programs that write nothing for it do not wake the daemon")
    for p in programs:
        p.end()
    wait_for("their ends", lambda: d.status()["events"]["programs"] == 0)


with Tracerd(config="[quota]\nuid_connections = 4\nuid_targets = 1\n") as d:
    with d.client() as c:
        d.status()
        fds = d.fds()
        a_target_of_its_own(d, c)
        armed_before(d, c)
        crash(d, c)
        namespaces(d, c)
        users(d, c)
        fds_of_a_register(d)
        what_was_lost(d, c)
        many(d, c)
        units(d, c)
        forget_all(d, c)
        left = wait_for("descriptors are given back", lambda: d.fds() <= fds + 2)
        counted(d, "nothing of all is left", lambda s: not s["quota"]["event_bytes"]["used"] and left)
    silence(d)
forgotten()
