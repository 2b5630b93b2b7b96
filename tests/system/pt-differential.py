#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""Recordings of real programs, stepped: our instructions of each thread are those that the stepper has seen, and our calls and
returns, before any rule of the stack, are those of `perf script --itrace=cr` on the same file."""
from lib.pt import *


def walk(path, *options):
    p = subprocess.run([WALK, "perfdata", path, "/", *options], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"pt-walk {path}: {p.stderr}")
    return p.stdout, json.loads(p.stderr.strip().splitlines()[-1])


def ours(recording):
    """Calls and returns of each thread."""
    out, _ = walk(recording.data, "--branches")
    threads = {}
    for line in out.splitlines():
        who, kind, source, _, target, *_ = line.split()
        if kind in ("call", "call*", "ret"):
            threads.setdefault(who.split("/")[1], []).append(("return" if kind == "ret" else "call", source, target))
    return threads


def perfs(recording):
    p = subprocess.run(["perf", "script", "-i", recording.data, "--itrace=cr", "-F", "tid,flags,ip,addr"], capture_output=True, text=True,
                       timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording.name}: perf script: {p.stderr}")
    threads, errors = {}, 0
    for line in p.stdout.splitlines():
        if "error" in line:
            errors += 1
            continue
        words = line.replace("=>", "").split()
        if words[1] in ("call", "return"):
            threads.setdefault(words[0], []).append((words[1], words[-2], words[-1]))
    return threads, errors


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return f"at {i}: {a[max(0, i - 3) : i + 3]} instead of {b[max(0, i - 3) : i + 3]}"
    return f"{len(a)} instead of {len(b)}: {a[len(b) : len(b) + 3]} {b[len(a) : len(a) + 3]}"


def same(name, what, got, want):
    for tid in want.keys() | got.keys():
        a, b = got.get(tid, []), want.get(tid, [])
        if a != b:
            fail(f"{name}: {what} of thread {tid}: {first_difference(a, b)}")


def instructions(r):
    """One list for all threads of a file as our decoder merges them; threads have a buffer each, so each thread's are in order."""
    out, s = walk(r.data, "--insns", "--tids")
    got = {}
    for line in out.splitlines():
        tid, ip = line.split()
        got.setdefault(tid, []).append(ip)
    want = r.log()
    same(r.name, "instructions", got, want)
    if s["losses"]:
        fail(f"{r.name}: losses in an exact recording: {s['losses']}")
    return sum(map(len, want.values())), len(want)


def compare(r, have_perf):
    n, threads = instructions(r)
    text = f"{r.name}: {n} instructions of {threads} threads are the stepper's"
    if have_perf:
        want, errors = perfs(r)
        same(r.name, "calls and returns", ours(r), want)
        text += f", {sum(map(len, want.values()))} calls and returns perf's"
        if errors:
            text += f" ({errors} errors of perf)"
    ok(text)


def programs(work):
    static = compile_calls(work, "plain-static", ["plain.c"], "-O2", "-static")
    host = compile_calls(work, "host", ["host.c"], "-O1")
    plugin = compile_calls(work, "plugin.so", ["plugin.c"], "-O1", "-shared", "-fPIC")
    callbacks = compile_calls(work, "callbacks", ["plain.c"], "-O0", "-Wl,-z,now")
    return {
        "python": ([sys.executable, "-I", "-S", "-c", "pass"], 500000),
        "ls": (["ls", "/"], 400000),
        "shell": (["sh", "-c", "true; /bin/echo one; (exit 3); /bin/true"], 0),
        "plain, static": ([static], 0),
        "plain, lazily bound": ([compile_calls(work, "plain-lazy", ["plain.c"], "-O2", "-Wl,-z,lazy")], 0),
        "plain, bound at once": ([callbacks], 0),
        **{name: ([common_program(work, name)], 0) for name in COMMON},
        "plug-in": ([host, plugin, plugin], 0),
        "vDSO": ([compile_calls(work, "clock", ["clock.c"], "-O1")], 0),
    }


need_command("gcc", "gcc")
need_command("g++", "g++")
if not STEP.exists() or not WALK.exists():
    skip("needs tracerd-step and tests/unit/decode/pt/pt-walk (make check)")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    recordings = record_all(work, programs(work))
    have_perf = working_perf() is not None
    if not have_perf:
        note("no perf: calls and returns are not compared")
    for r in recordings.values():
        compare(r, have_perf)
