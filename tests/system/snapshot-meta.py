#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 120
"""meta.json is as common/bundle/meta.schema.json says: of a snapshot that went well, of one whose decoder failed, of one with
objects; times and clocks agree with each other."""
import re

from lib.ring import REGION, REQUEST, Rings, stamp
from lib.snapshot import *

need_root()
SCHEMA = json.loads((SRC / "common/bundle/meta.schema.json").read_text())
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def check(value, schema, where):
    """As much of JSON Schema as ours uses; a keyword that is not known here fails."""
    for key, want in schema.items():
        if key in ("description", "title", "$schema"):
            continue
        if key == "type":
            names = want if isinstance(want, list) else [want]
            if not any(is_type(value, n) for n in names):
                fail(f"{where}: {value!r} is no {want}")
            if value is None:
                return
        elif key == "const":
            if value != want:
                fail(f"{where}: {value!r} instead of {want!r}")
        elif key == "enum":
            if value not in want:
                fail(f"{where}: {value!r} is none of {want}")
        elif key == "pattern":
            if not re.search(want, value):
                fail(f"{where}: {value!r} does not match {want}")
        elif key == "minimum":
            if value < want:
                fail(f"{where}: {value} < {want}")
        elif key == "maxItems":
            if len(value) > want:
                fail(f"{where}: {len(value)} items")
        elif key == "required":
            missing = [k for k in want if k not in value]
            if missing:
                fail(f"{where}: without {missing}")
        elif key == "properties":
            for k, sub in want.items():
                if k in value:
                    check(value[k], sub, f"{where}.{k}")
        elif key == "additionalProperties":
            for k, v in value.items():
                if k not in schema.get("properties", {}):
                    check(v, want, f"{where}.{k}")
        elif key == "items":
            for i, v in enumerate(value):
                check(v, want, f"{where}[{i}]")
        else:
            fail(f"{where}: the schema's {key!r} is not known to this test")


d = Wrapped().start()
target = service()
c = d.client()
t = c.arm(target.pid)["id"]
let_work(target.pid)
for what, behaviour, params, state in (
        ("done", "real", {"reason": "naïve \u202e reversed"}, "done"),
        ("failed", "kill -SEGV $$", {}, "failed"),
        ("with objects", "real", {"with_objects": True}, "done")):
    d.behave(behaviour)
    s = c.snapshot(t, **params)
    if s["state"] != state:
        fail(f"{what}: {s['state']} {s['error']}")
    meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
    check(meta, SCHEMA, "meta")
    for key in ("id", "target", "pid", "comm", "uid", "state", "cause", "created_at", "frozen_at", "published_at", "error"):
        if meta["snapshot"][key] != s[key]:
            fail(f"{what}: {key} is {meta['snapshot'][key]!r}, the daemon says {s[key]!r}")
    if not meta["snapshot"]["created_at"] - 1000000 <= meta["snapshot"]["frozen_at"] <= meta["snapshot"]["published_at"]:
        fail(f"{what}: times {meta['snapshot']}")
    b = meta["clocks"]["brackets"]
    if not b or any(x["raw"] >= y["raw"] or x["monotonic"] >= y["monotonic"] for x, y in zip(b, b[1:])):
        fail(f"{what}: brackets")
    if not b[0]["raw"] <= meta["records"]["last_ns"]:
        fail(f"{what}: no bracket before the last record")
    ok(f"meta.json of a snapshot: {what}")
d.behave("real")
rings = Rings()
with d.client() as producer:
    control = rings.register(producer)
    c.call("trigger.add", {"target": control.target["id"], "region": "serve", "over_ns": 1000000})
    at = stamp()
    rings.cause(REGION, "serve", at - 2000000, at, trigger=control.find("serve").id)
    rings.cause(REQUEST, "asks", at, at)
    for kind in ("region", "program"):
        s = wait_for(f"a snapshot by the {kind}", lambda: next((s for s in c.call("snapshot.list")["snapshots"] if s[
            "cause"]["kind"] == kind and s["state"] == "done"), None))
        meta = json.loads(c.fetch(s["id"], "meta.json")["meta.json"])
        check(meta, SCHEMA, "meta")
        if meta["snapshot"]["cause"] != s["cause"] or meta["snapshot"]["frozen_raw_ns"] != s["frozen_raw_ns"]:
            fail(f"{kind}: {meta['snapshot']}")
        ok(f"meta.json of a snapshot by the {kind}")
reason = meta and json.loads(c.fetch(c.call("snapshot.list", {"limit": 5})["snapshots"][-1]["id"], "meta.json")["meta.json"])
expect("\u202e" not in json.dumps(reason, ensure_ascii=False), "a client's words are harmless in it")
