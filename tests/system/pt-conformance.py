#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""Intel PT: every recording and every case of libipt's own suite in data/pt gives the instructions, errors, packets and
times that its README states; where decoders differ, those of the ones that go on behind missing code. What we do
otherwise on purpose is named below, one by one."""
import re
import tarfile

from lib import *
from lib.perffile import ITRACE_START, SWITCH, SWITCH_CPU_WIDE, PerfFile

DATA = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "pt"
WALK = BUILD / "tests/unit/decode/pt/pt-walk"

# What libipt answers otherwise, and why that is right, too. These lists may only shrink.
OTHER_ERRORS = {
    # Event data (EVD) must be followed by the event that it belongs to: we print no event data and do not check.
    "ptet-evd_cr2-evd_vmxq": 0,
    "ptet-evd_vmxq-cfe_intr": 0,
    "ptet-evd_vmxr-cfe_rsm": 0,
    "ptet-evd_vmxr-evd-cr2": 0,
    # A PSB+ whose mode is not that of the code in front of it, which no processor writes: we believe it.
    "ptxed-resync-psb-bad_status-psb": 1,
}
# A TMA with reserved bits set: libipt ends there; or, with erratum SKZ84, calls it invalid and skips a byte more, which is
# a PAD. We take it for nothing on any processor.
# A length of a cycle that was measured holds behind an overflow, too.
OTHER_TIMES = {("mtc-ovf_reset-cyc", "40"): 0x10A0, ("mtc-ovf_reset-cyc", "43"): 0x10C0}
OTHER_PACKETS = {"skz84", "tma-reserved_ctc"}
# They run in the kernel, whose code we do not follow.
OTHER_SIDEBAND = {"pevent-comm_exec-mmap-tsc-iret", "pevent-fork"}
OTHER_INSTRUCTIONS = {"ptxed-resync-psb-bad_status-psb": ("5", "f4829aa548c01393")}


def fnv(ips):
    h = 0xCBF29CE484222325
    for ip in ips:
        for i in range(8):
            h = (h ^ (ip >> 8 * i & 0xFF)) * 0x100000001B3 & (1 << 64) - 1
    return f"{h:016x}"


def walk(*args):
    p = subprocess.run([WALK, *map(str, args)], capture_output=True, text=True, timeout=PATIENCE)
    expect_quiet(p.returncode == 0, f"pt-walk {args}: exit {p.returncode}: {p.stderr}")
    return p.stdout, p.stderr.strip().splitlines()[-1]


def expect_quiet(condition, what):
    if not condition:
        fail(what)


def blob(*args):
    """Addresses, errors by kind."""
    out, last = walk("blob", *args)
    words = last.split()
    s = dict(zip(words[::2], words[1::2]))
    ips = [int(x, 16) for x in out.split()]
    expect_quiet(len(ips) == int(s["instructions"]) and fnv(ips) == s["ips_fnv1a64"], f"{args}: the summary is of what is printed")
    expect_quiet(s["counted"] == s["instructions"], f"{args}: {s['counted']} counted, {len(ips)} walked")
    return ips, {k: int(s[k]) for k in ("no_code", "mismatch", "packet", "return", "runaway")}


def perfdata(name, *options):
    out, last = walk("perfdata", DATA / name, DATA, *options)
    return out.splitlines(), json.loads(last)


def table(name):
    with open(DATA / name) as f:
        return [line.rstrip("\n").split("\t") for line in f]


def expected():
    facts = {}
    for where, reader, key, value in table("EXPECTED.tsv")[1:]:
        facts.setdefault((where, reader), {}).setdefault(key, []).append(value)
    return facts


def recordings(facts):
    for name, reader in (("lldb/single", "libipt-2.3+resync"), ("lldb/core51", "libipt-2.3+resync"), ("dynamorio", "libipt-2.3+resync")):
        given = facts[(name, "input")]
        want = facts.get((name, reader)) or facts[(name, "libipt-2.0.5")]
        images = []
        for image in given["image"]:
            path, *rest = image.split()
            at = dict(x.split("=") for x in rest)
            images += [DATA / path, at["file_offset"], at["len"], at["addr"]]
        cpu = "/".join(given["cpu"][0].split("/")[:2])
        ips, errors = blob(DATA / given["blob"][0], "--cpu", cpu, *images)
        expect_quiet(f"{len(ips)}" == want["instructions"][0] and fnv(ips) == want["ips_fnv1a64"][0],
                     f"{name}: {len(ips)} instructions, {want['instructions']} wanted")
        # libipt's last one is the stray byte behind the last packet, a decision while tracing is off
        stray = 1 if name == "lldb/core51" else 0
        got = sum(errors.values())
        expect_quiet(got == int(want["errors"][0]) and errors["packet"] == stray, f"{name}: {errors}")
        ok(f"{name}: {len(ips)} instructions, {errors['no_code']} times no code")
        packets(name, given["blob"][0], facts[(name, "packets")])
    without_resync(facts)
    single = [0x400511, 0x400518, 0x40051F, 0x400529, 0x40052D] + [0x400521, 0x400525, 0x400529, 0x40052D] * 4
    ips, _ = blob(DATA / "lldb/single/3842849.trace", DATA / "lldb/single/a.out", 0, "0x6fc", "0x400000")
    expect(ips == single, "lldb/single: its 21 addresses")


def without_resync(facts):
    """The rows of libipt 2.0.5, which leaves out what lies between an error and the next PSB."""
    for name in ("lldb/single", "lldb/core51", "dynamorio"):
        given, want = facts[(name, "input")], facts[(name, "libipt-2.0.5")]
        images = []
        for image in given["image"]:
            path, *rest = image.split()
            at = dict(x.split("=") for x in rest)
            images += [DATA / path, at["file_offset"], at["len"], at["addr"]]
        out, last = walk("blob", DATA / given["blob"][0], "--no-resync", *images)
        ips = [int(x, 16) for x in out.split()]
        expect(f"{len(ips)}" == want["instructions"][0] and fnv(ips) == want["ips_fnv1a64"][0],
               f"{name}: {len(ips)} instructions as libipt 2.0.5, without what comes behind errors")


def packets(name, path, want):
    out, last = walk("packets", DATA / path)
    words = last.split()
    got = dict(zip(words[::2], map(int, words[1::2])))
    got["tnt8"] = sum(" tnt.8" in line for line in out.splitlines())
    got["mode"] = got.get("mode.exec", 0) + got.get("mode.tsx", 0)
    for key in ("tnt_bits", "psb", "psbend", "fup", "tip", "tip.pge", "tip.pgd", "tnt8", "mode", "cbr", "tsc", "tma", "mtc", "cyc", "pip"):
        if key in want:
            expect_quiet(got.get(key, 0) == int(want[key][0]), f"{name}: {got.get(key)} {key}, {want[key][0]} wanted")
    psb = ",".join(hex(int(line.split()[0], 16)) for line in out.splitlines() if line.endswith(" psb"))
    expect(psb == want.get("psb_offsets", [psb])[0], f"{name}: packets")


def wrapped(facts):
    for threads in (0, 2):
        lines, s = perfdata("wrapped/lldb-core51-switches.data", "--insns", "--threads", threads)
        want = (DATA / "lldb/core51/expected-resync.ips").read_text().split()
        expect_quiet(lines == want, f"core51 with switches: {len(lines)} instructions")
    lines, s = perfdata("wrapped/lldb-core51-switches.data", "--branches")
    known = {line.split()[0] for line in lines if " 0 => 0 " not in line and "lost" not in line and "0x400" not in line
             and int(line.split()[2], 16) in range(0x400000, 0x402000)}
    expect(known == {"3497234/3497496"}, f"core51 with switches: all 50003 instructions are the thread's that ran ({known})")
    lines, s = perfdata("wrapped/lldb-core51.data", "--insns")
    expect(len(lines) == 50003 and s["ips_fnv1a64"] == "297abe08ce13f00e", "core51 of one thread: the same 50003")
    lines, s = perfdata("wrapped/lldb-single.data", "--insns")
    expect(s["ips_fnv1a64"] == "c641aab252dbd17c", "single in a perf.data")
    lines, s = perfdata("wrapped/dynamorio.data", "--insns")
    expect(s["ips_fnv1a64"] == "347039f82b911e59" and not s["losses"], "dynamorio in a perf.data")
    lines, s = perfdata("wrapped/dynamorio.data", "--times")
    got = [(line.split()[2], line.split()[0]) for line in lines]
    # the first: of the frequency
    want = [("note", 1385530563941550), ("enable", 1385530564048270), ("disable-async", 1385530564049053), ("enable", 1385530564056615),
            ("disable", 1385530564056832), ("enable", 1385530564075002), ("disable", 1385530564075039)]
    expect_quiet([g[0] for g in got] == [w[0] for w in want], f"dynamorio: {got}")
    for (_, at), (_, ns) in zip(got, want):
        whole, part = at.split(".")
        # the asynchronous one: perf counts the cycles behind it
        expect_quiet(abs(int(whole) * 10**9 + int(part) - ns) <= (45 if ns == 1385530564049053 else 1), f"dynamorio: {at}, {ns} wanted")
    ok("dynamorio: times are perf's within 1 ns")


def stock_perf():
    """The same files by stock perf: every instruction, every branch."""
    if not working_perf():
        note("no perf: its own decoder is not compared")
        return

    def perf(name, itrace, fields):
        p = subprocess.run(["perf", "script", "--symfs", DATA, "-i", DATA / "wrapped" / name, f"--itrace={itrace}", "-F", fields],
                           capture_output=True, text=True, timeout=PATIENCE)
        return [line.split() for line in p.stdout.splitlines() if line.strip()]

    if not perf("lldb-single.data", "i1i", "ip"):
        note("perf here decodes no PT: it is not compared")
        return
    # The stray byte at the end of core51 is three more instructions to perf, and no branch.
    for name, more in (("lldb-single.data", 0), ("dynamorio.data", 0), ("lldb-core51.data", 3)):
        ours, _ = perfdata(f"wrapped/{name}", "--insns")
        theirs = [line[0] for line in perf(name, "i1i", "ip")]
        expect_quiet(len(theirs) == len(ours) + more and theirs[: len(ours)] == ours, f"{name}: {len(ours)} instructions, perf's {len(theirs)}")
        ours, _ = perfdata(f"wrapped/{name}", "--branches")
        ours = [(line.split()[2], line.split()[4]) for line in ours]
        theirs = [(line[-3], line[-1]) for line in perf(name, "b", "flags,ip,addr")]
        if name == "lldb-core51.data":
            # perf says nothing of each place at which code is missing
            ours, theirs = ([b for b in l if "0" not in b] for l in (ours, theirs))
        expect(ours == theirs, f"{name}: instructions and {len(ours)} branches are stock perf's")


def quipper(facts, work):
    path = DATA / "quipper/perf.data.intel_pt-4.14"
    data = path.read_bytes()
    want = {k[0]: v for k, v in facts.items() if k[0].startswith("quipper") and k[1] == "packets"}
    seen = 0
    for cpu, size in ((0, 12240), (3, 137728)):
        # AUXTRACE: type 71, size 48, then the size of the bytes, which follow
        at = data.find(struct.pack("<IHHQ", 71, 0, 48, size))
        expect_quiet(at > 0, f"quipper: AUX of cpu {cpu}")
        part = work / f"cpu{cpu}"
        part.write_bytes(data[at + 48 : at + 48 + size])
        for key, facts_of in want.items():
            if f"cpu{cpu}" in key:
                packets(key, part, facts_of)
                seen += 1
    expect(seen == 2, "quipper: both buffers have their packets")
    times = {}
    for cpu in (0, 3):
        out, _ = walk("packets", work / f"cpu{cpu}", "--time", "3,100,2,12")
        psb = None
        for line in out.splitlines():
            if line.endswith(" psb"):
                psb = int(line.split()[0], 16)
            elif psb is not None and " tsc " in line:
                times[(cpu, psb)] = 18446744041015200657 + (int(line.split()[-1], 16) * 1789569706 >> 31) & (1 << 64) - 1
                psb = None
    want = {}
    for fact in facts[("quipper", "perf-6.1")]["psb"]:
        at = dict(x.split("=") for x in fact.split())
        want[(int(at["cpu"]), int(at["offset"], 16))] = int(at["ns"])
    expect(times == want and len(want) == 10, f"quipper: the time of each PSB is perf's")
    lines, s = perfdata("quipper/perf.data.intel_pt-4.14", "--times")
    found = [line for line in lines if " lost 0 =>" not in line]
    expect(s["stats"]["pt_blocks"] == 10 and s["stats"]["pt_bytes"] == 12240 + 137728 and found, "quipper: walked without its code")
    f, others = PerfFile.read(path), []
    others.append(f.write_pipe(work / "quipper.pipe"))
    others.append(f.compress().write_file(work / "quipper.zstd"))
    others.append(f.compress().write_pipe(work / "quipper.zstd.pipe"))
    for other in others:
        got, more = perfdata(other, "--times")
        expect_quiet(got == lines and more["stats"] == s["stats"] and more["losses"] == s["losses"], f"{other.name}: {more}")
    ok(f"quipper: the same {len(lines)} events in the pipe layout and from compressed records")


def cases_of(tar, work):
    with tarfile.open(tar) as t:
        t.extractall(work, filter="data") if hasattr(tarfile, "data_filter") else t.extractall(work)
    rows = table("ptt/cases.tsv")
    return [dict(zip(rows[0], row)) for row in rows[1:]]


def walk_case(work, c, cpu):
    d = work / c["version"]
    more = ["--cpu", cpu] if cpu != "-" else []
    if "--filter:addr0_a" in c["ptxed_options"]:
        a = re.search(r"addr0_a (\w+) --filter:addr0_b (\w+)", c["ptxed_options"])
        more += ["--filter", f"{a[1]},{a[2]}"]
    name = f"{c['case']}.bin"
    code = [d / name, 0, 0, c["org"]]
    if "--raw" in c["ptxed_options"]:
        offset, address = c["ptxed_options"].split(":")[1:3]
        code = [d / name, 0, offset, c["org"], d / name, offset, 0, address]
    return blob(d / f"{c['case']}.pt", *more, *code)


def ptt(work):
    cases = cases_of(DATA / "ptt/ptt.tar.xz", work)
    for version in ("v2.0.5", "head"):
        for needs in ("nothing", "filter", "resync", "resync+event-loop", "statistics"):
            these = [c for c in cases if c["version"] == version and c["needs"] == needs]
            runs = 0
            for c in these:
                for cpu in c["cpus"].split(","):
                    ips, errors = walk_case(work, c, cpu)
                    what = f"{version} {c['case']} ({c['topic']}) on cpu {cpu}"
                    want = OTHER_INSTRUCTIONS.get(c["case"], (c["instructions"], c["ips_fnv1a64"]))
                    if needs == "statistics":
                        want = (want[0], fnv(ips))
                    expect_quiet((str(len(ips)), fnv(ips)) == tuple(want), f"{what}: {len(ips)} instructions, {want[0]} wanted")
                    errs = OTHER_ERRORS.get(c["case"], 0 if c["errors"] == "-" else int(c["errors"]))
                    expect_quiet(sum(errors.values()) == errs, f"{what}: {errors}, {errs} wanted")
                    runs += 1
            if these:
                ok(f"libipt {version}, {needs}: {len(these)} cases, {runs} runs")
    sideband(work, cases)
    goldens(work, cases)
    times(work, cases)


def code_in_elf(code):
    """Flat code as a program: behind 4 KiB of headers."""
    eh = struct.pack("<16sHHIQQQIHHHHHH", b"\x7fELF\x02\x01\x01", 2, 62, 1, 0, 64, 0, 0, 64, 56, 1, 0, 0, 0)
    ph = struct.pack("<IIQQQQQQ", 1, 5, 0x1000, 0x400000, 0x400000, len(code), len(code), 4096)
    return (eh + ph).ljust(0x1000, b"\0") + code


def sideband(work, cases):
    """libipt's cases that need side-band: the same records in a perf.data file with a buffer of CPU 0."""
    these = [c for c in cases if c["needs"] == "sideband" and c["case"] not in OTHER_SIDEBAND]
    for c in these:
        d, name = work / c["version"], c["case"]
        f = PerfFile()
        f.start(per_cpu=True, kernel=True)
        for path in d.glob(f"{glob_safe(name)}-pevent-*.sb"):
            add_records(f, path, cpu=0 if "-pevent-primary" in path.name else 1)
        f.auxtrace((d / f"{name}.pt").read_bytes(), 0, cpu=0)
        folder = work / "sideband"
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.bin").write_bytes(code_in_elf((d / f"{name}.bin").read_bytes()))
        out, last = walk("perfdata", f.write_file(work / "sideband.data"), folder, "--insns")
        s = json.loads(last)
        expect_quiet((str(s["walked"]), s["ips_fnv1a64"]) == (c["instructions"], c["ips_fnv1a64"]) and not s["losses"],
                     f"{c['version']} {name}: {out.split()}, {s['losses']}; {c['instructions']} wanted")
    ok(f"libipt, side-band: {len(these)} cases")


def glob_safe(name):
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def add_records(f, path, cpu):
    """Raw records, whose trailers are TIME or TID and TIME."""
    data, at = path.read_bytes(), 0
    with_tid = "sample-type=0x6," in path.name
    now = (1, 1)
    while at < len(data):
        kind, misc, size = struct.unpack_from("<IHH", data, at)
        end = at + size - (16 if with_tid else 8)
        body = bytearray(data[at + 8 : end])
        time = struct.unpack_from("<Q", data, at + size - 8)[0]
        who = struct.unpack_from("<II", data, end) if with_tid else struct.unpack_from("<II", body) if len(body) >= 8 else now
        if kind == 1:
            # the code lies 4 KiB further in the program that we have made of it; and the path is one
            start, length, offset = struct.unpack_from("<QQQ", body, 8)
            name = b"/" + bytes(body[32:]).rstrip(b"\0") + b"\0"
            body = bytearray(struct.pack("<IIQQQ", *struct.unpack_from("<II", body), start, length, offset + 0x1000))
            body += name.ljust(len(name) + 7 & ~7, b"\0")
        if kind == SWITCH_CPU_WIDE:
            # who it is of was not recorded: the one that runs
            other, who = struct.unpack_from("<II", body), now
            if misc & 1 << 13:
                now = other
        elif kind in (SWITCH, ITRACE_START):
            now = who
        f.side(kind, bytes(body), time, *who, cpu, misc)
        at += size


PACKETS = set("pad psb psbend ovf tnt tip fup tsc tma mtc cyc cbr mode pip vmcs stop mnt ptw exstop mwait pwre pwrx cfe evd bbp bep "
              "trig <invalid>".split())


def squeeze(line):
    return " ".join(line.split())


def time_options(options):
    def value(name):
        m = re.search(name + r" (\w+)", options)
        return int(m[1], 0) if m else 0

    return ",".join(map(str, (value("--mtc-freq"), value("--cpuid-0x15.ebx"), value("--cpuid-0x15.eax"), value("--nom-freq"))))


def goldens(work, cases):
    """Packets as libipt's ptdump prints them."""
    n = lines = 0
    for c in cases:
        if "ptdump" not in c["expectations"]:
            continue
        d = work / c["version"]
        options = c["ptdump_options"]
        # the packets of 2.0.5 are without workarounds
        cpu = c["cpus"].split(",")[0] if c["version"] == "head" else "-"
        got = walk("packets", d / f"{c['case']}.pt", *(["--cpu", cpu] if cpu != "-" else []))[0].splitlines()
        got = [squeeze(g) for g in got if g.split()[1] not in ("bad", "cut")]
        if "--no-offset" in options:
            got = [g.split(" ", 1)[1] for g in got]
        if "--no-cyc" in options:
            got = [g for g in got if " cyc " not in g]
        want = []
        for w in (d / f"{c['case']}-ptdump.exp").read_text().splitlines():
            w = squeeze(re.sub(r" +(em \d+-bit|ip [0-9a-f]{16}|fcr .*|tsc ([+-]?[0-9a-f]+|<unavailable>))$", "",
                               w) if options != "-" else w)
            # the rest is side-band, and times that are missing
            m = re.match(r"(?:[0-9a-f]{16} )?([a-z.<>0-9]+)( |$)", w)
            if m and m[1].split(".")[0] in PACKETS:
                want.append(w)
        if c["case"] == "bad_cpu" or c["case"] in OTHER_PACKETS:
            continue
        expect_quiet(got == want, f"{c['version']} {c['case']}: packets\n" + "\n".join(got) + "\nwanted\n" + "\n".join(want))
        n += 1
        lines += len(want)
    ok(f"libipt: {lines} packets of {n} cases, as ptdump prints them")


def golden_times(path):
    """Times behind packets, as ptdump has them: by offset."""
    times, now = {}, 0
    for line in path.read_text().splitlines():
        m = re.match(r"([0-9a-f]{16}) .* tsc ([+-]?)([0-9a-f]+)$", line)
        if m:
            value = int(m[3], 16)
            now = value if not m[2] else now + value if m[2] == "+" else now - value
            times[m[1]] = now
    return times


def times(work, cases):
    """Times as ptdump has them."""
    n = points = 0
    for c in cases:
        options = c["ptdump_options"]
        d = work / c["version"]
        # without a TSC we have no time
        if "--time" not in options or "--no-wall-clock" in options or "--no-cyc" in options or " tsc " not in (d / f"{c['case']}-ptdump.exp").read_text():
            continue
        want = golden_times(d / f"{c['case']}-ptdump.exp")
        out, _ = walk("packets", d / f"{c['case']}.pt", "--time", time_options(options))
        got = {line.split()[0]: int(line.split()[-1], 16) for line in out.splitlines() if " time " in line}
        for at, value in want.items():
            allowed = OTHER_TIMES.get((c["case"], at.lstrip("0")), value)
            expect_quiet(got[at] == allowed, f"{c['version']} {c['case']} at {at}: {got[at]:x}, {allowed:x} wanted\n{out}")
            points += 1
        n += 1
    ok(f"libipt: {points} times of {n} cases, as ptdump prints them")


if not DATA.is_dir():
    skip(f"no recordings in {DATA} ($TRACERD_DATA)")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    facts = expected()
    recordings(facts)
    wrapped(facts)
    stock_perf()
    quipper(facts, work)
    ptt(work)
