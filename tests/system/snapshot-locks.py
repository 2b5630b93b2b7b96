#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who is said to have held a lock did hold it: not who held another one that is waited for in the same place, and not who sent a signal to
one that waits."""
from lib.capture import *

SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#define FN __attribute__((noinline, noclone))
static volatile int sink;
static pthread_mutex_t locks[3] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static pthread_t fourth;
FN static void nap(int ms) { struct timespec t = {0, ms * 1000000}; while (clock_nanosleep(CLOCK_MONOTONIC, 0, &t, &t)) continue; sink++; }
/* What each does: a small letter takes a lock, a large one gives it back, a digit sleeps. */
FN static void plays(const char *name, const char *role)
{
	prctl(PR_SET_NAME, name);
	for (; *role; role++) {
		if (*role >= 'a')
			pthread_mutex_lock(&locks[*role - 'a']);
		else if (*role >= 'A')
			pthread_mutex_unlock(&locks[*role - 'A']);
		else
			nap((*role - '0') * 10);
	}
	sink++;
}
FN static void waits_signalled(void) { plays("fourth", "1cC"); sink++; }
static void on_signal(int sig) { sink += sig; }
static const char *const roles[][2] = {{"owner", "c9C"}, {"holder", "b6B"}, {"second", "a1bB4A"}, {"third", "2aA"}};
/* All in one place. */
static void *run(void *arg) { const char *const *role = arg; plays(role[0], role[1]); return arg; }
static void *run_fourth(void *arg) { waits_signalled(); return arg; }
static void *run_signaller(void *arg)
{
	prctl(PR_SET_NAME, "signaller");
	/* The longest wait is ended by the last one. */
	nap(60);
	pthread_kill(fourth, SIGUSR1);
	return arg;
}
int main(void)
{
	pthread_t t[6];
	char c;

	signal(SIGUSR1, on_signal);
	puts("ready");
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 1;
	for (int i = 0; i < 4; i++)
		pthread_create(&t[i], NULL, run, (void *)roles[i]);
	pthread_create(&t[4], NULL, run_fourth, NULL);
	fourth = t[4];
	pthread_create(&t[5], NULL, run_signaller, NULL);
	for (int i = 0; i < 6; i++)
		pthread_join(t[i], NULL);
	puts("done");
	fflush(stdout);
	return read(0, &c, 1) == 1;
}
"""

need_root("BPF")
locks = build_c("locks", SOURCE, "-O1", "-fno-optimize-sibling-calls", "-pthread")
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu" or os.uname().machine != "x86_64":
        skip("the kernel does not tell system calls here")

    def play():
        """The program plays once, and the snapshot of it: a busy machine may have it play otherwise, then it does so again."""
        p = spawn(locks, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        if p.stdout.readline() != "ready\n":
            fail("the program does not start")
        # Copied stacks: no table has to come first.
        t = c.arm(p.pid, stacks="dwarf")
        p.stdin.write("x")
        p.stdin.flush()
        if p.stdout.readline() != "done\n":
            fail("the program does not end")
        s = c.snapshot(t["id"])
        p.stdin.write("x")
        p.stdin.close()
        p.wait()
        c.call("target.disarm", {"target": t["id"]})
        waits = {w["name"]: w for w in s["summary"]["waits"] if "pthread_mutex_lock" in w["stack"] or "__lll_lock_wait" in w["stack"]}
        note(json.dumps([{k: w.get(k) for k in ("name", "ns", "call", "woken_by", "held_by")} for w in waits.values()]))
        third, fourth = waits.get("third"), waits.get("fourth")
        if third and fourth and third["ns"] > 50000000 and fourth["woken_by"]["call"] == "tgkill":
            return s, third, fourth
        return None
    s, third, fourth = wait_for("a play in which both wait as they are meant to", play)
    expect(third["woken_by"]["name"] == "second" and third["woken_by"]["call"] == "futex", "third waits for second")
    expect(third.get("held_by", third["woken_by"])["name"] == "second", "which held that lock, and had itself waited for another")
    expect(fourth["woken_by"]["name"] == "signaller" and fourth["woken_by"]["call"] == "tgkill", "a signal ends the longest wait of fourth")
    text = d.tracectl("show", s["id"]).stdout
    expect("held by second" in text and "held by holder" not in text and "ended by signaller" in text and "held by signaller" not in text,
           "the text says the same")
