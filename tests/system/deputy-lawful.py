#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 120
"""What a user may read gives symbols: the user's own closed files, what a group of the process may read, a root of the
user's own. The other side of deputy-files.py: who refuses everything fails here."""
from lib.deputy import *

need_deputy()
prepare()
W = tmp() / "w"


def put_pair(d, s, **rights):
    """A stripped program and its debug file, by .gnu_debuglink."""
    debug = s.elf("debug")
    put(d / "prog.debug", debug, **rights)
    put(d / "prog", s.program(gnu_debuglink=link_section("prog.debug", debug)), **rights)
    return d / "prog"


def own_closed(s):
    d = user_dir(W / "closed", 0o700)
    t = Deputy(namespace=False)
    t.do("run", put_pair(d, s, mode=0o600, uid=USER, gid=USER))
    return t


def by_group(s):
    d = tmp() / "team"
    t = Deputy(groups=[GROUP], namespace=False)
    d.mkdir()
    os.chown(d, 0, GROUP)
    os.chmod(d, 0o750)
    t.do("run", put_pair(d, s, mode=0o640, uid=0, gid=GROUP))
    return t


def everybodys(s):
    t = Deputy(namespace=False)
    t.do("run", put_pair(tmp() / "public", s, mode=0o644))
    return t


def build_id(s, root):
    return root / "usr/lib/debug/.build-id" / s.build_id[:1].hex() / f"{s.build_id[1:].hex()}.debug"


def put_own_root(s, root):
    user_dir(root)
    put(root / "prog", s.program(), 0o700, USER, USER)
    p = build_id(s, root)
    for parent in reversed([p.parent, *p.parent.parents]):
        if root in parent.parents:
            user_dir(parent, 0o700)
    put(p, s.elf("debug"), 0o600, USER, USER)


def own_chroot(s):
    put_own_root(s, W / "chroot")
    t = Deputy()
    t.do("chroot", W / "chroot")
    t.do("run", "/prog")
    return t


def own_tmpfs(s):
    """A container of the user's own: nothing in it is in the host's root."""
    t, root = Deputy(), user_dir(W / "container")
    put_own_root(s, W / "image")
    t.do("tmpfs", root)
    t.do("mkdir", root / "image")
    t.do("bind", W / "image", root / "image")
    t.do("chroot", root / "image")
    t.do("run", "/prog")
    return t


def own_overlay(s):
    t, root = Deputy(), user_dir(W / "merged")
    put_own_root(s, W / "lower")
    for name in ("upper", "work"):
        user_dir(W / name)
    t.do("overlay", root, f"lowerdir={W / 'lower'},upperdir={W / 'upper'},workdir={W / 'work'}")
    t.do("pivot", root)
    t.do("run", "/prog")
    return t


def perf_map(s):
    t = Deputy()
    put(W / "jit", s.program(), 0o755, USER)
    t.do("jit", W / "jit")
    maps = user_dir(W / "maps", 0o700)
    put(maps / f"perf-{t.pid}.map", s.text()[:], 0o600, USER, USER)
    t.do("bind", maps, "/tmp")
    return t


CASES = {"files of mode 0600 in a folder of mode 0700, both the user's": own_closed, "files of a group of the process": by_group,
         "files that all may read": everybodys, "a chroot": own_chroot, "a tmpfs as the root": own_tmpfs,
         "an overlay as the root": own_overlay, "a perf map of mode 0600": perf_map}


def run(name):
    deputies, wanted, bad = {}, {}, 0
    for what, make in CASES.items():
        wanted[what] = Secret(what, lawful=True)
        try:
            deputies[what] = make(wanted[what])
        except Refused as e:
            if what == "an overlay as the root":
                note(f"{what}: the kernel refuses it: {e}")
            else:
                fail(f"{what}: {e}")
    with as_unit(name) as d:
        loot, lost = user_takes(d, list(deputies.values()))
    if lost:
        fail(f"{name}: not all is recorded and published: {lost}")
    for what, t in deputies.items():
        trace = loot.parts[f"{t.pid}/trace.pftrace"]
        if wanted[what].mark in trace:
            ok(f"{name}: {what}: the name is in the trace")
        else:
            bad += 1
            tell_failed(f"{name}: {what}: the name is not in the trace")
        t.end()
    shutil.rmtree(W)
    shutil.rmtree(tmp() / "team")
    shutil.rmtree(tmp() / "public")
    user_dir(W)
    return bad


bad = sum(run(name) for name in ("root", "unit"))
if bad:
    fail(f"{bad} of the user's own files give no names")
