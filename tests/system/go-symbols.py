#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Functions of Go programs that were stripped of symbols and DWARF: their names, addresses and lines are those that Go's own tools
tell of the same program before it was stripped; and a recording of one shows them."""
import re
import shutil

from lib import *

GO = shutil.which("go", path=os.environ["PATH"] + ":/usr/local/go/bin")
if not GO:
    skip("there is no Go (package golang-go)")
PROGRAM = """package main

import (
	"fmt"
	"os"
	"strings"
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

//go:noinline
func burn(n int) (s int) {
	for i := 0; i < n; i++ {
		s += i * i
		s ^= len(strings.Repeat("x", i&3))
	}
	return
}

func main() {
	var list []shape
	for i := range 10 {
		list = append(list, &square{i})
	}
	fmt.Fprintln(os.Stderr, sum(list, func(s shape) int { return s.area() }))
	for {
		burn(100000)
	}
}
"""
work = tmp()
(work / "main.go").write_text(PROGRAM)
(work / "go.mod").write_text("module stripped\n\ngo 1.22\n")
env = {**os.environ, "GOCACHE": go_cache(), "GOFLAGS": "-mod=mod", "GOTOOLCHAIN": "local", "HOME": str(work)}
version = subprocess.run([GO, "env", "GOVERSION"], capture_output=True, text=True, env=env).stdout.strip()
if tuple(map(int, re.match(r"go(\d+)\.(\d+)", version).groups())) < (1, 22):
    skip(f"Go is too old: {version}")


def build(name, *flags, strip=True):
    out = work / name
    subprocess.run([GO, "build", *flags, "-trimpath", "-ldflags", "-s -w" if strip else "", "-o", out, "."], cwd=work, env=env, check=True,
                   capture_output=True, timeout=PATIENCE)
    return out


def functions(path):
    """{address: (size, where it begins, where its middle is, name)}"""
    p = subprocess.run([BUILD / "tests/unit/decode/object/go-functions", path], capture_output=True, text=True, timeout=PATIENCE)
    expect(p.returncode == 0, f"{path.name}: its table is read: {p.stderr}")
    return {int(w[0], 16): (int(w[1]), w[2], w[3], w[4]) for w in (line.split(" ", 4) for line in p.stdout.splitlines())}


for kind, flags in (("exe", ()), ("pie", ("-buildmode=pie",))):
    whole, stripped = build(kind, *flags, strip=False), build(f"{kind}-s", *flags)
    ours = functions(stripped)
    named = {}
    for line in subprocess.run([GO, "tool", "nm", whole], capture_output=True, text=True, env=env, timeout=PATIENCE).stdout.splitlines():
        address, what, name = (line.split(None, 2) + ["", "", ""])[:3]
        if what in "Tt" and re.fullmatch("[0-9a-f]+", address):
            named.setdefault(int(address, 16), set()).add(name)
    # Instances of generic functions have their types in the symbol table, and dots in the runtime's; ABIs are told apart there only.
    plain = lambda name: re.sub(r"\.abi(0|internal)$", "", re.sub(r"\[.*\]", "[...]", name))
    wrong = [(hex(a), f[3], named.get(a)) for a, f in ours.items() if f[3] != "go:textfipsstart" and plain(f[3]) not in map(plain, named.get(a, ()))]
    expect(len(ours) > 1000 and len(wrong) <= len(ours) // 200, f"{kind}: {len(ours)} functions have the names of go tool nm but {wrong[:3]}")
    # ":-1" is what was made by the compiler, and has no line.
    asked = sorted(ours)[:: max(1, len(ours) // 300)]
    text = "".join(f"{a + ours[a][0] // 2:#x}\n" for a in asked)
    lines = subprocess.run([GO, "tool", "addr2line", whole], input=text, capture_output=True, text=True, env=env, timeout=PATIENCE).stdout.splitlines()[1::2]
    wrong = [(hex(a), ours[a][2], theirs) for a, theirs in zip(asked, lines) if theirs != ours[a][2].replace("?:0", ":-1")]
    expect(len(lines) == len(asked) and not wrong, f"{kind}: {len(asked)} lines are those of go tool addr2line: {wrong[:3]}")

# With C in it: what the file has besides Go's own table is the C code's.
(work / "c.go").write_text("""package main

// static int twice(int n) { return n * 2; }
import "C"

func init() { _ = C.twice(1) }
""")
programs = [work / "exe-s"]
if shutil.which("gcc"):
    env["CGO_ENABLED"] = "1"
    programs += [build("cgo", strip=False), build("cgo-s")]

need_root("a recording needs it")
with Tracerd() as d, d.client() as c:
    for program in programs:
        p = spawn(program, stderr=subprocess.DEVNULL)
        t = c.arm(p.pid)
        # With C there is a libc, which keeps none; and Go's own functions that call nobody have none.
        kind = "bpf" if c.call("status")["capture"].get("unwinds") else "dwarf" if program.name.startswith("cgo") else "fp"
        wait_for(f"its stacks to be {kind}", lambda: c.call("target.show", {"target": t["id"]})["target"]["stacks"] == kind)
        ok(f"{program.name} is recorded by stacks of the kind {kind}")
        let_work(p.pid)
        s = c.snapshot(t["id"])
        heaviest = json.dumps(c.call("snapshot.show", {"snapshot": s["id"]})["snapshot"]["summary"]["heaviest"])
        expect("main.burn" in heaviest and "main.main" in heaviest, f"a recording of {program.name} names its functions: {heaviest[:300]}")
        p.kill()
