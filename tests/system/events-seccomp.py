# SPDX-License-Identifier: Apache-2.0
"""A program under a seccomp filter that allows exactly the system calls that docs/events.md names lives through all that the
library does. Under one that allows less, and lets the others fail, the library says what keeps it from its work."""
from lib.eventshell import *

if os.environ.get("TRACERD_SANITIZED"):
    skip("a sanitizer's runtime makes system calls of its own")
if os.uname().machine != "x86_64":
    skip("the system calls of x86-64")
# The program's own, to be told and to answer.
OWN = {"ppoll", "read", "write", "clock_nanosleep", "exit_group"}
lines = (SRC / "docs" / "events.md").read_text().split("\n\n")
events, helper = (set(re.findall(r"`([a-z][a-z0-9_]+)`", re.sub(r"`\w+\(\)`", "", p))) | {"prctl"} for p in lines
                  if p.startswith(("A program whose seccomp filter", "The library's thread is the program's")))
helper -= {"connected", "last_error"}
note(f"of the events: {sorted(events)}; of the thread: {sorted(helper)}")


def confine(p, how, names):
    if int(p.tell(" ".join(["filter", how, *sorted(names)]))) != len(names):
        fail("the filter is not what it should be")


def hit(c, p):
    """A region that takes too long takes its snapshot."""
    t = wait_events(c, p.pid, "live")
    g = c.call("trigger.add", {"target": t["id"], "region": "slow", "over_ns": 1000000, "cooldown_ns": 0})["trigger"]["id"]
    hits = lambda: next(x["hits"] for x in c.call("trigger.list")["triggers"] if x["id"] == g)
    wait_for("a region that is too long", lambda: p.tell("region slow 2", "ok") and hits() > 0)
    wait_for("its snapshot", lambda: [s for s in c.call("snapshot.list")["snapshots"] if s["state"] == "done"])


d = Tracerd()
for flags in ("", " no-thread"):
    p = Shell(d.sock)
    p.tell("start" + flags, "ok")
    wait_for("the first attempt", lambda: p.stats()["last_error"] == "ENOENT")
    confine(p, "kill", OWN | events | helper)
    p.tell("instant early", "off")
    d.start()
    p.wait_connected()
    with d.client() as c:
        for line in ("instant first", "log text", "snapshot why"):
            p.tell(line, "ok")
        hit(c, p)
    d.stop()
    p.wait_alone()
    d.start()
    p.wait_connected(2)
    with d.client() as c:
        hit(c, p)
    p.tell("stop", "ok")
    p.tell("start" + flags, "ok")
    p.wait_connected()
    p.tell("thread second", "ok")
    p.tell("stop", "ok")
    p.end()
    d.stop()
    ok(f"no call of the library is missing in the list{flags}")

# ---- less, and a filter that lets the others fail
d.start()
for lacks in ({"epoll_wait"}, {"poll"}, helper - OWN - events):
    p = Shell(d.sock)
    p.tell("start", "ok")
    p.wait_connected()
    confine(p, "errno", (OWN | events | helper) - lacks)
    with d.client() as c:
        t = target_of(c, p.pid)
        c.call("trigger.add", {"target": t["id"], "region": "slow", "over_ns": 1000000})
    s = p.wait_alone()
    expect(s["last_error"] == "EPERM" and p.tell("snapshot x") == "ENOTCONN", f"who is kept from its work says so: {sorted(lacks)[:3]}")
    p.end()
if d.stop():
    fail("tracerd did not end well")
