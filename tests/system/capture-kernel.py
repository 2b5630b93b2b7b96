#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
# arm --kernel: what in the kernel a thread waits for has a name, the one that the kernel itself tells (wchan). Who may not
# know the kernel's addresses gets none, also while root's target is recorded beside it, and is told why. Of long waits it is told without
# --kernel.
from lib.capture import *
from lib.tp import Engine
import struct

NOBODY = 65534
WAITER = r"""
import ctypes, os, threading, time
libc = ctypes.CDLL(None)
def name(text): libc.prctl(15, text.encode(), 0, 0, 0)
read, write = os.pipe()
lock = threading.Lock()
def reader():
    name("reader")
    while os.read(read, 1): pass
def locker():
    name("locker")
    while True:
        with lock: time.sleep(0)
        time.sleep(0.001)
def sleeper():
    name("sleeper")
    while True: time.sleep(0.02)
for f in (reader, locker, sleeper): threading.Thread(target=f, daemon=True).start()
print("ready", flush=True)
while True:
    with lock:
        os.write(write, b"x")
        time.sleep(0.02)
    os.stat("/proc/self/status")
    time.sleep(0.005)
"""
FOREVER = r"""
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None)
# In two functions: of one place the summary has the longest wait.
def before(name):
    libc.prctl(15, name.encode(), 0, 0, 0)
    os.read(os.pipe()[0], 1)
def since(name):
    libc.prctl(15, name.encode(), 0, 0, 0)
    os.readv(os.pipe()[0], [bytearray(1)])
def begin(f):
    threading.Thread(target=f, args=(f.__name__,), daemon=True).start()
    time.sleep(0.2)
    print("ready", flush=True)
begin(before)
sys.stdin.readline()
begin(since)
sys.stdin.readline()
"""
# The call that each of them is for, and where it waits in the kernel; on a busy machine others are longer.
WAITERS = {"reader": ("read", "pipe_read"), "locker": ("futex", "futex"), "sleeper": ("clock_nanosleep", "nanosleep")}


def kallsyms():
    with open("/proc/kallsyms") as f:
        return [(int(line.split()[0], 16), line.split()[2]) for line in f if line.split()[1] in "tTwW"]


def text_addresses(data):
    """Words of a file, at any place, that are addresses of the kernel's code."""
    found = set()
    for shift in range(8):
        n = (len(data) - shift) // 8
        for word in struct.unpack_from(f"<{n}Q", data, shift):
            if LOW <= word < HIGH:
                found.add(word)
    return found


def files(client, snapshot):
    return client.fetch(snapshot["id"])


need_root("the kernel's addresses")
symbols = kallsyms()
if not any(address for address, _ in symbols):
    skip("this root may not see the kernel's addresses")
known = {name for _, name in symbols}
# What it runs of its own, without modules.
LOW = min(a for a, name in symbols if name == "_text")
HIGH = LOW + (64 << 20)

with Tracerd() as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("no cpu-wide events or no BPF here")
    waiter = spawn(interpreter(), "-c", WAITER, stdout=subprocess.PIPE)
    waiter.stdout.readline()
    cpu = {min(os.sched_getaffinity(0))}
    # On one CPU with the user's: a ring is of one.
    for tid in os.listdir(f"/proc/{waiter.pid}/task"):
        os.sched_setaffinity(int(tid), cpu)
    done = d.tracectl("arm", "--kernel", str(waiter.pid))
    expect(done.returncode == 0 and "and the kernel's, waits on" in done.stdout, f"arm --kernel: {done.stdout}{done.stderr}")
    target = c.call("target.list")["targets"][0]
    expect(target["kernel"] is True, f"the target says that it has the kernel's stacks: {target}")

    def waits(snapshot):
        return {w["name"]: w for w in reversed(snapshot["summary"]["waits"])
                if w["state"] == "sleeping" and w.get("call") == WAITERS.get(w["name"], (w.get("call"),))[0]}

    found = {}

    def all_waits():
        snapshot = c.snapshot(target["id"])
        found.update(snapshot=snapshot, waits=waits(snapshot))
        return all("kernel" in found["waits"].get(name, {}) for name in WAITERS)

    wait_for("waits of all threads", all_waits)
    for name in WAITERS:
        w = found["waits"][name]
        wanted = WAITERS[name][1]
        note(f"{name}: {w.get('call')} {w['kernel'][:4]}")
        expect(wanted in w["kernel"][0], f"{name} waits in the kernel's {wanted}: {w['kernel']}")
        expect(all(k in known or k == "[kernel]" for k in w["kernel"]), f"all are names of the kernel: {w['kernel']}")
        expect(not any(k in known and k.startswith("__x64_sys") for k in w["stack"]), f"none is the program's: {w['stack']}")
        tid = thread_named(waiter.pid, name)
        seen = set()

        def agrees():
            wchan = open(f"/proc/{waiter.pid}/task/{tid}/wchan").read()
            seen.add(wchan)
            return wchan == w["kernel"][0]

        if open("/proc/self/wchan").read() in ("0", ""):
            wait_for(f"the kernel names the same place of {name}: {w['kernel']}, wchan {seen}", agrees)
    text = d.tracectl("snapshot", str(waiter.pid)).stdout
    expect("in the kernel's " in text, f"the summary says where in the kernel: {text}")
    ok("waits have the kernel's functions, as wchan names them")

    bundle_files = files(c, found["snapshot"])
    meta = json.loads(bundle_files["meta.json"])
    expect(meta["events"]["kernel"] is True, "meta.json says that there are stacks of the kernel")
    expect(b" T _text" in bundle_files["kallsyms"] or b" _text" in bundle_files["kallsyms"], "the bundle has the names")
    expect(text_addresses(bundle_files["perf.data"]), "the test finds addresses of the kernel where they are")
    where = tmp() / "bundle"
    where.mkdir()
    for name, data in bundle_files.items():
        (where / name).parent.mkdir(parents=True, exist_ok=True)
        (where / name).write_bytes(data)
    engine = Engine(where / "trace.pftrace")
    if engine.works():
        n = int(engine.value("select count(*) from slice where category = '[kernel]' and name glob '*pipe_read*'"))
        expect(n > 0, "the timeline has the pipe's function of the kernel")
        # A sample may be in it.
        n = int(engine.value("select count(*) from slice w, ancestor_slice(w.id) a where w.name glob 'off CPU*' "
                             "and a.category = '[kernel]' and a.name in ('schedule', '__schedule')"))
        expect(n == 0, "and not the scheduler's, in which every wait is")
        ok("the timeline names them, as the kernel's")
    if working_perf():
        done = subprocess.run(["perf", "script", "--kallsyms", where / "kallsyms", "-i", where / "perf.data"],
                              capture_output=True, text=True, errors="replace", timeout=PATIENCE)
        expect("pipe_read" in done.stdout, f"perf script names the kernel's functions: {done.stdout[:2000]} {done.stderr[:500]}")
        ok("perf script does, too")

    # ---- a user, on the same CPU

    mine = spawn(interpreter(), "-c", WAITER, uid=NOBODY, stdout=subprocess.PIPE)
    mine.stdout.readline()
    for tid in os.listdir(f"/proc/{mine.pid}/task"):
        os.sched_setaffinity(int(tid), cpu)
    # Root records the user's program, too, with its stacks in the kernel: other rings, which the user never reads.
    beside = c.arm(mine.pid, kernel=True)

    def users(stacks):
        def user():
            with Client(d.sock) as u:
                try:
                    u.arm(mine.pid, kernel=True)
                    fail("a user may record the kernel's stacks")
                except Error as e:
                    expect(e.code == "not_permitted" and "socket's group" in str(e), f"the refusal says who may: {e.code}: {e}")
                t = u.arm(mine.pid, stacks=stacks)
                got = {}

                def recorded():
                    got["snapshot"] = u.snapshot(t["id"])
                    return all(name in waits(got["snapshot"]) for name in WAITERS)

                wait_for("waits of the user's program", recorded)
                expect(not any("kernel" in w for w in got["snapshot"]["summary"]["waits"]), "no wait has functions of the kernel")
                data = files(u, got["snapshot"])
                expect("kallsyms" not in data, "the bundle has no names of the kernel's functions")
                for name, content in data.items():
                    expect(not text_addresses(content), f"{name}: addresses of the kernel: "
                           f"{[hex(a) for a in sorted(text_addresses(content))[:5]]}")
                try:
                    u.call("snapshot.show", {"snapshot": found["snapshot"]["id"]})
                    fail("a user sees root's snapshot")
                except Error:
                    pass
                u.call("target.disarm", {"target": t["id"]})

        expect(as_user(NOBODY, user) == 0, "the user's part")
        ok(f"a user's bundle, stacks {stacks}, has no address of the kernel")

    for stacks in ("fp", "dwarf"):
        users(stacks)
    snapshot = c.snapshot(beside["id"])
    expect(text_addresses(files(c, snapshot)["perf.data"]), "root's of the same program has them")
    ok("root's has")

    # ---- without --kernel: where waits are long, and who arms it may know the kernel's addresses

    c.call("target.disarm", {"target": beside["id"]})
    c.call("target.disarm", {"target": target["id"]})
    # The user's are in the same rings.
    done = d.tracectl("arm", "--stacks", "fp", str(mine.pid))
    expect(done.returncode == 0, f"arm: {done.stderr}")
    users("fp")

    def names_waits(process, stacks):
        done = d.tracectl("arm", "--stacks", stacks, str(process.pid))
        expect(done.returncode == 0, f"arm: {done.stderr}")
        wait_for("waits of all threads", all_waits)
        for name in WAITERS:
            w = found["waits"][name]
            expect(WAITERS[name][1] in w["kernel"][0], f"{name} waits in {w['call']}, in the kernel's {w['kernel']}")
            expect(all(k in known for k in w["kernel"]), f"all are names of the kernel: {w['kernel']}")
        preempted = [w for w in found["snapshot"]["summary"]["waits"] if w["state"] == "preempted"]
        expect(not any("kernel" in w for w in preempted), f"who was preempted waits for a processor: {preempted}")
        data = files(c, found["snapshot"])
        events = json.loads(data["meta.json"])["events"]
        expect(events["kernel"] is False and events["kernel_waits"] is True, f"meta.json says so: {events}")
        expect(0 < len(data["kallsyms"]) < 65536, f"the bundle has the names that it needs, {len(data['kallsyms'])} bytes")
        return data

    target = c.call("target.list")["targets"][0]
    names_waits(mine, "fp")
    c.call("target.disarm", {"target": target["id"]})
    done = d.tracectl("arm", "--stacks", "bpf", "--wait-min", "0", str(waiter.pid))
    target = c.call("target.list")["targets"][0]
    time.sleep(0.3)
    expect("kallsyms" not in files(c, c.snapshot(target["id"])), "where all waits have stacks none has the kernel's unasked")
    c.call("target.disarm", {"target": target["id"]})
    if c.call("status")["capture"]["unwinds"]:
        d.tracectl("arm", "--stacks", "bpf", str(waiter.pid))
        target = c.call("target.list")["targets"][0]
        names_waits(waiter, "bpf")
        c.call("target.disarm", {"target": target["id"]})
    ok("what long waits wait for in the kernel is told unasked, and in little room")

    # Who waits at the snapshot, since before it was armed or since then.
    forever = spawn(interpreter(), "-c", FOREVER, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    forever.stdout.readline()
    done = d.tracectl("arm", "--stacks", "fp", str(forever.pid))
    target = c.call("target.list")["targets"][0]
    forever.stdin.write("next\n")
    forever.stdout.readline()

    def both_wait():
        found["waits"] = waits(c.snapshot(target["id"]))
        return {"before", "since"} <= found["waits"].keys()

    wait_for("both threads in their waits", both_wait)
    for name in ("before", "since"):
        w = found["waits"][name]
        expect("pipe_read" in w.get("kernel", [""])[0], f"{name}: {w}")
    expect(found["waits"]["before"].get("since_before") is True, f"one began before: {found['waits']['before']}")
    ok("so is what those wait for whose wait goes on")

# ---- the rights of the unit: the client's own right decides whether there are names

with Tracerd(name="-unit", unit_rights=True) as d:
    c = d.client()
    if c.call("status")["backends"]["sample"]["method"] != "cpu":
        skip("the rights of the unit give no cpu-wide events or no BPF here")

    def sleeping(target):
        got = {}

        def recorded():
            got["summary"] = c.snapshot(target)["summary"]
            # of one from before the recording only the program's stack is known
            return any(w["name"] == "reader" and w["state"] == "sleeping" and not w.get("since_before") for w in got["summary"]["waits"])

        wait_for("a wait of the reader", recorded)
        return got["summary"], [w for w in got["summary"]["waits"] if w["name"] == "reader" and w["state"] == "sleeping"]

    done = d.tracectl("arm", "--kernel", str(waiter.pid))
    expect(done.returncode == 0, f"arm --kernel: {done.stdout}{done.stderr}")
    target = c.call("target.list")["targets"][0]["id"]
    summary, waits_of = sleeping(target)
    expect(any("pipe_read" in w.get("kernel", [""])[0] for w in waits_of), f"names by root's tracectl: {waits_of}")
    expect(not any(h["process"] == "kernel" for h in summary.get("hints", [])), "and no hint")
    c.call("target.disarm", {"target": target})
    with open("/dev/null") as other:
        code = c.call_error("target.arm", {"pid": waiter.pid, "kernel": True, "fds": ["kallsyms"]}, [other.fileno()])
    expect(code == "bad_params", f"another file is refused: {code}")
    target = c.arm(waiter.pid, kernel=True)["id"]
    summary, waits_of = sleeping(target)
    if open("/proc/sys/kernel/perf_event_paranoid").read().strip() not in ("-1", "0", "1"):
        expect(not any("kernel" in w for w in waits_of), f"no names without the right to see addresses: {waits_of}")
        hints = [h["text"] for h in summary.get("hints", []) if h["process"] == "kernel"]
        expect(hints and "kallsyms" in hints[0], f"and the summary says why: {summary.get('hints')}")
        text = d.tracectl("snapshot", target).stdout
        expect("kernel (0): the names of its functions are not known" in text, f"as text, too: {text}")
    ok("with the unit's rights, names are the client's to give")

# ProtectKernelTunables= puts an empty file over it where the unit looks.
wrapper = tmp() / "tracerd-hidden"
wrapper.write_text(f'#!/bin/sh\nexec unshare --mount sh -c \'mount --bind /dev/null /proc/kallsyms && exec "$0" "$@"\' {BUILD}/tracerd "$@"\n')
wrapper.chmod(0o755)
with Tracerd(name="hidden", binary=wrapper) as d:
    c = d.client()
    with open("/proc/kallsyms") as names, open("/proc/version") as other:
        expect(c.call_error("target.arm", {"pid": waiter.pid, "kernel": True, "fds": ["kallsyms"]}, [other.fileno()]) == "bad_params",
               "another file of procfs is refused")
        done = c.call("target.arm", {"pid": waiter.pid, "kernel": True, "fds": ["kallsyms"]}, [names.fileno()])
    expect(done["target"]["kernel"], "a client's kallsyms is taken where the daemon's own is hidden")
