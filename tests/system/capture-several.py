#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Several processes are one target, with one timeline: armed together or one after the other, by root or by a user. It ends with the
# last of them. Nobody has a process join that he may not look into, and who asks and goes leaves nothing behind.
from lib.capture import *

NOBODY = 65534


def sampled(recs):
    return {r.pid for r in recs if r.type == SAMPLE and r.id == CLOCK}


def join(c, target, pid, **kw):
    return c.call("target.join", {"target": target, "pid": pid, "fds": ["maps"], **kw}, [open_maps(pid)])["target"]


need_root("processes of several users")
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    a, b, e = Target("first"), Target("second"), Target("third")
    r = d.tracectl("arm", "--backend=sample", "--stacks=fp", a.pid, b.pid, e.pid)
    expect(r.returncode == 0 and "armed t1: first" in r.stdout and f"armed in t1: process {e.pid} (t1 has 3 processes)" in r.stdout, f"three are one target: {r.stdout.strip()}")
    r = d.tracectl("arm", "--backend=sample", "--stacks=fp", a.pid, b.pid)
    expect(r.returncode == 0 and f"armed already in t1: process {b.pid}" in r.stdout, f"armed again they are what they were: {r.stdout.strip()}")
    for t in (a, b, e):
        let_work(t.pid, seconds=0.2)
    r = d.tracectl("snapshot", a.pid, b.pid, e.pid, "--reason", "together")
    expect(r.returncode == 0 and r.stdout.count("snapshot 2") == 1, f"a snapshot of all is one: {r.stdout[:100]} {r.stderr}")
    expect(all(f", of process {t.pid} " in r.stdout for t in (a, b, e)), f"each thread says of which process it is: {r.stdout}")
    listed, shown = d.tracectl("list").stdout, d.tracectl("show", "t1").stdout
    expect("first and 2 more" in listed and "3, of which 3 live" in shown, f"a target of several says so: {listed}{shown}")
    meta, recs, _ = bundle(c, "t1")
    expect(sampled(recs) == {a.pid, b.pid, e.pid} == {p["pid"] for p in meta["processes"]}, "with all three")
    expect({a.pid, b.pid, e.pid} <= {r.pid for r in recs if r.type == MMAP2 and b"libc" in r.body}, "and what they had mapped")
    child = b.fork()
    expect(child not in {p["pid"] for p in bundle(c, "t1")[0]["processes"]}, "what they start is not recorded unless that is asked for")
    a.kill()
    wait_for("the first has left", lambda: c.call("target.show", {"target": "t1"})["target"]["living"] == 2)
    expect(c.call("target.show", {"target": "t1"})["target"]["state"] == "armed", "the first one's end is not the target's")
    let_work(b.pid, seconds=0.2)
    expect({a.pid, b.pid} <= sampled(bundle(c, "t1")[1]), "its past is there, and the others go on")
    b.kill()
    e.kill()
    wait_for("the last one's end is", lambda: c.call("target.show", {"target": "t1"})["target"]["state"] == "exited")
    ok("the last one's end is")

    mine, too, theirs = Target("mine", uid=NOBODY), Target("too", uid=NOBODY), Target("theirs")
    t2 = c.arm(theirs.pid, stacks="fp", backend="sample")["id"]
    thread = c.call("target.arm", {"tid": theirs.pid, "backend": "sample"})["target"]["id"]

    def user():
        with Client(d.sock) as u:
            t = u.arm(mine.pid, stacks="fp", backend="sample")["id"]
            expect(join(u, t, too.pid)["living"] == 2, "a user has a second process join")
            expect(u.call_error("target.join", {"target": t, "pid": theirs.pid}) == "not_permitted", "not another's")
            expect(u.call_error("target.join", {"target": t, "pid": theirs.pid, "fds": ["maps"]}, [open_maps(os.getpid())]) == "not_permitted", "nor by a proof of another one")
            expect(u.call_error("target.join", {"target": t, "pid": os.getpid()}) == "not_permitted", "nor without any")
            expect(u.call_error("target.join", {"target": t, "pid": os.getpid(), "fds": ["maps"]}, [open_maps(mine.pid)]) == "not_permitted", "nor by that of his own other one")
            expect(u.call_error("target.join", {"target": t2, "pid": too.pid, "fds": ["maps"]}, [open_maps(too.pid)]) == "not_found", "nor to another's target")
            expect(u.call_error("target.join", {"target": t, "pid": 1 << 22, "fds": ["maps"]}, [open_maps(too.pid)]) in ("gone", "bad_params"), "nor who is not there")
            for pid in (mine.pid, too.pid):
                let_work(pid, seconds=0.2)
            meta, recs, _ = bundle(u, t)
            expect(sampled(recs) == {mine.pid, too.pid}, "both are on his timeline")
            # Who asks and goes.
            q = subprocess.Popen([interpreter(), "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
            for _ in range(20):
                hasty = Client(d.sock)
                hasty.send("target.join", {"target": t, "pid": q.pid, "fds": ["maps"]}, [open_maps(q.pid)])
                hasty.close()
            join(u, t, q.pid)
            wait_for("it has joined", lambda: u.call("target.show", {"target": t})["target"]["living"] == 3)
            q.stdin.close()
            q.wait()
            wait_for("and left", lambda: u.call("target.show", {"target": t})["target"]["living"] == 2)
            # Many at once, some of which end.
            crowd = [subprocess.Popen(["/bin/sleep", "0.05" if i % 3 == 0 else "1000"]) for i in range(30)]
            answers = []
            for p in crowd:
                try:
                    answers.append(join(u, t, p.pid) and "ok")
                except (Error, FileNotFoundError, ProcessLookupError, PermissionError) as e:
                    answers.append(getattr(e, "code", "gone"))
            expect(set(answers) <= {"ok", "gone", "not_permitted"} and answers.count("ok") >= 20, f"of thirty, of which some end: {collections.Counter(answers)}")
            for p in crowd:
                p.kill()
                p.wait()
            wait_for("they have left", lambda: u.call("target.show", {"target": t})["target"]["living"] == 2)
            u.call("target.disarm", {"target": t})
    if as_user(NOBODY, user) != 0:
        fail("the user's half")

    expect(c.call_error("target.join", {"target": thread, "pid": mine.pid}) == "bad_params", "a thread's target is no target of processes")
    expect(join(c, t2, mine.pid)["uid"] == 0, "what has processes of several users is root's")
    for pid in (mine.pid, theirs.pid):
        let_work(pid, seconds=0.2)
    meta, recs, s = bundle(c, t2)
    expect(sampled(recs) == {mine.pid, theirs.pid}, "and has both")

    def user():
        with Client(d.sock) as u:
            expect(u.call_error("snapshot.show", {"snapshot": s["id"]}) == "not_found" and u.call_error("target.show", {"target": t2}) == "not_found",
                   "which the user does not see")
    if as_user(NOBODY, user) != 0:
        fail("the user's second half")
