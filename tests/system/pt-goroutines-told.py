#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""A Go program is stepped that ran before, so that nobody has seen what waits in it. With the execution trace of its runtime it is known all the
same which goroutine goes on: nothing is in doubt, and the calls are what the program says. Without it they are in doubt."""
from lib.gocalls import *

need_root("stepping by the daemon")
KINDS = ["chan", "pull", "mutex"]
work = tmp()
program, _ = build_switches(work)
with Tracerd() as d, d.client() as c:
    p = spawn(program, "1", "trace", "read", *KINDS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0, cwd=work,
              env={**os.environ, "GOGC": "off", "GOMAXPROCS": "1", "GODEBUG": "asyncpreemptoff=1"})
    wait_for("its trace", lambda: (work / "go.trace").exists())
    a = d.tracectl("arm", "--backend", "step", p.pid)
    if a.returncode:
        fail(f"tracectl arm: {a.stderr}")
    os.write(p.stdin.fileno(), b"x")
    said = b""
    while not said.endswith(b"\n\n"):
        if not select.select([p.stdout], [], [], PATIENCE)[0]:
            fail("the program does not come to its end")
        said += os.read(p.stdout.fileno(), 65536)
    s = c.snapshot(c.call("target.list")["targets"][0]["id"])
    expect(s["state"] == "done", f"a snapshot is taken: {s['state']} {s['error']}")
    bundle = work / "bundle"
    for name, data in c.fetch(s["id"]).items():
        (bundle / name).parent.mkdir(parents=True, exist_ok=True)
        (bundle / name).write_bytes(data)
    # To write the trace takes many instructions, too.
    d.tracectl("disarm", p.pid)
    os.write(p.stdin.fileno(), b"x")
    expect(p.wait(PATIENCE) == 0, "it goes on by itself, and writes its trace")
meta = json.loads((bundle / "meta.json").read_text())


def decode(*options):
    r = subprocess.run([BUILD / "tracectl", "decode", *options, bundle], capture_output=True, text=True, timeout=PATIENCE,
                       env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")})
    if r.returncode:
        fail(f"tracectl decode: {r.stderr}")
    return r.stdout


said = noted(said.decode())
whole, part, doubtful = follows("without the trace", decode("--calls"), said)
expect(doubtful, "without it calls are in doubt")
(bundle / "go.trace").write_bytes((work / "go.trace").read_bytes())
(bundle / "meta.json").write_text(json.dumps({**meta, "go": [{"file": "go.trace", "pid": p.pid, "nspid": p.pid}]}))
whole, part, doubtful = follows("with it", decode("--calls"), said)
answer = json.loads(decode("--json", "--stats", "-o", work / "x.pftrace"))
note(f"{answer['stats'].get('goroutines_told')} {answer['losses']}")
expect(not doubtful, f"with it none is: {doubtful}")
expect("goroutines_contradicted" not in answer["losses"], "and the calls and the trace agree")
