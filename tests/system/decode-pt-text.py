#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""`tracectl decode --calls|--branches|--insns|--stats` of Intel PT, and --pt-info: the bytes of a trace with a description
of its code give the instructions that its README states; what cannot be done is said in words."""
from lib import *

PT = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "pt"


def decode(*args):
    p = subprocess.run([BUILD / "tracectl", "decode", *args], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    return p.returncode, p.stdout, p.stderr


def good(*args):
    code, out, err = decode(*args)
    if code or err:
        fail(f"{args}: exit {code}: {err}")
    return out


def refused(what, words, *args):
    code, out, err = decode(*args)
    if code == 0 or out or not err.startswith("tracectl decode: ") or words not in err or err.count("\n") != 1:
        fail(f"{what}: exit {code}: {err!r} {out[:100]!r}")


def describe(work, **more):
    info = work / "info.json"
    info.write_text(json.dumps(more))
    return info


def blobs(work):
    single = dict(cpu=dict(family=6, model=79, stepping=1), pid=1234, tid=3842849,
                  mappings=[dict(file=str(PT / "lldb/single/a.out"), length=0x6FC, address=0x400000)])
    core = dict(cpu=dict(family=6, model=85, stepping=4), tid=3497496, name="m.out",
                time=dict(shift=31, mult=1076264588, zero="18433473881008870804", nominal_ratio=21),
                mappings=[dict(file=str(PT / "lldb/core51/m.out"), length=0x1F82, address=0x400000)])
    hello = dict(cpu=dict(family=6, model=85, stepping=4), tid=223991,
                 time=dict(shift=31, mult=581029125, zero="18444502336406842448", nominal_ratio=37, tsc_ctc=[308, 2],
                           mtc_period=3),
                 mappings=[dict(file=str(PT / "dynamorio/hello"), offset=0x1000, length=0x27, address=0x401000)])
    for blob, info, ips in (("lldb/single/3842849.trace", single, "lldb/single/expected.ips"),
                            ("lldb/core51/51.intelpt_trace", core, "lldb/core51/expected-resync.ips"),
                            ("dynamorio/pt.bin", hello, "dynamorio/expected.ips")):
        out = good(PT / blob, "--pt-info", describe(work, **info), "--insns").splitlines()
        expect(out[0] == "# tracerd instructions 1" and [x.split()[2] for x in out[1:]] == (PT / ips).read_text().split(),
               f"{blob}: the {len(out) - 1} instructions that its README states")
    expect([x.split()[3] for x in good(PT / "lldb/single/3842849.trace", "--pt-info", describe(work, **single),
                                       "--insns").splitlines()[1:4]] == ["main+0x4", "main+0xb", "main+0x12"],
           "with the functions that they are in")
    info = describe(work, **hello)
    times = [x.split() for x in good(PT / "dynamorio/pt.bin", "--pt-info", info, "--branches").splitlines()[1:]]
    ends = [int(x[0]) for x in times if x[2] in ("end", "syscall")]
    expect(len(ends) == 2 and abs(ends[0] - 1385530564056832) <= 1 and abs(ends[1] - 1385530564075039) <= 1,
           f"its system calls are at the times of perf: {ends}")
    calls = good(PT / "dynamorio/pt.bin", "--pt-info", info, "--calls")
    expect(calls.startswith("# tracerd calls 1\n") and 'thread 223991/223991 "hello"\n' in calls, "its calls are a tree")
    stats = good(PT / "dynamorio/pt.bin", "--pt-info", info, "--stats")
    expect("\n  instructions                                       8\n" in stats and "\n  in all " in stats, "--stats counts")
    result = json.loads(good("--json", PT / "dynamorio/pt.bin", "--pt-info", info, "--stats"))
    expect(result["stats"]["instructions"] == 8 and result["stats"]["stages"]["total_ns"] > 0 and result["max_rss_bytes"] > 0,
           "and so it does in JSON")
    one, many = (good(PT / "lldb/core51/51.intelpt_trace", "--pt-info", describe(work, **core), "--branches", "--threads", n)
                 for n in ("1", "3"))
    expect(one == many and one.count("\n") > 1000, "what is written does not depend on the number of threads")
    times = [x.split()[0] for x in one.splitlines()[1:]]
    told = [int(x) for x in times if x[0] != "~"]
    numbers = [int(x.lstrip("~")) for x in times]
    expect(numbers == sorted(numbers) and len(set(told)) < len(told) < len(times) and len(set(numbers)) > 2 * len(set(told)),
           f"{len(times) - len(told)} times are between those that the trace tells, and marked, {len(told)} are not")
    at = {}
    for line in good(PT / "lldb/core51/51.intelpt_trace", "--pt-info", describe(work, **core, pid=3497234, cpu_number=51, switches=[
            [1, 0, 0], ["7002363907159404", 3497234, 3497496], ["7002363907200935", 7, 8]]), "--insns").splitlines()[1:]:
        at.setdefault(line.split()[1], []).append(line.split()[2])
    expect(at == {"3497496": (PT / "lldb/core51/expected-resync.ips").read_text().split()},
           "of a CPU's trace with its switches, all instructions are the thread's that has run the code")
    (work / "prog").write_bytes((PT / "dynamorio/hello").read_bytes())
    info = describe(work, **{**hello, "mappings": [dict(file="prog", offset=0x1000, length=0x27, address=0x401000)]})
    expect(good(PT / "dynamorio/pt.bin", "--pt-info", info, "--insns").count("(prog)") == 8,
           "files are looked for beside the description")
    return hello


def refusals(work, hello):
    blob = PT / "dynamorio/pt.bin"
    for what, words, change in (
            ("no thread", '"tid" must say which thread', dict(tid=0)),
            ("a thread that is none", '"tid" must be a number', dict(tid="me")),
            ("no code", '"mappings" must say which code', dict(mappings=[])),
            ("code without an address", "mapping 1 needs", dict(mappings=[dict(file="x", length=1)])),
            ("code that is not there", "cannot find its file /nowhere", dict(mappings=[dict(file="/nowhere", length=1, address=1)])),
            ("half a ratio", '"tsc_ctc" must be two numbers', dict(time=dict(tsc_ctc=[1]))),
            ("a CPU that is none", '"cpu_number" must be at most 4095', dict(cpu_number=4096)),
            ("switches of no CPU", '"switches" must be a list, and of the CPU', dict(switches=[])),
            ("half a switch", "switch 2 must be a time", dict(cpu_number=1, switches=[[5, 1, 2], [6, 1]])),
            ("switches that go back", "switch 2 must be a time", dict(cpu_number=1, switches=[[5, 1, 2], [4, 0, 0]])),
            ("a shift too far", '"shift" must be at most 63', dict(time=dict(shift=64)))):
        refused(what, words, blob, "--pt-info", describe(work, **{**hello, **change}), "--calls")
    bad = work / "bad.json"
    bad.write_text("{")
    refused("half a description", "no JSON object", blob, "--pt-info", bad, "--calls")
    refused("no description", "No such file", blob, "--pt-info", work / "none.json", "--calls")
    empty = work / "empty"
    empty.write_bytes(b"")
    refused("no bytes", "no file with the bytes of a trace", empty, "--pt-info", describe(work, **hello), "--calls")
    ok("a description that is wrong is refused in words that say what")
    data = PT / "wrapped/dynamorio.data"
    env = {**os.environ, "LC_ALL": "C", "TRACERD_DECODE": str(BUILD / "tracerd-decode"), "TMPDIR": str(work / "none")}
    p = subprocess.run([BUILD / "tracectl", "decode", data, "--symfs", PT, "--calls"], capture_output=True, text=True, env=env)
    expect(p.returncode and not p.stdout and "cannot make a temporary file in " + env["TMPDIR"] in p.stderr and "TMPDIR can" in p.stderr,
           "a temporary file that cannot be made is told, with what to do")
    (work / "few").mkdir()
    p = subprocess.run([BUILD / "tracectl", "decode", data, "--symfs", PT, "--calls", "-o", work / "few/calls"], capture_output=True,
                       text=True, env=env)
    expect(p.returncode == 0 and os.listdir(work / "few") == ["calls"], "for a file it is beside that file, and nothing stays")
    refused("two views", "only one of", data, "--calls", "--insns")
    refused("a view as pftrace", "--calls writes text", data, "--calls", "--format", "pftrace")
    refused("a view and a summary", "replaces the timeline", data, "--branches", "--summary")
    refused("a view and statistics on one stream", "cannot both go", data, "--branches", "--stats")
    refused("no Intel PT", "no Intel PT trace", PT / "perfdata/linux-perf-data/sleep.data", "--calls")
    ok("so is what does not go together")
    out = work / "calls.txt"
    said = good(data, "--symfs", PT, "--calls", "-o", out, "--stats")
    expect(out.read_text().startswith("# tracerd calls 1\n") and "\ndecoded\n" in said, "a view in a file, statistics beside it")


def main():
    if not PT.is_dir():
        skip(f"no recordings in {PT} ($TRACERD_DATA)")
    work = tmp()
    refusals(work, blobs(work))


main()
