#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# Who ends a wait: a child that dies, also of a signal, has ended that of its parent itself, and no interrupt did. And nobody is said to have
# held what is no lock: a pipe, or a condition variable.
from lib.capture import *

IN_IRQ = 4  # SCHEDEV_IN_IRQ
SOURCE = r"""
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#define FN __attribute__((noinline, noclone))
enum { N = 4 };
static volatile int sink;
static int ring[N][2];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int turn = N;
static void run(int ms)
{
	struct timespec a, b;

	clock_gettime(CLOCK_MONOTONIC, &a);
	do
		clock_gettime(CLOCK_MONOTONIC, &b);
	while ((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000 < ms);
}
FN static void gets_token(int i) { char c; if (read(ring[i][0], &c, 1) != 1) _exit(1); sink++; }
static void *passes(void *arg)
{
	const int i = (int)(long)arg;
	char name[16];

	(void)snprintf(name, sizeof(name), "ring%d", i);
	prctl(PR_SET_NAME, name);
	for (int n = 0; n < 20; n++) {
		gets_token(i);
		run(2);
		if (write(ring[(i + 1) % N][1], "x", 1) != 1)
			_exit(1);
	}
	return arg;
}
FN static void waits_turn(int i)
{
	pthread_mutex_lock(&lock);
	while (turn != i)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	sink++;
}
static void *turns(void *arg)
{
	const int i = (int)(long)arg;
	char name[16];

	(void)snprintf(name, sizeof(name), "cond%d", i);
	prctl(PR_SET_NAME, name);
	for (int n = 0; n < 20; n++) {
		waits_turn(i);
		run(2);
		pthread_mutex_lock(&lock);
		turn = (i + 1) % N;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	return arg;
}
FN static void waits_child(pid_t pid) { int status; (void)waitpid(pid, &status, 0); sink++; }
static void dies(int how)
{
	pid_t pid = fork();

	if (pid) {
		waits_child(pid);
		return;
	}
	prctl(PR_SET_NAME, how == 0 ? "faults" : how == 1 ? "is-killed" : "exits");
	run(3);
	if (how == 0)
		*(volatile int *)8 = 1;
	if (how == 1)
		for (kill(getpid(), SIGKILL);;)
			sink++;
	_exit(0);
}
static void play(void *(*fn)(void *))
{
	pthread_t t[N];

	for (long i = 0; i < N; i++)
		pthread_create(&t[i], NULL, fn, (void *)i);
	if (fn == passes && write(ring[0][1], "x", 1) != 1)
		_exit(1);
	if (fn == turns) {
		pthread_mutex_lock(&lock);
		turn = 0;
		pthread_cond_broadcast(&changed);
		pthread_mutex_unlock(&lock);
	}
	for (int i = 0; i < N; i++)
		pthread_join(t[i], NULL);
}
int main(void)
{
	char c;

	(void)setrlimit(RLIMIT_CORE, &(const struct rlimit){0, 0});
	for (int i = 0; i < N; i++)
		if (pipe(ring[i]))
			return 1;
	puts("ready");
	fflush(stdout);
	if (read(0, &c, 1) != 1)
		return 1;
	play(passes);
	play(turns);
	for (int i = 0; i < 30; i++)
		dies(i % 3);
	puts("done");
	fflush(stdout);
	return read(0, &c, 1) == 1;
}
"""

need_root("BPF")
wakers = build_c("wakers", SOURCE, "-O1", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls", "-pthread")
with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu" or os.uname().machine != "x86_64":
        skip("the kernel does not tell who wakes here")
    p = spawn(wakers, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    p.stdout.readline()
    t = c.call("target.arm", {"pid": p.pid, "fds": ["maps"], "stacks": "fp", "children": True}, [open_maps(p.pid)])["target"]
    p.stdin.write("x")
    p.stdin.flush()
    if p.stdout.readline() != "done\n":
        fail("the program does not end")
    meta, recs, s = bundle(c, t["id"])
    waits = s["summary"]["waits"]
    for w in waits:
        held = w.get("held_by")
        if held and not any(f.startswith(("pthread_mutex", "__lll_lock", "___pthread_mutex", "__GI___lll")) for f in w["stack"]):
            fail(f"said to be held: {w}")
    expect(any(w["name"].startswith("ring") for w in waits) and any(w["name"].startswith("cond") for w in waits), "the waits are there")
    ok("nobody holds a pipe or a condition variable")
    # Where the machine is busy a child may be dead before its parent waits.
    kinds = {"faults": 0, "is-killed": 0, "exits": 0}
    irq = 0
    for r in recs:
        if r.type != SAMPLE or r.id not in (SCHED, SCHED_PLAIN):
            continue
        e = sched(r)
        if e.kind != WAKEUP or e.tid != p.pid:
            continue
        if e.comm in kinds:
            kinds[e.comm] += not e.flags & IN_IRQ
            irq += bool(e.flags & IN_IRQ)
    expect(all(n >= 3 for n in kinds.values()) and irq <= 2, f"each child wakes its parent by its own death: {kinds}, by an interrupt {irq}")
    ok(f"who dies wakes who waits for it: {kinds}")
    p.kill()
    p.wait()
