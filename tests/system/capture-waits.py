#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Waits have their stacks where they are as long as was asked for, by frame pointers and unwound in the kernel: each the stack of that very
wait, whichever thread, also of those that have not ended at the snapshot, that ended just behind it, and that began before the rings. Short
ones have none and say why; who wakes somebody has a stack where the wait was a long one. What execs, exits or is armed again leaves
nothing behind."""
import struct

from lib.capture import *
from lib.snapshot import *

SOURCE = r"""
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
/* No library in between: its functions keep no frame pointers. */
static long call(long n, long a, long b, long c, long d)
{
	long r;
	register long r10 __asm__("r10") = d;

	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c), "r"(r10) : "rcx", "r11", "memory");
	return r;
}
#define FN __attribute__((noinline, noclone))
static volatile int sink, storm;
FN static void nap_us(long us)
{
	struct timespec t = {us / 1000000, us % 1000000 * 1000};

	call(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, (long)&t, 0);
	sink++;
}
FN void nap_a(void) { nap_us(2000); sink++; }
FN void nap_b(void) { nap_us(3000); sink++; }
FN void brief_nap(void) { nap_us(1); sink++; }
FN void read_one(int fd) { char c; call(SYS_read, fd, (long)&c, 1, 0); sink++; }
FN void write_one(int fd) { call(SYS_write, fd, (long)"x", 1, 0); sink++; }
FN void asks(int *p) { write_one(p[1]); read_one(p[2]); sink++; }
FN void answers(int *p) { read_one(p[0]); nap_us(1500); write_one(p[3]); sink++; }
FN void waits_for_all_time(int fd) { read_one(fd); sink++; }
FN void deep(int n, int fd) { if (n) deep(n - 1, fd); else read_one(fd); sink++; }
static void *named(const char *name) { prctl(PR_SET_NAME, name); prctl(PR_SET_TIMERSLACK, 1); return NULL; }
static int pipes[4], first[2], second[2];
FN static void *alternates(void *arg) { named("alternates"); for (;;) { nap_a(); nap_b(); } return arg; }
FN static void *briefly(void *arg) { named("briefly"); for (int i = 0;; i++) { brief_nap(); if (i % 20 == 0 && !storm) nap_us(3000); } return arg; }
FN static void *asker(void *arg) { named("asker"); for (;;) asks(pipes); return arg; }
FN static void *answerer(void *arg) { named("answerer"); for (;;) answers(pipes); return arg; }
FN static void *forever(void *arg) { named("forever"); read_one(first[0]); waits_for_all_time(second[0]); return arg; }
FN static void *deeply(void *arg) { named("deeply"); read_one(first[0]); deep(99, second[0]); return arg; }
FN static void *one_of_many(void *arg) { for (;;) nap_us(20000); return arg; }
FN static void *passing(void *arg) { nap_us(300); return arg; }
FN static void *begets(void *arg)
{
	named("begets");
	for (;;) {
		pthread_t t;

		if (storm)
			nap_us(10000);
		else if (pthread_create(&t, NULL, passing, NULL) == 0)
			pthread_join(t, NULL);
	}
	return arg;
}
int main(int argc, char **argv)
{
	void *(*const all[])(void *) = {alternates, briefly, asker, answerer, forever, deeply, begets};
	char word[32];
	pthread_t t;

	if (argc > 2) {
		for (int i = 0; i < 600; i++)
			if (pthread_create(&t, NULL, one_of_many, NULL))
				return 1;
		puts("ready");
		fflush(stdout);
		for (;;)
			pause();
	}
	if (argc > 1)
		puts("again");
	if (pipe(pipes) || pipe(pipes + 2) || pipe(first) || pipe(second))
		return 1;
	for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
		pthread_create(&t, NULL, all[i], NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(word, sizeof(word), stdin)) {
		if (!strcmp(word, "go\n")) {
			write_one(first[1]);
			write_one(first[1]);
			puts("done");
			fflush(stdout);
		} else if (!strcmp(word, "storm\n")) {
			storm = 1;
			puts("done");
			fflush(stdout);
		} else if (!strcmp(word, "exec\n")) {
			char *again[] = {argv[0], "again", NULL};

			execv("/proc/self/exe", again);
		}
	}
	return 0;
}
"""
MIN_NS = 100000
LATE_NS = 3000000
LATER, WAITED, ADDRESSES = 1 << 12, 1 << 13, 1 << 5
BLOCKED_KIND = 5
USER = 2**64 - 512  # PERF_CONTEXT_USER

need_root("BPF")
for command in ("gcc", "nm"):
    need_command(command)
(tmp() / "waits.c").write_text(SOURCE)


def build(name, *flags):
    p = subprocess.run(["gcc", "-O1", "-no-pie", "-pthread", "-fno-optimize-sibling-calls", *flags, tmp() / "waits.c", "-o", tmp() / name],
                       capture_output=True, text=True)
    if p.returncode:
        fail(p.stderr)
    symbols = []
    for line in subprocess.run(["nm", "-S", tmp() / name], capture_output=True, text=True, check=True).stdout.splitlines():
        part = line.split()
        if len(part) == 4 and part[2] in "tT":
            symbols.append((int(part[0], 16), int(part[1], 16), part[3]))
    return tmp() / name, symbols


programs = {"fp": build("waits-fp", "-fno-omit-frame-pointer"), "bpf": build("waits-bpf", "-fomit-frame-pointer")}


def quietly(good, what):
    if not good:
        fail(what)


def functions(chain, symbols):
    found = []
    for addr in chain:
        for start, size, name in symbols:
            if start <= addr < start + size:
                found.append(name)
    return found


class Wait:
    """A switch-out, and the switch-in or the note of the freeze that belongs to it."""

    def __init__(self, out, end, symbols):
        o = self.out = sched(out)
        self.begin, self.end, self.later, self.sleeping = out.time, end and end.time, o.flags & LATER, o.state & 1 and not o.flags & 1
        self.chain = end_chain(out)
        e = end and sched(end)
        self.open = not end or e.kind == BLOCKED_KIND
        self.waited = bool(e and e.kind == IN and e.flags & WAITED)
        if self.later and end and (self.waited or e.kind == BLOCKED_KIND):
            quietly(not self.chain, "a stack that comes later is not there already")
            self.chain = end_chain(end)
            if self.waited:
                quietly((end.pid, end.tid) == (e.pid, e.tid), "the stack is of the thread that comes")
                self.ns = e.state << 32 | e.call
        self.functions = functions(self.chain, symbols)


def end_chain(record):
    if record.id == SCHED_PLAIN:
        return ()
    (n,) = struct.unpack_from("<Q", record.body, 48)
    chain = struct.unpack_from(f"<{n}Q", record.body, 56)
    return tuple(a for a in chain if a < 1 << 47)


# As lib.capture has it, with the call, which holds a half of a length.
Sched = collections.namedtuple("Sched", "kind flags pid tid state call other_pid other_tid other_uid cpu comm")


def sched(record):
    at = 48
    if record.id != SCHED_PLAIN:
        (n,) = struct.unpack_from("<Q", record.body, at)
        at += 8 + 8 * n
    magic, *rest = struct.unpack_from("<IHHIIIIIIII16s", record.body, at + 4)
    quietly(magic == SCHED_MAGIC, "a sched record without its payload")
    return Sched(*rest[:-1], rest[-1].split(b"\0")[0].decode())


def whole(c, target):
    """A bundle, of which the records since nothing is missing."""
    meta, recs, s = bundle(c, target)
    return meta, [r for r in recs if r.time >= meta["events"]["complete_from_ns"]], s


def waits_of(recs, symbols):
    """Of each thread, in order of time."""
    events = collections.defaultdict(list)
    for r in sorted((r for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN)), key=lambda r: r.time):
        s = sched(r)
        if s.kind in (OUT, IN, BLOCKED_KIND):
            events[s.tid].append((s.kind, r))
    found = {}
    for tid, its in events.items():
        found[tid] = [Wait(r, its[i + 1][1] if i + 1 < len(its) and its[i + 1][0] != OUT else None, symbols)
                      for i, (kind, r) in enumerate(its) if kind == OUT]
    return found


def check_lengths(waits, meta, what, min_ns=MIN_NS):
    """Those that have to have a stack have one, but for those that are counted as not believed; the others have none."""
    n_long = n_short = empty = 0
    in_doubt = meta["losses"].get("stacks_in_doubt", 0)
    for its in waits.values():
        for w in its:
            if not w.later or w.open:
                continue
            # A record is later than what it tells of, and on a virtual machine much later now and then.
            ns = w.end - w.begin
            if w.waited:
                n_long += 1
                empty += not w.chain
                quietly(w.ns >= min_ns and empty <= in_doubt, f"{what}: a wait of {w.ns} ns has its stack: {w.out}, {empty} have none, {in_doubt} in doubt")
                quietly(abs(w.ns - ns) < LATE_NS + ns // 1000, f"{what}: it says {w.ns} ns, and is {ns}")
            else:
                n_short += 1
                quietly(ns < min_ns + LATE_NS, f"{what}: a wait of {ns} ns has its stack")
    return n_long, n_short


def check_places(waits, tids, what, least=50):
    """Each stack is of where its thread waits at that time."""
    last, turns = None, 0
    for w in waits[tids["alternates"]]:
        if not w.sleeping or not w.chain:
            # Who is preempted on the way to sleep may not sleep any more: the time is over when it comes back.
            last = None
            continue
        place = [f for f in w.functions if f in ("nap_a", "nap_b")]
        quietly(len(place) == 1 and "alternates" in w.functions, f"{what}: alternates waits in {w.functions}")
        quietly(place[0] != last, f"{what}: {place[0]} comes after {last}")
        last = place[0]
        turns += 1
    quietly(turns > least, f"{what}: {turns} waits of alternates")
    for name, must in (("asker", "read_one"), ("answerer", "answers"), ("briefly", "nap_us")):
        for w in waits.get(tids[name], ()):
            if w.sleeping and w.chain:
                quietly(must in w.functions and name in w.functions, f"{what}: {name} waits in {w.functions}")


def wakers(recs, symbols, tids, what):
    """Who ends a long wait says where he was."""
    with_stack = without = 0
    for r in recs:
        if r.type != SAMPLE or r.id not in (SCHED, SCHED_PLAIN):
            continue
        s = sched(r)
        if s.kind != WAKEUP or s.tid != tids["asker"] or s.other_tid != tids["answerer"]:
            continue
        if s.flags & 8 and end_chain(r):
            with_stack += 1
            quietly({"write_one", "answerer"} <= set(functions(end_chain(r), symbols)), f"{what}: the waker's stack: {functions(end_chain(r), symbols)} {end_chain(r)} {s}")
        else:
            without += 1
    quietly(with_stack > 20 and without <= with_stack, f"{what}: {with_stack} wakers of long waits have a stack, {without} none")


ENDLESS = (("forever", "waits_for_all_time"), ("deeply", "deep"))


def check_open(summary, tids, what):
    for name, must in ENDLESS:
        its = [x for x in summary["waits"] if x["tid"] == tids[name] and x.get("open")]
        quietly(len(its) == 1 and must in its[0]["stack"], f"{what}: the summary's {name}: {its}")
        quietly(its[0].get("call") == "read", f"{what}: it waits in read(): {its[0]}")
        quietly(not its[0].get("since_before"), f"{what}: since before: {its[0]}")


# What the program names its threads; each names itself, in its own time.
NAMES = {"alternates", "briefly", "asker", "answerer", "forever", "deeply", "begets"}


def tids_of(pid):
    """Of those that stay."""
    found = {}
    for p in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            found[(p / "comm").read_text().strip()] = int(p.name)
        except OSError:
            continue
    return found


def start(stacks):
    p = spawn(programs[stacks][0], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    quietly(p.stdout.readline() == "ready\n", "the program is ready")
    wait_for("its threads have names", lambda: NAMES <= set(tids_of(p.pid)))
    return p


def tell(p, word):
    p.stdin.write(word + "\n")
    quietly(p.stdout.readline() == "done\n", word)


def until_unwound(c, target):
    """`--stacks bpf` copies until there are tables."""
    def some():
        _, recs, _ = whole(c, target)
        return sum(sched(r).kind == IN and bool(sched(r).flags & WAITED) for r in recs if r.type == SAMPLE and r.id == SCHED) > 20

    wait_for("stacks come when waits end", some)


def one(c, stacks):
    symbols = programs[stacks][1]
    p = start(stacks)
    tids = tids_of(p.pid)
    t = c.arm(p.pid, stacks=stacks)
    quietly(t["wait_min_ns"] == MIN_NS, f"{stacks}: what is configured is told: {t}")
    until_unwound(c, t["id"])
    tell(p, "go")
    time.sleep(0.5)
    meta, recs, s = whole(c, t["id"])
    waits = waits_of(recs, symbols)
    quietly(meta["events"]["wait_min_ns"] == MIN_NS and meta["events"]["stacks_of_open_waits"] >= 2, f"{stacks}: meta.json: {meta['events']}")
    n_long, n_short = check_lengths(waits, meta, stacks)
    quietly(n_long > 100, f"{stacks}: {n_long} long waits")
    check_places(waits, tids, stacks)
    # On a busy machine the rings may not reach back to it: then it is as below.
    if all(waits.get(tids[name]) for name, _ in ENDLESS):
        for name, must in ENDLESS:
            w = waits[tids[name]][-1]
            quietly(w.open and w.later and must in w.functions, f"{stacks}: {name} is still in {w.functions}")
        check_open(s["summary"], tids, stacks)
    else:
        note(f"{stacks}: the rings do not reach back by half a second")
    wakers(recs, symbols, tids, stacks)
    briefs = [w for w in s["summary"]["waits"] if w.get("brief")]
    quietly(not any(w["stack"] for w in briefs), f"{stacks}: short waits have no stack: {briefs}")
    quietly(all(w["ns"] < 2 * MIN_NS for w in briefs), f"{stacks}: short waits are short: {briefs}")
    note(f"{stacks}: {n_long} long waits, {n_short} short ones, {meta['events']['stacks_of_open_waits']} that go on")
    ok(f"{stacks}: each wait has the stack that it should have")

    # Those that end right behind the freeze, again and again: who waits at the freeze has the stack of that wait.
    for _ in range(20):
        meta, recs, s = whole(c, t["id"])
        waits = waits_of(recs, symbols)
        check_lengths(waits, meta, stacks)
        check_places(waits, tids, stacks)
        before, last = waits[tids["alternates"]][-2:]
        if last.open and all(w.sleeping and w.chain for w in (before, last)):
            quietly({"nap_a", "nap_b"} <= set(before.functions + last.functions), f"{stacks}: at the freeze it is in {last.functions}, before in {before.functions}")
    ok(f"{stacks}: waits at the freeze have their own stacks")

    # Which of them are older than the rings, at last.
    tell(p, "storm")

    def older():
        """That each of them is still in its wait, where it did not leave a CPU."""
        _, recs, s = bundle(c, t["id"])
        its = {}
        for r in (r for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN)):
            its.setdefault(sched(r).tid, []).append(r)
        for name, must in ENDLESS:
            its_own = its.get(tids[name], [])
            if [sched(r).kind for r in its_own] != [BLOCKED_KIND]:
                return False
            quietly(must in functions(end_chain(its_own[0]), symbols), f"{stacks}: {name}, since before the rings: {functions(end_chain(its_own[0]), symbols)}")
        return True

    wait_for("the rings do not reach back to that", older)
    ok(f"{stacks}: waits that began before the rings")

    # All waits, and only very long ones.
    c.call("target.disarm", {"target": t["id"]})
    t = c.arm(p.pid, stacks=stacks, wait_min_us=0)
    quietly(t["wait_min_ns"] == 0, f"{stacks}: 0 is told: {t}")

    def all_have():
        _, recs, _ = whole(c, t["id"])
        its = waits_of(recs, symbols).get(tids["alternates"], [])
        return len([w for w in its if w.chain]) > 50 and recs

    recs = wait_for("stacks", all_have)
    waits = waits_of(recs, symbols)
    quietly(not any(w.later or w.waited for its in waits.values() for w in its), f"{stacks}: with 0 none comes later")
    check_places(waits, tids, f"{stacks}, all")
    c.call("target.disarm", {"target": t["id"]})
    t = c.arm(p.pid, stacks=stacks, wait_min_us=2500)
    until_unwound_min(c, t["id"], symbols, tids)
    meta, recs, s = whole(c, t["id"])
    check_lengths(waits_of(recs, symbols), meta, f"{stacks}, 2.5 ms", 2500000)
    ok(f"{stacks}: 0 and 2500 us")

    # Another program in the same process, whose first thread has the number of the old one's.
    p.stdin.write("exec\n")
    quietly(p.stdout.readline() == "again\n" and p.stdout.readline() == "ready\n", "it is executed again")
    c.call("target.disarm", {"target": t["id"]})
    t = c.arm(p.pid, stacks=stacks)
    wait_for("its threads have names", lambda: NAMES <= set(tids_of(p.pid)))
    until_unwound(c, t["id"])
    meta, recs, s = whole(c, t["id"])
    waits = waits_of(recs, symbols)
    check_lengths(waits, meta, f"{stacks}, executed")
    check_places(waits, tids_of(p.pid), f"{stacks}, executed", 5)
    ok(f"{stacks}: after an exec")
    p.kill()
    p.wait()


def until_unwound_min(c, target, symbols, tids):
    def some():
        _, recs, _ = whole(c, target)
        return sum(w.waited for w in waits_of(recs, symbols).get(tids["alternates"], ())) > 20

    wait_for("stacks come when waits end", some)


def dying(c):
    """Threads that exit: at their last switch they have no memory any more, and nothing is copied of it (kernels of 2025 write too much then)."""
    p = start("bpf")
    for stacks in ("dwarf", "bpf"):
        t = c.arm(p.pid, stacks=stacks)
        if stacks == "bpf":
            until_unwound(c, t["id"])

        def some():
            meta, recs, _ = bundle(c, t["id"])
            dead = [r for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN) and sched(r).kind == OUT and sched(r).state & 16]
            return len(dead) > 20 and (meta, dead)

        meta, dead = wait_for("threads exit", some)
        quietly(all(r.id == SCHED_PLAIN for r in dead), f"{stacks}: of {len(dead)} exits {sum(r.id == SCHED for r in dead)} have a stack")
        quietly(meta["losses"]["malformed"] == 0, f"{stacks}: {meta['losses']}")
        c.call("target.disarm", {"target": t["id"]})
    p.kill()
    p.wait()
    ok("nothing is copied of who has no memory")


def places(c):
    """Who exits when nobody is recorded gives its place back: there are 4,096."""
    for i in range(8):
        p = spawn(programs["fp"][0], "with", "many", stdout=subprocess.PIPE, text=True)
        quietly(p.stdout.readline() == "ready\n", "600 threads")
        t = c.arm(p.pid, stacks="fp")

        def all_wait():
            _, recs, _ = bundle(c, t["id"])
            its = [sched(r) for r in recs if r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN)]
            later = {s.tid for s in its if s.kind == OUT and s.flags & LATER}
            return len(later) >= 600

        wait_for(f"all threads of program {i} have a place for their stack", all_wait)
        c.call("target.disarm", {"target": t["id"]})
        p.kill()
        p.wait()
    ok("threads give their places back")


# Rings that are full soon: those of copied stacks are larger.
with Tracerd(config="[capture]\ndwarf_ring_kib = 2048\nring_kib = 2048\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no BPF here")
    for stacks in programs:
        one(c, stacks)
    dying(c)
    for x in c.call("target.list")["targets"]:
        c.call("target.disarm", {"target": x["id"]})
    places(c)
    # By the command line, and what a user reads.
    p = start("fp")
    quietly("with stacks from 250" in d.tracectl("arm", "--wait-min=250us", "--stacks=fp", str(p.pid)).stdout
            or "with stacks from 250" in d.tracectl("show", str(p.pid)).stdout, "show tells it")
    again = d.tracectl("arm", str(p.pid))
    quietly(again.returncode == 0 and "already" in again.stdout + again.stderr, f"armed is armed: {again}")
    other = d.tracectl("arm", "--wait-min=100us", str(p.pid))
    quietly(other.returncode != 0 and "in another way" in other.stderr, f"that wants more: {other}")
    ok("--wait-min")
