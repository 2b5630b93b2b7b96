# SPDX-License-Identifier: Apache-2.0
"""A producer of event rings in Python, straight from common/bundle/ringabi.h: for tests that need one that
is honest, and for those that need one that is not (every field can be overwritten, every step left out).

    from lib.ring import *
    rings = Rings(rings=4, slots=256)          # memfd, mapped, header written, sealed
    with d.client() as c:
        control = rings.register(c)            # Control; the connection is the registration
        ring = rings.ring(0)                   # the ring of this thread
        begin = ring.begin("request")
        ring.end("request", begin)
        rings.cause(REGION, "request", begin, stamp(), trigger=control.find("request").id)

Times are CLOCK_MONOTONIC_RAW: Python cannot read the TSC. Nothing here is quick or safe between threads.
"""
import fcntl
import mmap
import os
import struct
import threading
import time

PAGE = 4096
MAGIC = b"TRCDRING"
VERSION = 1
HEADER_BYTES = 4096
CAUSES, CAUSE_BYTES, CAUSE_TEXT = 16, 512, 448
CAUSES_OFFSET = HEADER_BYTES
NAMES_OFFSET = CAUSES_OFFSET + CAUSES * CAUSE_BYTES
SLOT_BYTES, ENTRY_BYTES, NAME_BYTES = 32, 128, 16
SPAN_MAX, CONT_BYTES = 40, 28
THRESHOLDS = 64
CONTROL_BYTES = 5 * PAGE

CLOCK_TSC, CLOCK_RAW = 1, 2
REGION, REQUEST = 1, 2
(THREAD, REGION_BEGIN, REGION_END, INSTANT, LOG, COUNTER, TASK_BEGIN, TASK_END, FLOW, FIBER, THREAD_NAME, TRIGGER,
 CONT) = range(1, 14)
FIELD_END, FIELD_U64, FIELD_I64, FIELD_F64, FIELD_TEXT, FIELD_TEXT_CUT, FIELD_POINTER, FIELD_NAME = range(8)

F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE = 1, 2, 4, 8, 16
SEALS = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL
F_ADD_SEALS, F_GET_SEALS = 1033, 1034

# name, offset in the header, format
HEADER = {
    "magic": (0, "8s"), "version": (8, "I"), "clock": (12, "I"), "total_bytes": (16, "Q"), "pid": (24, "I"),
    "rings": (28, "I"), "slots": (32, "I"), "names_max": (36, "I"), "text_bytes": (40, "I"), "text_offset": (44, "I"),
    "dir_offset": (48, "I"), "data_offset": (52, "I"), "n_names": (56, "I"), "text_used": (60, "I"),
    "cause_head": (64, "Q"), "lost_names": (72, "Q"), "lost_events": (80, "Q"), "lost_long": (88, "Q"),
    "requests_suppressed": (96, "Q"), "started": (104, "Q"),
}
SUPPRESSED_OFFSET = 128


def stamp():
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)


def ring_hash(data):
    h = 0xcbf29ce484222325
    for b in data:
        h = ((h ^ b) * 0x100000001b3) & (2**64 - 1)
    return h


def layout(rings, slots, names_max, text_bytes):
    """{text_offset, dir_offset, data_offset, total_bytes} of that geometry; checks nothing."""
    def up(n):
        return (n + PAGE - 1) // PAGE * PAGE
    text_offset = NAMES_OFFSET + up(names_max * NAME_BYTES)
    dir_offset = text_offset + text_bytes
    data_offset = dir_offset + up(rings * ENTRY_BYTES)
    return {"text_offset": text_offset, "dir_offset": dir_offset, "data_offset": data_offset,
            "total_bytes": data_offset + rings * slots * SLOT_BYTES}


class Rings:
    """The memory of one process. `header` overwrites fields, `size` the memfd's size, `seals` what is sealed
    (None: nothing), `flags` go to memfd_create()."""

    def __init__(self, rings=4, slots=256, names_max=256, text_bytes=16 * PAGE, clock=CLOCK_RAW, seals=SEALS,
                 header=None, size=None, flags=0, fd=None):
        self.n_rings, self.slots, self.names_max, self.text_bytes = rings, slots, names_max, text_bytes
        self.at = layout(rings, slots, names_max, text_bytes)
        self.size = size if size is not None else self.at["total_bytes"]
        self.fd = fd if fd is not None else os.memfd_create(
            "rings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | flags)
        os.ftruncate(self.fd, self.size)
        self.map = mmap.mmap(self.fd, self.size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.names = {}
        fields = {"magic": MAGIC, "version": VERSION, "clock": clock, "pid": os.getpid(), "rings": rings,
                  "slots": slots, "names_max": names_max, "text_bytes": text_bytes, "started": stamp(), **self.at}
        for name, value in {**fields, **(header or {})}.items():
            self.set(name, value)
        if seals is not None:
            self.seal(seals)

    def seal(self, seals=SEALS):
        fcntl.fcntl(self.fd, F_ADD_SEALS, seals)

    def close(self):
        self.map.close()
        os.close(self.fd)
        os.close(self.wake_fd)

    # -- the header and bytes as they are

    def set(self, name, value):
        offset, form = HEADER[name]
        self.put(offset, "<" + form, value)

    def get(self, name):
        offset, form = HEADER[name]
        return struct.unpack_from("<" + form, self.map, offset)[0]

    def put(self, offset, form, *values):
        size = struct.calcsize(form)
        if offset + size <= self.size:
            struct.pack_into(form, self.map, offset, *values)

    # -- names

    def name(self, text):
        """The number of a name."""
        data = text.encode() if isinstance(text, str) else text
        if not data:
            return 0
        if data not in self.names:
            number, used = self.get("n_names") + 1, self.get("text_used")
            if number > self.names_max or used + len(data) > self.text_bytes:
                self.set("lost_names", self.get("lost_names") + 1)
                return 0
            self.set("n_names", number)
            self.set("text_used", used + len(data))
            self.map[self.at["text_offset"] + used:self.at["text_offset"] + used + len(data)] = data
            self.put(NAMES_OFFSET + (number - 1) * NAME_BYTES, "<IIQ", used, len(data), ring_hash(data))
            self.names[data] = number
        return self.names[data]

    # -- rings

    def ring(self, number, tid=None, name=""):
        """Claims a ring for a thread (None: this one)."""
        return Ring(self, number, threading.get_native_id() if tid is None else tid, name)

    # -- causes

    def cause(self, kind, text, begin, end, trigger=0, tid=None, name=None, wake=True):
        data = text.encode() if isinstance(text, str) else text
        c = self.get("cause_head")
        self.set("cause_head", c + 1)
        at = CAUSES_OFFSET + c % CAUSES * CAUSE_BYTES
        number = self.name(data) if name is None and kind == REGION else name or 0
        self.put(at, "<Q", 0)
        self.put(at + 8, "<IIIIQQII", kind, threading.get_native_id() if tid is None else tid, number, trigger, begin,
                 end, len(data), 0)
        self.map[at + 48:at + 48 + CAUSE_TEXT] = data[:CAUSE_TEXT].ljust(CAUSE_TEXT, b"\0")
        self.put(at, "<Q", c + 1)
        if wake:
            self.wake()
        return c

    def wake(self):
        os.eventfd_write(self.wake_fd, 1)

    # -- registration

    def register(self, client, fds=None, names=("rings", "wake")):
        """Over a Client of lib/__init__.py, which has to stay open. The target is in Control.target."""
        target = client.call("target.register", {"fds": list(names)},
                             [self.fd, self.wake_fd] if fds is None else fds)["target"]
        (fd,) = client.fds
        client.fds = []
        return Control(fd, target)

    def register_error(self, client, fds=None, names=("rings", "wake")):
        """(code, message) of the error that it must be answered with."""
        import lib
        try:
            control = self.register(client, fds, names)
        except lib.Error as e:
            return e.code, e.message
        lib.fail(f"target.register was not refused: {control.target}")


class Ring:
    """One thread's ring."""

    def __init__(self, rings, number, tid, name):
        self.rings, self.number, self.tid = rings, number, tid
        self.entry = rings.at["dir_offset"] + number * ENTRY_BYTES
        self.data = rings.at["data_offset"] + number * rings.slots * SLOT_BYTES
        before, claims = struct.unpack_from("<II", rings.map, self.entry + 8)
        number = rings.name(name)
        rings.put(self.entry + 8, "<III", tid, claims + 1, number)
        rings.put(self.entry + 32, "<Q", stamp())
        self.write(THREAD, number, tid, before)

    @property
    def head(self):
        return struct.unpack_from("<Q", self.rings.map, self.entry)[0]

    @head.setter
    def head(self, value):
        self.rings.put(self.entry, "<Q", value)

    def slot(self, index, at, name, kind, a, b):
        """One slot with its sequence, wherever the head is."""
        slots = self.rings.slots
        offset = self.data + index % slots * SLOT_BYTES
        self.rings.put(offset, "<Q", at)
        self.rings.put(offset + 16, "<QQ", a, b)
        self.rings.put(offset + 8, "<IHH", name, kind, (index // slots + 1) & 0xffff)

    def write(self, kind, name=0, a=0, b=0, payload=b"", at=None):
        """One record; returns its stamp."""
        if isinstance(name, (str, bytes)):
            name = self.rings.name(name)
        conts = (len(payload) + CONT_BYTES - 1) // CONT_BYTES
        payload = payload.ljust(conts * CONT_BYTES, b"\0")
        index = self.head
        self.head = index + 1 + conts
        at = stamp() if at is None else at
        self.slot(index, at, name, kind | conts << 10, a, b)
        for i in range(conts):
            part = payload[i * CONT_BYTES:(i + 1) * CONT_BYTES]
            first, word, a, b = struct.unpack("<QIQQ", part)
            self.slot(index + 1 + i, first, word, CONT, a, b)
        return at

    def begin(self, name, payload=b"", task=0):
        return self.write(REGION_BEGIN, name, 0, task, payload)

    def end(self, name, begin, payload=b"", task=0):
        return self.write(REGION_END, name, begin, task, payload)

    def instant(self, name, payload=b"", task=0):
        return self.write(INSTANT, name, 0, task, payload)

    def log(self, text, level=1, task=0):
        return self.write(LOG, 0, level, task, field(FIELD_TEXT, text))

    def counter(self, name, value):
        return self.write(COUNTER, name, value & (2**64 - 1))


def field(kind, value, name=0):
    """One field of a payload."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, float):
        value = struct.pack("<d", value)
    if isinstance(value, int):
        value = struct.pack("<q" if kind == FIELD_I64 else "<I" if kind == FIELD_NAME else "<Q", value)
    return struct.pack("<IHH", name, kind, len(value)) + value + b"\0" * (-len(value) % 4)


class Threshold:
    def __init__(self, data):
        self.hash, self.threshold_ns, self.cooldown_ns, self.id, length = struct.unpack_from("<QQQII", data)
        self.name = data[32:32 + length]


class Control:
    """The daemon's page, mapped read-only."""

    def __init__(self, fd, target):
        self.fd, self.target = fd, target
        self.map = mmap.mmap(fd, CONTROL_BYTES, mmap.MAP_SHARED, mmap.PROT_READ)

    def close(self):
        self.map.close()
        os.close(self.fd)

    @property
    def magic(self):
        return self.map[0:8]

    @property
    def generation(self):
        return struct.unpack_from("<I", self.map, 12)[0]

    @property
    def ticks_per_second(self):
        return struct.unpack_from("<Q", self.map, 16)[0]

    @property
    def request_interval_ns(self):
        return struct.unpack_from("<Q", self.map, 24)[0]

    def thresholds(self):
        """{index: Threshold} of the entries in use, read as the ABI says."""
        while True:
            before = self.generation
            data = bytes(self.map)
            if before % 2 == 0 and self.generation == before:
                break
        all_ = {i: Threshold(data[128 + i * 256:384 + i * 256]) for i in range(THRESHOLDS)}
        return {i: t for i, t in all_.items() if t.id}

    def find(self, name):
        """The threshold of that name, or None."""
        name = name.encode() if isinstance(name, str) else name
        return next((t for t in self.thresholds().values() if t.name == name), None)


# -- files of a bundle (common/bundle/ringfile.h), without interpreting a slot

class RingFile:
    def __init__(self, data):
        (self.magic, self.version, self.flags, self.pid, self.nspid, self.start_time, self.clock, self.rings,
         self.slots, self.names_max, self.text_bytes, self.n_rings, self.begin_tsc, self.begin_raw_ns, self.end_tsc,
         self.end_raw_ns, self.shared_offset, self.shared_bytes) = struct.unpack_from("<8sIIIIQ6I4QQQ", data)
        self.data = data
        self.table = [dict(zip(("ring", "host_tid", "head_before", "head_after", "offset", "bytes"),
                               struct.unpack_from("<IIQQQQ", data, 136 + i * 40))) for i in range(self.n_rings)]

    @property
    def ended(self):
        return bool(self.flags & 1)

    @property
    def cut(self):
        return bool(self.flags & 2)

    def shared(self):
        return self.data[self.shared_offset:self.shared_offset + self.shared_bytes]

    def names(self):
        """{number: bytes}."""
        shared = self.shared()
        text = layout(self.rings, self.slots, self.names_max, self.text_bytes)["text_offset"]
        out = {}
        for i in range(min(struct.unpack_from("<I", shared, 56)[0], self.names_max)):
            offset, length = struct.unpack_from("<II", shared, NAMES_OFFSET + i * NAME_BYTES)
            out[i + 1] = shared[text + offset:text + offset + length]
        return out

    def records(self, index=0):
        """[(stamp, name, kind, a, b)] of a ring's first slots whose sequence is right, oldest first."""
        r, names, out = self.table[index], self.names(), []
        for i in range(max(0, r["head_before"] - self.slots), r["head_before"]):
            at, name, kind, sequence, a, b = struct.unpack_from(
                "<QIHHQQ", self.data, r["offset"] + i % self.slots * SLOT_BYTES)
            if sequence == (i // self.slots + 1) & 0xffff and kind & 0x3f != CONT:
                out.append((at, names.get(name, b""), kind & 0x3f, a, b))
        return out
