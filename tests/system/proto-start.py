#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Who connects while tracerd starts, which takes as long as the kernel needs to check its programs, is not told that it is not running: the
request waits until it is."""
import threading

from lib import *

need_root("BPF")


def threads(pid):
    try:
        return {pathlib.Path(f"/proc/{pid}/task/{t}/comm").read_text().strip() for t in os.listdir(f"/proc/{pid}/task")}
    except OSError:
        return set()


def caught(d):
    """Stops it when it has its socket, and not yet its threads, which come behind the programs."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        process = getattr(d, "process", None)
        if not process or not d.sock.exists():
            continue
        os.kill(process.pid, signal.SIGSTOP)
        if "tracerd-hurry" not in threads(process.pid):
            return True
        os.kill(process.pid, signal.SIGCONT)
        return False
    fail("no socket")


def unhurried():
    """The unit's priority is the loop's: what opens the files that users name has none over others."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    try:
        os.setpriority(os.PRIO_PROCESS, 0, -10)
    except PermissionError:
        note("no right to a higher priority")
        return
    d = Tracerd(name="nice").start()
    os.setpriority(os.PRIO_PROCESS, 0, own)
    children = [int(p) for p in pathlib.Path(f"/proc/{d.pid}/task/{d.pid}/children").read_text().split()]
    names = [pathlib.Path(f"/proc/{p}/comm").read_text().strip() for p in children]
    expect(names == ["tracerd-open"] and os.getpriority(os.PRIO_PROCESS, d.pid) == -10,
           f"tracerd has a higher priority, and an opener: {names}")
    expect(os.getpriority(os.PRIO_PROCESS, children[0]) == 0, "which has none")
    expect(d.stop() == 0, "and it ends")


unhurried()
for attempt in range(20):
    d = Tracerd(name=f"start{attempt}")
    starting = threading.Thread(target=d.start)
    starting.start()
    early = caught(d)
    if early:
        client = subprocess.Popen([BUILD / "tracectl", "status"], env={**os.environ, "TRACERD_SOCKET": str(d.sock)},
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        # It has nothing to wait for but the answer when it sleeps in poll().
        wait_for("the request to wait", lambda: client.poll() is not None or "poll" in pathlib.Path(f"/proc/{client.pid}/wchan").read_text())
        waits = client.poll() is None
        os.kill(d.process.pid, signal.SIGCONT)
        out, err = client.communicate(timeout=PATIENCE)
    starting.join()
    if early:
        expect(waits, "a request waits while tracerd starts")
        expect((client.returncode == 0 and out) or "it is starting, or the machine is busy" in err, f"and is answered when it has, or told to be late: {err}")
    expect(d.stop() == 0, "tracerd ends")
    if early:
        break
else:
    with Tracerd(name="last") as d:
        if d.status()["backends"]["sample"]["method"] != "cpu":
            skip("no cpu-wide events or no BPF here: it starts sooner than anybody looks")
    fail("its socket is never there before its threads are")
