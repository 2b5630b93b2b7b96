#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# slow
"""Traces of ten programs that are made here and now: what is printed of each is what go tool trace prints of the same bytes, and the
timeline has each change of a goroutine's state that it tells of, at its time."""
import collections

from lib.golang import *

PROGRAM = """package main

import (
	"context"
	"io"
	"iter"
	"net"
	"os"
	"runtime"
	"runtime/trace"
	"sync"
	"syscall"
	"time"
)

var sink []byte

func each(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Add(1)
		go func() { defer wg.Done(); f(i) }()
	}
	wg.Wait()
}

func channels() {
	c, d := make(chan int), make(chan int, 3)
	go func() { for i := range 500 { c <- i }; close(c) }()
	go func() { for i := range c { select { case d <- i: case <-time.After(time.Second): } }; close(d) }()
	for range d { }
}

func timers() {
	each(20, func(i int) { t := time.NewTicker(time.Duration(i+1) * 100 * time.Microsecond); for range 5 { <-t.C }; t.Stop() })
}

func network() {
	l, _ := net.Listen("tcp", "127.0.0.1:0")
	go func() { for { c, err := l.Accept(); if err != nil { return }; go io.Copy(c, c) } }()
	each(8, func(i int) {
		c, _ := net.Dial("tcp", l.Addr().String())
		b := make([]byte, 100)
		for range 20 { c.Write(b); io.ReadFull(c, b) }
		c.Close()
	})
	l.Close()
}

func garbage() {
	each(4, func(i int) { var keep [][]byte; for n := range 3000 { keep = append(keep, make([]byte, 4096)); if n%1000 == 0 { keep = nil } }; sink = keep[0] })
	runtime.GC()
}

func locks() {
	var mu sync.RWMutex
	var once sync.Once
	cond := sync.NewCond(&sync.Mutex{})
	ready := false
	each(16, func(i int) {
		once.Do(func() { time.Sleep(time.Millisecond); cond.L.Lock(); ready = true; cond.L.Unlock(); cond.Broadcast() })
		cond.L.Lock(); for !ready { cond.Wait() }; cond.L.Unlock()
		for range 50 { if i%4 == 0 { mu.Lock(); mu.Unlock() } else { mu.RLock(); runtime.Gosched(); mu.RUnlock() } }
	})
}

func calls() {
	each(6, func(i int) { r, w, _ := os.Pipe(); for range 30 { w.Write([]byte{1}); var b [1]byte; r.Read(b[:]); syscall.Getpid() }; r.Close(); w.Close() })
}

func coroutines() {
	next, stop := iter.Pull(func(yield func(int) bool) { for i := range 300 { if !yield(i) { return } } })
	for range 200 { next() }
	stop()
}

func annotations() {
	ctx, task := trace.NewTask(context.Background(), "whole")
	each(10, func(i int) {
		ctx, part := trace.NewTask(ctx, "part")
		defer part.End()
		trace.WithRegion(ctx, "outer", func() { trace.WithRegion(ctx, "inner", func() { trace.Logf(ctx, "step", "%d", i) }) })
	})
	task.End()
}

func many() {
	stop := make(chan int)
	var wg sync.WaitGroup
	for range 100000 { wg.Add(1); go func() { defer wg.Done(); <-stop }() }
	close(stop)
	wg.Wait()
}

func threads() {
	each(4, func(i int) { runtime.LockOSThread(); for range 20 { runtime.GOMAXPROCS(1 + i%2); time.Sleep(50 * time.Microsecond) } })
}

func main() {
	trace.Start(os.Stdout)
	defer trace.Stop()
	map[string]func(){"channels": channels, "timers": timers, "network": network, "garbage": garbage, "locks": locks, "calls": calls,
		"coroutines": coroutines, "annotations": annotations, "many": many, "threads": threads}[os.Args[1]]()
}
"""
NAMES = {"Runnable": "runnable", "Running": "running", "Waiting": "waiting", "Syscall": "system call"}
TRANSITION = re.compile(r" StateTransition Time=(\d+) GoID=(\d+) (\w+)->(\w+) ")
TRACK = re.compile(r'K\t(\d+)\t(\d+)\t"G(\d+)')
SLICE = re.compile(r'(\d+)\t(\d+)\tB\t"(running|runnable|waiting|system call)[":]')

(tmp() / "live").mkdir()
(tmp() / "live/main.go").write_text(PROGRAM)
(tmp() / "live/go.mod").write_text("module live\n\ngo 1.23\n")
program = tmp() / "program"
p = subprocess.run([go, "build", "-o", program, "."], cwd=tmp() / "live", env=env, capture_output=True, text=True)
expect(p.returncode == 0, f"the programs are built: {p.stderr}")


def decode(trace, how):
    out = tmp() / "out"
    p = subprocess.run([BUILD / "tracectl", "decode", "--format", how, "-o", out, trace], capture_output=True, timeout=PATIENCE,
                       env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if p.returncode:
        fail(f"{trace.name}: {p.stderr.decode()}")
    return out.read_bytes()


for name in re.findall(r'"(\w+)": \w+[,}]', PROGRAM):
    trace = tmp() / f"{name}.trace"
    with trace.open("wb") as f:
        subprocess.run([program, name], stdout=f, check=True, timeout=PATIENCE)
    for how in ("parsed", "wire"):
        theirs = subprocess.run([go, "tool", "trace", f"-d={how}", trace], capture_output=True, env=env, timeout=PATIENCE).stdout
        if decode(trace, f"go-{how}") != theirs:
            fail(f"{name}: go-{how} differs from go tool trace -d={how}")
    parsed = decode(trace, "go-parsed").decode("utf-8", "replace")
    changes = collections.Counter()
    for time, g, before, now in TRANSITION.findall(parsed):
        # what was so when the trace began is drawn from there
        if before != now and before != "Undetermined" and now in NAMES:
            changes[int(g), int(time), NAMES[now]] += 1
    text = decode(trace, "text").decode("utf-8", "replace")
    tracks = {track: int(g) for track, _, g in TRACK.findall(text)}
    begin = min(int(t) for t in re.findall(r"^(\d+)\t\d+\tB", text, re.M))
    drawn = collections.Counter((tracks[track], int(time), state) for time, track, state in SLICE.findall(text)
                                if track in tracks and int(time) != begin)
    if name == "many":
        # a track each for the first of them; those that share lanes come and go on them
        expect(len(tracks) == 1024 and not drawn - changes, f"{name}: {sum(changes.values())} changes; 1024 goroutines have tracks of their own")
    else:
        expect(drawn == changes and changes, f"{name}: {sum(changes.values())} changes of {len(tracks)} goroutines are drawn at their times: "
                                             f"{list((drawn - changes).items())[:3]} {list((changes - drawn).items())[:3]}")
