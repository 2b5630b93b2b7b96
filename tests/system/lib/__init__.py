# SPDX-License-Identifier: Apache-2.0
"""For the behaviour tests in Python: a private tracerd, a raw client of the control protocol
(file descriptors both ways), and the words a test says. Standard library only.

    from lib import *
    with Tracerd() as d:
        c = d.client()
        t = c.call("target.arm", {"pid": pid})["target"]
        ok("armed")

From scripts/test: TRACERD_BUILD is the build tree, TEST_TMP a directory of this test's own.
"""
import array
import atexit
import json
import os
import pathlib
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import traceback

SRC = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ.get("TRACERD_BUILD", SRC / "build")).resolve()
MAX_FDS = 64
# What must happen happens in milliseconds, on a machine with nothing else to do. Only a hang takes as long as this.
PATIENCE = 300.0
# A shell that runs us in the background ignores it, and with it each program that we start.
signal.signal(signal.SIGINT, signal.default_int_handler)

_count = 0
_children = []
_tmp = None


def ok(text):
    global _count
    _count += 1
    print(f"ok {_count} - {text}", flush=True)


def note(text):
    print(f"# {text}", flush=True)


def fail(text):
    global _count
    _count += 1
    print(f"not ok {_count} - {text}", flush=True)
    for d in Tracerd.running:
        d.last_words()
    sys.exit(1)


def unexpected(kind, error, trace):
    """An exception that nobody caught, in a line: the end of a log is all that is seen of a test that failed elsewhere."""
    frames = [f"{pathlib.Path(f.filename).name}:{f.lineno}" for f in reversed(traceback.extract_tb(trace))]
    sys.stdout.flush()
    print(f"not ok - {kind.__name__}: {error}, in {' < '.join(frames)}", file=sys.stderr)


sys.excepthook = unexpected


def skip(reason):
    print(f"SKIP: {reason}", flush=True)
    sys.exit(77)


def expect(condition, text):
    """ok if it is so, else the test ends."""
    if not condition:
        fail(text)
    ok(text)


def need_root(why=""):
    if os.geteuid() != 0:
        skip("needs root" + (f" ({why})" if why else ""))


def working_perf():
    """The path of perf. Ubuntu's is a script that looks for the one of this very kernel, and may find none."""
    path = shutil.which("perf")
    return path if path and subprocess.run([path, "--version"], capture_output=True).returncode == 0 else None


def need_command(name, package=""):
    if not (working_perf() if name == "perf" else shutil.which(name)):
        skip(f"needs {name}" + (f" (Debian/Ubuntu package: {package})" if package else ""))


def build_c(name, source, *flags):
    """A program of C, in this test's own directory."""
    need_command("gcc", "gcc")
    (tmp() / f"{name}.c").write_text(source)
    made = subprocess.run(["gcc", *flags, tmp() / f"{name}.c", "-o", tmp() / name], capture_output=True, text=True)
    if made.returncode:
        fail(made.stderr)
    return tmp() / name


def tmp():
    """This test's own directory, readable by every user of the machine."""
    global _tmp
    if _tmp is None:
        given = os.environ.get("TEST_TMP")
        _tmp = pathlib.Path(given or tempfile.mkdtemp(prefix="tracerd-test."))
        if not given:
            atexit.register(shutil.rmtree, _tmp, True)
        os.chmod(_tmp, 0o755)
    return _tmp


def go_cache():
    """What Go has built: that of all tests, if there is one (scripts/test), else this test's own."""
    return os.environ.get("GOCACHE") or str(tmp() / "go-cache")


def wait_for(what, predicate, timeout=PATIENCE, step=0.02):
    """The predicate's first true value; the test fails when the time is over."""
    end = time.monotonic() + timeout
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            fail(f"waited {timeout} s in vain: {what}")
        time.sleep(step)


def cpu_seconds(pid, tid=None):
    """How much a process, or one thread of it, has worked."""
    stat = f"/proc/{pid}/stat" if tid is None else f"/proc/{pid}/task/{tid}/stat"
    fields = pathlib.Path(stat).read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def thread_named(pid, name):
    for tid in os.listdir(f"/proc/{pid}/task"):
        if pathlib.Path(f"/proc/{pid}/task/{tid}/comm").read_text() == name + "\n":
            return int(tid)
    return None


def let_work(pid, *threads, seconds=0.4):
    """Waits until the process, or each of its threads of these names, has worked for so much longer. That is what samples
    are taken of; how long it takes depends on what else the machine does."""
    tids = [wait_for(f"thread {name}", lambda: thread_named(pid, name)) for name in threads] or [None]
    enough = {tid: cpu_seconds(pid, tid) + seconds for tid in tids}
    wait_for(f"process {pid} to work", lambda: all(cpu_seconds(pid, tid) >= s for tid, s in enough.items()))


def spawn(*argv, uid=None, **kw):
    """A child that ends with the test. With uid (needs root) it runs as that user, no groups."""
    if uid is not None:
        kw.update(user=uid, group=uid, extra_groups=[])
    kw.setdefault("stdin", subprocess.DEVNULL)
    p = subprocess.Popen([str(a) for a in argv], **kw)
    _children.append(p)
    return p


@atexit.register
def _end_children():
    for p in _children:
        if p.poll() is None:
            p.kill()
        try:
            p.wait(60)
        except subprocess.TimeoutExpired:
            pass


def open_maps(pid):
    """What an ordinary client passes to arm a process: its own /proc/PID/maps."""
    return os.open(f"/proc/{pid}/maps", os.O_RDONLY | os.O_CLOEXEC)


class Error(Exception):
    """An error that the daemon answered."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Closed(Exception):
    """The daemon ended the connection."""


class Client:
    """One connection. call() is a request and its answer; what else arrives is kept in order:
    events in .events, requests of the daemon in .requests (ping is answered by itself)."""

    def __init__(self, path, timeout=PATIENCE):
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(timeout)
        self.sock.connect(str(path))
        self.timeout = timeout
        self.next_id = 1
        self.events = []
        self.requests = []
        self.fds = []
        self._buf = b""
        self._fds_in = []

    def close(self):
        self.sock.close()
        for fd in self.fds + self._fds_in:
            os.close(fd)
        self.fds, self._fds_in = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # -- raw

    def send_bytes(self, data, fds=()):
        """Bytes as they are; descriptors ride on the first one."""
        anc = []
        if fds:
            anc = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds).tobytes())]
        try:
            sent = self.sock.sendmsg([data], anc)
            if sent < len(data):
                self.sock.sendall(data[sent:])
        except (BrokenPipeError, ConnectionResetError) as e:
            raise Closed(str(e)) from e

    def send_frame(self, text, fds=()):
        if isinstance(text, (dict, list)):
            text = json.dumps(text)
        if isinstance(text, str):
            text = text.encode()
        self.send_bytes(struct.pack(">I", len(text)) + text, fds)

    def _fill(self, want):
        while len(self._buf) < want:
            try:
                # Up to the frame's end only, so that the descriptors of the next one are not mixed in.
                data, anc, flags, _ = self.sock.recvmsg(
                    want - len(self._buf), socket.CMSG_SPACE(4 * 253), socket.MSG_CMSG_CLOEXEC)
            except ConnectionResetError as e:
                raise Closed(str(e)) from e
            for level, kind, payload in anc:
                if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                    fds = array.array("i")
                    fds.frombytes(payload[:len(payload) - len(payload) % 4])
                    self._fds_in += list(fds)
            if not data:
                raise Closed("end of stream")
            self._buf += data

    def recv_frame(self, timeout=None):
        """One message as a dict; its descriptors are in .fds afterwards (the caller closes them)."""
        self.sock.settimeout(self.timeout if timeout is None else timeout)
        self._fill(4)
        (size,) = struct.unpack(">I", self._buf[:4])
        self._fill(4 + size)
        text, self._buf = self._buf[4:], b""
        self.fds, self._fds_in = self._fds_in, []
        return json.loads(text)

    # -- messages

    def send(self, method, params=None, fds=(), **extra):
        """Sends a request, returns its id."""
        rid = self.next_id
        self.next_id += 1
        message = {"v": 1, "id": rid, "method": method, "params": params or {}}
        if fds:
            message["nfds"] = len(fds)
        message.update(extra)
        self.send_frame(message, fds)
        return rid

    def wait(self, rid, timeout=None):
        """The answer to one request: its result, or Error."""
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        while True:
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"no answer to request {rid}")
            message = self.recv_frame(left)
            if message.get("id") == rid:
                if "error" in message:
                    raise Error(message["error"]["code"], message["error"].get("message", ""))
                return message["result"]
            self._keep(message)

    def _keep(self, message):
        if "event" in message:
            self.events.append(message)
        elif message.get("method") == "ping":
            self.send_frame({"v": 1, "id": message["id"], "result": {}})
        elif "method" in message:
            self.requests.append(message)

    def call(self, method, params=None, fds=(), timeout=None):
        return self.wait(self.send(method, params, fds), timeout)

    def call_error(self, method, params=None, fds=()):
        """The code of the error that this request must be answered with."""
        try:
            result = self.call(method, params, fds)
        except Error as e:
            return e.code
        fail(f"{method} {params} was not refused: {result}")

    def event(self, name, timeout=PATIENCE, match=lambda data: True):
        """The next event of that name (kept or new)."""
        end = time.monotonic() + timeout
        while True:
            for i, e in enumerate(self.events):
                if e["event"] == name and match(e["data"]):
                    return self.events.pop(i)
            left = end - time.monotonic()
            if left <= 0:
                fail(f"no event {name} within {timeout} s")
            try:
                self._keep(self.recv_frame(left))
            except (TimeoutError, socket.timeout):
                pass

    # -- the usual steps

    def arm(self, pid, **params):
        """Arms as an ordinary user does, with the maps that this process can open."""
        fd = open_maps(pid)
        try:
            return self.call("target.arm", {"pid": pid, "fds": ["maps"], **params}, [fd])["target"]
        finally:
            os.close(fd)

    def snapshot(self, target, timeout=PATIENCE, **params):
        return self.call("snapshot.create", {"target": target, "wait": True, **params}, timeout=timeout)["snapshot"]

    def fetch(self, snapshot, *names):
        """{name: bytes} of the named files (all if none is named)."""
        if not names:
            names = [f["name"] for f in self.call("snapshot.fetch", {"snapshot": snapshot})["files"]]
        out = {}
        for i in range(0, len(names), 16):
            part = list(names[i:i + 16])
            files = self.call("snapshot.fetch", {"snapshot": snapshot, "names": part})["files"]
            fds, self.fds = self.fds, []
            if len(fds) != len(files):
                fail(f"{len(files)} files but {len(fds)} descriptors")
            for entry, fd in zip(files, fds):
                with os.fdopen(fd, "rb") as f:
                    out[entry["name"]] = f.read()
        return out


UNIT_UID = 977  # of no user that there is


def unit_capabilities():
    """What systemd/tracerd.service gives the daemon, as capability names without "cap_"."""
    for line in (SRC / "systemd/tracerd.service.in").read_text().splitlines():
        if line.startswith("AmbientCapabilities="):
            return [name.removeprefix("CAP_").lower() for name in line.partition("=")[2].split()]
    fail("tracerd.service names no AmbientCapabilities=")


class Tracerd:
    """A private instance in a directory of its own; readiness is taken from its sd_notify. With unit_rights (needs root)
    it runs as a plain user with exactly the capabilities that the unit has."""

    running = []

    def __init__(self, *args, config="", name="", uid=None, env=None, binary=None, unit_rights=False):
        self.dir = tmp() / f"tracerd{name}"
        self.run = self.dir / "run"
        self.state = self.dir / "state"
        self.sock = self.run / "control.sock"
        self.status_sock = self.run / "status.sock"
        self.conf = self.dir / "tracerd.conf"
        self.log_path = self.dir / "log"
        self.args = args
        self.unit_rights = unit_rights
        self.uid = uid = UNIT_UID if unit_rights else uid
        self.env = env or {}
        self.binary = binary or BUILD / "tracerd"
        self.process = None
        for d in (self.dir, self.run, self.state):
            d.mkdir(parents=True, exist_ok=True)
            if uid is not None:
                os.chown(d, uid, uid)
        self.conf.write_text(config)

    def start(self, timeout=PATIENCE):
        notify_path = self.dir / "notify.sock"
        notify_path.unlink(missing_ok=True)
        notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        notify.bind(str(notify_path))
        os.chmod(notify_path, 0o777)
        env = {**os.environ, "NOTIFY_SOCKET": str(notify_path), **self.env}
        argv = [self.binary, "--foreground", "--config", self.conf, "--runtime-dir", self.run,
                "--state-dir", self.state, *self.args]
        if self.unit_rights:
            need_command("setpriv", "util-linux")
            plus = ",".join("+" + name for name in unit_capabilities())
            argv = ["setpriv", "--reuid", self.uid, "--regid", self.uid, "--clear-groups", "--no-new-privs", "--inh-caps", "-all," + plus,
                    "--ambient-caps", "-all," + plus, "--bounding-set", "-all," + plus, *argv]
        with open(self.log_path, "ab") as log:
            self.process = spawn(*argv, stdout=log, stderr=log, env=env, uid=None if self.unit_rights else self.uid)
        self.notify = notify
        if self not in Tracerd.running:
            Tracerd.running.append(self)
        end = time.monotonic() + timeout
        while True:
            if select.select([notify], [], [], 0.1)[0] and b"READY=1" in notify.recv(65536).split(b"\n"):
                return self
            if self.process.poll() is not None:
                fail(f"tracerd ended at start with status {self.process.returncode}")
            if time.monotonic() > end:
                fail("tracerd was not ready in time")

    def stop(self, sig=signal.SIGTERM, timeout=PATIENCE, check=True):
        """Signals it and returns its exit status. One that is told to end must have its spool in order."""
        if check and sig == signal.SIGTERM and self.alive():
            wrong = spool_wrong(self.sock, self.state)
            if wrong:
                fail(wrong)
        p, self.process = self.process, None
        if p is None:
            return None
        if p.poll() is None:
            p.send_signal(sig)
        try:
            status = p.wait(timeout)
        except subprocess.TimeoutExpired:
            p.kill()
            p.wait()
            fail(f"tracerd did not end within {timeout} s after signal {int(sig)}")
        self.notify.close()
        return status

    def alive(self):
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self):
        return self.process.pid

    def log(self):
        try:
            return self.log_path.read_text(errors="replace")
        except OSError:
            return ""

    def last_words(self):
        """The end of its log; the whole report, if a sanitizer ended it."""
        lines = self.log().splitlines()
        report = next((i for i, l in enumerate(lines) if "Sanitizer" in l or "runtime error:" in l), None)
        ended = self.process.poll() if self.process else None
        print("# tracerd's last lines:" if ended is None else f"# tracerd has ended with status {ended}; its last lines:")
        for line in lines[-15:] if report is None else lines[report:report + 40]:
            print(f"#   {line}")
        sys.stdout.flush()

    def client(self, **kw):
        return Client(self.sock, **kw)

    def status(self, path="/status"):
        return json.loads(http_get(self.status_sock, path)[1])

    def tracectl(self, *args, timeout=PATIENCE, program=BUILD / "tracectl", **kw):
        """Runs the built tracectl against this instance; the completed process."""
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw["env"] = {**os.environ, "TRACERD_SOCKET": str(self.sock), **kw.get("env", {})}
        return subprocess.run([str(program), *map(str, args)], capture_output=True, text=True,
                              timeout=timeout, **kw)

    def fds(self):
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, *_):
        if kind is not None and not issubclass(kind, SystemExit):
            self.last_words()
        if self.process is not None and (kind is None or kind is SystemExit):
            status = self.stop(check=kind is None)
            if kind is None and status != 0:
                fail(f"tracerd ended with status {status}")
        Tracerd.running = [d for d in Tracerd.running if d is not self]


def first_table(client, pid):
    """Waits for the map of unwind rules: it comes when a decoder had time to make some, and stays."""
    if "unwinding" in (client.call("status").get("capture") or {}):
        used = lambda: client.call("status")["quota"]["targets"]["used"]
        before = used()
        target = client.arm(pid, stacks="bpf")["id"]
        wait_for("a table of unwind rules", lambda: client.call("status")["capture"]["unwinding"]["table_bytes"])
        client.call("target.disarm", {"target": target})
        # Its events may just be being opened, and then it goes when they are.
        wait_for("its target is gone", lambda: used() == before)


def http_get(path, target, timeout=PATIENCE):
    """(status line, body) of one HTTP/1.0 GET on a Unix socket."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as s:
        s.settimeout(timeout)
        s.connect(str(path))
        s.sendall(f"GET {target} HTTP/1.0\r\n\r\n".encode())
        data = b""
        while chunk := s.recv(65536):
            data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(), body


def spool_numbers(client, state):
    """What is in the folder, what the list says, what is charged: three views of the same."""
    def tree(path):
        return sum(os.lstat(os.path.join(d, f)).st_size for d, _, files in os.walk(path) for f in files)

    folder = pathlib.Path(state) / "spool"
    names = os.listdir(folder) if folder.is_dir() else []
    kept = sorted(n for n in names if n[:1].isdigit())
    sizes = {n: tree(folder / n) for n in kept + [n for n in names if n.startswith(".removed-")]}
    listed, cursor = [], ""
    while cursor is not None:
        page = client.call("snapshot.list", {"limit": 100, **({"cursor": cursor} if cursor else {})})
        listed += [s for s in page["snapshots"] if s["published_at"]]
        cursor = page["next"]
    status = client.call("status")
    spool = status["spool"]
    return ((kept, sum(sizes.values()), sum(sizes[n] for n in kept), len(kept)),
            (sorted(s["id"] for s in listed), spool["bytes"], sum(s["bytes"] for s in listed), spool["count"]),
            (sorted(s["id"] for s in listed), status["quota"]["spool_bytes"]["used"],
             spool["bytes"] - spool["removing_bytes"], spool["count"]))


def spool_wrong(sock, state, timeout=60.0):
    """None where the spool's folder, its list and the quota say the same, as they must whatever a test did; else what is
    wrong. What is just being published or removed gets time. A daemon that does not answer is not asked."""
    end = time.monotonic() + timeout
    views = None
    while True:
        try:
            with Client(sock, timeout=60.0) as c:
                while True:
                    try:
                        views = spool_numbers(c, state)
                        if views[0] == views[1] == views[2]:
                            return None
                    except FileNotFoundError:
                        pass # removed while we looked
                    if time.monotonic() > end:
                        return "spool: folder, list and quota (ids, all bytes, bytes kept, number) differ: " + \
                            ", ".join(map(str, views or ()))
                    time.sleep(0.1)
        except (Closed, Error, OSError) as e:
            note(f"the spool was not compared: {e}")
            return None


def as_user(uid, function, *args):
    """Runs function(*args) in a child that has given up root for good; its exit status is 0 if
    the function returned, 1 if it raised (the trace goes to stderr)."""
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
            function(*args)
            status = 0
        except SystemExit as e:
            status = e.code if isinstance(e.code, int) else 1
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__" and sys.argv[1:2] == ["spool"]:
    wrong = spool_wrong(*sys.argv[2:4])
    if wrong:
        print(wrong)
        sys.exit(1)
if __name__ == "__main__" and sys.argv[1:2] == ["status"]:
    print(http_get(sys.argv[2], "/status")[1].decode())
