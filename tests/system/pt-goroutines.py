#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 1200
"""Stacks of goroutines follow the goroutine, from thread to thread: each call is there once, in what the program itself says has
called it, or within a mark that this is in doubt, or nobody is said to have called it."""
from lib.gocalls import *


def stepped(work, name, program, kinds, env, options, count=1):
    """From its begin to its end."""
    p = Recording(work, name, [program, count, *kinds], env={"GOGC": "off", **env}, options=options)
    said = noted(p.output)
    if not said:
        fail(f"{name}: the program says nothing")
    return follows(name, decoded(p.data), said)


with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    program, kinds = build_switches(work)
    # How many are certain depends on what else the runtime's threads do meanwhile, and so on the machine's load: unit tests tell when.
    calm = {"GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"}
    whole, _, _ = stepped(work, "one thread", program, [k for k in kinds if k != "spin"], calm, ["--time-insns", "1"])
    expect(whole, "and some are certain")
    # Threads that run at the same time, whose times are interpolated, and preemption by signals.
    stepped(work, "three threads", program, [k for k in kinds if k in ("chan", "pull", "spin", "pin", "c")], {"GOMAXPROCS": "3"}, [])
