#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 900
# named
"""Stacks of programs of each version of Go that is known go through the callers that the program knows. Versions come through Go's own
mechanism for them, and those that cannot be fetched are left out."""
from lib.gostacks import *

need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    for minor, what, cgo, program in each_build("gostacks", ["-ldflags=-s -w"]):
        check_stacks(c, what, program, cgo, through=minor > 20)
