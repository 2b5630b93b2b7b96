#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""A library that a process has several times, at several addresses (dlmopen), before a trigger is set or after it: the place of each copy is
watched, and where there are more copies than breakpoints the coverage says so."""
from lib import *

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int main(void) {
	void *at[16] = {0};
	char line[100];
	puts("ready");
	for (fflush(stdout); fgets(line, sizeof(line), stdin); fflush(stdout)) {
		int i = strchr(line, ' ') ? atoi(strchr(line, ' ')) : 0;
		if (!strncmp(line, "load", 4)) {
			at[i] = i ? dlmopen(LM_ID_NEWLM, "./copy.so", RTLD_NOW) : dlopen("./copy.so", RTLD_NOW);
			if (!at[i])
				puts(dlerror());
			else
				printf("%p\n", dlsym(at[i], "place"));
		} else {
			((void (*)(void))dlsym(at[i], "place"))();
			puts("ok");
		}
	}
}
"""
need_root("the daemon's rights")
work = tmp()
program = build_c("copies", PROGRAM, "-O1", "-ldl")
(work / "copy.c").write_text("volatile long n;\nvoid place(void) { n++; }\n")
subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "copy.so", "copy.c"], cwd=work, check=True)


class Program:
    def __init__(self):
        self.process = spawn(program, cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.process.stdout.readline()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()

    def load(self, i):
        at = self.tell(f"load {i}")
        if not at.startswith("0x"):
            skip(f"no second copy of a library here: {at}")
        return at


def trigger(gid):
    return next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)


def add(p, by):
    done = d.tracectl("trigger", "add", p.pid, "--hit", "place", "--hit-by", by, "--cooldown", "0s", "--max-per-hour", 0, "--json")
    if done.returncode:
        note(f"no {by} here: {done.stderr}")
        return None
    return json.loads(done.stdout)["trigger"]["id"]


def awake(gid):
    wait_for("the trigger to watch", lambda: not (of := trigger(gid)["coverage"])["resting"] and not of["opening"])


def is_hit(p, gid, i):
    """What is not seen in 8 seconds is not seen."""
    awake(gid)
    before = trigger(gid)["hits"]
    p.tell(f"call {i}")
    end = time.monotonic() + 8
    while time.monotonic() < end:
        if trigger(gid)["hits"] > before:
            return True
        time.sleep(0.01)
    return False


with Tracerd() as d, d.client() as c:
    for by in ("breakpoint", "uprobe"):
        p = Program()
        addresses = {p.load(i) for i in range(3)}
        expect(len(addresses) == 3, f"one library at {addresses}")
        c.arm(p.pid)
        gid = add(p, by)
        if not gid:
            continue
        expect([is_hit(p, gid, i) for i in range(3)] == [True] * 3, f"{by}: the place of each copy is watched")
        p.load(3)
        wait_for("the new copy to be watched", lambda: is_hit(p, gid, 3))
        ok(f"{by}: and that of one that is loaded later")
        expect([is_hit(p, gid, i) for i in range(4)] == [True] * 4 and trigger(gid)["coverage"]["copies_left_out"] == 0, f"{by}: with the others")
        p.process.kill()

    # ---- more copies than breakpoints
    p = Program()
    for i in range(6):
        p.load(i)
    c.arm(p.pid)
    gid = add(p, "breakpoint")
    of = trigger(gid)["coverage"]
    hit = [is_hit(p, gid, i) for i in range(6)]
    expect(of["copies_left_out"] == 2 and sum(hit) == 4, f"of six copies four are watched, and the coverage says so: {hit}, {of}")
    words = d.tracectl("trigger", "list").stdout
    expect("the code is mapped 2 times more, where no breakpoint or descriptor is free" in words, words)
    c.call("trigger.remove", {"trigger": gid})
    gid = add(p, "auto")
    of = trigger(gid)["coverage"]
    expect(sum(is_hit(p, gid, i) for i in range(6)) == (6 if of["by_uprobe"] else 4) and of["copies_left_out"] == (0 if of["by_uprobe"] else 2),
           f"where it may be a uprobe, all are: {of}")
