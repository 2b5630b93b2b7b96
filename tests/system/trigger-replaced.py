#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""A trigger on a place in a program or a library that was replaced, or deleted, since it was mapped, as an upgrade does: the place is one of
the file that runs, not of the one that has its path by now. Who may not read the old file is told so, and can give an address."""
from lib import *

NOBODY = 65534
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
volatile long n;
extern void lib_serve(void);
#ifdef NEW
__attribute__((noinline)) void before(void) { n += 2; n *= 3; n -= 7; n ^= n << 3; n += n >> 2; }
__attribute__((noinline)) void only_new(void) { n += 5; }
#endif
__attribute__((noinline)) void serve(void) { n++; }
__attribute__((noinline)) void only_old(void) { n += 2; }
int main(void) {
	char line[100];
	puts("ready");
	for (fflush(stdout); fgets(line, sizeof(line), stdin); fflush(stdout)) {
		if (!strncmp(line, "call", 4))
			serve();
		else if (!strncmp(line, "old", 3))
			only_old();
		else if (!strncmp(line, "lib", 3))
			lib_serve();
		printf("%p %p\n", serve, lib_serve);
	}
#ifdef NEW
	before();
	only_new();
#endif
}
"""
LIBRARY = r"""
volatile long m;
#ifdef NEW
void lib_before(void) { m += 2; m *= 3; m ^= m << 4; }
void lib_new(void) { m++; }
#endif
void lib_serve(void) { m++; }
"""
need_root("the daemon's rights")
need_command("gcc", "gcc")
work = tmp()
for kind in ("old", "new"):
    (work / kind).mkdir()
    (work / kind / "main.c").write_text(PROGRAM)
    (work / kind / "lib.c").write_text(LIBRARY)
    flags = ["-DNEW"] if kind == "new" else []
    for args in (["-shared", "-fPIC", "-o", "libup.so", "lib.c"], ["-pie", "-fPIE", "-o", "up", "main.c", "-L.", "-lup", f"-Wl,-rpath,{work}/run"]):
        subprocess.run(["gcc", "-O1", *flags, *args], cwd=work / kind, check=True)


def install(kind):
    """As a package manager does: the new file takes the name of the old one, which lives on where it is mapped."""
    (work / "run").mkdir(exist_ok=True)
    for name in ("up", "libup.so"):
        shutil.copy(work / kind / name, work / "run" / f"{name}.new")
        os.rename(work / "run" / f"{name}.new", work / "run" / name)


class Program:
    def __init__(self, **kw):
        self.process = spawn(work / "run/up", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1, **kw)
        self.pid = self.process.pid
        self.process.stdout.readline()

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        return self.process.stdout.readline().split()


def trigger(c, gid):
    return next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)


def add(p, place, *more):
    done = d.tracectl("trigger", "add", p.pid, "--hit", place, "--cooldown", "0s", "--max-per-hour", 0, "--json", *more)
    if done.returncode:
        fail(f"{place}: {done.stderr}")
    return json.loads(done.stdout)["trigger"]["id"]


def hits(c, p, gid, line, text):
    before = trigger(c, gid)["hits"]

    def once():
        p.tell(line)
        return trigger(c, gid)["hits"] > before
    wait_for(text, once, step=0.1)
    d.tracectl("trigger", "remove", gid)
    ok(text)


def refused(p, place, *words):
    done = d.tracectl("trigger", "add", p.pid, "--hit", place)
    expect(done.returncode == 3 and all(w in done.stderr for w in words), f"{place}: {done.stderr.strip()}")


def check_program(c, p, how):
    hits(c, p, add(p, "serve"), "call", f"{how}: a function of the program that runs")
    hits(c, p, add(p, "only_old"), "old", f"{how}: one that its successor does not have")
    hits(c, p, add(p, "serve@up"), "call", f"{how}: by the file's name")
    refused(p, "only_new", "'only_new'")


with Tracerd() as d, d.client() as c:
    install("old")
    p, mine = Program(), Program(uid=NOBODY)
    c.arm(p.pid)
    install("new")
    if "(deleted)" not in pathlib.Path(f"/proc/{p.pid}/maps").read_text():
        skip("this file system does not tell of files that were replaced")
    check_program(c, p, "replaced")
    hits(c, p, add(p, "lib_serve"), "lib", "a function of a library that was replaced")
    hits(c, p, add(p, "lib_serve@libup.so"), "lib", "and by the library's name")
    refused(p, "lib_new", "no function 'lib_new'")
    by = d.tracectl("trigger", "add", p.pid, "--hit", "lib_serve", "--hit-by", "uprobe", "--cooldown", "0s", "--json")
    if by.returncode:
        note(f"no uprobe: {by.stderr.strip()}")
    else:
        hits(c, p, json.loads(by.stdout)["trigger"]["id"], "lib", "by a uprobe, which is in the old file")

    def user():
        """May open the program by /proc/PID/exe, but no library that is gone."""
        with d.client() as u:
            fd = open_maps(mine.pid)
            u.call("target.arm", {"pid": mine.pid, "fds": ["maps"]}, [fd])
            check_program(u, mine, "an ordinary user's")
            refused(mine, "lib_serve", "libup.so", "deleted or replaced", "only root", "give an address")
            address = mine.tell("where")[1]
            hits(u, mine, add(mine, address), "lib", "an address in it needs no file")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")

    for name in ("up", "libup.so"):
        (work / "run" / name).unlink()
    check_program(c, p, "deleted")
    hits(c, p, add(p, "lib_serve"), "lib", "a function of a library that was deleted")
