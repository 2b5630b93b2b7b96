#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""Events of a real program (tests/programs/eventscene.c) from its rings to the trace: a slow region takes the
snapshot, the summary says how its thread spent that time, the text form and Perfetto's own engine show every kind
of event with what the program knows of it.

TRACERD_TP is the command of the trace processor: COMMAND TRACE SQL... prints each result as a table. Where it is not
set, ../shared/tools/tp-query beside the source tree is taken; else that part is left out."""

from lib import *
from lib.tp import TROUBLE, Engine

SCENE = BUILD / "tests" / "programs" / "eventscene"
MS = 1000000
# The clocks are brought together by readings that take time themselves.
SLACK = 100000


class Scene:
    """The program, and after play() what it knows of its regions: {name: (tid, [four times])}"""

    def __init__(self, d):
        if not os.access(SCENE, os.X_OK):
            skip("tests/programs/eventscene is not built")
        self.process = spawn(SCENE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env={**os.environ, "TRACERD_SOCKET": str(d.sock)})
        self.pid = self.process.pid
        if self.line() != "ready":
            fail("the program was not taken in by the daemon")

    def line(self):
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            fail("the program does not answer")
        return self.process.stdout.readline().strip()

    def play(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.regions = {}
        # The pipe may hold several lines; they all come before the last one.
        while (line := self.process.stdout.readline().strip()) != "done":
            name, tid, *times = line.split()
            self.regions[name] = (int(tid), [int(t) for t in times])
        return self.regions

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)


def helper_slept(pid):
    """How often the library's thread has gone to sleep again."""
    text = pathlib.Path(f"/proc/{pid}/task/{thread_named(pid, 'tracerd')}/status").read_text()
    return int(text.partition("\nvoluntary_ctxt_switches:")[2].split()[0])


def ended(c, sid):
    def look():
        s = c.call("snapshot.show", {"snapshot": sid})["snapshot"]
        return s if s["state"] in ("done", "failed", "cancelled") else None
    s = wait_for(f"the end of snapshot {sid}", look)
    if s["state"] != "done":
        fail(f"the snapshot is {s['state']}: {s['error']}")
    return s


def fits(what, regions, name, ts, dur):
    """The trace's times are what the program measured around the calls."""
    t = regions[name][1]
    if not (t[0] - SLACK <= ts <= t[1] + SLACK and t[2] - t[1] - SLACK <= dur <= t[3] - t[0] + SLACK):
        fail(f"{what}: {name} at {ts} for {dur}, the program says {t}")


# ---- the summary

def summary(s, regions, has_stacks):
    summary = s["summary"]
    by_name = {r["name"]: r for r in summary["regions"]}
    expect(set(by_name) == {"serve", "parse", "hold", "answer", "coroutine"}, "the regions that ended are summed up by name")
    slowest = {r["name"]: r for r in summary["slowest_regions"]}
    for name in ("serve", "parse", "hold", "answer"):
        r = slowest[name]
        fits("the summary", regions, name, r["begin_ns"], r["ns"])
        if r["tid"] != regions[name][0] or by_name[name]["count"] != 1 or by_name[name]["max_ns"] != r["ns"]:
            fail(f"the summary says of {name}: {r} {by_name[name]}")
    expect(slowest["serve"]["thread"] == "scene main" and slowest["hold"]["thread"] == "scene worker",
           "and the slowest one by one, on threads by the names that the program gave them")
    expect(slowest["coroutine"]["fiber"] == "parser", "and on fibers")
    expect(by_name["serve"]["self_ns"] == by_name["serve"]["total_ns"] - by_name["parse"]["total_ns"],
           "what a region spent in others is not its own")
    focus = s["summary"]["focus"]["region"]
    fits("the focus", regions, "serve", focus["begin_ns"], focus["ns"])
    expect(focus["name"] == "serve" and focus["tid"] == regions["serve"][0] and focus["over_ns"] == 20 * MS,
           "the summary's focus is the slow region")
    expect(any(m["name"].startswith("trigger: serve took ") and m["name"].endswith(f"(over 20 ms) in thread {focus['tid']}")
               for m in summary["marks"]), "which is marked in a sentence")
    if not has_stacks:
        return
    expect(focus["thread"] == "scene main" and focus["off_cpu_ns"] > focus["on_cpu_ns"], "it was off the CPU most of the time")
    longest = focus["waits"][0]
    waker = longest["woken_by"]
    expect("wait_for_the_lock" in longest["stack"] and waker["name"] == "scene worker", "in the lock, until the worker let go")
    held = slowest["hold"]
    expect(0 < held["on_cpu_ns"] and held["on_cpu_ns"] + held["off_cpu_ns"] <= held["ns"], "which worked in its own region")


def report(d, sid):
    p = d.tracectl("show", sid)
    text = p.stdout
    expect("the slow region: serve took " in text and "regions of the program" in text and "slowest regions" in text,
           "tracectl says so in words")


# ---- the text form

def text_form(directory):
    p = subprocess.run([BUILD / "tracectl", "decode", directory, "--format", "text", "-o", "-"], capture_output=True,
                       timeout=PATIENCE, env={**os.environ, "LC_ALL": "C"})
    if p.returncode:
        fail(f"tracectl decode: {p.stderr.decode()}")
    return p.stdout.decode()


# ---- the real trace processor

def args_of(name, category):
    return ("select replace(a.key, 'debug.', ''), a.display_value, a.value_type from slice s join args a using (arg_set_id)"
            f" where s.name = '{name}' and s.category = '{category}'", 3)


QUERIES = {  # SQL, number of fields
    "trouble": (TROUBLE, 1),
    "regions": ("select s.name, s.ts, s.dur, t.tid, t.name from slice s join thread_track tt on s.track_id = tt.id"
                " join thread t using (utid) where s.category = 'region'", 5),
    "parse's parent": ("select p.name from slice s join slice p on p.id = s.parent_id where s.name = 'parse'", 1),
    "arguments": args_of("serve", "region"),
    "open's arguments": args_of("left open", "region"),
    "logs": ("select s.name, (select display_value from args a where a.arg_set_id = s.arg_set_id and key = 'debug.level'), p.name"
             " from slice s left join slice p on p.id = s.parent_id where s.category = 'log'", 3),
    "tick's parent": ("select p.name from slice s join slice p on p.id = s.parent_id where s.category = 'instant'"
                      " and s.name = 'tick\\x1b[31m'", 1),
    "tasks": ("select s.name, s.dur from slice s join process_track t on s.track_id = t.id"
              " where s.category = 'task' and s.name not like 'begins %'", 2),
    "flows": ("select coalesce(op.name, o.name), coalesce(ip.name, i.name) from flow"
              " join slice o on o.id = slice_out join slice i on i.id = slice_in"
              " left join slice op on op.id = o.parent_id left join slice ip on ip.id = i.parent_id"
              " where o.category in ('task', 'flow')", 2),
    "counters": ("select t.name, c.value from counter c join process_counter_track t on t.id = c.track_id", 2),
    "fibers": ("select t.name, s.name from slice s join process_track t on t.id = s.track_id where s.category = 'region'", 2),
    "runs of fibers": ("select t.name, s.name from slice s join thread_track tt on tt.id = s.track_id join thread t using (utid)"
                       " where s.category = 'fiber' order by s.ts", 2),
    "marks": ("select s.name, s.ts, s.dur from slice s join track t on t.id = s.track_id where t.name = 'tracerd: trigger'"
              " order by s.ts", 3),
    "over": ("select count(*) from slice where category = 'trigger' and name = 'over its threshold: serve'", 1),
    "worked": ("select count(*) from slice s join thread_track tt on tt.id = s.track_id join slice r on r.name = 'hold'"
               " and r.category = 'region' join thread_track rt on rt.id = r.track_id where s.name glob 'work_hard*'"
               " and tt.utid = rt.utid and s.ts < r.ts + r.dur and s.ts + s.dur > r.ts", 1),
    "waited": ("select count(*) from slice s join thread_track tt on tt.id = s.track_id join slice r on r.name = 'serve'"
               " and r.category = 'region' join thread_track rt on rt.id = r.track_id where s.category = 'wait'"
               " and s.name = 'off CPU: sleeping' and tt.utid = rt.utid and s.ts >= r.ts and s.ts + s.dur <= r.ts + r.dur"
               f" and s.dur > {10 * MS}", 1),
}


def in_the_engine(e, regions, has_stacks):
    got = dict(zip(QUERIES, e.ask(*QUERIES.values())))
    expect(got["trouble"] == [["NULL"]], "the trace is imported without a complaint")
    found = {r[0]: r for r in got["regions"]}
    for name in ("serve", "parse", "hold", "answer"):
        _, ts, dur, tid, thread = found[name]
        fits("the trace", regions, name, int(ts), int(dur))
        if int(tid) != regions[name][0] or thread != ("scene main" if name in ("serve", "parse") else "scene worker"):
            fail(f"{name} is on {tid} {thread}")
    expect(set(found) == {"serve", "parse", "hold", "answer", "left open"}, "regions are on their threads")
    expect(got["parse's parent"] == [["serve"]], "and nest")

    a = {r[0]: (r[1], r[2]) for r in got["arguments"]}
    want = {"path": ('/index "x"\\xff\\x1b', "string"), "size": (str(2**64 - 1), "uint"), "delta": ("-5", "int"),
            "share": ("0.1", "real"), "at": ("0x7fff1234", "pointer"), "status": ("200", "uint"), "in task": ("request", "string")}
    expect({k: a.get(k) for k in want} == want, "with all their arguments, of begin and end")
    expect({r[0]: r[1] for r in got["open's arguments"]}["note"] == "not over when the recording ended", "what is not over says so")

    logs = {r[0]: r[1:] for r in got["logs"]}
    expect(logs == {"read 12 bytes of /etc/\\xfe, 99.5 %": ["warning", "parse"], "still there": ["debug", "coroutine"]},
           "logs are where they were written")
    expect(got["tick's parent"] == [["parse"]], "and so are moments")

    tasks = dict(got["tasks"])
    serve = regions["serve"][1]
    expect(set(tasks) == {"request", "query"} and int(tasks["request"]) >= serve[2] - serve[1], "tasks are below the process")
    expect({(o, i) for o, i in got["flows"]}
           == {("request", "serve"), ("request", "answer"), ("request", "query"), ("serve", "answer")},
           "flows lead from a task to its parts, and from region to region")
    expect(sorted(got["counters"]) == [["load", "0.75"], ["queue", "-3.0"]], "counters have their values")
    expect(got["fibers"] == [["fiber parser", "coroutine"]], "a fiber has a track with its regions")
    expect(got["runs of fibers"] == [["scene main", "parser"], ["scene worker", "parser"]], "and the threads say when they ran it")

    marks = got["marks"]
    names = [m[0] for m in marks]
    fits("the mark", regions, "serve", int(marks[0][1]), int(marks[0][2]))
    expect(names[0] == "slow: serve" and names[1].startswith("trigger: serve took ") and names[2].startswith("snapshot: region"),
           "the slow region is marked, from its begin to its end")
    expect(got["over"] == [["1"]], "and the thread's track says that it was over its threshold")
    if has_stacks:
        expect(int(got["worked"][0][0]) > 0 and got["waited"] == [["1"]],
               "the stacks and waits of the regions' threads agree with them")


def main():
    with Tracerd() as d:
        c = d.client()
        scene = Scene(d)
        try:
            target = c.arm(scene.pid, stacks="fp")["id"]
            has_stacks = True
        except Error as e:
            note(f"no stacks here: {e}")
            target = wait_for("the target", lambda: next(
                (t["id"] for t in c.call("target.list")["targets"] if t.get("pid") == scene.pid), None))
            has_stacks = False
        before = helper_slept(scene.pid)
        c.call("trigger.add", {"target": target, "region": "serve", "over_ns": 20 * MS, "after_ns": 500 * MS})
        wait_for("the program's helper knows the threshold", lambda: helper_slept(scene.pid) > before)
        regions = scene.play()
        sid = wait_for("the slow region's snapshot", lambda: next(
            (s["id"] for s in c.call("snapshot.list")["snapshots"] if s["cause"]["kind"] == "region"), None))
        s = ended(c, sid)
        scene.end()
        summary(s, regions, has_stacks)
        report(d, sid)
        files = c.fetch(sid)
        bundle = tmp() / "bundle"
        for name, data in files.items():
            path = bundle / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        meta = json.loads(files["meta.json"])
        losses = meta["decoder"]["losses"]
        bad = {k: v for k, v in losses.items() if k.startswith(("events_", "regions_", "ring", "names_", "fields_", "stamps_"))}
        expect(not bad, f"nothing of the events is missing {bad or ''}")

        text = text_form(bundle)
        expect('\t"serve"\t[region]\tpath="/index \\"x\\"\\\\xff\\\\x1b"\tsize=18446744073709551615\tdelta=-5\tshare=0.1'
               '\tat=0x7fff1234\tin task="request"' in text and "\tV\t0.75\n" in text, "the text form has the same")

        # without perf.data the events are there all the same
        (bundle / "perf.data").unlink()
        alone = text_form(bundle)
        expect('"scene main"' in alone and '"serve"\t[region]' in alone and '"work_hard' not in alone,
               "a bundle of nothing but events is a trace, too")

        trace = tmp() / "trace.pftrace"
        trace.write_bytes(files["trace.pftrace"])
        e = Engine(trace)
        if e.works():
            in_the_engine(e, regions, has_stacks)
        else:
            note("no trace processor (TRACERD_TP): its part is left out")


main()
