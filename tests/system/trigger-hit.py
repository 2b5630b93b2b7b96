#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Triggers on a place in the code of real programs: how the place is found, or refused, which threads and processes are watched,
what a hit says, what a hot function costs, and that nothing stays open."""
import select

from lib import *

NOBODY = 65534
# What is asked for at line 9 is the line of serve() that has code.
PROGRAM = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
volatile long sum;
__attribute__((noinline)) void serve(void) {
	sum++; /* LINE */
}
__attribute__((noinline)) static void twice(void) { sum += 2; }
extern void other(void);
extern void lib_serve(void);
static pthread_mutex_t m = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t c = PTHREAD_COND_INITIALIZER;
static int turn = -1, n_threads;
static void *wait_turn(void *arg) {
	long me = (long)arg;
	pthread_mutex_lock(&m);
	printf("%d\n", gettid());
	fflush(stdout);
	for (;;) {
		while (turn != me)
			pthread_cond_wait(&c, &m);
		serve();
		turn = -1;
		pthread_cond_broadcast(&c);
	}
}
int main(int argc, char **argv) {
	char line[100];
	printf("ready\n");
	for (fflush(stdout); fgets(line, sizeof(line), stdin); fflush(stdout)) {
		long n = strchr(line, ' ') ? atol(strchr(line, ' ')) : 0;
		if (!strncmp(line, "call", 4)) {
			while (n-- > 0)
				serve();
			printf("ok\n");
		} else if (!strncmp(line, "lib", 3)) {
			lib_serve();
			printf("ok\n");
		} else if (!strncmp(line, "twice", 5)) {
			twice();
			other();
			printf("ok\n");
		} else if (!strncmp(line, "where", 5)) {
			printf("%#lx\n", (long)serve);
		} else if (!strncmp(line, "thread", 6)) {
			pthread_t t;
			fflush(stdout);
			pthread_create(&t, NULL, wait_turn, (void *)(long)n_threads++);
		} else if (!strncmp(line, "in", 2)) {
			pthread_mutex_lock(&m);
			turn = (int)n;
			pthread_cond_broadcast(&c);
			while (turn != -1)
				pthread_cond_wait(&c, &m);
			pthread_mutex_unlock(&m);
			printf("ok\n");
		} else if (!strncmp(line, "fork", 4)) {
			pid_t pid = fork();
			if (!pid) {
				/* until it is told to end */
				for (;;) {
					serve();
					usleep(20000);
				}
			}
			printf("%d\n", pid);
		} else if (!strncmp(line, "hide", 4)) {
			prctl(PR_SET_DUMPABLE, 0);
			printf("ok\n");
		} else if (!strncmp(line, "exec", 4)) {
			fflush(stdout);
			execl(strtok(line + 5, "\n"), "again", NULL);
		}
	}
	return 0;
}
"""
need_root("the daemon's rights")
need_command("gcc", "gcc")
work = tmp()
os.chmod(work, 0o755)
(work / "hit.c").write_text(PROGRAM)
(work / "other.c").write_text("extern volatile long sum;\n__attribute__((noinline)) static void twice(void) { sum += 3; }\n"
                              "void other(void) { twice(); }\n")
(work / "lib.c").write_text("static volatile long n;\nvoid lib_serve(void) { n++; }\n" +
                          "".join(f"void _ZN3a{i}4manyEv(void) {{ n += {i}; }}\n" for i in range(10, 50)))
LINE = next(i for i, text in enumerate(PROGRAM.splitlines(), 1) if "LINE" in text)


def cc(*args):
    subprocess.run(["gcc", "-O1", "-pthread", *args], cwd=work, check=True)


cc("-shared", "-fPIC", "-o", "libhit.so", "lib.c")
cc("-g", "-pie", "-fPIE", "-o", "hit", "hit.c", "other.c", "-L.", "-lhit", f"-Wl,-rpath,{work}")
cc("-s", "-fPIE", "-pie", "-o", "stripped", "hit.c", "other.c", "-L.", "-lhit", f"-Wl,-rpath,{work}")
cc("-no-pie", "-o", "fixed", "hit.c", "other.c", "-L.", "-lhit", f"-Wl,-rpath,{work}")


class Program:
    def __init__(self, name="hit", **kw):
        self.process = spawn(work / name, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, **kw)
        self.pid = self.process.pid
        self.answer("ready")

    def answer(self, want=None):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            fail("the program does not answer")
        line = self.process.stdout.readline().rstrip("\n")
        if want is not None and line != want:
            fail(f"the program says {line!r} instead of {want!r}")
        return line

    def tell(self, line, want="ok"):
        self.process.stdin.write(line + "\n")
        return self.answer(want)

    def thread(self):
        return int(self.tell("thread", None))

    def end(self):
        self.process.kill()
        self.process.wait()


BREAKPOINT = 0xcc


def first_byte(p):
    """Of the function, as the program has it in memory."""
    with open(f"/proc/{p.pid}/mem", "rb") as f:
        f.seek(int(p.tell("where", None), 16))
        return f.read(1)[0]


def trigger(c, gid):
    t = next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)
    if t["hits"] != t["snapshots"] + sum(t["suppressed"].values()):
        fail(f"hits are not counted once: {t}")
    return t


def add(target, place, *more):
    p = d.tracectl("trigger", "add", target, "--hit", place, "--cooldown", "0s", "--max-per-hour", 0, "--json", *more)
    if p.returncode:
        fail(f"trigger add {target} {place}: {p.stderr}")
    return json.loads(p.stdout)["trigger"]["id"]


def refused(target, place, *words, code=None, more=()):
    p = d.tracectl("trigger", "add", target, "--hit", place, *more)
    expect(p.returncode and all(w in p.stderr for w in words) and (code is None or p.returncode == code),
           f"{place}: {p.stderr.strip()}")


def remove(gid):
    p = d.tracectl("trigger", "remove", gid)
    if p.returncode or not p.stdout.startswith(f"removed {gid}: hit "):
        fail(f"{gid} cannot be removed, or it is not said what was: {p.stdout} {p.stderr}")


def hit(c, gid, act):
    """Does it until the trigger has taken one more snapshot: after a hit it rests for a moment. The snapshot."""
    before = trigger(c, gid)["snapshots"]

    def once():
        act()
        now = trigger(c, gid)
        return now if now["snapshots"] > before else None
    sid = wait_for("a snapshot by the trigger", once, step=0.1)["last_snapshot"]

    def ended():
        s = c.call("snapshot.show", {"snapshot": sid})["snapshot"]
        return s if s["state"] in ("done", "failed", "cancelled") else None
    return wait_for("its end", ended)


def awake(c, gid):
    """Until it watches again, after a hit."""
    wait_for("the trigger to watch again", lambda: not (of := trigger(c, gid)["coverage"])["resting"] and not of["opening"])


def perf_fds():
    n = 0
    for fd in os.listdir(f"/proc/{d.pid}/fd"):
        try:
            n += "perf_event" in os.readlink(f"/proc/{d.pid}/fd/{fd}")
        except FileNotFoundError:
            pass
    return n


with Tracerd() as d, d.client() as c:
    idle = perf_fds()
    p = Program()
    before_arm = perf_fds()
    first = p.thread()
    t = c.arm(p.pid)["id"]
    armed = perf_fds()

    # ---- a function of a program that lies anywhere
    begin = time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    g = add(p.pid, "serve")
    if trigger(c, g)["coverage"]["by_uprobe"]:
        skip("no hardware breakpoints here")
    s = hit(c, g, lambda: p.tell("call 1"))
    cause, now = s["cause"], time.clock_gettime_ns(time.CLOCK_MONOTONIC_RAW)
    expect(s["state"] == "done" and cause["kind"] == "hit" and cause["hit"] == "serve" and cause["trigger"] == g
           and cause["pid"] == p.pid and cause["tid"] == p.pid, "a hit takes a snapshot, which has the thread")
    expect(begin < cause["at_raw_ns"] < s["frozen_raw_ns"] < now, "and its moment, which is before the freeze")
    expect(cause["late_ns"] >= s["frozen_raw_ns"] - cause["at_raw_ns"], "and how late the freeze came")
    note(f"hit to freeze: {cause['late_ns'] / 1000:.1f} us")
    files = c.fetch(s["id"], "meta.json")
    expect(json.loads(files["meta.json"])["snapshot"]["cause"]["late_ns"] == cause["late_ns"], "which meta.json has as well")
    expect(f"hit serve in thread {p.pid}, frozen" in d.tracectl("show", s["id"]).stdout, "and tracectl show says")
    out = work / "bundle"
    d.tracectl("fetch", s["id"], "-o", f"{out}/")
    text = subprocess.run([BUILD / "tracectl", "decode", "--format", "text", "-o", "-", out], capture_output=True, text=True)
    if text.stdout.count(f"trigger: serve, in thread {p.pid}") != 2:
        fail(f"the timeline is not marked at the hit: {text.stdout} {text.stderr} {os.listdir(out)}")
    ok("the timeline is marked at the hit, on the track of the triggers and on the thread's")

    # ---- threads that were there, and new ones
    s = hit(c, g, lambda: p.tell("in 0"))
    expect(s["cause"]["tid"] == first, "a thread that was there before is watched")
    second = p.thread()
    s = hit(c, g, lambda: p.tell("in 1"))
    expect(s["cause"]["tid"] == second, "and one that it has created since")
    cover = trigger(c, g)["coverage"]
    words = [x for x in d.tracectl("trigger", "list").stdout.splitlines() if x.startswith(f"{g} watches ")]
    expect(len(words) == 1 and f"{cover['threads']} thread" in words[0] and "by " in words[0] and "trace" not in words[0],
           f"tracectl trigger list says so, and nothing of a trace that samples do not have: {words}")
    expect(cover["processes"] == 1 and cover["threads"] == 2 and cover["new_threads"], "trigger.list says who is watched")

    # ---- in quick succession, and a hot function
    awake(c, g)
    was = trigger(c, g)
    slow = d.tracectl("trigger", "add", p.pid, "--hit", "serve", "--cooldown", "1h", "--json")
    slow = json.loads(slow.stdout)["trigger"]["id"]
    used = cpu_seconds(d.pid)
    p.tell("call 3000000")
    calls = 3000000
    used = cpu_seconds(d.pid) - used
    wait_for("the snapshot", lambda: trigger(c, slow)["snapshots"] == 1)
    n = trigger(c, slow)
    expect(n["snapshots"] == 1 and n["hits"] < calls / 100 and n["coverage"]["resting"],
           f"{calls} calls were {n['hits']} hits and one snapshot; then nobody watched")
    note(f"the daemon took {used:.2f} s for it")
    p.tell("call 10")
    expect(trigger(c, slow)["hits"] <= n["hits"], "within the cooldown nothing is reported")
    remove(slow)
    remove(g)

    # ---- a library, a line, an address; programs that lie where they were linked
    for place in ("lib_serve", "lib_serve@libhit.so"):
        g = add(p.pid, place)
        s = hit(c, g, lambda: p.tell("lib"))
        expect(s["cause"]["hit"] == place, f"a function of a library: {place}")
        remove(g)
    for place in (f"hit.c:{LINE}", p.tell("where", None)):
        g = add(p.pid, place)
        expect(hit(c, g, lambda: p.tell("call 1"))["cause"]["hit"] == place, f"a line, an address: {place}")
        remove(g)
    fixed = Program("fixed")
    c.arm(fixed.pid)
    g = add(fixed.pid, "serve")
    hit(c, g, lambda: fixed.tell("call 1"))
    ok("a program that lies where it was linked")
    fixed.end()

    # ---- what is refused
    refused(p.pid, "twice", "is in 2 places", "0x", "twice in", code=2)
    refused(p.pid, "serv_", "no function", "serve", code=3)
    refused(p.pid, "no::such::function", "no function", code=3)
    refused(p.pid, "serve@libc.so.6", "no function", code=3)
    refused(p.pid, "serve@nosuch.so", "no code of nosuch.so", code=3)
    refused(p.pid, f"hit.c:{LINE - 2}", "has no code", "the next one that has some is line", code=3)
    refused(p.pid, "missing.c:3", "missing.c", code=3)
    refused(p.pid, "memcpy@libc.so.6", "indirect function (IFUNC)", "only chooses", code=2)
    refused(p.pid, "many", "is in more than 32 places", ", ...", code=2)
    refused(p.pid, "0x0", "at 0x0 process", "no code that comes from a file", code=3)
    for text in ("0x", "0x-1", "0x 1", "0x12345678123456781"):
        refused(p.pid, text, "is not an address", "1 to 16 hex digits", code=2)
    refused(p.pid, "serve@/hit", "no code of /hit", code=3)
    refused(p.pid, "0x10", "no code that comes from a file", code=3)
    refused(p.pid, hex(int(p.tell("where", None), 16) + 2), "no instruction begins", code=2)
    refused(p.pid, "serve", "a place", code=2, more=("--region", "x", "--over", "1s"))
    bare = Program("stripped")
    c.arm(bare.pid)
    refused(bare.pid, "serve", "no symbol table", "stripped", code=3)
    refused(bare.pid, "hit.c:3", "no debug information", code=3)
    g = add(bare.pid, "lib_serve")
    hit(c, g, lambda: bare.tell("lib"))
    ok("a stripped program's libraries have names")
    bare.end()

    # ---- names as tracerd prints them
    if shutil.which("g++"):
        (work / "names.cc").write_text("""#include <cstdio>
namespace ns {
volatile long sum;
template <typename T> __attribute__((noinline)) void tp(T n) { sum += (long)n; }
struct K { int v; __attribute__((noinline)) bool operator<(const K &o) const; __attribute__((noinline)) ~K(); };
bool K::operator<(const K &o) const { return v < o.v + sum; }
K::~K() { sum++; }
inline __attribute__((always_inline)) void only(long n) { sum += n; }
__attribute__((noinline)) void one(long n) { only(n); }
}
extern "C" __attribute__((always_inline)) inline void both(long n) { ns::sum *= n; }
void (*volatile by_pointer)(long) = both;
int main() {
	auto f = [](int n) __attribute__((noinline)) { ns::sum += n; };
	puts("ready"); fflush(stdout);
	getchar();
	ns::K a{1}, b{2};
	ns::tp<int>(a < b); ns::tp<ns::K *>(&b); f(1);
	ns::only(2); ns::one(3); both(2); by_pointer(3); both(4); both(5);
}
""")
        subprocess.run(["g++", "-O1", "-g", "-o", "names", "names.cc"], cwd=work, check=True)
        cxx = Program("names")
        c.arm(cxx.pid)
        for name in ("ns::tp<int>", "tp<int>", "ns::tp<ns::K*>", "ns::K::operator<", "ns::K::~K", "_ZN2ns2tpIiEEvT_", "main::{lambda(int)#1}::operator()"):
            remove(add(cxx.pid, name))
        refused(cxx.pid, "ns::tp<long>", "no function", code=3)
        for name in ("only", "ns::only"):
            refused(cxx.pid, name, f"no function '{name}'", "has inlined all calls of it (2)", "FILE:LINE", code=3)
        copied = d.tracectl("trigger", "add", str(cxx.pid), "--hit", "both")
        expect(copied.returncode == 0 and "the compiler has inlined 3 calls of both, which are no hit" in copied.stderr, copied.stderr)
        once = d.tracectl("trigger", "add", str(cxx.pid), "--hit", "tp<int>")
        expect(once.returncode == 0 and not once.stderr, f"no copies: {once.stderr}")
        refused(cxx.pid, "ns::", "'ns::'")
        cxx.end()
        ok("functions of C++ are found by the names that are printed")

    # ---- the four slots of a thread, and uprobes
    many = [add(p.pid, "serve", "--hit-by", "breakpoint") for _ in range(4)]
    refused(p.pid, "serve", "hardware breakpoints", "in use", more=("--hit-by", "breakpoint"))
    expect(len(c.call("trigger.list", {"target": t})["triggers"]) == 4, "one that is refused is in no list")
    probe = add(p.pid, "serve", "--hit-by", "auto")
    if trigger(c, probe)["coverage"]["by_uprobe"] != 1:
        fail("where no slot is free, it is a uprobe")
    for g in many:
        remove(g)
    expect(trigger(c, probe)["coverage"]["new_threads"] is False, "which does not watch threads that begin later, and says so")
    expect(p.thread() > 0 and first_byte(p) == BREAKPOINT, "the program can create threads while there is one")
    s = hit(c, probe, lambda: p.tell("call 1"))
    expect(s["cause"]["kind"] == "hit" and s["cause"]["late_ns"] > 0, "with no slot free it is a uprobe, which tells the same")
    note(f"uprobe to freeze: {s['cause']['late_ns'] / 1000:.1f} us")
    remove(probe)
    rests = add(p.pid, "serve", "--hit-by", "uprobe", "--cooldown", "1h")
    hit(c, rests, lambda: p.tell("call 1"))
    wait_for("it is out of the program's code while it rests", lambda: first_byte(p) != BREAKPOINT)
    expect(trigger(c, rests)["coverage"]["resting"] is True, "it rests")
    remove(rests)
    wait_for("nothing to be open but the recording", lambda: perf_fds() == armed)
    ok("a trigger that is removed leaves no event")

    # ---- children
    g = add(p.pid, "serve")
    child = int(p.tell("fork", None))
    time.sleep(0.5)
    expect(trigger(c, g)["hits"] == 0, "a child that nobody asked for is not watched")
    os.kill(child, signal.SIGKILL)
    family = Program()
    kin = c.call("target.arm", {"pid": family.pid, "children": True})["target"]["id"]
    g2 = add(kin, "serve")
    child = int(family.tell("fork", None))
    s = hit(c, g2, lambda: None)
    expect(s["cause"]["pid"] == child, "of a target with children it is")
    os.kill(child, signal.SIGKILL)

    # ---- another program: the same file again, then one that has other code there
    awake(c, g2)
    family.tell(f"exec {work / 'hit'}", "ready")
    s = hit(c, g2, lambda: family.tell("call 1"))
    expect(s["cause"]["pid"] == family.pid, "a process that executes its program again is watched again")
    hits = trigger(c, g2)["hits"]
    family.tell(f"exec {work / 'fixed'}", "ready")
    wait_for("the trigger to notice", lambda: (v := trigger(c, g2)["coverage"])["processes"] == 0 and v["without_code"] == 1)
    family.tell("call 5")
    expect(trigger(c, g2)["hits"] == hits, "another program's code is not watched, and the coverage says so")

    # ---- the end of the process, of the target, of the daemon's interest
    family.end()
    wait_for("its end", lambda: c.call("target.show", {"target": kin})["target"]["state"] == "exited")
    wait_for("coverage of nothing", lambda: trigger(c, g2)["coverage"]["processes"] == 0)
    c.call("target.disarm", {"target": kin})
    c.call("target.disarm", {"target": t})
    for other in c.call("target.list")["targets"]:
        c.call("target.disarm", {"target": other["id"]})
    expect(c.call("trigger.list")["triggers"] == [], "a trigger goes with its target")
    wait_for("all events to be closed", lambda: perf_fds() <= before_arm)
    ok("and leaves no event")

    # ---- an ordinary user: what is theirs
    mine = Program(uid=NOBODY)
    with Client(d.sock) as root:
        theirs = Program()
        root.arm(theirs.pid)

    def user():
        with Client(d.sock) as u:
            fd = open_maps(mine.pid)
            u.call("target.arm", {"pid": mine.pid, "fds": ["maps"]}, [fd])
            gid = add(mine.pid, "serve")
            hit(u, gid, lambda: mine.tell("call 1"))
            ok("an ordinary user's trigger on a program of theirs")
            r = d.tracectl("trigger", "add", theirs.pid, "--hit", "serve")
            expect(r.returncode, f"and none on another's: {r.stderr.strip()}")
            place = {"hit": "x", "hit_major": 0, "hit_minor": 0, "hit_inode": 1, "hit_offset": 0}
            expect(u.call_error("trigger.add", {"target": mine.pid, **place}) == "unsupported", "of a file that is not mapped: none")
            expect(u.call_error("trigger.add", {"target": mine.pid, "hit": "x"}) == "bad_params", "of no file: none")
            expect(u.call_error("trigger.add", {"target": mine.pid}) == "bad_params", "of nothing: none")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")

    # From when it hides from its user on, nobody watches it for them.
    with Client(d.sock) as root:
        t = next(t for t in root.call("target.list")["targets"] if t["pid"] == mine.pid)
        g = add(mine.pid, "serve")
        hit(root, g, lambda: mine.tell("call 1"))
        awake(root, g)
        watched = perf_fds()
        mine.tell("hide")
        mine.tell("call 1")  # a hit freezes, and whoever freezes looks whose it is
        wait_for("the target to be suspended", lambda: root.call("target.show", {"target": t["id"]})["target"]["state"] == "suspended")
        wait_for("its breakpoints to be gone", lambda: perf_fds() < watched and not trigger(root, g)["coverage"]["threads"])
        ok("a program that hides from its user is watched no longer")
        refused(mine.pid, "serve", "suspended", "arm it again")
        mine.end()
        theirs.end()
        left = next(t for t in root.call("target.list")["targets"] if t["pid"] == theirs.pid)["id"]
        wait_for("its end", lambda: root.call("target.show", {"target": left})["target"]["state"] == "exited")
        expect(root.call_error("trigger.add", {"target": left, "region": "x", "over_ns": 1}) == "gone", "what has exited gets no trigger")
