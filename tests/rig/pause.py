# SPDX-License-Identifier: Apache-2.0
"""What guest/pause.sh left: a breakpoint in the group of the trace stops it before the very instruction, for the threads whose group
has it, until an event that resumes it comes."""
import errno
import json

from truth import Retired


def check_pause(share, ok, fail):
    folder = share / "pause"
    said = json.loads((folder / "said").read_text())
    place, on = said["place"], said["on"]
    first, without, later = said["tids"]

    def log(stage):
        return Retired(folder / stage).threads()

    hit = log("hit")
    for tid, who in ((first, "the thread"), (later, "a thread that inherited the group")):
        if not hit[tid] or place in hit[tid] or on in hit[tid]:
            fail(f"pause: {who}: {len(hit[tid])} instructions, and the trace is to end before {place:#x}: {hit[tid][-5:]}")
        # the call of the place, by its distance, is 5 bytes long, and ends in the caller
        if not 0 < abs(place - hit[tid][-1]) < 0x1000:
            fail(f"pause: {who}: the last instruction is at {hit[tid][-1]:#x}, not the call of {place:#x}")
    if place not in hit[without] or on not in hit[without]:
        fail("pause: a thread that had inherited the trace before is paused, too")
    if log("enabled")[first]:
        fail("pause: disabling and enabling the trace resumes it")
    if not log("resumed")[first]:
        fail("pause: the event that resumes the trace does not")
    again = log("again")[first]
    if not again or place in again or again[-1] != hit[first][-1]:
        fail(f"pause: the second hit: {len(again)} instructions, the last of them {list(again[-1:])}, not {hit[first][-1]:#x}")
    can, cannot = (json.loads((folder / name).read_text()) for name in ("can", "cannot"))
    if can != {"alone": errno.EINVAL, "not_inherited": errno.EINVAL, "in_group": 0} or cannot["in_group"] != errno.EINVAL:
        fail(f"pause: the kernel answers {can}, and {cannot} where the PMU cannot pause")
    ok(f"pause: the trace stops at the hit, after {len(hit[first])} instructions, also for a thread that inherits the group; not for one "
       "that had inherited the trace before; another event of the group resumes it, enabling it does not")
