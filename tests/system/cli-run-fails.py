#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""tracectl run, where it fails or ends between the making of the program and its release: the program is gone, and not one
instruction of it has run. Between tracectl and the daemon stands somebody who does not pass "arm" on."""
import selectors
import signal
import socket
import threading

from lib import *


class Between:
    """Passes all on to the daemon but target.arm: `armed` is set, and with `hang_up` both connections are closed."""

    def __init__(self, name, hang_up=False):
        self.path, self.hang_up, self.armed = tmp() / name, hang_up, threading.Event()
        self.listener = socket.socket(socket.AF_UNIX)
        self.listener.bind(str(self.path))
        self.listener.listen()
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        client = self.listener.accept()[0]
        daemon = socket.socket(socket.AF_UNIX)
        daemon.connect(str(d.sock))
        both = selectors.DefaultSelector()
        both.register(client, selectors.EVENT_READ, daemon)
        both.register(daemon, selectors.EVENT_READ, client)
        while True:
            for key, _ in both.select():
                data = key.fileobj.recv(65536)
                if b"target.arm" in data:
                    self.armed.set()
                    if self.hang_up:
                        client.close()
                        return
                    threading.Event().wait()  # the client waits for ever, too
                key.data.sendall(data)
                if not data:
                    return


def run(sock, *options, **kw):
    mark.unlink(missing_ok=True)
    return spawn(BUILD / "tracectl", "--socket", sock, "run", "-q", *options, "--", "touch", mark,
                 stderr=subprocess.PIPE, text=True, **kw)


def program_of(p):
    """What the child of tracectl is that has executed the program."""
    for pid in pathlib.Path(f"/proc/{p.pid}/task/{p.pid}/children").read_text().split():
        if pathlib.Path(f"/proc/{pid}/comm").read_text() == "touch\n":
            return int(pid)
    return None


def gone(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return True


def never_ran(pid, what):
    wait_for(f"the program is gone: {what}", lambda: gone(pid))
    if mark.exists():
        fail(f"it ran: {what}")
    ok(f"{what}: the program is gone and has not run")


mark = tmp() / "it-ran"
need_root()
d = Tracerd(config="[daemon]\nmax_targets = 1\n").start()
backends = [[]]
if (BUILD / "tracerd-step").exists():
    backends.append(["--backend=step"])
patient = Between("patient")
waits = run(patient.path)
patient.armed.wait(PATIENCE)
waits_for = program_of(waits)
n = 0
for backend in backends:
    name = "step" if backend else "sample"
    for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGUSR1):
        n += 1
        between = Between(f"s{n}")
        p = run(between.path, *backend)
        if not between.armed.wait(PATIENCE):
            fail(f"{name}: tracectl does not arm")
        pid = program_of(p)
        if not pid:
            fail(f"{name}: no program")
        p.send_signal(sig)
        if p.wait(PATIENCE) != -sig:
            fail(f"{name}: {sig.name}: exit status {p.returncode}")
        never_ran(pid, f"{name}: {sig.name}")

    # All at once, as by ^C: the guard is not among those who get it.
    n += 1
    between = Between(f"s{n}")
    p = run(between.path, *backend, start_new_session=True)
    between.armed.wait(PATIENCE)
    pid = program_of(p)
    os.killpg(p.pid, signal.SIGINT)
    if p.wait(PATIENCE) != -signal.SIGINT:
        fail(f"{name}: ^C: exit status {p.returncode}")
    never_ran(pid, f"{name}: ^C")

    n += 1
    between = Between(f"s{n}", hang_up=True)
    p = run(between.path, *backend)
    if p.wait(PATIENCE) != 125:
        fail(f"{name}: daemon gone: exit status {p.returncode}: {p.stderr.read()}")
    if mark.exists():
        fail("it ran")
    ok(f"{name}: the daemon goes away while it arms: {p.stderr.read().strip()}")

if waits.wait(PATIENCE) != 125:
    fail(f"time-out: exit status {waits.returncode}")
never_ran(waits_for, "the daemon does not answer")

other = spawn("sleep", "6000")
c = d.client()
t = c.arm(other.pid)["id"]
for backend in backends:
    p = run(d.sock, *backend)
    if p.wait(PATIENCE) != 125 or mark.exists():
        fail(f"over the limit: exit status {p.returncode}: {p.stderr.read()}")
    ok(f"over the limit of targets: {p.stderr.read().strip()}")


def left():
    """Processes of all these commands: they would be ours or init's."""
    found = []
    for p in filter(str.isdigit, os.listdir("/proc")):
        try:
            if str(mark).encode() in pathlib.Path(f"/proc/{p}/cmdline").read_bytes() and not gone(p):
                found.append(p)
        except OSError:
            pass # it has ended since
    return found


wait_for("no process of all these is left", lambda: not left())
ok("none is left")

c.call("target.disarm", {"target": t})
expect(run(d.sock).wait(PATIENCE) == 0 and mark.exists(), "it runs where nothing is in the way")
