#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# Stacks through code that node and Java make at run time. Each program calls the same functions in the same order, for ever, so that the
# functions of each of its stacks, named by its own map, are known: whole ones are those, or as many of them as were called by then, and
# nothing else. Where the code keeps frame pointers stacks are unwound in the kernel; where it does not, they are copied.
import bisect
import re
import shutil

from lib.capture import *

JS = r"""
const fs = require('fs');
const cell = new Int32Array(new SharedArrayBuffer(4));
function burn(n) { let s = 0; for (let i = 0; i < n; i++) s += i ^ n; return s; }
function pause(n) { return Atomics.wait(cell, 0, 0, 0.02) === 'x' ? 1 : burn(n); }
function gamma(n, k) { return n > 1 ? gamma(n - 1, k) + 1 : pause(k) + 1; }
function beta(k) { if (k < 0) { LONG } return gamma(7, k) + 1; }
function alpha(k) { if (k < 0) { LONG } return beta(k) + 1; }
function turns(n) { let s = 0; for (let i = 0; i < n; i++) s += alpha(2000); return s; }
turns(3000);
fs.writeSync(1, 'ready\n');
for (;;) turns(1000);
"""
JAVA = r"""
public class Known {
    static int burn(int n) { int s = 0; for (int i = 0; i < n; i++) s += i ^ n; return s; }
    static int pause(int n) { try { Thread.sleep(0, 20000); } catch (InterruptedException e) { } return burn(n); }
    static int gamma(int n, int k) { return n > 1 ? gamma(n - 1, k) + 1 : pause(k) + 1; }
    static int beta(int k) { return gamma(7, k) + 1; }
    static int alpha(int k) { return beta(k) + 1; }
    static int turns(int n) { int s = 0; for (int i = 0; i < n; i++) s += alpha(2000); return s; }
    public static void main(String[] args)
    {
        turns(3000);
        System.out.println("ready"); System.out.flush();
        for (;;) turns(1000);
    }
}
"""
ORDER = ["turns", "alpha", "beta"] + ["gamma"] * 7 + ["pause"]
NAMES = {*ORDER, "burn"}
WHYS = ("complete", "cut", "no_table", "no_rule", "no_read", "bad", "no_frame")
WITHOUT = {"Java, C1", "Java, C2"}
USER = 2**64 - 512  # PERF_CONTEXT_USER

need_root("BPF")
# What is long is not inlined.
(tmp() / "known.js").write_text(JS.replace("LONG", "k = k * 3 + cell[k & 1];" * 300))
(tmp() / "Known.java").write_text(JAVA)
programs = {}
if shutil.which("node"):
    node = ["node", "--perf-basic-prof"]
    programs["node"] = [*node, tmp() / "known.js"]
    programs["node, not optimized"] = [*node, "--interpreted-frames-native-stack", "--no-opt", tmp() / "known.js"]


def java_release():
    """Of what is installed; 17 is the first that writes a map when it is asked."""
    if not shutil.which("jcmd") or not shutil.which("javac"):
        return 0
    said = subprocess.run(["javac", "-version"], capture_output=True, text=True)
    found = re.search(r"javac (\d+)", said.stdout + said.stderr)
    return int(found.group(1)) if found else 0


if java_release() >= 17 and subprocess.run(["javac", "Known.java"], cwd=tmp(), capture_output=True).returncode == 0:
    java = ["java", "-XX:-Inline", "-XX:+UseSerialGC", "-cp", tmp()]
    programs["Java, interpreted"] = [*java, "-Xint", "Known"]
    programs["Java, C1, frame pointers"] = [*java, "-XX:TieredStopAtLevel=1", "-XX:+PreserveFramePointer", "Known"]
    programs["Java, C2, frame pointers"] = [*java, "-XX:+PreserveFramePointer", "Known"]
    programs["Java, C1"] = [*java, "-XX:TieredStopAtLevel=1", "Known"]
    programs["Java, C2"] = [*java, "Known"]
if not programs:
    skip("neither node nor Java is installed here")


class Map:
    """What a runtime says of its code."""

    def __init__(self, pid):
        self.v = []
        for line in pathlib.Path(f"/tmp/perf-{pid}.map").read_text(errors="replace").splitlines():
            start, size, name = line.split(maxsplit=2)
            self.v.append((int(start, 16), int(size, 16), name))
        self.v.sort(key=lambda x: x[0])
        self.starts = [x[0] for x in self.v]

    def name(self, addr):
        at = bisect.bisect_right(self.starts, addr) - 1
        if at < 0 or addr >= self.v[at][0] + self.v[at][1]:
            return None
        name = self.v[at][2]
        for known in NAMES:
            if re.search(rf"(\b|[*~^]){known}(\b|\()", name):
                return known
        return "Interpreter" if name.startswith("Interpreter") else None


def chain_of(r):
    """(the user's addresses, whether the stack was copied)."""
    at = 48
    (n,) = struct.unpack_from("<Q", r.body, at)
    chain = struct.unpack_from(f"<{n}Q", r.body, at + 8)
    user = [x for x in chain[chain.index(USER):] if x < 2**63] if USER in chain else []
    return user, not user and len(r.body) > 2048


def is_known(names):
    """Whether functions, the outermost first, are those that can be on the stack; the interpreter's may be any."""
    def fits(want):
        return len(names) == len(want) and all(a in (b, "Interpreter") for a, b in zip(names, want))
    return any(fits(ORDER[:n]) for n in range(len(ORDER) + 1)) or fits([*ORDER, "burn"])


def functions(chain, perfmap, is_java):
    names = [perfmap.name(a if i == 0 else a - 1) for i, a in enumerate(chain)]
    names = [x for x in reversed(names) if x]
    # main(), and Thread.sleep(), are interpreted, too
    if is_java and names[:1] == ["Interpreter"]:
        names = names[1:]
    while is_java and len(ORDER) < len(names) <= len(ORDER) + 2 and names[-1] == "Interpreter":
        names = names[:-1]
    return names


def judge(recs, perfmap, is_java):
    """How many stacks of waits and ticks are "known", "copied", without code that was made, or else by their functions."""
    found = collections.Counter()
    for r in recs:
        if r.type != SAMPLE or r.id not in (SCHED, CLOCK) or (r.id == SCHED and sched(r).kind != OUT):
            continue
        chain, copied = chain_of(r)
        if not chain:
            found["copied" if copied else "none"] += 1
            continue
        names = functions(chain, perfmap, is_java)
        found["other" if not names else "known" if is_known(names) else "wrong: " + " ".join(names)] += 1
    return found


with Tracerd(config="[capture]\ndwarf_ring_kib = 8192\n") as d:
    c = d.client()
    need_unwinding(c)

    def counts(target):
        return c.call("target.show", {"target": target})["target"]["sample"]["unwound"]

    def wait_for_stacks(target, more):
        had = counts(target)

        def ended():
            now = counts(target)
            ends = {x: now[x] - had[x] for x in WHYS}
            return ends if sum(ends.values()) > more else None

        return wait_for("stacks", ended)

    java_whole = []
    for name, argv in programs.items():
        p = spawn(*argv, cwd=tmp(), stdout=subprocess.PIPE)
        p.stdout.readline()
        path = pathlib.Path(f"/tmp/perf-{p.pid}.map")
        is_java = name.startswith("Java")
        try:
            t = c.call("target.arm", {"pid": p.pid, "stacks": "bpf", "wait_min_us": 0})["target"]
            wait_for(f"{name}: its tables", lambda: (u := counts(t["id"]))["mappings"] and not u["mappings_waiting"])
            wait_for_stacks(t["id"], 1000)
            ends = wait_for_stacks(t["id"], 3000)
            _, recs, _ = bundle(c, t["id"])
            if is_java:
                jcmd = ["jcmd", str(p.pid), "Compiler.perfmap"]
                wait_for(f"{name}: its map", lambda: subprocess.run(jcmd, capture_output=True).returncode == 0 and path.exists(), step=0.5)
            found = judge(recs, Map(p.pid), is_java)
        finally:
            p.kill()
            p.wait()
            path.unlink(missing_ok=True)
        wrong = {k: v for k, v in found.items() if " " in k}
        whole = found["known"]
        note(f"{name}: stacks by how they ended {ends}; in the snapshot {dict(found)}")
        # Code may be replaced between the stack and the map.
        expect(sum(wrong.values()) * 100 <= whole + sum(wrong.values()), f"{name}: whole stacks are of the functions that were called")
        if name in WITHOUT:
            expect(ends["no_frame"] > 100, f"{name}: it keeps no frame pointer, so it is copied")
        elif is_java:
            java_whole.append(whole)
        else:
            expect(whole > 500 and ends["complete"] > sum(ends.values()) / 2, f"{name}: stacks are unwound in the kernel")
    # What was in a frame's memory before may look as if it kept no frame pointer: all stacks through it are copied then.
    expect(not java_whole or max(java_whole) > 500, f"Java, with frame pointers: stacks are unwound in the kernel: {java_whole}")
