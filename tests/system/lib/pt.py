# SPDX-License-Identifier: Apache-2.0
"""For the tests of Intel PT: programs of tests/programs/calls, compiled here as each test wants them, and exact recordings of
programs by tracerd-step.

Stepping is slow, so what is recorded stays in BUILD/fixtures, for all tests that want the same of the same program: by the content
of program, libraries and stepper. Tests read a recording there, and change copies of it. `make clean` removes them.
"""
import fcntl
import hashlib
from concurrent.futures import ThreadPoolExecutor

from lib import *

CALLS = SRC / "tests/programs/calls"
STEP = BUILD / "tracerd-step"
WALK = BUILD / "tests/unit/decode/pt/pt-walk"
FIXTURES = BUILD / "fixtures"
# What programs begin with takes time, too: the shorter their environment, the less.
ENVIRONMENT = {"PATH": os.environ.get("PATH", "/usr/bin:/bin"), "LC_ALL": "C.UTF-8", "HOME": "/"}


def digest(*texts):
    h = hashlib.sha256()
    for t in texts:
        h.update(t if isinstance(t, bytes) else repr(t).encode())
        h.update(b"\0")
    return h.hexdigest()[:24]


def keep_program(program):
    """The program where it stays: below its content, so that recordings of it can be found again."""
    folder = FIXTURES / "programs" / digest(program.read_bytes())
    folder.mkdir(parents=True, exist_ok=True)
    kept, mine = folder / program.name, folder / f"{program.name}.{os.getpid()}"
    shutil.copy(program, mine)
    try:
        os.link(mine, kept)
    except FileExistsError:
        pass  # the first stays, since recordings name its inode
    mine.unlink()
    return kept


def compile_calls(work, name, sources, *flags, tool="gcc"):
    """tests/programs/calls/SOURCE... as a program (or library) of that name; the same bytes each time."""
    out = work / name
    if any(s.endswith(".cc") for s in sources):
        tool = {"gcc": "g++", "clang": "clang++"}[tool]
    p = subprocess.run([tool, "-g", f"-ffile-prefix-map={work}=.", *flags, "-o", out, *[CALLS / s for s in sources], "-pthread"], cwd=CALLS,
                       capture_output=True, text=True)
    if p.returncode:
        fail(f"{name}: {p.stderr}")
    return keep_program(out)


# Several tests step these: compiled in one way, they are recorded once.
COMMON = {
    "jumps": ("jumps.c", "-O2", "-static"),
    "signals": ("signals.c", "-O2", "-static"),
    # not static: there the runtime sorts all unwind tables first, 5 million instructions
    "throws": ("throws.cc", "-O2", "-static-libstdc++", "-static-libgcc"),
    "coroutines": ("coroutines.c", "-O2"),
    "threads": ("threads.c", "-O2", "-static-pie"),
}


def common_program(work, name):
    source, *flags = COMMON[name]
    return compile_calls(work, name, [source], *flags)


def linked(program):
    """The files that a program is made of, and when each was last changed."""
    path = shutil.which(program) or program
    p = subprocess.run(["ldd", path], capture_output=True, text=True)
    files = [os.path.realpath(path), *(w for w in p.stdout.split() if w.startswith("/"))]
    return [(f, os.stat(f).st_size, os.stat(f).st_mtime_ns) for f in files if os.path.exists(f)]


class Recording:
    """
    A command, stepped: .data is the perf.data, .log() each thread's instructions, .folder where it ran. One with a program in
    `work`, the test's own folder, is made there, and nobody else finds it; .output is what that has printed.
    """

    def __init__(self, work, name, command, max_insns=0, env=None, options=()):
        self.name, command = name, [str(c) for c in command]
        limit = ["--max-insns", str(max_insns)] if max_insns else []
        env = {**ENVIRONMENT, **(env or {})}
        arguments = [*limit, *map(str, options), "--", *command]
        if any(str(work) in a for a in arguments):
            self._in(work, name)
            self._record(arguments, env)
            return
        key = digest(STEP.read_bytes(), arguments, env, linked(command[0]))
        FIXTURES.mkdir(exist_ok=True)
        self._in(FIXTURES / key, "x")
        with open(FIXTURES / f"{key}.lock", "w") as lock:
            # who holds it records; it is let go when they end, in whatever way
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (self.folder / "seconds").exists():
                note(f"{name}: recorded before, in {(self.folder / 'seconds').read_text()} s")
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir()
            began = time.monotonic()
            self._record(arguments, env)
            # the last file: with it the recording is whole
            (self.folder / "writing").write_text(f"{time.monotonic() - began:.1f}")
            (self.folder / "writing").replace(self.folder / "seconds")

    def _in(self, folder, name):
        self.folder, self.data, self.path = folder, folder / f"{name}.data", folder / f"{name}.log"

    def _record(self, arguments, env):
        p = subprocess.run([STEP, "-o", self.data, "--log", self.path, *arguments], cwd=self.folder, capture_output=True, text=True, env=env)
        if not self.data.exists() or (p.returncode and "--max-insns" not in arguments):
            fail(f"{self.name}: tracerd-step: exit {p.returncode}: {p.stderr}")
        self.output = p.stdout

    def log(self):
        threads = {}
        with open(self.path) as f:
            for line in f:
                tid, ip = line.split()
                threads.setdefault(tid, []).append(ip)
        return threads


def record_all(work, programs, options=()):
    """{name: (command, max_insns[, env])}, as many at a time as there are processors."""
    with ThreadPoolExecutor(max(2, os.cpu_count() or 1)) as pool:
        made = {name: pool.submit(Recording, work, name, *rest, options=options) for name, rest in programs.items()}
        return {name: f.result() for name, f in made.items()}
