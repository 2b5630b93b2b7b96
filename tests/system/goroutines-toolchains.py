#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# named
"""Goroutines are read of programs of each version of Go that is known: what samples and waits say is what the program does. Versions come
through Go's own mechanism for them, and those that cannot be fetched are left out."""
from lib.goids import *

need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    for minor, what, cgo, program in each_build("goids"):
        how, meta, recs, text, s, said = record(c, program, stacks="fp", least=1500, symbols=True)
        expect(how["version"] == f"1.{minor}" and not how["refused"], f"{what}: it is known: {how}")
        counts, kinds = check(what, recs, said)
        expect(sum(counts.values()) > 100 and len(counts) > 4, f"{what}: of many functions: {dict(counts)}")
