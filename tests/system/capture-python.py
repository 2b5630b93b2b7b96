#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""The functions that CPython runs are in the stacks of samples and waits, without a flag of the interpreter: by all the ways in which
Python calls Python, in threads, generators and coroutines, through C and back, also where code objects come and go. Each has
one caller in the program, so that a wrong one shows."""
import re
import struct

from lib.capture import *
from lib.pythonframes import *

PROGRAM = r'''
import asyncio, ctypes, functools, os, sys, threading, time

TREE = """
def {p}(n):
    {p}_direct(n); list(map({p}_map, (n,))); sorted((2, 1), key={p}_key); [x for x in {p}_gen(n)]; {p}_class(n); {p}_class.meth(n)
    {p}_rec(n, 12); functools.partial({p}_part, n)(); {p}_c(n); asyncio.run({p}_co(n)); {p}_wait(); {p}_new(n)
def {p}_direct(n): {p}_direct_in(n)
def {p}_direct_in(n): spin(n)
def {p}_map(n): {p}_map_in(n)
def {p}_map_in(n): spin(n)
def {p}_key(n): {p}_key_in(1500); return n
def {p}_key_in(n): spin(n)
def {p}_gen(n):
    for i in range(2): yield {p}_gen_in(n)
def {p}_gen_in(n): spin(n)
class {p}_class:
    def __init__(self, n): {p}_init_in(n)
    @staticmethod
    def meth(n): {p}_meth_in(n)
def {p}_init_in(n): spin(n)
def {p}_meth_in(n): spin(n)
def {p}_rec(n, d):
    if d: {p}_rec(n, d - 1)
    else: {p}_rec_in(n)
def {p}_rec_in(n): spin(n)
def {p}_part(n): {p}_part_in(n)
def {p}_part_in(n): spin(n)
@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
def {p}_callback(n): {p}_callback_in(n); return 0
def {p}_callback_in(n): spin(n)
def {p}_c(n): {p}_callback(n)
async def {p}_co(n): await {p}_co_in(n)
async def {p}_co_in(n): {p}_co_leaf(n)
def {p}_co_leaf(n): spin(n)
def {p}_wait(): {p}_wait_in()
def {p}_wait_in(): time.sleep(0.001)
def {p}_new(n):
    for i in range(4):
        k = next(numbers)
        names = dict(spin=spin)
        exec(compile(f"def {p}_new{{k}}(n): {p}_new{{k}}_in(n)\\ndef {p}_new{{k}}_in(n): spin(n)\\n{p}_new{{k}}({{n}})\\n", f"<new {{k}}>", "exec"), names)
"""

import itertools
numbers = itertools.count()

def spin(n):
    s = 0
    for i in range(n): s += i
    return s

for p in ("main", "one", "two", "three"): exec(compile(TREE.format(p=p), "tree.py", "exec"))

def run_main(): loop(main)
def run_one(): loop(one)
def run_two(): loop(two)
def run_three(): loop(three)
def loop(f):
    os.write(1, f"{threading.get_native_id()} {f.__name__}\n".encode())
    while True: f(1500)

for f in (run_one, run_two, run_three): threading.Thread(target=f, daemon=True).start()
run_main()
'''


def parent(name):
    """Who calls it."""
    base = re.match(r"(main|one|two|three)", name)
    if name == "spin":
        return None
    if name in ("main", "one", "two", "three"):
        return "loop"
    p = base[0]
    name = name[len(p):]
    new = re.fullmatch(r"_new(\d+)(_in)?", name)
    if new:
        return f"{p}_new{new[1]}" if new[2] else "<module>"
    if name in ("_init_in", "_meth_in"):
        return {"_init_in": f"{p}_class.__init__", "_meth_in": f"{p}_class.meth"}[name]
    if name == "_callback":
        return f"{p}_c"
    if name == "_co_leaf":
        return f"{p}_co_in"
    if name.endswith("_in"):
        return p + name[:-3]
    return p


def judge(part, root):
    """None, or what is wrong with the chain."""
    if None in part.frames:
        return None
    # the library has names of its own
    chain = [f.name if re.search(r"(^tree|/pattern)\.py$|^<new ", f.file) else f"library {f.name}" for f in part.frames]
    for at, name in enumerate(chain):
        outer = chain[at + 1] if at + 1 < len(chain) else None
        if name == "spin":
            if outer is None or not re.fullmatch(rf"{root}_\w*(_in|_leaf)", outer):
                return f"spin is called by {outer}"
        elif re.match(r"(main|one|two|three)(_|$)", name):
            if not re.match(rf"{root}(_|$)", name):
                return f"{name} is of another thread"
            want = parent(name)
            if name == f"{root}_rec":
                ok = outer in (f"{root}_rec", root)
            elif name == f"{root}_co":
                # its first call makes it, and ends at once
                ok = outer == root or outer and outer.startswith("library ") and ("run" in outer or "Handle" in outer)
            elif name == f"{root}_gen":
                ok = outer in (root, f"{root}.<locals>.<listcomp>")  # a function of its own before 3.12
            else:
                ok = outer == want
            if not ok:
                return f"{name} is called by {outer}, not {want}"
            if name == f"{root}_rec_in" and chain[at:at + 15] != [name] + [f"{root}_rec"] * 13 + [root]:
                return f"the recursion is not 13 deep: {chain[at:at + 16]}"
        elif name == "loop" and outer != f"run_{root}":
            return f"loop is called by {outer}"
    return None


def check(python, minor, c):
    path = tmp() / "pattern.py"
    path.write_text(PROGRAM)
    p = spawn(python, path, stdout=subprocess.PIPE, text=True)
    roots = dict(p.stdout.readline().split() for _ in range(4))
    roots = {int(tid): name for tid, name in roots.items()}
    expect(sorted(roots.values()) == ["main", "one", "three", "two"], f"3.{minor}: its four threads run: {python}")
    loop = Loop(p.pid)
    t = c.call("target.arm", {"pid": p.pid, "stacks": "bpf"})["target"]

    def described():
        found = [x for x in c.call("target.list")["targets"] if x["id"] == t["id"]][0]["sample"]["python"]
        return found and found[0]["complete"] > 6000 and found[0]

    try:
        wait_for("its functions are found", described, timeout=120)
        d = described()
        expect(d["version"] == f"3.{minor}" and not d["refused"] and d["pid"] == p.pid, f"the daemon tells of it: {d}")
        meta, recs, s = bundle(c, t["id"])
        # Which ten are the heaviest of some thousand is chance: once it was none of the loop's.
        for _ in range(5):
            if any("loop" in h["stack"] for h in s["summary"]["heaviest"]):
                break
            s = bundle(c, t["id"])[2]
    finally:
        p.kill()
        p.wait()
        c.call("target.disarm", {"target": t["id"]})
    functions, parts = read(recs)
    wrong, good, frames, unnamed, between, kinds = [], 0, 0, 0, 0, collections.Counter()
    for part in parts:
        if part.why not in ("complete", "cut"):
            between += part.why == "between"
            continue
        if loop.is_between(part):
            between += 1
            continue
        why = judge(part, roots.get(part.tid))
        if why and part.tid in roots:
            wrong.append((why, part))
        else:
            good += bool(part.frames)
            frames += len(part.frames)
            unnamed += part.frames.count(None)
            kinds[part.kind] += bool(part.frames)
    for w in wrong[:5]:
        # all that there is to find out what it was
        note(f"{w[0]}: {[f and f.name for f in w[1].frames]}, {w[1].why}, kind {w[1].kind}, at {w[1].time}")
        note(f"  words {[hex(x) for x in w[1].words]}")
        note(f"  native {[hex(x) + ' loop' * loop.has(x) for x in w[1].native]}, loop {[(hex(a), hex(b)) for a, b in loop.ranges]}")
    expect(not wrong, f"3.{minor}: no wrong caller among {good} stacks with {frames} frames: {len(wrong)}")
    expect(good > 1000 and kinds[0] > 100 and kinds[OUT] + kinds[IN] > 100, f"3.{minor}: of samples and of waits: {dict(kinds)}")
    expect(between <= good // 20, f"3.{minor}: few are between two functions: {between} of {good}")
    expect(unnamed <= frames // 100, f"3.{minor}: nearly all have names: {unnamed} of {frames} have none")
    seen = {f.name for part in parts for f in part.frames if f}
    for way in ("direct", "map", "key", "gen", "init", "meth", "rec", "part", "callback"):
        expect(any(f"{r}_{way}_in" in seen for r in roots.values()), f"3.{minor}: called by {way}")
    expect(any(n.endswith("_co_leaf") for n in seen) and any(re.search(r"_new\d+_in", n) for n in seen) and any(n.endswith("_wait_in") for n in seen),
           f"3.{minor}: coroutines, code that comes and goes, waits")
    lines = {f.name: (f.file, f.line) for f in functions.values()}
    where = PROGRAM[:PROGRAM.index("def spin")].count("\n") + 1
    expect(lines["spin"] == (str(path), where), f"3.{minor}: with file and line: {lines['spin']}")
    files = [(f.name, f.file) for f in functions.values() if re.search(r"_new\d+", f.name)]
    expect(all(re.search(r"_new(\d+)", n)[1] == f[5:-1] for n, f in files), f"3.{minor}: code that lies where other code has lain has its own file: {files[:3]}")
    stats, losses = meta["decoder"]["stats"], meta["decoder"]["losses"]
    expect(stats["python_stacks"] > 1000 and stats["python_frames"] > 5000, f"3.{minor}: drawn: {stats['python_stacks']}")
    expect(losses.get("python_stacks_without_place", 0) <= stats["python_stacks"] // 50,
           f"3.{minor}: nearly all have their place among the native frames: {losses}")
    heaviest = [h["stack"] for h in s["summary"]["heaviest"]]
    mixed = [h for h in heaviest if "loop" in h]
    # One that is cut has lost the native frames around it, and says so.
    bare = [h for h in mixed if "_PyEval_EvalFrameDefault" not in h[:h.index("loop")]]
    expect(len(mixed) > len(bare) * 4, f"3.{minor}: among the native frames: {len(mixed)} of {len(heaviest)}, {bare[:1]}, {losses}")
    expect(not s["summary"].get("hints"), f"3.{minor}: nothing is advised: {s['summary'].get('hints')}")


if __name__ == "__main__":
    need_root("BPF")
    with Tracerd() as d:
        c = d.client()
        need_unwinding(c)
        for minor, python in need_pythons():
            check(python, minor, c)
