# SPDX-License-Identifier: Apache-2.0
"""Go, for tests of the Go module: which one there is, building the module with a program, and a program that does what it is told."""
import re

from lib import *

go = shutil.which("go") or ("/usr/local/go/bin/go" if os.path.exists("/usr/local/go/bin/go") else None)
if not go:
    skip("no Go (1.25 or newer)")
# Go of a distribution may be old, and fetches a newer one where there is a network.
env = {**os.environ, "GOFLAGS": "-mod=mod", "GOCACHE": go_cache(), "GOWORK": "off",
       "GOPATH": os.environ.get("GOPATH") or str(tmp() / "go")}


def version(**more):
    """The minor number of the Go that such an environment has; 0: none."""
    r = subprocess.run([go, "version"], env={**env, **more}, cwd=tmp(), capture_output=True, text=True, timeout=200)
    m = re.search(r"go1\.(\d+)", r.stdout)
    return int(m[1]) if r.returncode == 0 and m else 0


if version() < 25:
    env["GOTOOLCHAIN"] = "go1.26.0"
    if version() < 25:
        skip(f"Go 1.{version(GOTOOLCHAIN='local')} has no FlightRecorder, and a newer one cannot be fetched")

# The folders of the sources are not written to.
work = tmp() / "src"


def sources(*parts):
    for part in parts:
        shutil.copytree(SRC / part, work / part)


def run(*argv, cwd, **kw):
    """Go's answer; it must succeed."""
    r = subprocess.run([go, *map(str, argv)], cwd=work / cwd, env={**env, **kw}, capture_output=True, text=True)
    if r.returncode:
        fail(f"go {' '.join(map(str, argv))}: {r.stdout[-3000:]}{r.stderr[-3000:]}")
    return r.stdout


def build_program(name, folder, toolchain=None, cgo=False, flags=()):
    """A program of tests/programs with that Go, as `name`; None: it needs a C compiler, and there is none."""
    if cgo and not (shutil.which("gcc") or shutil.which("cc")):
        return None
    if not (work / folder).exists():
        shutil.copytree(SRC / "tests/programs" / folder, work / folder)
    more = {"CGO_ENABLED": "1" if cgo else "0", **({"GOTOOLCHAIN": toolchain} if toolchain else {})}
    run("build", *flags, "-o", tmp() / name, ".", cwd=folder, **more)
    return tmp() / name


# Whose structures are known. Go 1.19 from the module proxy builds no package; its structures are those of 1.18 and 1.20.
TOOLCHAINS = {18: "go1.18.10", 20: "go1.20.14", 21: "go1.21.13", 22: "go1.22.12", 23: "go1.23.12", 24: "go1.24.13", 25: "go1.25.8",
              26: "go1.26.8", 27: "go1.27.4"}


def each_build(folder, flags=()):
    """The program by each version of Go that can be had, without C and with it: (minor, what it is, whether with C, program)."""
    tried = 0
    for minor, toolchain in TOOLCHAINS.items():
        if version(GOTOOLCHAIN=toolchain) != minor:
            note(f"{toolchain} is not here and cannot be fetched")
            continue
        for cgo in (False, True):
            program = build_program(f"{folder}-{minor}-{cgo}", folder, toolchain, cgo, flags)
            if program:
                tried += 1
                yield minor, f"{toolchain}{' with C' if cgo else ''}", cgo, program
    if not tried:
        skip("no version of Go can be had")


def parsed(trace):
    """What Go's own tool says of a trace."""
    path = tmp() / "go.trace"
    path.write_bytes(trace)
    return run("tool", "trace", "-d=parsed", path, cwd="client/go")


def build_shell():
    """tests/programs/goshell, with the module and a copy of it that is another module."""
    sources("client/go", "tests/programs/goshell")
    shutil.copytree(SRC / "client/go", work / "vendored", ignore=shutil.ignore_patterns("*_test.go"))
    mod = work / "vendored" / "go.mod"
    mod.write_text(mod.read_text().replace("tracerd/client/go", "vendored/tracerd"))
    # What it needs of runtime/trace is of 1.25.
    run("mod", "edit", "-go=1.25", cwd="tests/programs/goshell")
    run("build", "-o", tmp() / "goshell", ".", cwd="tests/programs/goshell", CGO_ENABLED="0")


class GoShell:
    """A program of build_shell() that is told line by line."""

    def __init__(self, d, *told):
        self.process = spawn(tmp() / "goshell", env={**os.environ, "TRACERD_SOCKET": str(d.sock)}, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        self.answer()
        for line in told:
            self.tell(line)

    def answer(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            fail(f"the Go program {self.pid} does not answer")
        return json.loads(self.process.stdout.readline())

    def tell(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.answer()

    def connected(self):
        def are():
            st = self.tell("status")
            return st if st["Connected"] else None
        return wait_for("the Go program to register", are)["Target"]

    def works(self):
        return self.tell("work something") > 0
