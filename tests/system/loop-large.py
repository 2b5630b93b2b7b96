#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# What is large is armed in many turns of the loop: others are answered meanwhile, the target is not seen before it is armed,
# and its request gets exactly one answer whatever happens on the way. How long it takes is bench/loop's.
import threading

from lib.events import NUMBERS, Numbers, registered
from lib.capture import *

UID = 65534
MAPS = 30000
THREADS = 2000
LIMITS = "[quota]\nuid_fds = 200000\n"

need_root("to become another user")


class Large:
    def __init__(self, what, n, uid=UID):
        self.process = spawn(BUILD / "tests/programs/large", what, n, uid=uid, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        said = self.process.stdout.readline().strip()
        if said != "ready":
            skip(f"no process can be so large here: {said}")

    def tell(self, line):
        self.process.stdin.write(line + "\n")

    def more(self):
        self.tell("more")
        if self.process.stdout.readline().strip() != "done":
            fail("the program does not grow")

    def kill(self):
        self.process.kill()
        self.process.wait()


def ask_to_arm(c, pid, **params):
    fd = open_maps(pid)
    try:
        return c.send("target.arm", {"pid": pid, "fds": ["maps"], "stacks": "fp", **params}, [fd])
    finally:
        os.close(fd)


def answers(c, rid, timeout=PATIENCE):
    """The answer to a request; and there is no second one before that of a later request."""
    try:
        first = c.wait(rid, timeout)["target"]
    except Error as e:
        first = e
    later = c.send("hello")
    while True:
        message = c.recv_frame(timeout)
        if message.get("id") == rid:
            fail(f"a second answer: {message}")
        if message.get("id") == later:
            return first
        c._keep(message)


def idle(d, admin, first=lambda: None):
    """Nothing of an attempt is left: charges, targets, events."""
    def look():
        first()
        s = admin.call("status")
        return s["quota"]["targets"]["used"] == s["quota"]["fds"]["used"] == s["quota"]["ring_bytes"]["used"] == 0 and \
            s["capture"]["event_fds"] == 0 and s["targets"]["armed"] == 0
    wait_for("nothing to be left", look)


def armed_in_turns(d, large):
    """The look of another user: answers while it goes on, and no target yet."""
    seen = []
    going = threading.Event()
    over = threading.Event()

    def look():
        with d.client() as other:
            while not over.is_set():
                seen.append([(t["id"], t["state"]) for t in other.call("target.list")["targets"]])
                going.set()
    thread = threading.Thread(target=look)
    thread.start()
    going.wait(PATIENCE)
    with d.client() as c:
        seen.clear()
        rid = ask_to_arm(c, large.pid)
        again = ask_to_arm(c, large.pid)
        large.more()
        message = c.recv_frame()
        if message.get("id") != again or message.get("error", {}).get("code") != "busy":
            fail(f"the same target a second time: {message}")
        ok("what is being armed is not armed a second time")
        t = c.wait(rid, 60)["target"]
        over.set()
        thread.join()
    # Each of these was asked for after the one before was answered: between two of them the loop has turned.
    meanwhile = sum(not x for x in seen)
    expect(meanwhile >= 5, f"it took many turns of the loop: another user got {meanwhile} answers before it was armed")
    expect(all(x in ([], [(t["id"], "armed")]) for x in seen) and not any(a and not b for a, b in zip(seen, seen[1:])),
           "and saw no target that was not armed")
    return t


def whole(d, admin):
    """Everything that was there is in a snapshot, and what came while it was armed."""
    large = Large("maps", 8000)
    with d.client() as c:
        rid = ask_to_arm(c, large.pid)
        for _ in range(50):
            large.more()
        t = c.wait(rid, 60)["target"]
        there = {int(line.split("-")[0], 16) for line in open(f"/proc/{large.pid}/maps") if line.split()[1][2] == "x" and
                 "vsyscall" not in line}
        meta, recs, _ = bundle(c, t["id"])
        # One that came on the way was told as it was mapped: its first page is no code any more.
        told = set()
        for r in recs:
            if r.type == MMAP2:
                addr, size = struct.unpack_from("<QQ", r.body, 16)
                told.update(range(addr, addr + min(size, 64 * 4096), 4096))
        expect(there <= told, f"all of {len(there)} mappings are told")
        c.call("target.disarm", {"target": t["id"]})
    large.kill()
    many = Large("threads", THREADS)
    with d.client() as c:
        rid = ask_to_arm(c, many.pid)
        for _ in range(20):
            many.more()
        t = c.wait(rid, 60)["target"]
        there = {int(tid) for tid in os.listdir(f"/proc/{many.pid}/task")}
        meta, recs, _ = bundle(c, t["id"])
        told = {r.tid for r in recs if r.type == COMM} | {struct.unpack_from("<I", r.body, 16)[0] for r in recs if r.type == FORK}
        expect(there <= told, f"all of {len(there)} threads are told")
        c.call("target.disarm", {"target": t["id"]})
    many.kill()
    idle(d, admin)
    ok("disarmed: nothing is left")


def ended_on_the_way(d, admin):
    for how, allowed, state in (("killed", "gone", "exited"), ("executed", "gone", "suspended")):
        large = Large("maps", MAPS)

        def user():
            with Client(d.sock) as c:
                rid = ask_to_arm(c, large.pid)
                c.call("hello")
                large.kill() if how == "killed" else large.tell("exec")
                answer = answers(c, rid)
                if isinstance(answer, Error):
                    expect(answer.code == allowed, f"{how} while it was armed: {answer}")
                    return
                t = wait_for("the end", lambda: (x := c.call("target.show", {"target": answer["id"]})["target"])["state"] == state and x)
                c.call("target.disarm", {"target": t["id"]})
                ok(f"{how} right after it was armed: {state}")
        if how == "killed":
            pid = os.fork()
            if pid == 0:
                os.setgid(UID)
                os.setuid(UID)
                with Client(d.sock) as c:
                    rid = ask_to_arm(c, large.pid)
                    c.call("hello")
                    os.kill(large.pid, 9)
                    answer = answers(c, rid)
                    if isinstance(answer, Error):
                        os._exit(0 if answer.code == allowed else 1)
                    c.call("target.disarm", {"target": answer["id"]})
                os._exit(0)
            _, status = os.waitpid(pid, 0)
            large.process.wait()
            expect(status == 0, "killed while it was armed: one answer")
        elif as_user(UID, user) != 0:
            fail("the user's half")
        large.kill()
        idle(d, admin)


def nobody_waits(d, admin):
    large = Large("maps", MAPS)
    c = d.client()
    ask_to_arm(c, large.pid)
    c.call("hello")
    c.close()
    # It was as quick as that: then it is armed, and stays so.
    idle(d, admin, lambda: [admin.call("target.disarm", {"target": t["id"]}) for t in admin.call("target.list")["targets"]])
    ok("who asked has gone: nothing is left")
    with d.client() as c:
        t = c.arm(large.pid)
        expect(t["state"] == "armed", "and it can be armed again")
        c.call("target.disarm", {"target": t["id"]})
    large.kill()


def stopped_on_the_way():
    d = Tracerd(name="-stopped", config=LIMITS).start()
    large = Large("maps", MAPS)
    with d.client() as c:
        rid = ask_to_arm(c, large.pid)
        c.call("hello")
        os.kill(d.pid, signal.SIGTERM)
        try:
            code = c.wait(rid, 30)["target"]["state"]
        except Error as e:
            code = e.code
        expect(code in ("shutting_down", "armed"), f"the daemon stops: {code}")
    expect(d.process.wait(PATIENCE) == 0, "and ends")
    Tracerd.running.remove(d)
    large.kill()


def room_for_one():
    """A program that has registered is no target that was armed; when it is armed it takes the place of one."""
    with Tracerd(name="-one", config="[daemon]\nmax_targets = 1\n") as d, d.client() as c:
        program, other = Numbers(d), Target("other", "idle")
        registered(c, program.pid)
        t = c.arm(other.pid)
        try:
            fail(f"armed over the limit: {c.arm(program.pid)}")
        except Error as e:
            expect(e.code == "busy" and "max_targets" in e.message, f"a registered program is armed up to the limit only: {e}")
        expect(registered(c, program.pid)["backend"] == "events", "it is what it was")
        c.call("target.disarm", {"target": t["id"]})
        t = c.arm(program.pid)
        expect(t["backend"] == "sample" and t["id"] == registered(c, program.pid)["id"], "and when there is room, with its id")
        program.kill()
        program.close()


with Tracerd(config=LIMITS) as d, d.client() as admin:
    if not admin.call("status")["backends"]["sample"]["available"]:
        skip("no perf events here")
    large = Large("maps", MAPS)
    t = armed_in_turns(d, large)
    with d.client() as c:
        c.call("target.disarm", {"target": t["id"]})
    large.kill()
    idle(d, admin)
    whole(d, admin)
    ended_on_the_way(d, admin)
    nobody_waits(d, admin)
stopped_on_the_way()
room_for_one()
