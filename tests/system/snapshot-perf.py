#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 180
"""Stock perf reads a bundle's perf.data: `perf script -i` exits 0 without a word on stderr, and finds as many
samples, comms and maps as meta.json says; its clock is MONOTONIC_RAW. Both kinds of stacks, with and without waits.
`perf buildid-list -i` has the build id of every file that the process has mapped to be executed, as readelf reads it."""
from lib.snapshot import *

need_root()
need_command("perf", "linux-perf")
d = Tracerd().start()
target = service()
c = d.client()


def perf(*args):
    p = subprocess.run(["perf", *map(str, args)], capture_output=True, text=True, errors="replace")
    return p.returncode, p.stdout, p.stderr


def build_id(path):
    p = subprocess.run(["readelf", "-n", path], capture_output=True, text=True)
    return next((line.split()[-1] for line in p.stdout.splitlines() if "Build ID:" in line), None)


def mapped(pid):
    """{path: build id} of the files that are mapped executable and have one."""
    lines = [line.split(maxsplit=5) for line in pathlib.Path(f"/proc/{pid}/maps").read_text().splitlines()]
    paths = {f[5] for f in lines if len(f) == 6 and "x" in f[1] and f[5].startswith("/")}
    return {p: i for p in paths if (i := build_id(p))}


need_command("readelf", "binutils")
let_work(target.pid)  # it has mapped all that it will
want_ids = mapped(target.pid)
if not any("libc.so" in p for p in want_ids):
    fail(f"readelf finds no build id of the C library: {want_ids}")

for stacks in ("fp", "dwarf"):
    for waits in (True, False):
        name = f"stacks {stacks}, waits {'on' if waits else 'off'}"
        t = c.arm(target.pid, stacks=stacks, waits=waits)["id"]
        let_work(target.pid)
        s = c.snapshot(t)
        if s["state"] != "done":
            fail(f"{name}: {s['state']} {s['error']}")
        files = c.fetch(s["id"], "perf.data", "meta.json")
        c.call("target.disarm", {"target": t})
        path = tmp() / "perf.data"
        path.write_bytes(files["perf.data"])
        counts = json.loads(files["meta.json"])["perf_data"]
        rc, out, err = perf("script", "-i", path)
        if rc != 0 or err:
            fail(f"{name}: perf script: exit {rc}, stderr {err!r}")
        rc, out, err = perf("script", "-i", path, "-F", "tid,event")
        samples = len(out.splitlines())
        rc, out, err = perf("script", "-i", path, "-F", "tid,event", "--show-mmap-events", "--show-task-events")
        maps = sum("PERF_RECORD_MMAP" in line for line in out.splitlines())
        comms = sum("PERF_RECORD_COMM" in line for line in out.splitlines())
        found = {"samples": samples, "maps": maps, "comms": comms}
        if samples == 0 or any(found[k] != counts[k] for k in found):
            fail(f"{name}: perf finds {found}, meta.json says {counts}")
        rc, out, err = perf("script", "-i", path, "--header-only")
        if "clockid: monotonic_raw" not in out or "cmdline : tracerd" not in out:
            fail(f"{name}: header {out}")
        rc, out, err = perf("script", "-i", path, "-F", "comm,ip,sym")
        if "sort_entries" not in out and "render_reply" not in out:
            fail(f"{name}: perf finds none of the program's functions")
        rc, out, err = perf("report", "-i", path, "--stdio")
        if rc != 0:
            fail(f"{name}: perf report: exit {rc}, {err}")
        rc, out, err = perf("buildid-list", "-i", path)
        ids = {p: i for i, p in (line.split(maxsplit=1) for line in out.splitlines())}
        wrong = {p: (i, ids.get(p)) for p, i in want_ids.items() if ids.get(p) != i}
        if rc != 0 or wrong:
            fail(f"{name}: perf buildid-list, exit {rc}: {wrong} {err}")
        if not len(want_ids) <= counts["build_ids"] <= len(ids) or counts["bytes"] != len(files["perf.data"]):
            fail(f"{name}: meta.json counts {counts}, perf has {len(ids)} ids and the file {len(files['perf.data'])} bytes")
        ok(f"{name}: {found}")
