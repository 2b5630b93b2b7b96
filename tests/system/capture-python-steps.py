#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""CPython is stopped after each of its instructions, so that stacks are taken of every state that its list of frames is ever in: also where a
function is being called or has returned, and the list is not one. No caller is wrong in any of them."""
import ctypes

from lib.capture import *
from lib.pythonframes import *

PROGRAM = r'''
def leaf(): return 1
def direct(): leaf()
def generator():
    yield leaf_of_generator()
    yield 2
def leaf_of_generator(): return 1
async def coroutine(): await inner_coroutine()
async def inner_coroutine(): leaf_of_coroutine()
def leaf_of_coroutine(): return 1
class Thing:
    def __init__(self): leaf_of_init()
    @property
    def value(self): return leaf_of_property()
    def __getattr__(self, name): return leaf_of_getattr()
def leaf_of_init(): return 1
def leaf_of_property(): return 1
def leaf_of_getattr(): return 1
def raiser(): leaf_of_raiser(); raise ValueError
def leaf_of_raiser(): return 1
def mapped(x): leaf_of_mapped()
def leaf_of_mapped(): return 1
def recursion(n): recursion(n - 1) if n else leaf_of_recursion()
def leaf_of_recursion(): return 1
def work():
    direct()
    for x in generator(): pass
    list(generator())
    c = coroutine()
    try: c.send(None)
    except StopIteration: pass
    t = Thing(); t.value; t.other
    try: raiser()
    except ValueError: pass
    list(map(mapped, (1,)))
    recursion(3)
print("ready", flush=True)
while True: work()
'''
CALLERS = {
    "leaf": "direct", "leaf_of_generator": "generator", "leaf_of_coroutine": "inner_coroutine", "inner_coroutine": "coroutine",
    "leaf_of_init": "Thing.__init__", "leaf_of_property": "Thing.value", "leaf_of_getattr": "Thing.__getattr__", "leaf_of_raiser": "raiser",
    "leaf_of_mapped": "mapped", "leaf_of_recursion": "recursion", "work": "<module>"}
STEPS = 30000
ATTACH, SINGLESTEP, DETACH, WALL = 16, 9, 17, 0x40000000

libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
libc.ptrace.restype = ctypes.c_long


def judge(part):
    """None, or what is wrong with the chain."""
    chain = [f and f.name for f in part.frames]
    if None in chain:
        return None
    for at, name in enumerate(chain):
        outer = chain[at + 1] if at + 1 < len(chain) else None
        if name == "<module>":
            ok = outer is None
        elif name == "recursion":
            ok = outer in ("recursion", "work")
        elif name == "leaf_of_recursion":
            ok = chain[at + 1:at + 6] == ["recursion"] * 4 + ["work"]
        else:
            ok = outer == CALLERS.get(name, "work")
        if not ok:
            return f"{name} is called by {outer}"
    return None


def step(pid, n):
    if libc.ptrace(ATTACH, pid, None, None):
        skip("programs cannot be stepped here")
    os.waitpid(pid, 0)
    for _ in range(n):
        libc.ptrace(SINGLESTEP, pid, None, None)
        os.waitpid(pid, WALL)
    libc.ptrace(DETACH, pid, None, None)


def check(python, minor, c):
    path = tmp() / "steps.py"
    path.write_text(PROGRAM)
    p = spawn(python, path, stdout=subprocess.PIPE, text=True)
    expect(p.stdout.readline() == "ready\n", f"3.{minor}: it runs: {python}")
    loop = Loop(p.pid)
    t = c.call("target.arm", {"pid": p.pid, "stacks": "bpf", "wait_min_us": 0})["target"]

    def found():
        python = next(x for x in c.call("target.list")["targets"] if x["id"] == t["id"])["sample"]["python"]
        return python and python[0]["complete"] > 50
    try:
        wait_for("its functions are found", found, timeout=120)
        step(p.pid, STEPS)
        meta, recs, s = bundle(c, t["id"])
    finally:
        p.kill()
        p.wait()
        c.call("target.disarm", {"target": t["id"]})
    functions, parts = read(recs)
    stops = [part for part in parts if part.kind]
    believed = [part for part in parts if part.why in ("complete", "cut") and not loop.is_between(part)]
    wrong = [(why, part) for part in believed for why in [judge(part)] if why]
    for why, part in wrong[:5]:
        note(f"{why}: {[f and f.name for f in part.frames]}, stopped {part.stopped}, words {[hex(x) for x in part.words]}")
        note(f"  native {[hex(x) + ' loop' * loop.has(x) for x in part.native]}, loop {[(hex(a), hex(b)) for a, b in loop.ranges]}")
    expect(len(stops) > STEPS // 2, f"3.{minor}: there is a stack of most steps: {len(stops)}")
    expect(not wrong, f"3.{minor}: no wrong caller after any instruction: {len(wrong)} of {len(believed)}")
    expect(len(believed) > len(parts) * 3 // 4, f"3.{minor}: between functions it is not known: {len(parts) - len(believed)} of {len(parts)}")
    seen = {f.name for part in believed for f in part.frames if f}
    expect(seen >= set(CALLERS), f"3.{minor}: all functions were seen: {set(CALLERS) - seen}")
    losses = meta["decoder"]["losses"]
    expect(losses.get("python_stacks_between_functions") or minor > 12, f"3.{minor}: and that is counted: {losses}")


if __name__ == "__main__":
    need_root("BPF")
    with Tracerd(config="[capture]\nring_kib = 16384\n") as d:
        c = d.client()
        need_unwinding(c)
        for minor, python in need_pythons():
            check(python, minor, c)
