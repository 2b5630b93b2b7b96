#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# A ring is shared by the targets of all users, and the kernel leaves bytes of older records in the room that it
# reserves for the copy of a stack: what a short stack does not fill. A user's bundle has none of them.
from lib.capture import *

NOBODY = 65534
SPIN = r"""
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>
int main(int argc, char **argv)
{
	/* The kernel begins a stack up to 8 KiB below its top, by chance: again until a copy reaches past the top. */
	if (getauxval(AT_EXECFN) - (unsigned long)__builtin_frame_address(0) > 4096) {
		execv("/proc/self/exe", argv);
		return 1;
	}
	puts("ready");
	fflush(stdout);
	/* With a word: a deep stack full of it. Without: as shallow as can be, so that the copy reaches past the stack's end. */
	size_t size = argc > 1 ? 64 << 10 : 64, n = argc > 1 ? strlen(argv[1]) : 1;
	volatile char *p = alloca(size);
	for (;;) {
		for (int i = 0; i < 20; i++)
			for (size_t at = 0; at < size; at++)
				p[at] = argc > 1 ? argv[1][at % n] : 0;
		usleep(argc > 1 ? 2000 : 200);
	}
}
"""

need_root("two users on the same rings")
need_command("gcc")
(tmp() / "spin.c").write_text(SPIN)
spin = tmp() / "spin"
subprocess.run(["gcc", "-O1", "-o", spin, tmp() / "spin.c"], check=True)
secret = f"secret-{os.getpid()}-"
with Tracerd(config="[capture]\ndwarf_ring_kib = 2048\n") as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    # On one CPU: a ring is of one.
    root = spawn(spin, secret, stdout=subprocess.PIPE)
    short = spawn(spin, uid=NOBODY, env={}, stdout=subprocess.PIPE)
    for process in (root, short):
        process.stdout.readline()
        os.sched_setaffinity(process.pid, {min(os.sched_getaffinity(0))})
    c.call("target.arm", {"pid": root.pid, "stacks": "dwarf"})

    def user():
        with Client(d.sock) as u:
            t = u.arm(short.pid, stacks="dwarf")
            filled = []

            def recorded():
                """A ring is small, and the other may have filled it just now."""
                let_work(short.pid, seconds=0.3)
                samples = [r for r in bundle(u, t["id"])[1] if r.type == SAMPLE]
                if any(secret.encode() in r.body for r in samples):
                    fail("pieces of the other user's stack")
                filled.extend(struct.unpack_from("<Q", r.body, len(r.body) - 8)[0] for r in samples if len(r.body) > 8192)
                return len(filled) > 30 and min(filled) < 8000
            wait_for("stacks that are shorter than the room for them", recorded)
            ok(f"nothing of the other user's stack in the rest of {len(filled)} stacks: the shortest has {min(filled)} of 8192 bytes")
    if as_user(NOBODY, user) != 0:
        fail("the user's half")
