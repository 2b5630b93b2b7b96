#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Stacks of programs that were not written here, against gdb's.

gdb attaches and stops every thread where it is; each stop is a switch-out whose user stack the
recording holds. So the last stack of each thread in the snapshot must be gdb's, function by
function (those aside that gdb infers from debug information: inlined and tail-called ones), for a Python interpreter with threads,
redis under load and sqlite3 in the middle of a query. perf reads the same bundle.
"""
import json
import re
import textwrap

from lib import *

need_root("gdb attaches to a running process, and cpu-wide sampling")
need_command("gdb", "gdb")

GDB_SCRIPT = r"""
import gdb, json, subprocess
gdb.execute("set backtrace past-main on")
out = {}
for thread in gdb.selected_inferior().threads():
    thread.switch()
    frames, f = [], gdb.newest_frame()
    while f is not None and len(frames) < 200:
        if f.type() in (gdb.NORMAL_FRAME, gdb.SIGTRAMP_FRAME):
            frames.append([f.name() or "", f.pc()])
        f = f.older()
    out[thread.ptid[1]] = frames
subprocess.run([TRACECTL, "snapshot", str(PID), "-o", OUT + "/"], check=True, stdout=subprocess.DEVNULL)
json.dump(out, open(OUT + ".gdb.json", "w"))
"""

PYTHON = """
import json, queue, threading, time
q = queue.Queue()
def spin():
    while True: json.dumps(list(range(300)))
def wait_forever():
    q.get()
def nap():
    while True: time.sleep(0.01)
def locked(lock=threading.Lock()):
    while True:
        with lock: time.sleep(0.005)
for f in (spin, wait_forever, nap, locked, locked):
    threading.Thread(target=f, daemon=True).start()
time.sleep(6000)
"""

SQL = """
create table t(a integer primary key, b text);
with recursive c(x) as (select 1 union all select x+1 from c where x<20000) insert into t select x, hex(randomblob(16)) from c;
select count(*) from t x join t y on x.b < y.b where x.b like '%7%';
"""


def final_stacks(text):
    """{tid: [innermost .. outermost]} of what was open when the recording ended."""
    tracks, open_, last = {}, {}, {}
    for line in text.splitlines():
        f = line.split("\t")
        if f[0] == "T":
            tracks[f[1]] = int(f[4])
            open_.setdefault(f[1], [])
        elif len(f) > 2 and f[2] == "B" and f[1] in open_:
            open_[f[1]].append((json.loads(f[3]), int(f[0])))
            last[f[1]] = [n for n, _ in open_[f[1]]]
        elif len(f) > 2 and f[2] == "E" and f[1] in open_ and open_[f[1]]:
            # The stack as it was before the run of ends at one time.
            stack = open_[f[1]]
            if last.get((f[1], "t")) != f[0]:
                last[f[1]] = [n for n, _ in stack]
                last[(f[1], "t")] = f[0]
            stack.pop()
    return {tid: list(reversed(last.get(track, []))) for track, tid in tracks.items()}


def plain(name):
    """One name for the aliases and clones of one function: gdb and a symbol table may pick another
    of several names at one address."""
    name = re.sub(r"@.*$|\.(cold|part|constprop|isra|lto_priv)\b.*$", "", name)
    name = re.sub(r"^__GI_", "", name)
    name = re.sub(r"^(__libc_|__new_|__old_|_+)", "", name)
    name = name.replace("mempcpy", "memmove").replace("memcpy", "memmove")
    return re.sub(r"(_impl|_cancel|_time64|64)$", "", name)


def agree(ours, theirs):
    """Whether two lists of functions, innermost first, name the same calls. A name that gdb does
    not know ("") may be anything."""
    ours = [n for n in ours if not n.startswith("off CPU")]
    if ours and ours[0] == "[kernel]":
        ours = ours[1:]
    if len(ours) != len(theirs):
        return False
    return all(not t or o.startswith("[") or plain(o) == plain(t) for o, t in zip(ours, theirs))


def check(d, what, pid, least):
    out = tmp() / what
    armed = d.tracectl("arm", pid, "--stacks", "dwarf")
    if armed.returncode:
        fail(f"{what}: arm: {armed.stderr}")
    time.sleep(0.5)
    script = tmp() / f"{what}.gdb.py"
    script.write_text(f"TRACECTL={str(BUILD / 'tracectl')!r}\nPID={pid}\nOUT={str(out)!r}\n" + GDB_SCRIPT)
    gdb = subprocess.run(["gdb", "-nx", "-batch", "-p", str(pid), "-x", script], capture_output=True, text=True,
                         timeout=PATIENCE, stdin=subprocess.DEVNULL, env={**os.environ, "TRACERD_SOCKET": str(d.sock),
                                                                    "DEBUGINFOD_URLS": ""})
    theirs_file = tmp() / f"{what}.gdb.json"
    if not theirs_file.exists():
        fail(f"{what}: gdb: {gdb.stdout[-2000:]}{gdb.stderr[-2000:]}")
    theirs = {int(k): [n for n, _ in v] for k, v in json.loads(theirs_file.read_text()).items()}
    text = d.tracectl("decode", out, "-o", "-", "--format", "text")
    if text.returncode:
        fail(f"{what}: decode: {text.stderr}")
    ours = final_stacks(text.stdout)
    same = 0
    for tid, stack in sorted(theirs.items()):
        if agree(ours.get(tid, []), stack):
            same += 1
        else:
            note(f"{what} thread {tid}:")
            note(f"   here {' < '.join(ours.get(tid, ['(not there)']))}")
            note(f"   gdb  {' < '.join(stack)}")
    if same < len(theirs) or same < least:
        fail(f"{what}: {same} of {len(theirs)} threads' stacks are gdb's, {least} at least")
    ok(f"{what}: the stacks of all {same} threads are gdb's")
    # The rings are shared: what goes on recording would push out what comes next.
    d.tracectl("disarm", pid)
    if working_perf():
        p = subprocess.run(["perf", "script", "-i", out / "perf.data"], capture_output=True, timeout=PATIENCE, cwd=tmp())
        expect(p.returncode == 0 and p.stderr == b"", f"{what}: perf script reads the bundle without a word")
    return out


# sqlite3's interpreter has frames of several KiB: copies of the stack long enough to hold them.
with Tracerd(config="[capture]\ndwarf_stack_bytes = 32768\ndwarf_ring_kib = 65536\n") as d:
    python = tmp() / "threads.py"
    python.write_text(PYTHON)
    p = spawn(sys.executable, python)
    wait_for("its threads", lambda: len(os.listdir(f"/proc/{p.pid}/task")) == 6)
    let_work(p.pid)
    check(d, "python", p.pid, 3)

    if shutil.which("redis-server"):
        r = spawn("redis-server", "--port", "0", "--unixsocket", tmp() / "redis.sock", "--save", "", "--appendonly", "no",
                  "--dir", tmp(), stdout=subprocess.DEVNULL)
        wait_for("redis listens", (tmp() / "redis.sock").exists)
        if shutil.which("redis-benchmark"):
            spawn("redis-benchmark", "-s", tmp() / "redis.sock", "-q", "-l", "-t", "set,get,lrange",
                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(0.5)
        check(d, "redis", r.pid, 3)
    else:
        note("no redis-server (Debian/Ubuntu package: redis-server): left out")

    if shutil.which("sqlite3"):
        sql = tmp() / "work.sql"
        sql.write_text(textwrap.dedent(SQL))
        s = spawn("sqlite3", ":memory:", f".read {sql}", stdout=subprocess.DEVNULL)
        let_work(s.pid)
        check(d, "sqlite3", s.pid, 1)
        for again in ("sqlite3-2", "sqlite3-3"):
            time.sleep(0.2)
            check(d, again, s.pid, 1)
    else:
        note("no sqlite3 (Debian/Ubuntu package: sqlite3): left out")
