#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# named
"""Stacks of programs of each version of Go that is known go through the callers that the program knows. Versions come through Go's own
mechanism for them, and those that cannot be fetched are left out."""
from lib.gostacks import *

# Go 1.19 from the module proxy builds no package.
VERSIONS = {18: "go1.18.10", 20: "go1.20.14", 21: "go1.21.13", 22: "go1.22.12", 23: "go1.23.12", 24: "go1.24.13", 25: "go1.25.8",
            26: "go1.26.8", 27: "go1.27.4"}
need_root("BPF")
with Tracerd() as d:
    c = d.client()
    if not c.call("status")["capture"].get("unwinds"):
        skip("stacks are not unwound in the kernel here")
    tried = 0
    for minor, toolchain in VERSIONS.items():
        if version(GOTOOLCHAIN=toolchain) != minor:
            note(f"{toolchain} is not here and cannot be fetched")
            continue
        for cgo in (False, True):
            program = build_stacks(f"stacks-{minor}-{cgo}", toolchain, cgo, ["-ldflags=-s -w"])
            if program:
                check_stacks(c, f"{toolchain}{' with C' if cgo else ''}", program, cgo, through=minor > 20)
                tried += 1
    if not tried:
        skip("no version of Go can be had")
