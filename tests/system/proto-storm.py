#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Connections by the thousand: one after the other, more at a time than there may be, more of one
user than that one may have, and more than there are descriptors. Who is refused is told so (or
waits); who was there before is served all the time; afterwards everything is as it was."""
import resource

from lib import *

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
TOTAL = 10000


def first_words(c):
    """The code that a refused connection is told, or None: it may still be accepted later."""
    try:
        return c.recv_frame()["error"]["code"]
    except Closed:
        return "closed"


def one_by_one(d):
    with d.client() as witness:
        witness.call("hello")
        before = d.fds()
        begun = time.monotonic()
        for i in range(TOTAL):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.connect(str(d.sock))
            if i % 3 == 0:
                s.sendall(b"\0\0")
            s.close()
        took = time.monotonic() - begun
        witness.call("hello")
        wait_for("them to be forgotten", lambda: d.fds() <= before)
    ok(f"{TOTAL} connections one after the other, {TOTAL / took:.0f} a second")


def all_at_once(limit):
    """With TOTAL connections open at a time the limit holds, and those inside are served."""
    with Tracerd(config=f"[daemon]\nmax_connections = {limit}\n", name="-many") as d:
        soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        total = min(TOTAL, soft - 200)
        inside = []
        for _ in range(limit // 2):
            c = d.client()
            c.call("hello")
            inside.append(c)
        before = d.fds()
        outside = []
        for _ in range(total - len(inside)):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.connect(str(d.sock))
            outside.append(s)
        worst = 0.0
        for c in inside:
            begun = time.monotonic()
            c.call("hello")
            worst = max(worst, time.monotonic() - begun)
        status = inside[0].call("status")
        expect(status["clients"]["connected"] <= limit, f"{total} connections at a time, {status['clients']['connected']} let in")
        note(f"slowest answer to one inside: {worst * 1000:.1f} ms")
        outside[-1].settimeout(PATIENCE)
        size = struct.unpack(">I", outside[-1].recv(4))[0]
        answer = json.loads(outside[-1].recv(size))
        expect(answer["error"]["code"] == "busy", "who is refused is told that it is busy")
        for s in outside:
            s.close()
        for c in inside[1:]:
            c.close()
        wait_for("them to be forgotten", lambda: d.fds() < before)
        with d.client() as c:
            c.call("hello")
        ok("afterwards there is room again")


def of_one_user(d):
    """The daemon runs as root, the client does not."""
    def body():
        clients, codes = [], set()
        for _ in range(20):
            c = d.client()
            clients.append(c)
            try:
                c.call("hello", timeout=PATIENCE)
            except Closed:
                codes.add("closed")
            except Error as e:
                codes.add(e.code)
            except TimeoutError:
                codes.add("silence")
        good = sum(1 for c in clients if still_there(c))
        if good != 8:
            fail(f"{good} connections of one user, 8 are allowed")

    def still_there(c):
        try:
            c.call("hello", timeout=PATIENCE)
            return True
        except (Closed, Error, OSError):
            return False

    if as_user(65534, body) != 0:
        fail("the quota of connections")
    with d.client() as c:
        c.call("hello")
        expect(c.call("status")["clients"]["refused_quota"] >= 12, "a user has its share of connections")
    if as_user(65534, lambda: d.client().call("hello")) != 0:
        fail("the share was not given back")
    ok("and gets it back")


def limited(n):
    """A tracerd that may have n descriptors."""
    wrapper = tmp() / f"limited-{n}"
    wrapper.write_text(f'#!/bin/sh\nulimit -n {n}\nexec "{BUILD}/tracerd" "$@"\n')
    wrapper.chmod(0o755)
    return Tracerd(config="[daemon]\nmax_connections = 4096\n", name=f"-limited-{n}", binary=wrapper)


def half_for_clients():
    """However many connect, half of the descriptors are left for the work."""
    with limited(1000) as d:
        first = d.client()
        first.call("hello")
        others = [d.client() for _ in range(600)]
        wait_for("all to be let in or refused", lambda: first.call("status")["clients"]["accepted"] > 600)
        expect(d.fds() < 600, f"600 connections cost {d.fds()} of 1000 descriptors")
        for c in others:
            c.close()


def few_descriptors():
    """No descriptor left to accept with: the others wait in the backlog and are served later."""
    with limited(100) as d:
        with d.client() as c:
            c.call("hello", timeout=PATIENCE)
        ok("who comes while there is room is served")
        clients = []
        for _ in range(400):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.connect(str(d.sock))
            clients.append(s)
        time.sleep(0.3)
        expect(d.alive() and d.fds() < 100, f"{d.fds()} of 100 descriptors are used")

        def rests():
            used = cpu_seconds(d.pid)
            time.sleep(0.5)
            return cpu_seconds(d.pid) - used < 0.05
        wait_for("the daemon rests", rests)
        ok("it does not spin meanwhile")
        late = d.client()
        for s in clients:
            s.close()
        try:
            late.call("hello", timeout=PATIENCE)
        except Closed:
            # its turn came before the ends of the others were seen
            def served():
                try:
                    with d.client() as c:
                        return c.call("hello", timeout=PATIENCE)
                except Closed:
                    return None

            wait_for("room for another one", served)
        ok("who waited is served when there is room")


with Tracerd(config="[quota]\nuid_connections = 8\n") as d:
    one_by_one(d)
    if os.geteuid() == 0:
        of_one_user(d)
all_at_once(1000)
half_for_clients()
few_descriptors()
