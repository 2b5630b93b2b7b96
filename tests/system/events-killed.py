# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 240
"""100 × kill -9 of a program in the middle of writing events, and 20 × of the daemon in the middle of
collecting them: what was written before is there.

The program tells in shared memory, after each event, the event's number. Whatever it had told when it was killed must be
in the snapshot that is taken afterwards, without a hole, as far back as its rings reach; and nothing may be there
that it has not written. This test reads the rings itself; the decoder's timeline of them is compared.
"""
import random
import re

from lib.events import *

LOG = re.compile(r'^"number (\d+) of (\d) and a text that is long enough to span several slots"$')


def decoded(d, snapshot, threads=2):
    """{number} of each thread in the decoded timeline."""
    out = tmp() / "bundle"
    for args in (("fetch", snapshot, "-o", f"{out}/"), ("decode", out, "-o", out / "text", "--format", "text")):
        done = d.tracectl(*args)
        if done.returncode:
            fail(f"tracectl {args[0]}: {done.stderr}")
    found, tracks = [set() for _ in range(threads)], {}
    for line in (out / "text").read_text().splitlines():
        f = line.split("\t")
        log = LOG.match(f[3]) if len(f) > 3 else None
        if f[0] == "C" and f[3].startswith('"numbers '):
            tracks[f[1]] = int(f[3][9:-1])
        elif len(f) > 3 and f[2] == "V" and f[1] in tracks:
            found[tracks[f[1]]].add(int(f[3]))
        elif log:
            found[int(log.group(2))].add(int(log.group(1)))
    shutil.rmtree(out)
    return found


def delete_all(c):
    for old in c.call("snapshot.list")["snapshots"]:
        if old["state"] in ("done", "failed"):
            c.call("snapshot.delete", {"snapshot": old["id"]})


rng = random.Random(4)
with Tracerd() as d, d.client() as c:
    torn_in_all, written = 0, 0
    for i in range(100):
        w = Numbers(d)
        target = registered(c, w.pid)
        # In the middle of a snapshot, too: its copy races with the death.
        if i % 4 == 0:
            c.send("snapshot.create", {"target": target["id"]})
        time.sleep(rng.uniform(0, 0.06))
        w.kill()
        told = w.told()
        s = c.snapshot(registered(c, w.pid, "ended")["id"])
        if s["state"] != "done":
            fail(f"the snapshot is {s['state']}: {s}")
        found, torn, slots = numbers(ring_file(c, s["id"], w.pid))
        check_numbers(found, told, slots, f"kill {i + 1}")
        if i % 10 == 0:
            seen = decoded(d, s["id"])
            for t in range(2):
                if seen[t] != found[t]:
                    fail(f"kill {i + 1}: thread {t}: {len(found[t])} in the rings, {len(seen[t])} in the timeline, "
                         f"{sorted(found[t] ^ seen[t])[:5]} in one of them")
        torn_in_all += torn
        written += sum(told)
        delete_all(c)
        w.close()
    ok(f"100 programs killed while they wrote {written:,} events: all that they had told is there ({torn_in_all} slots torn)")

# The daemon, in the middle of a snapshot, anew each time. What the program wrote is in its rings, as far back as they reach.
d = Tracerd(name="-again")
d.start()
w = Numbers(d, pause_us=20000)
for i in range(20):
    with d.client() as c:
        c.send("snapshot.create", {"target": registered(c, w.pid)["id"]})
        time.sleep(rng.uniform(0, 0.05))
        d.stop(signal.SIGKILL)
    d.start()
with d.client() as c:
    target = registered(c, w.pid)
    told = w.told()
    s = c.snapshot(target["id"])
    if s["state"] != "done":
        fail(f"the snapshot is {s['state']}: {s}")
    found, torn, slots = numbers(ring_file(c, s["id"], w.pid))
    check_numbers(found, told, slots, "20 daemons killed", alive=True)
    ok(f"20 daemons killed: the program was taken in again each time, and all its {sum(told)} events are there")
w.kill()
w.close()
d.stop()
