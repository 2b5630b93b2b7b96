# SPDX-License-Identifier: Apache-2.0
"""What guest/samples.sh left: the sampling back end on a kernel that is not this machine's. Its programs are loaded, also those that unwind
stacks; and what it has recorded of threads that exit is whole: some kernels write more of these than they say."""
import json
import re
import subprocess


def check_samples(build, share, own, ok, fail):
    log = (share / "samples.log").read_text()
    if "not unwound in the kernel" in log or "no task iterator" in log:
        fail(f"the kernel refuses a program: {log}")
    for how in ("dwarf", "bpf"):
        folder = share / f"samples-{how}"
        meta = json.loads((folder / "meta.json").read_text())
        records, losses = meta["records"], meta["losses"]
        if losses["malformed"] or losses["lost"]:
            fail(f"{how}: {losses}")
        if meta["events"]["stacks"] != how or records["switches"] < 200 or records["wakeups"] < 50 or records["samples"] < 20:
            fail(f"{how}: {meta['events']} {records}")
        p = subprocess.run([build / "tracectl", "decode", "--symfs", own, "--format", "text", "-o", "-", folder], capture_output=True, text=True)
        names = re.findall(r'\tB\t"([^"]*)"', p.stdout)
        nested = sum(names[i:i + 3] == ["outermost", "middle", "innermost"] for i in range(len(names)))
        if nested < 30:
            fail(f"{how}: {nested} stacks of {len(names)} slices: {p.stderr}")
        ok(f"samples, stacks {how}: {records['switches']} switches and {records['samples']} samples are whole, {nested} times with all callers")
    show = (share / "samples-bpf.show").read_text()
    unwound = re.search(r"unwound +(\d+) stacks in the kernel", show)
    if not unwound or int(unwound[1]) < 50:
        fail(f"no stacks are unwound in the kernel: {show}")
    ok(f"{unwound[1]} stacks were unwound in the kernel")
