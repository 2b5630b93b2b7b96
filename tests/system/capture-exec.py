#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Programs that execute each other, again and again, and have no addresses of their own (static, not position-independent). Within an exec the
memory is the new program's already, and the registers still the old one's: by these nobody is in a function of the new program. No program's
stack is drawn before it begins, nor after the next one has. A thread that executes a program is no more."""
import collections

from lib.capture import *
from lib.texttrace import slices_of_snapshot

SOURCE = r"""
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#define FN __attribute__((noinline, noclone))
static volatile int sink;
#ifdef SECOND
#define burn burn_of_second
/* Where the first program has its code, this one has a function that nobody calls. */
__asm__(".text\n.globl nobody_is_here\n.type nobody_is_here, @function\nnobody_is_here:\n.skip 0x400000, 0x90\n.size nobody_is_here, .-nobody_is_here\n");
#else
#define burn burn_of_first
#endif
FN void burn(void)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do {
		for (int i = 0; i < 20000; i++)
			sink++;
		clock_gettime(CLOCK_MONOTONIC, &b);
	} while ((b.tv_sec - a.tv_sec) * 1000000000 + b.tv_nsec - a.tv_nsec < 2000000);
}
static void tell(const char *what)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	fprintf(stderr, "%s %lld\n", what, t.tv_sec * 1000000000ll + t.tv_nsec);
}
int main(int argc, char **argv)
{
	const struct timespec nap = {0, 1000000};
	int left = atoi(argv[2]);
	char more[16], c;

	if (argc > 3) {
		puts("ready");
		fflush(stdout);
		if (read(0, &c, 1) != 1)
			return 1;
	}
	tell("begin");
	clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, NULL);
	burn();
	snprintf(more, sizeof(more), "%d", left - 1);
	tell("end");
	if (left)
		execl(argv[1], argv[1], argv[0], more, (char *)0);
	puts("done");
	fflush(stdout);
	return read(0, &c, 1) == 1;
}
"""
EXECS = 200
CLOCKS_APART_NS = 20000
THREAD_EXECUTES = """
import os, sys, threading
def rest():
    print(threading.get_native_id(), flush=True)
    sys.stdin.readline()
    os.execv("/bin/sleep", ["sleep", "1000"])
threading.Thread(target=rest).start()
"""

need_root("BPF")
need_command("gcc")
(tmp() / "exec.c").write_text(SOURCE)
for name, flags in (("first", []), ("second", ["-DSECOND"])):
    made = subprocess.run(["gcc", "-O1", "-fno-omit-frame-pointer", "-static", "-no-pie", *flags, tmp() / "exec.c", "-o", tmp() / name],
                          capture_output=True, text=True)
    if made.returncode:
        skip(f"no static programs here: {made.stderr.splitlines()[-1]}")


def times_of(path):
    """[(begin, end)] of each program as it tells them: when it certainly runs."""
    told = [int(line.split()[1]) for line in path.read_text().splitlines()]
    return list(zip(told[::2], told[1::2]))


def misplaced(its, times, first):
    """The slices of every second program that are partly in what certainly is another one's time."""
    out = []
    for x in its:
        may = [(times[k - 1][1] if k else 0, times[k + 1][0] if k + 1 < len(times) else x.end) for k in range(first, len(times), 2)]
        if not any(a - CLOCKS_APART_NS <= x.begin and x.end <= b + CLOCKS_APART_NS for a, b in may):
            out.append(x)
    return out


def one(d, c, stacks):
    told = tmp() / f"told-{stacks}"
    with told.open("w") as f:
        p = spawn(tmp() / "first", tmp() / "second", str(EXECS), "wait", stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=f, text=True,
                  bufsize=1)
    if p.stdout.readline() != "ready\n":
        fail("the program does not start")
    t = c.arm(p.pid, stacks=stacks, children=True)
    p.stdin.write("x")
    p.stdin.flush()
    if p.stdout.readline() != "done\n":
        fail("the programs do not end")
    s = c.snapshot(t["id"])
    slices = [x for its in slices_of_snapshot(d, s["id"], tmp() / f"bundle-{stacks}").values() for x in its]
    seen = collections.Counter(x.name for x in slices)
    note(f"{stacks}: {seen.most_common(12)}")
    expect(seen["burn_of_first"] > 20 and seen["burn_of_second"] > 20, f"{stacks}: both programs have stacks")
    # A kernel has no mark for the last fraction of a microsecond of it.
    expect(seen["nobody_is_here"] <= EXECS // 50, f"{stacks}: nobody is in a function of the new program by the old one's registers")
    times = times_of(told)
    expect(len(times) == EXECS + 1, "the programs have told their times")
    for first, name in enumerate(("burn_of_first", "burn_of_second")):
        wrong = misplaced([x for x in slices if x.name == name], times, first)
        expect(not wrong, f"{stacks}: {name} is drawn only where it can have run: {wrong[:3]}")
    c.call("target.disarm", {"target": t["id"]})
    p.kill()


with Tracerd(config="[capture]\nring_kib = 8192\ndwarf_ring_kib = 32768\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    for stacks in ("fp", "bpf", "dwarf"):
        one(d, c, stacks)

    # A thread that executes a program gets the number of its process: the one that was armed is no more.
    p = spawn(interpreter(), "-c", THREAD_EXECUTES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    tid = int(p.stdout.readline())
    t = c.call("target.arm", {"tid": tid, "stacks": "fp"})["target"]
    expect(t["scope"] == "thread" and t["pid"] == p.pid != tid, "a thread is armed")
    p.stdin.write("go\n")
    ended = wait_for("the end of the target", lambda: (x := c.call("target.show", {"target": t["id"]})["target"])["state"] != "armed" and x)
    expect(ended["state"] == "suspended" and any("executed another program, and has the number of its process now" in w for w in ended["warnings"]),
           f"when it executes a program its recording ends, and says why: {ended['warnings']}")
    p.kill()

    # In a recording of the whole process the number that the thread had is nobody's from then on.
    p = spawn(interpreter(), "-c", THREAD_EXECUTES, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    tid = int(p.stdout.readline())
    t = c.arm(p.pid, stacks="fp")
    p.stdin.write("go\n")
    wait_for("the new program", lambda: pathlib.Path(f"/proc/{p.pid}/comm").read_text() == "sleep\n")
    executed = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    slices = slices_of_snapshot(d, c.snapshot(t["id"])["id"], tmp() / "bundle-thread")
    last = {x: max(s.end for s in slices[x]) for x in (p.pid, tid)}
    expect(last[tid] < executed < last[p.pid], f"the track of a thread ends where it executes a program, and its process's goes on: {last}, {executed}")
    p.kill()
