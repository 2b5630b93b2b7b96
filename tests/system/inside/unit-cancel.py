#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ordinary user's way to end the daemon, once: one snapshot that runs, two that wait behind it for a target that is then
given up, and more that are cancelled than ended ones are remembered. The service of the booted machine goes on."""
from lib.deputy import *

need_deputy()
prepare()
ROUNDS, CANCELLED = 2, 103  # three more than ended ones that are remembered


def work(pid, other):
    with Client(Booted.sock) as c:
        c.arm(pid, stacks="fp")
        for _ in range(ROUNDS):
            c.arm(other, stacks="fp")
            time.sleep(0.3)
            runs = c.call("snapshot.create", {"target": pid})["snapshot"]["id"]
            for _ in range(2):
                c.call("snapshot.create", {"target": other})
            c.call("target.disarm", {"target": other})
            for _ in range(CANCELLED):
                s = c.call("snapshot.create", {"target": pid})["snapshot"]["id"]
                try:
                    c.call("snapshot.cancel", {"snapshot": s})
                except Error as e:
                    if e.code != "busy":  # it was quicker
                        raise
            wait_for("the snapshot that runs", lambda: c.call("snapshot.show", {"snapshot": runs})["snapshot"]["state"] == "done", 30)
            c.call("snapshot.delete", {"snapshot": runs})
        c.call("target.disarm", {"target": pid})


def main_pid():
    return subprocess.run(["systemctl", "show", "-P", "MainPID", "tracerd"], stdout=subprocess.PIPE, check=True, text=True).stdout.strip()


before = main_pid()
one, two = Deputy(namespace=False), Deputy(namespace=False)
for deputy in (one, two):
    put(tmp() / "w" / "prog", Secret("none").program(), 0o755, USER, USER)
    deputy.do("run", tmp() / "w" / "prog")
    deputy.do("go")
failed = as_user(USER, work, one.pid, two.pid)
expect(not failed and main_pid() == before, f"{ROUNDS} x {CANCELLED} snapshots cancelled behind one that runs: the service goes on")
