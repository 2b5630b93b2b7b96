#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Execution traces of Go programs: what tracectl decode prints of each is what Go's own tool has printed, also of damaged ones up to
where they break; and it says where and why. A trace made here and now, too, where there is a Go."""
import hashlib
import lzma
import shutil

from lib import *

DATA = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "go"
# What is said of these is ours: Go's text has an address in it, or names another state than the one that is missing.
OUR_WORDS = {"damaged/flip/go1.26-cgo-callback-08.trace": "multiple trace.stacks with the same ID: id=25",
             "damaged/flip/go1.25-annotations-stress-05.trace": "GoSyscallEndBlocked event for goroutine that's not Syscall"}
PROGRAM = """package main

import (
	"context"
	"os"
	"runtime"
	"runtime/trace"
	"sync"
	"time"
)

func main() {
	trace.Start(os.Stdout)
	defer trace.Stop()
	ctx, task := trace.NewTask(context.Background(), "work \\xff \u00e9")
	defer task.End()
	var wg sync.WaitGroup
	c := make(chan int)
	for i := 0; i < 50; i++ {
		wg.Add(1)
		go func() {
			defer wg.Done()
			defer trace.StartRegion(ctx, "part").End()
			trace.Log(ctx, "key", "value")
			for n := range c {
				time.Sleep(time.Duration(n%3) * time.Millisecond)
				_ = make([]byte, 1<<16)
			}
		}()
	}
	for i := 0; i < 500; i++ {
		c <- i
	}
	close(c)
	wg.Wait()
	runtime.GC()
}
"""


def decode(how, path):
    return subprocess.run([BUILD / "tracectl", "decode", "--format", how, "-o", "-", path], capture_output=True, timeout=PATIENCE,
                          env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})


def same(path, row):
    """What is wrong with one of the recorded traces."""
    name, expected, events, why, parsed, wire = row[0], row[5], row[6], row[10].split(" # ")[0], row[11], row[13]
    p = decode("go-parsed", path)
    if p.returncode < 0 or p.returncode > 100:
        return f"exit status {p.returncode}"
    if expected == "any":
        return None
    if parsed != "-" and events != "0" and hashlib.sha256(p.stdout).hexdigest() != parsed:
        return "its events are others"
    if (p.returncode == 0) != (expected == "ok"):
        return f"{p.stderr.decode()}, wanted: {expected}"
    said = p.stderr.decode(errors="replace")
    if expected == "error" and not why.startswith("regexp") and OUR_WORDS.get(name, why) not in said:
        return f"says {said}, and not {why}"
    if expected == "refuse" and "old format" not in said:
        return f"says {said}"
    if expected == "ok" and wire != "-" and hashlib.sha256(decode("go-wire", path).stdout).hexdigest() != wire:
        return "what is in it is printed otherwise"
    return None


def recorded():
    rows = [line.split("\t") for line in (DATA / "MANIFEST.tsv").read_text().splitlines() if not line.startswith("#")]
    path, bad, n = tmp() / "x.trace", [], 0
    for row in rows:
        if row[1] == "golden-text" or "/fuzz/" in row[0]:
            continue
        data = (DATA / row[0]).read_bytes()
        path.write_bytes(lzma.decompress(data) if row[0].endswith(".xz") else data)
        wrong = same(path, row)
        bad += [f"{row[0]}: {wrong}"] if wrong else []
        n += 1
    expect(n > 200 and not bad, f"{n} recorded traces are printed as Go prints them: {bad[:5]}")


def live():
    go = shutil.which("go")
    version = subprocess.run([go, "env", "GOVERSION"], capture_output=True, text=True).stdout.strip() if go else ""
    if not version.startswith("go1.2") or int(version.split(".")[1].split("-")[0].rstrip("rcbeta") or 0) < 25:
        note("no Go 1.25 or later: no trace is made here")
        return
    work = tmp() / "live"
    work.mkdir()
    (work / "main.go").write_text(PROGRAM)
    env = {**os.environ, "GOCACHE": go_cache(), "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "HOME": str(work)}
    trace = work / "x.trace"
    with trace.open("wb") as f:
        subprocess.run([go, "run", work / "main.go"], stdout=f, env=env, check=True, timeout=PATIENCE)
    for how in ("parsed", "wire"):
        theirs = subprocess.run([go, "tool", "trace", f"-d={how}", trace], capture_output=True, env=env, timeout=PATIENCE)
        expect(theirs.returncode == 0 and len(theirs.stdout) > 10000 and decode(f"go-{how}", trace).stdout == theirs.stdout,
               f"a trace of {version}: -d={how} and go-{how} are the same")


def none():
    """Goroutine and processor -1 are as any other, though a thread that has these has none."""
    none, path = b"\xff" * 9 + b"\x01", tmp() / "none.trace"
    head = b"go 1.26 trace\0\0\0" + b"\x01\x01" + none + b"\x64\x0d\x32\x08\x80\x94\xeb\xdc\x03\x33\x01\xe8\x07\x05\x06"
    events = (b"\x19\x01" + none * 2 + b"\x04") * 2 + (b"\x0d\x01" + none + b"\x02") * 2 + b"\x0b\x01"
    path.write_bytes(head + b"\x01\x01\x01\x64" + bytes([len(events)]) + events + b"\x34")
    p = decode("go-parsed", path)
    expect([line.split("Time=")[1] for line in p.stdout.decode().splitlines()[1:]] ==
           ['101 GoID=-1 Undetermined->Waiting Reason=""', '102 GoID=-1 Waiting->Waiting Reason=""',
            '103 ProcID=-1 Undetermined->Idle Reason=""', '104 ProcID=-1 Idle->Idle Reason=""'] and
           "ProcStop event for proc that's not Running or Syscall" in p.stderr.decode(), f"goroutine and processor -1: {p.stdout.decode()}{p.stderr.decode()}")


def words():
    bad = tmp() / "bad.trace"
    for text, wanted in ((b"go 1.21 trace\0\0\0", "old format (go 1.21)"), (b"go 1.99 trace\0\0\0", "unsupported trace version go 1.99"),
                         (b"go 1.x", "not a Go execution trace")):
        bad.write_bytes(text)
        p = decode("go-parsed", bad)
        expect(p.returncode and wanted in p.stderr.decode() and not p.stdout, f"refused in words: {wanted}")
    bad.write_bytes(b"go 1.26 trace\0\0\0")
    p = decode("text", bad)
    expect(p.returncode == 0 and "sync" not in p.stderr.decode(), "and has an empty timeline")
    expect(decode("go-parsed", bad).stdout == b"M=-1 P=-1 G=-1 Sync Time=1 N=1\n", "a trace of nothing")
    none()
    bad.write_bytes(b"PERFILE2")
    expect("not a Go execution trace" in decode("go-parsed", bad).stderr.decode(), "and so is who has none")


words()
live()
if not (DATA / "MANIFEST.tsv").exists():
    skip(f"no recorded traces in {DATA} ($TRACERD_DATA)")
recorded()
