# SPDX-License-Identifier: Apache-2.0
"""What guest/hit.sh left: the snapshot of a trigger on a place in the code has the calls that led there, and the place; on a kernel that can pause
the trace nothing after it. A later snapshot has what the thread did when its trace went on, and says what is missing in between."""
import json
import re
import shutil

from truth import run

STEPS = ["first_step", "second_step", "third_step", "the_place"]


def calls_of(text):
    """Where calls begin: one that was interrupted ends on a line of its own."""
    return re.findall(r"(?<!} )\b(\w+_step|the_place|goes_on|later|later_leaf)\b", text)


def check_later(build, share, own, pauses, ok, fail):
    """The next snapshot, of what the thread did after the hit."""
    folder = share / "hit-later"
    gaps = [g for g in json.loads((folder / "meta.json").read_text())["gaps"] if "blind_tid" in g]
    text = run([build / "tracectl", "decode", "--symfs", own, "--calls", folder])
    found = calls_of(text)
    if not {"later", "later_leaf"} <= set(found):
        fail(f"hit: the trace did not go on after it: {found}: {text[-3000:]}")
    if len(gaps) != pauses or text.count("-- not traced: paused by a trigger") != pauses:
        fail(f"hit: what was not traced: {gaps}: {text[-3000:]}")
    if pauses:
        before, after = text.split("-- not traced: paused by a trigger")
        if calls_of(before)[-1] != "the_place" or "goes_on" in found or "later" not in after:
            fail(f"hit: before and after the gap: {text[-3000:]}")
        ok(f"hit: the thread was not traced for {(gaps[0]['to_ns'] - gaps[0]['from_ns']) / 1e6:.0f} ms after it, the next snapshot says so, and then "
           "goes on")


def check_threads(build, share, own, pauses, ok, fail):
    """Thread 0 has its trace from the first one, before there was a trigger, and they exchange it; thread 1 came after the trigger."""
    for who, threads, pausing in ((1, 2, 1), (0, 3, 1)):
        folder = share / f"threads-{who}"
        cause = json.loads((folder / "meta.json").read_text())["snapshot"]["cause"]
        coverage = json.loads((share / f"threads-{who}.list").read_text())["triggers"][-1]["coverage"]
        if coverage["threads"] != threads or coverage["pausing"] != (pausing if pauses else 0) or not coverage["not_paused"]:
            fail(f"threads: who is watched for thread {who}: {coverage}")
        if cause["kind"] != "hit" or cause["paused"] and not pauses:
            fail(f"threads: thread {who}: {cause}")
        text = run([build / "tracectl", "decode", "--symfs", own, "--calls", folder])
        found = calls_of("".join(p for p in re.split(r"^thread \d+/", text, flags=re.M) if p.startswith(f"{cause['tid']} ")))
        if "the_place" not in found or (cause["paused"] and "goes_on" in found):
            fail(f"threads: thread {who}: {found}: {text}")
        if pauses:
            ok(f"hit: thread {who} of {threads}, of which one has a trace that can be paused: it was {'' if cause['paused'] else 'not '}paused, and it says so")


def check_place(build, share, own, pauses, ok, fail):
    """`own`: an empty folder. `pauses`: the trace ends with the hit."""
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
    found = calls_of(text)
    if found[: len(STEPS)] != STEPS:
        fail(f"hit: the calls are {found}, not {STEPS}: {text}")
    trigger = json.loads((share / "hit.list").read_text())["triggers"][0]
    if trigger["hits"] != 1 or trigger["snapshots"] != 1:
        fail(f"hit: {trigger}")
    if (share / "hit.events").read_text().strip() != "0":
        fail("hit: an event is left after disarming")
    coverage = trigger["coverage"]
    if cause["paused"] != pauses or (coverage["pausing"] == 1) != pauses or bool(coverage["not_paused"]) == pauses:
        fail(f"hit: paused: {cause}, {coverage}, {(share / 'hit.words').read_text()}")
    words = (share / "hit.words").read_text().splitlines()[-1]
    said = "a hit ends the trace of its thread at the very instruction" if pauses else "cannot pause Intel PT"
    if not words.startswith("g1 watches 1 thread of 1 process") or said not in words:
        fail(f"hit: trigger list says: {words}")
    if pauses and found[len(STEPS) :]:
        fail(f"hit: the trace goes on after it: {found}: {text}")
    check_threads(build, share, own, pauses, ok, fail)
    check_later(build, share, own, pauses, ok, fail)
    after = ", and what it did after it" if "goes_on" in found else ""
    ok(f"hit: the calls before the place are in the trace, in order, and the place is{after}; frozen {cause['late_ns'] / 1000:.0f} us "
       "after the hit")
