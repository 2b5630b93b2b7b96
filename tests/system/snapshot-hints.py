#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""Where names are missing the summary says what would give them, and is silent where they are there. A perf map is read at each
snapshot. The callers of CPython's trampolines are found: they have no unwind table, and those of 3.12 no frame pointer."""
import shutil

from lib.snapshot import *

SPIN = """
def inner(n):
    s = 0
    for i in range(n): s += i
    return s
def outer(): return inner(20000)
while True: outer()
"""
JIT = """
import ctypes, mmap, sys
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xeb\\xfe")
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(f"{at:x}", flush=True)
ctypes.CFUNCTYPE(None)(at)()
"""


JAVA = """
public class Spin {
    static volatile long sink;
    static long inner(int n) { long s = 0; for (int i = 0; i < n; i++) s = s * 31 + i % 7; return s; }
    static long outer(int n) { return inner(n) + inner(n / 2); }
    public static void main(String[] a) {
        for (int i = 0; i < 20000; i++) sink += outer(1000);
        System.out.println("ready");
        while (true) sink += outer(20000);
    }
}
"""

IN_MEMORY = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char *none[] = {argv[0], NULL};
	int from, to;
	if (argc < 2)
		for (volatile long n = 0;; n++)
			;
	from = open(argv[1], O_RDONLY);
	to = memfd_create("mine", MFD_CLOEXEC);
	while (sendfile(to, from, NULL, 1 << 20) > 0)
		;
	execveat(to, "", none, NULL, AT_EMPTY_PATH);
	return 1;
}
"""


def summary_of(c, pid):
    let_work(pid)
    s = c.snapshot(str(pid))
    expect(s["state"] == "done", f"done: {s['error']}")
    return s["summary"]


def stacks(summary):
    return [h["stack"] for t in (summary["heaviest"],) for h in t]


def pythons():
    """One of each version that can have trampolines, from the path or where pyenv puts them."""
    for minor in range(16, 11, -1):
        name = f"python3.{minor}"
        for path in (shutil.which(name), *map(str, pathlib.Path.home().glob(f".pyenv/versions/*/bin/{name}"))):
            found = path and subprocess.run([path, "-c", "import sys; print(sys.executable)"], capture_output=True, text=True)
            if found and found.returncode == 0 and found.stdout.strip():
                yield found.stdout.strip()
                break


need_root()
with Tracerd() as d:
    c = d.client()
    plain = spawn(sys.executable, "-c", SPIN)
    c.arm(plain.pid, stacks="dwarf")
    summary = summary_of(c, plain.pid)
    hints = summary.get("hints", [])
    expect([h["pid"] for h in hints] == [plain.pid] and "--stacks bpf" in hints[0]["text"], f"Python without names: {hints}")
    c.call("target.disarm", {"target": str(plain.pid)})

    # Its first stacks have no functions, and are nearly all that there are.
    if c.call("status")["capture"].get("unwinds"):
        target = c.arm(plain.pid, stacks="bpf")["id"]

        def found():
            known = [t for t in c.call("target.list")["targets"] if t["id"] == target][0]["sample"]["python"]
            return known and (known[0]["refused"] or known[0]["complete"] > 0) and known[0]

        known = wait_for("the first of its functions", found, step=0.001)
        hints = c.snapshot(target)["summary"].get("hints", [])
        expect(not any("--stacks bpf" in h["text"] for h in hints), f"who has unwound stacks is not told to ask for them: {hints}, {known}")
    plain.kill()

    jit = spawn(sys.executable, "-c", JIT, stdout=subprocess.PIPE, text=True)
    at = jit.stdout.readline().strip()
    path = pathlib.Path(f"/tmp/perf-{jit.pid}.map")
    c.arm(jit.pid)
    try:
        summary = summary_of(c, jit.pid)
        expect(summary.get("hints"), "generated code without names")
        path.write_text(f"{at} 10 named_later\n")
        summary = summary_of(c, jit.pid)
        expect("named_later" in json.dumps(stacks(summary)) and not summary.get("hints"),
               "a perf map that was written after the first snapshot is read at the second, and ends the advice")
        path.write_text(f"{at} 10 before\n{at} 10 after\n")
        summary = summary_of(c, jit.pid)
        several = [h for h in summary.get("hints", []) if "several names" in h["text"]]
        expect("after" in json.dumps(stacks(summary)) and len(several) == 1 and several[0]["frames"] > 0,
               f"of two names for an address the last one is drawn, and that is said: {summary.get('hints')}")
        for what, make, why in (
                ("a line that is none", lambda: path.write_text(f"{at} 10 named\nhello\n"), "not those of a map"),
                ("another's", lambda: os.chown(path, 12345, 12345), "uid 12345"),
                ("a link", lambda: (path.unlink(), path.symlink_to("/etc/hostname")), "link"),
                ("a FIFO", lambda: (path.unlink(), os.mkfifo(path)), "not a regular file")):
            make()
            hints = summary_of(c, jit.pid).get("hints", [])
            expect(len(hints) == 1 and "refused" in hints[0]["text"] and why in hints[0]["text"] and "would give" not in hints[0]["text"],
                   f"a perf map that is refused is not asked for: {what}: {hints}")
    finally:
        jit.kill()
        path.unlink(missing_ok=True)

    # Java keeps no frame pointers unless it is told to: its compiled functions seem to be called by nobody.
    if shutil.which("java") and shutil.which("javac"):
        (tmp() / "Spin.java").write_text(JAVA)
        subprocess.run(["javac", "-d", tmp(), tmp() / "Spin.java"], check=True, stdin=subprocess.DEVNULL)
        for flags in ([], ["-XX:+PreserveFramePointer"]):
            p = spawn("java", "-cp", tmp(), *flags, "Spin", stdout=subprocess.PIPE, text=True)
            p.stdout.readline()
            c.arm(p.pid, stacks="fp")
            let_work(p.pid, seconds=1)
            hints = c.snapshot(str(p.pid))["summary"].get("hints", [])
            told = [h for h in hints if "-XX:+PreserveFramePointer" in h["text"]]
            expect(len(told) == (not flags) and all(h["pid"] == p.pid and h["frames"] >= 10 for h in told),
                   f"Java with {flags or 'no flag'}: where callers are not found, what would give them: {hints}")
            p.kill()
    else:
        note("no Java here")

    memory = spawn(build_c("memory", IN_MEMORY), tmp() / "memory")
    c.arm(memory.pid)
    hints = wait_for("frames of a file in memory", lambda: summary_of(c, memory.pid).get("hints"))
    expect(len(hints) == 1 and hints[0]["text"].startswith("[memfd:mine] ") and "perf map" not in hints[0]["text"],
           f"a program in memory is no generated code: {hints}")
    memory.kill()

    tried = 0
    for python in pythons():
        p = spawn(python, "-X", "perf", "-c", SPIN)
        try:
            c.arm(p.pid, stacks="dwarf")
            summary = summary_of(c, p.pid)
        finally:
            p.kill()
            pathlib.Path(f"/tmp/perf-{p.pid}.map").unlink(missing_ok=True)
        all_of = stacks(summary)
        if not any("py::" in f for s in all_of for f in s):
            continue  # built without them
        tried += 1
        named = [f for s in all_of[:1] for f in s]
        order = [next((i for i, f in enumerate(named) if f.startswith(f"py::{name}")), -1) for name in ("<module>", "outer", "inner")]
        expect(-1 < order[0] < order[1] < order[2] and any("Py_RunMain" in f or "Py_BytesMain" in f for f in named[:order[0]]) and
               not summary.get("hints"), f"{python}: through three trampolines down to the program's begin: {named}")
    if not tried:
        note("no Python with trampolines (3.12 on) here")
