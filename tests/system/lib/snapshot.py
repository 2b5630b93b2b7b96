# SPDX-License-Identifier: Apache-2.0
"""For the snapshot tests: a daemon with a decoder that does what a file says, and a look into the spool."""
import os
import re
import subprocess

from lib import *

ID = re.compile(r"^\d{8}-\d{6}-[0-9a-f]{4}$")
SLOWLOCK = BUILD / "examples" / "slowlock"


class Wrapped(Tracerd):
    """Its decoder is a script: behave("real"), or any shell text that runs in its place."""

    def __init__(self, config="", name="", state=None):
        super().__init__(name=name)
        if state is not None:
            self.state = state
        self.mode = self.dir / "decoder.mode"
        self.script = self.dir / "decoder.sh"
        self.behave("real")
        self.script.write_text(f"#!/bin/sh\n. '{self.mode}'\nexec '{BUILD / 'tracerd-decode'}'\n")
        os.chmod(self.script, 0o755)
        sections = {"daemon": [f"decoder = {self.script}"]}
        section = "snapshot"
        for line in config.splitlines():
            if line.startswith("["):
                section = line.strip("[] ")
            elif line.strip():
                sections.setdefault(section, []).append(line)
        text = ""
        for section, lines in sections.items():
            text += f"[{section}]\n" + "\n".join(lines) + "\n"
        self.conf.write_text(text)

    def behave(self, text):
        part = self.mode.with_suffix(".new")
        part.write_text("" if text == "real" else text + "\n")
        os.rename(part, self.mode)

    def spool(self):
        """Names in the spool: whole ones, half-made ones, others. Removed ones that are on their way out are none of them."""
        try:
            names = os.listdir(self.state / "spool")
        except FileNotFoundError:
            names = []
        whole = sorted(n for n in names if ID.match(n))
        return whole, [n for n in names if n.startswith(".tmp-")], [
            n for n in names if not ID.match(n) and not n.startswith((".tmp-", ".removed-"))]

    def decoders(self):
        """Pids of the daemon's children, but for tracerd-open."""
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children") as f:
                return [int(p) for p in f.read().split() if self.name_of(p) != "tracerd-open"]
        except (OSError, AttributeError):
            return []

    @staticmethod
    def name_of(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
        except OSError:
            return ""


def service(*args):
    """A program to record: it works, waits for locks, and tells that it is alive by its output."""
    if not os.access(SLOWLOCK, os.X_OK):
        fail("examples/slowlock is not built")
    return spawn(SLOWLOCK, "--every", "300", *args, stdout=subprocess.PIPE, text=True)


def is_well(p):
    """It runs on: neither stopped nor traced nor gone, and it uses the processor."""
    def ticks():
        with open(f"/proc/{p.pid}/stat") as f:
            fields = f.read().rsplit(")", 1)[1].split()
        if fields[0] in "ZXTt":
            fail(f"the target is in state {fields[0]}")
        return int(fields[11]) + int(fields[12])
    before = ticks()
    wait_for("the target works", lambda: ticks() > before)
    with open(f"/proc/{p.pid}/status") as f:
        if "TracerPid:\t0\n" not in f.read():
            fail("the target is traced")


def state_of(client, snapshot):
    return client.call("snapshot.show", {"snapshot": snapshot})["snapshot"]
