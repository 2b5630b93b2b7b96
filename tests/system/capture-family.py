#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A family: who is there already, who comes later, who outlives its parent, who executes program after program. One timeline
# has them all, and the target ends with the last of them.
from lib.capture import *

# Burns a little, in the way that its words say, and says who it is.
SCENE = r"""
import os, sys, time
def burn(ms):
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end: sum(range(200))
def fork(fn):
    pid = os.fork()
    if pid == 0:
        fn(); os._exit(0)
    return pid
def rest():
    while True: burn(1); time.sleep(0.002)
def say(text): os.write(1, f"{text}\n".encode())
def grandparent():
    say(f"grandchild {fork(rest)}"); rest()
def chain(n):
    say(f"link {os.getpid()}")
    os.execv(sys.executable, [sys.executable, __file__, "chain", str(n)])
def daemon():
    os.setsid()
    pid = fork(rest)
    say(f"daemon {pid}")
if sys.argv[1] == "chain":
    burn(30); n = int(sys.argv[2])
    if n: chain(n - 1)
    sys.exit(0)
say(f"child {fork(grandparent)}")
for line in sys.stdin:
    word = line.strip()
    if word == "daemon": os.waitpid(fork(daemon), 0)
    elif word == "chain": os.waitpid(fork(lambda: chain(3)), 0)
    elif word.startswith("storm"):
        for _ in range(int(word.split()[1])): os.waitpid(fork(lambda: None), 0)
    say("done")
"""


class Scene:
    def __init__(self, uid=None, where=None):
        path = (where or tmp()) / "scene.py"
        path.write_text(SCENE)
        self.process = spawn(interpreter(), path, "scene", uid=uid, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             bufsize=1)
        self.pid = self.process.pid
        self.kin = {}
        self.until(2)

    def line(self):
        words = self.process.stdout.readline().split()
        if len(words) == 2:
            self.kin[words[0]] = int(words[1])
        return words[0] if words else None

    def until(self, n):
        while len(self.kin) < n:
            self.line()

    def tell(self, text):
        self.process.stdin.write(text + "\n")
        while self.line() not in ("done", None):
            pass


def sampled(recs):
    return {r.pid for r in recs if r.type == SAMPLE and r.id == CLOCK}


def shown(c, t):
    return c.call("target.show", {"target": t})["target"]


need_root("what a process starts")
tmp().chmod(0o755)
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    s = Scene()
    r = d.tracectl("arm", "--backend=sample", s.pid)
    expect(r.returncode == 0 and "has started 2 that are not recorded" in r.stderr, f"a parent alone: {r.stderr.strip()}")
    r = d.tracectl("arm", "--backend=sample", "--children", s.pid)
    expect(r.returncode != 0 and "disarm it first" in r.stderr, f"more than is armed is refused: {r.stderr.strip()}")
    r = d.tracectl("arm", "--backend=sample", s.pid)
    expect(r.returncode == 0 and r.stdout.startswith("armed already: "), f"the same is not: {r.stdout.strip()}")
    c.call("target.disarm", {"target": str(s.pid)})
    t = c.call("target.arm", {"pid": s.pid, "backend": "sample", "stacks": "fp", "children": True})["target"]
    expect(t["living"] == 3, f"who is there already belongs to it: {t['living']}")
    expect(c.call("target.show", {"target": str(s.kin["grandchild"])})["target"]["id"] == t["id"],
           "and its pid names the target")
    r = d.tracectl("snapshot", s.pid, s.kin["grandchild"], "--reason", "together")
    expect(r.returncode == 0 and f"target {t['id']}" in r.stdout and r.stdout.count("snapshot 2") == 1, f"a snapshot of several of them is one: {r.stdout[:200]}{r.stderr}")
    other = c.arm(os.getpid())["id"]
    r = d.tracectl("snapshot", s.pid, os.getpid())
    expect(r.returncode != 0 and f"two targets, {t['id']} and {other}" in r.stderr and "arm PID PID" in r.stderr, f"of two targets it is none: {r.stderr.strip()}")
    c.call("target.disarm", {"target": other})
    let_work(s.kin["grandchild"], seconds=0.2)
    meta, recs, _ = bundle(c, t["id"])
    expect(set(s.kin.values()) <= sampled(recs), "they are sampled")
    expect({r.pid for r in recs if r.type == MMAP2} >= set(s.kin.values()), "what they had mapped is known")

    s.tell("chain")
    s.tell("daemon")
    let_work(s.kin["daemon"], seconds=0.2)
    meta, recs, _ = bundle(c, t["id"])
    link = s.kin["link"]
    execs = [r for r in recs if r.type == COMM and r.pid == link and r.misc & (1 << 13)]
    ticks = [r.time for r in recs if r.type == SAMPLE and r.id == CLOCK and r.pid == link]
    expect(len(execs) == 4, f"a chain of four programs is one process that executes: {len(execs)}")
    bounds = [r.time for r in execs] + [1 << 63]
    expect(all(any(a <= at < b for at in ticks) for a, b in zip(bounds, bounds[1:])), "each of the four is sampled")
    expect(s.kin["daemon"] in sampled(recs), "a daemon that has left its parent, too")

    s.tell("storm 300")
    wait_for("those that ended at once have left", lambda: shown(c, t["id"])["living"] == 4)
    now = shown(c, t["id"])
    meta, recs, _ = bundle(c, t["id"])
    forks = {r.pid for r in recs if r.type == FORK and struct.unpack_from("<I", r.body, 12)[0] != r.pid}
    # on a busy machine two of them may have had one number
    each = {(p["pid"], p["from_ns"]) for p in meta["processes"]}
    expect(len(each) >= 300, f"300 that ended at once are processes of the recording: {len(each)} of {len(meta['processes'])}")
    expect(now["lost"]["processes"] == 0, f"and none is left out: {now['lost']}")

    s.process.stdin.close()
    s.process.wait()
    wait_for("the parent has left", lambda: shown(c, t["id"])["living"] == 3)
    expect(shown(c, t["id"])["state"] == "armed", "the first process ends, the recording goes on")
    since = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    let_work(s.kin["child"], seconds=0.2)
    meta, recs, _ = bundle(c, t["id"])
    expect(any(r.time > since and r.pid == s.kin["daemon"] for r in recs if r.type == SAMPLE), "with what the others do")
    for name in ("child", "grandchild", "daemon"):
        os.kill(s.kin[name], 9)
    wait_for("the last one ends the target", lambda: shown(c, t["id"])["state"] == "exited")
    ok("it has exited when all have")
    meta, recs, _ = bundle(c, t["id"])
    expect(s.kin["grandchild"] in sampled(recs), "what it recorded is still there")

# ---- another thread than the first executes a program: the process goes on under its number
EXECS = """
import os, sys, threading, time
if len(sys.argv) > 1:
    print("again", flush=True)
    while True: time.sleep(0.01)
print("ready", flush=True)
sys.stdin.readline()
threading.Thread(target=lambda: os.execv(sys.executable, [sys.executable, __file__, "again"])).start()
time.sleep(100)
"""
with Tracerd(name="-execs") as d:
    c = d.client()
    (tmp() / "execs.py").write_text(EXECS)
    p = spawn(interpreter(), tmp() / "execs.py", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    p.stdout.readline()
    t = c.arm(p.pid, children=True)["id"]
    p.stdin.write("\n")
    expect(p.stdout.readline() == "again\n", "it executes a program in a thread")
    time.sleep(1)
    now = c.call("target.show", {"target": t})["target"]
    expect(now["state"] == "armed" and now["living"] == 1, f"and is recorded on: {now['state']}, {now['living']}")
    p.kill()
    p.wait()
    wait_for("it ends when that does", lambda: c.call("target.show", {"target": t})["target"]["state"] == "exited")
    ok("a thread that executes a program does not end the target")
