#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Targets that tracerd-step records, by the real tracectl: what the trace says that a program called is what it called,
in the first snapshot and in later ones, while it lives and after its end, for root and for a user; and whatever ends
the recording, the program goes on by itself.

The trace processor's part: see lib/tp.py."""
import pathlib
import re
import shutil

from lib.step import *
from lib.tp import TROUBLE, Engine

NOBODY = 65534
SCENE = BUILD / "tests" / "programs" / "stepscene"


class Scene:
    """tests/programs/stepscene.c"""

    def __init__(self, *args, uid=None, d=None):
        self.process = spawn(tmp() / "bin" / "stepscene", *args, uid=uid, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                             env={**os.environ, **({"TRACERD_SOCKET": str(d.sock)} if d else {})})
        self.pid = self.process.pid
        self.expect("ready 0")

    def expect(self, words):
        line = b""
        while not line.endswith(b"\n"):
            if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
                fail(f"the program does not say {words!r}")
            byte = os.read(self.process.stdout.fileno(), 1)
            if not byte:
                fail(f"the program ends instead of saying {words!r}")
            line += byte
        if line.decode().strip() != words:
            fail(f"the program says {line!r}, not {words!r}")

    def do(self, what, n):
        self.process.stdin.write(f"{what} {n}\n".encode())
        self.expect(f"done {n}")

    def exit(self):
        self.process.stdin.write(b"exit\n")
        if self.process.wait(PATIENCE) != 0:
            fail(f"the program ended with {self.process.returncode}")


def tracer_of(pid):
    with open(f"/proc/{pid}/status") as f:
        return int(next(line for line in f if line.startswith("TracerPid:")).split()[1])


def steppers(pid):
    """The processes of the stepper of `pid`, what the kernel calls its tracer included: {pid: name}"""
    found = {}
    for p in os.listdir("/proc"):
        try:
            with open(f"/proc/{p}/cmdline", "rb") as f:
                words = f.read().split(b"\0")
            with open(f"/proc/{p}/comm") as f:
                name = f.read().strip()
        except OSError:
            continue
        if words and words[0].endswith(b"tracerd-step") and str(pid).encode() in words:
            found[int(p)] = name
    return found


def on_its_own(scene, what, n=50):
    """Nobody traces it, nobody is left that did, and it works."""
    wait_for(f"{what}: nobody traces it", lambda: tracer_of(scene.pid) == 0)
    wait_for(f"{what}: the stepper ends", lambda: not steppers(scene.pid))
    scene.do("work", n)
    ok(f"{what}: the program goes on by itself")


def ctl(d, *args, rc=0, **kw):
    p = d.tracectl(*args, **kw)
    if p.returncode != rc:
        fail(f"tracectl {args}: {p.returncode}, not {rc}: {p.stdout} {p.stderr}")
    return p


def as_nobody():
    return {"user": NOBODY, "group": NOBODY, "extra_groups": [], "program": tmp() / "bin" / "tracectl"}


def bundle_of(c, snapshot, name):
    """All files in a directory of that name, and its meta.json."""
    out = tmp() / name
    for file, data in c.fetch(snapshot).items():
        path = out / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return out, json.loads((out / "meta.json").read_text())


def engine_counts(trace, functions, check):
    e = Engine(trace)
    if not e.works():
        note("no trace processor (TRACERD_TP): its part is left out")
        return None
    trouble, *counts = e.ask((TROUBLE, 1), *((f"select count(*) from slice where name = '{f}'", 1) for f in functions))
    if trouble != [["NULL"]]:
        fail(f"the trace is imported with {trouble}")
    check(e)
    return {f: int(rows[0][0]) for f, rows in zip(functions, counts)}


def snapshot(c, target, name):
    n = c.snapshot(target)
    if n["state"] != "done":
        fail(f"{name}: {n['state']} {n['error']}")
    out, meta = bundle_of(c, n["id"], name)
    if meta["events"]["backend"] != "step" or not meta["events"]["step"]["recorded"]:
        fail(f"{name}: {meta['events']}")
    return n, out, meta


def check_calls(out, meta, works, leaves, what, check=lambda e: None):
    """Both decoders, and the engine, find as many calls as there were; nothing is lost."""
    stats, losses = meta["decoder"]["stats"], meta["decoder"]["losses"]
    got = engine_counts(out / "trace.pftrace", ("scene_work", "scene_leaf"), check)
    if got and got != {"scene_work": works, "scene_leaf": leaves}:
        fail(f"{what}: {got} in the trace, not {works} and {leaves}")
    p = subprocess.run([BUILD / "tracectl", "decode", out, "--format", "text", "--calls", "-o", "-"], capture_output=True,
                       text=True, timeout=PATIENCE)
    lines = p.stdout.splitlines()
    leaf = sum(1 for line in lines if "scene_leaf (" in line and "} scene_leaf" not in line)
    work = sum(1 for line in lines if "scene_work (" in line and "} scene_work" not in line)
    if p.returncode or (work, leaf) != (works, leaves):
        fail(f"{what}: tracectl decode finds {work} and {leaf} calls, not {works} and {leaves}: {p.stderr}")
    if losses or meta["cut"]:
        fail(f"{what}: losses {losses}, {meta['cut']}")
    ok(f"{what}: {works} and {leaves} calls, {stats['instructions']} instructions, nothing is missing")


# ---- root's

def jit_part(d, c):
    """Code that is in no file."""
    scene = Scene()
    names = pathlib.Path(f"/tmp/perf-{scene.pid}.map")
    ctl(d, "arm", "--backend", "step", scene.pid)
    try:
        scene.do("jit", 6)
        n, out, meta = snapshot(c, str(scene.pid), "jit")
        expect((out / "images" / "tracerd-step.code").read_bytes()[:4] == b"\177ELF", "generated code is in the bundle")
        p = subprocess.run([BUILD / "tracectl", "decode", out, "--format", "text", "--calls", "-o", "-"], capture_output=True,
                           text=True, timeout=PATIENCE)
        found = sum("scene_jit ([jit])" in line and "} scene_jit" not in line for line in p.stdout.splitlines())
        missing = meta["decoder"]["losses"]
        expect(found == 6 and meta["decoder"]["stats"]["perf_maps"] == 1 and not missing,
               f"and its calls are found, by the names of the perf map {missing or ''}")
    finally:
        names.unlink(missing_ok=True)
    ctl(d, "disarm", scene.pid)
    scene.exit()


def root_part(d, c):
    scene = Scene()
    p = ctl(d, "arm", "--backend", "step", scene.pid)
    expect("every instruction, by tracerd-step" in p.stdout, f"tracectl arm --backend step: {p.stdout.strip()}")
    t = c.call("target.show", {"target": str(scene.pid)})["target"]
    expect(t["backend"] == "step" and t["state"] == "armed" and tracer_of(scene.pid) != 0, "the program is stepped")
    scene.do("work", 17)
    n, out, meta = snapshot(c, t["id"], "first")
    check_calls(out, meta, 1, 17, "what it did")
    scene.do("thread", 5)
    scene.do("fork", 3)
    n, out, meta = snapshot(c, t["id"], "second")
    check_calls(out, meta, 3, 25, "a thread's and a child's, too, and all that was before")
    step = meta["events"]["step"]
    expect(step["threads_all"] == 3 and step["processes_all"] == 2 and step["insns"] >= meta["decoder"]["stats"]["instructions"]
           and step["overwritten_bytes"] == 0, f"and the stepper says so: {step['insns']} instructions")
    t = wait_for("its numbers", lambda: (lambda x: x if x["step"]["insns"] >= step["insns"] else None)(
        c.call("target.show", {"target": t["id"]})["target"]))
    shown = ctl(d, "show", t["id"]).stdout
    expect(f"{t['step']['insns']} instructions" in shown and "stepping; " in shown and "armed by uid 0" in shown, "tracectl show")
    listed = next(line for line in ctl(d, "list").stdout.splitlines() if line.startswith(t["id"]))
    expect(f"{t['step']['insns']} insns" in listed and " ptrace " in listed, "tracectl list")
    status = ctl(d, "status").stdout
    expect(any(line.split()[:2] == ["step", "available,"] for line in status.splitlines()), "tracectl status")

    # It ends: what it did last can still be had.
    scene.do("work", 2)
    scene.exit()
    wait_for("its end", lambda: c.call("target.show", {"target": t["id"]})["target"]["state"] == "exited")
    expect(steppers(scene.pid), "the stepper outlives it")
    n, out, meta = snapshot(c, t["id"], "after")
    check_calls(out, meta, 4, 27, "after its end")
    expect("exit" in subprocess.run([BUILD / "tracectl", "decode", out, "--format", "text", "--calls", "-o", "-"], capture_output=True,
                                    text=True, timeout=PATIENCE).stdout, "to the last instruction")
    wait_for("the target is forgotten (exited_keep_s)", lambda: not c.call("target.list")["targets"])
    wait_for("and its stepper ends", lambda: not steppers(scene.pid))
    ok("after exited_keep_s the target and its stepper are gone")


def events_part(d, c):
    """The program's own regions and its calls are on one timeline."""
    scene = Scene("events", d=d)
    t = wait_for("the implicit target", lambda: next(
        (x for x in c.call("target.list")["targets"] if x["pid"] == scene.pid and x["events"]), None))
    ctl(d, "arm", "--backend", "step", scene.pid)
    after = c.call("target.show", {"target": str(scene.pid)})["target"]
    expect(after["id"] == t["id"] and after["backend"] == "step" and after["events"]["state"] == "live",
           "a program that registered is stepped under the id that it has")
    scene.do("work", 300)
    scene.do("work", 100)

    def check(e):
        # A call has an exact time only where the trace has a time stamp, after every 64th instruction; between two
        # it lies between them. So the calls of one such stretch may lie outside at each end, and no others.
        rows = e.rows("select r.ts, count(l.id) from slice r join thread_track rt on rt.id = r.track_id"
                      " join thread_track lt on lt.utid = rt.utid join slice l on l.track_id = lt.id and l.name = 'scene_leaf'"
                      " and l.ts between r.ts and r.ts + r.dur where r.category = 'region' and r.name = 'work'"
                      " group by r.id order by r.ts", 2)
        within = [int(r[1]) for r in rows]
        expect(len(within) == 2 and 300 - 2 * 16 <= within[0] <= 300 and 100 - 2 * 16 <= within[1] <= 100,
               f"regions and calls are on one timeline: {within}")
    n, out, meta = snapshot(c, t["id"], "events")
    check_calls(out, meta, 2, 400, "with event rings", check)
    regions = {r["name"]: r["count"] for r in n["summary"]["regions"]}
    expect(regions == {"work": 2}, "and the summary has the regions")
    ctl(d, "disarm", t["id"])
    left = c.call("target.show", {"target": str(scene.pid)})["target"]
    expect(left["backend"] == "events" and left["step"] is None, "disarmed it is what it was")
    on_its_own(scene, "disarmed")
    scene.exit()


def armed_by(p):
    """The target of a `tracectl run`: others of that name may have exited just before."""
    said = re.search(r"^armed (t\d+): ", p.stderr, re.M)
    if not said:
        fail(f"tracectl run does not say what it armed: {p.stderr}")
    return said.group(1)


def loader_of(program):
    """The dynamic loader that the program names."""
    said = subprocess.run(["readelf", "-l", program], capture_output=True, text=True, check=True).stdout
    return re.search(r"program interpreter: (.*)\]", said)[1]


def entry_of(program):
    """Where an ELF file begins; its symbol table need not say so."""
    with open(program, "rb") as f:
        return struct.unpack_from("<Q", f.read(64), 24)[0]


def run_part(d, c):
    """From the first instruction to the last."""
    p = ctl(d, "run", "--backend", "step", "--", tmp() / "bin" / "stepscene", input="work 9\nexit\n", stdin=None)
    expect(p.stdout == "ready 0\ndone 9\n", "tracectl run --backend step: the command's output is its own")
    n, out, meta = snapshot(c, armed_by(p), "run")
    check_calls(out, meta, 1, 9, "all of a command")
    p = subprocess.run([BUILD / "tracectl", "decode", out, "--format", "text", "--insns", "-o", "-"], capture_output=True,
                       text=True, timeout=PATIENCE)
    lines = [line for line in p.stdout.splitlines() if line.lstrip(" ~")[:1].isdigit()]
    step = meta["events"]["step"]
    # The stepper counts INT instructions and the like, which no trace has.
    expect(len(lines) == meta["decoder"]["stats"]["instructions"] == step["insns"], f"as many instructions as were stepped: {len(lines)}")
    first = lines[0].split()
    where = int(first[2], 16) % 4096, entry_of(loader_of(tmp() / "bin" / "stepscene")) % 4096
    expect(where[0] == where[1] and "ld-" in first[-1], f"the first is the dynamic loader's first: {' '.join(first[2:])}")
    ctl(d, "run", "-q", "--backend", "step", "--", "/bin/sh", "-c", "exit 7", rc=7)
    ok("and its status is the command's")


# ---- what may happen

def ends_part(d, c):
    scene = Scene()
    ctl(d, "arm", "--backend", "step", scene.pid)
    scene.do("work", 3)
    ctl(d, "disarm", scene.pid)
    on_its_own(scene, "disarmed")
    ctl(d, "arm", "--backend", "step", scene.pid)
    p = ctl(d, "arm", "--backend", "step", scene.pid, rc=4)
    expect("already traced" in p.stderr and tracer_of(scene.pid) != 0, "a second stepper is refused, and the first goes on")
    scene.do("work", 3)

    # The stepper's front process dies: stepping ends, and what was recorded stays.
    front = next(p for p, name in steppers(scene.pid).items() if p != tracer_of(scene.pid))
    os.kill(front, signal.SIGKILL)
    t = wait_for("the target is suspended", lambda: (lambda x: x if x["state"] == "suspended" else None)(
        c.call("target.show", {"target": str(scene.pid)})["target"]))
    expect(t["step"]["state"] == "ended" and any("not stepped any more" in w for w in t["warnings"]),
           "a stepper that is told to end says so, and the target is suspended")
    n, out, meta = snapshot(c, t["id"], "killed")
    check_calls(out, meta, 1, 3, "what it had until then")
    scene.do("work", 3)
    ctl(d, "disarm", t["id"])
    on_its_own(scene, "a stepper that was killed")
    ctl(d, "arm", "--backend", "step", scene.pid)
    scene.do("work", 3)
    ok("it can be stepped again")
    return scene


def user_part(d):
    """A user's program, armed by its user; the stepper runs as nobody else."""
    scene = Scene(uid=NOBODY)
    scope = "/proc/sys/kernel/yama/ptrace_scope"
    restricted = os.path.exists(scope) and open(scope).read().strip() != "0"
    if restricted:
        p = d.tracectl("arm", "--backend", "step", scene.pid, **as_nobody())
        expect(p.returncode != 0 and "ptrace_scope" in p.stderr, "where Yama forbids it, it says so")
    else:
        ctl(d, "arm", "--backend", "step", scene.pid, **as_nobody())
        owners = {os.stat(f"/proc/{p}").st_uid for p in steppers(scene.pid)}
        with open(f"/proc/{tracer_of(scene.pid)}/status") as f:
            uids = next(line for line in f if line.startswith("Uid:")).split()[1:]
        expect(uids == [str(NOBODY)] * 4 and owners, "the stepper runs as the user")
        scene.do("work", 6)
        p = ctl(d, "snapshot", scene.pid, "--json", **as_nobody())
        n = json.loads(p.stdout)["snapshot"]
        expect(n["state"] == "done" and n["uid"] == NOBODY, "the user has a snapshot of it")
        with d.client() as c:
            out, meta = bundle_of(c, n["id"], "user")
            check_calls(out, meta, 1, 6, "a user's program")
        ctl(d, "disarm", scene.pid, **as_nobody())
        on_its_own(scene, "a user's, disarmed")
        # An administrator's stepper of a user's program is the user's, too.
        ctl(d, "arm", "--backend", "step", scene.pid)
        with open(f"/proc/{tracer_of(scene.pid)}/status") as f:
            uids = next(line for line in f if line.startswith("Uid:")).split()[1:]
        expect(uids == [str(NOBODY)] * 4, "and so does one that root starts for it")
        scene.do("work", 2)
        ctl(d, "disarm", scene.pid)
        on_its_own(scene, "disarmed by root")
    mine = spawn("sleep", "1000")
    p = d.tracectl("arm", "--backend", "step", mine.pid, **as_nobody())
    wait_for("no stepper stays", lambda: not steppers(mine.pid))
    expect(p.returncode == 4 and tracer_of(mine.pid) == 0, f"root's is not for users: {p.stderr.strip()}")
    p = ctl(d, "run", "--backend", "step", "--", tmp() / "bin" / "stepscene", input="work 8\nexit\n", stdin=None, **as_nobody())
    with d.client() as c:
        n, out, meta = snapshot(c, armed_by(p), "user-run")
        check_calls(out, meta, 1, 8, "a command that a user runs")
    scene.exit()


def main():
    if not os.access(SCENE, os.X_OK):
        skip("tests/programs/stepscene is not built")
    # Users may not be able to enter the build tree.
    (tmp() / "bin").mkdir(exist_ok=True)
    for name in ("tracectl", "tracerd-step", "tracerd-decode", "tests/programs/stepscene"):
        shutil.copy(BUILD / name, tmp() / "bin")
    with Tracerd(config="[capture]\nexited_keep_s = 12\n[daemon]\ndecoder = " + str(BUILD / "tracerd-decode") + "\n") as d:
        with d.client() as c:
            jit_part(d, c)
            root_part(d, c)
            events_part(d, c)
            run_part(d, c)
            scene = ends_part(d, c)
            if os.geteuid() == 0:
                user_part(d)
        # The daemon dies with everything in its hands.
        d.process.kill()
        d.process.wait(PATIENCE)
        on_its_own(scene, "tracerd was killed")
        scene.exit()
        d.start()
    ok("and it starts again")


main()
