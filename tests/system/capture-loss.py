#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# What the kernel had no room for is counted and told, and a mapping that went by unseen is found again; until then no stack
# is unwound by what was mapped before. A ring that wraps keeps the newest, says how far it reaches, and gives a file that stock perf reads.
import shutil
import struct

from lib.capture import *
from lib.events import Numbers, registered, target_of

# The same function at the same address, of two files with frames of different sizes.
PART = r"""
static long nap(void)
{
	long t[2] = {0, 500000}, r;
	register long r10 __asm__("r10") = 0;

	__asm__ volatile("syscall" : "=a"(r) : "a"(35), "D"(t), "S"(0), "d"(0), "r"(r10) : "rcx", "r11", "memory");
	return r;
}
__attribute__((noinline)) static int inner(int n) { char b[PAD]; ((volatile char *)b)[n % PAD] = 1; nap(); return b[n % PAD]; }
int part(int n) { char b[PAD * 2]; ((volatile char *)b)[n % PAD] = 1; int r = n ? part(n - 1) : inner(n); return r + b[n % PAD]; }
"""
CHANGES = r"""
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	char *const base = (char *)0x10000000;

	puts("ready"); fflush(stdout);
	for (int at = 1;; at = 4 - at) {
		struct pollfd p = {.fd = 0, .events = POLLIN};
		int fd = open(argv[at], O_RDONLY);
		int (*part)(int) = (int (*)(int))(base + strtol(argv[at + 1], NULL, 16));
		char c[16];

		/* Only its code, and its constants. */
		if (mmap(base + 0x1000, 0x2000, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, fd, 0x1000) == MAP_FAILED) return 1;
		close(fd);
		puts("runs"); fflush(stdout);
		while (poll(&p, 1, 0) == 0) part(5);
		if (read(0, c, sizeof(c)) <= 0) return 0;
	}
}
"""


def build(out, text, *flags):
    (tmp() / f"{out}.c").write_text(text)
    p = subprocess.run(["gcc", "-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", *flags, tmp() / f"{out}.c", "-ldl", "-o", tmp() / out],
                       capture_output=True, text=True)
    if p.returncode:
        fail(p.stderr)
    return tmp() / out


def symbol(path, name):
    """Where it is, and its size."""
    for line in subprocess.run(["nm", "-S", path], capture_output=True, text=True, check=True).stdout.splitlines():
        w = line.split()
        if w[-1] == name:
            return int(w[0], 16), int(w[1], 16)
    fail(f"{path} has no {name}")


def storm():
    """More happens on the machine than the daemon's rings for it hold."""
    subprocess.run(["/bin/sh", "-c", "i=0; while [ $i -lt 3000 ]; do /bin/true; i=$((i+1)); done"], check=True)


def chains(recs):
    """Of stacks that were unwound in the kernel."""
    for r in recs:
        if r.type != SAMPLE or r.id not in (CLOCK, SCHED):
            continue
        (n,) = struct.unpack_from("<Q", r.body, 48)
        chain = [a for a in struct.unpack_from(f"<{n}Q", r.body, 56) if a < 1 << 47]
        if chain:
            yield r.time, chain


def changed_unseen(d, c):
    """Code is replaced while the records of that are lost: what is unwound by the old list is not believed."""
    main = build("changes", CHANGES, "-no-pie")
    files = []
    for name, pad in (("a.so", 40), ("b.so", 400)):
        files += [build(name, PART, f"-DPAD={pad}", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-Wl,-z,separate-code"), hex(symbol(tmp() / name, "part")[0])]
    start, size = symbol(main, "main")
    p = spawn(main, *files, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    if p.stdout.readline() + p.stdout.readline() != "ready\nruns\n":
        fail("the program runs")
    x = c.call("target.arm", {"pid": p.pid, "stacks": "bpf", "wait_min_us": 0})["target"]["id"]
    unwound = lambda: sum(len(ch) > 6 for _, ch in chains(bundle(c, x)[1]))
    wait_for("stacks are unwound", lambda: unwound() > 20)
    os.kill(d.pid, signal.SIGSTOP)
    try:
        storm()
        p.stdin.write("next\n")
        p.stdout.readline()
        time.sleep(0.2)
    finally:
        os.kill(d.pid, signal.SIGCONT)
    wait_for("the loss", lambda: c.call("status")["losses"]["history_lost"])
    seen = []

    def again():
        meta, recs, _ = bundle(c, x)
        its = list(chains(recs))
        for _, chain in its:
            if any(0x10000000 <= q < 0x10003000 for q in chain) and not any(start <= q < start + size for q in chain):
                fail(f"a stack is unwound by what was mapped before: {[hex(q) for q in chain]}")
        seen.append(len(its))
        newest = [chain for t, chain in its if t > meta["frozen_raw_ns"] - 10**8]
        return len(newest) > 5

    wait_for("stacks are unwound again", again)
    ok(f"code that changed unseen: no stack of {seen[-1]} goes astray, and they are unwound again")
    p.kill()
    c.call("target.disarm", {"target": x})


need_root("cpu-wide events")
with Tracerd(config="[capture]\nring_kib = 256\nsample_hz = 5000\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    t = Target("lossy")
    ended = Target("ended")
    y = c.call("target.arm", {"pid": ended.pid, "stacks": "fp"})["target"]
    ended.kill()
    wait_for("the exit of another one", lambda: c.call("target.show", {"target": y["id"]})["target"]["state"] == "exited")
    armed = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    x = c.call("target.arm", {"pid": t.pid, "stacks": "fp"})["target"]

    # The daemon stands still while far more happens on the machine than its rings hold.
    os.kill(d.pid, signal.SIGSTOP)
    try:
        seen = t.load()
        storm()
        unseen = t.load()
    finally:
        os.kill(d.pid, signal.SIGCONT)
    lost = wait_for("the loss", lambda: c.call("status")["losses"]["history_lost"])
    ok(f"side-band records that were lost are counted: {lost}")
    meta, recs, s = bundle(c, x["id"])
    expect(meta["losses"]["history_lost"] == lost, "and told in the bundle")
    expect(bundle(c, y["id"])[0]["losses"]["history_lost"] == 0, "but in none of a target that had ended before")
    w = Numbers(d)
    z = registered(c, w.pid)["id"]
    expect(bundle(c, z)[0]["losses"]["history_lost"] == 0, "nor of one that nobody armed, of a program that came later")
    w.kill()
    wait_for("its end", lambda: target_of(c, w.pid)["state"] == "exited")
    expect(bundle(c, z)[0]["losses"]["history_lost"] == 0, "also when it has ended")
    w.close()
    # Whose they were is not known: they are no target's own.
    told = {z["id"]: z["lost"] for z in c.call("target.list")["targets"]}
    expect(not any("history" in z or z["samples"] for z in told.values()), f"nor are they any target's own: {told}")
    paths = b"".join(r.body for r in recs if r.type == MMAP2)
    expect(seen.encode() in paths and unseen.encode() in paths, "the maps are whole all the same")

    if not shutil.which("gcc") or not c.call("status")["capture"]["unwinds"]:
        note("no stacks are unwound in this kernel, or there is no gcc")
    else:
        changed_unseen(d, c)

    # Rings of a quarter of the smallest: they wrap at once.
    for i in range(3):
        t.tell(f"thread t{i}")

    def wrapped():
        recorded = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW) - armed
        return c.call("target.show", {"target": x["id"]})["target"]["lookback_ns"] < recorded / 2
    wait_for("the look-back is what the rings hold", wrapped)
    ok("the look-back is what the rings hold")
    before = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    let_work(t.pid, seconds=0.2)
    meta, recs, s = bundle(c, x["id"])
    expect(meta["losses"]["malformed"] == 0, "no record is malformed")
    happened = [r for r in recs if r.type == SAMPLE and r.id not in (BLOCKED, BLOCKED_ARMED) and (r.id == CLOCK or sched(r).kind != STILL)]
    times = [r.time for r in happened]
    expect(before < max(times) <= meta["frozen_raw_ns"], "the newest are kept")
    expect(min(times) == meta["records"]["first_ns"] and max(times) == meta["records"]["last_ns"], "and the times are told")
    if working_perf():
        for _ in range(5):
            data = c.fetch(c.snapshot(x["id"])["id"], "perf.data")["perf.data"]
            (tmp() / "perf.data").write_bytes(data)
            r = subprocess.run(["perf", "script", "-i", tmp() / "perf.data", "-F", "event,time"],
                               capture_output=True, text=True, errors="replace")
            n = sum("cpu-clock" in line for line in r.stdout.splitlines())
            if r.returncode or r.stderr or n != sum(q.id == CLOCK for q in records(data)):
                fail(f"perf script: status {r.returncode}, {n} samples, {r.stderr[:300]}")
        ok("perf script reads them without a word")
