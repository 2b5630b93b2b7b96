# SPDX-License-Identifier: Apache-2.0
"""The stepper's half of common/control/stepabi.h in Python: for tests that need one which does as it is told, and for those
that need one that does not.

    from lib.step import *
    s = Stepper(pid)                       # both ends of a connection; answers requests in a thread
    arm_step(c, pid, s)                    # "target.arm" with the other end
    s.answer = lambda stepper, request: ...
"""
import fcntl
import os
import socket
import struct
import threading
import time

from lib import *

HELLO, STATS, FREEZE, FROZEN = 1, 2, 3, 4
VERSION, TEXT = 2, 200
PERFDATA, CODE, VDSO = 1, 2, 4
SEAL, SHRINK, GROW, WRITE = 1, 2, 4, 8
SEALS = SEAL | SHRINK | GROW | WRITE
F_ADD_SEALS = 1033
HELLO_FORMAT = f"=IIii{TEXT}s"
STATS_FORMAT = "=IIiI12Q"
STATS_FIELDS = ("insns", "syscalls", "signals", "threads_all", "processes_all", "unexpected_jumps", "threads_not_recorded",
                "stacks_not_written", "overwritten", "bytes", "max_bytes", "oldest_raw_ns")
FREEZE_FORMAT = "=IIQ"
FROZEN_FORMAT = "=IIiIQ"
EXITED, ASKED, ERROR = 1, 2, 7  # of enum step_end


def raw_ns():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def memfd(data, seals=SEALS, size=None, name="step"):
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(fd, data)
    if size is not None:
        os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


def stats_bytes(ended=0, error=0, threads=1, **numbers):
    values = {"threads_all": 1, "processes_all": 1, **numbers}
    return struct.pack(STATS_FORMAT, STATS, ended, error, threads, *(values.get(f, 0) for f in STATS_FIELDS))


def frozen_bytes(files, error=0, raw=None, stats=None):
    head = struct.pack(FROZEN_FORMAT, FROZEN, files, error, 0, raw_ns() if raw is None else raw)
    return head + (stats or stats_bytes())


def send(sock, data, fds=()):
    anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack(f"{len(fds)}i", *fds))] if fds else []
    sock.sendmsg([data], anc)


class Stepper:
    """`answer` is called with each request's socket in a thread of its own; None: it is never answered."""

    def __init__(self, answer=None):
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.answer = answer
        self.requests = []
        self.sockets = []
        self.ended = threading.Event()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self):
        while True:
            try:
                data, anc, _, _ = self.ours.recvmsg(512, socket.CMSG_SPACE(4))
            except OSError:
                break
            if not data:
                break
            kind, _, limit = struct.unpack(FREEZE_FORMAT, data)
            (fd,) = struct.unpack("i", anc[0][2])
            reply = socket.socket(fileno=fd)
            self.requests.append(limit)
            if self.answer:
                self.answer(reply)
                reply.close()
            else:
                self.sockets.append(reply)
        self.ended.set()

    def stats(self, **numbers):
        self.ours.send(stats_bytes(**numbers))

    def close(self):
        self.ours.shutdown(socket.SHUT_RDWR)
        self.ours.close()


def files(perfdata, code=None, vdso=None, **how):
    """An answer with these files."""
    def answer(sock):
        fds = [memfd(d) for d in (perfdata, code, vdso) if d is not None]
        which = PERFDATA | (CODE if code is not None else 0) | (VDSO if vdso is not None else 0)
        send(sock, frozen_bytes(which, **how), fds)
        for fd in fds:
            os.close(fd)
    return answer


def arm_step(c, pid, stepper, admin=False):
    """The target; the other end stays the daemon's alone."""
    names, fds = ([], []) if admin else (["maps"], [open_maps(pid)])
    try:
        t = c.call("target.arm", {"pid": pid, "backend": "step", "fds": names + ["step"]},
                   [*fds, stepper.theirs.fileno()])["target"]
    finally:
        for fd in fds:
            os.close(fd)
    stepper.theirs.close()
    return t
