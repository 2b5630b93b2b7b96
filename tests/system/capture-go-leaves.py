#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Go's functions that call nobody have no frame: a chain of frame pointers passes over who has called them. He is found in the code, or
said to be missing; and a Go program that is armed without a choice has its stacks unwound in the kernel, where that can be done."""
from lib.golang import *
from lib.capture import *

PROGRAM = """
package main

import (
	"bytes"
	"runtime"
	"sync"
	"time"
)

var sinks [8]int
var mu sync.Mutex

//go:noinline
func leaf(n int) int {
	s := n
	for i := 0; i < 20000; i++ {
		s = s*33 ^ i
	}
	return s
}

//go:noinline
func compress(slot int) {
	for {
		sinks[slot] += leaf(slot)
	}
}

//go:noinline
func parse(slot int) {
	for {
		sinks[slot] += leaf(slot)
	}
}

//go:noinline
func lookup(b []byte) int { return bytes.IndexByte(b, 7) }

//go:noinline
func search(b []byte) {
	for {
		sinks[2] += lookup(b)
	}
}

//go:noinline
func copies(a, b []byte) { copy(a, b) }

//go:noinline
func copier(b []byte) {
	a := make([]byte, len(b))
	for {
		copies(a, b)
	}
}

//go:noinline
func rebuildIndex() {
	mu.Lock()
	for i := 0; i < 2000; i++ {
		sinks[4] += leaf(i)
	}
	mu.Unlock()
}

//go:noinline
func maintenance() {
	for {
		rebuildIndex()
		time.Sleep(5 * time.Millisecond)
	}
}

func main() {
	runtime.GOMAXPROCS(4)
	go compress(0)
	go parse(1)
	go search(make([]byte, 50000))
	go copier(make([]byte, 50000))
	go maintenance()
	select {}
}
"""
# Who may be right above it, and what then.
CALLERS = {"main.leaf": {"main.compress": [], "main.parse": [], "main.rebuildIndex": ["main.maintenance"]},
           "runtime.memmove": {"main.copies": ["main.copier"]}}
UNKNOWN = "[caller not recorded]"

need_root("records")
(work / "leaves").mkdir(parents=True)
(work / "leaves/main.go").write_text(PROGRAM)
(work / "leaves/go.mod").write_text("module leaves\n\ngo 1.18\n")
run("build", "-o", tmp() / "leaves", ".", cwd="leaves")

with Tracerd() as d, d.client() as c:
    p = spawn(tmp() / "leaves")
    kinds = ["fp", "auto"] if c.call("status")["capture"].get("unwinds") else ["fp"]
    for stacks in kinds:
        target = c.arm(p.pid, stacks=stacks)["id"]
        if stacks == "auto":
            wait_for("its stacks are unwound in the kernel", lambda: (t := c.call("target.show", {"target": target})["target"])["stacks"] == "bpf"
                     and t["sample"]["unwound"]["complete"] > 1000)
        else:
            let_work(p.pid, seconds=3)
        s = c.snapshot(target)
        found, missing, wrong, callers = 0, 0, [], collections.Counter()
        for h in s["summary"]["heaviest"]:
            stack = [f for f in h["stack"] if not f.startswith("[kernel")]
            if stack[-1] not in CALLERS or len(stack) < 2:
                continue
            caller, above = stack[-2], stack[:-2]
            if caller == UNKNOWN:
                missing += h["samples"]
            elif caller not in CALLERS[stack[-1]] or any(f not in above for f in CALLERS[stack[-1]][caller]):
                wrong.append((h["samples"], stack))
            else:
                found += h["samples"]
                callers[caller] += h["samples"]
        note(f"{stacks}: {found} {dict(callers)}, {missing} without")
        expect(not wrong, f"{stacks}: no wrong caller: {wrong[:3]}")
        expect(len(callers) >= 3 and missing * 20 < found, f"{stacks}: nearly all are found: {dict(callers)}, not {missing}")
        c.call("target.disarm", {"target": target})
    p.kill()
