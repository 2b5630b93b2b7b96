#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Users who fetch and do not read: the descriptors that wait for them, in the daemon and on their way
in the sockets, must not become all that there are, for then nothing is recorded or decoded any more."""
from lib import *

need_root("to be another user")
CLIENTS = 10
FETCHED = 16


def on_the_way(c):
    """How many descriptors come out of a connection's socket without anything more going in."""
    count, size = 0, 1
    c.sock.setblocking(False)
    while size:
        try:
            data, anc, _, _ = c.sock.recvmsg(1 << 16, socket.CMSG_SPACE(4 * 253))
        except BlockingIOError:
            break
        size = len(data)
        for _, _, payload in anc:
            fds = array.array("i")
            fds.frombytes(payload)
            count += len(fds)
            for fd in fds:
                os.close(fd)
    return count


def greedy():
    child = spawn("sleep", 6000)
    with d.client() as c:
        s = c.snapshot(c.arm(child.pid)["id"])["id"]
    text = json.dumps({"v": 1, "id": 1, "method": "snapshot.fetch",
                       "params": {"snapshot": s, "names": ["perf.data"] * FETCHED}}).encode()
    request = struct.pack(">I", len(text)) + text
    clients = [d.client() for _ in range(CLIENTS)]
    for c in clients:
        c.sock.setblocking(False)
    end = time.monotonic() + 2
    while time.monotonic() < end:
        for c in select.select([], [c.sock for c in clients], [], 0.05)[1]:
            try:
                c.send(request)
            except BlockingIOError:
                pass
    with d.client() as c:
        c.call("hello", timeout=PATIENCE)
    os.write(full[1], b"x")
    os.read(stopped[0], 1)
    count = on_the_way(clients[0])
    expect(0 < count < 1500, f"{count} descriptors are on the way to a client that does not read")
    for c in clients:
        c.close()


with Tracerd() as d:
    full, stopped = os.pipe(), os.pipe()
    before, most = d.fds(), 0
    half = os.fork()
    if half == 0:
        os.close(stopped[1])  # so that it ends with us
        os._exit(as_user(65534, greedy))
    while not select.select([full[0]], [], [], 0.02)[0]:
        most = max(most, d.fds() - before)
        if os.waitpid(half, os.WNOHANG)[0]:
            fail("the user's half")
    expect(most < CLIENTS * 100, f"{most} descriptors in the daemon for {CLIENTS} clients that do not read")
    os.kill(d.pid, signal.SIGSTOP)
    os.write(stopped[1], b"x")
    status = os.waitpid(half, 0)[1]
    os.kill(d.pid, signal.SIGCONT)
    expect(status == 0, "with the daemon stopped, its sockets hold few")
    wait_for("them to be given back", lambda: d.fds() < before + 64)  # the target keeps some
