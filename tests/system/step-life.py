#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 300
"""A program that is stepped goes on when the recording ends, in whichever way that comes about: limits, signals, the death of
tracerd-step; with its signals, masks, handlers, threads and job control as they would be without us. What is written decodes."""
import re

from lib.stepholder import *

need_stepper()
WORK = pathlib.Path(tmp())


def build(name):
    program = WORK / name
    subprocess.run(["gcc", "-O1", "-pthread", "-o", program, SRC / f"tests/system/inside/{name}.c"], check=True)
    return program


def start(program):
    p = subprocess.Popen([program], stdout=open(WORK / (program.name + ".out"), "w"))
    atexit.register(p.kill)
    return p


def said(program):
    return (WORK / (program.name + ".out")).read_text().split()


def until(condition, what, seconds=PATIENCE):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            fail(what)
        time.sleep(0.05)


def threads(pid, key):
    """The lines "KEY: value" of all threads, by tid."""
    r = {}
    for t in sorted(os.listdir(f"/proc/{pid}/task")):
        with open(f"/proc/{pid}/task/{t}/status") as f:
            for line in f:
                if line.startswith(key + ":"):
                    r[t] = line.split(None, 1)[1].strip()
    return r


def step(name, *arguments, **more):
    data = WORK / f"{name}.data"
    (WORK / f"{name}.log").unlink(missing_ok=True)
    return data, subprocess.Popen([STEP, "--output", data, "--log", WORK / f"{name}.log", *map(str, arguments)],
                                  stderr=subprocess.PIPE, text=True, **more)


def finish(p, wanted=0):
    err = p.communicate(timeout=PATIENCE)[1]
    if p.returncode != wanted:
        if "not permitted" in err:
            skip("may not ptrace here")
        fail(f"exit status {p.returncode}, not {wanted}: {err}")
    return err


def decodes(data, name):
    log = by_thread((WORK / f"{name}.log").read_text().splitlines())
    p = subprocess.run([ORACLE, data], capture_output=True, text=True)
    if p.returncode != 0:
        fail(f"{name}: {p.stderr}")
    if by_thread(p.stdout.splitlines()) != log:
        fail(f"{name}: not the instructions of the log")
    return sum(map(len, log.values()))


def goes_on(program, p, why):
    """It runs on its own, and gets further."""
    if any(v != "0" for v in threads(p.pid, "TracerPid").values()):
        fail(f"{why}: still traced")
    before = len(said(program))
    until(lambda: p.poll() is not None or len(said(program)) >= before + 3, f"{why}: it does not go on")
    if p.poll() is not None or not said(program)[-1].isdigit():
        fail(f"{why}: it ended with {p.returncode}, {said(program)[-5:]}")


def limits(program, p):
    # A thread that has not begun yet has all blocked, also the two that are glibc's own.
    until(lambda: not any(int(m, 16) >> 31 & 3 for m in threads(p.pid, "SigBlk").values()), "a thread does not begin")
    masks = threads(p.pid, "SigBlk")
    if not any(int(m, 16) & 0x10 for m in masks.values()):
        fail("no thread has SIGTRAP blocked")
    for i in range(8):
        data, s = step("limit", "-p", p.pid, "--max-insns", 2000 + 1000 * i)
        err = finish(s)
        if "enough instructions" not in err or decodes(data, "limit") < 2000 + 1000 * i:
            fail(f"a limit of instructions: {err}")
        goes_on(program, p, "after a limit of instructions")
    ok("a number of instructions is recorded, again and again, and the program goes on")
    for option, value, words in (("--max-seconds", 3, "time is over"), ("--max-bytes", 4096, "enough bytes")):
        data, s = step("limit", "-p", p.pid, option, value)
        err = finish(s)
        if words not in err or decodes(data, "limit") < 1000:
            fail(f"{option}: {err}")
        goes_on(program, p, option)
    ok("limits of time and bytes")
    now = threads(p.pid, "SigBlk")
    expect(now == masks, f"signal masks are what they were, SIGTRAP among them: {masks}, {now}")


def signals(program, p):
    for s in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        data, stepper = step("signal", "-p", p.pid)
        until(lambda: (WORK / "signal.log").exists() and (WORK / "signal.log").stat().st_size > 0, "nothing is recorded")
        stepper.send_signal(s)
        if "asked to end" not in finish(stepper):
            fail(f"{s.name}: other words")
        decodes(data, "signal")
        goes_on(program, p, s.name)
    ok("SIGTERM, SIGINT and SIGHUP end a recording, not the program")


def killed(program, p):
    data, stepper = step("killed", "-p", p.pid)
    until(lambda: (WORK / "killed.log").exists() and (WORK / "killed.log").stat().st_size > 0, "nothing is recorded")
    stepper.kill()
    stepper.wait(PATIENCE)
    until(lambda: all(v == "0" for v in threads(p.pid, "TracerPid").values()), "a tracer is left")
    goes_on(program, p, "after SIGKILL of tracerd-step")
    until(lambda: data.stat().st_size > 104 and data.read_bytes()[:8] == b"PERFILE2", "nothing was written")
    decodes(data, "killed")
    stepper.stderr.close()
    ok("killed by SIGKILL, it lets the program go on and writes what it has")


def job_control(program, p):
    def states():
        return set(v[0] for v in threads(p.pid, "State").values())

    def written():
        return (WORK / "stopped.log").stat().st_size

    data, stepper = step("stopped", "-p", p.pid)
    until(lambda: (WORK / "stopped.log").exists() and written() > 0, "nothing is recorded")
    p.send_signal(signal.SIGSTOP)

    def stands():
        before = written()
        time.sleep(0.5)
        return states() == {"t"} and written() == before
    until(stands, "a stopped program is not stopped")
    ok("SIGSTOP stops a program that is stepped")
    before = written()
    p.send_signal(signal.SIGCONT)
    until(lambda: written() > before, "it does not go on with SIGCONT")
    p.send_signal(signal.SIGSTOP)
    until(lambda: states() == {"t"}, "a stopped program is not stopped")
    stepper.terminate()
    finish(stepper)
    until(lambda: states() == {"T"}, "a stopped program does not stay stopped when the recording ends")
    before = len(said(program))
    time.sleep(0.5)
    expect(len(said(program)) == before, "a stopped program stays stopped when the recording ends")
    decodes(data, "stopped")
    p.send_signal(signal.SIGCONT)
    goes_on(program, p, "after SIGCONT")
    # one that is stopped already
    p.send_signal(signal.SIGSTOP)
    until(lambda: states() == {"T"}, "it is not stopped")
    data, stepper = step("stopped", "-p", p.pid)
    until(lambda: "0" not in threads(p.pid, "TracerPid").values(), "nobody traces it")
    time.sleep(0.5)
    stepper.terminate()
    finish(stepper)
    # who lets go of a stopped thread has the kernel stop it anew
    until(lambda: states() == {"T"}, "a stopped program does not stay stopped")
    expect((n := decodes(data, "stopped")) == 0, f"a stopped program is not woken: {n} instructions")
    p.send_signal(signal.SIGCONT)
    goes_on(program, p, "after SIGCONT")


def churn(program):
    p = start(program)
    for i in range(12):
        time.sleep(0.05)
        data, stepper = step("churn", "-p", p.pid, "--max-insns", 500 + 4001 * i)
        finish(stepper)
        decodes(data, "churn")
        if p.poll() is not None:
            fail(f"it ended: {said(program)}")
    time.sleep(0.5)
    expect(p.poll() is None and not said(program), "threads, forks and vforks go on from wherever they are let go")
    p.kill()
    p.wait()


def turns(program):
    """Each thread gets on, even where others are always ready to be stepped before it; and so does the alarm."""
    p = start(program)
    until(lambda: len(os.listdir(f"/proc/{p.pid}/task")) == 41, "its threads do not start")
    data, stepper = step("turns", "-p", p.pid, "--max-insns", 300000)
    finish(stepper)
    counts = {tid: len(ips) for tid, ips in by_thread((WORK / "turns.log").read_text().splitlines()).items()}
    least = min(counts.values())
    if len(counts) != 41 or least < 300000 / 41 / 20:
        fail(f"{41 - len(counts)} threads do nothing, another one {least} instructions of 300000")
    ok("threads take turns")
    data, stepper = step("turns", "-p", p.pid, "--max-seconds", 2)
    if "time is over" not in finish(stepper):
        fail("other words")
    ok("a limit of time ends it while all threads are busy")
    p.kill()
    p.wait()


def signs_of_life():
    """A recording that takes long says how far it is, also of a program that only waits."""
    p = subprocess.Popen(["sleep", "1000"])
    atexit.register(p.kill)
    _, stepper = step("waits", "-p", p.pid, "--max-seconds", 6)
    err = finish(stepper)
    expect(re.search(r"still stepping: \d+ instructions in \d+ s\n", err) and "time is over" in err,
           "a line says how far it is, and the limit of time holds all the same")
    p.kill()
    p.wait()


def refusals():
    for arguments, code, words in ((["-p", "99999999"], 1, "No such process"), (["-p", "1x"], 2, "not a number"),
                                   ([], 2, "neither"), (["-p", "1", "true"], 2, "either"),
                                   (["--", "/nonexistent/program"], 127, "No such file")):
        p = subprocess.run([STEP, "-o", WORK / "refused.data", *arguments], capture_output=True, text=True)
        if p.returncode != code or words not in p.stderr:
            fail(f"{arguments}: exit {p.returncode}, {p.stderr}")
        if (WORK / "refused.data").exists():
            fail(f"{arguments}: leaves a file")
    p = subprocess.run([STEP, "-o", "/nonexistent/x", "true"], capture_output=True, text=True)
    expect(p.returncode == 1 and "/nonexistent/x" in p.stderr, "what cannot be recorded is refused in words")


def other_user(program):
    """What the kernel does not let a user trace is not traced; what it does is."""
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        note("not root: other users are not tried")
        return
    d = WORK / "user"
    d.mkdir()
    os.chown(d, 65534, 65534)
    shutil.copy(STEP, d / "tracerd-step")
    user = ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]
    p = start(program)
    r = subprocess.run([*user, d / "tracerd-step", "-o", d / "x.data", "-p", str(p.pid)], capture_output=True, text=True)
    expect(r.returncode == 1 and "not permitted" in r.stderr and p.poll() is None, "a foreign process is refused")
    p.kill()
    p.wait()
    r = subprocess.run([*user, d / "tracerd-step", "-o", d / "x.data", "--log", d / "x.log", "--", "/bin/true"],
                       capture_output=True, text=True)
    if r.returncode != 0:
        fail(f"as a user: {r.stderr}")
    shutil.copy(d / "x.log", WORK / "user.log")
    expect(decodes(d / "x.data", "user") > 1000, "a user records a command of its own")


loop = build("step-loop")
refusals()
p = start(loop)
until(lambda: len(said(loop)) > 2, "the program does not run")
limits(loop, p)
signals(loop, p)
killed(loop, p)
job_control(loop, p)
p.kill()
p.wait()
churn(build("step-churn"))
turns(build("step-busy"))
signs_of_life()
other_user(loop)
