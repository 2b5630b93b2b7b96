# SPDX-License-Identifier: Apache-2.0
"""The holder's half of common/control/stepabi.h in Python: asks a stepper for copies of its recording, and decodes them.

    from lib.stepholder import *
    copy = Copy(folder, *ask(sock))        # sock: the end that the stepper does not have
    copy.oracle()                          # {tid: [ip, ...]} by libipt
"""
import collections
import fcntl

from lib.step import *

STEP = BUILD / "tracerd-step"
ORACLE = BUILD / "tests/programs/ptoracle"
F_GET_SEALS, SEAL_EXEC = 1034, 0x20


def need_stepper():
    if os.uname().machine != "x86_64":
        skip("tracerd-step is for x86-64")
    if not STEP.exists() or not ORACLE.exists():
        skip("tracerd-step is not built")
    need_command("gcc", "gcc")


class Copy:
    """An answer to a request, written to a folder of its own."""

    def __init__(self, folder, data, fds):
        name = folder.name
        if not data:
            fail(f"{name}: no answer")
        kind, self.files, self.error, _, self.raw_ns = struct.unpack_from(FROZEN_FORMAT, data)
        if kind != FROZEN:
            fail(f"{name}: a packet of type {kind}")
        self.stats = unpack_stats(data[struct.calcsize(FROZEN_FORMAT):])
        self.folder = folder
        self.folder.mkdir()
        self.data = self.folder / "x.data"
        names = [n for bit, n in ((PERFDATA, "x.data"), (CODE, "tracerd-step.code"), (VDSO, "x.data.vdso")) if self.files & bit]
        if len(names) != len(fds):
            fail(f"{name}: {len(fds)} descriptors for {names}")
        for n, fd in zip(names, fds):
            if fcntl.fcntl(fd, F_GET_SEALS) & ~SEAL_EXEC != SEALS:
                fail(f"{name}: {n} can still be changed")
            with os.fdopen(fd, "rb") as f:
                f.seek(0)
                (self.folder / n).write_bytes(f.read())

    def oracle(self):
        p = subprocess.run([ORACLE, self.data, self.folder], capture_output=True, text=True)
        if p.returncode != 0:
            fail(f"{self.folder.name}: {p.stderr}")
        return by_thread(p.stdout.splitlines())

    def ours(self):
        """What our own decoder makes of it."""
        p = subprocess.run([BUILD / "tracectl", "decode", self.data, "--insns", "--symfs", self.folder],
                           capture_output=True, text=True, env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
        if p.returncode != 0:
            fail(f"{self.folder.name}: {p.stderr}")
        return collections.Counter(line.split()[2] for line in p.stdout.splitlines()[1:])


def unpack_stats(data):
    kind, ended, error, alive, *numbers = struct.unpack(STATS_FORMAT, data)
    if kind != STATS:
        fail(f"statistics of type {kind}")
    return dict(zip(STATS_FIELDS, numbers), ended=ended, error=error, threads=alive)


def by_thread(lines):
    r = collections.defaultdict(list)
    for line in lines:
        tid, ip = line.split()
        r[tid].append(ip)
    return r


def ask(sock, limit=1 << 30, kind=FREEZE):
    """Sends a request; the socket that the answer comes to."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.settimeout(PATIENCE)
    send(sock, struct.pack(FREEZE_FORMAT, kind, 0, limit), [theirs.fileno()])
    theirs.close()
    return ours


def answer(sock):
    """Its packet and descriptors."""
    data, fds, _, _ = socket.recv_fds(sock, 512, 8)
    sock.close()
    return data, fds


def records(data):
    """Types of records in a perf.data, and how many there are of each."""
    raw, counts = data.read_bytes(), collections.Counter()
    at, size = struct.unpack_from("<QQ", raw, 40)
    end = at + size
    while at < end:
        kind, _, length = struct.unpack_from("<IHH", raw, at)
        counts[kind] += 1
        at += length + (struct.unpack_from("<Q", raw, at + 8)[0] if kind == 71 else 0)
    return counts
