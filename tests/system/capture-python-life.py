#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Interpreters that come late, fork, execute another program, have several of them, many threads or deep recursion, are embedded, or of a
version that is not known: what is found is right, and what is not is told. Names of all alphabets. An ordinary user's, too."""
import re

from lib.capture import *
from lib.pythonframes import *

SPIN = """
import os, sys, time, threading
def spin(n=2000):
    s = 0
    for i in range(n): s += i
    return s
"""
FORK = SPIN + """
def in_parent():
    while True: spin(); time.sleep(1e-4)
def in_child():
    while True: spin(); time.sleep(1e-4)
def before(): return os.fork()
if before(): in_parent()
else: in_child()
"""
EXEC = SPIN + """
def first():
    end = time.monotonic() + 1.5
    while time.monotonic() < end: spin(); time.sleep(1e-4)
def second():
    while True: spin(); time.sleep(1e-4)
if len(sys.argv) == 1: first(); os.execv(sys.executable, [sys.executable, sys.argv[0], "again"])
second()
"""
DEEP = SPIN + """
sys.setrecursionlimit(3000)
def down(n): return down(n - 1) if n else leaf()
def leaf(): time.sleep(1e-4); spin()
while True: down(900)
"""
CROWD = SPIN + """
def sleeper(): time.sleep(1000)
for i in range(200): threading.Thread(target=sleeper, daemon=True).start()
def oldest():
    while True: spin(); time.sleep(1e-4)
def newest():
    while True: spin(); time.sleep(1e-4)
threading.Thread(target=newest, daemon=True).start()
print("ready", flush=True)
oldest()
"""
SUB = SPIN + """
import importlib
for name in ("_interpreters", "_xxsubinterpreters"):
    try: sub = importlib.import_module(name); break
    except ImportError: pass
def outer():
    print("ready", flush=True)
    time.sleep(1)
    i = sub.create()
    text = "def inner():\\n while True: pass\\ninner()"
    sub.run_string(i, text)
outer()
"""
NAMES = SPIN + """
def größe(): 日本語()
def 日本語(): 𝒻()
def 𝒻(): spin(); time.sleep(1e-4); globals()["x" * 400]()
exec("def " + "x" * 400 + "(): spin(); time.sleep(1e-4)")
print("ready", flush=True)
while True: größe()
"""
FLOOD = SPIN + """
n = 0
while True:
    exec(f"def made_{n}():\\n time.sleep(1e-6)\\nmade_{n}()")
    n += 1
"""
BRIEF = SPIN + """
def briefly():
    end = time.monotonic() + 5e-3
    while time.monotonic() < end: spin(200)
while True:
    t = threading.Thread(target=briefly); t.start(); t.join()
"""
TURNS = SPIN + """
def one():
    for i in range(40): spin(); time.sleep(1e-4)
while True:
    t = threading.Thread(target=one); t.start(); t.join()
"""
EMBED = r"""
#include <dlfcn.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    write(1, "ready\n", 6);
    sleep(1);
    void *h = dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL);
    if (!h) return 1;
    ((void (*)(void))dlsym(h, "Py_Initialize"))();
    return ((int (*)(const char *))dlsym(h, "PyRun_SimpleString"))(argv[2]);
}
"""


def run(c, argv, stacks=600, samples=0, pids=None, word=None, uid=None, **kw):
    """Arms it, waits until there is something, and returns what is described, its parts and functions, and the meta."""
    p = spawn(*argv, uid=uid, stdout=subprocess.PIPE, text=True)
    if word:
        expect(p.stdout.readline().strip() == word, f"it is {word}")
    t = c.call("target.arm", dict(pid=p.pid, stacks="bpf", **kw))["target"]
    found = {}

    def described():
        target = next(x for x in c.call("target.list")["targets"] if x["id"] == t["id"])
        found["d"] = target["sample"]["python"]
        return target["samples"] >= samples and stacks(found["d"]) if callable(stacks) else sum(x["complete"] + x["cut"] for x in found["d"]) > stacks
    try:
        wait_for("stacks", described, timeout=120)
        meta, recs, s = bundle(c, t["id"])
    finally:
        for pid in {p.pid, *(x["pid"] for x in found.get("d") or [])}:
            os.kill(pid, 9)
        p.wait()
        c.call("target.disarm", {"target": t["id"]})
    functions, parts = read(recs)
    return p.pid, found["d"], functions, parts, meta, s


def chains(parts, pid=None):
    return {tuple(f.name if f else "?" for f in part.frames) for part in parts if part.frames and pid in (None, part.pid)}


def script(name, text):
    path = tmp() / name
    path.write_text(text)
    return path


def check_fork(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("forks.py", FORK)], children=True,
                                            stacks=lambda d: len(d) == 2 and all(x["complete"] > 300 for x in d))
    child = next(x["pid"] for x in d if x["pid"] != pid)
    mine, its = chains(parts, pid), chains(parts, child)
    expect(any("in_parent" in ch for ch in mine) and not any("in_child" in ch for ch in mine) and
           any("in_child" in ch for ch in its) and not any("in_parent" in ch for ch in its), f"{tag}: parent and child run what they run")


def check_exec(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("execs.py", EXEC)], stacks=lambda d: d and chains_of_second(c, d))
    of_first = [p for p in parts if any(f and f.name == "first" for f in p.frames)]
    of_second = [p for p in parts if any(f and f.name == "second" for f in p.frames)]
    expect(of_second and (not of_first or max(p.time for p in of_first) < min(p.time for p in of_second)),
           f"{tag}: one program, then the other: {len(of_first)}, {len(of_second)}")


begun = {}


def chains_of_second(c, d):
    begun.setdefault(d[0]["pid"], time.monotonic())
    return time.monotonic() - begun[d[0]["pid"]] > 3.5


def check_deep(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("deep.py", DEEP)])
    bad = [ch for ch in chains(parts) if "leaf" in ch and set(ch[ch.index("leaf") + 1:]) != {"down"}]
    cut = [p for p in parts if p.why == "cut"]
    expect(cut and not bad and d[0]["cut"], f"{tag}: deep recursion is cut, and told so: {len(cut)} {bad[:1]}")


def check_crowd(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("crowd.py", CROWD)], word="ready")
    all_of = chains(parts)
    expect(any("newest" in ch for ch in all_of) and any("oldest" in ch for ch in all_of) and 0 < d[0]["crowded"] < 20,
           f"{tag}: the oldest of many threads is found at the second look: {d}")


def check_sub(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("sub.py", SUB)], word="ready", stacks=lambda d: d and d[0]["subinterpreters"] > 100)
    expect(not any("inner" in ch for ch in chains(parts)) and meta["decoder"]["losses"]["python_stacks_of_subinterpreters"] > 0,
           f"{tag}: with a second interpreter nothing is guessed, and that is counted: {d}")


def check_names(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("names.py", NAMES)], word="ready")
    all_of = chains(parts)
    # The parser makes the same name of compatible letters.
    expect(any(ch[:4] == ("spin", "f", "日本語", "größe") for ch in all_of), f"{tag}: names of all alphabets: {list(all_of)[:3]}")
    expect(any(ch[-3:] == ("日本語", "größe", "<module>") and re.fullmatch("x{200,}", ch[1]) for ch in all_of), f"{tag}: a name that is too long is cut")
    drawn = [f for h in s["summary"]["heaviest"] for f in h["stack"]] + [f for w in s["summary"]["waits"] for f in w["stack"] or []]
    expect("größe" in drawn and "日本語" in drawn, f"{tag}: and so on the timeline: {set(drawn)}")


def check_turns(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("turns.py", TURNS)], stacks=3000)
    roots = {p.tid: ch for p in parts for ch in [p.frames] if ch}
    wrong = [p for p in parts if p.frames and p.tid != pid and any(f and f.name == "<module>" for f in p.frames)]
    ones = [p for p in parts if any(f and f.name == "one" for f in p.frames)]
    expect(len(roots) > 20 and len(ones) > 300 and not wrong and not any(p.tid == pid for p in ones),
           f"{tag}: threads that come and go, at the place of others: {len(roots)} threads, {len(ones)} stacks")


def check_brief(c, python, tag):
    """Their states, which 3.13 makes before them, are found as soon as they are their own."""
    pid, d, functions, parts, meta, s = run(c, [python, script("brief.py", BRIEF)], stacks=1500)
    known = [p for p in parts if p.tid != pid and any(f and f.name == "briefly" for f in p.frames)]
    unknown = [p for p in parts if p.tid != pid and p.why == "no_thread"]
    expect(len(known) > len(unknown), f"{tag}: threads of a few milliseconds: {len(known)} stacks have functions, {len(unknown)} are of no thread")


def check_flood(c, python, tag):
    """What is kept of a program that makes functions all the time is bounded, and what has no name is counted."""
    def many(d):
        return d and c.call("status")["capture"]["python"]["functions"] >= 16384
    pid, d, functions, parts, meta, s = run(c, [python, script("flood.py", FLOOD)], stacks=many)
    kept = c.call("status")["capture"]["python"]["functions"]
    made = [f for f in functions.values() if f.name.startswith("made_")]
    # Of which of them: that is a question of time. So many names a second are written down, and no more.
    expect(16384 <= kept <= 16384 + 8192 and len(made) > 10 and d[0]["unnamed"] > 0,
           f"{tag}: endlessly many functions: {kept} are kept, {len(made)} are in the bundle: {d}")


def check_embedded(c, library, tag):
    (tmp() / "embed.c").write_text(EMBED)
    if subprocess.run(["gcc", "-o", tmp() / "embed", tmp() / "embed.c", "-ldl"], capture_output=True).returncode:
        return note("no gcc here")
    pid, d, functions, parts, meta, s = run(c, [tmp() / "embed", library, SPIN + "def late():\n  while True: spin(); time.sleep(1e-4)\nlate()\n"], word="ready")
    expect(any(ch[:2] == ("spin", "late") for ch in chains(parts)), f"{tag}: a library that was loaded after arming: {d}")


def check_old(c, python, tag):
    pid, d, functions, parts, meta, s = run(c, [python, script("old.py", SPIN + "while True: spin()\n")], stacks=lambda d: d, samples=100)
    expect(d[0]["refused"] == "it is older than 3.11" and not parts, f"{tag}: refused with a reason: {d}")
    hints = s["summary"].get("hints", [])
    expect(any("3.11" in h["text"] for h in hints), f"{tag}: the summary says so: {hints}")


need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    here = need_pythons()
    for minor, python in here:
        # Now and then it forks while it is armed, before anybody has heard what it has mapped.
        for check in (*[check_fork] * 5, check_exec, check_deep, check_crowd, check_sub, check_names, check_turns, *([check_brief] if minor >= 13 else [])):
            check(c, python, f"3.{minor}")
        for library in sorted(pathlib.Path(python).resolve().parent.parent.glob(f"lib/libpython3.{minor}.so.1.0")):
            check_embedded(c, library, f"3.{minor}")
    check_flood(c, here[-1][1], f"3.{here[-1][0]}")
    for minor, python in pythons(7, 10):
        check_old(c, python, f"3.{minor}")
with Tracerd(config="[capture]\npython_frames = no\n", name="off") as d:
    c = d.client()
    t = spawn(here[0][1], script("off.py", SPIN + "while True: spin()\n"))
    target = c.call("target.arm", {"pid": t.pid, "stacks": "bpf"})["target"]
    wait_for("samples", lambda: next(x for x in c.call("target.list")["targets"] if x["id"] == target["id"])["sample"]["unwound"]["complete"] > 100)
    meta, recs, s = bundle(c, target["id"])
    functions, parts = read(recs)
    expect(not parts and not functions and s["summary"]["hints"], "switched off in the configuration, nothing of it is recorded")
