#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 300
"""`tracectl decode --verify`: libipt follows the same trace. Of real programs it has executed the same, all of it; where it knows a packet
less, where a trace is damaged or code is missing, it is said who stops, where and why; and it does not depend on the number of threads."""
from lib.pt import *
from lib.ptpackets import Encoder

CODE = bytes.fromhex("90" "e806000000" "90" "6690" "f4" "0f0b" "0f1f00" "c3")  # nop; call +6; nop; xchg ax, ax; hlt; ud2; nop; ret
BASE = 0x401000
DATA = pathlib.Path(os.environ.get("TRACERD_DATA", SRC / "../shared/data")) / "pt"


def verify(*args):
    p = subprocess.run([BUILD / "tracectl", "--json", "decode", "--verify", *args], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{args}: {p.stderr}")
    return json.loads(p.stdout)["stats"]["verify"]


def agrees(what, v):
    expect(v["instructions_compared"] == v["instructions"] > 0 and v["blocks_that_differ"] == 0 and "differences" not in v,
           f"{what}: {v['instructions']} instructions in {v['blocks']} blocks, all of them the same")


def flat(work, lines):
    """A trace of the code above, said in packets."""
    e = Encoder()
    for line in lines:
        e.line(line)
    (work / "trace").write_bytes(bytes(e.out))
    (work / "code").write_bytes(CODE)
    (work / "info.json").write_text(json.dumps(dict(tid=7, mappings=[dict(file="code", length=len(CODE), address=BASE)])))
    return work / "trace", "--pt-info", work / "info.json"


def differences(work):
    sync, end = f"sync {BASE:#x} 1000", [f"fup {BASE + 9:#x}", "tip.pgd"]
    agrees("a few instructions", verify(*flat(work, [sync, "tnt T", *end])))
    # trigger tracing (TRIG): the processors that write it are newer than libipt 2.0
    v = verify(*flat(work, [sync, "tnt T", "raw d90001", *end, sync, "tnt T", *end]))
    if not v["libipt"].startswith("2.0."):
        note(f"libipt {v['libipt']} knows that packet")
    else:
        d = v["differences"][0]
        expect(v["blocks_that_differ"] == 1 and d["what"] == "libipt stops" and d["libipt_error"] == "unknown opcode" and
               int(d["address"], 16) - BASE in range(len(CODE)), f"a packet that libipt does not know: {d}")
        expect(v["instructions_compared"] > v["instructions"] // 2 and int(d["again_at"], 16) == BASE,
               "from its next synchronisation point on it is compared again")
    # so would one be for us that is newer still
    p = subprocess.run([BUILD / "tracectl", "--json", "decode", "--stats", *flat(work, [sync, "tnt T", "raw 0253aabbcc", sync, "raw 02fe", sync,
                                                                                      "raw 02fe01", sync, "tnt T", *end])],
                       capture_output=True, text=True, timeout=PATIENCE)
    told = {x["bytes"][:5]: (x["times"], x["buffer"]) for x in json.loads(p.stdout)["losses"]["pt_unknown_packets"]}
    expect(told.get("02 fe") == (2, 0), f"packets that we do not know are counted, with their bytes: {told}")
    # a return that goes nowhere: both see it
    v = verify(*flat(work, [sync, "tnt N", *end]))
    expect(v["both_stop"] + v["blocks_that_differ"] >= 1, f"a decision that contradicts the code: {v}")
    # nothing is mapped where it goes
    v = verify(*flat(work, [sync, f"tip {0x7000000:#x}", f"tip {BASE:#x}", "tnt T", *end]))
    expect(v["both_stop"] == 1 and v["blocks_that_differ"] == 0, f"code that nobody has stops both: {v}")
    p = subprocess.run([BUILD / "tracectl", "decode", "--verify", *flat(work, [sync, "tnt T", "raw d90001", *end])], capture_output=True,
                       text=True, timeout=PATIENCE)
    expect(p.returncode == 0 and "second opinion of libipt" in p.stdout and "of these compared" in p.stdout, "and all of it is told in words")


def recordings(work):
    programs = {name: common_program(work, name) for name in ("jumps", "signals", "throws", "coroutines", "threads")}
    for name, r in record_all(work, {name: ([p], 0) for name, p in programs.items()}).items():
        one = verify("--threads", "1", r.data)
        agrees(name, one)
        expect(one == verify("--threads", "3", r.data), "on any number of threads")
        if name == "jumps":
            damaged(work, name, r)


def damaged(work, name, r):
    """Bytes of the trace are others: there is an answer, the same each time, and what is compared is no more than there is."""
    data = bytearray(r.data.read_bytes())
    at = data.find(bytes.fromhex("0282") * 8)
    some = 0
    for k in range(40):
        broken = bytearray(data)
        for i in range(3):
            broken[at + 40 + (k * 97 + i * 1031) % (len(data) - at - 3000)] ^= 1 << (k + i) % 8
        (work / "broken.data").write_bytes(broken)
        v = verify("--threads", "1", work / "broken.data") if k % 8 else verify(work / "broken.data")
        if v["instructions_compared"] > v["instructions"]:
            fail(f"damage {k}: {v}")
        some += v["blocks_that_differ"] + v["both_stop"] > 0
    expect(some > 20, f"{name}: of 40 damages {some} are seen")


def real():
    if not DATA.exists():
        note("the recordings of processors are not here")
        return
    for name, least in (("wrapped/dynamorio.data", 8), ("wrapped/lldb-single.data", 21)):
        v = verify("--symfs", DATA, DATA / name) if (DATA / name).exists() else None
        if v:
            expect(v["blocks_that_differ"] == 0, f"{name}: {v}")


need_command("gcc", "gcc")
with tempfile.TemporaryDirectory() as folder:
    differences(pathlib.Path(folder))
    recordings(pathlib.Path(folder))
real()
