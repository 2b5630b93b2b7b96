#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 200
# Stacks that are unwound in the kernel are those that elfutils finds in a copy of the stack which was taken at the same instant: of C, C++,
# Rust, Python, Go, node, Java, PostgreSQL, and of a program with signals on a stack of their own, realigned frames, lazy binding and coroutines, also
# static. What is mapped, unmapped, forked and executed is followed; `auto` takes it for what has no frame pointers.
import bisect
import shutil
import signal
import struct

from lib.capture import *

SOURCES = {
    "plain.c": r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) int leaf(int n) { volatile int s = 0; for (int i = 0; i < 3000; i++) s += i ^ n; usleep(50); return s; }
__attribute__((noinline)) int deep(int n) { char b[64]; memset(b, n, sizeof(b)); int r = n ? deep(n - 1) + b[n & 63] : leaf(n); return r + 1; }
int main(void) { puts("ready"); fflush(stdout); for (int i = 0;; i++) deep(i % 30); }
""",
    "sorts.cc": r"""
#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
#include <unistd.h>
static unsigned turns;
static int visit(int n, const std::function<int(int)> &f) { std::string s(n + 1, 'x'); return n ? visit(n - 1, f) + (int)s.size() : f(n); }
int main()
{
    std::puts("ready"); std::fflush(stdout);
    for (;;) {
        std::map<std::string, int> m;
        std::vector<int> v(300);
        for (size_t i = 0; i < v.size(); i++) v[i] = (int)(i * 7919 % 300);
        std::sort(v.begin(), v.end(), [](int a, int b) { if (++turns % 50 == 0) usleep(1); return a < b; });
        try { visit(5 + (int)(turns % 9), [&](int) -> int { usleep(1); if (turns & 1) throw std::runtime_error("no"); return 1; }); }
        catch (const std::exception &e) { m[e.what()]++; usleep(1); }
    }
}
""",
    "nasty.c": r"""
#define _GNU_SOURCE
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>
static volatile double sink;
static char alternate[65536], other[65536];
static ucontext_t here, there;
__attribute__((noipa)) static void work(int n) { for (int i = 0; i < n; i++) sink += sin(i) * atan2(i, 3); usleep(1); }
static void handler(int s) { (void)s; work(100); }
__attribute__((noipa)) static double aligned(int n)
{
    __attribute__((aligned(64))) volatile double v[16];
    volatile char *p = __builtin_alloca((n & 7) * 16 + 1);
    p[0] = 1; v[n & 15] = n;
    if (n > 0) v[0] = aligned(n - 1); else work(50);
    return v[0] + v[n & 15];
}
static int compare(const void *a, const void *b) { if (rand() % 50 == 0) usleep(1); return *(const int *)a - *(const int *)b; }
static void coroutine(void) { for (;;) { aligned(3); swapcontext(&there, &here); } }
int main(void)
{
    stack_t stack = {.ss_sp = alternate, .ss_size = sizeof(alternate)};
    struct sigaction act = {.sa_handler = handler, .sa_flags = SA_ONSTACK | SA_RESTART};
    struct itimerval every = {{0, 3000}, {0, 3000}};
    int v[100];
    sigaltstack(&stack, NULL);
    sigaction(SIGALRM, &act, NULL);
    setitimer(ITIMER_REAL, &every, NULL);
    getcontext(&there);
    there.uc_stack.ss_sp = other; there.uc_stack.ss_size = sizeof(other); there.uc_link = &here;
    makecontext(&there, coroutine, 0);
    puts("ready"); fflush(stdout);
    for (;;) {
        char b[64];
        aligned(6);
        for (int i = 0; i < 100; i++) v[i] = rand();
        qsort(v, 100, sizeof(*v), compare);
        swapcontext(&here, &there);
        snprintf(b, sizeof(b), "%g", sink);
    }
}
""",
    "part.c": r"""
#include <unistd.h>
__attribute__((noinline)) static int inner(int n) { char b[PAD]; ((volatile char *)b)[n % PAD] = 1; usleep(20); return b[n % PAD]; }
int part(int n) { char b[PAD * 2]; ((volatile char *)b)[n % PAD] = 1; int r = n ? part(n - 1) : inner(n); return r + b[n % PAD]; }
""",
    "comes.c": r"""
#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    puts("ready"); fflush(stdout);
    for (int i = 0;; i++) {
        void *h = dlopen(argv[1 + i % 2], RTLD_NOW);
        int (*part)(int) = (int (*)(int))dlsym(h, "part");
        for (int k = 0; k < 2000; k++) part(k % 12);
        dlclose(h);
        if (i == 3 && argc == 3) { char *again[] = {argv[0], argv[2], argv[1], "again", NULL}; execv("/proc/self/exe", again); }
    }
}
""",
    "main.go": r"""
package main
import ("fmt"; "os"; "time")
//go:noinline
func deep(n int) int { var b [64]byte; b[n&63] = byte(n); if n > 0 { return deep(n-1) + int(b[n&63]) }; time.Sleep(50 * time.Microsecond); os.Stderr.Write(nil); return 1 }
func main() { fmt.Println("ready"); for i := 0; ; i++ { deep(i % 20) } }
""",
    "main.rs": r"""
use std::{collections::BTreeMap, hint::black_box, io::Write, thread::sleep, time::Duration};
fn pause() { sleep(Duration::from_micros(20)); }
#[inline(never)] fn visit(n: usize, f: &dyn Fn(usize) -> usize) -> usize { let s = vec![n as u8; n + 1]; (if n > 0 { visit(n - 1, f) } else { f(n) }) + black_box(&s).len() }
fn main() {
    println!("ready"); std::io::stdout().flush().unwrap();
    for turn in 0usize.. {
        let mut v: Vec<usize> = (0..200).map(|i| i * 7919 % 211).collect();
        let mut n = 0;
        v.sort_by(|a, b| { n += 1; if n % 100 == 0 { pause() }; a.cmp(b) });
        let m: BTreeMap<usize, String> = v.iter().map(|i| (*i, i.to_string())).collect();
        visit(3 + turn % 12, &|k| { pause(); k + m.len() });
        let _ = std::panic::catch_unwind(|| { pause(); black_box(turn) });
    }
}
""",
    "Deep.java": r"""
import java.util.*;
public class Deep {
    static int deep(int n) throws Exception { if (n > 0) return deep(n - 1) + 1; Thread.sleep(0, 50000); return 1; }
    static void pause() { try { Thread.sleep(0, 20000); } catch (InterruptedException e) { } }
    public static void main(String[] args) throws Exception
    {
        System.out.println("ready"); System.out.flush();
        for (int i = 0;; i++) {
            deep(i % 12);
            Integer[] v = {3, 1, 2, 5, 4};
            Arrays.sort(v, (a, b) -> { pause(); return a - b; });
        }
    }
}
""",
    "deep.js": r"""
const fs = require('fs');
const cell = new Int32Array(new SharedArrayBuffer(4));
function pause() { Atomics.wait(cell, 0, 0, 0.02); }
function deep(n) { return n ? deep(n - 1) + 1 : (pause(), fs.statSync('/').size); }
fs.writeSync(1, 'ready\n');
for (let i = 0;; i++) { deep(i % 12); [3, 1, 2].sort((a, b) => { pause(); return a - b; }); JSON.parse('[1, [2]]', (k, v) => { pause(); return v; }); }
""",
}
USER = 2**64 - 512  # PERF_CONTEXT_USER

need_root("BPF")
for command in ("gcc", "g++"):
    need_command(command)
for name, text in SOURCES.items():
    (tmp() / name).write_text(text)


def build(out, *command):
    p = subprocess.run([*map(str, command), "-o", tmp() / out], cwd=tmp(), capture_output=True, text=True)
    return tmp() / out if p.returncode == 0 else None


truth = build("truth", "gcc", "-O1", SRC / "tests/system/lib/unwindtruth.c", "-ldw")
if not truth:
    skip("libdwfl's headers are not here")
fast = ("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls")
programs = {
    "C": [build("plain", "gcc", *fast, "plain.c")],
    "C++": [build("sorts", "g++", *fast, "sorts.cc")],
    "nasty": [build("nasty", "gcc", *fast, "-mavx", "-Wl,-z,lazy", "-no-pie", "nasty.c", "-lm")],
    "nasty, static": [build("nasty-static", "gcc", *fast, "-static", "nasty.c", "-lm")],
    "comes and goes": [build("comes", "gcc", *fast, "comes.c", "-ldl"), build("a.so", "gcc", *fast, "-DPAD=40", "-shared", "-fPIC", "part.c"),
                       build("b.so", "gcc", *fast, "-DPAD=900", "-shared", "-fPIC", "part.c")],
    "Python": [interpreter(), "-c", "import time\nprint('ready', flush=True)\ndef f(n):\n    return f(n - 1) + 1 if n else (time.sleep(1e-4), sorted([3, 1], key=lambda x: (time.sleep(1e-5), x)))and 1\n"
                                    "i = 0\nwhile True:\n    i += 1\n    f(i % 7)\n"],
}
if shutil.which("go"):
    env = dict(os.environ, GOCACHE=go_cache(), GOFLAGS="", GO111MODULE="off", CGO_ENABLED="0")
    if subprocess.run(["go", "build", "-o", tmp() / "gone", "main.go"], cwd=tmp(), env=env, capture_output=True).returncode == 0:
        programs["Go"] = [tmp() / "gone"]
if shutil.which("rustc"):
    programs["Rust"] = [build("rusty", "rustc", "-O", "-C", "force-frame-pointers=no", "main.rs")]
if shutil.which("node"):
    programs["node"] = ["node", "--jitless", tmp() / "deep.js"]
    programs["node, with a compiler"] = ["node", tmp() / "deep.js"]
if shutil.which("javac") and subprocess.run(["javac", "Deep.java"], cwd=tmp(), capture_output=True).returncode == 0:
    programs["Java"] = ["java", "-cp", tmp(), "Deep"]


class Postgres:
    """A server of its own, and the process that serves one client, which is what is recorded."""

    def __init__(self, folder):
        self.data = tmp() / "postgres"
        self.data.mkdir()
        os.chown(self.data, NOBODY, NOBODY)
        self.folder = folder
        self.children = []
        self.run("initdb", "-D", self.data / "db", "-A", "trust", "-U", "postgres", "--no-sync").wait()
        server = self.run("postgres", "-D", self.data / "db", "-k", self.data, "-h", "")
        wait_for("postgres", lambda: (self.data / ".s.PGSQL.5432").exists() or server.poll() is not None)
        if server.poll() is not None:
            return
        wait_for("its tables", lambda: self.run("pgbench", "-h", self.data, "-U", "postgres", "-i", "-q", "postgres").wait() == 0, step=0.5)
        self.run("pgbench", "-h", self.data, "-U", "postgres", "-n", "-T", "600", "postgres")
        self.pid = wait_for("what serves the client", lambda: self.serving(server.pid))

    def serving(self, server):
        """What updates: another one has made the tables, and pgbench asks a third one for their sizes."""
        for pid in pathlib.Path(f"/proc/{server}/task/{server}/children").read_text().split():
            try:
                if b"[local] UPDATE" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes():
                    return int(pid)
            except OSError:
                pass
        return None

    def run(self, name, *argv):
        p = spawn(self.folder / name, *argv, uid=NOBODY, cwd=self.data, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.children.append(p)
        return p

    pid = None

    def kill(self):
        for p in reversed(self.children):
            if p.poll() is None:
                p.send_signal(signal.SIGQUIT if p.args[0].endswith("postgres") else signal.SIGKILL)
        if self.pid:
            os.kill(self.pid, signal.SIGCONT)

    def wait(self):
        for p in self.children:
            p.wait()


NOBODY = 65534
postgres = next(iter(sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/pgbench"), reverse=True)), None)
if postgres:
    programs["PostgreSQL"] = lambda: Postgres(postgres.parent)
missing = {"Go", "Rust", "node", "Java", "PostgreSQL"} - programs.keys()
if missing:
    note(f"not installed here, so not compared: {', '.join(sorted(missing))}")
# Most stacks go through code that was made at run time, of which there is no table. Where it keeps no frame pointers they are copied, and
# where it does elfutils skips the caller of what has not made its frame yet: capture-generated.py has the programs' own word on these.
GENERATED = {"node, with a compiler", "Java"}
# libdw goes astray where a system call returns in __clone3, and where a routine is begun by a return (makecontext).
LEAST = {"nasty": 0.96, "nasty, static": 0.96, "Go": 0.9}


def outs(recs, waits=False):
    """Of each thread, the records of its switches, or only of its waits: (time, call chain, registers and stack or None)."""
    found = collections.defaultdict(list)
    for r in recs:
        if r.type != SAMPLE or r.id != SCHED or sched(r).kind != OUT or (waits and sched(r).flags & 1):
            continue
        at = 48
        (n,) = struct.unpack_from("<Q", r.body, at)
        chain = struct.unpack_from(f"<{n}Q", r.body, at + 8)
        at += 8 + 8 * n
        (size,) = struct.unpack_from("<I", r.body, at)
        at += 4 + size
        (abi,) = struct.unpack_from("<Q", r.body, at)
        copy = None
        if abi:
            v = struct.unpack_from("<20Q", r.body, at + 8)
            regs = (v[0], v[3], v[2], v[1], v[4], v[5], v[6], v[7], *v[12:20], v[8])
            (room,) = struct.unpack_from("<Q", r.body, at + 168)
            (have,) = struct.unpack_from("<Q", r.body, at + 176 + room) if room else (0,)
            copy = (regs, r.body[at + 176:at + 176 + have])
        user = tuple(x for x in chain[chain.index(USER):] if x != USER) if USER in chain else ()
        found[r.tid].append((r.time, user, copy))
    return found


def compare(pid, unwound, copied, waits):
    """What elfutils says of each stack that both have."""
    packets, copies = [], outs(copied)
    n_unwound = n_all = 0
    for tid, list_of in outs(unwound, waits).items():
        others = sorted(x for x in copies.get(tid, []) if x[2])
        times = [x[0] for x in others]
        for when, chain, copy in list_of:
            n_all += 1
            if not chain or copy:
                continue
            n_unwound += 1
            # The copy is written just after it; a thread does not leave a CPU twice in that time.
            at = bisect.bisect_left(times, when)
            if at < len(times) and times[at] - when <= 15000 and len(packets) < 4000:
                regs, stack = others[at][2]
                if regs[16] == chain[0]:
                    packets.append(struct.pack("<i17QI", pid, *regs, len(stack)) + stack +
                                   struct.pack(f"<I{len(chain)}Q", len(chain), *chain))
    p = subprocess.run([truth], input=b"".join(packets), capture_output=True)
    if p.returncode:
        fail(f"elfutils: {p.stderr.decode()}")
    return p.stdout.decode().splitlines(), n_unwound, n_all


def leads_nowhere(line, code):
    """Nobody has called what a thread of Go's begins with, but elfutils goes on from there, to where there is no code."""
    ours, theirs = ([int(a, 16) for a in part.split()] for part in line.removeprefix("shorter ours").split("elfutils"))
    return theirs[:len(ours)] == ours and not any(lo <= theirs[-1] < hi for lo, hi in code)


def since_exec(pid, unwound):
    """(all stacks, where the program itself lies, the stacks of the program that runs now)."""
    chains = [chain for list_of in outs(unwound).values() for _, chain, copy in list_of if chain and not copy]
    maps = [line.split() for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
    own = [tuple(int(x, 16) for x in m[0].split("-")) for m in maps if m[-1].endswith("/comes") and "x" in m[1]]
    return chains, own, [chain for chain in chains if any(lo <= chain[-1] < hi for lo, hi in own)]


def check_ends(pid, unwound):
    """Two libraries, at one place in turns, with frames of other sizes: each stack goes through either to main() and its callers."""
    chains, own, now = since_exec(pid, unwound)
    ends = collections.Counter(chain[-3:] for chain in chains)
    good = [chain for chain in now if sum(lo <= a < hi for a in chain for lo, hi in own) == 2 and len(chain) <= 24]
    note(f"comes and goes: {len(chains)} unwound, {len(now)} since it executed itself, {len(good)} of these through main(), ends {ends.most_common(4)}")
    expect(len(now) > 500 and len(good) == len(now), "all stacks go through either library to main()")
    expect(len(ends) == 1 + (len(now) < len(chains)), "and all stacks end in one way, before the exec and after it")


with Tracerd(config="[capture]\ndwarf_ring_kib = 8192\n") as d:
    c = d.client()
    need_unwinding(c)

    def counts(target):
        return c.call("target.show", {"target": target})["target"]["sample"]["unwound"]

    for name, argv in programs.items():
        if callable(argv):
            p = argv()
        elif None not in argv:
            p = spawn(*argv, stdout=subprocess.PIPE)
            p.stdout.readline()
        if p.pid is None if callable(argv) else None in argv:
            note(f"{name}: cannot be built here, or does not start")
            continue
        t = c.call("target.arm", {"pid": p.pid, "stacks": "bpf", "wait_min_us": 0})["target"]
        expect(t["stacks"] == "bpf", f"{name}: armed")
        wait_for(f"{name}: its tables", lambda: (u := counts(t["id"]))["complete"] > 3 and not u["mappings_waiting"])
        # Other rings, for the same threads: each switch goes to both at the same instant.
        tids = sorted(map(int, os.listdir(f"/proc/{p.pid}/task")))[:4]
        threads = [c.call("target.arm", {"tid": tid, "stacks": "dwarf", "kernel": True})["target"]["id"] for tid in tids]
        time.sleep(1.5)
        # A busy machine takes longer.
        if name == "comes and goes":
            wait_for("it has executed itself", lambda: b"again" in pathlib.Path(f"/proc/{p.pid}/cmdline").read_bytes())
            wait_for("stacks since then", lambda: len(since_exec(p.pid, bundle(c, t["id"])[1])[2]) > 500, step=0.5)
        else:
            wait_for(f"{name}: stacks", lambda: (u := counts(t["id"]))["complete"] + (name in GENERATED) * (u["no_table"] + u["no_frame"]) > 600)
        # The rings of the copies are full in moments: what both have must stay there until both are read.
        os.kill(p.pid, signal.SIGSTOP)
        copied = [r for target in threads for r in bundle(c, target)[1]]
        _, unwound, _ = bundle(c, t["id"])
        if name == "comes and goes":
            check_ends(p.pid, unwound)
            p.kill()
            p.wait()
            continue
        lines, n_unwound, n_all = compare(p.pid, unwound, copied, name in GENERATED)
        said = collections.Counter(line.split()[0] for line in lines)
        good = said["equal"] + said["copy"]
        if name == "Go":
            maps = [line.split() for line in pathlib.Path(f"/proc/{p.pid}/maps").read_text().splitlines()]
            code = [tuple(int(x, 16) for x in m[0].split("-")) for m in maps if "x" in m[1]]
            nowhere = [line for line in lines if line.startswith("shorter") and leads_nowhere(line, code)]
            good += len(nowhere)
            lines = [line for line in lines if line not in nowhere] + ["equal"] * len(nowhere)
        for line in [x for x in lines if not x.startswith(("equal", "copy"))][:3]:
            note(f"{name}: {line[:900]}")
        note(f"{name}: {100 * good / max(len(lines), 1):.2f} % of {len(lines)} are the same: {dict(said)}, {n_unwound} of {n_all} switches unwound, {counts(t['id'])}")
        expect((len(lines) > 100 or name in GENERATED) and good >= LEAST.get(name, 0.99) * len(lines),
               f"{name}: elfutils finds the same stacks")
        if name in GENERATED:
            have = [bool(chain or copy) for list_of in outs(unwound).values() for _, chain, copy in list_of]
            expect(sum(have) > 0.99 * len(have) > 100, f"{name}: the others are copied: {n_all - n_unwound} of {n_all}, {len(have) - sum(have)} have neither")
        c.call("target.disarm", {"target": t["id"]})
        for target in threads:
            c.call("target.disarm", {"target": target})
        p.kill()
        p.wait()

    # auto: no frame pointers, so it is unwound; what keeps them is not.
    p = spawn(*programs["C"], stdout=subprocess.PIPE)
    p.stdout.readline()
    t = c.call("target.arm", {"pid": p.pid})["target"]
    wait_for("auto", lambda: c.call("target.show", {"target": t["id"]})["target"]["stacks"] == "bpf")
    wait_for("its stacks", lambda: counts(t["id"])["complete"] > 20)
    ok("auto: the stacks of a program without frame pointers are unwound in the kernel")
    meta, recs, _ = bundle(c, t["id"])
    expect(meta["events"]["stacks"] == "bpf", "meta.json says so")
    # It works little, and a busy machine lets it work less.
    wait_for("ticks", lambda: sum(r.type == SAMPLE and r.id == CLOCK and len(r.body) < 2048 for r in bundle(c, t["id"])[1]) > 20, step=0.5)
    ok("ticks are samples of the clock")
    # The other user of the same rings wants copies: he has them, and this one, too.
    c.call("target.arm", {"tid": p.pid, "stacks": "dwarf"})
    armed = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    time.sleep(0.5)
    _, recs, _ = bundle(c, t["id"])
    later = [copy for list_of in outs(recs).values() for when, _, copy in list_of if when > armed]
    expect(later and all(later), "beside one that wants copies there are copies")
    refused = c.call_error("target.arm", {"pid": os.getpid(), "stacks": "bpf", "kernel": True})
    expect(refused == "unsupported", "not with the kernel's stacks")
