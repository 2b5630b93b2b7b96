#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 300
"""A file system that hangs hangs nobody but whoever asked for it: files of a process lie on FUSE, whose server stops to
answer. Meanwhile another user arms, takes snapshots and asks for the status, and tracerd ends in time."""
import resource

from lib.deputy import *

need_deputy()
HUNGFS = BUILD / "tests/programs/hungfs"
if not HUNGFS.exists():
    skip("tests/programs/hungfs is not built")
prepare()
W = tmp() / "w"
FUSE = tmp() / "fuse"
OTHER = 12346
# Only who waits for a hung file system waits for so long, and no limit of the daemon's ends that before.
PATIENCE = 60.0
HANGS = "[snapshot]\nsnapshot_timeout_s = 600\n"

if not os.path.exists("/dev/fuse"):
    skip("there is no /dev/fuse here")
# Elsewhere everybody may open it, as udev has it.
os.mknod(FUSE, stat.S_IFCHR | 0o666, os.stat("/dev/fuse").st_rdev)
os.chmod(FUSE, 0o666)
shutil.copy(HUNGFS, tmp() / "bin")


class Hung:
    """The server. It hangs from hang() on; end() lets go of whoever waits for it."""

    def __init__(self, t, where, name, file, *operations):
        self.mountpoint = where
        who = {} if t is None else {"user": USER, "group": USER, "extra_groups": []}
        self.process = spawn(tmp() / "bin" / "hungfs", t.pid if t else "-", FUSE, where, name, file, *operations,
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, **who)
        if self.process.stdout.readline() != b"ready\n":
            self.process.kill()
            skip(f"FUSE cannot be mounted here: {self.process.stderr.read().decode()}")
        self.own = t is not None
        atexit.register(self.end)

    def hang(self):
        self.process.send_signal(signal.SIGUSR1)

    def end(self):
        atexit.unregister(self.end)
        self.process.kill()
        self.process.wait()
        if not self.own:
            subprocess.run(["umount", "-l", self.mountpoint])


def others_go_on(d, what):
    """Another user's whole round, in time."""
    began = time.monotonic()

    def round():
        with d.client(timeout=PATIENCE) as c:
            c.call("status")
            t = c.arm(other.pid)
            s = c.snapshot(t["id"], timeout=PATIENCE)
            if s["state"] != "done":
                raise AssertionError(f"{what}: {s['error']}")
            c.call("snapshot.delete", {"snapshot": s["id"]})
            c.call("target.disarm", {"target": t["id"]})
    sys.stdout.flush()
    if as_user(OTHER, round):
        return False
    note(f"{what}: the other user's round took {time.monotonic() - began:.1f} s")
    return True


def program_hung(s, operations, by_root):
    """The program is mapped from there."""
    d = user_dir(W / s.hex)
    put(d / "file", s.program(), 0o755, USER, USER)
    where = user_dir(W / f"{s.hex}.fs")
    t = Deputy()
    hung = Hung(None if by_root else t, where, "prog", d / "file", *operations)
    if by_root:
        # the mount is the host's: not in the namespace that was made before
        t.end()
        t = Deputy()
    t.do("run", where / "prog")
    return t, hung


def root_hung(s, operations, by_root):
    """The process lives in a root that hangs."""
    t, hung = program_hung(s, operations, by_root)
    t.do("chroot", hung.mountpoint)
    return t, hung


def perf_map_hung(s, operations, by_root):
    d = user_dir(W / s.hex)
    put(d / "file", s.program(), 0o755, USER, USER)
    t = Deputy()
    t.do("jit", d / "file")
    put(d / "map", s.text(), 0o644, USER, USER)
    where = user_dir(W / f"{s.hex}.fs")
    hung = Hung(None if by_root else t, where, f"perf-{t.pid}.map", d / "map", *operations)
    if by_root:
        # into the namespace, which has not seen the mount: by the fd of a process that has
        hung.end()
        raise Refused("a mount of the host's is not in a namespace that was made before")
    t.do("bind", where, "/tmp")
    return t, hung


def debug_hung(s, operations, by_root):
    d = user_dir(W / s.hex)
    debug = s.elf("debug")
    put(d / "file", debug, 0o644, USER, USER)
    where = user_dir(W / f"{s.hex}.fs")
    t = Deputy()
    hung = Hung(None if by_root else t, where, "prog.debug", d / "file", *operations)
    if by_root:
        t.end()
        t = Deputy()
    # the program beside it by a link of its folder's name
    user_dir(W / f"{s.hex}.d")
    put(W / f"{s.hex}.d" / "prog", s.program(gnu_debuglink=link_section("prog.debug", debug)), 0o755, USER)
    t.do("run", W / f"{s.hex}.d" / "prog")
    t.do("bind", where, W / f"{s.hex}.d")
    return t, hung


# what lies there, whether root has mounted it, whether it hangs before the process is armed, and in what
ALL = ["lookup", "getattr", "open", "read", "statfs"]
CASES = [
    (program_hung, False, True, ALL),
    (program_hung, True, False, ALL),
    (program_hung, True, True, ALL),
    (program_hung, True, True, ["open"]),
    (program_hung, True, False, ["read"]),
    (program_hung, True, False, ["flush", "release"]),
    (root_hung, True, True, ALL),
    (perf_map_hung, False, False, ALL),
    (debug_hung, True, False, ["lookup", "getattr"]),
    (debug_hung, True, False, ["read"]),
]


def run_case(name, place, by_root, before, operations):
    what = (f"{name}: {place.__name__.replace('_', ' ')} {'before' if before else 'after'} it is armed, mounted by"
            f" {'root' if by_root else 'the user'}: {', '.join(operations)}")
    t, hung = place(Secret(what, lawful=True), operations, by_root)
    d = as_unit(name, QUOTAS + HANGS).start()
    process = d.process
    armer = d.client(timeout=PATIENCE)
    good, status = False, None
    try:
        if before:
            hung.hang()
        request = armer.send("target.arm", {"pid": t.pid})
        if not before:
            armer.wait(request)
            burn([t])
            hung.hang()
        good = others_go_on(d, "armed")
        if good:
            armer.send("snapshot.create", {"target": str(t.pid), "with_objects": True})
            good = others_go_on(d, "while its snapshot is made")
        if good:
            armer.send("target.disarm", {"target": str(t.pid)})
            good = others_go_on(d, "disarmed")
        process.send_signal(signal.SIGTERM)
        status = process.wait(PATIENCE)
    except (OSError, Error, Closed, subprocess.TimeoutExpired) as e:
        note(f"{what}: {e!r}")
    hung.end()
    t.end()
    armer.close()
    if status is None:
        # what hung has been let go
        process.kill()
        process.wait(PATIENCE)
    d.process = None
    d.notify.close()
    Tracerd.running.remove(d)
    wait_for("no process of ours is left", lambda: not [p for p in os.listdir("/proc") if p.isdigit() and str(d.dir) in cmdline(p)])
    shutil.rmtree(d.dir)
    if good and status == 0:
        ok(what)
        return True
    tell_failed(f"{what}: others {'go on' if good else 'wait'}; after SIGTERM: {status}")
    return False


def cmdline(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return ""


other = spawn(tmp() / "bin" / "deputy", uid=OTHER, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
bad = 0
for name in ("root", "unit"):
    for case in CASES:
        bad += not run_case(name, *case)
if bad:
    fail(f"{bad} file systems hang others")
