#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# named
"""Goroutines are read of programs of each version of Go that is known: what samples and waits say is what the program does. Versions come
through Go's own mechanism for them, and those that cannot be fetched are left out."""
from lib.goids import *

# Go 1.19 from the module proxy builds no package; its structures are those of 1.18 and 1.20.
VERSIONS = {18: "go1.18.10", 20: "go1.20.14", 21: "go1.21.13", 22: "go1.22.12", 23: "go1.23.12", 24: "go1.24.13", 25: "go1.25.8",
            26: "go1.26.8", 27: "go1.27.4"}
need_root("BPF")
with Tracerd() as d:
    c = d.client()
    if not c.call("status")["capture"].get("unwinds"):
        skip("stacks are not unwound in the kernel here, which the reading of goroutines goes with")
    tried = 0
    for minor, toolchain in VERSIONS.items():
        if version(GOTOOLCHAIN=toolchain) != minor:
            note(f"{toolchain} is not here and cannot be fetched")
            continue
        for cgo in (False, True):
            program = build(f"goids-{minor}-{cgo}", toolchain, cgo)
            if not program:
                continue
            what = f"{toolchain}{' with C' if cgo else ''}"
            how, meta, recs, text, s, said = record(c, program, stacks="fp", least=1500, symbols=True)
            expect(how["version"] == f"1.{minor}" and not how["refused"], f"{what}: it is known: {how}")
            counts, kinds = check(what, recs, said)
            expect(sum(counts.values()) > 100 and len(counts) > 4, f"{what}: of many functions: {dict(counts)}")
            tried += 1
    if not tried:
        skip("no version of Go can be had")
