#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An ordinary user's program asks for a snapshot while an administrator records it together with processes of others: a set-user-ID
program that it has started, or somebody else's process. It gets one of its own events, and nothing of the others."""
import grp

import lib.eventshell as eventshell
from lib.eventshell import *

NOBODY = 65534
GROUP = grp.getgrgid(1)
need_root("set-user-ID programs")
here = pathlib.Path(tempfile.mkdtemp(prefix="tracerd-strangers-"))


def asked(c, p, known):
    """The snapshot that the program asks for, at its end. It may ask once in a while only."""
    def look():
        p.tell("snapshot mine")
        return next((s for s in c.call("snapshot.list")["snapshots"] if s["cause"]["kind"] == "program" and s["id"] not in known), None)
    sid = wait_for("the program's snapshot", look, step=0.2)["id"]
    known.add(sid)

    def ended():
        s = c.call("snapshot.show", {"snapshot": sid})["snapshot"]
        return s if s["state"] in ("done", "failed", "cancelled") else None
    return wait_for("its end", ended)


try:
    here.chmod(0o755)
    suid = here / "suid"
    shutil.copy(os.path.realpath("/bin/sh"), suid)
    suid.chmod(0o4755)
    (here / "scene").write_text(f"#!/bin/sh\n{suid} -p -c 'while :; do :; done' </dev/null >/dev/null &\necho $! >&2\nexec {eventshell.SHELL}\n")
    (here / "scene").chmod(0o755)
    eventshell.SHELL = here / "scene"
    with Tracerd(config=f"[daemon]\nsocket_group = {GROUP.gr_name}\n") as d, d.client() as c:
        told, said = os.pipe()
        p = Shell(d.sock, uid=NOBODY, stderr=said)
        child = int(os.read(told, 100))
        if wait_for("the child's program", lambda: (l := pathlib.Path(f"/proc/{child}/status").read_text()) and
                    f"{suid.name}\n" in l and re.search(r"^Uid:.*", l, re.M)[0].split())[2] != "0":
            skip("set-user-ID has no effect here")
        p.tell("start", "ok")
        p.wait_connected()
        own = wait_for("the program is a target", lambda: target_of(c, p.pid))["id"]
        known = set()

        family = c.arm(p.pid, children=True)["id"]
        let_work(child)
        s = c.snapshot(family)
        expect(s["state"] == "done" and struct.pack("<I", child) in c.fetch(s["id"], "perf.data")["perf.data"],
               "an administrator records it with a set-user-ID program that it has started")
        s = asked(c, p, known)
        expect(s["state"] == "done" and s["target"] == own, f"the program asks, and gets one of its own target: {s['state']}, of {s['target']}")
        sid = s["id"]

        def user():
            with Client(d.sock) as u:
                expect([s["id"] for s in u.call("snapshot.list")["snapshots"]] == [sid], "its user sees no other one")
                expect(all(struct.pack("<I", child) not in text and b"suid" not in text for text in u.fetch(sid).values()),
                       "and in it nothing of the set-user-ID program")
        if as_user(NOBODY, user) != 0:
            fail("the user's half")
        c.call("target.disarm", {"target": family})

        # ---- one who is an administrator by a group arms it, and asks without the group
        def alone_in(group):
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    os.setgroups([group] if group is not None else [])
                    os.setresgid(NOBODY, NOBODY, NOBODY)
                    os.setresuid(NOBODY, NOBODY, NOBODY)
                    with Client(d.sock) as u:
                        if group is not None:
                            u.arm(p.pid, children=True)
                            status = 0
                        else:
                            s = u.snapshot(str(p.pid))
                            status = 0 if s["state"] == "failed" and s["error"]["code"] == "not_permitted" else 1
                finally:
                    os._exit(status)
            return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        expect(alone_in(GROUP.gr_gid) == 0 and alone_in(None) == 0, "who is no administrator any more gets no snapshot of what they armed as one")
        c.call("target.disarm", {"target": str(p.pid)})
        own = wait_for("the program is a target by itself again", lambda: target_of(c, p.pid))["id"]

        other = spawn("sleep", "1000")
        both = c.arm(other.pid)["id"]
        maps = open_maps(p.pid)
        c.call("target.join", {"target": both, "pid": p.pid, "fds": ["maps"]}, [maps])
        os.close(maps)
        s = asked(c, p, known)
        expect(s["state"] == "done" and s["target"] == own, f"likewise where it is recorded with a process of somebody else: {s['state']}, of {s['target']}")
        c.call("target.disarm", {"target": both})

        alone = c.arm(p.pid)["id"]
        s = asked(c, p, known)
        expect(s["state"] == "done" and s["target"] == alone, f"recorded by itself it gets what is recorded: {s['state']}, of {s['target']}")
        p.kill()
        os.kill(child, signal.SIGKILL)
finally:
    subprocess.run(["pkill", "-KILL", "-f", str(here)])
    shutil.rmtree(here, True)
