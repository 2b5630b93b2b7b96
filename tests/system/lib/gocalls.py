# SPDX-License-Identifier: Apache-2.0
"""What is drawn of the calls of tests/programs/calls/switches.go, against what the program says itself: the path to each call."""
import collections
import re

from lib.pt import *

LINE = re.compile(r" *~?\d+ +(?:\d+ +\d+ +)?(\} )?(.+) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")
KINDS = ["chan", "mutex", "deep", "panic", "pull", "select", "cond", "timer", "exit", "rethrow", "fault", "spin", "pin", "shrink", "herd"]
# These are no calls: what goes on, or is seen only now, or where its way back is.
ON = re.compile(r"goes on|begin not recorded|unwound to")


# Whose callers are not known, all of them.
CUT = re.compile(r"begin not recorded|after a gap|callers unknown")


def calls_of(text, functions):
    """
    Counter of paths: these functions from the outside to the one that is called. Of calls whose callers are all known, of those where the
    outer ones are not, and of those that are in doubt.
    """
    whole, part, doubtful = collections.Counter(), collections.Counter(), collections.Counter()
    stacks, stack = {}, []  # lines of a thread are together, but threads alternate
    for line in text.splitlines():
        if line.startswith("thread "):
            stack = stacks.setdefault(line.split()[1], [])
        m = LINE.match(line)
        if not m:
            continue
        end, name, how, begin = m.groups()
        if end:
            stack.pop()
            continue
        how = how or ""
        path, doubt, cut = stack[-1] if stack else ((), False, False)
        # A tail call that is the outermost takes the place of one whose callers are not known.
        doubt, cut = doubt or "in doubt" in how, cut or bool(CUT.search(how)) or (not stack and how == "tail call")
        if name in functions:
            path = (path, name)
            if not ON.search(how):
                (doubtful if doubt else part if cut else whole)[path] += 1
        if begin:
            stack.append((path, doubt, cut))
    for tid, stack in stacks.items():
        if stack:
            fail(f"thread {tid}: {len(stack)} calls have not ended")
    return whole, part, doubtful


def flat(path):
    out = []
    while path:
        path, name = path
        out.append(name)
    return tuple(out)  # from the inside


def noted(text):
    """What the program says: Counter of paths, nested like those of calls_of()."""
    said, paths = collections.Counter(), {"0": ()}
    for line in text.split("\n\n")[0].splitlines():
        number, around, f, n = line.split()
        paths[number] = (paths[around], f"main.{f}")
        said[paths[number]] += int(n)
    return said


def of_function(paths, f):
    return sum(n for path, n in paths.items() if path[1] == f)


def follows(name, text, said):
    """What is drawn is what the program says: each call once, on the path on which it was, or marked."""
    functions = {path[1] for path in said}
    whole, part, doubtful = calls_of(text, functions)
    for f in sorted(functions):
        have, want = sum(of_function(paths, f) for paths in (whole, part, doubtful)), of_function(said, f)
        if have != want:
            fail(f"{name}: {have} calls of {f}, not {want}")
    for path, n in whole.items():
        if n > said[path]:
            fail(f"{name}: {n} calls of {' < '.join(flat(path))}, the program says {said[path]}")
    inner = {flat(path)[:n] for path in said for n in range(1, 40)}
    for path in part:
        if flat(path)[:39] not in inner:
            fail(f"{name}: there is no call of {' < '.join(flat(path))}")
    ok(f"{name}: of {said.total()} calls {whole.total()} on their path, {part.total()} on the inner part of one, {doubtful.total()} in doubt")
    return whole.total(), part.total(), doubtful.total()


def decoded(data):
    p = subprocess.run([BUILD / "tracectl", "decode", "--calls", data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"tracectl decode: {p.stderr}")
    return p.stdout


def build_switches(work):
    """With what C calls, where there is a C compiler: (program, the kinds of things that it does)"""
    need_command("go", "go")
    if not STEP.exists():
        skip("needs tracerd-step")
    c = ["switches_c.go"] if shutil.which("gcc") else []
    env = {"GO111MODULE": "off", "GOCACHE": go_cache(), "GOFLAGS": "", "HOME": str(work),
           "CGO_ENABLED": "1" if c else "0"}
    p = subprocess.run(["go", "build", "-o", work / "switches", *(CALLS / f for f in ["switches.go", *c])], capture_output=True, text=True,
                       cwd=work, env={**os.environ, **env})
    if p.returncode:
        skip(f"go does not build here: {p.stderr.strip().splitlines()[-1:]}")
    return work / "switches", KINDS + ["c"] * bool(c)
