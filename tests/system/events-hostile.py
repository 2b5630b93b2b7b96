# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""A program that lies about its rings loses its own data, and nobody else anything.

Every attack is a process of an ordinary user, with a producer in Python that can leave out or overwrite
anything. What it may not register is answered with an error of its kind; what it does to its memory afterwards
ends in a snapshot of its own, good or bad. After each one the daemon answers, and the snapshot
of an honest program next door has every event. At the end no descriptor and no memory is left of all.
"""
import ctypes
import fcntl
import mmap
import random
import threading
import traceback

from lib.events import *
from lib.ring import *

USER = 65534
ROOT = os.geteuid() == 0
MFD_HUGETLB = 4
PR_SET_DUMPABLE = 4
FALLOC_PUNCH = 3
slowest = 0.0


def rss_mib(pid):
    with open(f"/proc/{pid}/status") as f:
        return next(int(l.split()[1]) for l in f if l.startswith("VmRSS:")) / 1024


def attack(what, body, *args):
    """body(client, ...) in a process of its own; it returns, or the test fails."""
    def run():
        # As an ordinary program of that user: who has just given up root is an administrator's only.
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
        with d.client() as c:
            body(c, *args)
    sys.stdout.flush()
    status = as_user(USER if ROOT else os.getuid(), run)
    if status != 0:
        fail(f"{what}: status {status}")
    healthy(what)


def healthy(what):
    """The daemon answers, and the honest program's snapshot has all that it has told."""
    global slowest
    began = time.monotonic()
    d.status()
    slowest = max(slowest, time.monotonic() - began)
    told = honest.told()
    s = admin.snapshot(target_of(admin, honest.pid)["id"])
    if s["state"] != "done":
        fail(f"{what}: the honest program's snapshot is {s['state']}: {s['error']}")
    found, _, slots = numbers(ring_file(admin, s["id"], honest.pid))
    check_numbers(found, told, slots, what, alive=True)
    for old in admin.call("snapshot.list")["snapshots"]:
        if old["state"] in ("done", "failed"):
            admin.call("snapshot.delete", {"snapshot": old["id"]})
    if not d.alive():
        fail(f"{what}: the daemon has ended")


def refused(client, code, fds, names=("rings", "wake")):
    """The registration must be answered with that error."""
    try:
        result = client.call("target.register", {"fds": list(names)}, fds)
    except Error as e:
        if e.code not in (code if isinstance(code, tuple) else (code,)):
            raise AssertionError(f"{e.code} instead of {code}: {e.message}") from e
        if not e.message:
            raise AssertionError(f"{e.code} without a word") from e
        return
    raise AssertionError(f"was not refused: {result}")


# ---- what is no ring memory

def no_memory(client):
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    r, w = os.pipe()
    regular = os.open(f"/tmp/tracerd-test-{os.getpid()}", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    os.unlink(f"/tmp/tracerd-test-{os.getpid()}")
    os.ftruncate(regular, 1 << 20)
    a, b = socket.socketpair()
    for fd in (r, w, regular, os.open("/tmp", os.O_RDONLY), os.open("/dev/zero", os.O_RDWR), os.open("/dev/null", os.O_RDWR),
               os.open("/proc/version", os.O_RDONLY), os.open("/tmp", os.O_PATH),
               a.fileno(), wake):
        refused(client, "bad_params", [fd, wake])


def seals(client):
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    perfetto = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL
    for some in (None, 0, perfetto, F_SEAL_SHRINK, SEALS & ~F_SEAL_SHRINK, SEALS & ~F_SEAL_GROW, SEALS & ~F_SEAL_SEAL):
        rings = Rings(seals=some)
        refused(client, "bad_params", [rings.fd, wake])
        if some is None:
            # Late: what was refused is as good as any once it is sealed.
            rings.seal()
            rings.register(client, [rings.fd, wake]).close()
            client.close()
            client.__init__(d.sock)
        rings.close()
    # F_SEAL_WRITE is only possible without a writable mapping.
    rings = Rings(seals=None)
    rings.map.close()
    for more in (F_SEAL_WRITE, SEALS | F_SEAL_WRITE):
        rings.seal(more)
        refused(client, "bad_params", [rings.fd, wake])
    plain = os.memfd_create("plain", os.MFD_CLOEXEC)
    os.ftruncate(plain, rings.size)
    refused(client, "bad_params", [plain, wake])


def hugetlb(client):
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    try:
        fd = os.memfd_create("huge", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING | MFD_HUGETLB)
        os.ftruncate(fd, 2 << 20)
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
    except OSError as e:
        note(f"no hugetlb here: {e}")
        return
    refused(client, "bad_params", [fd, wake])


def sizes(client):
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    honest_size = layout(4, 256, 256, 16 * PAGE)["total_bytes"]
    for size in (0, 1, PAGE, honest_size - PAGE, honest_size + PAGE, honest_size + 1, 1 << 34):
        fd = os.memfd_create("rings", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(fd, size)
        if size >= PAGE:
            whole = Rings()
            os.pwrite(fd, whole.map[:PAGE], 0)
            whole.close()
        fcntl.fcntl(fd, F_ADD_SEALS, SEALS)
        refused(client, ("bad_params", "too_large"), [fd, wake])
        os.close(fd)


def headers(client):
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    for field, value in (("magic", b"TRCDRINK"), ("magic", b"\0" * 8), ("version", 0), ("version", 2), ("clock", 0), ("clock", 9),
                         ("rings", 0), ("rings", 3), ("rings", 5), ("rings", 2**32 - 1), ("slots", 0), ("slots", 255),
                         ("slots", 2**31), ("names_max", 0), ("names_max", 2**32 - 1), ("text_bytes", 1), ("text_bytes", 0),
                         ("text_bytes", 2**32 - PAGE), ("text_offset", 0), ("dir_offset", 2**32 - 1), ("data_offset", 0),
                         ("total_bytes", 0), ("total_bytes", 2**64 - 1)):
        rings = Rings(header={field: value})
        refused(client, ("bad_params", "too_large"), [rings.fd, wake])
        rings.close()
    rng = random.Random(1)
    for _ in range(50):
        rings = Rings(seals=None)
        rings.map[0:128] = rng.randbytes(128)
        if rng.random() < 0.5:
            rings.set("magic", MAGIC)
            rings.set("version", VERSION)
        rings.seal()
        refused(client, ("bad_params", "too_large"), [rings.fd, wake])
        rings.close()


def too_large(client):
    wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    rings = Rings(rings=1024, slots=8192)
    refused(client, "too_large", [rings.fd, wake])


def no_eventfd(client):
    rings = Rings()
    timer = ctypes.CDLL(None, use_errno=True).timerfd_create(1, 0)
    r, w = os.pipe()
    poll = select.epoll()
    for fd in (r, w, rings.fd, timer, os.open("/dev/null", os.O_RDWR), os.open("/proc/version", os.O_RDONLY),
               poll.fileno(), client.sock.fileno()):
        refused(client, "bad_params", [rings.fd, fd])
    refused(client, "bad_params", [rings.wake_fd, rings.fd])
    # The right ones under wrong names, twice, or not at all.
    refused(client, "bad_params", [rings.fd, rings.wake_fd], ("wake", "rings"))
    refused(client, "bad_params", [rings.fd, rings.wake_fd], ("rings", "rings"))
    refused(client, "bad_params", [rings.fd], ("rings",))
    refused(client, "bad_params", [], ())


def many_descriptors(client):
    """253 is what one message of the kernel holds; the 254th comes with the next one."""
    fds = [os.dup(1) for _ in range(253)]
    for n in (3, 16, 64, 253):
        with d.client() as c:
            try:
                c.send("target.register", {"fds": ["rings", "wake"]}, fds[:n])
                # The 254th, in the middle of a frame that is none.
                c.send_bytes(b"\0", fds[:1])
                c.send_bytes(b"\0\0\x02{}")
                while True:
                    answer = c.recv_frame()
                    if "result" in answer:
                        raise AssertionError(f"{n} descriptors were taken")
            except Closed:
                pass


# ---- registered, and then

class Registered:
    def __init__(self, client, **kw):
        self.rings = Rings(**kw)
        self.client = client
        self.control = self.rings.register(client)
        self.target = self.control.target["id"]
        ring = self.rings.ring(0)
        for i in range(100):
            ring.counter("mine", i)

    def snapshot(self):
        """One of this program, whose rings are as they are: taken and decoded, with what is wrong counted."""
        with d.client() as c:
            s = c.snapshot(self.target)
            if s["state"] != "done":
                raise AssertionError(f"its own snapshot is {s['state']}: {s['error']}")


def pulled_away(client):
    """The seals hold for their maker, too."""
    r = Registered(client)
    libc = ctypes.CDLL(None, use_errno=True)
    for what in (lambda: os.ftruncate(r.rings.fd, 0), lambda: os.ftruncate(r.rings.fd, r.rings.size * 2),
                 lambda: r.rings.seal(F_SEAL_WRITE), lambda: os.pwrite(r.rings.fd, b"x", 0),
                 lambda: mmap.mmap(r.rings.fd, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)):
        try:
            what()
        except PermissionError:
            continue
        raise AssertionError("the seals do not hold")
    if libc.fallocate(r.rings.fd, FALLOC_PUNCH, ctypes.c_long(0), ctypes.c_long(r.rings.size)) == 0:
        raise AssertionError("a hole could be punched")
    # The daemon's page cannot be written, by whatever way it is opened again.
    def page(fd):
        for what in (lambda: os.pwrite(fd, b"x", 0), lambda: os.ftruncate(fd, 0),
                     lambda: mmap.mmap(fd, PAGE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)):
            try:
                what()
            except OSError:
                continue
            raise AssertionError("the daemon's page can be changed")
    page(r.control.fd)
    try:
        page(os.open(f"/proc/self/fd/{r.control.fd}", os.O_RDWR))
    except PermissionError:
        pass
    if r.control.magic != b"TRCDCTRL":
        raise AssertionError("the daemon's page has changed")
    r.snapshot()


def random_bytes(client, where):
    """Anywhere in its memory, between and during copies."""
    r = Registered(client)
    at = r.rings.at
    first, last = {"header": (0, PAGE), "causes": (CAUSES_OFFSET, NAMES_OFFSET), "names": (NAMES_OFFSET, at["dir_offset"]),
                   "directory": (at["dir_offset"], at["data_offset"]), "data": (at["data_offset"], r.rings.size),
                   "all": (0, r.rings.size)}[where]
    rng = random.Random(where)
    stop = threading.Event()

    def scribble():
        while not stop.is_set():
            r.rings.map[first:last] = rng.randbytes(last - first)
            r.rings.wake()
    t = threading.Thread(target=scribble)
    t.start()
    for _ in range(4):
        r.snapshot()
    with d.client() as c:
        c.call("target.list")
        c.call("target.show", {"target": r.target})
    stop.set()
    t.join()


def heads(client):
    """Indices that lie: beyond everything, backwards, jumping while they are copied."""
    r = Registered(client)
    for head in (0, 1, 255, 256, 2**32, 2**63, 2**64 - 1, 2**64 - 256):
        for ring in range(4):
            r.rings.put(r.rings.at["dir_offset"] + ring * ENTRY_BYTES, "<Q", head)
        r.snapshot()
    stop = threading.Event()

    def jump():
        n = 0
        while not stop.is_set():
            n = (n * 6364136223846793005 + 1442695040888963407) % 2**64
            for ring in range(4):
                r.rings.put(r.rings.at["dir_offset"] + ring * ENTRY_BYTES, "<Q", n)
                r.rings.put(r.rings.at["dir_offset"] + ring * ENTRY_BYTES + 8, "<I", n >> 32)
    t = threading.Thread(target=jump)
    t.start()
    for _ in range(4):
        r.snapshot()
    stop.set()
    t.join()


def names(client):
    """Offsets and lengths that point anywhere, and names of any bytes."""
    r = Registered(client)
    ring = r.rings.ring(1, tid=2**32 - 1, name=b"\xff\x1b[31m\n\x00\xf4\x90\x80\x80")
    for text in (b"\x1b]0;x\x07", b"a\nb", b"\x00", "\u202e".encode(), b"<script>", b"%n%s", b"x" * 1024, b"../../etc/passwd"):
        begin = ring.begin(text)
        ring.end(text, begin)
        ring.log(text)
    for n in range(64):
        r.rings.put(NAMES_OFFSET + (100 + n) * NAME_BYTES, "<IIQ", 2**32 - 1 - n, 2**32 - 1 - n, 0)
        ring.instant(101 + n)
    r.rings.set("n_names", 2**32 - 1)
    r.rings.set("text_used", 2**32 - 1)
    ring.begin(2**32 - 1)
    r.snapshot()
    with d.client() as c:
        if any(ord(ch) < 32 for ch in json.dumps(c.call("target.list"))):
            raise AssertionError("control characters in the list")


def causes(client):
    """Garbage and a flood of them. Snapshots that a program asks for have their limits."""
    r = Registered(client)
    rng = random.Random(2)
    for head in (1, 16, 17, 2**32, 2**63, 2**64 - 1, 0, 5):
        r.rings.map[CAUSES_OFFSET:NAMES_OFFSET] = rng.randbytes(NAMES_OFFSET - CAUSES_OFFSET)
        r.rings.set("cause_head", head)
        r.rings.wake()
    r.rings.set("cause_head", 1000)
    for i in range(20000):
        kind = (REGION, REQUEST, 0, 7, 2**32 - 1)[i % 5]
        r.rings.cause(kind, rng.randbytes(20), rng.getrandbits(64), rng.getrandbits(64), trigger=rng.getrandbits(32),
                      tid=rng.getrandbits(32), name=0)
    with d.client() as c:
        mine = [s for s in c.call("snapshot.list")["snapshots"] if s["target"] == r.target]
        if len(mine) > 3:
            raise AssertionError(f"{len(mine)} snapshots by a flood of causes")


def wakes(client):
    """As many as it can for a while, with the counter full, and blocking and drained under the daemon's eyes."""
    r = Registered(client)
    stop = threading.Event()
    count = [0]

    def flood():
        while not stop.is_set():
            try:
                os.eventfd_write(r.rings.wake_fd, 1)
                count[0] += 1
            except BlockingIOError:
                pass

    def drain():
        while not stop.is_set():
            try:
                os.eventfd_read(r.rings.wake_fd)
            except BlockingIOError:
                pass
    threads = [threading.Thread(target=flood), threading.Thread(target=drain)]
    for t in threads:
        t.start()
    worst = 0.0
    with d.client() as c:
        end = time.monotonic() + 3
        while time.monotonic() < end:
            began = time.monotonic()
            c.call("status")
            worst = max(worst, time.monotonic() - began)
            r.snapshot()
    stop.set()
    for t in threads:
        t.join()
    note(f"{count[0]:,} wakes in 3 s, the slowest status meanwhile took {worst * 1e3:.1f} ms")
    try:
        os.eventfd_write(r.rings.wake_fd, 2**64 - 2)
    except BlockingIOError:
        pass
    os.set_blocking(r.rings.wake_fd, True)
    with d.client() as c:
        c.call("status")
    r.snapshot()


def thresholds(client):
    """More triggers than a page holds, and names that it cannot hold."""
    r = Registered(client)
    codes, added = set(), []
    with d.client() as c:
        for i in range(200):
            try:
                added.append(c.call("trigger.add", {"target": r.target, "region": f"region {i}", "over_ns": 1000000})["trigger"]["id"])
            except Error as e:
                codes.add(e.code)
        if not added or len(added) > THRESHOLDS or not codes <= {"busy", "quota"}:
            raise AssertionError(f"{len(added)} triggers, then {codes}")
        for params in ({"region": ""}, {"region": "x" * 217}, {"region": "x", "over_ns": 0}, {"region": "x", "over_ns": 2**63 - 1},
                       {"region": "x", "over_ns": -1}, {"region": 7}):
            code = c.call_error("trigger.add", {"target": r.target, "over_ns": 1000, **params})
            if code != "bad_params":
                raise AssertionError(f"{params}: {code}")
        # Hits of triggers that are not there, of others' numbers, and that never ended.
        for i in range(1000):
            r.rings.cause(REGION, f"region {i % 300}", stamp(), 1 if i % 2 else stamp(), trigger=i)
        for trigger in added:
            c.call("trigger.remove", {"trigger": trigger})
    if r.control.thresholds():
        raise AssertionError("thresholds are left in the page")


def again_and_again(client):
    """300 registrations, one after the other; the living one keeps the process busy."""
    codes = {}
    for _ in range(300):
        with d.client() as c:
            rings = Rings()
            try:
                rings.register(c).close()
                refused(c, ("busy", "bad_request"), [rings.fd, rings.wake_fd])
                with d.client() as other:
                    refused(other, "busy", [rings.fd, rings.wake_fd])
            except Error as e:
                codes[e.code] = codes.get(e.code, 0) + 1
            rings.close()
    if not set(codes) <= {"quota", "busy"}:
        raise AssertionError(f"{codes}")


def shared(client):
    """Two processes with one memory: each has its own registration of it, or is refused; nothing else happens."""
    rings = Rings()
    ring = rings.ring(0)
    rings.register(client)
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            with d.client() as c:
                try:
                    rings.register(c)
                except Error as e:
                    if e.code not in ("bad_params", "busy"):
                        raise
            status = 0
        except BaseException:
            traceback.print_exc()
        os._exit(status)
    for i in range(1000):
        ring.counter("shared", i)
    if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) != 0:
        raise AssertionError("the second process")


def dying(client):
    """In the middle of everything: before the frame is whole, with the registration on its way, while it is copied."""
    for how in range(30):
        pid = os.fork()
        if pid == 0:
            try:
                rings = Rings()
                with d.client() as c:
                    text = json.dumps({"v": 1, "id": 1, "method": "target.register", "params": {"fds": ["rings", "wake"]},
                                       "nfds": 2}).encode()
                    frame = struct.pack(">I", len(text)) + text
                    cut = len(frame) * how // 30 if how < 29 else len(frame)
                    c.send_bytes(frame[:max(1, cut)], [rings.fd, rings.wake_fd])
                    if how % 3 == 0:
                        rings.cause(REQUEST, "last words", stamp(), stamp())
                    if how == 29:
                        c.recv_frame()
                        c.send("snapshot.create", {"target": "t1"})
                    os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        os.waitpid(pid, 0)


def twice_and_gone(how):
    """Two registrations on one connection that has ended when the daemon sees the first: it stands still meanwhile."""
    for _ in range(3):
        both = [Rings(), Rings()]
        with d.client() as c:
            os.kill(d.pid, signal.SIGSTOP)
            try:
                for r in both:
                    c.send("target.register", {"fds": ["rings", "wake"]}, [r.fd, r.wake_fd])
                how(c.sock)
            finally:
                os.kill(d.pid, signal.SIGCONT)
            d.status()
        for r in both:
            r.close()


config = "[capture]\nexited_keep_s = 1\n"
d = Tracerd(config=config)
d.start()
admin = d.client()
honest = Numbers(d, pause_us=2000)
registered(admin, honest.pid)
healthy("before")
fds_before, rss_before = d.fds(), rss_mib(d.pid)

for what, body, *args in (
        ("pipes, files, directories, devices and sockets as memory", no_memory),
        ("seals: none, late, missing, F_SEAL_WRITE, perfetto's", seals),
        ("hugetlb", hugetlb),
        ("memory that is smaller and larger than declared", sizes),
        ("headers that lie", headers),
        ("more memory than one program may have", too_large),
        ("an eventfd that is none", no_eventfd),
        ("253 and 254 descriptors", many_descriptors),
        ("truncating, punching holes, writing the daemon's page", pulled_away),
        *((f"random bytes in {where} while it is copied", random_bytes, where)
          for where in ("header", "causes", "names", "directory", "data", "all")),
        ("heads that lie, jump and run backwards", heads),
        ("names of any bytes, anywhere", names),
        ("causes: garbage and a flood", causes),
        ("wakes: as many as possible, drained, blocking", wakes),
        ("triggers: more than fit", thresholds),
        ("300 registrations", again_and_again),
        ("one memory, two processes", shared),
        ("dying in the middle", dying)):
    attack(what, body, *args)
    ok(what)
for what, how in (("half closed", lambda s: s.shutdown(socket.SHUT_WR)), ("closed", lambda s: s.close())):
    twice_and_gone(how)
    healthy(f"two registrations on a connection that is {what}")
    ok(f"two registrations on a connection that is {what}")

wait_for("the descriptors of all attackers are closed", lambda: d.fds() <= fds_before)
ok(f"no descriptor is left: {d.fds()}")
if not os.environ.get("TRACERD_SANITIZED"):
    expect(rss_mib(d.pid) < rss_before + 48, f"memory: {rss_before:.0f} MiB before, {rss_mib(d.pid):.0f} MiB after")
note(f"the slowest status between two attacks took {slowest * 1e3:.1f} ms")
admin.close()
honest.kill()
honest.close()
if d.stop() != 0:
    fail("tracerd did not end well")
