# SPDX-License-Identifier: Apache-2.0
"""For the behaviour tests of capture: targets to record, and the records of a bundle's perf.data."""
import collections
import os
import pathlib
import struct
import sys
import time

from lib import *

SAMPLE, COMM, EXIT, FORK, SWITCH, SWITCH_CPU_WIDE, MMAP2 = 9, 3, 4, 7, 14, 15, 10
# The ids that the daemon gives to events in a bundle (daemon/backend/sample/export.c, daemon/target/sideband_log.h).
HISTORY = 0x4000000000000001
CLOCK, SCHED, SCHED_PLAIN, BLOCKED, BLOCKED_ARMED = (0x4000000000000010 + i for i in range(5))
SCHED_MAGIC = 0x01455354
OUT, IN, WAKEUP = 1, 2, 3
STILL = 5  # waits at the freeze: SCHEDEV_BLOCKED

SOURCE_EVENTS = 16  # the ids above are of the present rings; those from before a change have the next ones, 16 for each


def is_clock(record):
    """A sample of a CPU's clock, whichever rings it was in."""
    return record.type == SAMPLE and record.id >= CLOCK and (record.id - CLOCK) % SOURCE_EVENTS == 0


Record = collections.namedtuple("Record", "type misc id pid tid time body")
Sched = collections.namedtuple("Sched", "kind flags pid tid state other_pid other_tid other_uid cpu comm")


def need_unwinding(c):
    if not c.call("status")["capture"].get("unwinds"):
        skip("stacks are not unwound in the kernel here")


# A thread that burns the cpu and sleeps in turns; a line on stdin makes one more ("thread"),
# forks ("fork"), maps a library ("load") or executes another program ("exec").
TARGET = r"""
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
def name(text): libc.prctl(15, text.encode(), 0, 0, 0)
def burn(ms):
    end = time.thread_time() + ms / 1000
    while time.thread_time() < end: sum(range(200))
def worker(text, ms, pause):
    name(text)
    while True:
        burn(ms)
        if pause: time.sleep(pause)
name(sys.argv[1])
def start(text): threading.Thread(target=worker, args=(text, 3, 0.002), daemon=True).start()
if "idle" not in sys.argv[2:]: start("early")
print("ready", flush=True)
for line in sys.stdin:
    word = line.split()
    if word[0] == "thread": start(word[1])
    elif word[0] == "fork":
        pid = os.fork()
        if pid == 0:
            name("child"); burn(300); os._exit(0)
        print(pid, flush=True)
    elif word[0] == "exec": os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(6000)"])
    elif word[0] == "exit": break
    elif word[0] == "load":
        import glob
        maps = open("/proc/self/maps").read()
        for path in sorted(glob.glob("/usr/lib/*/lib*.so.*") + glob.glob("/usr/lib64/lib*.so.*")):
            path = os.path.realpath(path)
            if path in maps or os.path.getsize(path) > 500000: continue
            try: ctypes.CDLL(path)
            except OSError: continue
            print(path, flush=True)
            break
    print("done", flush=True)
"""


def interpreter():
    """A Python that every user may execute."""
    for path in ("/usr/bin/python3", os.path.realpath(sys.executable)):
        if os.path.exists(path) and all(os.stat(p).st_mode & 1 for p in (path, *pathlib.Path(path).parents)):
            return path
    skip("no Python that other users may execute")


class Target:
    def __init__(self, name, *words, uid=None):
        self.process = spawn(interpreter(), "-c", TARGET, name, *words, uid=uid, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.expect("ready")

    def expect(self, word):
        line = self.process.stdout.readline().strip()
        if line != word:
            fail(f"the target said {line!r}, not {word!r}")

    def tell(self, line, answer="done"):
        self.process.stdin.write(line + "\n")
        if answer:
            self.expect(answer)

    def fork(self):
        self.process.stdin.write("fork\n")
        pid = int(self.process.stdout.readline())
        self.expect("done")
        return pid

    def load(self):
        """Has it map a library that it had not; its path."""
        self.process.stdin.write("load\n")
        path = self.process.stdout.readline().strip()
        self.expect("done")
        return path

    def kill(self):
        self.process.kill()
        self.process.wait()


def records(data):
    """All records of a perf.data file's data section."""
    if data[:8] != b"PERFILE2":
        fail("perf.data has no magic number")
    begin, size = struct.unpack_from("<QQ", data, 40)
    at, end, out = begin, begin + size, []
    while at < end:
        kind, misc, length = struct.unpack_from("<IHH", data, at)
        if length < 8 or length % 8 or at + length > end:
            fail(f"perf.data: a bad record at {at}")
        body = data[at:at + length]
        if kind == SAMPLE:
            ident, _, pid, tid, when = struct.unpack_from("<QQIIQ", body, 8)
        elif kind < 64:
            pid, tid, when, _, _, ident = struct.unpack_from("<IIQIIQ", body, length - 32)
        else:
            pid = tid = when = ident = 0
        out.append(Record(kind, misc, ident, pid, tid, when, body))
        at += length
    return out


def sched(record):
    """The payload of a "sched" sample: found by its magic number, behind the call chain if there is one."""
    at = 8 + 8 + 8 + 8 + 8 + 8
    if record.id != SCHED_PLAIN:
        (n,) = struct.unpack_from("<Q", record.body, at)
        at += 8 + 8 * n
    (size,) = struct.unpack_from("<I", record.body, at)
    magic, *rest = struct.unpack_from("<IHHIIQIIII16s", record.body, at + 4)
    if magic != SCHED_MAGIC or size < 56:
        fail("a sched sample without its payload")
    return Sched(*rest[:-1], rest[-1].split(b"\0")[0].decode())


def bundle(client, target, **params):
    """Snapshots, and returns (meta, records, snapshot)."""
    import json
    s = client.snapshot(target, **params)
    if s["state"] not in ("done", "failed"):
        fail(f"the snapshot is {s['state']}: {s['error']}")
    files = client.fetch(s["id"], "meta.json", "perf.data")
    return json.loads(files["meta.json"]), records(files["perf.data"]), s


def names(recs):
    """The names that COMM records give to threads."""
    return {r.tid: r.body[16:-32].split(b"\0")[0].decode(errors="replace") for r in recs if r.type == COMM}


def cgroup_mount():
    for line in open("/proc/self/mountinfo"):
        left, _, right = line.partition(" - ")
        if right.startswith("cgroup2 "):
            return pathlib.Path(left.split()[4])
    skip("no unified cgroup hierarchy")


class Cgroup:
    """A cgroup of the test's own; gone when the test is."""

    def __init__(self, name, parent=None):
        self.path = (parent or cgroup_mount()) / name
        try:
            self.path.mkdir()
        except OSError as e:
            skip(f"cannot make a cgroup: {e}")
        atexit.register(self.remove)

    def add(self, pid):
        (self.path / "cgroup.procs").write_text(str(pid))

    def remove(self):
        for _ in range(100):
            try:
                for pid in (self.path / "cgroup.procs").read_text().split():
                    os.kill(int(pid), 9)
                self.path.rmdir()
                return
            except FileNotFoundError:
                return
            except OSError:
                time.sleep(0.05)
