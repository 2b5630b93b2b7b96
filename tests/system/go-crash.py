#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 200
# slow
"""A Go program that streams its trace and is killed, or crashes: the snapshot has its last whole generations, and Go's own tool opens them."""
from lib.golang import *

build_shell()


def trace_of(c, target):
    """What meta.json has of the trace, the trace as text, and for how many seconds before its end the program had streamed nothing: a loss."""
    s = c.snapshot(target)
    (g,) = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])["go"]
    missing = s["summary"]["losses"].get("Go trace missing: not streamed", {"ns": 0})["ns"] / 1e9
    return g, parsed(c.fetch(s["id"], g["file"])[g["file"]]) if "file" in g else "", missing


def work(p, name):
    """Until the generation in which it was is whole: Go begins one a second, and tells nobody."""
    for _ in range(4):
        p.tell(f"work {name}")
        time.sleep(1)


with Tracerd() as d, d.client() as c:
    p = GoShell(d)
    st = p.tell(f"stream {16 << 20}")
    expect(st["Streaming"] and st["Recording"], "a program streams its trace, and has a FlightRecorder")
    t = p.connected()
    work(p, "alive")
    g, text, missing = trace_of(c, t)
    expect("streamed" not in g and '"alive"' in text and not missing, "while it lives the trace comes from the recorder")
    work(p, "killed")
    p.process.kill()
    p.process.wait()
    g, text, missing = trace_of(c, t)
    expect(g.get("streamed") and g["generations_lost"] == 0 and '"killed"' in text, "killed, it has left its last generations")
    expect(0 < missing < 30, f"and what is missing up to its end is a loss: {missing:.2f} s")

    # ---- between the question and the answer
    p = GoShell(d, f"stream {16 << 20}")
    t = p.connected()
    work(p, "asked")
    p.process.send_signal(signal.SIGSTOP)
    s = c.call("snapshot.create", {"target": t})["snapshot"]["id"]
    p.process.kill()
    p.process.wait()
    wait_for("the snapshot", lambda: c.call("snapshot.show", {"snapshot": s})["snapshot"]["state"] == "done")
    (g,) = json.loads(c.fetch(s, "meta.json")["meta.json"])["go"]
    expect(g.get("streamed") and '"asked"' in parsed(c.fetch(s, g["file"])[g["file"]]), "and one that is killed when it is asked, too")

    p = GoShell(d, f"stream {16 << 20}")
    t = p.connected()
    work(p, "crashed")
    p.process.stdin.write("crash\n")
    p.process.stdin.flush()
    p.process.wait(PATIENCE)
    g, text, missing = trace_of(c, t)
    expect(g.get("streamed") and '"crashed"' in text, "and one that crashes, too")

    # ---- one that has ended its stream long before
    p = GoShell(d, f"stream {16 << 20}")
    t = p.connected()
    work(p, "streamed")
    p.tell("trace-stop")
    stopped = time.monotonic()
    time.sleep(5)
    p.process.kill()
    ran = time.monotonic() - stopped
    p.process.wait()
    g, text, missing = trace_of(c, t)
    expect(g.get("streamed") and '"streamed"' in text and missing > ran - 1, f"a stream that ended {ran:.2f} s before its program: {missing:.2f} s are a loss")

    # ---- the daemon comes anew: the memory is the same, and is given up by the connection before
    p = GoShell(d, f"stream {16 << 20}")
    p.connected()
    d.stop(check=False)
    d.start()
    c = d.client()
    t = p.connected()
    work(p, "again")
    p.process.kill()
    p.process.wait()
    g, text, missing = trace_of(c, t)
    expect(g.get("streamed") and '"again"' in text, "after a restart of the daemon it is as before")

    # ---- more than the daemon takes: everything but that
    p = GoShell(d)
    p.tell(f"stream {1 << 30}")
    t = p.connected()
    expect("go_trace_mib" in p.tell("stream-error"), "one that is too large is refused, with the reason")
    p.tell("work unstreamed")
    g, text, missing = trace_of(c, t)
    expect('"unstreamed"' in text, "and the recorder's trace is there all the same")
    p.process.kill()
