#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 300
"""A process can hang whoever looks at its memory map. One user's processes that do so keep nobody else from recording, and
not the daemon from ending; when such a process goes on, so does its request."""
import mmap
import stat

from lib.capture import *

need_root("to mount a file system")
USER, OTHER = 12345, 12346
LIMITS = 2  # READERS_HANGING_UID
MAP_FIXED = 0x10
FUSE = tmp() / "fuse"

if not os.path.exists("/dev/fuse"):
    skip("there is no /dev/fuse here")
os.mknod(FUSE, stat.S_IFCHR | 0o600, os.stat("/dev/fuse").st_rdev)


class Hung:
    """A process of the user's that maps a file, and the file's server."""
    n = 0

    def __init__(self):
        Hung.n += 1
        self.where = tmp() / f"fs{Hung.n}"
        self.where.mkdir(mode=0o755)
        file = tmp() / "file"
        file.write_bytes(bytes(8192))
        self.server = spawn(BUILD / "tests/programs/hungfs", "-", FUSE, self.where, "file", file, "write",
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if self.server.stdout.readline() != b"ready\n":
            skip(f"FUSE cannot be mounted here: {self.server.stderr.read().decode()}")
        atexit.register(self.end)
        self.process = spawn(BUILD / "tests/programs/hungmap", self.where / "file", uid=USER, stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        said = self.process.stdout.readline().strip()
        if said != "ready":
            skip(f"no file of FUSE can be mapped here: {said}")
        self.pid = self.process.pid

    def hang(self):
        self.server.send_signal(signal.SIGUSR1)
        self.process.stdin.write("go\n")
        if self.server.stdout.readline() != b"write hangs\n":
            fail("the server is not asked to write")
        # Who writes may be the kernel's flusher: then the process waits too, but may not have come to its mmap() yet.
        wait_for("the process holds its map", self.holds_its_map)

    def holds_its_map(self):
        call = pathlib.Path(f"/proc/{self.pid}/syscall").read_text().split()
        return len(call) > 4 and int(call[4], 16) == mmap.MAP_SHARED | MAP_FIXED

    def end(self):
        """Lets go of whoever waits."""
        atexit.unregister(self.end)
        self.server.kill()
        self.server.wait()
        subprocess.run(["umount", "-l", self.where])


def map_hangs(pid):
    """Whether it can be seen here: in a process that may be left behind."""
    p = subprocess.Popen(["cat", f"/proc/{pid}/maps"], stdout=subprocess.DEVNULL)
    try:
        p.wait(2)
        return False
    except subprocess.TimeoutExpired:
        p.kill()
        return True


def start():
    # No limit of the daemon's ends what hangs.
    return Tracerd(config="[snapshot]\nsnapshot_timeout_s = 600\n").start()


def others_go_on(d, what):
    def round():
        with d.client() as c:
            c.call("status")
            t = c.arm(other.pid)
            s = c.snapshot(t["id"], timeout=60)
            if s["state"] != "done":
                raise AssertionError(f"{what}: {s['error']}")
            c.call("snapshot.delete", {"snapshot": s["id"]})
            c.call("target.disarm", {"target": t["id"]})
    sys.stdout.flush()
    expect(as_user(OTHER, round) == 0, f"{what}: another user arms and takes a snapshot")


def hanging(admin):
    return admin.call("status")["loop"]["readers_hanging"]


os.chmod(tmp(), 0o755)
other = spawn("/bin/sleep", "6000", uid=OTHER)
d = start()
admin = d.client()
if not admin.call("status")["backends"]["sample"]["available"]:
    skip("no perf events here")

# What a user passes is looked at, which hangs.
hung = [Hung() for _ in range(LIMITS + 1)]
fds = [os.open(f"/proc/{h.pid}/maps", os.O_RDONLY) for h in hung]
for h in hung:
    h.hang()
if not map_hangs(hung[0].pid):
    skip("this kernel reads the maps of a process whose map is locked")
sys.stdout.flush()
to_user, from_test = os.pipe()
user = os.fork()
if user == 0:
    os.close(from_test)
    os.setgid(USER)
    os.setuid(USER)
    with d.client() as c:
        requests = [c.send("target.arm", {"pid": h.pid, "fds": ["maps"]}, [fd]) for h, fd in zip(hung, fds)]
        os.read(to_user, 1)
        # The processes go on: answers in any order.
        armed = set()
        while len(armed) < len(requests):
            message = c.recv_frame()
            if "method" in message or "event" in message:
                c._keep(message)
            elif message.get("result", {}).get("target", {}).get("state") == "armed":
                armed.add(message["id"])
            else:
                note(str(message))
                os._exit(1)
    os._exit(0 if armed == set(requests) else 1)
os.close(to_user)
wait_for("the first to hang", lambda: hanging(admin) >= 1)
others_go_on(d, "one process hangs its reader")
wait_for("the second to hang", lambda: hanging(admin) >= 2)
others_go_on(d, "two of them")
time.sleep(4)
expect(hanging(admin) == LIMITS, f"a user has {LIMITS} readers at most, a third process waits")
for h in hung:
    h.end()
os.close(from_test)
expect(os.waitpid(user, 0)[1] == 0, "when they go on, they are armed")
wait_for("the readers to be back", lambda: hanging(admin) == 0)
ok("and no reader hangs")
for t in admin.call("target.list")["targets"]:
    admin.call("target.disarm", {"target": t["id"]})
for h in hung:
    h.process.kill()

# While it is recorded: the file of a new executable mapping is looked at.
recorded, asked = Hung(), Hung()
t = admin.call("target.arm", {"pid": recorded.pid})["target"]
d.process.send_signal(signal.SIGSTOP)
recorded.hang()
d.process.send_signal(signal.SIGCONT)
# Or two readers: its file is looked at, and its map is read again when records were lost.
wait_for("it to hang", lambda: hanging(admin) >= 1)
others_go_on(d, "the mapping of a recorded process is looked at")
expect(admin.snapshot(t["id"], timeout=PATIENCE)["state"] == "done", "of the process itself there is a snapshot")
asked.hang()
request = admin.send("target.arm", {"pid": asked.pid})
wait_for("two readers to hang", lambda: hanging(admin) >= 2)
d.process.send_signal(signal.SIGTERM)
try:
    admin.wait(request)
    fail("it was armed")
except (Error, Closed) as e:
    ok(f"tracerd stops while readers hang: {e}")
expect(d.process.wait(PATIENCE) == 0, "and ends")
Tracerd.running.remove(d)
d.notify.close()
recorded.end()
asked.end()
