#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Where stacks begin: a forked process is in all that its parent was in, a thread begins with its start routine, exec ends all calls
of the process, and in a trace that begins deep in calls the callers that show themselves later lie around what came before."""
import re
import shlex

from lib.perffile import *
from lib.pt import *
from lib.texttrace import slices_of

LINE = re.compile(r" *~?(\d+) +(?:(\d+) +\d+ +)?(\} )?(\S+) \([^()]*\)(?: \[([^\]]*)\])?( \{)?$")


def decode(recording, *options):
    p = subprocess.run([BUILD / "tracectl", "decode", *options, recording.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording.name}: {p.stderr}")
    return p.stdout


def trees(text):
    """[(pid, tid, [(depth, name, how)])] of each thread's calls, in their order. A thread may be printed in several parts: calls go on
    from one to the next."""
    threads, depths, who = {}, {}, None
    for line in text.splitlines():
        if line.startswith("thread "):
            who = tuple(map(int, line.split()[1].split("/")))
            threads.setdefault(who, [])
            depths.setdefault(who, 0)
            continue
        m = LINE.match(line)
        if not m:
            continue
        if m[3]:
            depths[who] -= 1
            continue
        threads[who].append((depths[who], m[4], m[5]))
        depths[who] += bool(m[6])
    return [(pid, tid, calls) for (pid, tid), calls in threads.items()]


def path_to(calls, name, skip=0):
    """The functions around the first call of `name` (but for so many before)."""
    around = {}
    for depth, f, _ in calls:
        around[depth] = f
        if f == name:
            if skip == 0:
                return [around[d] for d in range(depth)]
            skip -= 1
    return None


def by_root(calls):
    parts = []
    for c in calls:
        if c[0] == 0:
            parts.append([])
        parts[-1].append(c)
    return parts


def has(path, *functions):
    """These are in the path, in this order."""
    at = iter(path or [])
    return all(any(f == g for g in at) for f in functions)


def begins(r):
    threads = trees(decode(r, "--calls"))
    main = threads[0][0]
    own = [c for pid, tid, c in threads if (pid, tid) == (main, main)]
    spawned = [c for pid, tid, c in threads if pid == main and tid != main]
    children = {}
    for pid, tid, c in threads:
        if pid != main:
            children.setdefault(pid, []).extend(by_root(c))
    expect(len(spawned) == 1 and len(children) == 2, "one thread, two processes")
    expect(has(path_to(own[0], "in_parent"), "main", "forks") and has(path_to(own[0], "in_parent", 1), "main", "vforks"),
           "the parent goes on in what it was")

    forked = next(c for c in children.values() if any(path_to(part, "in_child") for part in c))
    before, after = forked[0], forked[1:]
    expect(has(path_to(before, "in_child"), "main", "forks"), "the child of fork is in what its parent was in")
    expect(all(how == "forked within it" for depth, name, how in before if name in ("main", "forks")), "and says so")
    expect([part[0][1:] for part in after] == [("_start", None)],
           "exec ends it, what it made begins with its first function")
    expect(has(path_to(after[0], "main"), "_start") and not path_to(after[0], "in_child"), "with nothing of the old program")

    vforked = next(c for c in children.values() if c is not forked)[0]
    expect(has(path_to(vforked, "leaf"), "main", "vforks"), "so is the child of vfork, which returns within it")
    expect(all(how == "forked within it" for _, name, how in vforked if name in ("main", "vforks")), "and says so")

    depth, name, how = spawned[0][0]
    expect(depth == 0 and "clone" in name and how is None, f"a thread begins where it was made, with {name}")
    expect(has(path_to(spawned[0], "leaf"), name, "start_thread", "routine"), "and calls its start routine")
    lost = json.loads(decode(r, "--json", "--stats")).get("losses", {})
    expect(not any(k in lost for k in ("branches_unexplained", "callers_begun_late")), f"nothing is in doubt: {lost}")


def deep(r):
    (slices,) = slices_of(decode(r, "--format", "text", "-o", "-")).values()
    found = [s for s in slices if s.name in ("deepest", "deep", "main")]
    expect([s.name for s in found] == ["deepest"] + ["deep"] * 6 + ["main"], "the callers show themselves one by one")
    expect(all(a.end <= b.end for a, b in zip(found, found[1:])) and len({s.begin for s in found}) == 1,
           "each lies around the one before, and all were there from the begin of what was seen on")
    calls = [LINE.match(x) for x in decode(r, "--calls").splitlines()]
    ends = {m[4]: int(m[2]) for m in calls if m and m[2] and m[4] in ("deepest", "main")}
    expect(ends["main"] >= ends["deepest"] > 0, "and took at least as long")


def engine(r, work):
    beside = SRC / "../shared/tools/tp-query"
    command = shlex.split(os.environ.get("TRACERD_TP", str(beside) if beside.exists() else ""))
    if not command or subprocess.run([*command, "/dev/null"], capture_output=True, timeout=PATIENCE).returncode:
        note("no trace processor (TRACERD_TP): the picture was not looked at")
        return
    trace = work / "deep.pftrace"
    decode(r, "-o", trace)
    sql = ("select '<<' || group_concat(name, ' ') || '>>' from (select name from slice where name in ('main', 'deep', 'deepest') and"
           " dur > 0 and (name <> 'deep' or depth < (select min(depth) from slice where name = 'deepest')) order by depth)")
    trouble = "select '<<' || count(*) || '>>' from stats where value > 0 and severity in ('error', 'data_loss')"
    for query, want in ((sql, "main" + " deep" * 6 + " deepest"), (trouble, "0")):
        p = subprocess.run([*command, trace, query], capture_output=True, text=True, timeout=PATIENCE)
        got = p.stdout.partition("\n")[2].partition("<<")[2].partition(">>")[0]
        expect(got == want, f"the trace processor has {got!r}")


FAR_DOWN = """#include <unistd.h>
volatile int n;
__attribute__((noinline)) static void down(int left) { if (left) down(left - 1); else getppid(); n++; }
int main(void) { down(3000); return 0; }
"""


def children_never_seen(work):
    """Of a parent that is deep in calls: what each begins with must not cost more than the recording."""
    (work / "far.c").write_text(FAR_DOWN)
    subprocess.run(["gcc", "-O1", "-fno-optimize-sibling-calls", "-static", "-o", "far", "far.c"], cwd=work, check=True)
    r = Recording(work, "far", [keep_program(work / "far")])
    lines = decode(r, "--calls").splitlines()
    pid = int(re.match(r"thread (\d+)/", next(x for x in lines if x.startswith("thread")))[1])
    deepest = max(int(x.split()[0].lstrip("~")) for x in lines if x.endswith(" down (far) {"))
    f = PerfFile.read(r.data)
    at = next(i for i, x in enumerate(f.records) if struct.unpack_from("<I", x[0])[0] == AUX)
    rest, f.records = f.records[at:], f.records[:at]
    for i in range(3000):
        f.task(FORK, deepest, 3000000 + i, 3000000 + i, pid, pid)
    f.records += rest
    r.data = f.write_file(work / "never.data")
    report = json.loads(decode(r, "--json", "--stats"))
    unknown = report["losses"].get("forked_stacks_unknown", 0)
    expect(2000 < unknown < 3000, f"some of them have their parent's calls, and the others are told: {unknown}")
    memory = report["max_rss_bytes"] >> 20
    sanitized = "AddressSanitizer" in subprocess.run(["nm", "-D", BUILD / "tracerd-decode"], capture_output=True, text=True).stdout
    expect(memory < 100 or sanitized, f"3000 children that are never seen take {memory} MiB")


def late_maps(r, work):
    """PT is dated by estimates: what runs before the record of its mapping is what the record says."""
    f = PerfFile.read(r.data)
    last = struct.unpack_from("<Q", f.of_type(AUX)[-1][0], 40)[0]  # after the ids of process and thread
    want = {view: decode(r, view) for view in ("--calls", "--branches")}
    for x in f.of_type(MMAP2):
        x[0] = x[0][:-24] + struct.pack("<Q", last) + x[0][-16:]
    r.data = f.write_file(work / "late.data")
    expect(all(" main" in want[view] and decode(r, view) == want[view] for view in want),
           "code has its names in both views, also before the records of its mappings")


need_command("gcc", "gcc")
if not STEP.exists():
    skip("needs tracerd-step")
with tempfile.TemporaryDirectory() as folder:
    work = pathlib.Path(folder)
    program = compile_calls(work, "begins", ["begins.c"], "-O1", "-fno-inline", "-fno-optimize-sibling-calls", "-static")
    begins(Recording(work, "begins.run", [program]))
    ring = Recording(work, "deep", [program, "deep"], options=["--ring", "--max-bytes", "6000"])
    deep(ring)
    engine(ring, work)
    children_never_seen(work)
    late_maps(Recording(work, "late", [program, "deep"]), work)
