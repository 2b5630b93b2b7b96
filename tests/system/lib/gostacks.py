# SPDX-License-Identifier: Apache-2.0
"""Stacks of tests/programs/gostacks that were unwound in the kernel, against what the program knows of its callers."""
from lib.goids import *

# From the inside to the function that the goroutine began with.
PATHS = [["leaf", "calls", "leaves"], ["deep", "dives"], ["grow", "grown"], ["grows"], ["asks"], ["transfers", "pipes"], ["sleeps"],
         ["fills", "allocates"], ["vfork", "spawns"], ["rest", "inC"], ["throughC"], ["leaf", "calls", "called", "throughC"]]


class Truth:
    def __init__(self, text):
        self.where = {}
        for line in text.splitlines():
            if m := re.fullmatch(r"(\w+) (0x\w+) (0x\w+)", line):
                self.where[m[1]] = (int(m[2], 16), int(m[3], 16))

    def name(self, address, innermost):
        # What a signal interrupted may be at its begin, to which nobody returns.
        return next((name for name, (a, b) in self.where.items() if address == a or a <= address - (not innermost) < b), None)

    def names(self, chain):
        """The program's own functions, from the inside; what calls itself is there once."""
        own = [name for i, a in enumerate(chain) if (name := self.name(a, i == 0)) and name != "goexit"]
        return [name for i, name in enumerate(own) if i == 0 or own[i - 1] != name]

    def ends(self, chain):
        a, b = self.where["goexit"]
        return a <= chain[-1] < b


def verdict(truth, chain):
    """(function that is innermost of the program's own or None, "whole", "part", "wrong")"""
    own = truth.names(chain)
    if not own:
        return None, "none"
    if truth.ends(chain):
        good = any(own == path[k:] for path in PATHS for k in range(len(path)))
        return own[0], "whole" if good else "wrong"
    good = any(own == path[k:k + len(own)] for path in PATHS for k in range(len(path)))
    return own[0], "part" if good else "wrong"


def unwound_chains(recs):
    """Of samples and switches whose stack was not copied, which has no chain."""
    out = []
    for r in recs:
        if r.type != SAMPLE or r.id not in (CLOCK, SCHED):
            continue
        (n,) = struct.unpack_from("<Q", r.body, 48)
        chain = [a for a in struct.unpack_from(f"<{n}Q", r.body, 56) if a < 1 << 47]
        if chain and len(r.body) < 4096:
            out.append(chain)
    return out


ENDS = ("complete", "cut", "no_table", "no_rule", "no_read", "bad", "other_stack")


def verdicts(truth, recs, seen, wrong):
    for chain in unwound_chains(recs):
        name, is_ = verdict(truth, chain)
        seen[name][is_] += 1
        if is_ == "wrong":
            wrong.append([truth.name(a, i == 0) or hex(a) for i, a in enumerate(chain)])


def record_stacks(c, program, wanted):
    """What its stacks are worth: (by function, those that are wrong, how they ended since it had all tables, meta.json of one snapshot)"""
    said = tmp() / "said"
    seen, wrong = collections.defaultdict(collections.Counter), []
    with open(said, "w") as f:
        p = spawn(program, stdout=f)
    try:
        wait_for("the program", lambda: "ready" in said.read_text())
        truth = Truth(said.read_text())
        t = c.call("target.arm", {"pid": p.pid, "stacks": "bpf", "wait_min_us": 0})["target"]

        def counts():
            u = c.call("target.show", {"target": t["id"]})["target"]["sample"]["unwound"]
            return u if u and u["mappings"] > 1 and not u["mappings_waiting"] else None

        def enough():
            meta, recs, _ = bundle(c, t["id"])
            verdicts(truth, recs, seen, wrong)
            return meta if sum(x["whole"] for x in seen.values()) > 500 and all(seen[name]["whole"] for name in wanted) else None

        first = wait_for("its tables", counts)
        # However often a busy machine lets it run, there it is at last.
        wait_for("some stacks", lambda: sum(counts()[k] - first[k] for k in ENDS) > 2000)
        meta = wait_for(f"stacks of {wanted}", enough, step=0.5)
        now = counts()
        c.call("target.disarm", {"target": t["id"]})
    finally:
        p.kill()
        p.wait()
    return seen, wrong, {k: now[k] - first[k] for k in ENDS}, meta


def check_stacks(c, what, program, cgo=False, through=True):
    """`through`: stacks go on from the thread's stack to the goroutine's, as they can since Go 1.21."""
    wanted = ["leaf", "calls", "deep", "sleeps", "transfers", "asks", "vfork"] + ["fills"] * through + ["rest"] * (cgo and through)
    seen, wrong, ends, meta = record_stacks(c, program, wanted)
    note(f"{what}: {ends}, {dict((k, dict(v)) for k, v in seen.items())}")
    for w in wrong[:4]:
        note(f"{what}: {w}")
    whole = sum(x["whole"] for x in seen.values())
    expect(not wrong, f"{what}: {whole} stacks go through the callers that the program knows, {len(wrong)} do not")
    # What is mapped is all known by then.
    bad = sum(ends[k] for k in ("no_table", "no_rule", "no_read", "bad"))
    expect(bad * 50 <= sum(ends.values()), f"{what}: {bad} of {sum(ends.values())} could not be unwound")
    expect(ends["no_rule"] * 500 <= sum(ends.values()), f"{what}: also where the return address is in a register, during a vfork: {ends['no_rule']} cannot")
    losses = meta["decoder"]["losses"]
    expect(losses.get("stacks_cut_at_wrong_frame", 0) * 100 <= whole, f"{what}: and the decoder takes return addresses for such: {losses}")
    if through:
        part = {name: x["part"] for name, x in seen.items() if x["part"] and name not in ("leaf", "calls", "called", "grow", "grown")}
        expect(not part and (cgo or not seen["calls"]["part"]), f"{what}: those alone are cut that C has called: {part}")
        expect(not cgo or seen["calls"]["part"], f"{what}: and these are")


def check_copied(c, program):
    """Where the return address is in a register, the stack of a wait that was copied has callers as well."""
    p = spawn(program, stdout=subprocess.DEVNULL)
    target = c.call("target.arm", {"pid": p.pid, "stacks": "dwarf", "wait_min_us": 0})["target"]["id"]

    def waits():
        found = [w for w in c.snapshot(target)["summary"]["waits"] if any("rawVforkSyscall" in f for f in w["stack"])]
        return found if sum(w["count"] for w in found) > 5 else None

    try:
        found = wait_for("waits during a vfork", waits, step=0.5)
        c.call("target.disarm", {"target": target})
    finally:
        p.kill()
        p.wait()
    # What was copied is not always all of the stack.
    whole = sum(w["count"] for w in found if "main.spawns" in w["stack"])
    count = sum(w["count"] for w in found)
    expect(whole * 10 > count * 9, f"of {count} waits during a vfork {whole} have callers: {found[0]['stack']}")
