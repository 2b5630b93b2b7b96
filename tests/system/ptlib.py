# SPDX-License-Identifier: Apache-2.0
"""For the tests of Intel PT: programs of tests/programs/calls, compiled here as each test wants them, and exact recordings of
programs by tracerd-step."""
from concurrent.futures import ThreadPoolExecutor

from lib import *

CALLS = SRC / "tests/programs/calls"
STEP = BUILD / "tracerd-step"
WALK = BUILD / "tests/unit/decode/pt/pt-walk"


def compile_calls(work, name, sources, *flags):
    """tests/programs/calls/SOURCE... as work/NAME."""
    out = work / name
    tool = "g++" if any(s.endswith(".cc") for s in sources) else "gcc"
    p = subprocess.run([tool, "-g", *flags, "-o", out, *[CALLS / s for s in sources], "-pthread"], capture_output=True, text=True)
    if p.returncode:
        fail(f"{name}: {p.stderr}")
    return out


class Recording:
    """A command, stepped: .data is the perf.data, .log() each thread's instructions."""

    def __init__(self, work, name, command, max_insns=0, env=None, options=()):
        self.name, self.data, self.path = name, work / f"{name}.data", work / f"{name}.log"
        limit = ["--max-insns", str(max_insns)] if max_insns else []
        p = subprocess.run([STEP, "-o", self.data, "--log", self.path, *limit, *options, "--", *map(str, command)], cwd=work,
                           capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {})})
        self.said, self.out = p.stderr, p.stdout
        if not self.data.exists() or (p.returncode and not max_insns):
            fail(f"{name}: tracerd-step: exit {p.returncode}: {p.stderr}")

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
