#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Messages that are none: garbage, halves, too long, too deep, keys twice, another version. Each
gets a typed error or the end of its own connection; the daemon and everybody else go on."""
import random

from lib import *

CONFIG = "[client]\nclient_read_timeout_s = 3\n"
PAGE = 65536


def ends(client):
    """All that still arrives before the connection ends."""
    out = []
    try:
        while True:
            out.append(client.recv_frame())
    except Closed:
        return out
    except (TimeoutError, socket.timeout):
        fail("the connection was not ended")


def refused(d, text, code, keeps=False):
    """Sends one frame; it must be answered with this code, and the connection kept or ended."""
    with d.client() as c:
        c.send_frame(text)
        answer = c.recv_frame()
        if answer.get("error", {}).get("code") != code:
            fail(f"{text[:60]!r} was answered {answer}, not {code}")
        if keeps:
            c.call("hello")
        elif ends(c):
            fail("something came behind the last answer")


def garbage(d):
    rng = random.Random(3)
    for i in range(300):
        with d.client() as c:
            try:
                c.send_bytes(rng.randbytes(rng.randrange(1, 3000)))
                # As likely as not these are half of something long: the client goes away.
                if i % 2:
                    c.sock.shutdown(socket.SHUT_WR)
                    ends(c)
            except Closed:
                pass
    for i in range(300):
        body = rng.randbytes(rng.randrange(1, 500))
        refused(d, body, "bad_request")


def lengths(d):
    for head in (b"\0\0\0\0", struct.pack(">I", PAGE + 1), b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff"):
        with d.client() as c:
            c.send_bytes(head + b"{}")
            answer = c.recv_frame()
            if answer["error"]["code"] != "too_large" or answer["id"] is not None:
                fail(f"length {head!r}: {answer}")
            ends(c)
    # The longest request there may be, and one byte more.
    head, tail = b'{"v":1,"id":1,"method":"hello","unknown":"', b'"}'
    with d.client() as c:
        c.send_frame(head + b"x" * (PAGE - len(head) - len(tail)) + tail)
        if "result" not in c.recv_frame():
            fail("64 KiB were refused")
    refused(d, head + b"x" * (PAGE + 1 - len(head) - len(tail)) + tail, "too_large")


def halves(d):
    whole = struct.pack(">I", 38) + b'{"v":1,"id":1,"method":"hello","x":""}'
    for cut in range(1, len(whole)):
        with d.client() as c:
            c.send_bytes(whole[:cut])
    with d.client() as c:
        for i in range(len(whole)):
            c.send_bytes(whole[i:i + 1])
        if "result" not in c.recv_frame():
            fail("byte by byte was refused")
    # Silence inside of a message is ended, also when a byte comes now and then.
    begun = time.monotonic()
    with d.client() as silent, d.client() as dripping:
        silent.send_bytes(whole[:10])
        try:
            for byte in struct.pack(">I", PAGE) + b" " * 600:
                dripping.send_bytes(bytes([byte]))
                time.sleep(0.1)
            fail("a message may drip for ever")
        except Closed:
            pass
        ends(silent)
        ends(dripping)
    if time.monotonic() - begun < 2.8:
        fail("half a message was ended before its time")


def strictness(d):
    for text in ('[' * 17 + ']' * 17, '{"a":' * 17 + '1' + '}' * 17, '[' * 60000,
                 '{"v":1,"v":1,"id":1,"method":"hello"}',
                 '{"v":1,"id":1,"method":"hello","params":{"a":1,"\\u0061":2}}',
                 '{"v":1,"id":1,"method":"hello"} ', '{"v":1,"id":1,"method":"hello"}\0', '{"v":1,"id":1,"method":"hello"}{}',
                 '{"v":1,"id":1e400,"method":"hello"}', '{"v":1,"id":99999999999999999999,"method":"hello"}',
                 '{"v":1,"id":1,"method":"hello",}', "{'v':1}", '{"v":1,"id":1,"method":"\\u0000"}', 'NaN', '', ' '):
        if text.endswith("} "):
            continue  # white space behind the value is no byte too many
        if text:
            refused(d, text, "bad_request")
    refused(d, b'{"v":1,"id":1,"method":"\xff"}', "bad_request")
    refused(d, b'{"v":1,"id":1,"method":"\xed\xa0\x80"}', "bad_request")


def envelopes(d):
    for message, code in (({"v": 2, "id": 5, "method": "hello"}, "bad_request"),
                          ({"id": 5, "method": "hello"}, "bad_request"),
                          ({"v": "1", "id": 5, "method": "hello"}, "bad_request"),
                          ({"v": 1, "id": 5}, "bad_request"),
                          ({"v": 1, "id": 5, "method": 7}, "bad_request"),
                          ({"v": 1, "id": 5, "method": "hello", "params": []}, "bad_params"),
                          ({"v": 1, "id": 5, "method": ""}, "unknown_method"),
                          ({"v": 1, "id": 5, "method": "Hello"}, "unknown_method"),
                          ({"v": 1, "id": 5, "method": "ping"}, "unknown_method"),
                          ({"v": 1, "id": 5, "method": "hello\n"}, "unknown_method"),
                          ({"v": 1, "id": 5, "method": "target.show"}, "bad_params"),
                          ({"v": 1, "id": 5, "method": "target.show", "params": {"target": "t99999"}}, "not_found"),
                          ({"v": 1, "id": 5, "method": "subscribe", "params": {"events": ["nope"]}}, "bad_params"),
                          ({"v": 1, "id": 5, "method": "target.list", "params": {"cursor": "x"}}, "bad_params")):
        with d.client() as c:
            c.send_frame(message)
            answer = c.recv_frame()
            if answer.get("id") != 5 or answer.get("error", {}).get("code") != code:
                fail(f"{message}: {answer}")
            c.call("hello")
    refused(d, '{"v":1,"method":"hello"}', "bad_request", keeps=True)
    refused(d, '{"v":1,"id":"x","method":"hello"}', "bad_request", keeps=True)
    refused(d, '[]', "bad_request", keeps=True)
    refused(d, '7', "bad_request", keeps=True)
    with d.client() as c:
        # Fields that this version does not know are of a later one.
        c.send_frame({"v": 1, "id": 9, "method": "hello", "params": {"new": {"a": [1]}}, "later": True, "nfds": 0})
        r = c.recv_frame()
        if r.get("id") != 9 or r["result"]["protocol"] != 1:
            fail(f"unknown fields: {r}")
        # An answer to what was never asked is no reason to end anything.
        c.send_frame({"v": 1, "id": -77, "result": {}})
        c.send_frame({"v": 1, "id": -(2**63), "error": {"code": "x"}})
        c.call("hello")


def pipeline(d):
    with d.client() as c:
        ids = [c.send("target.list") for _ in range(500)]
        for rid in ids:
            answer = c.recv_frame()
            if answer["id"] != rid or answer["result"]["next"] is not None:
                fail(f"answers are out of order: {answer} for {rid}")
    with d.client() as c:
        # A client that has said all may close its side and still gets its answers.
        c.send("hello")
        c.send("status")
        c.sock.shutdown(socket.SHUT_WR)
        if len(ends(c)) != 2:
            fail("answers were lost behind the end of the requests")


def check(uid):
    who = f"uid {uid}" if uid is not None else "as started"
    with Tracerd(config=CONFIG, name=f"-{uid}", uid=uid) as d:
        before = None
        with d.client() as witness:
            witness.call("hello")
            before = d.fds()
            for part in (garbage, lengths, halves, strictness, envelopes, pipeline):
                part(d)
                hello = witness.call("hello")
                if hello["protocol"] != 1:
                    fail(f"hello says {hello}")
                if not d.alive():
                    fail(f"tracerd ended during {part.__name__}")
                ok(f"{part.__name__} ({who})")
            wait_for("descriptors to be closed", lambda: d.fds() <= before)
            ok(f"no descriptor is left behind ({who})")
            status = witness.call("status")
            expect(status["clients"]["bad_messages"] > 300 and status["clients"]["timeouts"] >= 2, "it was counted")


check(None)
if os.geteuid() == 0:
    check(65534)
