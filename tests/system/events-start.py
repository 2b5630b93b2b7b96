# SPDX-License-Identifier: Apache-2.0
"""A program starts its events whenever it likes: without a daemon it runs as if it had not, a daemon that
comes finds it, one that goes is not missed, and one that hangs delays nothing."""
import resource

from lib.eventshell import *

d = Tracerd()

# ---- without a daemon
p = Shell(d.sock)
before = fds_of(p.pid)
p.tell("stop", "ok")
for wrong in ("threads=1025", "events=100", "events=32", "names=16385", "flags=2", "size=4"):
    if p.tell(f"start {wrong}") != "EINVAL":
        fail(f"start {wrong} is not refused")
expect(fds_of(p.pid) == before and len(threads_of(p.pid)) == 1, "what is wrong with the options is said, and nothing begins")

p.tell("start", "ok")
p.tell("start", "ok")
wait_for("the first attempt", lambda: p.stats()["last_error"] == "ENOENT")
s = p.stats()
expect(not s["enabled"] and not s["connected"] and p.tell("instant lost") == "off" and p.tell("snapshot x") == "ENOTCONN",
       "without a daemon the program runs, and records nothing")
tid = threads_of(p.pid).get("tracerd")
if tid is None or len(threads_of(p.pid)) != 2:
    fail(f"the threads are {threads_of(p.pid)}")
blocked = int(re.search(r"SigBlk:\s*(\w+)", open(f"/proc/{p.pid}/task/{tid}/status").read())[1], 16)
# All but SIGKILL, SIGSTOP and the two that the C library keeps to itself.
expect(blocked | 0x1_8004_0100 == 0xffff_ffff_ffff_ffff, "the helper is named, alone, and has every signal blocked")
held = fds_of(p.pid)
expect(len(held) - len(before) == 3 and all(n > 2 for n in held), "three descriptors, as long as nobody is there")

# ---- it comes, and goes
d.start()
s = p.wait_connected()
expect(s["enabled"] and s["registrations"] == 1 and s["last_error"] == "ok", "a daemon that comes finds the program by itself")
p.tell("instant first", "ok")
p.tell("thread second", "ok")
with d.client() as c:
    t = wait_events(c, p.pid, "live")
    expect(t["backend"] == "events" and instants(c, t["id"]) == ["first", "second"], "its events are in a snapshot")
connected = fds_of(p.pid)
d.stop(signal.SIGKILL)
s = p.wait_alone()
expect(s["enabled"] and p.tell("instant between") == "ok" and p.tell("snapshot x") == "ENOTCONN",
       "the daemon is killed: the program goes on recording")
d.start()
s = p.wait_connected()
with d.client() as c:
    t = wait_events(c, p.pid, "live")
    p.tell("instant after", "ok")
    expect(s["registrations"] == 2 and instants(c, t["id"]) == ["first", "second", "between", "after"],
           "it comes back: the program too, with all that it has recorded")
    expect(sorted(fds_of(p.pid).values()) != [] and len(fds_of(p.pid)) == len(connected),
           "no descriptor more than the first time")

    # ---- stop, and start
    p.tell("stop", "ok")
    t = wait_events(c, p.pid, "ended")
    s = p.stats()
    expect(not s["enabled"] and not s["connected"] and p.tell("instant stopped") == "off" and
           list(threads_of(p.pid)) == ["eventshell"], "stopped: nothing is recorded, the helper has gone")
    expect(instants(c, t["id"])[-1] == "after", "what was recorded before can still be had")
    p.tell("start", "ok")
    p.wait_connected(3)
    p.tell("instant again", "ok")
    t = wait_events(c, p.pid, "live")
    expect(instants(c, t["id"]) == ["first", "second", "between", "after", "again"], "started again: everything is there, once")

# ---- the program's own loop
    q = Shell(d.sock)
    q.tell("start no-thread", "ok")
    q.wait_connected()
    q.tell("instant loop", "ok")
    expect(list(threads_of(q.pid)) == ["eventshell"] and instants(c, wait_events(c, q.pid, "live")["id"]) == ["loop"],
           "without a thread, the program's loop does it")
    small = Shell(d.sock, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
    small.tell("start no-thread", "ok")
    wait_for("no memory", lambda: small.stats()["last_error"] == "EFBIG")
    ok("a limit of the size of files does not end the program")
    small.end()
d.stop()
q.wait_alone()
p.wait_alone()
d.start()
q.wait_connected(2)
p.wait_connected(4)
ok("both find a daemon that was stopped and started")

# ---- a daemon that stands still
os.kill(d.pid, signal.SIGSTOP)
r = Shell(d.sock)
r.tell("start", "ok")
n = Shell(d.sock)
n.tell("start no-thread", "ok")
# Each answers, while the daemon does not: there is nothing of it that anybody waits for.
for shell in (p, q, r, n):
    shell.tell("region slow 1", "ok" if shell in (p, q) else "off")
    shell.stats()
expect(not r.stats()["connected"] and not n.stats()["connected"], "a daemon that stands still keeps nobody waiting")
r.tell("stop", "ok")
n.tell("stop", "ok")
p.tell("stop", "ok")
ok("nor when they stop")
r.tell("start", "ok")
os.kill(d.pid, signal.SIGCONT)
r.wait_connected()
ok("it is found when it goes on")
for shell in (p, q, r, n):
    shell.end()
if d.stop():
    fail("tracerd did not end well")
