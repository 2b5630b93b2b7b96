#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The daemon's begin and end: readiness and signs of life to the service manager, sockets that are
handed over, one instance a directory, SIGTERM with clients in every state, and a start after SIGKILL."""
import signal

from lib import *


def told(d, timeout=0.0):
    """What it has told the service manager."""
    out = b""
    while select.select([d.notify], [], [], timeout)[0]:
        out += d.notify.recv(65536) + b"\n"
    return out.decode()


def stop_with_clients():
    d = Tracerd(name="-stop", config="[client]\nclient_write_timeout_s = 3600\n").start()
    clients = [d.client() for _ in range(5)]
    half, sub, reading, waiting = clients[:4]
    half.send_bytes(b"\0\0\0\x20{")
    sub.call("subscribe")
    waiting.sock.setblocking(False)
    try:
        for _ in range(100000):
            waiting.send("status")
    except BlockingIOError:
        pass
    reading.call("hello")
    notify = d.notify.dup()
    begun = time.monotonic()
    status = d.stop(signal.SIGTERM)
    took = time.monotonic() - begun
    expect(status == 0, f"SIGTERM with clients in every state: exit status {status}")
    expect(took < 60, f"it took {took:.1f} s, though one of them does not read")
    d.notify = notify
    expect("STOPPING=1" in told(d), "the manager was told that it stops")
    names = [m.get("event") for m in drain(sub)]
    expect("daemon.stopping" in names, "subscribers were told")
    expect(not d.sock.exists() and not d.status_sock.exists(), "its sockets are gone")
    for c in clients:
        c.close()
    Tracerd.running.remove(d)


def polled_while_stopping():
    """Who has connected before is still answered, also about a daemon that listens no more. It does not wait for long."""
    wait_for("the status of a stopping daemon says so", polled_in_time)
    ok("the status of a stopping daemon says so, and it ends in order")


def polled_in_time():
    d = Tracerd(name="-polled").start()
    waiting, poller = d.client(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    waiting.sock.setblocking(False)  # its unread answers keep the daemon for a moment
    try:
        for _ in range(100000):
            waiting.send("status")
    except BlockingIOError:
        pass
    poller.connect(str(d.status_sock))
    poller.settimeout(PATIENCE)
    os.kill(d.pid, signal.SIGTERM)
    wait_for("its sockets to go", lambda: not d.status_sock.exists())
    try:
        poller.sendall(b"GET /status HTTP/1.0\r\n\r\n")
        answer = poller.makefile("rb").read()
    except (BrokenPipeError, ConnectionResetError):
        answer = b""
    if answer and b'"state":"stopping"' not in answer:
        fail(f"a stopping daemon says {answer}")
    if d.process.wait(PATIENCE) != 0:
        fail(f"it ended with status {d.process.returncode}")
    waiting.close()
    d.stop()
    Tracerd.running.remove(d)
    return answer


def drain(c):
    out = []
    try:
        while True:
            out.append(c.recv_frame())
    except (Closed, socket.timeout):
        return out


def kill_and_restart():
    d = Tracerd(name="-kill").start()
    d.stop(signal.SIGKILL)
    expect(d.sock.exists(), "SIGKILL leaves the sockets behind")
    with d, d.client() as c:
        c.call("hello")
        ok("and the next start takes their place")
        # One more in the same place must not take them away.
        other = spawn(BUILD / "tracerd", "--config", "/dev/null", "--runtime-dir", d.run, "--state-dir", d.dir / "other",
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out = other.communicate(timeout=PATIENCE)
        expect(other.returncode == 1 and b"another tracerd runs here" in out[1], "a second one there refuses to start")
        third = spawn(BUILD / "tracerd", "--config", "/dev/null", "--runtime-dir", d.dir / "run3", "--state-dir", d.state,
                      stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        out = third.communicate(timeout=PATIENCE)
        expect(third.returncode == 1 and b"another tracerd" in out[1], "and so does one with the same spool")
        with d.client() as again:
            again.call("hello")


def watchdog():
    d = Tracerd(name="-watch", env={"WATCHDOG_USEC": "400000"}).start()
    words = ""
    while words.count("WATCHDOG=1") < 3:
        if not select.select([d.notify], [], [], PATIENCE)[0]:
            fail("no sign of life")
        words += d.notify.recv(65536).decode() + "\n"
    ok("signs of life come")
    expect("STATUS=" in words, "with a line of status")
    if d.stop() != 0:
        fail("exit status")
    Tracerd.running.remove(d)


def activation():
    """Sockets by number 3 and 4 with names, as systemd passes them; they outlive the daemon."""
    where = tmp() / "activation"
    where.mkdir()
    runtime = where / "run"
    runtime.mkdir()
    control, status_sock = runtime / "control.sock", runtime / "status.sock"  # where it would make its own
    socks = []
    for path in (status_sock, control):  # not in the order that one would think
        s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        s.bind(str(path))
        s.listen(64)
        socks.append(s)
    before = [path.stat().st_ino for path in (control, status_sock)]

    def same():
        return [path.exists() and path.stat().st_ino for path in (control, status_sock)] == before

    def run():
        pid = os.fork()
        if pid == 0:
            fds = [os.dup(s.fileno()) for s in socks]
            for i, fd in enumerate(fds):
                os.dup2(fd, 3 + i, inheritable=True)
            env = {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "2", "LISTEN_FDNAMES": "status:control"}
            os.closerange(5, 100)
            os.execve(BUILD / "tracerd", ["tracerd", "--config", "/dev/null", "--runtime-dir", str(runtime),
                                          "--state-dir", str(where / "state"), "--log-level", "error"], env)
        return pid

    def end(pid):
        os.kill(pid, signal.SIGTERM)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    # A client that comes before the daemon is served when it is there.
    early = Client(control)
    early.send("hello")
    pid = run()
    try:
        expect("result" in early.recv_frame(), "sockets are taken over by their names")
        expect(http_get(status_sock, "/status")[0] == "HTTP/1.0 200 OK", "both of them")
        expect(same(), "and none is made in their place")
        # One more that is started by hand must not take them away.
        for state, said in (("state", b"another tracerd uses this spool"), ("other", b"another tracerd runs here")):
            out = subprocess.run([BUILD / "tracerd", "--config", "/dev/null", "--runtime-dir", runtime, "--state-dir", where / state],
                                 capture_output=True, timeout=PATIENCE)
            expect(out.returncode == 1 and said in out.stderr and same(), f"a second one refuses to start, and they stay ({state})")
            with Client(control) as c:
                c.call("hello", timeout=PATIENCE)
    finally:
        status = end(pid)
    expect(status == 0 and same(), "they stay when it stops")
    pid = run()
    with Client(control) as c:
        c.call("hello", timeout=PATIENCE)
    expect(end(pid) == 0, "the next one takes them again")


def modes():
    with Tracerd(config="[daemon]\nsocket_mode = 0640\nstatus_mode = 0600\n", name="-modes") as d:
        # Without a group to give them to, the group's part is what others have.
        expect(d.sock.stat().st_mode & 0o777 in (0o600, 0o640) and d.status_sock.stat().st_mode & 0o777 == 0o600,
               "the sockets have the configured modes")
        limits = [line for line in open(f"/proc/{d.pid}/status") if line.startswith("Umask")]
        expect(limits == ["Umask:\t0077\n"], "files that it makes are its own")


stop_with_clients()
polled_while_stopping()
kill_and_restart()
watchdog()
activation()
modes()
