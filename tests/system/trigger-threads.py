#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Threads that begin while a trigger's place is set up in their process. Each comes to the place once, when it is told to: it is a hit, or the
coverage says that it may not be one. Those of a chain, where each thread starts the next one and ends, and those that one thread starts."""
from lib import *

PROGRAM = r"""
#define _GNU_SOURCE
#include <limits.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
volatile long n;
static atomic_int calls_left, calls_made, chain_on, made;
static pthread_attr_t attr;
__attribute__((noinline)) void place(void) { n++; }
static void begin(void *(*fn)(void *), void *arg) {
	pthread_t t;
	while (pthread_create(&t, &attr, fn, arg))
		usleep(100);
}
static void *link_of(void *arg) {
	int left = atomic_load(&calls_left);
	if (left > 0 && atomic_compare_exchange_strong(&calls_left, &left, left - 1)) {
		place();
		atomic_fetch_add(&calls_made, 1);
	}
	if (atomic_load(&chain_on))
		begin(link_of, NULL);
	return NULL;
}
static sem_t told[4096], done;
static void *parked(void *arg) {
	sem_wait(&told[(long)arg]);
	place();
	sem_post(&done);
	return NULL;
}
static void *maker(void *arg) {
	for (long i = 0; i < (long)arg; i++) {
		begin(parked, (void *)i);
		atomic_fetch_add(&made, 1);
	}
	return NULL;
}
int main(void) {
	char line[100];
	pthread_attr_init(&attr);
	pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&attr, 65536);
	sem_init(&done, 0, 0);
	for (int i = 0; i < 4096; i++)
		sem_init(&told[i], 0, 0);
	printf("%p\n", place);
	for (fflush(stdout); fgets(line, sizeof(line), stdin); fflush(stdout)) {
		long i = strchr(line, ' ') ? atol(strchr(line, ' ')) : 0;
		if (!strncmp(line, "chain", 5)) {
			chain_on = 1;
			begin(link_of, NULL);
			puts("ok");
		} else if (!strncmp(line, "one", 3)) {
			int before = calls_made;
			calls_left = 1;
			while (calls_made == before)
				usleep(100);
			printf("%d\n", calls_made);
		} else if (!strncmp(line, "make", 4)) {
			begin(maker, (void *)i);
			puts("ok");
		} else if (!strncmp(line, "made", 4)) {
			printf("%d\n", made);
		} else if (!strncmp(line, "in", 2)) {
			sem_post(&told[i]);
			sem_wait(&done);
			puts("ok");
		}
	}
}
"""
CALLS, PARKED = 10, 100
need_root("the daemon's rights")
program = build_c("threads", PROGRAM, "-O1", "-pthread")


class Program:
    def __init__(self):
        self.process = spawn(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.address = int(self.process.stdout.readline(), 16)

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()

    def place(self):
        """As the protocol names it."""
        for line in open(f"/proc/{self.pid}/maps"):
            span, _, offset, device, inode, *_ = line.split()
            begin, end = (int(x, 16) for x in span.split("-"))
            if begin <= self.address < end:
                major, minor = (int(x, 16) for x in device.split(":"))
                return {"hit": "place", "hit_major": major, "hit_minor": minor, "hit_inode": int(inode),
                        "hit_offset": self.address - begin + int(offset, 16), "cooldown_ns": 0, "max_per_hour": 0}
        fail("the place is not mapped")


def trigger(gid):
    return next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)


def awake(gid):
    wait_for("the trigger to watch", lambda: not (of := trigger(gid)["coverage"])["resting"] and not of["opening"])


def is_hit(gid, act):
    """Whether one call, while the place is watched, is one more hit. What is not seen in 8 seconds is not seen."""
    awake(gid)
    before = trigger(gid)["hits"]
    act()
    end = time.monotonic() + 8
    while time.monotonic() < end:
        if trigger(gid)["hits"] > before:
            return True
        time.sleep(0.01)
    return False


def check(gid, hits, calls, what):
    of = trigger(gid)["coverage"]
    note(f"{what}: {hits} hits of {calls} calls, {of['threads']} threads, {of.get('threads_unsure')} unsure")
    expect(hits == calls or of.get("threads_unsure"), f"{what}: each call is a hit, or the coverage says who may not be watched: {of}")
    if of.get("threads_unsure"):
        words = d.tracectl("trigger", "list").stdout
        expect("may not be watched" in words, f"which tracectl says: {words}")


with Tracerd(config="[quota]\nuid_fds = 8000\n") as d, d.client() as c:
    p = Program()
    c.arm(p.pid)
    p.tell(f"make {PARKED}")
    gid = c.call("trigger.add", {"target": p.pid, **p.place(), "hit_by": "breakpoint"})["trigger"]["id"]
    during = int(p.tell("made"))
    wait_for("all threads", lambda: int(p.tell("made")) == PARKED)
    note(f"{during} of {PARKED} threads had begun when the trigger was there")
    check(gid, sum(is_hit(gid, lambda: p.tell(f"in {i}")) for i in range(0, PARKED, 2)), PARKED // 2, "threads of one maker")
    of = trigger(gid)["coverage"]
    # One that has had no CPU for a second is not known.
    expect(of.get("threads_unsure", 0) < PARKED // 4, f"who inherits the place is mostly known to have it: {of}")

    p = Program()
    c.arm(p.pid)
    p.tell("chain")
    gid = c.call("trigger.add", {"target": p.pid, **p.place(), "hit_by": "breakpoint"})["trigger"]["id"]
    check(gid, sum(is_hit(gid, lambda: p.tell("one")) for _ in range(CALLS)), CALLS, "a chain of threads")
    p.process.kill()
