#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# The back end pt on a machine without its PMU: says why it is not there, refuses, and leaves everything else as it is. What it
# does with the PMU is tests/rig's.
from lib.capture import *

need_root("a target of the host")
if os.path.exists("/sys/bus/event_source/devices/intel_pt"):
    skip("this machine has Intel PT")
with Tracerd() as d:
    c = d.client()
    pt = c.call("status")["backends"]["pt"]
    expect(not pt["available"] and pt["method"] == "none" and "no intel_pt PMU" in pt["why"], "status says why it is not there")
    t = Target("plain")
    try:
        c.call("target.arm", {"pid": t.pid, "backend": "pt"})
        fail("a PMU that is not there records")
    except Error as e:
        expect(e.code == "unsupported" and "no intel_pt PMU" in str(e) and "--backend sample" in str(e),
               f"who asks for it gets the reason and the alternative: {e}")
    code = "8:1:5:4096:64:f"
    expect(c.call_error("target.arm", {"pid": t.pid, "filters": [code]}) == "unsupported", "samples know no address filter")
    expect(c.call_error("target.arm", {"pid": t.pid, "filters": [code] * 5}) == "bad_params", "nor has any processor five")
    expect(c.call_error("target.arm", {"scope": "host", "backend": "pt"}) == "unsupported", "nor does it record a host")
    expect(c.call_error("target.arm", {"scope": "host", "backend": "step"}) in ("unsupported", "bad_params"), "stepping records none")
    expect(c.call_error("target.arm", {"scope": "host", "pid": t.pid}) == "bad_params", "a host has no pid")
    expect(c.call_error("target.arm", {"scope": "process"}) == "bad_params", "a process has one")
    if c.call("status")["backends"]["sample"]["available"]:
        armed = c.call("target.arm", {"pid": t.pid})["target"]
        expect(armed["backend"] == "sample" and armed["pt"] is None, "auto takes samples")

    def user():
        with Client(d.sock) as u:
            expect(u.call_error("target.arm", {"scope": "host", "backend": "pt"}) in ("unsupported", "not_permitted"),
                   "an ordinary user records no host")
    if as_user(65534, user) != 0:
        fail("the user's half")
