#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# An ordinary user's family: what it forks and executes is recorded from its first instruction, as the kernel says that he may look
# into it. What he may not look into is in no snapshot, in no way, and is counted: set-user-ID and set-group-ID programs, files that
# he may execute but not read, processes that do not let themselves be looked at, whether they were there before or came later.
import shutil
import threading

from lib.capture import *

NOBODY = 65534
LOOP = "i=0; while [ $i -lt %d ]; do i=$((i+1)); done"
SCENE = r"""
say() { echo "$1 $2"; }
while read word count; do
	case $word in
	plain) sh -c "echo plain \$\$; $LOOP" ;;
	zombie) sh -c 'sleep 1000 & echo zombie $!; exec sleep 1000' & ;;
	twice) sh -c "echo twice \$\$; $LOOP; exec sh -c '$LOOP'" ;;
	suid|sgid|mode) sh -c "echo $word \$\$; $LOOP; exec $HERE/$word -p -c '$LOOP'" ;;
	back) sh -c "echo back \$\$; exec $HERE/suid -p -c '$LOOP; exec setpriv --reuid 65534 --regid 65534 --clear-groups sh -c \"$LOOP\"'" ;;
	storm) i=0; while [ $i -lt $count ]; do /bin/true; i=$((i+1)); done ;;
	quit) exec sh -c "$LOOP; sleep 1000" ;;
	esac
	echo "done 0"
done
"""
CLOSES_ITSELF = """
import ctypes, sys
print("ready", flush=True)
sys.stdin.readline()
sum(range(10**7))
ctypes.CDLL(None).prctl(4, 0)
print("closed", flush=True)
sys.stdin.read()
"""


def sampled(recs):
    return {r.pid for r in recs if r.type == SAMPLE}


class Scene:
    def __init__(self, here):
        self.kin = {}
        self.process = spawn("/bin/sh", "-c", SCENE, uid=NOBODY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                             env={"HERE": str(here), "LOOP": LOOP % 400000, "PATH": "/usr/bin:/bin"})
        self.pid = self.process.pid

    def tell(self, text):
        self.process.stdin.write(text + "\n")
        while (words := self.process.stdout.readline().split()) and words[0] != "done":
            self.kin[words[0]] = int(words[1])


need_root("set-user-ID programs")
here = pathlib.Path(tempfile.mkdtemp(prefix="tracerd-family-"))
try:
    here.chmod(0o755)
    for name, mode in (("suid", 0o4755), ("sgid", 0o2755), ("mode", 0o111)):
        shutil.copyfile("/bin/sh", here / name)
        (here / name).chmod(mode)
    with Tracerd() as d:
        if d.client().call("status")["backends"]["sample"]["method"] != "cpu":
            skip("no cpu-wide events or no BPF here")
        s = Scene(here)

        ours, his = socket.socketpair()

        def stopper():
            with ours.makefile("rb", buffering=0) as words:
                for word in words:
                    os.kill(d.pid, signal.SIGSTOP if word == b"stop\n" else signal.SIGCONT)
                    ours.sendall(b"done\n")
        threading.Thread(target=stopper, daemon=True).start()

        def user():
            answer_r, answer_w = his.makefile("rb", buffering=0), his.makefile("wb", buffering=0)
            with Client(d.sock) as u:
                t = u.call("target.arm", {"pid": s.pid, "fds": ["maps"], "children": True, "backend": "sample", "stacks": "fp"}, [open_maps(s.pid)])["target"]
                expect(t["children"] and t["uid"] == NOBODY, "an ordinary user arms a family")

                def look():
                    meta, recs, snapshot = bundle(u, t["id"])
                    told = snapshot["summary"].get("losses", {}).get("processes left out", {}).get("count", 0)
                    if told != meta["losses"]["processes_refused"]:
                        fail(f"what is left out is in the summary: {snapshot['summary'].get('losses')}, {meta['losses']}")
                    return meta, recs, {p["pid"] for p in meta["processes"]}

                def pieces(recs, pid):
                    execs = [r.time for r in recs if r.type == COMM and r.pid == pid and r.misc & (1 << 13)]
                    ticks = [r.time for r in recs if r.type == SAMPLE and r.id == CLOCK and r.pid == pid]
                    return [sum(a <= at < b for at in ticks) for a, b in zip([0] + execs, execs + [1 << 63])]

                s.tell("plain")
                s.tell("twice")
                meta, recs, pids = look()
                expect(s.kin["plain"] in pids and pieces(recs, s.kin["plain"])[-1] > 10, "a program that it starts is recorded")
                expect(len(p := pieces(recs, s.kin["twice"])) == 3 and min(p[1:]) > 10, f"so is one that executes another: {p}")
                expect(any(r.type == MMAP2 and r.pid == s.kin["plain"] and b"libc" in r.body for r in recs), "with what it maps")
                expect(meta["losses"]["processes_refused"] == 0, "and all of it may be seen")
                # One that has ended, and has not been waited for: it was his until its end, though it is root's now.
                s.process.stdin.write("zombie\n")
                pid = int(dict(s.process.stdout.readline().split() for _ in range(2))["zombie"])
                # What they were before they executed it may have come to nothing: the kernel was asked too late.
                wait_for("they may be seen", lambda: len([p for p in look()[0]["processes"] if p["comm"] == "sleep" and p["to_ns"] is None]) == 2)
                before = look()[0]["losses"]["processes_refused"]
                parent = int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])
                os.kill(pid, signal.SIGKILL)
                wait_for("its end", lambda: open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0] == "Z")
                meta, recs, pids = look()
                last = [p["comm"] for p in meta["processes"] if p["pid"] == pid]
                expect("sleep" in last and meta["losses"]["processes_refused"] == before,
                       f"one that has just ended is there, though nobody has waited for it: {last} {meta['losses']['processes_refused']} {before}")
                os.kill(parent, signal.SIGKILL)
                for word, what in (("suid", "a set-user-ID program"), ("sgid", "a set-group-ID program"), ("mode", "a file that he may not read")):
                    s.tell(word)
                    meta, recs, pids = look()
                    pid = s.kin[word]
                    began = pieces(recs, pid)
                    expect(pid in pids and len(began) == 2 and began[1] > 10, f"what comes to execute {what} is recorded before: {began}")
                    until = max(p["to_ns"] or 1 << 63 for p in meta["processes"] if p["pid"] == pid)
                    expect(not [r for r in recs if r.pid == pid and r.time > until and r.type != EXIT], f"and not as {what}")
                    files = u.fetch(u.snapshot(t["id"])["id"])
                    named = [f for f, data in files.items() if str(here / word).encode() in data]
                    expect(len(files) > 2 and not named, f"no file of the bundle names it: {named}")
                    expect(meta["losses"]["processes_refused"] > before, "which is counted")
                    ended = [r.time for r in recs if r.type == EXIT and r.pid == pid]
                    expect(ended and min(ended) == until, "its thread has left the picture, and does not wait on in it")
                lost = u.call("target.show", {"target": t["id"]})["target"]
                expect(lost["lost"]["refused"] >= 3 and any("may not look into them" in w for w in lost["warnings"]), f"and told: {lost['lost']}")
                s.tell("back")
                meta, recs, pids = look()
                mine = pieces(recs, s.kin["back"])
                texts = b"".join(r.body for r in recs if r.pid == s.kin["back"])
                expect(str(here).encode() not in texts, "one that becomes his again shows nothing of what it was")
                s.tell("storm 200")
                meta, recs, pids = look()
                expect(len(pids) > 100, f"of 200 that end at once those that were known in time are there: {len(pids)}, {meta['losses']['processes_refused']} are counted as not known")
                s.process.stdin.write("quit\n")
                wait_for("it executes another program", lambda: (l := u.call("target.show", {"target": t["id"]})["target"])["state"] == "armed" and "sleep" in open(f"/proc/{s.pid}/cmdline").read())
                wait_for("that is recorded, too", lambda: (p := pieces(look()[1], s.pid)) and len(p) > 1 and p[-1] > 10)
                expect(u.call("target.show", {"target": t["id"]})["target"]["state"] == "armed", "the family's first process executes another program, and it goes on")

                # Who was there before.
                parent = subprocess.Popen(["/bin/sh", "-c", f"{here}/suid -p -c 'echo suid $$; {LOOP % 10**9}' & sh -c 'echo plain $$; {LOOP % 10**9}' & wait"],
                                          stdout=subprocess.PIPE, text=True)
                kin = {}
                wait_for("two children", lambda: len(os.listdir(f"/proc/{parent.pid}/task")) and len(open(f"/proc/{parent.pid}/task/{parent.pid}/children").read().split()) == 2)
                for pid in map(int, open(f"/proc/{parent.pid}/task/{parent.pid}/children").read().split()):
                    wait_for("its program", lambda: " -c" in open(f"/proc/{pid}/cmdline").read().replace("\0", " ") and "wait" not in open(f"/proc/{pid}/cmdline").read())
                    kin["suid" if str(here) in open(f"/proc/{pid}/cmdline").read() else "plain"] = pid
                t2 = u.call("target.arm", {"pid": parent.pid, "fds": ["maps"], "children": True, "backend": "sample", "stacks": "fp"}, [open_maps(parent.pid)])["target"]
                wait_for("its child is seen", lambda: kin["plain"] in sampled(bundle(u, t2["id"])[1]))
                meta, recs, _ = bundle(u, t2["id"])
                expect(not {r.pid for r in recs} & {kin["suid"]} and kin["suid"] not in {p["pid"] for p in meta["processes"]}, "and not one that is another user's, though it was there before")
                # The parent's own stack has its arguments.
                named = [(r.type, r.pid) for r in recs if str(here).encode() in r.body and r.pid != parent.pid]
                expect(not named, f"nor a name of it: {named}")
                subprocess.run(["pkill", "-P", str(parent.pid)])
                parent.kill()

                # The daemon misses an exec: there is more on the machine than its rings hold.
                cpus = os.sched_getaffinity(0)
                pin = lambda: os.sched_setaffinity(0, {min(cpus)})
                lossy = subprocess.Popen(["/bin/sh", "-c", f"read go; {here}/suid -p -c '{LOOP % 10**9}'; exit 0"], stdin=subprocess.PIPE, text=True, preexec_fn=pin)
                alone = subprocess.Popen(["/bin/sh", "-c", f"read go; exec {here}/suid -p -c '{LOOP % 10**9}'"], stdin=subprocess.PIPE, text=True, preexec_fn=pin)
                plain = subprocess.Popen(["/bin/sh", "-c", LOOP % 10**9])
                # The second one's last exec is on another CPU, whose ring has room.
                again, elsewhere = (subprocess.Popen(["/bin/sh", "-c", f"read go; exec {here}/suid -p -c '{LOOP % 300000}; exec {move} setpriv --reuid {NOBODY} --regid {NOBODY} --clear-groups sh -c \"{LOOP % 10**9}\"'"],
                                                     stdin=subprocess.PIPE, text=True, preexec_fn=pin) for move in ("", f"taskset -c {max(cpus)}"))
                t4 = u.call("target.arm", {"pid": lossy.pid, "fds": ["maps"], "children": True, "backend": "sample", "stacks": "fp"}, [open_maps(lossy.pid)])["target"]
                t5, t6 = u.arm(alone.pid, stacks="fp", backend="sample"), u.arm(plain.pid, stacks="fp", backend="sample")
                lost = lambda: u.call("status")["losses"]["history_lost"]
                twice = [(p, u.arm(p.pid, stacks="fp", backend="sample")["id"]) for p in (again, elsewhere)]
                before, gone = lost(), time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
                answer_w.write(b"stop\n")
                answer_r.readline()
                subprocess.run(["/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done"], check=True, preexec_fn=pin)
                for p in (lossy, alone, again, elsewhere):
                    p.stdin.write("go\n")
                    p.stdin.flush()
                wait_for("they execute", lambda: str(here) in open(f"/proc/{alone.pid}/cmdline").read())
                wait_for("they are his again", lambda: all(open(f"/proc/{p.pid}/cmdline").read().startswith("sh\0") for p in (again, elsewhere)))
                back = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
                answer_w.write(b"go\n")
                answer_r.readline()
                wait_for("the loss", lambda: lost() > before)
                wait_for("it is suspended", lambda: u.call("target.show", {"target": t5["id"]})["target"]["state"] == "suspended")
                time.sleep(0.5)
                for t in (t4, t5):
                    meta, recs, _ = bundle(u, t["id"])
                    named = [(r.type, r.pid) for r in recs if f"{here}/suid".encode() in r.body and r.type != SAMPLE]
                    expect(not named, f"an exec that nobody saw shows nothing: {named}")
                wait_for("it is seen", lambda: [r for r in bundle(u, t6["id"])[1] if r.type == SAMPLE and r.pid == plain.pid])
                expect(u.call("target.show", {"target": t6["id"]})["target"]["state"] == "armed", "who may be seen goes on")
                meta, recs, _ = bundle(u, t6["id"])
                expect(any("right to see it" in g["kind"] and g["to_ns"] >= back for g in meta["gaps"]), f"with a gap, since it may have been something else: {meta['gaps']}")
                # The record of its exec may be in the ring of a CPU that had room: then it is suspended.
                for p, t in twice:
                    state = lambda: u.call("target.show", {"target": t})["target"]["state"]
                    wait_for("it is seen again", lambda: state() == "suspended" or
                             [r for r in bundle(u, t)[1] if r.type == SAMPLE and r.pid == p.pid and r.time > back])
                    meta, recs, _ = bundle(u, t)
                    seen = [(r.type, r.time) for r in recs if r.pid == p.pid and gone + 2 * 10**8 < r.time < back]
                    expect(not seen, f"one that was something else meanwhile shows nothing of it: {len(seen)} of {len(recs)}, {state()}, {meta['gaps']}")
                for p in (lossy, alone, plain, again, elsewhere):
                    p.kill()

                # One that does not let itself be looked at any more.
                q = subprocess.Popen([interpreter(), "-c", CLOSES_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
                q.stdout.readline()
                t3 = u.call("target.arm", {"pid": q.pid, "fds": ["maps"], "children": True, "backend": "sample", "stacks": "fp"}, [open_maps(q.pid)])["target"]
                expect(q.pid in {p["pid"] for p in bundle(u, t3["id"])[0]["processes"]}, "one that may be seen is")
                q.stdin.write("go\n")
                q.stdout.readline()
                meta, recs, _ = bundle(u, t3["id"])
                seen = collections.Counter(r.type for r in recs if r.pid == q.pid)
                expect(not meta["processes"] and not seen and meta["losses"]["processes_refused"] == 1,
                       f"and when it has closed itself it is not, nor what it did before: {meta['processes']} {dict(seen)} {meta['losses']}")
                q.stdin.close()
                q.wait()

                # And one that has ended when the snapshot comes: what it was was looked at before.
                for children in (True, False):
                    q = subprocess.Popen([interpreter(), "-c", CLOSES_ITSELF], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
                    q.stdout.readline()
                    t8 = u.arm(q.pid, children=children, backend="sample", stacks="fp")
                    q.stdin.write("go\n")
                    q.stdout.readline()
                    show = lambda: u.call("target.show", {"target": t8["id"]})["target"]
                    wait_for("it is seen to hide", lambda: show()["lost"]["refused"] == 1 if children else
                             t8["id"] not in {x["id"] for x in u.call("target.list")["targets"]})
                    q.stdin.close()
                    q.wait()
                    if children:
                        wait_for("its end", lambda: show()["state"] == "exited")
                        meta, recs, _ = bundle(u, t8["id"])
                        expect(not meta["processes"] and not [r for r in recs if r.pid == q.pid], "one that hid and ended is not there, either")
                    else:
                        expect(u.call_error("snapshot.create", {"target": t8["id"]}) == "not_found", "nor as a target by itself")

                # What it forks is not his by its parent's being his.
                q = subprocess.Popen([interpreter(), "-c", CLOSES_ITSELF.replace("closed", "closed {kin}").replace('print("closed', 'kin = os.fork() or os._exit(0)\nos.waitpid(kin, 0)\nprint(f"closed')
                                      .replace("import", "import os,")], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
                q.stdout.readline()
                t9 = u.arm(q.pid, children=True, backend="sample", stacks="fp")
                q.stdin.write("go\n")
                kin = int(q.stdout.readline().split()[1])
                wait_for("its fork is known", lambda: u.call("target.show", {"target": t9["id"]})["target"]["processes"] > 1)
                meta, recs, _ = bundle(u, t9["id"])
                expect(kin not in {p["pid"] for p in meta["processes"]}, f"a child of one that hides is not his by that: {meta['processes']}")
                q.stdin.close()
                q.wait()
        if as_user(NOBODY, user) != 0:
            fail("the user's half")
finally:
    subprocess.run(["pkill", "-KILL", "-f", str(here)])
    shutil.rmtree(here)
