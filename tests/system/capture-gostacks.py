#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Stacks of a Go program that are unwound in the kernel go through the callers that the program knows, to where its goroutines began: in
ordinary builds, stripped ones, position independent ones and those with C in them; where functions have no frame, in their begins and ends,
while the runtime works on the thread's stack, in the vDSO, in C, and where a signal came. Where Go code that C has called leads back to C
the stack ends, and is marked so."""
from lib.gostacks import *

BUILDS = {"an ordinary build": {}, "a stripped build": {"flags": ["-ldflags=-s -w"]},
          "a position independent, stripped build": {"flags": ["-buildmode=pie", "-ldflags=-s -w"]},
          "a build with C": {"cgo": True}, "a stripped build with C": {"cgo": True, "flags": ["-ldflags=-s -w"]},
          "a position independent build with C": {"cgo": True, "flags": ["-buildmode=pie"]}}

need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    for n, (what, how) in enumerate(BUILDS.items()):
        program = build_program(f"stacks{n}", "gostacks", **how)
        if not program:
            note(f"{what}: no C compiler")
            continue
        check_stacks(c, what, program, how.get("cgo", False))
    check_copied(c, tmp() / "stacks0")
