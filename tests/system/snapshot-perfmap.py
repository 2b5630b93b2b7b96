#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 60
"""The names of a JIT's functions are in the bundle: it decodes alike when process and map are gone. What lies at the path of a
map and is none is not in the bundle. The JIT is made by hand: a page of machine code that jumps to itself."""
import platform

from lib.snapshot import *

if platform.machine() != "x86_64":
    skip("the machine code is x86-64")
JIT = """
import ctypes, mmap, sys
page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
page.write(b"\\xeb\\xfe")
at = ctypes.addressof(ctypes.c_char.from_buffer(page))
print(f"{at:x}", flush=True)
sys.stdin.readline()
ctypes.CFUNCTYPE(None)(at)()
"""

SECRET = "a marked secret"


def snapshot_of(more):
    """The files of a bundle, the map, and the name that it has in the bundle."""
    target = spawn(sys.executable, "-c", JIT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    name = f"tmp/perf-{target.pid}.map"
    try:
        # By us: the program's own memory, of which samples take copies, knows no secret.
        pathlib.Path(f"/{name}").write_text(f"{target.stdout.readline().strip()} 10 made_by_hand\n{more}")
        target.stdin.write("go\n")
        target.stdin.flush()
        t = c.arm(target.pid)["id"]
        let_work(target.pid)
        s = c.snapshot(t, with_objects=bool(more))
        expect(s["state"] == "done", f"done: {s['error']}")
        return c.fetch(s["id"]), pathlib.Path(f"/{name}").read_bytes(), name
    finally:
        target.kill()
        target.wait()
        pathlib.Path(f"/{name}").unlink(missing_ok=True)


need_root()
d = Tracerd().start()
c = d.client()
files, text, name = snapshot_of("")
expect(files.get(f"images/{name}") == text, f"the map is among {sorted(files)}")
expect(not any("libc.so" in f for f in files), "libraries are not, unless they are asked for")
# One entry more than nothing does not make a crontab a map.
strange, text, name = snapshot_of(f"30 4 * * * backup --password='{SECRET}'\n")
expect(SECRET in text.decode() and f"images/{name}" not in strange, f"what is no map is not among {sorted(strange)}")
expect(not any(SECRET.encode() in data for data in strange.values()), "nor is what is in it anywhere else")
d.stop()
bundle = tmp() / "bundle"
for name, data in files.items():
    (bundle / name).parent.mkdir(parents=True, exist_ok=True)
    (bundle / name).write_bytes(data)
r = d.tracectl("decode", bundle, "--summary", "--json")
expect(r.returncode == 0 and "made_by_hand" in r.stdout, f"the name is there later: {r.stderr}")
