#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Descriptors where none belong: they are closed, and so is the connection. A daemon that keeps a
stranger's descriptors can be made to run out of them, or to hold a file system busy."""
from lib import *

NULL = os.open("/dev/null", os.O_RDONLY)


def hello(**extra):
    text = json.dumps({"v": 1, "id": 1, "method": "hello", **extra}).encode()
    return struct.pack(">I", len(text)) + text


def ended(d, what, send):
    with d.client() as c:
        c.call("hello")
        try:
            send(c)
            while True:
                answer = c.recv_frame()
                if "result" in answer:
                    fail(f"{what}: answered {answer}")
        except Closed:
            ok(f"{what}: the connection has ended")
        except (TimeoutError, socket.timeout):
            fail(f"{what}: the connection goes on")


def arm_frame(names, nfds):
    text = json.dumps({"v": 1, "id": 1, "method": "target.arm", "nfds": nfds,
                       "params": {"pid": os.getpid(), "fds": names}}).encode()
    return struct.pack(">I", len(text)) + text


def body_with_fd(c):
    frame = hello()
    c.send_bytes(frame[:4])
    c.send_bytes(frame[4:], [NULL])


def second_byte(c):
    frame = hello(nfds=1)
    c.send_bytes(frame[:1])
    time.sleep(0.2)
    c.send_bytes(frame[1:], [NULL])


with Tracerd() as d:
    with d.client() as witness:
        witness.call("hello")
        before = d.fds()
        ended(d, "a descriptor on a method that takes none", lambda c: c.send_bytes(hello(nfds=1), [NULL]))
        ended(d, "a descriptor that is not announced", lambda c: c.send_bytes(hello(), [NULL]))
        ended(d, "one announced, none sent", lambda c: c.send_bytes(hello(nfds=1)))
        ended(d, "two announced, one sent", lambda c: c.send_bytes(arm_frame(["maps", "pidfd"], 2), [NULL]))
        ended(d, "one announced, two sent", lambda c: c.send_bytes(arm_frame(["maps"], 1), [NULL] * 2))
        ended(d, "more than the method takes", lambda c: c.send_bytes(arm_frame(["maps"] * 5, 5), [NULL] * 5))
        ended(d, "more than a message may have", lambda c: c.send_bytes(hello(nfds=17), [NULL] * 17))
        ended(d, "as many as the kernel lets through", lambda c: c.send_bytes(hello(nfds=253), [NULL] * 253))
        ended(d, "a descriptor inside a body", body_with_fd)
        ended(d, "a descriptor behind the first byte", second_byte)
        ended(d, "on an unknown method", lambda c: c.send_frame({"v": 1, "id": 1, "method": "nope", "nfds": 1}, [NULL]))
        ended(d, "on an answer", lambda c: c.send_frame({"v": 1, "id": -1, "result": {}, "nfds": 1}, [NULL]))
        ended(d, "on what is no JSON", lambda c: c.send_frame(b"xxxx", [NULL]))
        ended(d, "on a length of zero", lambda c: c.send_bytes(b"\0\0\0\0", [NULL]))
        ended(d, "nfds is no count", lambda c: c.send_frame({"v": 1, "id": 1, "method": "hello", "nfds": "1"}, [NULL]))
        # A method that takes them, with ones that are wrong for it: an error, and all of them closed.
        for names in (["maps"], ["pidfd"], ["pidfd", "maps"], ["maps", "maps"], ["other"], []):
            fds = [NULL] * max(1, len(names))
            with d.client() as c:
                code = c.call_error("target.arm", {"pid": os.getpid(), "fds": names}, fds) \
                    if names != ["maps"] else None
                if code not in (None, "bad_params", "not_permitted", "gone", "unsupported"):
                    fail(f"{names}: {code}")
                c.call("hello")
        # Half a message with descriptors, and the client goes away.
        for _ in range(50):
            with d.client() as c:
                c.send_bytes(hello(nfds=16)[:20], [NULL] * 16)
        # The same with a whole one that is never read.
        for _ in range(50):
            with d.client() as c:
                c.send_bytes(hello(nfds=1) * 3, [NULL] * 16)
        wait_for("descriptors to be closed", lambda: d.fds() <= before)
        ok("none of them is left open")
        witness.call("hello")
        # A pipe whose other end we hold: it must see the end as soon as the daemon has refused it.
        r, w = os.pipe()
        with d.client() as c:
            c.send_bytes(hello(nfds=1), [w])
            os.close(w)
            if not select.select([r], [], [], PATIENCE)[0] or os.read(r, 1):
                fail("the daemon keeps what it was sent")
        ok("a refused descriptor is closed at once")
