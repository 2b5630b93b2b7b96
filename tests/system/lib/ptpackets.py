# SPDX-License-Identifier: Apache-2.0
"""Intel PT packets for tests: written from words, one packet a line, and found again in bytes. Knows the formats by itself, so
that it shares no mistake with the decoder."""

PSB = bytes.fromhex("0282") * 8
_ADDRESS = {"tip": 0x0D, "tip.pge": 0x11, "tip.pgd": 0x01, "fup": 0x1D}
_IP_BYTES = {0: 0, 1: 2, 2: 4, 3: 6, 4: 6, 6: 8}
# The second byte of those that begin with 02, and how long they are in all.
_EXTENDED = {0x82: 16, 0x23: 2, 0xF3: 2, 0x03: 4, 0x73: 7, 0x43: 8, 0xC8: 7, 0x83: 2, 0xA3: 8, 0x12: 6, 0x32: 10, 0x62: 2, 0xE2: 2,
             0xC2: 10, 0x22: 4, 0xA2: 7, 0x13: 4, 0x53: 11, 0x33: 2, 0xB3: 2, 0x63: 3}


class Encoder:
    """`address` makes a number of an operand."""

    def __init__(self, address=lambda text: int(text, 0)):
        self.address, self.out, self.last = address, bytearray(), 0

    def number(self, value, size):
        self.out += (value & (1 << 8 * size) - 1).to_bytes(size, "little")

    def ip(self, kind, ip=None, form=None):
        """As short as it can be, or in the form that is asked for."""
        if ip is None:
            form = 0
        elif form is None:
            same = lambda bits: ip >> bits == self.last >> bits
            form = 1 if same(16) else 2 if same(32) else 3 if ip < 1 << 47 or ip >= (1 << 64) - (1 << 47) else 6
        self.out.append(_ADDRESS[kind] | form << 5)
        if ip is not None:
            self.number(ip, _IP_BYTES[form])
            self.last = ip

    def tnt(self, decisions, long=False):
        bits = 1
        for c in decisions:
            bits = bits << 1 | (c == "T")
        if len(decisions) > 6 or long:
            self.out += b"\x02\xa3"
            self.number(bits, 6)
        else:
            self.out.append(bits << 1)

    def sync(self, ip=None, tsc=None, mode=1, pad=0):
        self.out += PSB
        self.last = 0
        if tsc is not None:
            self.word("tsc", tsc)
        self.out += bytes([0x99, mode])
        if ip is not None:
            self.ip("fup", ip)
        self.out += b"\x02\x23"

    def word(self, name, *values):
        """A packet of numbers."""
        v = list(values) + [0, 0]
        simple = {"psbend": b"\x02\x23", "ovf": b"\x02\xf3", "pad": b"\0", "stop": b"\x02\x83", "exstop": b"\x02\x62", "exstop.ip": b"\x02\xe2"}
        if name in simple:
            self.out += simple[name]
        elif name == "psb":
            self.out += PSB
            self.last = 0
        elif name == "tsc":
            self.out.append(0x19)
            self.number(v[0], 7)
        elif name == "mtc":
            self.out += bytes([0x59, v[0]])
        elif name == "tma":
            self.out += b"\x02\x73"
            self.number(v[0], 2)
            self.number(v[1] << 8, 3)
        elif name == "cbr":
            self.out += bytes([0x02, 0x03, v[0], 0])
        elif name == "pip":
            self.out += b"\x02\x43"
            self.number(v[0] >> 5 << 1, 6)
        elif name == "vmcs":
            self.out += b"\x02\xc8"
            self.number(v[0] >> 12, 5)
        elif name == "mwait":
            self.out += b"\x02\xc2"
            self.number(v[0], 8)
        elif name == "pwre":
            self.out += b"\x02\x22"
            self.number(v[0], 2)
        elif name == "pwrx":
            self.out += b"\x02\xa2"
            self.number(v[0], 5)
        elif name in ("cfe", "cfe.ip"):
            self.out += bytes([0x02, 0x13, v[0] | (0x80 if name == "cfe.ip" else 0), v[1]])
        elif name in ("ptw", "ptw.ip"):
            self.out += bytes([0x02, 0x32 | (0x80 if name == "ptw.ip" else 0)])
            self.number(v[0], 8)
        elif name == "cyc":
            n, first = v[0], True
            while first or n:
                here, left = (5, 3) if first else (7, 1)
                more = n >> here
                self.out.append((n & (1 << here) - 1) << left | (3 | (4 if more else 0) if first else 1 if more else 0))
                n, first = more, False
        else:
            raise ValueError(f"no packet: {name}")

    def line(self, text):
        """One packet: its name and its operands; `name/FORM` for an address that is to be of one form of compression."""
        name, *rest = text.split()
        name, _, form = name.partition("/")
        if name == "raw":
            self.out += bytes.fromhex("".join(rest))
        elif name in _ADDRESS:
            self.ip(name, self.address(rest[0]) if rest else None, int(form) if form else None)
        elif name in ("tnt", "tnt64"):
            self.tnt(rest[0] if rest else "", name == "tnt64")
        elif name == "sync":
            self.sync(None if rest[0] == "-" else self.address(rest[0]), int(rest[1], 0) if len(rest) > 1 else None,
                      2 if form == "32" else 1)
        elif name == "mode.exec":
            self.out += bytes([0x99, {"16": 0, "64": 1, "32": 2}[rest[0]]])
        elif name == "mode.tsx":
            self.out += bytes([0x99, 0x20 | {"commit": 0, "begin": 1, "abort": 2}[rest[0]]])
        else:
            self.word(name, *(int(r, 0) for r in rest))


def length(data, at):
    """Of the packet at this place, in bytes; 0: there is none."""
    first = data[at]
    if first == 0x02:
        second = data[at + 1] if at + 1 < len(data) else -1
        return _EXTENDED.get(second & 0x7F if second & 0x1F == 0x12 else second, 0)
    if first & 1 == 0:
        return 1
    if first & 3 == 3:
        n = 1
        more = first & 4
        while more:
            if at + n >= len(data):
                return 0
            more = data[at + n] & 1
            n += 1
        return n
    if first & 0x1F in _ADDRESS.values():
        return 1 + _IP_BYTES.get(first >> 5, -1)
    return {0x19: 8, 0x99: 2, 0x59: 2}.get(first, 0)


def address(data, at, last):
    """Of a packet that may have one: its type and what it says, or None."""
    form = data[at] >> 5
    kind = {v: k for k, v in _ADDRESS.items()}.get(data[at] & 0x1F)
    if kind is None or form not in _IP_BYTES:
        return None, None
    if form == 0:
        return kind, None
    n = _IP_BYTES[form]
    value = int.from_bytes(data[at + 1 : at + 1 + n], "little")
    if form == 3:
        value = value | ((1 << 64) - (1 << 48) if value >> 47 else 0)
    elif form != 6:
        value |= last >> 8 * n << 8 * n
    return kind, value


class Block:
    """From a PSB to the next: where, its first and last time, where it begins (None: tracing is off) and which of its bytes say
    so, and whether tracing is on at its end."""

    def __init__(self, begin):
        self.begin = self.end = begin
        self.tsc = self.last_tsc = self.ip = self.fup = None
        self.on = False


def blocks(data):
    """Of a trace that is whole."""
    found, at, last, block, header = [], 0, 0, None, False
    while at < len(data):
        n = length(data, at)
        if n == 0:
            raise ValueError(f"no packet at {at:#x}: {bytes(data[at:at + 8]).hex()}")
        if data.startswith(PSB, at):
            block, header, last = Block(at), True, 0
            found.append(block)
        elif block:
            kind, ip = address(data, at, last) if data[at] & 1 and data[at] & 3 != 3 else (None, None)
            last = ip if ip is not None else last
            if data[at] == 0x19:
                block.last_tsc = int.from_bytes(data[at + 1 : at + 8], "little")
                block.tsc = block.tsc or block.last_tsc
            elif kind == "fup" and header:
                block.ip, block.on = ip, True
                block.fup = at - block.begin, at - block.begin + n
            elif data.startswith(b"\x02\x23", at):
                header = False
            elif kind in ("tip.pge", "tip.pgd"):
                block.on = kind == "tip.pge"
        at += n
        if block:
            block.end = at
    return found
