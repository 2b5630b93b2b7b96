# SPDX-License-Identifier: Apache-2.0
"""For the tests of events: a program that says how far it got (tests/programs/numbers.c), and whether all of it is
in a snapshot, by a reader of its own beside the decoder's."""
import mmap

import lib.ring as ringlib
from lib import *

NUMBERS = BUILD / "tests" / "programs" / "numbers"
TEXT = b"and a text that is long enough to span several slots"


class Numbers:
    """The program: threads that write numbered events, and tell the last number of each."""

    def __init__(self, d, threads=2, pause_us=0):
        self.threads = threads
        self.file = tmp() / f"told-{time.monotonic_ns()}"
        self.process = spawn(NUMBERS, self.file, threads, pause_us, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "TRACERD_SOCKET": str(d.sock)})
        self.pid = self.process.pid
        if not select.select([self.process.stdout], [], [], PATIENCE)[0] or self.process.stdout.readline() != "ready\n":
            fail("the program was not taken in by the daemon")
        with open(self.file, "rb") as f:
            self.map = mmap.mmap(f.fileno(), 0, prot=mmap.PROT_READ)

    def told(self):
        return [struct.unpack_from("<Q", self.map, 64 * t)[0] for t in range(self.threads)]

    def kill(self):
        self.process.kill()
        self.process.wait()
        for f in (self.process.stdin, self.process.stdout):
            f.close()

    def close(self):
        self.map.close()
        self.file.unlink()


def target_of(client, pid):
    """The target of a process, or None."""
    return next((t for t in client.call("target.list")["targets"] if t.get("pid") == pid), None)


def registered(client, pid, state="live", timeout=PATIENCE):
    """Waits until the rings of a process are there, or have ended; its target."""
    def look():
        t = target_of(client, pid)
        return t if t and (t.get("events") or {}).get("state") == state else None
    return wait_for(f"the rings of {pid} are {state}", look, timeout)


def ring_file(client, snapshot, pid=None):
    """The bytes of the copied rings of a snapshot (of one process, if there are several)."""
    names = [f["name"] for f in client.call("snapshot.fetch", {"snapshot": snapshot})["files"]
             if f["name"].startswith("rings/" if pid is None else f"rings/{pid}-")]
    if len(names) != 1:
        fail(f"{len(names)} files of rings in the snapshot")
    return client.fetch(snapshot, *names)[names[0]]


def fields(payload):
    """[(type, bytes)]"""
    out, at = [], 0
    while at + 8 <= len(payload):
        _, kind, size = struct.unpack_from("<IHH", payload, at)
        if kind == ringlib.FIELD_END:
            break
        out.append((kind, payload[at + 8:at + 8 + size]))
        at += 8 + (size + 3) // 4 * 4
    return out


def records(copy, ring, names):
    """([(name, kind, a, payload)], torn slots) of one ring, by the rules of common/bundle/ringabi.h."""
    out, torn = [], 0
    before, after, base = ring["head_before"], ring["head_after"], ring["offset"]

    def slot(i):
        stamp, name, kind, sequence, a, b = struct.unpack_from("<QIHHQQ", copy.data, base + i % copy.slots * ringlib.SLOT_BYTES)
        return (stamp, name, kind, a, b) if sequence == (i // copy.slots + 1) & 0xffff else None
    i = max(0, before - copy.slots, after - copy.slots + ringlib.SPAN_MAX)
    while i < before:
        first = slot(i)
        i += 1
        if first is None:
            torn += 1
        elif first[2] & 63 != ringlib.CONT:
            more = [slot(j) for j in range(i, min(before, i + (first[2] >> 10)))]
            if len(more) == first[2] >> 10 and all(m and m[2] & 63 == ringlib.CONT for m in more):
                payload = b"".join(struct.pack("<QIQQ", m[0], m[1], m[3], m[4]) for m in more)
                out.append((names.get(first[1], b""), first[2] & 63, first[3], payload))
    return out, torn


def numbers(data, threads=2):
    """({number} of each thread, torn slots, slots of a ring) in a copy of that program's rings. The test fails for
    anything that the program does not write."""
    copy = ringlib.RingFile(data)
    names, found, torn = copy.names(), [set() for _ in range(threads)], 0
    for ring in copy.table:
        read, bad = records(copy, ring, names)
        torn += bad
        for name, kind, a, payload in read:
            if kind == ringlib.COUNTER:
                t, n = int(name.split()[1]), a
                if name != b"numbers %d" % t or n % 5 == 0:
                    fail(f"a counter that the program does not write: {name} {n}")
            elif kind == ringlib.LOG:
                values = [v for _, v in fields(payload)]
                n, t = (int.from_bytes(v, "little") for v in values[:2])
                if name != b"number %llu of %u %s" or n % 5 or values[2:] != [TEXT]:
                    fail(f"a log that the program does not write: {name} {values}")
            else:
                continue
            if n in found[t]:
                fail(f"number {n} of thread {t} is there twice")
            found[t].add(n)
    return found, torn, copy.slots


def check_numbers(found, told, slots, what, alive=False):
    """What was told is there without a hole, as far back as a ring reaches."""
    for t, last_told in enumerate(told):
        if not last_told:
            continue
        if not found[t]:
            fail(f"{what}: nothing of thread {t}, which has told {last_told}")
        first, last = min(found[t]), max(found[t])
        # One more may have been written and not told.
        if last < last_told or not alive and last > last_told + 1:
            fail(f"{what}: thread {t} has told {last_told}, the last one found is {last}")
        if len(found[t]) != last - first + 1:
            fail(f"{what}: thread {t}: {last - first + 1 - len(found[t])} are missing between {first} and {last}")
        # Four counters of a slot and a log of five: five numbers are nine slots at most.
        if first > 1 and last - first < (slots - 100) * 5 // 10:
            fail(f"{what}: thread {t}: only {last - first + 1} of {last} are there, in {slots} slots")
