# SPDX-License-Identifier: Apache-2.0
"""For the behaviour tests of events: a program that writes them when it is told to (tests/programs/eventshell.c), and
what the daemon and its snapshots say of it."""
import json
import re

from lib import *
from lib.ring import INSTANT, RingFile

SHELL = BUILD / "tests" / "programs" / "eventshell"
# The library's descriptors, as /proc says what they are.
OURS = re.compile(r"socket:|anon_inode:\[(eventpoll|timerfd|eventfd)\]|/memfd:")


class Shell:
    def __init__(self, sock, **kw):
        self.process = spawn(SHELL, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                             env={**os.environ, "TRACERD_SOCKET": str(sock)}, **kw)
        self.pid = self.process.pid
        self.answer("ready")

    def answer(self, want=None, timeout=PATIENCE):
        if not select.select([self.process.stdout], [], [], timeout)[0]:
            fail("the program does not answer")
        line = self.process.stdout.readline().rstrip("\n")
        if want is not None and line != want:
            fail(f"the program says {line!r} instead of {want!r}")
        return line

    def tell(self, line, want=None):
        self.process.stdin.write(line + "\n")
        return self.answer(want)

    def stats(self):
        return json.loads(self.tell("stats"))

    def wait_connected(self, registrations=None):
        return wait_for("the program is connected", lambda: (s := self.stats())["connected"] and
                        (registrations is None or s["registrations"] >= registrations) and s, 30)

    def wait_alone(self):
        return wait_for("the program knows that the daemon has gone", lambda: not (s := self.stats())["connected"] and s)

    def fork(self, how="fork"):
        """What is told from here on is told to the child, whose pid this is."""
        return int(self.tell(how))

    def exit_child(self):
        return self.tell("exit")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        if self.process.wait(PATIENCE):
            fail(f"the program ended with {self.process.returncode}")


def fds_of(pid):
    """{number: what it is} of the library's kind."""
    found = {}
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            what = os.readlink(f"/proc/{pid}/fd/{name}")
        except FileNotFoundError:
            continue
        if OURS.match(what):
            found[int(name)] = what
    return found


def threads_of(pid):
    """{name: tid}"""
    return {open(f"/proc/{pid}/task/{t}/comm").read().strip(): int(t) for t in os.listdir(f"/proc/{pid}/task")}


def target_of(c, pid):
    return next((t for t in c.call("target.list", {"limit": 500})["targets"] if t.get("pid") == pid), None)


def wait_events(c, pid, state):
    """The target of the process, as soon as its registration is in that state."""
    return wait_for(f"the events of process {pid} are {state}", lambda: (t := target_of(c, pid)) and
                    (t.get("events") or {}).get("state") == state and t, 30)


def recorded(c, target):
    """[(name, kind)] of what a snapshot's rings hold, in the order of the clock."""
    s = c.snapshot(target)
    if s["state"] != "done":
        fail(f"the snapshot is {s['state']}: {s}")
    out = []
    for name in (f["name"] for f in c.call("snapshot.fetch", {"snapshot": s["id"]})["files"]):
        if name.startswith("rings/"):
            rings = RingFile(c.fetch(s["id"], name)[name])
            out += [r for i in range(rings.n_rings) for r in rings.records(i)]
    return [(name.decode(), kind) for _, name, kind, _, _ in sorted(out)]


def instants(c, target):
    return [name for name, kind in recorded(c, target) if kind == INSTANT]
