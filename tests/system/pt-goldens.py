#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""tests/golden/pt/*.ptt: a little assembly and packets, and the branches, the calls and the losses that must come of them.

A file begins with what it shows, then come its sections, each behind a line of "--- NAME":

    code [32] [entry] [FILE]  assembly ("func f" begins a function, "endf f" ends it), linked at 0x401000; FILE is "prog" if not given, another one lies at 0x501000;
                          entry: the kernel begins the program at _start; "kernel" and "module" are in no process: a bundle has a copy of them (kcore), and kallsyms
    packets [TID|cpu N]   one packet a line (tests/system/lib/ptpackets.py); %SYMBOL[+N] is an address; a comment begins with #
    sideband              TIME, what, and of whom; without this section thread 100 of process 100 has run prog from the begin
    config                "mtc_period 3", "kernel 1"...: perffilelib.PerfFile.start()
    branches, calls, insns, trace, losses    as `tracectl decode` (trace: --format text, but for its head) writes them, without the object's name "(prog)"; a branch is said by
                          names alone; addresses without a name stay

A stamp of the trace is a nanosecond of perf's clock. `pt-goldens.py --update [NAME]...` writes what comes out: to be read
before it is committed."""
import re

from lib import *
from lib.perffile import COMM, EXIT, FORK, PerfFile
from lib.ptpackets import Encoder

# "func f" begins a function, "endf f" ends it.
MACROS = """.intel_syntax noprefix
.macro func name
	.globl \\name
	.type \\name, @function
\\name:
.endm
.macro endf name
	.size \\name, . - \\name
.endm
.text"""
GOLDEN = SRC / "tests/golden/pt"
VIEWS = ("branches", "calls", "insns")
SHOWN = VIEWS + ("trace", "losses")


def parse(path):
    """[(name, arguments, lines)]"""
    sections = [["head", [], []]]
    for line in path.read_text().splitlines():
        if line.startswith("--- "):
            name, *args = line[4:].split()
            sections.append([name, args, []])
        else:
            sections[-1][2].append(line)
    return sections


# Where Linux has its text, and modules.
KERNEL = {"kernel": 0xFFFFFFFF81000000, "module": 0xFFFFFFFFC0001000}


class Program:
    def __init__(self, work, name, lines, bits, base, entry):
        source, self.path = work / f"{name}.s", work / name
        source.write_text("\n".join([MACROS, *lines, ""]))
        for command in (["as", f"--{bits}", "-o", work / f"{name}.o", source],
                        ["ld", "-m", "elf_i386" if bits == 32 else "elf_x86_64", "-o", self.path, "-Ttext", hex(base), "-e", entry,
                         "--section-start", f".plt={base + 0x2000:#x}", "--eh-frame-hdr", "-z", "noexecstack", work / f"{name}.o"]):
            p = subprocess.run(command, capture_output=True, text=True)
            if p.returncode:
                fail(f"{path_of(work)}: {p.stderr}")
        out = subprocess.run(["nm", self.path], capture_output=True, text=True, check=True).stdout
        self.symbols = {words[2]: int(words[0], 16) for words in map(str.split, out.splitlines()) if len(words) == 3}

    def segments(self):
        """What of the file is executable: where, how much, its offset."""
        data = self.path.read_bytes()
        wide = data[4] == 2
        table, size, n = (struct.unpack_from("<Q", data, 32)[0], *struct.unpack_from("<HH", data, 54)) if wide else (
            struct.unpack_from("<I", data, 28)[0], *struct.unpack_from("<HH", data, 42))
        for i in range(n):
            at = table + i * size
            if wide:
                kind, flags, offset, start, _, length = struct.unpack_from("<IIQQQQ", data, at)
            else:
                kind, offset, start, _, length, _, flags = struct.unpack_from("<IIIIIII", data, at)
            if kind == 1 and flags & 1:
                slack = start & 0xFFF
                yield start - slack, length + slack + 0xFFF & ~0xFFF, offset - slack


    def code(self):
        """(address, bytes) of what is executable, in whole pages."""
        data = self.path.read_bytes()
        return [(start, data[offset : offset + size].ljust(size, b"\0")) for start, size, offset in self.segments()]


def kcore(pieces):
    """As tracerd copies the kernel's code: an ELF file of segments, whose table comes last."""
    at, out, table = 4096, b"", b""
    for address, code in pieces:
        table += struct.pack("<IIQQQQQQ", 1, 5, at + len(out), address, 0, len(code), len(code), 4096)
        out += code
    head = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 4, 62, 1, 0, at + len(out), 0, 0, 64, 56, len(pieces), 0, 0, 0)
    return head.ljust(at, b"\0") + out + table


def path_of(work):
    return work.name


class Case:
    def __init__(self, path, work):
        self.path, self.work = path, work
        self.sections = parse(path)
        self.programs, self.file = {}, PerfFile()
        for name, args, lines in self.sections:
            if name == "code":
                file = args[-1] if args and args[-1] not in ("32", "entry") else "prog"
                self.programs[file] = Program(work, file, lines, 32 if "32" in args else 64,
                                              KERNEL.get(file, 0x401000 + 0x100000 * len(self.programs)), "_start" if "entry" in args else "0")
        self.symbols = {s: a for p in self.programs.values() for s, a in p.symbols.items()}
        config = {words[0]: int(words[1], 0) for words in map(str.split, self.lines("config")) if words}
        ctc = (config.pop("ctc_n", 0), config.pop("ctc_d", 0))
        self.file.start(ctc=ctc, per_cpu=any(n == "packets" and "cpu" in a for n, a, _ in self.sections), **config)
        side = self.lines("sideband")
        if not any(n == "sideband" for n, _, _ in self.sections):
            side = ["1 comm 100/100 prog exec", "2 map 100/100 prog"]
        for line in side:
            if line.strip() and not line.startswith("#"):
                self.side(line.split())
        for i, (_, args, lines) in enumerate(s for s in self.sections if s[0] == "packets"):
            e = Encoder(self.address)
            for line in lines:
                line = line.split("#")[0].strip()
                if line:
                    e.line(line)
            cpu = "cpu" in args
            number = int(args[-1]) if args else 100
            self.file.auxtrace(e.out, i, *((0xFFFFFFFF, number) if cpu else (number,)))
        self.data = self.file.write_file(work / "perf.data")
        if "kernel" in self.programs:
            self.data = self.bundle(work / "bundle")

    def bundle(self, folder):
        """What a snapshot of a trace of the kernel has."""
        folder.mkdir()
        self.data.rename(folder / "perf.data")
        parts = {name: self.programs[name] for name in KERNEL if name in self.programs}
        (folder / "kcore").write_bytes(kcore([s for p in parts.values() for s in p.code()]))
        names = sorted((a, s, "" if name == "kernel" else f"\t[{name}]") for name, p in parts.items() for s, a in p.symbols.items())
        (folder / "kallsyms").write_text("".join(f"{a:016x} t {s}{module}\n" for a, s, module in names))
        return folder

    def lines(self, wanted):
        return [line for name, _, lines in self.sections if name == wanted for line in lines]

    def address(self, text):
        if not text.startswith("%"):
            return int(text, 0)
        name, _, more = text[1:].partition("+")
        if name not in self.symbols:
            fail(f"{self.path.name}: there is no symbol {name}")
        return self.symbols[name] + int(more or "0", 0)

    def side(self, words):
        time, what, who, *rest = words
        pid, tid = map(int, who.split("/"))
        f, time = self.file, int(time)
        if what == "comm":
            f.comm(time, pid, tid, rest[0], "exec" in rest)
        elif what == "map":
            for start, size, offset in self.programs[rest[0]].segments():
                f.mmap(time, pid, tid, start, size, offset, f"/{rest[0]}")
        elif what in ("fork", "exit"):
            f.task(FORK if what == "fork" else EXIT, time, pid, tid, *map(int, rest[0].split("/")))
        elif what == "start":
            f.itrace_start(time, pid, tid, int(rest[0]))
        elif what in ("in", "out"):
            f.switch(time, pid, tid, what == "out", int(rest[0]) if rest else 0)
        elif what in ("to", "from"):
            # on a CPU: away from this thread to the other one; and the other's side of it
            f.switch_wide(time, pid, tid, *map(int, rest[0].split("/")), what == "to", int(rest[1]))
        else:
            fail(f"{self.path.name}: no side-band: {what}")

    def decode(self, *options):
        p = subprocess.run([BUILD / "tracectl", *options[1:], "decode", self.data, "--symfs", self.work, *options[0]], capture_output=True,
                           text=True, timeout=PATIENCE, env={**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
        if p.returncode or p.stderr:
            fail(f"{self.path.name}: {options}: exit {p.returncode}: {p.stderr}")
        return p.stdout

    def shown(self, view):
        if view == "losses":
            losses = json.loads(self.decode(["--stats"], "--json"))["losses"]
            return [f"{k} {v}" for k, v in sorted(losses.items()) if v and not isinstance(v, list)]
        if view == "trace":
            text = self.decode(["--format", "text", "-o", "-"])
            return [x.replace("\t", " ") for x in text.splitlines() if not x.startswith("# ") and "tracerd\"" not in x and "about this" not in x]
        text = self.decode([f"--{view}"])
        if self.decode([f"--{view}", "--threads", "1"]) != self.decode([f"--{view}", "--threads", "4"]):
            fail(f"{self.path.name}: --{view} depends on the number of threads")
        text = re.sub(r" \(prog\)", "", text)
        if view != "calls":
            text = re.sub(r"\b([0-9a-f]{6,}) \[unknown\]", r"0x\1", text)
            text = re.sub(r"(?<= )[0-9a-f]{6,} (?=[A-Za-z_.])", "", text)
        return text.splitlines()[2 if view == "calls" else 1:]

    def update(self):
        """The file with what comes out now."""
        out = []
        for name, args, lines in self.sections:
            if name in SHOWN:
                lines = self.shown(name)
            if name != "head":
                out.append(" ".join(["---", name, *args]))
            out += lines
        self.path.write_text("\n".join(out) + "\n")

    def check(self):
        views = 0
        for name, _, lines in self.sections:
            if name not in SHOWN:
                continue
            got = self.shown(name)
            if got != lines:
                note(f"{self.path.name}: {name} wanted:")
                for line in lines:
                    note(line)
                note("got:")
                for line in got:
                    note(line)
                fail(f"{self.path.name}: its {name}")
            views += 1
        if not views:
            fail(f"{self.path.name}: it says nothing that must come out")
        for needed in ("calls", "losses"):
            if not any(name == needed for name, _, _ in self.sections):
                fail(f"{self.path.name}: it must say its {needed}")
        ok(f"{self.path.stem}: {self.sections[0][2][0].lstrip('# ')}")


need_command("as", "binutils")
need_command("ld", "binutils")
need_command("nm", "binutils")
args = sys.argv[1:]
update = "--update" in args
names = [a for a in args if not a.startswith("-")]
cases = [p for p in sorted(GOLDEN.glob("*.ptt")) if not names or p.stem in names]
for path in cases:
    with tempfile.TemporaryDirectory(prefix=path.stem + ".") as folder:
        case = Case(path, pathlib.Path(folder))
        if update:
            case.update()
            note(f"{path.name} is written")
        else:
            case.check()
if not update and not names:
    expect(len(cases) >= 25, f"{len(cases)} cases")
