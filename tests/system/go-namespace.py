#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 200
# slow
"""A Go program in a pid namespace: its trace has the numbers that its threads have there, and the timeline those of this machine."""
from lib.golang import *

need_root("a pid namespace")
build_shell()


class Inside(GoShell):
    def __init__(self, d):
        shell = tmp() / "goshell"
        self.process = spawn("unshare", "--pid", "--fork", "--kill-child", shell, env={**os.environ, "TRACERD_SOCKET": str(d.sock)},
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()
        self.pid = int(pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()[0])


if subprocess.run(["unshare", "--pid", "--fork", "true"], capture_output=True).returncode:
    skip("no pid namespace can be made here")
with Tracerd() as d, d.client() as c:
    p = Inside(d)
    p.tell("start")
    target = p.connected()
    p.tell("work inside")
    s = c.snapshot(target)
    meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
    (g,) = meta["go"]
    inner = {i: t for t, i in g["threads"]}
    expect(g["nspid"] != g["pid"] == p.pid and inner.get(g["nspid"]) == p.pid, f"the numbers of its {len(inner)} threads are written down")
    there = {int(t.name) for t in pathlib.Path(f"/proc/{p.pid}/task").iterdir()}
    bundle = tmp() / "bundle"
    bundle.mkdir()
    for name, data in c.fetch(s["id"]).items():
        (bundle / name).parent.mkdir(exist_ok=True)
        (bundle / name).write_bytes(data)
    text = subprocess.run([BUILD / "tracectl", "decode", "--format", "text", "-o", "-", bundle], capture_output=True, text=True, timeout=PATIENCE,
                          env={**os.environ, "TRACERD_DECODE": str(BUILD / "tracerd-decode")}).stdout
    tids = {int(m) for m in re.findall(r"\ttid=(\d+)", "\n".join(line for line in text.splitlines() if '\t"running"\t' in line))}
    expect(tids and tids <= there, f"goroutines run on its threads as this machine numbers them: {tids} of {there}")
