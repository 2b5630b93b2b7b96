#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
"""Clients that do not read, do not speak, or do not answer: none of them makes the daemon wait,
grow or forget the others, and each is dropped in its time."""
from lib import *

# Whom the daemon drops, it drops soon; and none where another is looked at, however slow the machine is.
SHORT = """[client]
client_read_timeout_s = 5
client_write_timeout_s = 1
client_idle_s = 2
client_ping_s = 1
client_queue_kib = 1024
"""
PATIENT = """[client]
client_read_timeout_s = 3600
client_write_timeout_s = 3600
client_queue_kib = 1024
client_events = 8
"""


def rss_kib(d):
    for line in open(f"/proc/{d.pid}/status"):
        if line.startswith("VmRSS:"):
            return int(line.split()[1])


def gone(c):
    """The connection ends; pings on the way are not answered."""
    try:
        while c.sock.recv(65536):
            pass
        return True
    except ConnectionResetError:
        return True


def ask_much(d):
    """Clients that ask as much as they can and read nothing; the bytes that they have sent."""
    clients = [d.client() for _ in range(20)]
    frame = struct.pack(">I", 34) + b'{"v":1,"id":1,"method":"status"}  '
    sent = 0
    for c in clients:
        c.sock.setblocking(False)
        try:
            while sent < 1 << 30:
                sent += c.sock.send(frame * 100)
        except (BlockingIOError, BrokenPipeError, ConnectionResetError):
            pass
    return clients, sent


def never_reads(d):
    before = rss_kib(d)
    clients, sent = ask_much(d)
    with d.client() as witness:
        wait_for("all to be connected", lambda: witness.call("status")["clients"]["connected"] == len(clients) + 1)
    ok(f"{sent >> 10} KiB of requests whose answers nobody reads: the next one's is served")
    grown = rss_kib(d) - before
    expect(grown < 40 * 1024, f"memory grew by {grown} KiB")
    for c in clients:
        c.close()


def are_dropped(d):
    clients, _ = ask_much(d)
    wait_for("them to be dropped", lambda: d.status()["clients"]["connected"] == 0)
    ok("they are dropped")
    for c in clients:
        c.close()


def many_at_once():
    """Who asks much before it reads is served bit by bit; the smallest queue does for that."""
    with Tracerd(config="[client]\nclient_queue_kib = 64\n", name="-small") as d, d.client() as c:
        # What the daemon does not read yet waits in our own socket, where a small message takes kilobytes.
        c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
        for i in range(100):
            c.send("status")
        for i in range(100):
            if c.recv_frame()["id"] != i + 1:
                fail("answers are not in order")
        expect(d.status()["clients"]["overflows"] == 0, "100 requests, then their answers, with the smallest queue")


def silent(d):
    c = d.client()
    begun = time.monotonic()
    expect(gone(c) and time.monotonic() - begun > 1.5, "who never speaks is dropped after client_idle_s")


def subscribers(d):
    answering, mute = d.client(), d.client()
    answering.call("subscribe")
    mute.call("subscribe")
    pings, dropped = 0, False
    while pings < 2 or not dropped:
        ready = select.select([answering.sock] + [mute.sock] * (not dropped), [], [])[0]
        if mute.sock in ready:
            try:
                dropped = not mute.sock.recv(65536)
            except ConnectionResetError:
                dropped = True
        if answering.sock not in ready:
            continue
        m = answering.recv_frame()
        if m.get("method") == "ping":
            if m["id"] >= 0:
                fail(f"a request of the daemon has id {m['id']}")
            pings += 1
            answering.send_frame({"v": 1, "id": m["id"], "result": {}})
    answering.call("hello")
    ok(f"a quiet subscriber is asked whether it is there ({pings} times); one that does not answer is dropped")
    answering.call("unsubscribe")
    answering.close()


def missed_events(d):
    """Events come from arming and disarming; the reader sleeps, then finds the gap told."""
    with d.client() as sleeper, d.client() as reader, d.client() as actor:
        sleeper.call("subscribe", {"events": ["target.state"]})
        reader.call("subscribe", {"events": ["target.state"]})
        child = spawn("sleep", 6000)
        try:
            target = actor.arm(child.pid)["id"]
        except Error as e:
            note(f"no events without a target ({e})")
            return
        actor.call("target.disarm", {"target": target})
        first = reader.event("target.state")
        expect(first["seq"] == 1 and first["missed"] == 0 and first["data"]["id"] == target, "events are numbered")
        # Fill the socket of the sleeper, and then its queue.
        for _ in range(600):
            t = actor.arm(child.pid)["id"]
            actor.call("target.disarm", {"target": t})
            if d.status()["clients"]["events_missed"] > 20:
                break
            while select.select([reader.sock], [], [], 0)[0]:
                reader._keep(reader.recv_frame())
        else:
            fail("no event was missed by who does not read")
        expect(d.alive(), "who subscribes and does not read misses events")
        # The next event after those that were queued says how many there were in between.
        seq, missed = 0, 0
        while not missed:
            t = actor.arm(child.pid)["id"]
            actor.call("target.disarm", {"target": t})
            while not missed and select.select([sleeper.sock], [], [], 0.1)[0]:
                m = sleeper.recv_frame()
                if "event" not in m:
                    continue
                if m["seq"] - seq - 1 != m["missed"]:
                    fail(f"event {m['seq']} follows {seq} but says that {m['missed']} were missed")
                seq, missed = m["seq"], m["missed"]
        ok(f"the gap is told: {missed} missed before {seq}")


many_at_once()
with Tracerd(config=SHORT) as d:
    silent(d)
    subscribers(d)
    are_dropped(d)
with Tracerd(config=PATIENT, name="-patient") as d:
    never_reads(d)
    missed_events(d)
