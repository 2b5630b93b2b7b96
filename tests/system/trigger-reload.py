#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""A trigger on a place in a library that is unloaded: what is mapped there then is no hit, and the library is watched where it comes
back, at the same address and at another one; by a breakpoint and by a uprobe."""
from lib import *

PROGRAM = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(void) {
	void *at[2] = {0};
	char line[100];
	puts("ready");
	for (fflush(stdout); fgets(line, sizeof(line), stdin); fflush(stdout)) {
		const int other = strstr(line, "other") != NULL;
		if (!strncmp(line, "load", 4)) {
			at[other] = dlopen(other ? "./other.so" : "./place.so", RTLD_NOW);
			printf("%p\n", dlsym(at[other], other ? "elsewhere" : "place"));
		} else if (!strncmp(line, "call", 4)) {
			((void (*)(void))dlsym(at[other], other ? "elsewhere" : "place"))();
			puts("ok");
		} else {
			dlclose(at[other]);
			puts("ok");
		}
	}
}
"""
need_root("the daemon's rights")
work = tmp()
for name in ("place", "elsewhere"):
    (work / f"{name}.c").write_text(f"volatile long n;\nvoid {name}(void) {{ n += {len(name)}; }}\n")
(work / "main.c").write_text(PROGRAM)
need_command("gcc", "gcc")
for args in (["-shared", "-fPIC", "-o", "place.so", "place.c"], ["-shared", "-fPIC", "-o", "other.so", "elsewhere.c"], ["-o", "main", "main.c", "-ldl"]):
    subprocess.run(["gcc", "-O1", *args], cwd=work, check=True)


class Program:
    def __init__(self):
        self.process = spawn(work / "main", cwd=work, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.pid = self.process.pid
        self.process.stdout.readline()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().strip()


def trigger(gid):
    return next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)


def hits(p, gid, what):
    """Calls it until that is a hit."""
    before = trigger(gid)["hits"]

    def once():
        p.tell("call")
        return trigger(gid)["hits"] > before
    wait_for(what, once, step=0.1)
    wait_for("it watches again", lambda: not (of := trigger(gid)["coverage"])["resting"] and not of["opening"])


with Tracerd() as d, d.client() as c:
    for by in ("breakpoint", "uprobe"):
        p = Program()
        first = p.tell("load")
        c.arm(p.pid)
        done = d.tracectl("trigger", "add", str(p.pid), "--hit", "place", "--hit-by", by, "--cooldown", "0s", "--max-per-hour", "0", "--json")
        if done.returncode:
            skip(f"no {by} here: {done.stderr}")
        gid = json.loads(done.stdout)["trigger"]["id"]
        hits(p, gid, f"{by}: the place")
        p.tell("unload")
        if p.tell("load other") == first:
            # The kernel tells of the mapping a moment later.
            time.sleep(1)
            before = trigger(gid)["hits"]
            for _ in range(10):
                p.tell("call other")
                time.sleep(0.02)
            expect(trigger(gid)["hits"] == before, f"{by}: another function at its address is no hit")
        again = p.tell("load")
        hits(p, gid, f"{by}: the place, where it came back: {first}, {again}")
        ok(f"{by}: {first}, then at {again}")
        p.tell("unload")
        p.tell("unload other")
        same = p.tell("load")
        hits(p, gid, f"{by}: the place, once more: {same}")
        p.process.kill()
