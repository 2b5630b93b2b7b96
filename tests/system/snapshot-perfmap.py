#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 60
"""The names of a JIT's functions are in the bundle: it decodes alike when process and map are gone. The JIT is made by hand: a
page of machine code that jumps to itself."""
import platform

from snapshot_lib import *

if platform.machine() != "x86_64":
    skip("the machine code is x86-64")
JIT = """
import ctypes, mmap, os
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xeb\\xfe")
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
with open(f"/tmp/perf-{os.getpid()}.map", "w") as f:
    f.write(f"{at:x} 10 made_by_hand\\n")
print("ready", flush=True)
ctypes.CFUNCTYPE(None)(at)()
"""

need_root()
d = Tracerd().start()
target = spawn(sys.executable, "-c", JIT, stdout=subprocess.PIPE)
expect(target.stdout.readline() == b"ready\n", "the JIT runs")
names = f"tmp/perf-{target.pid}.map"
try:
    c = d.client()
    t = c.arm(target.pid)["id"]
    time.sleep(1)
    s = c.snapshot(t)
    expect(s["state"] == "done", f"done: {s['error']}")
    files = c.fetch(s["id"])
    text = pathlib.Path(f"/{names}").read_bytes()
finally:
    target.kill()
    target.wait()
    pathlib.Path(f"/{names}").unlink(missing_ok=True)
expect(files.get(f"images/{names}") == text, f"the map is among {sorted(files)}")
expect(not any("libc.so" in f for f in files), "libraries are not, unless they are asked for")
d.stop()
bundle = tmp() / "bundle"
for name, data in files.items():
    (bundle / name).parent.mkdir(parents=True, exist_ok=True)
    (bundle / name).write_bytes(data)
r = d.tracectl("decode", bundle, "--summary", "--json")
expect(r.returncode == 0 and "made_by_hand" in r.stdout, f"the name is there later: {r.stderr}")
