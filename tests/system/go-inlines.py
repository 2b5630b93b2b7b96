#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""The calls that Go's compiler inlined, of programs that were stripped of symbols and DWARF: for addresses all over the program they are
those that its own runtime tells of them while it runs, and those of the DWARF of the same program before it was stripped; and stacks of
samples show them, of both programs the same."""
import re
import shutil

from lib import *

GO = shutil.which("go", path=os.environ["PATH"] + ":/usr/local/go/bin")
if not GO:
    skip("there is no Go (package golang-go)")
PROGRAM = """package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	_ "unsafe"
)

type shape interface{ area() int }
type square struct{ side int }

func (s *square) area() int { return s.side * s.side }

//go:noinline
func sum[T any](list []T, f func(T) int) (n int) {
	for _, x := range list {
		n += f(x)
	}
	return
}

var sink int

func innermost(n int) (s int) {
	for i := 0; i < n; i++ {
		s += i * i
	}
	return
}

func middle(n int) int { return innermost(n) + innermost(n/2) }

//go:noinline
func outer(n int) int { return middle(n) + 1 }

// What the runtime's own profiler asks for.
//
//go:linkname expand runtime/pprof.runtime_expandFinalInlineFrame
func expand(stk []uintptr) []uintptr

//go:linkname declared runtime/pprof.runtime_FrameStartLine
func declared(f *runtime.Frame) int

// Tells of each address that is read; the first is where main.main was linked to.
func tell() {
	in := bufio.NewScanner(os.Stdin)
	out := bufio.NewWriter(os.Stdout)
	base := uintptr(0)
	for first := true; in.Scan(); first = false {
		at, _ := strconv.ParseUint(in.Text(), 16, 64)
		if first {
			base = reflect.ValueOf(main).Pointer() - uintptr(at)
			continue
		}
		fmt.Fprint(out, in.Text())
		for _, pc := range expand([]uintptr{base + uintptr(at) + 1}) {
			f, _ := runtime.CallersFrames([]uintptr{pc}).Next()
			fmt.Fprintf(out, "\\t%s %s:%d %d", f.Function, f.File, f.Line, declared(&f))
		}
		fmt.Fprintln(out)
	}
	out.Flush()
}

func main() {
	if len(os.Args) > 1 {
		tell()
		return
	}
	var list []shape
	for i := 0; i < 10; i++ {
		list = append(list, &square{i})
	}
	fmt.Fprintln(os.Stderr, sum(list, func(s shape) int { return s.area() }), strings.Repeat("x", 3))
	for {
		sink += outer(100000)
	}
}
"""
WRAPPER = re.compile(r"\.(defer|go)wrap\d+$|-fm$|^reflect\.call(Method|Reflect)$|^runtime\.(deferreturn|runOpenDeferFrame|deferCallSave)$")
work = tmp()
(work / "main.go").write_text(PROGRAM)
(work / "linkname.s").write_text("")
(work / "go.mod").write_text("module inlined\n\ngo 1.22\n")
env = {**os.environ, "GOCACHE": go_cache(), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": os.environ.get("GOTOOLCHAIN", "local"),
       "HOME": str(work), "CGO_ENABLED": "0"}
version = subprocess.run([GO, "env", "GOVERSION"], capture_output=True, text=True, env=env).stdout.strip()
minor = re.match(r"go1\.(\d+)", version)
if not minor or int(minor[1]) < 22:
    skip(f"Go is too old: {version}")


def build(name, *flags, strip=True):
    out = work / name
    link = ("-s -w " if strip else "") + ("-checklinkname=0" if int(minor[1]) >= 23 else "")
    p = subprocess.run([GO, "build", *flags, "-trimpath", "-ldflags", link, "-o", out, "."], cwd=work, env=env, capture_output=True, text=True,
                       timeout=PATIENCE)
    if p.returncode:
        fail(f"go build: {p.stderr}")
    return out


def run(*command, text):
    p = subprocess.run(command, input=text, capture_output=True, text=True, timeout=PATIENCE)
    expect(p.returncode == 0, f"{command[0]} answers {p.stderr[:300]}")
    return p.stdout.splitlines()


def plain(name):
    """The runtime does not tell the types of generic functions."""
    return re.sub(r"\[.*\]", "[...]", name)


def frames(line):
    """Tuples of name, place, where it is declared."""
    return [(plain(f[0]), *f[1:]) for f in (x.rsplit(" ", 2) for x in line.split("\t")[1:])]


for kind, flags in (("exe", ()), ("pie", ("-buildmode=pie",))):
    whole, stripped = build(kind, *flags, strip=False), build(f"{kind}-s", *flags)
    p = subprocess.run([BUILD / "tests/unit/decode/object/go-functions", stripped], capture_output=True, text=True, timeout=PATIENCE, check=True)
    functions = {int(w[0], 16): (int(w[1]), w[4]) for w in (line.split(" ", 4) for line in p.stdout.splitlines())}
    main = next(a for a, f in functions.items() if f[1] == "main.main")
    # The runtime takes an address behind the last byte for the next function.
    asked = {a + at: name for a, (size, name) in sorted(functions.items()) if not name.startswith("go:") for at in range(0, size - 1, 37 if size > 64 else 16)}
    text = "".join(f"{a:x}\n" for a in asked)
    ours = [frames(line) for line in run(BUILD / "tests/unit/decode/dwarf/go-inlines", stripped, text=text)]
    truth = [frames(line) for line in run(stripped, "tell", text=f"{main:x}\n{text}")]
    wrong, inlined, deepest = [], 0, 0
    for (a, name), mine, its in zip(asked.items(), ours, truth):
        # the function's own name is not the inlined calls' business
        same = mine[:-1] == its[:-1] and mine[-1][1:] == its[-1][1:]
        # what is to its linker a wrapper, the runtime does not tell; and Go 1.22 not the name of what is in one
        same = same or ([f[1:] for f in mine[:-1]] == [f[1:] for f in its] and ("<autogenerated>" in mine[-1][1] or WRAPPER.search(name)))
        inlined += len(mine) > 1
        deepest = max(deepest, len(mine) - 1)
        if not same:
            wrong.append((hex(a), mine, its))
    expect(len(ours) == len(truth) == len(asked) and inlined > 1000 and deepest > 3 and not wrong,
           f"{version} {kind}: of {len(asked)} addresses {inlined} are in inlined calls, up to {deepest} deep, as the program's own runtime has them: "
           f"{len(wrong)} are not {wrong[:3]}")
    chains, now = {}, None
    for line in run(BUILD / "tests/unit/decode/dwarf/dwarf-walk", whole, text=text):
        if re.fullmatch("0x[0-9a-f]+", line):
            now = chains.setdefault(int(line, 16), [])
        else:
            now.append(line)
    wrong = []
    for a, mine in zip(asked, ours):
        names = [plain(n) for n in chains[a][::2]][:-1]
        if names != [f[0] for f in mine[:-1]]:
            wrong.append((hex(a), names, mine))
    expect(len(wrong) <= len(asked) // 100, f"{version} {kind}: and those of DWARF: {len(wrong)} are not {wrong[:3]}")


def stacks(data):
    """What the timeline has of main.outer: tuples of the frames in it, and of what is said of them."""
    p = subprocess.run([BUILD / "tracectl", "decode", "--inline", "--format", "text", "-o", "-", data], capture_output=True, text=True, timeout=PATIENCE)
    expect(p.returncode == 0, f"it is decoded {p.stderr[:300]}")
    open_, found = [], set()
    for line in p.stdout.splitlines():
        f = line.split("\t")
        if len(f) < 3 or f[2] not in "BE":
            continue
        if f[2] == "E":
            open_.pop()
            continue
        open_.append((json.loads(f[3]), 'how="inlined"' in f))
        at = [i for i, x in enumerate(open_) if x[0] == "main.outer"]
        if at:
            found.add(tuple(open_[at[0]:]))
    return {x for x in found if all(f[0].startswith("main.") for f in x)}


if not working_perf():
    skip("no perf that works here, for the stacks of samples")
for program in (work / "exe", work / "exe-s"):
    p = spawn(program, stderr=subprocess.DEVNULL)
    let_work(p.pid)
    r = subprocess.run(["perf", "record", "-N", "-q", "-F", "500", "-g", "-e", "cpu-clock:u", "-p", str(p.pid), "-o", work / "data", "--", "sleep", "1"],
                       capture_output=True)
    p.kill()
    if r.returncode:
        skip("perf record does not work here")
    got = stacks(work / "data")
    whole = (("main.outer", False), ("main.middle", True), ("main.innermost", True))
    expect(whole in got and got <= {whole[:n] for n in (1, 2, 3)}, f"{program.name}: samples have what is inlined where they are: {got}")
