#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Answers that come later, and lists that do not fit: a snapshot that is waited for, cancelled,
forgotten by its client, or overtaken by SIGTERM; pages of targets that come and go meanwhile."""
from lib import *

SLOW = tmp() / "slow-decoder"


def slow_decoder():
    """In place of the decoder: takes its job and says nothing, until it is killed."""
    SLOW.write_text("#!/bin/sh\nexec sleep 6000\n")
    SLOW.chmod(0o755)
    return f"[daemon]\ndecoder = {SLOW}\n[snapshot]\ndecoder_timeout_s = 3600\nsnapshots_running = 1\nsnapshots_queued = 30\n"


def burn():
    return spawn(sys.executable, "-c", "while True: pass")


def waiting(d, child):
    """With a decoder that hangs, a snapshot stays where it is until something is done about it."""
    with d.client() as waiter, d.client() as other:
        target = other.arm(child.pid)["id"]
        time.sleep(0.3)
        rid = waiter.send("snapshot.create", {"target": target, "wait": True})
        waiter.call("hello")
        ok("a connection that waits is still served")
        snapshot = wait_for("the decoder to start", lambda: [
            s for s in other.call("snapshot.list")["snapshots"] if s["state"] == "decoding"])[0]["id"]
        # Nine more in the queue, one of whose clients goes away.
        ids = [waiter.send("snapshot.create", {"target": target, "wait": True}) for _ in range(8)]
        with d.client() as leaving:
            leaving.send("snapshot.create", {"target": target, "wait": True})
            leaving.call("hello")
        waiter.call("hello")
        queued = [s["id"] for s in other.call("snapshot.list")["snapshots"] if s["state"] in ("queued", "freezing", "copying")]
        expect(len(queued) == 9, f"nine wait behind it ({len(queued)}), though one client has gone")
        # There is an end to what one connection may wait for.
        more = [waiter.send("snapshot.create", {"target": target, "wait": True}) for _ in range(10)]
        errors = [waiter.recv_frame() for _ in range(3)]
        expect(all(m["id"] in more[-3:] and m["error"]["code"] == "busy" for m in errors), "one connection may wait for 16 answers")
        live = sum(s["state"] not in ("done", "cancelled", "failed") for s in other.call("snapshot.list")["snapshots"])
        expect(live == 17, "for the others nothing was begun")
        state = other.call("snapshot.cancel", {"snapshot": queued[0]})["snapshot"]["state"]
        expect(state == "cancelled", "one that waits is cancelled")
        other.call("snapshot.cancel", {"snapshot": snapshot})
        expect(waiter.wait(rid)["snapshot"]["state"] == "cancelled", "one that runs, too, and its client is told")
        expect(other.call_error("snapshot.cancel", {"snapshot": snapshot}) in ("busy", "not_found"), "but only once")
        if other.call_error("snapshot.fetch", {"snapshot": snapshot}) not in ("busy", "not_found"):
            fail("a cancelled snapshot has files")
        # The target is disarmed under the others, and the daemon stopped under what then runs.
        wait_for("the next to run", lambda: [
            s for s in other.call("snapshot.list")["snapshots"] if s["state"] == "decoding"])
        begun = time.monotonic()
        status = d.stop()
        expect(status == 0 and time.monotonic() - begun < 60, f"SIGTERM meanwhile ends in order ({time.monotonic() - begun:.1f} s)")
        answers = []
        try:
            while True:
                m = waiter.recv_frame()
                if m.get("id") in ids:
                    answers.append(m)
        except (Closed, socket.timeout):
            pass
        told = [m for m in answers if m.get("error", {}).get("code") == "shutting_down"
                or m.get("result", {}).get("snapshot", {}).get("state") == "cancelled"]
        expect(len(told) == len(answers) and len(answers) >= 7, f"who waited was told ({len(answers)})")
        left = [p.name for p in (d.state / "spool").iterdir() if p.is_dir()]
        expect(not left, f"nothing half-made is left in the spool {left}")


def long_pages():
    """Entries may be long, since their paths are the targets' own: a page then has fewer of them."""
    here = os.getcwd()
    os.chdir(tmp())
    for _ in range(15):  # no path that is given may be so long, but the program's is
        os.mkdir("\x01" * 250)
        os.chdir("\x01" * 250)
    shutil.copy(shutil.which("sh"), "s")  # by this name: there are systems with one program for sleep, cat and true
    children = [spawn("./s", "-c", "read line", stdin=subprocess.PIPE) for _ in range(240)]
    os.chdir(here)
    try:
        with Tracerd(name="-long") as d, d.client() as c:
            armed, seen, cursor, sizes = [c.arm(p.pid)["id"] for p in children], [], None, []
            while True:
                page = c.call("target.list", {"limit": 500, "cursor": cursor})
                seen += [t["id"] for t in page["targets"]]
                sizes.append(len(json.dumps(page)))
                cursor = page["next"]
                if not cursor:
                    break
            expect(sum(sizes) > 4 << 20 and seen == armed, f"{len(seen)} targets, {sum(sizes) >> 10} KiB, on {len(sizes)} pages")
    finally:
        for p in children:
            p.kill()


def pages(d):
    children = [spawn("sleep", 6000) for _ in range(130)]
    with d.client() as c, d.client() as other:
        mine = [c.arm(p.pid)["id"] for p in children]
        seen, cursor, calls = [], None, 0
        while True:
            params = {"limit": 40, **({"cursor": cursor} if cursor else {})}
            page = c.call("target.list", params)
            seen += [t["id"] for t in page["targets"]]
            calls += 1
            if len(page["targets"]) > 40:
                fail("a page is longer than its limit")
            # One that was seen and one that was not go away between two pages.
            if calls == 1:
                other.call("target.disarm", {"target": seen[3]})
                other.call("target.disarm", {"target": mine[-1]})
            cursor = page["next"]
            if not cursor:
                break
        expect(seen == mine[:-1] and calls == 4, f"{len(seen)} targets on {calls} pages, none twice, none left out")
        expect(len(c.call("target.list")["targets"]) == 50, "a page has 50 where nothing is said")
        shown = c.call("target.show", {"target": children[7].pid})["target"]
        expect(shown["id"] == mine[7] and c.call("target.show", {"target": str(children[7].pid)})["target"]["id"] == mine[7],
               "a target is found by its pid")
        # What one user armed is not for another one.
        if os.geteuid() == 0:
            def body():
                with d.client() as stranger:
                    if stranger.call("target.list") != {"targets": [], "next": None}:
                        raise AssertionError("sees targets of root")
                    if stranger.call_error("target.show", {"target": mine[7]}) != "not_found":
                        raise AssertionError("show")
                    if stranger.call_error("snapshot.create", {"target": mine[7]}) != "not_found":
                        raise AssertionError("snapshot")
                    if stranger.call_error("target.disarm", {"target": mine[7]}) != "not_found":
                        raise AssertionError("disarm")
            expect(as_user(65534, body) == 0, "another user sees none of them")


d = Tracerd(config=slow_decoder(), name="-slow").start()
child = burn()
waiting(d, child)
Tracerd.running.remove(d)
with Tracerd() as d:
    pages(d)
long_pages()
