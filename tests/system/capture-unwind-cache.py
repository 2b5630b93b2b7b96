#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Tables of unwind rules are kept on disk: after a restart no decoder makes them again, and stacks are as they were. Whatever the files have
become, stacks are right. No user gets a table of his into them, by a build id, by times, by a mount of his own or by the same path."""
import hashlib
import stat
import struct

from lib.capture import *

PART = r"""
#include <string.h>
#include <unistd.h>
__attribute__((noinline)) static int inner(int n) { char b[PAD]; ((volatile char *)b)[n % PAD] = 1; usleep(20); return b[n % PAD]; }
int part(int n) { char b[PAD * 2]; ((volatile char *)b)[n % PAD] = 1; int r = n ? part(n - 1) : inner(n); return r + b[n % PAD]; }
"""
USES = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    void *h = dlopen(argv[1], RTLD_NOW);
    int (*part)(int) = h ? (int (*)(int))dlsym(h, "part") : NULL;
    if (!part) { puts(dlerror()); return 1; }
    puts("ready"); fflush(stdout);
    for (int k = 0;; k++) part(k % 12);
}
"""
PYTHON = "import json, ssl, sqlite3, time\nprint('ready', flush=True)\ndef f(n):\n    return f(n - 1) + 1 if n else (time.sleep(1e-4), 1)[1]\n" \
         "i = 0\nwhile True:\n    i += 1\n    f(i % 7)\n"
ID = "0x0123456789abcdef0123456789abcdef01234567"
USER = 12345
HEAD = 4 * 4 + 8 + 14 * 8 + 32 + 32  # struct unwind_cache_head
SUM = HEAD - 32
REST = 3  # s: UNWIND_CACHE_REST_S
CONTEXT = 2**64 - 512

need_root("BPF")
need_command("gcc")
os.umask(0o022)
fast = ("-O2", "-fomit-frame-pointer", "-fno-optimize-sibling-calls", f"-Wl,--build-id={ID}")
(tmp() / "part.c").write_text(PART)
(tmp() / "uses.c").write_text(USES)
(tmp() / "mute.c").write_text("int mute(int n) { return n + 1; }\n")


def build(out, *command):
    subprocess.run([*map(str, command), "-o", tmp() / out], cwd=tmp(), check=True)
    return tmp() / out


def rest(*paths):
    """A file that was changed a moment ago is not kept."""
    for path in paths:
        wait_for("the file to be older", lambda: os.stat(path).st_ctime + REST + 1 < time.time(), step=0.1)


uses = build("uses", "gcc", *fast, "uses.c", "-ldl")
small = build("small.so", "gcc", *fast, "-DPAD=40", "-shared", "-fPIC", "part.c")
large = build("large.so", "gcc", *fast, "-DPAD=904", "-shared", "-fPIC", "part.c")
expect(all(bytes.fromhex(ID[2:]) in f.read_bytes() for f in (small, large)), "two libraries with other code have one build id")


class Run:
    """One daemon, which finds what the last one has kept."""

    def __init__(self, **kw):
        self.d = Tracerd(**kw)

    def __enter__(self):
        self.d.start()
        self.c = self.d.client()
        need_unwinding(self.c)
        self.n_targets = 0
        return self

    def __exit__(self, *args):
        return self.d.__exit__(*args)

    def counts(self, target):
        return self.c.call("target.show", {"target": target})["target"]["sample"]["unwound"]

    def arm(self, *argv, uid=None, least=200, before=()):
        """Runs it until its stacks are unwound: (process, target)."""
        p = spawn(*before, *argv, uid=uid, stdout=subprocess.PIPE)
        expect(p.stdout.readline() == b"ready\n", f"{pathlib.Path(argv[0]).name} runs")
        t = self.c.call("target.arm", {"pid": p.pid, "stacks": "bpf", "wait_min_us": 0})["target"]["id"]
        wait_for("its tables", lambda: (u := self.counts(t))["complete"] > least and not u["mappings_waiting"])
        return p, t

    def end(self, p, t):
        self.c.call("target.disarm", {"target": t})
        p.kill()
        p.wait()

    def cache(self):
        time.sleep(0.3)  # daemon/status/picture.h: all who ask within 250 ms get one picture
        return (s := self.c.call("status")["capture"]["unwinding"])["cache"] | {"decoders": s["decoders"]}

    def files(self):
        folder = self.d.state / "unwind"
        return {f.name: f for f in folder.iterdir()} if folder.is_dir() else {}

    def are_right(self, p, t, what):
        """Each stack of the program goes through part() to main(): by the other library's table it would end in between."""
        maps = [line.split() for line in pathlib.Path(f"/proc/{p.pid}/maps").read_text().splitlines()]
        own = [tuple(int(x, 16) for x in m[0].split("-")) for m in maps if m[-1].endswith("/uses") and "x" in m[1]]

        def chains():
            found = []
            for r in bundle(self.c, t)[1]:
                if r.type == SAMPLE and r.id == SCHED and sched(r).kind == OUT and r.tid == p.pid:
                    (n,) = struct.unpack_from("<Q", r.body, 48)
                    chain = struct.unpack_from(f"<{n}Q", r.body, 56)
                    chain = [x for x in chain[chain.index(CONTEXT):] if x != CONTEXT] if CONTEXT in chain else []
                    (size,) = struct.unpack_from("<I", r.body, 56 + 8 * n)
                    (abi,) = struct.unpack_from("<Q", r.body, 60 + 8 * n + size)
                    if chain and not abi:
                        found.append(chain)
            return found
        all_of = wait_for("stacks", lambda: c if len(c := chains()) > 300 else None, step=0.3)
        good = [c for c in all_of if any(lo <= c[-1] < hi for lo, hi in own) and sum(lo <= a < hi for a in c for lo, hi in own) == 2]
        expect(len(good) == len(all_of), f"{what}: all {len(all_of)} stacks go through main()")

    def once(self, library, what, uid=None, before=()):
        p, t = self.arm(uses, library, uid=uid, before=before)
        self.are_right(p, t, what)
        self.end(p, t)


def python_of(run, t):
    found = run.c.call("target.show", {"target": t})["target"]["sample"].get("python")
    return [(x["version"], x["refused"]) for x in (found if isinstance(found, list) else [found] if found else [])]


def damages(files, other_uid):
    """One way each; as many as there are files."""
    def cut(n):
        return lambda f, b: f.write_bytes(b[:n(len(b))])

    def flip(at):
        return lambda f, b: f.write_bytes(b[:at] + bytes([b[at] ^ 1]) + b[at + 1:])

    def summed(at, value):
        """With a checksum that is right."""
        def do(f, b):
            b = bytearray(b)
            b[at:at + len(value)] = value
            b[SUM:HEAD] = bytes(32)
            b[SUM:HEAD] = hashlib.sha256(b).digest()
            f.write_bytes(b)
        return do

    def link(kind):
        def do(f, b):
            (tmp() / f"aside-{f.name}").write_bytes(b)
            os.chmod(tmp() / f"aside-{f.name}", 0o600)
            os.chown(tmp() / f"aside-{f.name}", f.stat().st_uid, f.stat().st_gid)
            f.unlink()
            kind(tmp() / f"aside-{f.name}", f)
        return do

    ways = {
        "empty": cut(lambda n: 0), "half of a header": cut(lambda n: HEAD // 2), "no table": cut(lambda n: HEAD), "half": cut(lambda n: n // 2),
        "one byte less": cut(lambda n: n - 1), "one byte more": lambda f, b: f.write_bytes(b + b"x"), "zeros": lambda f, b: f.write_bytes(bytes(len(b))),
        "another magic": flip(0), "another version": flip(4), "other rules": flip(8), "another length of the JSON": flip(12),
        "another length": flip(16), "another device": flip(24), "another inode": flip(32), "another decoder": flip(24 + 56 + 8),
        "another first page": flip(24 + 112), "another checksum": flip(SUM), "another table": flip(HEAD), "another end": flip(-1),
        "another version, summed": summed(4, b"\2"), "another table's magic, summed": summed(HEAD, b"\0"),
        "no rules, summed": summed(HEAD + 16, bytes(4)), "too many rows, summed": summed(HEAD + 12, b"\xff\xff\xff\xff"),
        "another's": lambda f, b: f.write_bytes(next(x for x in files if x[:HEAD] != b[:HEAD])),
        "a link": link(lambda aside, f: f.symlink_to(aside)), "another name of it": link(lambda aside, f: f.hardlink_to(aside)),
        "open to others": lambda f, b: os.chmod(f, 0o644), "another owner": lambda f, b: os.chown(f, other_uid, other_uid),
        "a fifo": lambda f, b: (f.unlink(), os.mkfifo(f, 0o600)),
    }
    return list(ways.items())


def restarts(unit):
    """A program with many libraries, armed again by the next daemon, which finds all, or all damaged."""
    name = "unit" if unit else "root"
    program = (interpreter(), "-c", PYTHON)
    with Run(name=name, unit_rights=unit) as run:
        before = run.cache()
        expect(before["enabled"] and before["hits"] == before["misses"] == before["files"] == 0, f"{name}: nothing is kept at first")
        # Twice: a file that could not be opened in time, on a busy machine, has no table for the first.
        for _ in range(2):
            p, t = run.arm(*program)
            python = python_of(run, t)
            left = run.c.call("target.show", {"target": t})["target"]["lost"], run.counts(t)
            run.end(p, t)
        first = run.cache()
        expect(first["decoders"] > 0 and first["hits"] == 0 and first["misses"] > 5 and first["damaged"] == 0,
               f"{name}: tables are made and looked for: {first}")
        files = run.files()
        expect(first["files"] == len(files) >= first["misses"] - 3 and first["bytes"] == sum(f.stat().st_size for f in files.values()),
               f"{name}: and kept: {len(files)} files")
        owner = UNIT_UID if unit else 0
        expect(all((s := f.lstat()).st_uid == owner and s.st_mode == stat.S_IFREG | 0o600 for f in files.values()) and
               (s := (run.d.state / "unwind").stat()).st_mode == stat.S_IFDIR | 0o700 and s.st_uid == owner, f"{name}: for the daemon alone")
    with Run(name=name, unit_rights=unit) as run:
        p, t = run.arm(*program)
        again = run.cache()
        expect(again["decoders"] == 0 and again["misses"] == 0 and again["hits"] == first["misses"], f"{name}: the next daemon starts no decoder: {again}, {left}")
        expect(python_of(run, t) == python, f"{name}: and knows the interpreter: {python}")
        run.end(p, t)
    # Every kind of damage, to as many files as there are, until each has been done.
    kinds = damages([f.read_bytes() for f in files.values()], USER)
    while kinds:
        done = list(zip(files.values(), kinds))
        kinds = kinds[len(done):]
        for f, (_, do) in done:
            do(f, f.read_bytes())
        with Run(name=name, unit_rights=unit) as run:
            p, t = run.arm(*program)
            bad = run.cache()
            run.end(p, t)
            expect(bad["damaged"] == len(done), f"{name}: each is found: {', '.join(what for _, (what, _) in done)}: {bad}")
            expect(bad["misses"] == len(done) and bad["hits"] == first["misses"] - len(done) and bad["decoders"] > 0,
                   f"{name}: and its table is made again")
            expect(sorted(run.files()) == sorted(files) and bad["files"] == len(files), f"{name}: and kept")
    with Run(name=name, unit_rights=unit) as run:
        p, t = run.arm(*program)
        run.end(p, t)
        expect((now := run.cache())["decoders"] == 0 and now["damaged"] == 0, f"{name}: after that all are there: {now}")
        log = run.d.log()
        expect("damaged; the table is made again" in log, f"{name}: and the log says so")


def poison():
    """Two libraries with the same build id: root's, and a user's with other code."""
    yours, mine = tmp() / "root", tmp() / "user"
    for folder, uid in ((yours, 0), (mine, USER)):
        folder.mkdir()
        os.chown(folder, uid, uid)
    ours = shutil.copy(small, yours / "part.so")
    theirs = shutil.copy(large, mine / "part.so")
    os.chown(theirs, USER, USER)
    st = os.stat(ours)
    os.utime(theirs, ns=(st.st_atime_ns, st.st_mtime_ns))
    rest(ours, theirs, uses)
    with Run(name="poison") as run:
        run.once(theirs, "the user's library", uid=USER)
        kept = set(run.files())
        before = run.cache()
        run.once(theirs, "the user's library in root's program")
        expect(set(run.files()) == kept and run.cache()["misses"] == before["misses"], "the user's is not kept, whoever runs it")
        run.once(ours, "root's library")
        new = set(run.files()) - kept
        expect(len(new) == 1, "root's library is kept")
    with Run(name="poison") as run:
        run.once(theirs, "after a restart, the user's library", uid=USER)
        run.once(ours, "after a restart, root's library")
        now = run.cache()
        expect(now["misses"] == 0 and now["decoders"] == 1, f"only the user's is made again: {now}")

    # Files of root that others can change, or have put there.
    with Run(name="poison") as run:
        open_to = {}
        for mode in (0o775, 0o757):
            f = shutil.copy(large, yours / f"mode-{mode:o}.so")
            os.chmod(f, mode)
            open_to[f] = f"a library of root with mode {mode:o}"
        acl = shutil.copy(large, yours / "acl.so")
        entries = ((1, 7, -1), (2, 7, USER), (4, 5, -1), (16, 7, -1), (32, 5, -1))
        try:
            os.setxattr(acl, "system.posix_acl_access", struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *e) for e in entries))
            open_to[acl] = "a library of root that an ACL lets a user write"
        except OSError as e:
            note(f"no ACL can be set here: {e}")
        rest(*open_to)
        kept = set(run.files())
        for f, what in open_to.items():
            run.once(f, what)
            expect(set(run.files()) == kept, f"{what} is not kept")
        inside = tmp() / "mount"
        inside.mkdir()
        # The mounts get one device number, and the files one inode, for other code.
        for flags, code, keeps in (("nosuid", small, False), ("suid", large, True)):
            script = f'mount -t tmpfs -o {flags},mode=755 none "$0" && cp "$1" "$0/part.so" && sleep {REST + 2} && exec "$2" "$0/part.so"'
            p, t = run.arm("unshare", "-m", "sh", "-c", script, inside, code, uses)
            run.are_right(p, t, f"a library of root on a mount with {flags}")
            run.end(p, t)
            new = set(run.files()) - kept
            expect(bool(new) == keeps, f"it is {'kept' if keeps else 'not kept'}: {len(new)}")
            kept |= new

    # Root puts other code into the same inode, with the same size and time.
    st, inode = os.stat(ours), os.stat(ours).st_ino
    kept = set(run.files())
    code = large.read_bytes()
    expect(len(code) == st.st_size, "the libraries have the same size")
    with open(ours, "r+b") as f:
        f.write(code)
    os.utime(ours, ns=(st.st_atime_ns, st.st_mtime_ns))
    with Run(name="poison") as run:
        changed = run.arm(uses, ours)
        run.are_right(*changed, "a library that was just changed in place")
        run.end(*changed)
        expect(os.stat(ours).st_ino == inode and os.stat(ours).st_mtime_ns == st.st_mtime_ns, "its inode, size and time are those of before")
    rest(ours)
    with Run(name="poison") as run:
        run.once(ours, "and after a while")
        new = set(run.files()) - kept
        expect(len(new) == 1, f"it is kept as another file: {len(new)}, {run.cache()}")


def budget():
    folder = tmp() / "tracerdsmall/state/unwind"
    mute = build("mute.so", "gcc", "-O2", "-shared", "-fPIC", "-nostdlib", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables", "mute.c")
    rest(mute)
    for what, decoders in (("made", True), ("there after a restart", False)):
        with Run(name="mute") as run:
            p, t = run.arm(uses, small, before=("env", f"LD_PRELOAD={mute}"))
            expect(run.counts(t)["mappings_without"] > 0, "one library tells nothing")
            expect(((s := run.cache())["decoders"] > 0) == decoders and s["misses" if decoders else "hits"] >= 5, f"which is {what}: {s}")
            run.end(p, t)
    with Run(name="small", config="[capture]\nunwind_cache_mib = 1\n") as run:
        expect(not folder.exists(), "without a target there is no directory")
        run.once(small, "with a small budget")
        expect((s := run.cache())["max_bytes"] == 1 << 20 and s["thrown_away"] == 0, "there is room")
    old = [folder / f"{i:064x}" for i in range(5)]
    for i, f in enumerate(old):
        f.write_bytes(bytes(250 * 1024))
        os.chmod(f, 0o600)
        os.utime(f, (1000 + i, 1000 + i))
    with Run(name="small", config="[capture]\nunwind_cache_mib = 1\n") as run:
        run.once(small, "with too much on disk")
        s = run.cache()
        left = [f.exists() for f in old]
        expect(s["hits"] > 0 and s["decoders"] == 0 and s["bytes"] <= 1 << 20 and s["thrown_away"] == left.count(False) > 0, f"what is used stays: {s}")
        expect(left == sorted(left), f"the oldest go first: {left}")
        p, t = run.arm(interpreter(), "-c", PYTHON)
        run.end(p, t)
        now = run.cache()
        expect(now["bytes"] == sum(f.stat().st_size for f in folder.iterdir()) <= 1 << 20 and now["thrown_away"] > s["thrown_away"],
               f"what comes makes room for itself: {now}")
    with Run(name="none", config="[capture]\nunwind_cache_mib = 0\n") as run:
        run.once(small, "without a budget")
        expect(not run.cache()["enabled"] and not (run.d.state / "unwind").exists() and run.cache()["decoders"] > 0, "nothing is kept")


def directory():
    """One that is not the daemon's alone is left alone."""
    elsewhere = tmp() / "elsewhere"
    elsewhere.mkdir()
    for what, make in (("a link", lambda f: f.symlink_to(elsewhere)), ("open to a group", lambda f: (f.mkdir(), os.chmod(f, 0o770))),
                       ("another's", lambda f: (f.mkdir(), os.chmod(f, 0o700), os.chown(f, USER, USER)))):
        name = "dir-" + what.replace(" ", "-").replace("'", "")
        folder = tmp() / f"tracerd{name}/state/unwind"
        folder.parent.mkdir(parents=True)
        make(folder)
        with Run(name=name) as run:
            run.once(small, f"the directory is {what}")
            s = run.cache()
            expect(not s["enabled"] and s["error"] and s["files"] == 0 and not list(folder.iterdir()), f"nothing is kept: {s['error']}")


restarts(False)
restarts(True)
poison()
budget()
directory()
