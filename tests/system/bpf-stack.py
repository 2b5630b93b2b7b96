#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 60
# Linux up to 6.1 takes no BPF program whose functions need more than 512 bytes of stack along a chain of calls, each rounded up to 32
# (check_max_stack_depth()); later ones do not count so, and take what those refuse. The object has what each one needs.
import struct

from lib import *

LIMIT, ROUND = 512, 32
CLASS_LDX, CLASS_ST, CLASS_STX = 1, 2, 3
MOV_REG, ADD_IMM, CALL, LOAD_IMM64 = 0xBF, 0x07, 0x85, 0x18
PSEUDO_CALL, FRAME = 1, 10


class Object:
    def __init__(self, path):
        self.data = path.read_bytes()
        at, size, n, names = struct.unpack_from("<40xQ10xHHH", self.data, 0)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", self.data, at + i * size) for i in range(n)]
        symtab = next(s for s in self.sections if s[1] == 2)
        strings = self.sections[symtab[6]]
        self.symbols = []
        for i in range(symtab[5] // 24):
            name, info, _, section, value, length = struct.unpack_from("<IBBHQQ", self.data, symtab[4] + i * 24)
            end = self.data.index(b"\0", strings[4] + name)
            self.symbols.append((self.data[strings[4] + name : end].decode(), info & 15, section, value, length))
        # name: (section, first byte, bytes)
        self.functions = {name: (section, value, length) for name, kind, section, value, length in self.symbols if kind == 2}

    def called(self, section, insn, imm):
        """By the relocation of that call, or by how far away it is."""
        for s in self.sections:
            if s[1] == 9 and s[7] == section:
                for at in range(s[4], s[4] + s[5], 16):
                    offset, info = struct.unpack_from("<QQ", self.data, at)
                    if offset == insn:
                        name, kind, where, value, _ = self.symbols[info >> 32]
                        if kind == 2:
                            return name
                        section, value = where, (imm + 1) * 8
                        return next(f for f, (s, first, _) in self.functions.items() if s == section and first == value)
        value = insn + (imm + 1) * 8
        return next(f for f, (s, first, _) in self.functions.items() if s == section and first == value)

    def needs(self, name):
        """The bytes of a function's own frame, and what it calls."""
        section, first, length = self.functions[name]
        text, frame, calls, based = self.sections[section][4], 0, set(), None
        skip = False
        for at in range(first, first + length, 8):
            if skip:
                skip = False
                continue
            code, regs, off, imm = struct.unpack_from("<BBhi", self.data, text + at)
            dst, src = regs & 15, regs >> 4
            skip = code == LOAD_IMM64
            if (code & 7 == CLASS_LDX and src == FRAME) or (code & 7 in (CLASS_ST, CLASS_STX) and dst == FRAME):
                frame = max(frame, -off)
            if code == ADD_IMM and dst == based:
                frame = max(frame, -imm)
            based = dst if code == MOV_REG and src == FRAME else None
            if code == CALL and src == PSEUDO_CALL:
                calls.add(self.called(section, at, imm))
        return frame, calls


def deepest(functions, name):
    frame, calls = functions[name]
    below = max((deepest(functions, c) for c in calls), default=(0, []))
    return (max(frame, 1) + ROUND - 1) // ROUND * ROUND + below[0], [f"{name} {frame}", *below[1]]


path = BUILD / "daemon/backend/sample/sched.bpf.o"
if not path.exists():
    skip("tracerd was built without BPF")
o = Object(path)
functions = {name: o.needs(name) for name in o.functions}
called = {c for _, calls in functions.values() for c in calls}
programs = sorted(set(functions) - called)
expect(len(programs) >= 6 and "on_switch" in programs, f"the programs are found: {' '.join(programs)}")
expect(len(called) >= 4, f"and what they call: {' '.join(sorted(called))}")
for name in programs:
    total, chain = deepest(functions, name)
    expect(total <= LIMIT, f"{name} needs {total} bytes of stack, at most {LIMIT}: {', '.join(chain)}")
