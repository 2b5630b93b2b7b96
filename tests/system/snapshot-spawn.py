#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""A decoder before its exec, when it has the daemon's memory and descriptors: no handler of the daemon's runs in it, and one that is
stopped before its first instruction does not keep the next daemon from starting."""
import ctypes
import signal

from lib.snapshot import *

PTRACE_SEIZE, PTRACE_DETACH, PTRACE_GETEVENTMSG, PTRACE_O_TRACEVFORK, WALL = 0x4206, 17, 0x4201, 0x4, 0x40000000
libc = ctypes.CDLL(None, use_errno=True)


def ptrace(request, pid, data=0):
    if libc.ptrace(request, pid, None, ctypes.c_void_p(data)) < 0:
        fail(f"ptrace {request}: {os.strerror(ctypes.get_errno())}")


def catch():
    """Has a snapshot taken: the number of the decoder's process, which has executed nothing, and of the request."""
    ptrace(PTRACE_SEIZE, d.pid, PTRACE_O_TRACEVFORK)
    request = c.send("snapshot.create", {"target": t, "wait": True})
    status = os.waitpid(d.pid, WALL)[1]
    if status >> 8 != signal.SIGTRAP | 2 << 8:
        fail(f"no vfork: {status:#x}")
    pid = ctypes.c_ulong()
    ptrace(PTRACE_GETEVENTMSG, d.pid, ctypes.addressof(pid))
    os.waitpid(pid.value, WALL)
    ptrace(PTRACE_DETACH, d.pid)
    return pid.value, request


def state(pid):
    return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]


need_root()
d = Wrapped().start()
target = service()
c = d.client()
t = c.arm(target.pid, stacks="fp")["id"]
time.sleep(0.5)

# The daemon ends by SIGTERM in order; a decoder that has its handler would not end by it at all.
decoder, request = catch()
os.kill(decoder, signal.SIGTERM)
ptrace(PTRACE_DETACH, decoder)
s = c.wait(request)["snapshot"]
expect(s["state"] == "failed" and "signal 15" in s["error"]["message"], f"it dies of a signal that we catch: {s['error']}")
expect(c.snapshot(t)["state"] == "done", "and we do not")

decoder, request = catch()
os.kill(decoder, signal.SIGSTOP)
ptrace(PTRACE_DETACH, decoder)
wait_for("it stands still", lambda: state(decoder) == "T")
held = len(os.listdir(f"/proc/{decoder}/fd"))
d.process.kill()
d.process.wait()
expect(state(decoder) == "T" and held > 10, f"it stands, with the {held} descriptors of a daemon that is dead")
try:
    d.start()
    c = d.client()
    t = c.arm(target.pid, stacks="fp")["id"]
    time.sleep(0.5)
    expect(c.snapshot(t)["state"] == "done", "the next daemon starts, and records")
finally:
    os.kill(decoder, signal.SIGKILL)
