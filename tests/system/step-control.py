#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""tracerd-step --control: what it says to whoever holds its channel (common/stepabi.h). It is told at once whether a process is
stepped; copies can be had again and again, each exactly what was executed until then, while the program goes on; whatever happens
to the holder or to the stepper, the program goes on by itself."""
import collections
import fcntl

from steplib import *

STEP = BUILD / "tracerd-step"
ORACLE = BUILD / "tests/programs/ptoracle"
F_GET_SEALS, SEAL_EXEC = 1034, 0x20
if os.uname().machine != "x86_64":
    skip("tracerd-step is for x86-64")
if not STEP.exists() or not ORACLE.exists():
    skip("tracerd-step is not built")
need_command("gcc", "gcc")
WORK = pathlib.Path(tmp())


def build(name, *flags):
    program = WORK / name
    subprocess.run(["gcc", "-O1", "-pthread", *flags, "-o", program, SRC / f"tests/system/inside/{name}.c"], check=True)
    return program


def start(program, *arguments):
    return spawn(program, *arguments, stdout=open(WORK / (program.name + ".out"), "w"))


def said(program):
    return (WORK / (program.name + ".out")).read_text().split()


def threads(pid, key):
    r = {}
    for t in sorted(os.listdir(f"/proc/{pid}/task")):
        try:
            with open(f"/proc/{pid}/task/{t}/status") as f:
                r[t] = next((line.split(None, 1)[1].strip() for line in f if line.startswith(key + ":")), "")
        except OSError:
            pass
    return r


def is_free(pid):
    return all(v == "0" for v in threads(pid, "TracerPid").values())


def goes_on(program, p, why):
    wait_for(f"{why}: nobody traces it", lambda: is_free(p.pid))
    before = len(said(program))
    wait_for(f"{why}: it goes on", lambda: p.poll() is not None or len(said(program)) >= before + 3, 20)
    if p.poll() is not None or not said(program)[-1].isdigit():
        fail(f"{why}: it ended with {p.returncode}, {said(program)[-5:]}")


class Copy:
    """An answer to a request, written to a folder of its own."""

    def __init__(self, name, data, fds):
        kind, self.files, self.error, _, self.raw_ns = struct.unpack_from(FROZEN_FORMAT, data)
        if kind != FROZEN:
            fail(f"{name}: a packet of type {kind}")
        self.stats = unpack_stats(data[struct.calcsize(FROZEN_FORMAT):])
        self.folder = WORK / name
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
        p = subprocess.run([BUILD / "tracectl", "decode", self.data, "--insns", "--symfs", self.folder], capture_output=True, text=True,
                           env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
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


class Control:
    """A stepper and the end that holds it."""
    count = 0

    def __init__(self, pid, *options, **more):
        Control.count += 1
        self.log = WORK / f"control{Control.count}.log"
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(20)
        self.front = subprocess.Popen([STEP, "--control", str(theirs.fileno()), "-p", str(pid), "--log", self.log, *map(str, options)],
                                      pass_fds=[theirs.fileno()], stderr=open(WORK / "stderr", "a"), **more)
        theirs.close()
        self.copies = 0
        data = self.sock.recv(512)
        if not data:
            fail("it ended before it said anything: " + (WORK / "stderr").read_text())
        kind, self.version, self.pid, self.error, why = struct.unpack(HELLO_FORMAT, data)
        self.why = why.split(b"\0")[0].decode()
        if kind != HELLO or self.version != VERSION or self.pid != pid:
            fail(f"hello: {kind} {self.version} {self.pid}")

    def request(self, limit=1 << 30, kind=FREEZE):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.settimeout(20)
        send(self.sock, struct.pack(FREEZE_FORMAT, kind, 0, limit), [theirs.fileno()])
        theirs.close()
        return ours

    def answer(self, sock):
        self.copies += 1
        data, fds, _, _ = socket.recv_fds(sock, 512, 8)
        sock.close()
        return Copy(f"{self.log.stem}-{self.copies}", data, fds)

    def copy(self, limit=1 << 30):
        return self.answer(self.request(limit))

    def executed(self, copy):
        """The log as far as the copy goes."""
        lines = self.log.read_text().splitlines()
        if len(lines) < copy.stats["insns"]:
            fail(f"{len(lines)} lines in the log, {copy.stats['insns']} instructions")
        return by_thread(lines[:copy.stats["insns"]])

    def tracer(self):
        return int(open(f"/proc/{self.front.pid}/task/{self.front.pid}/children").read().split()[0])

    def stats(self, condition, what):
        """Statistics come until they are as one wants."""
        while True:
            s = unpack_stats(self.sock.recv(512))
            if condition(s):
                return s

    def close(self):
        self.sock.close()

    def ends(self, code=0):
        try:
            status = self.front.wait(20)
        except subprocess.TimeoutExpired:
            fail("the stepper does not end")
        expect_quietly(status == code, f"the stepper's exit status is {status}: {(WORK / 'stderr').read_text()[-2000:]}")


def expect_quietly(condition, text):
    if not condition:
        fail(text)


def exact(c, copy, what):
    """All that was executed until then, thread by thread, as libipt and as we decode it."""
    want = c.executed(copy)
    if copy.error or not copy.files & PERFDATA:
        fail(f"{what}: error {copy.error}, files {copy.files}")
    got = copy.oracle()
    for tid in got.keys() | want.keys():
        if got.get(tid, []) != want.get(tid, []):
            fail(f"{what}: thread {tid}: {len(got.get(tid, []))} instructions instead of {len(want.get(tid, []))}")
    if copy.ours() != collections.Counter(ip for ips in want.values() for ip in ips):
        fail(f"{what}: our decoder has other instructions")
    return sum(map(len, want.values()))


def copies(program):
    p = start(program)
    wait_for("the program runs", lambda: len(said(program)) > 2)
    c = Control(p.pid)
    if c.error == -1:
        skip(f"may not ptrace here: {c.why}")
    expect(c.error == 0 and c.why == "", "it says that it steps")
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    s = c.stats(lambda s: s["insns"] > 2000, "instructions")
    expect(s["threads"] == 3 and s["ended"] == 0 and s["bytes"] > 0 and s["max_bytes"] == 64 << 20 and s["processes_all"] == 1,
           f"its statistics: {s}")
    first = c.copy()
    after = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    n = exact(c, first, "a copy")
    expect(before < first.raw_ns < after and 0 < first.stats["oldest_raw_ns"] < before, "with the times of the copy and of its oldest packet")
    s = c.stats(lambda s: s["insns"] > first.stats["insns"] + 2000, "more instructions")
    second = c.copy()
    more = exact(c, second, "a second copy")
    expect(more >= n + 2000, f"copies are exact, and the recording goes on meanwhile: {n}, then {more} instructions")
    expect(second.files & VDSO and (second.folder / "x.data.vdso").read_bytes()[:4] == b"\x7fELF", "the vDSO comes along")
    p2 = subprocess.run([BUILD / "tracectl", "decode", "--stats", second.data], capture_output=True, text=True,
                        env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    expect(p2.returncode == 0, "and decodes by itself")
    requests = [c.request() for _ in range(20)]
    many = [c.answer(r) for r in requests]
    counts = [m.stats["insns"] for m in many]
    exact(c, many[7], "the eighth of twenty")
    exact(c, many[-1], "the last of twenty")
    expect(counts == sorted(counts) and all(m.error == 0 for m in many), "twenty requests at once are answered one by one")
    small = c.copy(4096)
    expect(small.error == -27 and small.files == 0, "what is larger than wanted is refused")
    expect(c.copy(0).error == -27, "and so is anything if nothing is wanted")
    c.close()
    c.ends()
    goes_on(program, p, "the channel's end")
    ok("when the holder goes the program goes on")
    return p


build_loop = build("step-loop")
p = copies(build_loop)
p.kill()
