#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Two targets have a thread, one with the stacks of long waits, the other with those of all: what the first was promised when a wait began
# it gets, whoever came or went meanwhile, and a wait that has ended is over for it, too.
from lib.capture import *

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
#define FN __attribute__((noinline, noclone))
static volatile int sink, storm;
static int pipes[3][2];
static long call(long n, long a, long b, long c)
{
	long r;

	/* no function of libc is between, which has no frame pointer */
	__asm__ volatile("syscall" : "=a"(r) : "a"(n), "D"(a), "S"(b), "d"(c) : "rcx", "r11", "memory");
	return r;
}
static void gets(int i) { char c; call(SYS_read, pipes[i][0], (long)&c, 1); sink++; }
FN static void waits_zeroth(void) { gets(0); sink++; }
FN static void waits_first(void) { gets(1); sink++; }
FN static void waits_second(void) { gets(2); sink++; }
static void *waiter(void *arg)
{
	prctl(PR_SET_NAME, "waiter");
	waits_zeroth();
	waits_first();
	waits_second();
	return arg;
}
static void *noise(void *arg)
{
	const struct timespec t = {0, 60000};

	prctl(PR_SET_TIMERSLACK, 1);
	for (;;)
		nanosleep(storm ? &t : &(const struct timespec){0, 20000000}, NULL);
	return arg;
}
int main(void)
{
	pthread_t t;
	char w[32];

	if (pipe(pipes[0]) || pipe(pipes[1]) || pipe(pipes[2]))
		return 1;
	pthread_create(&t, NULL, waiter, NULL);
	pthread_create(&t, NULL, noise, NULL);
	puts("ready");
	fflush(stdout);
	while (fgets(w, sizeof(w), stdin)) {
		if (w[0] == 's')
			storm = 1;
		else if (write(pipes[w[0] - '0'][1], "x", 1) != 1)
			return 1;
		puts("ok");
		fflush(stdout);
	}
	return 0;
}
"""

need_root("BPF")
if os.uname().machine != "x86_64":
    skip("its system calls are those of x86-64")
two = build_c("two", SOURCE, "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread")
with Tracerd(config="[capture]\nring_kib = 64\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    p = spawn(two, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    p.stdout.readline()

    def tell(what):
        p.stdin.write(f"{what}\n")
        p.stdout.readline()

    def sleeps():
        stat = pathlib.Path(f"/proc/{p.pid}/task/{x}/stat")
        wait_for("it to sleep", lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
        time.sleep(0.1)

    def waits_in(tid):
        """The functions of the program that the picture has the thread wait in."""
        s = c.snapshot(a["id"])
        its = [w for w in s["summary"]["waits"] if w["tid"] == tid]
        return s, its, {f for w in its for f in w["stack"] if f.startswith("waits_")}

    x = wait_for("the thread", lambda: thread_named(p.pid, "waiter"))
    a = c.arm(p.pid, stacks="fp")
    tell("0")
    sleeps()
    b = c.call("target.arm", {"pid": p.pid, "fds": ["maps"], "stacks": "fp", "tid": x, "wait_min_us": 0}, [open_maps(p.pid)])["target"]
    tell("1")
    sleeps()
    s, its, seen = waits_in(x)
    first = [w for w in its if "waits_first" in w["stack"] and w["ns"] > 50000000]
    expect(first and not first[0].get("open"), f"the wait that had begun before has its stack: {its}")
    c.call("target.disarm", {"target": b["id"]})
    tell("s")

    def overwritten():
        meta, recs, s = bundle(c, a["id"])
        return not any(r.type == SAMPLE and r.id in (SCHED, SCHED_PLAIN) and sched(r).tid == x for r in recs)

    wait_for("its records to be overwritten", overwritten)
    s, its, seen = waits_in(x)
    expect("waits_first" not in seen, f"what has ended is over: {its}")
    expect(seen <= {"waits_second"}, f"it waits where it waits: {its}")
    ok(f"the picture of two targets with limits of their own: {sorted(seen)}")
    p.kill()
    p.wait()
