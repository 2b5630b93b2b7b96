#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""arm --host by samples: every process of the machine, of any user, those that run and sleep and those that are started later; beside it
targets of single processes are as before. For administrators only. What may not be read refuses nothing, and is told."""
from lib.capture import *

USER = 12349
need_root("every process")
tmp().chmod(0o755)


with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu" or c.call("status")["backends"]["pt"]["available"]:
        skip("no cpu-wide events or no BPF here, or Intel PT would record it")

    def user():
        with Client(d.sock) as u:
            if u.call_error("target.arm", {"scope": "host"}) != "not_permitted":
                fail("an ordinary user records the host")

    expect(as_user(USER, user) == 0, "an ordinary user records no host")
    mine, theirs = Target("hostmine"), spawn(interpreter(), "-c", TARGET, "hosttheirs", uid=USER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    theirs.stdout.readline()
    sleeper = spawn(BUILD / "tests/programs/sleepers", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    sleeper.stdout.readline()
    r = d.tracectl("arm", "--host", "--backend=sample", "--stacks=fp")
    expect(r.returncode == 0 and "armed t1: the host" in r.stdout, f"armed: {r.stdout}{r.stderr}")
    host = c.call("target.list")["targets"][0]
    expect(host["scope"] == "host" and host["method"] == "cgroup" and host["living"] > 3, f"with who is there: {host['living']} processes")
    for pid in (p for p in os.listdir("/proc") if p.isdigit()):
        try:
            with open(f"/proc/{pid}/maps") as f:
                f.read(1)
        except PermissionError:
            expect(any("may not be read" in w for w in host["warnings"]), f"{pid} may not be read, which is told: {host['warnings']}")
            break
        except OSError:
            pass
    r = d.tracectl("arm", "--host", "--backend=sample", "--stacks=fp")
    expect(r.returncode == 0 and "armed already" in r.stdout, f"once is enough: {r.stdout}{r.stderr}")
    beside = c.arm(mine.pid, stacks="fp")["id"]
    # Of those that are started later, and end at once.
    later = [spawn("/bin/sh", "-c", ":") for _ in range(50)]
    pids = {p.pid for p in later}
    for p in later:
        p.wait()
    let_work(mine.pid, seconds=0.2)
    let_work(theirs.pid, seconds=0.2)
    got = {}

    def seen():
        got["meta"], got["recs"], got["s"] = bundle(c, "t1")
        return {mine.pid, theirs.pid} <= {r.pid for r in got["recs"] if r.type == SAMPLE and r.id == CLOCK}

    wait_for("both users' programs sampled in one snapshot", seen)
    meta, recs = got["meta"], got["recs"]
    known = {p["pid"] for p in meta["processes"]}
    losses = meta["losses"]
    # Other tests run on this machine, too, and may start more than can be kept.
    expect(pids <= known or losses["history_lost"] or losses["history_dropped"] or meta["target"]["warnings"],
           f"those that ended at once are known, or it is told: {len(pids - known)} of {len(pids)} are not; {losses}")
    note(f"{len(known)} processes, {losses}")
    asleep = {r.tid for r in recs if r.id in (BLOCKED, BLOCKED_ARMED) and r.pid == sleeper.pid}
    wanted = {thread_named(sleeper.pid, name) for name in ("reader", "poller", "getter", "napper")}
    expect(wanted <= asleep, f"who sleeps all the time has a stack: {asleep}, {wanted}")
    # The single one is as before.
    let_work(mine.pid, seconds=0.1)
    meta, recs, _ = bundle(c, beside)
    expect({r.pid for r in recs if r.type == SAMPLE} == {mine.pid}, "a target of one process has that alone")
    c.call("target.disarm", {"target": "t1"})
    let_work(mine.pid, seconds=0.1)
    meta, recs, _ = bundle(c, beside)
    expect(any(r.pid == mine.pid and r.id == CLOCK for r in recs), "and goes on when the host is disarmed")
