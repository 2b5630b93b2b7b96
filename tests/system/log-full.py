#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whoever reads the log and stops reading (a pager, a stuck collector) must not stop the daemon,
nor must a user who makes it write lines; what was lost meanwhile is told in the log itself."""
import fcntl

from lib import *

where = tmp() / "full"
where.mkdir()
reader, writer = os.pipe()
d = spawn(BUILD / "tracerd", "--config", "/dev/null", "--runtime-dir", where / "run", "--state-dir", where / "state",
          stderr=writer)
os.close(writer)
wait_for("the socket", (where / "run/control.sock").exists)


def chatter(times):
    """Each of these is a line of the audit, as far as its rate allows."""
    for _ in range(times):
        c.call_error("target.disarm", {"target": "t" + "7" * 31})


os.set_blocking(reader, False)
with Client(where / "run/control.sock") as c:
    c.call("hello")
    # Two pages are soon full.
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 8192)
    chatter(200)
    ok("a log that nobody reads keeps no client waiting")
    while select.select([reader], [], [], 0)[0]:
        os.read(reader, 65536)
    time.sleep(1.2)  # the audit's rate
    chatter(1)
    text = ""
    while "outcome=not_found" not in text:
        select.select([reader], [], [])
        text += os.read(reader, 65536).decode()
    expect("lines before this one were lost" in text, "the next line says what was lost")
d.terminate()
expect(d.wait(PATIENCE) == 0, "and it stops in order")
