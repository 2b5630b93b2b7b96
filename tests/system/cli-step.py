#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""tracectl arm|run --backend=step: it starts the stepper as the user of the program, hands its channel to the daemon (here one that
does as it is told), and says in words what cannot be. A program that is run is stepped from its first instruction. What was not
armed goes on by itself."""
import threading

from lib.stepholder import *

need_stepper()
WORK = pathlib.Path(tmp())
SOCKET = WORK / "control.sock"


class Daemon:
    """Answers target.arm; .step is the channel that came with it."""

    def __init__(self):
        self.refuse, self.step, self.names = None, None, None
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(SOCKET))
        os.chmod(SOCKET, 0o777)
        self.listener.listen(8)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            c, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(c,), daemon=True).start()

    def serve(self, c):
        head, fds, _, _ = socket.recv_fds(c, 4, 16)
        if len(head) < 4:
            return
        text = b""
        while len(text) < struct.unpack(">I", head)[0]:
            text += c.recv(65536)
        request = json.loads(text)
        self.names = request["params"]["fds"]
        step = socket.socket(fileno=fds[self.names.index("step")]) if "step" in self.names else None
        answer = {"v": 1, "id": request["id"]}
        if self.refuse:
            answer["error"] = {"code": self.refuse, "message": "as it was told"}
            if step:
                step.close()
        else:
            answer["result"] = {"target": {"id": "t1", "pid": request["params"]["pid"], "comm": "x", "backend": "step"}}
            step.settimeout(PATIENCE)
            self.step = step
        for fd in fds:
            if step is None or fd != step.fileno():
                try:
                    os.close(fd)
                except OSError:
                    pass
        text = json.dumps(answer).encode()
        c.sendall(struct.pack(">I", len(text)) + text)
        c.recv(1)


def tracectl(*arguments, **more):
    env = {**os.environ, "TRACERD_SOCKET": str(SOCKET), "SECRET": "of the one who arms", **more.pop("env", {})}
    return subprocess.run([str(BUILD / "tracectl"), *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, env=env,
                          stdin=subprocess.DEVNULL, **more)


def status(pid, key):
    with open(f"/proc/{pid}/status") as f:
        return next(line.split(":", 1)[1].split() for line in f if line.startswith(key + ":"))


def tracer_of(pid):
    return int(status(pid, "TracerPid")[0])


def is_free(pid):
    return tracer_of(pid) == 0


def grows(daemon):
    """The stepper steps: its statistics get more."""
    first = unpack_stats(daemon.step.recv(512))
    while unpack_stats(daemon.step.recv(512))["insns"] <= first["insns"]:
        pass


def let_go(daemon, pid):
    daemon.step.close()
    wait_for("it goes on by itself", lambda: is_free(pid))


def said(r, code, words):
    if r.returncode != code or words not in r.stderr or r.stderr.count("\n") != 1:
        fail(f"exit {r.returncode}, not {code}: {r.stdout!r} {r.stderr!r}")


def arm(daemon, busy):
    p = spawn(busy)
    r = tracectl("arm", "--backend=step", p.pid)
    expect(r.returncode == 0 and "every instruction" in r.stdout and daemon.names[-1] == "step",
           f"it is armed: {r.stdout.strip()}{r.stderr}")
    grows(daemon)
    ok("and stepped on when tracectl has ended")
    copy = Copy(WORK / "arm", *answer(ask(daemon.step)))
    expect(sum(map(len, copy.oracle().values())) == copy.stats["insns"] > 0, "the daemon can have a copy")
    said(tracectl("arm", "--backend=step", p.pid), 4, "already traced")
    let_go(daemon, p.pid)
    daemon.refuse = "quota"
    said(tracectl("arm", "--backend=step", p.pid), 6, "as it was told")
    daemon.refuse = None
    wait_for("what is refused goes on by itself", lambda: is_free(p.pid))
    for arguments, code, words in ((["4194303"], 3, "no such process"), (["2"], 4, "thread of the kernel"),
                                   (["--tid", p.pid], 2, "whole processes"), (["--unit", "x.service"], 2, "whole processes")):
        r = tracectl("arm", "--backend=step", *arguments)
        if r.returncode != code or words not in r.stderr:
            fail(f"{arguments}: exit {r.returncode}: {r.stderr}")
    said(tracectl("arm", "--backend=step", p.pid, env={"TRACERD_STEP": "/nonexistent/x"}), 1, "not installed")
    said(tracectl("arm", "--backend=step", p.pid, env={"TRACERD_STEP": "/bin/true"}), 1, "before it said anything")
    script = WORK / "script"
    script.write_text("no program")
    script.chmod(0o755)
    said(tracectl("arm", "--backend=step", p.pid, env={"TRACERD_STEP": str(script)}), 1, "cannot be started")
    expect(is_free(p.pid) and p.poll() is None, "what cannot be is said in words")
    p.kill()


def run(daemon, counted):
    r = tracectl("run", "--backend=step", "--", counted, "7")
    expect(r.returncode == 7 and r.stdout == "one line\n" and "armed t1" in r.stderr,
           f"the program does what it does: exit {r.returncode}, {r.stderr.strip()}")
    s = unpack_stats(daemon.step.recv(512))
    while not s["ended"]:
        s = unpack_stats(daemon.step.recv(512))
    copy = Copy(WORK / "run", *answer(ask(daemon.step)))
    threads = copy.oracle()
    (ips,) = threads.values()
    entry = struct.unpack_from("<Q", counted.read_bytes(), 24)[0]
    expect(int(ips[0], 16) == entry and len(ips) == s["insns"] == copy.stats["insns"],
           f"it was stepped from its first instruction, {ips[0]}, to its last: {len(ips)}")
    expect(s["ended"] == EXITED and s["error"] == 0 and s["signals"] == 0, "and nothing else was seen")
    daemon.step.close()
    marker = WORK / "it-ran"
    daemon.refuse = "quota"
    r = tracectl("run", "--backend=step", "--", "touch", marker)
    daemon.refuse = None
    expect(r.returncode == 125 and not marker.exists(), "what is refused is not run")
    r = tracectl("run", "--backend=step", "--", "touch", marker, env={"TRACERD_STEP": "/bin/true"})
    expect(r.returncode == 125 and not marker.exists() and "before it said anything" in r.stderr, "nor is what cannot be stepped")
    said(tracectl("run", "--backend=step", "--", "/no/such/program"), 127, "cannot execute")
    # its signals are its own
    p = subprocess.Popen([BUILD / "tracectl", "run", "--quiet", "--backend=step", "--", "sh", "-c",
                          'trap "echo got; exit 3" TERM; echo ready; while :; do read -t 1 x; done'],
                         env={**os.environ, "TRACERD_SOCKET": str(SOCKET)}, stdout=subprocess.PIPE, stdin=subprocess.PIPE,
                         text=True)
    expect_line = p.stdout.readline()
    p.send_signal(signal.SIGTERM)
    expect(expect_line == "ready\n" and p.stdout.readline() == "got\n" and p.wait(PATIENCE) == 3, "signals are passed on to it")
    daemon.step.close()


def users(daemon, busy, counted):
    if os.geteuid() != 0:
        note("not root: other users are not tried")
        return
    p = spawn(busy, user=65534, group=65534, extra_groups=[1234, 4321])
    r = tracectl("arm", "--backend=step", p.pid)
    if r.returncode:
        fail(r.stderr)
    tracer = tracer_of(p.pid)
    wait_for("it has attached", lambda: status(tracer, "CapEff") == ["0" * 16])
    expect(status(tracer, "Uid") == ["65534"] * 4 and status(tracer, "Gid") == ["65534"] * 4 and
           status(tracer, "Groups") == ["1234", "4321"], "root's stepper of a user's process is the user's")
    expect(all(status(tracer, c) == ["0" * 16] for c in ("CapInh", "CapPrm", "CapEff", "CapAmb")), "without a privilege")
    with open(f"/proc/{tracer}/environ") as f:
        expect("SECRET" not in f.read() and os.readlink(f"/proc/{tracer}/cwd") == "/", "and has nothing of root's")
    expect(os.getsid(tracer) != os.getsid(0), "in a session of its own")
    grows(daemon)
    let_go(daemon, p.pid)
    foreign = spawn(busy)
    folder = WORK / "user"
    folder.mkdir()
    env = {**os.environ, "TRACERD_SOCKET": str(SOCKET), "TRACERD_STEP": shutil.copy(STEP, folder)}
    own = shutil.copy(BUILD / "tracectl", folder)
    as_user = dict(user=65534, group=65534, extra_groups=[1234, 4321], capture_output=True, text=True, env=env, timeout=PATIENCE)
    said(subprocess.run([own, "arm", "--backend=step", str(foreign.pid)], **as_user), 4, "owned by uid 0")
    r = subprocess.run([own, "arm", "--backend=step", str(p.pid)], **as_user)
    if r.returncode == 4 and "yama" in r.stderr:
        note(f"here a user may trace children only: {r.stderr.strip()}")
    else:
        expect(r.returncode == 0, f"a user arms what is the user's {r.stderr}")
        grows(daemon)
        let_go(daemon, p.pid)
    p.kill()
    foreign.kill()
    r = subprocess.run([own, "run", "--backend=step", counted, "5"], **as_user)
    expect(r.returncode == 5 and r.stdout == "one line\n", f"and runs it, whatever strangers may ({r.stderr.strip()})")
    daemon.step.close()


def hidden(daemon, program):
    """Root may have it recorded, although its user may not: then the stepper may no more than trace it."""
    if os.geteuid() != 0:
        return
    p = spawn(program, uid=65534)
    wait_for("it hides", lambda: os.stat(f"/proc/{p.pid}/environ").st_uid == 0)
    r = tracectl("arm", "--backend=step", p.pid)
    if r.returncode:
        fail(r.stderr)
    grows(daemon)
    copy = Copy(WORK / "hidden", *answer(ask(daemon.step)))
    expect(sum(map(len, copy.oracle().values())) == copy.stats["insns"] > 0 and copy.files & CODE,
           "a program that hides from its user is recorded for root, with its code")
    let_go(daemon, p.pid)


def build(name, text, *flags):
    (WORK / f"{name}.c").write_text(text)
    subprocess.run(["gcc", "-O1", *flags, "-o", WORK / name, WORK / f"{name}.c"], check=True)
    return WORK / name


daemon = Daemon()
busy = build("busy", "volatile int n; int main(void) { for (;;) if (++n == 1000) n = 0; }")
arm(daemon, busy)
counted = build("counted", '#include <stdio.h>\n#include <stdlib.h>\n'
                'int main(int n, char **a) { puts("one line"); return atoi(a[n - 1]); }',
                "-static", "-no-pie")
run(daemon, counted)
users(daemon, busy, counted)
hidden(daemon, build("hides", "#include <sys/prctl.h>\nvolatile int n; int main(void) { prctl(PR_SET_DUMPABLE, 0); "
                              "for (;;) if (++n == 1000) n = 0; }"))
