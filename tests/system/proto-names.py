#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Names in requests that name nothing, or two things: the answer says so in words that its reader can use. A pid that two
targets record is refused with both ids: neither is taken silently."""
from lib import *


def answer(c, method, params):
    """(code, message) of the error that must come."""
    try:
        c.call(method, params)
    except Error as e:
        return e.code, str(e)
    fail(f"{method} {params} was answered")


def ambiguous(d, c):
    child = spawn("sleep", "6000")
    process = c.arm(child.pid)["id"]
    expect(c.call("target.show", {"target": child.pid})["target"]["id"] == process, "one target: the pid names it")
    thread = c.call("target.arm", {"tid": child.pid})["target"]["id"]
    for method, more in (("target.show", {}), ("snapshot.create", {"wait": True}), ("target.disarm", {}),
                         ("trigger.add", {"region": "r", "over_ns": 1})):
        code, text = answer(c, method, {"target": child.pid, **more})
        expect(code == "bad_params" and process in text and thread in text,
               f"{method}: a pid of two targets is refused, and both are named ({code}: {text})")
    expect(c.call("snapshot.list")["snapshots"] == [] and len(c.call("target.list")["targets"]) == 2, "and nothing was done")
    r = d.tracectl("snapshot", child.pid, "-o", tmp() / "out")
    expect(r.returncode != 0 and process in r.stderr and thread in r.stderr, f"tracectl says so: {r.stderr.strip()}")
    for one in (process, thread):
        expect(c.call("target.show", {"target": one})["target"]["id"] == one, "each id is still a name")
    c.call("target.disarm", {"target": process})
    expect(c.call("target.show", {"target": child.pid})["target"]["id"] == thread, "with one disarmed the pid names the other")
    return thread


def nothing(c, target):
    code, text = answer(c, "subscribe", {"events": ["snapshot.state", "nope"]})
    expect(code == "bad_params" and '"nope"' in text, f"an event that does not exist is named ({text})")
    for region in "", "x" * 217:
        code, text = answer(c, "trigger.add", {"target": target, "region": region, "over_ns": 1})
        expect(code == "bad_params" and "1 to 216" in text, f"a region's name has {len(region)} bytes ({text})")


with Tracerd() as d, d.client() as c:
    nothing(c, ambiguous(d, c))
