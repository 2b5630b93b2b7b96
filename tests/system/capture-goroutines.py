#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Samples and waits of a Go program that knows nothing of tracerd say which goroutine the thread runs: the one whose function is in the
stack, which the program says itself; in ordinary and stripped builds, position independent ones and those with C in them, by stacks of
all kinds. A version that is not known is refused, and said to be."""
from lib.goids import *

seen = collections.Counter()
ALWAYS = ("spin0", "spin1", "spin2", "locked", "allocates", "sleeps", "pings", "pongs", "short")


def look(c, what, program, **kw):
    d, meta, recs, text, s, said = record(c, program, **kw)
    expect(not d["refused"] and re.match(r"1\.\d+$", d["version"]), f"{what}: it is known: {d}")
    counts, kinds = check(what, recs, said)
    seen.update(counts)
    expect(sum(counts[name] > 0 for name in ALWAYS) > len(ALWAYS) // 2, f"{what}: of many functions: {dict(counts)}")
    expect(kinds[0] > 20 and kinds[OUT] + kinds[IN] > 20, f"{what}: in samples and in waits: {dict(kinds)}")
    expect(meta["decoder"]["stats"]["in_goroutine"] > sum(counts.values()), f"{what}: drawn: {meta['decoder']['stats']['in_goroutine']}")
    return d, counts, s, said, text


need_root("BPF")
with Tracerd() as d:
    c = d.client()
    need_unwinding(c)
    plain = build_program("plain", "goids")
    _, _, s, said, text = look(c, "an ordinary build", plain)
    slept = [int(n) for n in re.findall(r"\tE\tgoroutine=(\d+)\tsystem call=\"nanosleep\"", text)]
    expect(slept and set(slept) <= said.ids["sleeps"], f"a wait says whose it is: {len(slept)} times")
    (tracks,) = [re.findall(r"^K\t(\d+)\t\d+\t\"goroutines, as sampled\"", text, re.M)]
    runs = re.findall(rf"\t(?:{'|'.join(tracks)})\tB\t\"G(\d+)( [^\"]+)?\"", text)
    all_said = set.union(*said.ids.values())
    ours = [(int(n), f) for n, f in runs if int(n) in all_said]
    expect(len(ours) > 50 and len(tracks) > 2, f"{len(ours)} times a thread is seen in a goroutine, on tracks of {len(tracks)} threads")
    named = [f for n, f in ours if f]
    expect(len(named) > len(ours) // 2 and set(named) <= {" main.start.func1", " main.spawns.func1"}, f"with the functions that they began with: {collections.Counter(named)}")
    waits = [w for w in s["summary"]["waits"] if "main.sleeps" in w["stack"] and "goroutine" in w]
    expect(all(w["goroutine"] in said.ids["sleeps"] for w in waits), f"and the summary does: {waits[:1]}")
    look(c, "stacks unwound in the kernel", plain, stacks="bpf")
    look(c, "a position independent, stripped build", build_program("pie", "goids", flags=["-buildmode=pie", "-ldflags=-s -w"]), stacks="fp")
    program = build_program("cgo", "goids", cgo=True)
    if program:
        look(c, "a build with C", program, stacks="fp")
        look(c, "a stripped build with C", build_program("stripped", "goids", cgo=True, flags=["-ldflags=-s -w"]), stacks="fp")
        expect(seen["called"] and seen["calls"], f"also a thread of C's, when it calls Go, and C that Go calls: {dict(seen)}")
    expect(all(seen[name] for name in ALWAYS), f"all functions are seen: {dict(seen)}")

    # ---- a version of which nobody knows anything
    image = bytearray(plain.read_bytes())
    at = image.index(b"\xff Go buildinf:") + 33
    image[at:at + 6] = b"go1.99"
    unknown = tmp() / "unknown"
    unknown.write_bytes(image)
    unknown.chmod(0o755)
    how, meta, recs, *_ = record(c, unknown)
    expect(how["version"] == "1.99" and how["refused"] == "this version is not known", f"it is refused: {how}")
    time.sleep(1)
    expect(not any(x.goroutine for x in shown(recs)) and not how["found"], "and nothing is said of its goroutines")
    expect("in_goroutine" not in meta["decoder"]["stats"], "nor drawn")
