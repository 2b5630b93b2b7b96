#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service manager that leaves its notify socket unread must not stop the daemon.

sd_notify(3) blocks on a full socket (max_dgram_qlen messages), and with it would every recording
and every client. The harness reads nothing after READY, so that what this
test sends fills the socket for good; arming makes tracerd say a STATUS.
"""
from lib import *

with Tracerd() as d:
    s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
    s.connect(str(d.dir / "notify.sock"))
    sent = 0
    try:
        while sent < 100000:
            s.send(b"X_FILLER=1")
            sent += 1
    except BlockingIOError:
        pass
    expect(0 < sent < 100000, f"the notify socket is full after {sent} messages")
    target = spawn("sleep", "6000")
    with d.client() as c:
        c.arm(target.pid)
        # STATUS follows a second after a change.
        time.sleep(1.5)
        c.call("target.disarm", {"target": str(target.pid)})
        time.sleep(1.5)
        expect(c.call("hello", timeout=PATIENCE)["protocol"] == 1, "tracerd still answers")
    expect(d.stop() == 0, "and still stops at SIGTERM")
