# SPDX-License-Identifier: Apache-2.0
"""What guest/hit.sh left: the snapshot of a trigger on a place in the code has the calls that led there, and the place."""
import json
import re
import shutil

from truth import run

STEPS = ["first_step", "second_step", "third_step", "the_place"]


def check_place(build, share, own, ok, fail):
    """`own`: an empty folder."""
    for path in ("usr/lib/x86_64-linux-gnu/libc.so.6", "usr/lib64/ld-linux-x86-64.so.2"):
        (own / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(f"/{path}", own / path)
    (own / "rig").mkdir()
    shutil.copy(share / "rig/hit", own / "rig/hit")
    folder = share / "hit"
    if not folder.is_dir():
        fail(f"no snapshot was taken: {(share / 'hit.log').read_text()}")
    cause = json.loads((folder / "meta.json").read_text())["snapshot"]["cause"]
    if cause["kind"] != "hit" or cause["hit"] != "the_place" or not cause["late_ns"]:
        fail(f"hit: the cause is {cause}")
    text = run([build / "tracectl", "decode", "--symfs", own, "--calls", folder])
    # where calls begin: one that was interrupted ends on a line of its own
    found = re.findall(r"(?<!} )\b(\w+_step|the_place|goes_on)\b", text)
    if found[: len(STEPS)] != STEPS:
        fail(f"hit: the calls are {found}, not {STEPS}: {text}")
    trigger = json.loads((share / "hit.list").read_text())["triggers"][0]
    if trigger["hits"] != 1 or trigger["snapshots"] != 1:
        fail(f"hit: {trigger}")
    if (share / "hit.events").read_text().strip() != "0":
        fail("hit: an event is left after disarming")
    after = ", and what it did after it" if "goes_on" in found else ""
    ok(f"hit: the calls before the place are in the trace, in order, and the place is{after}; frozen {cause['late_ns'] / 1000:.0f} us "
       "after the hit")
