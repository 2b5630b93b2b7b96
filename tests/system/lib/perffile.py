# SPDX-License-Identifier: Apache-2.0
"""perf.data files for tests: read, made record by record, changed, and written in any of the layouts that perf writes. Knows
the format by itself, so that it shares no mistake with the decoder."""
import ctypes
import struct

MMAP2, COMM, EXIT, FORK, AUX, ITRACE_START, SWITCH, SWITCH_CPU_WIDE = 10, 3, 4, 7, 11, 12, 14, 15
HEADER_ATTR, FINISHED_ROUND, AUXTRACE_INFO, AUXTRACE, TIME_CONV, HEADER_FEATURE, COMPRESSED = 64, 68, 70, 71, 79, 80, 81
FEATURE_AUXTRACE, FEATURE_COMPRESSED = 18, 27
SWITCH_OUT = 1 << 13
COMM_EXEC = 1 << 13

# IP, TID, TIME, CPU, IDENTIFIER: all but the first are in the trailer
SAMPLE_TYPE = 1 | 2 | 4 | 0x80 | 0x10000
PT_TYPE, PT_ID, SIDE_ID = 6, 1, 2
TSC, NORETCOMP, MTC, CYC, BRANCH, PT = 1 << 10, 1 << 11, 1 << 9, 1 << 1, 1 << 13, 1
SAMPLE_ID_ALL, EXCLUDE_KERNEL, EXCLUDE_HV = 1 << 18, 1 << 5, 1 << 6
SIDE_FLAGS = 1 << 8 | 1 << 23 | 1 << 9 | 1 << 24 | 1 << 13 | 1 << 26  # mmap, mmap2, comm, comm_exec, task, context_switch


def attr(kind, config, flags, sample_type=SAMPLE_TYPE):
    return struct.pack("<IIQQQQQ", kind, 112, config, 1, sample_type, 4, SAMPLE_ID_ALL | EXCLUDE_HV | flags).ljust(112, b"\0")


class PerfFile:
    """.records: [bytes of the record, bytes that follow an AUXTRACE or b""]; .attrs: (bytes, ids); .features: {bit: bytes}"""

    def __init__(self):
        self.attrs, self.features, self.records = [], {}, []

    # ---- reading

    @classmethod
    def read(cls, path):
        """Of the file layout."""
        data, f = path.read_bytes(), cls()
        magic, size, attr_size, attrs, attrs_size, at, data_size = struct.unpack_from("<8sQQQQQQ", data)
        if magic != b"PERFILE2" or size != 104:
            raise ValueError(f"{path}: no perf.data in the file layout")
        bits = int.from_bytes(data[72:104], "little")
        for i in range(attrs, attrs + attrs_size, attr_size):
            ids, ids_size = struct.unpack_from("<QQ", data, i + attr_size - 16)
            f.attrs.append((data[i : i + attr_size - 16], list(struct.unpack_from(f"<{ids_size // 8}Q", data, ids))))
        end = at + data_size
        table = end
        for bit in range(256):
            if bits >> bit & 1:
                offset, n = struct.unpack_from("<QQ", data, table)
                table += 16
                f.features[bit] = data[offset : offset + n]
        while at < end:
            kind, _, n = struct.unpack_from("<IHH", data, at)
            more = struct.unpack_from("<Q", data, at + 8)[0] if kind == AUXTRACE else 0
            f.records.append([data[at : at + n], data[at + n : at + n + more]])
            at += n + more
        return f

    def of_type(self, *kinds):
        return [r for r in self.records if struct.unpack_from("<I", r[0])[0] in kinds]

    # ---- making

    def add(self, kind, body, misc=0, payload=b""):
        self.records.append([struct.pack("<IHH", kind, misc, 8 + len(body)) + body, payload])

    def start(self, config=PT | TSC | BRANCH, shift=0, mult=1, zero=0, snapshot=False, per_cpu=False, mtc_period=0, ctc=(0, 0), ratio=0,
              kernel=False, sample_type=SAMPLE_TYPE):
        """The events of a recording of Intel PT, and AUXTRACE_INFO."""
        self.sample_type = sample_type
        flags = 0 if kernel else EXCLUDE_KERNEL
        self.attrs = [(attr(PT_TYPE, config | mtc_period << 14, flags, sample_type), [PT_ID]),
                      (attr(1, 9, flags | SIDE_FLAGS, sample_type), [SIDE_ID])]
        self.info(PT_TYPE, shift, mult, zero, 1, TSC, NORETCOMP, 0, snapshot, per_cpu, MTC, 0xF << 14, *ctc, CYC, ratio, 0)

    def info(self, *words):
        self.add(AUXTRACE_INFO, struct.pack("<II", 1, 0) + struct.pack(f"<{len(words)}Q", *words))

    def side(self, kind, body, time, pid, tid, cpu=0, misc=0, event=None):
        """A record with its trailer, of the event of side-band if it is not said of which."""
        event = event if event is not None else self.attrs[1][1][0]
        self.add(kind, body + struct.pack("<IIQIIQ", pid, tid, time, cpu, 0, event), misc)

    def comm(self, time, pid, tid, name, exec=False):
        text = name.encode() + b"\0"
        self.side(COMM, struct.pack("<II", pid, tid) + text.ljust(len(text) + 7 & ~7, b"\0"), time, pid, tid, misc=COMM_EXEC if exec else 0)

    def mmap(self, time, pid, tid, start, size, offset, path, prot=5, inode=None):
        """`inode`: the device's two numbers and the inode; those of no file if not given."""
        text = path.encode() + b"\0"
        self.side(MMAP2, struct.pack("<IIQQQIIQQII", pid, tid, start, size, offset, *(inode or (8, 1, sum(text))), 0, prot, 2)
                  + text.ljust(len(text) + 7 & ~7, b"\0"), time, pid, tid, misc=2)

    def task(self, kind, time, pid, tid, ppid, ptid):
        self.side(kind, struct.pack("<IIIIQ", pid, ppid, tid, ptid, time), time, pid, tid)

    def switch(self, time, pid, tid, out, cpu=0):
        self.side(SWITCH, b"", time, pid, tid, cpu, SWITCH_OUT if out else 0)

    def switch_wide(self, time, pid, tid, other_pid, other_tid, out, cpu=0):
        self.side(SWITCH_CPU_WIDE, struct.pack("<II", other_pid, other_tid), time, pid, tid, cpu, SWITCH_OUT if out else 0)

    def itrace_start(self, time, pid, tid, cpu=0):
        self.side(ITRACE_START, struct.pack("<II", pid, tid), time, pid, tid, cpu, event=self.attrs[0][1][0])

    def aux(self, time, pid, tid, offset, size, flags=0, cpu=0):
        self.side(AUX, struct.pack("<QQQ", offset, size, flags), time, pid, tid, cpu, event=self.attrs[0][1][0])

    def auxtrace(self, payload, idx, tid=0xFFFFFFFF, cpu=0xFFFFFFFF, offset=0, reference=0):
        payload = bytes(payload)
        payload += bytes(-len(payload) % 8)
        self.add(AUXTRACE, struct.pack("<QQQIIII", len(payload), offset, reference, idx, tid & 0xFFFFFFFF, cpu & 0xFFFFFFFF, 0), 0, payload)

    # ---- writing

    def kept_features(self):
        """But for the index of AUXTRACE records, whose offsets are those of another file."""
        return {bit: v for bit, v in sorted(self.features.items()) if bit != FEATURE_AUXTRACE}

    def auxtrace_index(self, at):
        """Where the AUXTRACE records are, as perf has it in a feature; the records begin at `at`."""
        entries = b""
        for r, payload in self.records:
            if struct.unpack_from("<I", r)[0] == AUXTRACE:
                entries += struct.pack("<QQ", at, len(r))
            at += len(r) + len(payload)
        return struct.pack("<Q", len(entries) // 16) + entries

    def write_file(self, path):
        n, size = len(self.attrs), len(self.attrs[0][0]) + 16
        ids_at = 104
        attrs_at = ids_at + 8 * sum(len(ids) for _, ids in self.attrs)
        data_at = attrs_at + n * size
        records = b"".join(r + payload for r, payload in self.records)
        features = dict(sorted({**self.kept_features(), FEATURE_AUXTRACE: self.auxtrace_index(data_at)}.items()))
        at = data_at + len(records) + 16 * len(features)
        out, ids = bytearray(), b""
        for a, these in self.attrs:
            out += a + struct.pack("<QQ", ids_at + len(ids), 8 * len(these))
            ids += struct.pack(f"<{len(these)}Q", *these)
        table = b""
        for v in features.values():
            table += struct.pack("<QQ", at, len(v))
            at += len(v)
        bits = sum(1 << bit for bit in features)
        head = struct.pack("<8sQQQQQQQQ", b"PERFILE2", 104, size, attrs_at, n * size, data_at, len(records), 0, 0) + bits.to_bytes(32, "little")
        path.write_bytes(head + ids + bytes(out) + records + table + b"".join(features.values()))
        return path

    def write_pipe(self, path):
        out = bytearray(struct.pack("<8sQ", b"PERFILE2", 16))
        for a, ids in self.attrs:
            body = a + struct.pack(f"<{len(ids)}Q", *ids)
            out += struct.pack("<IHH", HEADER_ATTR, 0, 8 + len(body)) + body
        for bit, v in self.kept_features().items():
            body = struct.pack("<Q", bit) + v + bytes(-len(v) % 8)
            out += struct.pack("<IHH", HEADER_FEATURE, 0, 8 + len(body)) + body
        for r, payload in self.records:
            out += r + payload
        path.write_bytes(out)
        return path

    def compress(self, group=4096):
        """As `perf record -z`: what the kernel wrote is compressed, what perf itself wrote is not."""
        out, waiting = PerfFile(), b""
        out.attrs, out.features = self.attrs, dict(self.features)
        # version, type (zstd), level, ratio, size of the buffer that it is read into
        out.features[FEATURE_COMPRESSED] = struct.pack("<IIIII", 1, 1, 1, 2, 1 << 20)

        def flush():
            nonlocal waiting
            if waiting:
                out.add(COMPRESSED, zstd(waiting))
            waiting = b""

        for r, payload in self.records:
            if struct.unpack_from("<I", r)[0] >= HEADER_ATTR:
                flush()
                out.records.append([r, payload])
                continue
            if len(waiting) + len(r) > group:
                flush()
            waiting += r
        flush()
        return out


def zstd(data):
    lib = ctypes.CDLL("libzstd.so.1")
    lib.ZSTD_compressBound.restype = lib.ZSTD_compress.restype = ctypes.c_size_t
    lib.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    lib.ZSTD_compress.argtypes = [ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int]
    room = lib.ZSTD_compressBound(len(data))
    out = ctypes.create_string_buffer(room)
    n = lib.ZSTD_compress(out, room, data, len(data), 1)
    if n > room:
        raise ValueError("zstd")
    return out.raw[:n]
