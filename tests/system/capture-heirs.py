#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is forked while its parent is being armed has mapped all that its parent has, though that is heard of record by record; and nothing
is kept of those whom a target does not have. Who is found in /proc and reported by the kernel is one process."""
from lib.capture import *

FILES, CHILDREN = 150, 120
HEIRS = """
import ctypes, mmap, os, signal, sys, time
libc = ctypes.CDLL(None)
kept = []
for path in sys.argv[2:]:
    with open(path) as f:
        kept.append(mmap.mmap(f.fileno(), 4096, flags=mmap.MAP_PRIVATE, prot=mmap.PROT_READ | mmap.PROT_EXEC))
print("ready", flush=True)
sys.stdin.readline()
children = []
for i in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        libc.prctl(1, 9)  # ends with its parent
        signal.pause()
    children.append(pid)
    time.sleep(5e-4)
print("forked", flush=True)
sys.stdin.readline()
for pid in children:
    os.kill(pid, 9)
    os.waitpid(pid, 0)
print("ended", flush=True)
sys.stdin.readline()
"""


def files():
    for i in range(FILES):
        path = tmp() / f"mapped-{i}"
        path.write_bytes(bytes(4096))
        yield path


def say(p, answer):
    p.stdin.write("\n")
    p.stdin.flush()
    expect(p.stdout.readline().strip() == answer, answer)


def listed(c, t):
    """How many mappings are known of how many processes."""
    target = next(x for x in c.call("target.list")["targets"] if x["id"] == t["id"])
    u = target["sample"]["unwound"]
    return u["mappings"] + u["mappings_waiting"] + u["mappings_without"], target["living"], target["processes"]


def start(*argv):
    p = spawn(sys.executable, "-c", HEIRS, *argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    expect(p.stdout.readline().strip() == "ready", "it is ready")
    return p


def arm(c, p, **kw):
    return c.call("target.arm", dict(pid=p.pid, stacks="bpf", backend="sample", **kw))["target"]


need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    paths = list(files())

    alone = start("0", *paths)
    t = arm(c, alone)
    wait_for("its mappings", lambda: listed(c, t)[0] > FILES)
    each = listed(c, t)[0]
    alone.kill()

    for i in range(8):
        p = start(str(CHILDREN), *paths)
        p.stdin.write("\n")
        p.stdin.flush()
        # Sooner and later among its forks, the first of which are just before it.
        time.sleep(i % 4 * 5e-3)
        t = arm(c, p, children=True)
        expect(p.stdout.readline().strip() == "forked", "it has forked")
        wait_for(f"{CHILDREN + 1} processes, each once", lambda: listed(c, t)[1:] == (CHILDREN + 1, CHILDREN + 1), timeout=60)
        wait_for(f"{each} mappings of each", lambda: listed(c, t)[0] == each * (CHILDREN + 1), timeout=60)
        say(p, "ended")
        c.call("target.disarm", {"target": t["id"]})
        p.kill()

    p = start(str(CHILDREN), *paths)
    t = arm(c, p)
    before = c.call("status")["capture"]["unwinding"]["processes"]
    say(p, "forked")
    say(p, "ended")
    # All records of before have been looked at then.
    bundle(c, t["id"])
    after = c.call("status")["capture"]["unwinding"]["processes"]
    expect(after <= before, f"nothing is kept of whom a target does not have: {before}, {after}")
