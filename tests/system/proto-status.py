#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""status.sock: what it answers, and that neither a storm of polls, nor slow pollers, nor a busy
control socket keep it (or each other) from answering."""
import re

from lib import *

SHORT = "[client]\nclient_read_timeout_s = 1\nclient_write_timeout_s = 1\n"
# Who waits for others to be dropped waits for ever.
PATIENT = "[client]\nclient_read_timeout_s = 3600\nclient_write_timeout_s = 3600\n"


def raw(d, request):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(PATIENCE)
        s.connect(str(d.status_sock))
        s.sendall(request)
        data = b""
        try:
            while chunk := s.recv(65536):
                data += chunk
        except ConnectionResetError:
            pass  # it did not want to read all of the request
        return data


def answers(d):
    status = d.status()
    expect(status["pid"] == d.pid and status["state"] in ("running", "degraded"), "GET /status")
    for key in ("version", "uptime_s", "capabilities", "backends", "targets", "snapshots", "spool", "losses", "clients",
                "quota", "decoder"):
        if key not in status:
            fail(f"/status has no {key}: {sorted(status)}")
    for entry in status["capabilities"]["lack"]:
        if not entry["what"] or not entry["cost"]:
            fail(f"what lacks has no cost: {entry}")
    ok("all parts are there")
    with d.client() as c:
        expect(sorted(c.call("status")) == sorted(status), "the control socket tells the same")
    line, body = http_get(d.status_sock, "/metrics")
    text = body.decode()
    expect(line == "HTTP/1.0 200 OK" and text.endswith("# EOF\n"), "GET /metrics")
    kinds = {}
    for row in text.splitlines():
        if row.startswith("# TYPE "):
            _, _, name, kind = row.split(" ")
            if name in kinds:
                fail(f"metric {name} twice")
            kinds[name] = kind
        elif not row.startswith("#"):
            m = re.fullmatch(r'([a-z_]+)(\{[a-z]+="[A-Za-z0-9_.-]*"\})? -?[0-9]+', row)
            if not m:
                fail(f"not OpenMetrics: {row}")
            name = re.sub("_(total|info)$", "", m[1])
            if m[1] != name and kinds[name] not in ("counter", "info"):
                fail(f"{row}: not a counter")
            if m[1] == name and kinds.get(name) != "gauge":
                fail(f"{row}: no gauge")
    for name in ("tracerd_targets", "tracerd_snapshots", "tracerd_spool_bytes", "tracerd_losses", "tracerd_connections"):
        if name not in kinds:
            fail(f"/metrics has no {name}")
    ok(f"{len(kinds)} metrics are well formed")


def refusals(d):
    for request, line in ((b"GET / HTTP/1.0\r\n\r\n", b"404"), (b"GET /statusx HTTP/1.0\r\n\r\n", b"404"),
                          (b"POST /status HTTP/1.0\r\n\r\n", b"405"), (b"\r\n\r\n", b"400"), (b"\0" * 100 + b"\n\n", b"400"),
                          (b"GET /status?x=1 HTTP/1.1\r\nHost: x\r\n\r\n", b"200"), (b"GET /status HTTP/1.0\n\n", b"200"),
                          (b"GET /status HTTP/1.0\r\n" + b"a: b\r\n" * 1000, b"400")):
        got = raw(d, request)
        if not got.startswith(b"HTTP/1.0 " + line):
            fail(f"{request[:40]!r}: {got[:60]!r}")
        head, _, body = got.partition(b"\r\n\r\n")
        size = re.search(rb"Content-Length: (\d+)", head)
        if int(size[1]) != len(body):
            fail(f"{request[:40]!r}: Content-Length {size[1]!r}, {len(body)} came")
    ok("what is not asked well is told so")


def half_requests(d):
    stuck = []
    for part in (b"", b"GET", b"GET /status HTTP/1.0\r\n"):
        for _ in range(30):
            s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            s.connect(str(d.status_sock))
            s.sendall(part)
            stuck.append(s)
    return stuck


def dropped(d):
    before = d.fds()
    stuck = half_requests(d)
    wait_for("them to be dropped", lambda: d.fds() <= before)
    ok("half requests are dropped in their time")
    for s in stuck:
        s.close()


def slow(d):
    stuck = half_requests(d)
    d.status()
    ok("90 half requests do not keep another from its answer")
    for s in stuck:
        s.close()
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(PATIENCE)
    s.connect(str(d.status_sock))
    for byte in b"GET /metrics HTTP/1.0\r\n\r\n":
        s.sendall(bytes([byte]))
    expect(s.recv(15) == b"HTTP/1.0 200 OK", "byte by byte is served too")
    s.close()


def under_load(d):
    flood = [d.client() for _ in range(4)]
    frame = struct.pack(">I", 41) + b'{"v":1,"id":1,"method":"snapshot.list"}  '
    for c in flood:
        c.sock.setblocking(False)
    times = []
    for i in range(1500):
        for c in flood:
            try:
                c.sock.send(frame * 8)
            except BlockingIOError:
                pass
            try:
                c.sock.recv(1 << 20)
            except BlockingIOError:
                pass
        begun = time.monotonic()
        http_get(d.status_sock, "/status")
        times.append(time.monotonic() - begun)
    times.sort()
    ok(f"the control socket is flooded, and each poll is answered: p50 {times[len(times) // 2] * 1e6:.0f} us, "
           f"p99 {times[len(times) * 99 // 100] * 1e6:.0f} us")
    for c in flood:
        c.close()


def storm(d):
    begun, n = time.monotonic(), 5000
    before = d.fds()
    for _ in range(n):
        http_get(d.status_sock, "/status")
    took = time.monotonic() - begun
    ok(f"{n} polls of one client in a row, {n / took:.0f} a second with Python's share in it")
    wait_for("no descriptor left", lambda: d.fds() <= before)
    # The picture may be a quarter of a second old.
    wait_for("them to be counted", lambda: d.status()["clients"]["status_polls"] >= n)
    ok("they are counted")


with Tracerd(config=SHORT, name="-short") as d:
    dropped(d)
with Tracerd(config=PATIENT) as d:
    answers(d)
    refusals(d)
    slow(d)
    under_load(d)
    storm(d)
