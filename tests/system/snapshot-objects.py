#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""A bundle with objects decodes where the program is no more: the target's file is replaced and removed, its images are in the
bundle, in a tree that perf --symfs reads."""
import os
import shutil

from lib.snapshot import *

need_root()
d = Tracerd().start()
program = tmp() / "program"
shutil.copy(SLOWLOCK, program)
target = spawn(program, "--every", "300", stdout=subprocess.DEVNULL)
c = d.client()
t = c.arm(target.pid)["id"]
let_work(target.pid)
# an upgrade under the running program: another file at its path
other = tmp() / "program.new"
shutil.copy("/bin/true", other)
os.rename(other, program)
s = c.snapshot(t, with_objects=True)
expect(s["state"] == "done", f"done: {s['error']}")
files = c.fetch(s["id"])
meta = json.loads(files["meta.json"])
copies = {o["path"]: o["file"] for o in meta["objects"]}
expect(any(p.startswith(str(program)) for p in copies), f"the program's own image is among {sorted(copies)}")
expect(any("libc.so" in p for p in copies), "and the C library")
image = next(f for p, f in copies.items() if p.startswith(str(program)))
expect(files[f"images/{image}"] == SLOWLOCK.read_bytes(), "it is the image that ran, not what is there now")
target.kill()
target.wait()
program.unlink()
d.stop()
bundle = tmp() / "bundle"
for name, data in files.items():
    (bundle / name).parent.mkdir(parents=True, exist_ok=True)
    (bundle / name).write_bytes(data)
(bundle / "trace.pftrace").unlink()
r = d.tracectl("decode", bundle, "--summary", "--json")
expect(r.returncode == 0, f"tracectl decode {r.stderr}")
expect("sort_entries" in r.stdout or "render_reply" in r.stdout, "its functions have names")
if working_perf():
    p = subprocess.run(["perf", "script", "-i", bundle / "perf.data", "--symfs", bundle / "images", "-F", "comm,ip,sym"],
                       capture_output=True, text=True, errors="replace")
    expect(p.returncode == 0 and ("sort_entries" in p.stdout or "render_reply" in p.stdout), "perf --symfs finds them too")
