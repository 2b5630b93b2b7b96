#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
# slow
"""The Go module with a real tracerd: its own tests under the race detector; a snapshot of the example service has a go.trace that Go's own
tool reads; a slow request and a region over its threshold trigger; a daemon that goes and comes is found again."""
import urllib.request

from lib.golang import *

sources("client/go", "examples/goslowlock")
run("vet", "./...", cwd="client/go")
race = shutil.which("gcc") or shutil.which("cc")
run("test", *(["-race"] if race else []), "./...", cwd="client/go", CGO_ENABLED="1" if race else "0")
ok("the module's own tests pass" + (", under the race detector" if race else ""))
for system in ("darwin", "linux"):
    run("build", "./...", cwd="client/go", GOOS=system, GOARCH="arm64", CGO_ENABLED="0")
ok("it builds without cgo, for another machine and another system")
service = tmp() / "goslowlock"
run("build", "-o", service, ".", cwd="examples/goslowlock", CGO_ENABLED="0")


def get(path):
    with urllib.request.urlopen(address + path, timeout=PATIENCE) as r:
        return json.loads(r.read())


def connected():
    st = get("/status")
    return st if st["connected"] else None


with Tracerd(config="[snapshot]\nprogram_interval_ms = 1\n") as d:
    p = spawn(service, "-listen", "127.0.0.1:0", "-over", "20ms", env={**os.environ, "TRACERD_SOCKET": str(d.sock)},
              stderr=subprocess.PIPE, text=True)
    address = "http://" + p.stderr.readline().split("listening on ")[1].strip()
    st = wait_for("the service to register", connected)
    expect(st["recording"], "the service is registered and records")
    with d.client() as c:
        for i in range(20):
            get(f"/count?text=word{i}")
        s = c.snapshot(st["target"])
        files = c.fetch(s["id"], "go.trace", "meta.json")
        (g,) = json.loads(files["meta.json"])["go"]
        expect(s["state"] == "done" and g["file"] == "go.trace" and g["pid"] == p.pid and 0 < g["begin_ns"] <= g["end_ns"],
               "a snapshot has its execution trace")
        trace = tmp() / "go.trace"
        trace.write_bytes(files["go.trace"])
        parsed = run("tool", "trace", "-d=parsed", trace, cwd="client/go")
        expect("GET /count" in parsed and "StateTransition" in parsed, "which go tool trace reads, with the tasks of the requests")

        # ---- a slow request: the hundredth tidies up
        for i in range(100):
            get(f"/count?text=word{i}")
        slow = wait_for("the slow request's snapshot", lambda: next(
            (s for s in c.call("snapshot.list")["snapshots"] if s["cause"]["kind"] == "program" and s["state"] == "done"), None))
        expect(re.match(r"GET /count took [0-9.]+m?s$", slow["cause"]["reason"]) and slow["cause"]["pid"] == p.pid,
               "a slow request takes a snapshot, which says which and how long")
        trace.write_bytes(c.fetch(slow["id"], "go.trace")["go.trace"])
        expect('"tidy"' in run("tool", "trace", "-d=parsed", trace, cwd="client/go"), "and has what made it slow")

        # ---- a threshold of the daemon
        t = c.call("trigger.add", {"target": st["target"], "region": "GET /count", "over_ns": 20 * 10**6, "cooldown_ns": 0})["trigger"]["id"]
        for i in range(100):
            get(f"/count?text=word{i}")

        def taken():
            return next((x for x in c.call("trigger.list")["triggers"] if x["id"] == t and x["hits"]), None)
        wait_for("the trigger's hit", taken)
        ok("a task over the threshold of a trigger hits it")

        # ---- what the runtime counts
        r = d.tracectl("trigger", "add", st["target"], "--go", "runnable", "--over", "1ns")
        expect(r.returncode == 0 and "go:runnable" in r.stdout, "tracectl trigger add --go")
        bad = d.tracectl("trigger", "add", st["target"], "--go", "runnable", "--region", "x", "--over", "1ns")
        expect(bad.returncode == 2, "which is not with --region")

        def waited():
            get("/count?text=again")
            return next((x for x in c.call("trigger.list")["triggers"] if x["region"] == "go:runnable" and x["snapshots"]), None)
        wait_for("a goroutine that waited to run", waited)
        cause = wait_for("its snapshot", lambda: next(
            (s["cause"] for s in c.call("snapshot.list")["snapshots"] if s["cause"].get("region") == "go:runnable"), None))
        expect(cause["duration_ns"] > 0 and not cause.get("tid"), "a goroutine that waited to run hits its trigger, without a thread")

    # ---- the daemon goes and comes
    d.stop()
    wait_for("the loss of the connection", lambda: not get("/status")["connected"])
    get("/count?text=still+here")
    d.start()
    st = wait_for("the connection", connected)
    with d.client() as c:
        s = c.snapshot(st["target"])
        expect("go.trace" in {f["name"] for f in s["files"]}, "after a restart of the daemon it is registered again")
        # ---- killed: its trace goes with it
        p.kill()
        p.wait()
        s = c.snapshot(st["target"])
        lost = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])["go"][0]["lost"]
        expect(lost["kind"] in ("gone", "refused") and lost["from_raw_ns"] < lost["to_raw_ns"],
               "of a program that was killed the trace is gone, and the bundle says so")
