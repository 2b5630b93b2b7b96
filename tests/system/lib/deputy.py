# SPDX-License-Identifier: Apache-2.0
"""The confused deputy: may a user get out of tracerd what the user may not read?

A *row* is something that tracerd opens because a user's process names it: its perf map, the file it maps, a debug file.
A *column* is a way to have another file than one's own lie there. Each cell has a secret of its own: a file of root's,
of a size that no other file has, with a mark in its text and, where it is an ELF file, in its symbol, which has
the right build id and checksum: everything that the search for it could ask for.

A process (tests/programs/deputy.c) of an ordinary user with a user and mount namespace of its own is armed by that user, who
takes snapshots and fetches every file. In nothing that the user gets is a mark, or a size. The user's own files give symbols
all the same (LAWFUL)."""
import pickle
import re
import secrets
import stat
import zlib

from lib import *

USER, GROUP = 12345, 4242
DEPUTY = BUILD / "tests/programs/deputy"
DEBUG_TREE = "/usr/lib/debug"
NAME = b"S3CR3T0000000000000000"
BUILD_ID = bytes(range(0x40, 0x54))
CODE = f"void {NAME.decode()}(void) {{ for (volatile int i = 0; i < 100000; i++); }}\n"
# Large rings: all deputies work at once, and what the first did is to be there when the last has ended.
QUOTAS = """[capture]
ring_kib = 32768
ring_total_mib = 256
[quota]
uid_targets = 64
uid_ring_mib = 2048
uid_fds = 60000
uid_spool_mib = 4096
[spool]
spool_max_mib = 8192
spool_keep_free_percent = 0
"""


def need_deputy():
    need_root("has files of root's, which a user tries to get")
    need_command("gcc", "gcc")
    need_command("objcopy", "binutils")
    if not DEPUTY.exists():
        skip("tests/programs/deputy is not built")
    if subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "x", "/mnt"], user=USER, group=USER, extra_groups=[],
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode:
        skip("users cannot make user and mount namespaces here")


class Refused(Exception):
    """The kernel does not let the user set that trap."""


class Deputy:
    """A user's process that does as it is told."""

    def __init__(self, groups=(), namespace=True, env=None, **kw):
        self.process = spawn(tmp() / "bin" / "deputy", stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
                             user=USER, group=USER, extra_groups=list(groups), env={**os.environ, **(env or {})}, **kw)
        self.pid = self.process.pid
        self.codes = 0
        if self.process.stdout.readline() != b"ready\n":
            fail("the deputy does not start")
        if namespace:
            self.do("unshare")

    def try_to(self, *words):
        self.process.stdin.write("\t".join(map(str, words)).encode() + b"\n")
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            fail(f"the deputy hangs in {words}")
        return self.process.stdout.readline().decode().rstrip()

    def do(self, *words):
        said = self.try_to(*words)
        if said != "ok":
            raise Refused(f"{' '.join(map(str, words))}: {said}")
        self.codes += words[0] in ("run", "jit")

    def ticks(self):
        """User time, in hundredths of a second."""
        return int(pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()[11])

    def end(self):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


# ---- files

_built = {}


def built(kind):
    """Bytes of a template: "program" (no symbols; debug information), "whole", "debug"."""
    if not _built:
        folder = tmp() / "build"
        folder.mkdir()
        (folder / "x.c").write_text(CODE)
        whole = folder / "whole"
        subprocess.run(["gcc", "-O1", "-g", "-fno-stack-protector", "-fcf-protection=none", "-nostdlib", "-shared", "-fPIC",
                        f"-Wl,--build-id=0x{BUILD_ID.hex()}", f"-Wl,-e,{NAME.decode()}", "-Wl,-z,noseparate-code", "-Wl,-z,max-page-size=4096",
                        "-Wl,--hash-style=sysv", f"-Wl,--version-script={version_script(folder)}", "-o", whole, folder / "x.c"], check=True)
        for kind_, options in (("program", ["--strip-all"]), ("with-dwarf", ["--strip-symbol=" + NAME.decode()]),
                               ("debug", ["--only-keep-debug"])):
            subprocess.run(["objcopy", *options, whole, folder / kind_], check=True)
        for name in ("whole", "program", "with-dwarf", "debug"):
            _built[name] = (folder / name).read_bytes()
            if BUILD_ID not in _built[name]:
                fail(f"the template {name} has no build id")
        if NAME in _built["program"] or NAME not in _built["debug"]:
            fail("the templates have their symbols in the wrong places")
    return _built[kind]


def version_script(folder):
    """Nothing is dynamic: what is stripped has no name."""
    path = folder / "none.map"
    path.write_text("{ local: *; };\n")
    return path


def with_section(data, name, content):
    folder = tmp() / "build"
    (folder / "in").write_bytes(data)
    (folder / "content").write_bytes(content)
    subprocess.run(["objcopy", "--add-section", f"{name}={folder / 'content'}", folder / "in", folder / "out"], check=True)
    return (folder / "out").read_bytes()


class Content(bytes):
    """Bytes, and zeros up to a size."""

    def __new__(cls, data, size):
        self = super().__new__(cls, data)
        self.size = size
        return self


class Secret:
    """What must not be told. Its bytes as the ELF file or the text that a search would be content with."""

    serial = 0

    def __init__(self, what, lawful=False):
        Secret.serial += 1
        self.what = what
        self.hex = secrets.token_hex(8)
        self.mark = (b"LAWFUL" if lawful else b"S3CR3T") + self.hex.encode()
        self.build_id = secrets.token_bytes(20)
        self.size = 1 << 18 if lawful else 19191131 + 10139 * Secret.serial
        self.found = []

    def elf(self, kind):
        data = built(kind).replace(NAME, self.mark).replace(BUILD_ID, self.build_id)
        return Content(data + b"\n" + self.mark + b"\n", self.size)

    def text(self):
        # a perf map: so that only rights keep it from being one; the code is where deputy.c puts it
        return Content(b"20000000 3fffffff " + self.mark + b"\n", self.size)

    def program(self, kind="program", **section):
        """The user's own, to which the secret would be the debug file."""
        data = built(kind).replace(BUILD_ID, self.build_id).replace(NAME, b"M1NE01" + self.hex[::-1].encode())
        for name, content in section.items():
            data = with_section(data, "." + name, content)
        return data


def link_section(name, debug):
    return name.encode() + b"\0" * (4 - len(name) % 4) + struct.pack("<I", zlib.crc32(debug.ljust(debug.size, b"\0")))


def put(path, data, mode=0o600, uid=0, gid=0):
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.truncate(path, getattr(data, "size", len(data)))
    os.chown(path, uid, gid)
    os.chmod(path, mode)
    return path


def user_dir(path, mode=0o755):
    path.mkdir(parents=True, exist_ok=True)
    os.chown(path, USER, USER)
    os.chmod(path, mode)
    return path


# ---- what a user gets

class Ear(Client):
    """A client that keeps every byte that it was sent."""

    def __init__(self, *args, **kw):
        self.heard = bytearray()
        super().__init__(*args, **kw)

    def _fill(self, want):
        super()._fill(want)
        self.heard += self._buf


def varint(data, at):
    value = shift = 0
    while True:
        b = data[at]
        at += 1
        value |= (b & 127) << shift
        shift += 7
        if b < 128:
            return value, at


def unpacked(trace):
    """A Perfetto trace with its compressed packets (field 50) in the clear."""
    out, at = [trace], 0
    while at < len(trace):
        tag, at = varint(trace, at)
        size, at = varint(trace, at)
        packet, at, p = trace[at:at + size], at + size, 0
        if tag != 10:
            fail(f"the trace has a field {tag} where packets are")
        while p < len(packet):
            tag, p = varint(packet, p)
            if tag & 7 == 0:
                _, p = varint(packet, p)
            elif tag & 7 == 2:
                size, p = varint(packet, p)
                if tag >> 3 == 50:
                    out.append(zlib.decompress(packet[p:p + size]))
                p += size
            else:
                p += 8 if tag & 7 == 1 else 4
    return b"".join(out)


class Loot:
    """All that the user was given, by name."""

    def __init__(self):
        self.parts = {}

    def add(self, name, data):
        self.parts[name] = data

    def search(self, known):
        """Notes with each secret where its mark or size is."""
        marks = {s.mark: s for s in known}
        sizes = {str(s.size).encode(): s for s in known if s.mark.startswith(b"S3CR3T")}
        pattern = re.compile(rb"(?:S3CR3T|LAWFUL)[0-9a-f]{16}")
        number = re.compile(rb"(?<![0-9])\d{8}(?![0-9])")
        # as many times and durations as there are, one of them could be a size by chance
        times = re.compile(rb'"[a-z_]*(?:ns|ts|pid|tid|address)": ?\d+')
        for name, data in self.parts.items():
            for mark in set(pattern.findall(data)):
                if mark in marks:
                    marks[mark].found.append(f"the mark is in {name}")
            if name.rpartition("/")[2] in ("trace.pftrace", "perf.data") or "/images/" in name:
                if len(data) in {s.size for s in known}:
                    next(s for s in known if s.size == len(data)).found.append(f"a file of that size: {name}")
                continue
            for n in set(number.findall(times.sub(b"", data))):
                if n in sizes:
                    sizes[n].found.append(f"the size is in {name}")


def take(client, loot, label, target, **params):
    """A snapshot, and every file of it. Refused ones are what they are: heard."""
    try:
        s = client.snapshot(target, **params)
    except Error as e:
        loot.add(f"{label}/error", str(e).encode())
        return None
    loot.add(f"{label}/snapshot", json.dumps(s).encode())
    for name, data in client.fetch(s["id"]).items():
        loot.add(f"{label}/{name}", unpacked(data) if name == "trace.pftrace" else data)
    client.call("snapshot.delete", {"snapshot": s["id"]})
    return s


def ask_all(client, loot, label):
    """What else can be asked."""
    for method in ("hello", "status", "target.list", "snapshot.list", "trigger.list"):
        loot.add(f"{label}/{method}", json.dumps(client.call(method)).encode())
    loot.add(f"{label}/heard", bytes(client.heard))


def prepare():
    """The programs where a user can get at them, and the folders."""
    (tmp() / "bin").mkdir()
    shutil.copy(DEPUTY, tmp() / "bin")
    for name in ("root", "shut", "w"):
        (tmp() / name).mkdir()
    os.chown(tmp() / "w", USER, USER)


class Booted:
    """The service of a machine that tests/system/unit-nspawn.sh has booted, as it is configured there."""

    sock = pathlib.Path("/run/tracerd/control.sock")

    def client(self, **kw):
        return Client(self.sock, **kw)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


def as_unit(name, config=QUOTAS, **kw):
    """The daemon as root, with the rights of its unit, or the unit itself."""
    return Booted() if name == "booted" else Tracerd(name=f"-{name}", config=config, unit_rights=name == "unit", **kw)


def tell_failed(text):
    """As fail(), and the test goes on: the others are to be seen, too."""
    print(f"not ok - {text}", flush=True)


def burn(deputies):
    """Until there are samples in all of their code; how long that takes depends on who else is at work."""
    enough = {t: t.ticks() + 8 + 2 * t.codes for t in deputies}
    for t in deputies:
        t.do("go")

    def some_are_done():
        for t in [t for t, n in enough.items() if t.ticks() >= n]:
            t.do("stop")
            del enough[t]
        return not enough
    wait_for("all deputies have worked", some_are_done)


def user_takes(d, deputies, later=(), label="all"):
    """Another process, as the user, arms these and takes snapshots of them; its loot. What is to be done between
    arming and the snapshots is in `later`: (cell, function)."""
    pids = [t.pid for t in deputies]
    ours, theirs = socket.socketpair()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        ours.close()

        def work():
            loot, lost = Loot(), []
            with Ear(d.sock) as c:
                for pid in pids:
                    try:
                        c.arm(pid, stacks="fp", waits=False)  # small in the rings that all share
                    except (Error, OSError) as e:
                        lost.append([pid, f"not armed: {e}"])
                theirs.send(b"a")
                theirs.recv(1)
                for pid in pids:
                    s = take(c, loot, str(pid), pid, with_objects=True, reason="all of it")
                    if s is None or s["state"] != "done":
                        lost.append([pid, s and s["error"]])
                ask_all(c, loot, label)
            with theirs.makefile("wb") as f:
                pickle.dump((loot.parts, lost), f)
        os._exit(1 if as_user(USER, work) else 0)
    theirs.close()
    ours.recv(1)
    for cell, function in later:
        try:
            function()
        except Refused as e:
            cell.reason = f"the kernel refuses it: {e}"
    burn(deputies)
    try:
        ours.send(b"s")
        with ours.makefile("rb") as f:
            loot = Loot()
            loot.parts, lost = pickle.load(f)
    except (EOFError, OSError):
        os.waitpid(child, 0)
        fail("the user's part failed")
    os.waitpid(child, 0)
    return loot, lost
