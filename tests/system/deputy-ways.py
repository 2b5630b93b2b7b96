#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 300
"""Ways to files of root's that were found in tracerd once, each from its beginning as an ordinary user would go it, with the
daemon as root and with the rights of its unit: a bind mount over the perf map, also by a trigger; the debug link of a
program at the path of a closed folder; a file with the inode number of another; a set-group-ID program; a unit that is not
the user's."""
from lib.deputy import *

need_deputy()
prepare()
R, S, W = tmp() / "root", tmp() / "shut", tmp() / "w"


def bind_over_perf_map(s):
    """The host's /tmp, one mount."""
    secret = put(R / s.hex, s.text())
    t = Deputy()
    p = put(f"/tmp/perf-{t.pid}.map", b"", 0o644, USER, USER)
    atexit.register(p.unlink, missing_ok=True)
    put(W / s.hex, s.program(), 0o755, USER)
    t.do("jit", W / s.hex)
    t.do("bind", secret, p)
    return t, None


def link_into_closed_folder(s):
    """The folder is closed, the file in it is not; what the user maps lies at that path, in a mount of the user's."""
    shut = S / s.hex
    debug = s.elf("debug")
    put(shut / "secret.debug", debug, 0o644)
    os.chmod(shut, 0o700)
    put(W / s.hex, s.program(gnu_debuglink=link_section("secret.debug", debug)), 0o755, USER)
    t = Deputy()
    t.do("tmpfs", shut)
    t.do("write", shut / "prog", "")
    t.do("bind", W / s.hex, shut / "prog")
    t.do("run", shut / "prog")
    return t, None


def made_up_inode(s, when):
    """Root's file is on an overlay, whose mappings show another device than stat() does."""
    over = tmp() / "overlay"
    if not over.exists():
        for name in ("over", "overlay"):
            (tmp() / name).mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "mode=755", "x", tmp() / "over"], check=True)
        atexit.register(subprocess.run, ["umount", "-l", tmp() / "over"])
        for name in ("lower", "upper", "work"):
            (tmp() / "over" / name).mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", ",".join(
            f"{k}dir={tmp() / 'over' / k}" for k in ("lower", "upper", "work")), over], check=True)
        atexit.register(subprocess.run, ["umount", "-l", over])
    secret = put(over / s.hex, s.elf("whole"))
    t = Deputy()
    d = user_dir(W / f"{s.hex}.d")
    put(W / s.hex, s.program(), 0o755, USER)
    t.do("tmpfs", d)
    t.do("inode", d / "prog", secret.stat().st_ino)
    # its bytes, in the inode that it has
    t.do("copy", W / s.hex, d / "prog")
    t.do("run", d / "prog")
    if when == "before":
        t.do("bind", secret, d / "prog")
        return t, None
    return t, lambda: t.do("bind", secret, d / "prog")


def set_group_id(s):
    """A mapping that is told of when the process is a set-group-ID program already, with a group that the user has not. The
    file that this group may read is the debug file of what the user's own program had mapped."""
    debug = s.elf("debug")
    put(R / s.hex, debug, 0o640, gid=GROUP)
    program = put(R / f"{s.hex}.sgid", DEPUTY.read_bytes(), 0o2755, gid=GROUP)
    d = user_dir(W / f"{s.hex}.d")
    os.symlink(R / s.hex, d / "secret.debug")
    put(d / "prog", s.program(gnu_debuglink=link_section("secret.debug", debug)), 0o755, USER)
    put(d / "last", s.program(), 0o755, USER)
    t = Deputy(namespace=False)
    t.do("run", d / "prog")

    def become():
        burn([t])
        if t.try_to("exec", program, d / "last") != "ready":
            raise Refused("the set-group-ID program does not start")
        if f"\t{GROUP}\n" not in pathlib.Path(f"/proc/{t.pid}/status").read_text():
            raise Refused("the program does not get the group: mounted nosuid?")
        t.do("run", d / "prog")
    return t, become


WAYS = {"a bind mount over the perf map": bind_over_perf_map,
        "a debug link at the path of a closed folder": link_into_closed_folder,
        "another file's inode number, covered before it is armed": lambda s: made_up_inode(s, "before"),
        "another file's inode number, covered afterwards": lambda s: made_up_inode(s, "after"),
        "a set-group-ID program's group": set_group_id}


def trigger_way(d, s):
    """The process registers, and a region of its own takes the snapshot."""
    secret = put(R / s.hex, s.text())
    t = Deputy(env={"TRACERD_SOCKET": str(d.sock)})
    p = put(f"/tmp/perf-{t.pid}.map", b"", 0o644, USER, USER)
    atexit.register(p.unlink, missing_ok=True)
    put(W / s.hex, s.program(), 0o755, USER)
    t.do("jit", W / s.hex)
    t.do("bind", secret, p)
    t.do("events")
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        def work():
            loot = Loot()
            with Ear(d.sock) as c:
                c.arm(t.pid)
                c.call("trigger.add", {"target": str(t.pid), "region": "slow", "over_ns": 1000})
                theirs.send(b"a")
                theirs.recv(1)
                done = wait_for("the trigger's snapshot", lambda: [
                    x for x in c.call("snapshot.list")["snapshots"] if x["state"] in ("done", "failed")])
                for name, data in c.fetch(done[0]["id"]).items():
                    loot.add(f"trigger/{name}", unpacked(data) if name == "trace.pftrace" else data)
                ask_all(c, loot, "trigger")
            with theirs.makefile("wb") as f:
                pickle.dump(loot.parts, f)
        os._exit(1 if as_user(USER, work) else 0)
    theirs.close()
    loot = Loot()
    try:
        ours.recv(1)
        burn([t])
        t.do("region", "slow", 20)
        ours.send(b"s")
        with ours.makefile("rb") as f:
            loot.parts = pickle.load(f)
    except (EOFError, OSError) as e:
        fail(f"the user's part failed: {e!r}")
    os.waitpid(child, 0)
    t.end()
    loot.search([s])
    return not s.found


def units_refused(d):
    """Whose control group it is, the path does not say: only administrators arm one."""
    names = ["/", "..", "../../init.scope", "system.slice", "system.slice/../init.scope", "user.slice/user-12345.slice",
             f"user-{USER}.slice", "a.scope", "/sys/fs/cgroup/init.scope", "\u202ex.service", "x" * 256]

    def work():
        with d.client() as c:
            for name in names:
                code = c.call_error("target.arm", {"unit": name})
                if code != "not_permitted":
                    fail(f"the unit {name!r}: {code}")
    if as_user(USER, work):
        return False
    if isinstance(d, Booted):
        return True  # some of them are there, and an administrator may
    with d.client() as c:
        for name in names[1:3] + names[4:5] + names[8:9]:
            code = c.call_error("target.arm", {"unit": name})
            if code not in ("bad_params", "not_found", "gone", "unsupported"):
                fail(f"an administrator's unit {name!r}: {code}")
    return True


def run(name):
    bad, kept, deputies, later = 0, {}, [], []
    for what, make in WAYS.items():
        s = kept[what] = Secret(what)
        try:
            t, after = make(s)
        except (Refused, subprocess.CalledProcessError) as e:
            note(f"{name}: {what}: cannot be tried here: {e}")
            del kept[what]
            continue
        deputies.append(t)
        s.reason = None
        if after:
            later.append((s, after))
    with as_unit(name) as d:
        loot, lost = user_takes(d, deputies, later)
        if lost:
            fail(f"{name}: not all is recorded and published: {lost}")
        loot.search(kept.values())
        for t in deputies:
            t.end()
        for what, s in kept.items():
            if s.found:
                bad += 1
                tell_failed(f"{name}: {what}: {', '.join(sorted(s.found)[:3])}")
            else:
                ok(f"{name}: {what}")
        what = "a bind mount over the perf map, by a trigger"
        good = trigger_way(d, Secret(what))
        bad += not good
        (ok if good else tell_failed)(f"{name}: {what}")
        expect(units_refused(d), f"{name}: control groups are not the user's to name")
    return bad


bad = sum(run(name) for name in sys.argv[1:] or ("root", "unit"))
if bad:
    fail(f"{bad} ways to what is not the user's")
