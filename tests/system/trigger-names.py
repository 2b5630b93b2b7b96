#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""A function that has several addresses, or several functions of one name: overloads and templates of C++, what a compiler makes of a function
beside it, functions chosen at run time, of Go and Rust. One is found by the name that tells it apart; where the name does not, all are
named; and what is no hit although it is the function's code is said."""
from lib import *

CXX = r"""
#include <cstdio>
#include <stdexcept>
volatile long sum;
namespace ns {
__attribute__((noinline)) void f(int n) { sum += n; }
__attribute__((noinline)) void f(char c, long n) { sum += c * n; }
__attribute__((noinline)) void g(int n) { if (n == 77) { sum *= 3; throw std::runtime_error("cold"); } sum += n; }
template <typename T> __attribute__((noinline)) T t(T n) { sum += (long)n; return n; }
struct S { int v; __attribute__((noinline)) int m() const; __attribute__((noinline)) int m(); };
int S::m() const { return v + sum; }
int S::m() { return v - sum; }
}
namespace { __attribute__((noinline)) void hidden(int n) { sum ^= n; } }
__attribute__((target_clones("avx2", "default"), noinline)) void many(int n) { sum += n; }
int main() {
	puts("ready"); fflush(stdout);
	while (getchar() != EOF) {
		try { ns::g((int)sum); } catch (std::exception &e) { puts(e.what()); }
		ns::S s{1}; const ns::S k{2};
		ns::f(1); ns::f('c', 2); ns::t(1); ns::t(2.0); hidden(3); many(4);
		printf("%d\n", s.m() + k.m()); fflush(stdout);
	}
}
"""
# The names are those that compilers give.
C = r"""
#include <stdio.h>
volatile long n;
#define F(name, symbol, add) __attribute__((noinline)) void name(void) __asm__(symbol); void name(void) { n += add; }
F(whole, "whole", 1)
F(made1, "whole.constprop.0", 2)
F(made2, "whole.part.0.isra.0", 3)
F(made3, "whole.cold", 4)
F(made4, "only.isra.0", 5)
F(made5, "two.constprop.0", 6)
F(made6, "two.constprop.1", 7)
F(made7, "of_file.lto_priv.0", 8)
F(made8, "_ZN5crate6module4deep17h0123456789abcdefE", 9)
F(made9, "_RNvNtCs1234_7mycrate3foo3bar", 10)
int main(void) {
	puts("ready"); fflush(stdout);
	while (getchar() != EOF) {
		whole(); made1(); made2(); made3(); made4(); made5(); made6(); made7(); made8(); made9();
		puts("ok"); fflush(stdout);
	}
}
"""
GO = r"""
package main
import ("bufio"; "fmt"; "os")
type T struct { n int }
var sum int
//go:noinline
func (t *T) M() { sum += t.n }
//go:noinline
func (t T) V() { sum -= t.n }
//go:noinline
func G[X any](x X) { sum++ }
func main() {
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	for {
		if _, err := in.ReadString('\n'); err != nil { return }
		t := &T{1}
		t.M(); t.V(); G(1); G("x")
		fmt.Println("ok")
	}
}
"""
need_root("the daemon's rights")
work = tmp()


def program(name):
    p = spawn(work / name, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    p.stdout.readline()
    return p


def add(p, place):
    return d.tracectl("trigger", "add", p.pid, "--hit", place, "--hit-by", "breakpoint", "--cooldown", "0s", "--max-per-hour", 0, "--json")


def hits(p, place, says=""):
    done = add(p, place)
    if done.returncode or says not in done.stderr or (not says and done.stderr):
        fail(f"{place}: {done.returncode}: {done.stderr}")
    gid = json.loads(done.stdout)["trigger"]["id"]

    def once():
        p.stdin.write("\n")
        p.stdin.flush()
        p.stdout.readline()
        return next(t for t in c.call("trigger.list")["triggers"] if t["id"] == gid)["hits"]
    wait_for(f"{place}: a hit", once, step=0.1)
    d.tracectl("trigger", "remove", gid)
    ok(f"{place}{': ' if says else ''}{done.stderr.strip()}")


def refused(p, place, code, *words):
    done = add(p, place)
    expect(done.returncode == code and all(w in done.stderr for w in words), f"{place}: {done.stderr.strip()}")


with Tracerd() as d, d.client() as c:
    if shutil.which("g++"):
        (work / "cxx.cc").write_text(CXX)
        subprocess.run(["g++", "-O2", "-o", "cxx", "cxx.cc"], cwd=work, check=True)
        p = program("cxx")
        c.arm(p.pid)
        refused(p, "ns::f", 2, "is in 2 places", "ns::f(int) in", "ns::f(char, long) in")
        for place in ("ns::f(int)", "f(int)", "ns::f(char, long)", "ns::f(char,long)"):
            hits(p, place)
        refused(p, "ns::f(long)", 3, "no function 'ns::f(long)'")
        for place in ("ns::t<int>", "ns::t<int>(int)", "ns::t<double>(double)", "ns::S::m() const", "ns::S::m()", "hidden",
                      "(anonymous namespace)::hidden(int)"):
            hits(p, place)
        refused(p, "ns::t", 3, "no function 'ns::t'")
        refused(p, "ns::S::m", 2, "is in 2 places", "ns::S::m() const in")
        if ".cold" not in subprocess.run(["nm", work / "cxx"], capture_output=True, text=True).stdout:
            note("this compiler makes no cold parts")
        hits(p, "ns::g")
        refused(p, "many", 2, "indirect function (IFUNC)", "avx2", "default")
        p.kill()

    build_c("copies", C, "-O1")
    p = program("copies")
    c.arm(p.pid)
    hits(p, "whole", "the compiler has made copies of whole, whose calls are no hit: ")
    said = add(p, "whole").stderr
    expect("whole.constprop.0" in said and "whole.part.0.isra.0" in said and "cold" not in said, f"which are named: {said.strip()}")
    for place in ("only", "whole.constprop.0", "whole.cold", "of_file", "crate::module::deep", "deep", "mycrate::foo::bar"):
        hits(p, place)
    refused(p, "two", 2, "is in 2 places", "two.constprop.0 in", "two.constprop.1 in")
    p.kill()

    # A call by the procedure linkage table comes to the function, which has one address.
    (work / "lib.c").write_text("volatile long n;\nvoid from_lib(void) { n++; }\n")
    subprocess.run(["gcc", "-O1", "-shared", "-fPIC", "-o", "libplt.so", "lib.c"], cwd=work, check=True)
    build_c("plt", "#include <stdio.h>\nextern void from_lib(void);\nvoid (*volatile taken)(void) = from_lib;\nint main(void) {\n\tputs(\"ready\"); "
            "fflush(stdout);\n\twhile (getchar() != EOF) { from_lib(); taken(); puts(\"ok\"); fflush(stdout); }\n}\n", "-O1", "-no-pie", "-fno-pic",
            "-z", "lazy", "-Wl,--no-as-needed", f"-L{work}", "-lplt", f"-Wl,-rpath,{work}")
    p = program("plt")
    c.arm(p.pid)
    hits(p, "from_lib")
    p.kill()

    # A unit that is larger than what is searched for inlined calls, and cannot be read, so it takes no time; and one behind it.
    (work / "large.s").write_text(""".section .debug_abbrev
\t.byte 1, 0x11, 0, 0, 0, 0
\t.section .debug_info
\t.long 0x10000010
\t.value 4
\t.long .debug_abbrev
\t.byte 8, 9
\t.skip 0x10000008
\t.long 8
\t.value 4
\t.long .debug_abbrev
\t.byte 8, 1
\t.section .note.GNU-stack
""")
    build_c("large", "#include <stdio.h>\nvolatile long n;\n__attribute__((noinline)) void seen(void) { n++; }\nint main(void) {\n\tputs(\"ready\"); "
            "fflush(stdout);\n\twhile (getchar() != EOF) { seen(); puts(\"ok\"); fflush(stdout); }\n}\n", "-O1", work / "large.s")
    p = program("large")
    c.arm(p.pid)
    hits(p, "seen", "too large to be searched for inlined calls of seen to its end")
    refused(p, "unseen", 3, "no function 'unseen'", "too large to be searched for inlined calls to its end")
    p.kill()

    if shutil.which("go"):
        (work / "go.go").write_text(GO)
        done = subprocess.run(["go", "build", "-o", work / "go-names", work / "go.go"], capture_output=True, text=True,
                              env={**os.environ, "GOCACHE": go_cache(), "GOFLAGS": "-mod=mod", "GO111MODULE": "off", "HOME": str(work)})
        if done.returncode:
            note(f"go does not build here: {done.stderr}")
        else:
            p = program("go-names")
            c.arm(p.pid)
            for place in ("main.(*T).M", "main.T.V", "main.G[go.shape.int]"):
                hits(p, place)
            p.kill()
