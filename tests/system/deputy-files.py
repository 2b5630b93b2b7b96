#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 300
# slow
"""No file of root's comes out of tracerd by a name that a user's process gives it: all rows and columns of lib/deputy.py for a
process that is sampled, with the daemon as root and with the rights of its unit."""
from lib.deputy import *

need_deputy()
prepare()
R, S, W = tmp() / "root", tmp() / "shut", tmp() / "w"

# ---- columns: the secret's bytes appear at the path `p` in the process's eyes


def own_file(p):
    """Something of the user's that a mount can cover."""
    if not p.exists():
        put(p, b"", 0o644, USER, USER)


def away(p):
    if p.is_symlink() or p.exists():
        p.unlink()


def bind(t, p, data, key):
    own_file(p)
    t.do("bind", put(R / key, data), p)


def hard_link(t, p, data, key):
    away(p)
    os.link(put(R / key, data), p)  # by root: who may link depends on fs.protected_hardlinks


def symlink(t, p, data, key):
    away(p)
    t.do("symlink", put(R / key, data), p)


def magic_link(t, p, data, key):
    away(p)
    t.do("symlink", f"/proc/{os.getpid()}/root{put(R / key, data)}", p)


def fifo(t, p, data, key):
    away(p)
    t.do("fifo", p)


def device(t, p, data, key):
    os.mknod(R / key, stat.S_IFCHR | 0o600, os.makedev(1, 9))
    own_file(p)
    t.do("bind", R / key, p)


def overlay(t, p, data, key):
    lower = R / f"{key}.d"
    put(lower / p.name, data)
    for name in ("upper", "work"):
        user_dir(W / f"{key}.{name}")
    t.do("overlay", p.parent, f"lowerdir={lower},upperdir={W / f'{key}.upper'},workdir={W / f'{key}.work'}")


def closed_folder(t, p, data, key):
    shut = S / key
    put(shut / p.name, data, 0o644)
    os.chmod(shut, 0o700)
    t.do("bind", shut, p.parent)


def mode_0600(t, p, data, key):
    away(p)
    put(p, data)


def swapped(t, p, data, key):
    own_file(p)
    t.do("symlink", put(R / key, data), f"{p}.x")
    t.do("swap", p, f"{p}.x")


def remounted(t, p, data, key):
    own_file(p)
    t.do("flap", put(R / key, data), p)


# In the column "user namespace" the user's own tmpfs hides a closed folder of the host's, which has the file.
def user_namespace(t, p, data, key):
    pass


COLUMNS = {"bind mount": bind, "user namespace": user_namespace, "hard link": hard_link, "symlink": symlink,
           "magic link": magic_link, "FIFO": fifo, "device": device, "overlay": overlay, "closed folder": closed_folder,
           "0600": mode_0600, "swapped by rename": swapped, "swapped by mount": remounted}
ROWS = ("object", "kept image", "build id", "debug link", "alternate file", "alternate file by a relative path",
        "name (deleted)", "name [vdso]", "perf map", "root")
NOT = {
    ("build id", "user namespace"): "the host's /usr/lib/debug is no closed folder; a closed file in it is the column 0600",
    ("root", "user namespace"): "a root of one's own is a user namespace already",
    ("root", "swapped by mount"): "a mount in the old root is not seen in the new one; see perf map",
}


class Cell:
    def __init__(self, row, column):
        self.row, self.column = row, column
        self.key = f"{list(COLUMNS).index(column)}-{ROWS.index(row)}-{secrets.token_hex(3)}"
        self.secret = Secret(f"{row} x {column}")
        self.reason = NOT.get((row, column))
        self.own = None  # the user's program at that path
        self.places = []  # paths in the process's eyes that nothing must be fetched from

    def data(self):
        """What is looked for there."""
        if self.row == "perf map":
            return self.secret.text()
        kind = "whole" if self.row in ("object", "kept image", "name (deleted)", "name [vdso]") else "debug"
        return self.secret.elf(kind)

    def folder(self, t):
        """Where the row's files are; the user's program is in it under that name."""
        d = user_dir(W / f"{self.key}")
        if self.column != "user namespace":
            return d
        shut = S / f"{self.key}"
        shut.mkdir()
        t.do("tmpfs", shut)
        return shut

    def program(self, t, d, name, data):
        """The user's program is there, and runs."""
        self.own = data
        if self.column == "user namespace":
            # Two files at one path: the user's tmpfs, and below it the host's closed folder.
            t.do("write", d / name, "")
            t.do("bind", put(W / f"{self.key}.prog", data, 0o755, USER, USER), d / name)
        else:
            put(d / name, data, 0o755, USER, USER)
        t.do("run", d / name)
        return d / name

    def cover(self, t, p):
        """The secret is at p: the mount is the process's, what lies below it the host's."""
        self.places.append(str(p))
        if self.column == "user namespace":
            put(p, self.data(), 0o644)
            os.chmod(p.parent, 0o700)
        COLUMNS[self.column](t, p, self.data(), self.key)


def set_up(cell, t):
    """Before arming; what is to be done afterwards is returned."""
    row, s = cell.row, cell.secret
    if row in ("object", "kept image", "name [vdso]"):
        d = cell.folder(t)
        p = cell.program(t, d, "[vdso]" if row == "name [vdso]" else cell.key, s.program())
        if row == "kept image":
            return lambda: cell.cover(t, p)
        cell.cover(t, p)
    elif row == "name (deleted)":
        d = cell.folder(t)
        cell.program(t, d, f"{cell.key} (deleted)", s.program())
        cell.cover(t, d / cell.key)
    elif row == "debug link":
        d = cell.folder(t)
        # as if both were of one distribution: the user knows the checksum
        cell.program(t, d, cell.key, s.program(gnu_debuglink=link_section("secret.debug", cell.data())))
        # a folder is covered with its program, which goes on running
        cell.cover(t, d / "secret.debug")
    elif row.startswith("alternate file"):
        d = cell.folder(t)
        name = str(d / "alt") if row == "alternate file" else f"../{d.name}/alt"
        cell.program(t, d, cell.key, s.program("with-dwarf", gnu_debugaltlink=name.encode() + b"\0" + s.build_id))
        cell.cover(t, d / "alt")
    elif row == "build id":
        d = user_dir(W / cell.key)
        cell.program(t, d, cell.key, s.program())
        tree = user_dir(W / f"{cell.key}.tree")
        first = user_dir(user_dir(tree / ".build-id") / f"{s.build_id[:1].hex()}")
        cell.cover(t, first / f"{s.build_id[1:].hex()}.debug")
        if not os.path.isdir(DEBUG_TREE):
            t.do("tmpfs", "/usr/lib")
            t.do("mkdir", DEBUG_TREE)
        t.do("bind", tree, DEBUG_TREE)
        cell.places = [f"{DEBUG_TREE}/.build-id/{first.name}/{s.build_id[1:].hex()}.debug"]
    elif row == "perf map":
        d = user_dir(W / cell.key)
        put(d / "prog", s.program(), 0o755, USER)
        t.do("jit", d / "prog")
        maps = user_dir(W / f"{cell.key}.tmp")
        if cell.column == "user namespace":
            put(f"/tmp/perf-{t.pid}.map", cell.data())
            atexit.register(lambda: pathlib.Path(f"/tmp/perf-{t.pid}.map").unlink(missing_ok=True))
        else:
            cell.cover(t, maps / f"perf-{t.pid}.map")
        t.do("bind", maps, "/tmp")
        cell.places = [f"/tmp/perf-{t.pid}.map"]
    elif row == "root":
        root = user_dir(W / f"{cell.key}.root")
        d = user_dir(root / "lib")
        put(d / cell.key, s.program(), 0o755, USER)
        p = root
        for name in ("usr", "lib", "debug", ".build-id", f"{s.build_id[:1].hex()}"):
            p = user_dir(p / name)
        p = p / f"{s.build_id[1:].hex()}.debug"
        cell.cover(t, p)
        t.do("bind", root, root)
        t.do("pivot" if list(COLUMNS).index(cell.column) % 2 else "chroot", root)
        t.do("run", f"/lib/{cell.key}")
        cell.places = ["/" + str(p.relative_to(root))]
    return None


def processes():
    """The cells of each process: what covers a folder that others are in has one to itself."""
    for column in COLUMNS:
        together = []
        for row in ROWS:
            cell = Cell(row, column)
            if cell.reason:
                yield [cell]
            elif row in ("perf map", "root", "build id"):
                yield [cell]
            else:
                together.append(cell)
        yield together


def run(name):
    deputies, racing, cells, later = {}, [], [], []
    for group in processes():
        if group[0].reason:
            cells += group
            continue
        t = Deputy()
        for cell in group:
            cell.pid = t.pid
            try:
                after = set_up(cell, t)
            except Refused as e:
                cell.reason = f"the kernel refuses it: {e}"
            else:
                if after:
                    later.append((cell, after))
        deputies[t.pid] = t
        if group[0].column.startswith("swapped"):
            racing.append(t)
        cells += group
    # Who races fills the rings that all share.
    calm = [t for t in deputies.values() if t not in racing]
    loot = Loot()
    with as_unit(name) as d:
        for batch in [calm, *([t] for t in racing)]:
            more, lost = user_takes(d, batch, [entry for entry in later if entry[0].pid in [t.pid for t in batch]], f"{len(loot.parts)}")
            if lost:
                fail(f"{name}: not all is recorded and published: {lost}")
            loot.parts.update(more.parts)
            for t in batch:
                t.end()
    loot.search([c.secret for c in cells])
    bad = 0
    shown = b"".join(data if name.endswith("/trace.pftrace") else name.encode() for name, data in loot.parts.items())
    for cell in cells:
        what = f"{name}: {cell.row} x {cell.column}"
        if cell.reason:
            note(f"{what}: {cell.reason}")
            continue
        found = cell.secret.found
        if cell.column == "device":
            found += [f"a device is in the bundle: {n}" for n, data in loot.parts.items() for p in cell.places
                      if n.endswith("/images" + p) and data != cell.own]
        if not found and cell.row not in ("perf map", "name [vdso]") and cell.key.encode() not in shown:
            found = ["nothing was looked for: its program was not seen"]
        if found:
            bad += 1
            tell_failed(f"{what}: {', '.join(sorted(found)[:3])}")
        else:
            ok(what)
    return bad


def main():
    bad = sum(run(name) for name in ("root", "unit"))
    if bad:
        fail(f"{bad} ways to what is not the user's")


main()
