#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# waits
# timeout: 300
"""tracerd-step --control: what it says to whoever holds its channel (common/control/stepabi.h). It is told at once whether a process is
stepped; copies can be had again and again, each exactly what was executed until then, while the program goes on; whatever happens
to the holder or to the stepper, the program goes on by itself."""
import resource

from lib.stepholder import *

need_stepper()
WORK = pathlib.Path(tmp())


def build(name, *flags):
    program = WORK / name
    subprocess.run(["gcc", "-O1", "-pthread", *flags, "-o", program, SRC / f"tests/system/inside/{name}.c"], check=True)
    return program


def start(program, *arguments):
    return spawn(program, *arguments, stdout=open(WORK / (program.name + ".out"), "w"))


def said(program):
    return (WORK / (program.name + ".out")).read_text().split()


def threads(pid, key):
    r = {}
    for t in sorted(os.listdir(f"/proc/{pid}/task")):
        try:
            with open(f"/proc/{pid}/task/{t}/status") as f:
                r[t] = next((line.split(None, 1)[1].strip() for line in f if line.startswith(key + ":")), "")
        except OSError:
            pass
    return r


def is_free(pid):
    return all(v == "0" for v in threads(pid, "TracerPid").values())


def goes_on(program, p, why):
    wait_for(f"{why}: nobody traces it", lambda: is_free(p.pid))
    before = len(said(program))
    wait_for(f"{why}: it goes on", lambda: p.poll() is not None or len(said(program)) >= before + 3)
    if p.poll() is not None or not said(program)[-1].isdigit():
        fail(f"{why}: it ended with {p.returncode}, {said(program)[-5:]}")


class Control:
    """A stepper and the end that holds it."""
    count = 0

    def __init__(self, pid, *options, log=True, **more):
        Control.count += 1
        self.log = WORK / f"control{Control.count}.log"
        logs = ["--log", self.log] if log else []
        self.sock, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.sock.settimeout(PATIENCE)
        self.front = subprocess.Popen([STEP, "--control", str(theirs.fileno()), "-p", str(pid), *logs, *map(str, options)],
                                      pass_fds=[theirs.fileno()], stderr=open(WORK / "stderr", "a"), **more)
        theirs.close()
        self.copies = 0
        data = self.sock.recv(512)
        if not data:
            fail("it ended before it said anything: " + (WORK / "stderr").read_text())
        kind, self.version, self.pid, self.error, why = struct.unpack(HELLO_FORMAT, data)
        self.why = why.split(b"\0")[0].decode()
        if kind != HELLO or self.version != VERSION or self.pid != pid:
            fail(f"hello: {kind} {self.version} {self.pid}")

    def request(self, limit=1 << 30, kind=FREEZE):
        return ask(self.sock, limit, kind)

    def answer(self, sock):
        self.copies += 1
        return Copy(WORK / f"{self.log.stem}-{self.copies}", *answer(sock))

    def copy(self, limit=1 << 30):
        return self.answer(self.request(limit))

    def executed(self, copy):
        """The log as far as the copy goes."""
        lines = self.log.read_text().splitlines()
        if len(lines) < copy.stats["insns"]:
            fail(f"{len(lines)} lines in the log, {copy.stats['insns']} instructions")
        return by_thread(lines[:copy.stats["insns"]])

    def tracer(self):
        return int(open(f"/proc/{self.front.pid}/task/{self.front.pid}/children").read().split()[0])

    def stats(self, condition, what):
        """Statistics come until they are as one wants."""
        while True:
            s = unpack_stats(self.sock.recv(512))
            if condition(s):
                return s

    def close(self):
        self.sock.close()

    def ends(self, code=0):
        try:
            status = self.front.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            fail("the stepper does not end")
        expect_quietly(status == code, f"the stepper's exit status is {status}: {(WORK / 'stderr').read_text()[-2000:]}")


def expect_quietly(condition, text):
    if not condition:
        fail(text)


def exact(c, copy, what):
    """All that was executed until then, thread by thread, as libipt and as we decode it."""
    want = c.executed(copy)
    if copy.error or not copy.files & PERFDATA:
        fail(f"{what}: error {copy.error}, files {copy.files}")
    got = copy.oracle()
    for tid in got.keys() | want.keys():
        if got.get(tid, []) != want.get(tid, []):
            fail(f"{what}: thread {tid}: {len(got.get(tid, []))} instructions instead of {len(want.get(tid, []))}")
    if copy.ours() != collections.Counter(ip for ips in want.values() for ip in ips):
        fail(f"{what}: our decoder has other instructions")
    return sum(map(len, want.values()))


def copies(program):
    p = start(program)
    wait_for("the program runs", lambda: len(said(program)) > 2)
    before = raw_ns()
    c = Control(p.pid)
    if c.error == -1:
        skip(f"may not ptrace here: {c.why}")
    expect(c.error == 0 and c.why == "", "it says that it steps")
    s = c.stats(lambda s: s["insns"] > 2000, "instructions")
    expect(s["threads"] == 3 and s["ended"] == 0 and s["bytes"] > 0 and s["max_bytes"] == 64 << 20 and s["processes_all"] == 1,
           f"its statistics: {s}")
    first = c.copy()
    after = raw_ns()
    n = exact(c, first, "a copy")
    expect(before < first.stats["oldest_raw_ns"] < first.raw_ns < after, "with the times of the copy and since when all is in it")
    s = c.stats(lambda s: s["insns"] > first.stats["insns"] + 2000, "more instructions")
    second = c.copy()
    more = exact(c, second, "a second copy")
    expect(more >= n + 2000, f"copies are exact, and the recording goes on meanwhile: {n}, then {more} instructions")
    expect(second.files & VDSO and (second.folder / "x.data.vdso").read_bytes()[:4] == b"\x7fELF", "the vDSO comes along")
    p2 = subprocess.run([BUILD / "tracectl", "decode", "--stats", second.data], capture_output=True, text=True,
                        env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    expect(p2.returncode == 0, "and decodes by itself")
    requests = [c.request() for _ in range(20)]
    many = [c.answer(r) for r in requests]
    counts = [m.stats["insns"] for m in many]
    exact(c, many[7], "the eighth of twenty")
    exact(c, many[-1], "the last of twenty")
    expect(counts == sorted(counts) and all(m.error == 0 for m in many), "twenty requests at once are answered one by one")
    for less in range(512, 32768, 512):  # what is behind the records does not count, and it grows meanwhile
        latest = c.copy()
        short = c.copy(sum(f.stat().st_size for f in latest.folder.iterdir()) - less)
        if short.error or short.stats["stacks_not_written"]:
            break
    expect(latest.stats["stacks_not_written"] == 0 and short.error == 0 and 0 < short.stats["stacks_not_written"] <= 3 and short.files & PERFDATA,
           f"stacks are what has no room first, and counted: {short.error}, {short.stats['stacks_not_written']}")
    small = c.copy(4096)
    expect(small.error == -27 and small.files == 0, "what is larger than wanted is refused")
    expect(c.copy(0).error == -27, "and so is anything if nothing is wanted")
    c.close()
    c.ends()
    goes_on(program, p, "the channel's end")
    ok("when the holder goes the program goes on")
    return p


def suffix(c, copy, what):
    """What is decoded is the end of what each thread did; the number of instructions."""
    want, n = c.executed(copy), 0
    if copy.error:
        fail(f"{what}: error {copy.error}")
    decoded = copy.oracle()
    if copy.ours() != collections.Counter(ip for ips in decoded.values() for ip in ips):
        fail(f"{what}: our decoder has other instructions")
    for tid, ips in decoded.items():
        if want[tid][-len(ips):] != ips:
            fail(f"{what}: thread {tid} is not the end of what it did")
        n += len(ips)
    return n


def forget(program):
    """A ring forgets side-band, code and threads with the packets, and goes on."""
    def run(what, *arguments, options):
        p = spawn(program, what, *arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        c = Control(p.pid, *options)
        if c.error:
            fail(f"{what}: {c.why}")
        p.stdin.write(b"x")
        p.stdin.flush()
        expect_quietly(p.stdout.readline().strip() == str(arguments[0]).encode(), f"{what}: it went wrong")
        copy = c.copy()
        n = suffix(c, copy, what)
        if copy.stats["ended"] or copy.stats["error"]:
            fail(f"{what}: it ended: {copy.stats}")
        c.close()
        c.ends()
        wait_for(f"{what}: it goes on", lambda: is_free(p.pid) and p.poll() is None)
        p.kill()
        return copy, n

    copy, n = run("pages", 10000, options=["--max-bytes", 1 << 20])
    size = (copy.folder / "tracerd-step.code").stat().st_size
    expect(copy.stats["overwritten"] > 0 and size <= 4096 + 8192 * 8192 and records(copy.data)[10] < 9000,
           f"pages that are not named any more go, with the packets that need them: {n} of {copy.stats['insns']} instructions "
           f"are kept, {size >> 20} MiB of code")
    copy, n = run("threads", 150, options=["--max-bytes", 32768, "--psb-bytes", 512])
    auxtraces = records(copy.data)[71]
    expect(copy.stats["threads_all"] == 151 and 2 < auxtraces < 100,
           f"threads that have ended go: {auxtraces} of 151 are in the copy")
    folder = WORK
    while len(str(folder)) < 3600:
        folder /= "d" * 200
    folder.mkdir(parents=True)
    (folder / "lib").write_bytes(b"\xc3" * 12288)
    copy, n = run("maps", 3000, folder / "lib", options=["--max-bytes", 32768, "--psb-bytes", 512])
    counts = records(copy.data)
    expect(copy.data.stat().st_size < 10 << 20 and 100 < counts[10] < 2500 and n > 1000,
           f"side-band that is too old goes: {counts[10]} mappings of 3000 are in the copy, with {n} instructions")


def small_ring(program):
    p = start(program)
    wait_for("the program runs", lambda: len(said(program)) > 2)
    c = Control(p.pid, "--max-bytes", 16384, "--psb-bytes", 512)
    c.stats(lambda s: s["overwritten"] > 20000, "overwritten packets")
    one = c.copy()
    n = suffix(c, one, "a small ring")
    oldest = one.stats["oldest_raw_ns"]
    expect(one.stats["bytes"] < 32768 and 500 < n < one.stats["insns"],
           f"a ring keeps the last: {n} of {one.stats['insns']} instructions")
    c.stats(lambda s: s["overwritten"] > one.stats["overwritten"] + 20000, "more of them")
    two = c.copy()
    expect(suffix(c, two, "a small ring, later") > 500 and two.stats["oldest_raw_ns"] > oldest, "and later what was last then")
    c.close()
    c.ends()
    goes_on(program, p, "a small ring")
    p.kill()


def killed(program):
    p = start(program)
    wait_for("the program runs", lambda: len(said(program)) > 2)
    c = Control(p.pid)
    c.stats(lambda s: s["insns"] > 1000, "instructions")
    tracer = c.tracer()
    expect(os.stat(f"/proc/{tracer}/environ").st_uid == 0 and int(threads(tracer, "NoNewPrivs")[str(tracer)]) == 1,
           "it is not dumpable, and gets no privileges")
    names = open(f"/proc/{tracer}/cmdline").read() + open(f"/proc/{tracer}/comm").read()
    expect("tracerd-step" not in names and "step-tracer" in names, "who looks for tracerd-step to kill it finds the process in front")
    c.front.kill()
    c.front.wait()
    goes_on(program, p, "SIGKILL of the process in front")
    s = c.stats(lambda s: s["ended"], "the end")
    expect(s["ended"] == ASKED and s["threads"] == 0, "it says that it has ended")
    copy = c.copy()
    expect(exact(c, copy, "after the end") == s["insns"], "what was recorded can be had afterwards")
    c.close()
    wait_for("the tracer ends with the channel", lambda: not os.path.exists(f"/proc/{tracer}"))
    # asked once it lets go, asked twice it ends
    c = Control(p.pid)
    c.stats(lambda s: s["insns"] > 1000, "instructions")
    c.front.terminate()
    goes_on(program, p, "SIGTERM")
    c.stats(lambda s: s["ended"] == ASKED, "the end")
    expect(c.front.poll() is None, "after SIGTERM it stays for what was recorded")
    c.front.terminate()
    c.ends()
    ok("and goes with the next one")
    p.kill()


def fds_of(pid):
    """Of its sockets and memory files."""
    names = []
    for f in os.listdir(f"/proc/{pid}/fd"):
        try:
            names.append(os.readlink(f"/proc/{pid}/fd/{f}"))
        except OSError:
            pass
    return len([n for n in names if n.startswith("socket:") or "memfd" in n])


def nobody_reads(program):
    """Statistics fill the socket; neither they nor answers that nobody takes stop anything."""
    p = start(program)
    wait_for("the program runs", lambda: len(said(program)) > 2)
    c = Control(p.pid)
    c.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
    requests = [c.request() for _ in range(3)]
    before = len(said(program))
    wait_for("it is stepped on while nobody reads", lambda: len(said(program)) >= before + 3)
    for r in requests[:2]:
        r.close()
    expect(c.answer(requests[2]).error == 0, "who does not read stops nothing")
    # what is no request, and sockets that cannot be answered
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    pipe = os.pipe()
    send(c.sock, struct.pack(FREEZE_FORMAT, FREEZE, 0, 1 << 30), [b.fileno()])
    send(c.sock, struct.pack(FREEZE_FORMAT, FREEZE, 0, 1 << 30), [pipe[1]])
    send(c.sock, struct.pack(FREEZE_FORMAT, FREEZE, 0, 1 << 30))
    send(c.sock, struct.pack(FREEZE_FORMAT, FREEZE, 0, 1 << 30), [pipe[1], pipe[0]])
    send(c.sock, b"x" * 600, [pipe[1]])
    send(c.sock, b"x")
    for fd in pipe:
        os.close(fd)
    r = c.request(kind=FROZEN)
    expect(r.recv(10) == b"", "a request of another type is closed")
    r.close()
    expect(c.copy().error == 0, "requests that are none are ignored")
    tracer = c.tracer()
    wait_for("requests leave no descriptor", lambda: fds_of(tracer) == 1)
    a.close()
    b.close()
    c.close()
    c.ends()
    goes_on(program, p, "nobody read")
    p.kill()


def idle():
    """A program that waits costs nothing: nobody wakes up for it, and a request is answered all the same."""
    p = spawn("sleep", "1000")
    c = Control(p.pid, log=False)
    tracer = c.tracer()
    last = c.stats(lambda s: s["threads"] == 1, "the thread")

    def sleeps():
        nonlocal last
        while select.select([c.sock], [], [], 1.5)[0]:
            last = unpack_stats(c.sock.recv(512))
        before = threads(tracer, "voluntary_ctxt_switches")
        return not select.select([c.sock], [], [], 3)[0] and threads(tracer, "voluntary_ctxt_switches") == before
    wait_for("the stepper of a program that waits sleeps, too", sleeps)
    ok("the stepper of a program that waits sleeps, too")
    expect(c.copy().stats["insns"] == last["insns"], "and wakes up for a request")
    p.kill()
    p.wait()
    s = c.stats(lambda s: s["ended"], "the end")
    expect(s["ended"] == EXITED and c.copy().error == 0, "a program that is killed has ended")
    c.close()
    c.ends()


def limits(program):
    """Limits of whoever started it end the recording, or a copy, in order."""
    def limit(what, value):
        return lambda: resource.setrlimit(what, (value, resource.getrlimit(what)[1]))

    p = start(program)
    wait_for("the program runs", lambda: len(said(program)) > 2)
    c = Control(p.pid, log=False, preexec_fn=limit(resource.RLIMIT_FSIZE, 4096))
    c.stats(lambda s: s["insns"] > 1000, "instructions")
    copy = c.copy()
    expect(copy.error == -27 and copy.files == 0, "a limit of files' size is told")
    c.stats(lambda s: s["insns"] > copy.stats["insns"] and not s["ended"], "more instructions")
    c.close()
    c.ends()
    goes_on(program, p, "a limit of files' size")
    c = Control(p.pid, preexec_fn=limit(resource.RLIMIT_CPU, 1))
    s = c.stats(lambda s: s["ended"], "the end")
    goes_on(program, p, "a limit of CPU time")
    copy = c.copy()
    expect(s["ended"] == ASKED and exact(c, copy, "after a limit of CPU time") > 1000,
           "a limit of CPU time ends the recording, not the program")
    c.close()
    p.kill()


def target_ends():
    """Children, an exec and threads are followed; what has ended can be had, more than once."""
    p = spawn("sh", "-c", "read x; /bin/true; (exit 3); exec /bin/echo done", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    c = Control(p.pid)
    p.stdin.write(b"x\n")
    p.stdin.close()
    expect(p.stdout.read() == b"done\n" and p.wait() == 0, "a shell with children that is stepped does what it does")
    s = c.stats(lambda s: s["ended"], "the end")
    expect(s["ended"] == EXITED and s["threads"] == 0 and s["processes_all"] == 3, f"its end is told: {s}")
    one, two = c.copy(), c.copy()
    n = exact(c, one, "after the last exit")
    expect(n == s["insns"] and exact(c, two, "the same again") == n, f"and its {n} instructions of three processes can be had")
    c.close()
    c.ends()


def refused(program):
    c = Control(4194303)
    expect(c.error == -3 and "no such process" in c.why, c.why)
    c.ends(1)
    c = Control(2)
    expect(c.error == -1 and "kernel" in c.why, c.why)
    c.ends(1)
    p = start(program)
    first = Control(p.pid)
    second = Control(p.pid)
    expect(first.error == 0 and second.error == -1 and "already traced" in second.why, second.why)
    second.ends(1)
    first.close()
    first.ends()
    if os.geteuid() == 0:
        d = WORK / "user"
        d.mkdir()
        d.chmod(0o777)
        global STEP
        own, STEP = STEP, shutil.copy(STEP, d / "tracerd-step")
        log = WORK / f"control{Control.count + 1}.log"
        log.touch()
        log.chmod(0o666)
        c = Control(p.pid, user=65534, group=65534, extra_groups=[])
        STEP = own
        expect(c.error == -1 and "owned by uid 0" in c.why, c.why)
        c.ends(1)
    goes_on(program, p, "refusals")
    p.kill()
    for arguments, words in ((["--control", "1", "-p", "1"], "not a number"), (["--control", "9", "-o", "x", "-p", "1"], "--control"),
                             (["--control", "9", "true"], "--control"), (["--control", "9", "-p", "1"], "--control")):
        r = subprocess.run([STEP, *arguments], capture_output=True, text=True)
        if r.returncode not in (1, 2) or words not in r.stderr:
            fail(f"{arguments}: exit {r.returncode}, {r.stderr}")
    with open(os.devnull) as f:
        r = subprocess.run([STEP, "--control", str(f.fileno()), "-p", "1"], capture_output=True, text=True, pass_fds=[f.fileno()])
    expect(r.returncode == 1 and "rotocol" in r.stderr, "what cannot be done is said in words")


loop = build("step-loop")
p = copies(loop)
p.kill()
small_ring(loop)
killed(loop)
nobody_reads(loop)
idle()
limits(loop)
target_ends()
refused(loop)
forget(build("step-long"))
