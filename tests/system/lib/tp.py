# SPDX-License-Identifier: Apache-2.0
"""Perfetto's own trace processor, for tests of what it makes of our traces.

TRACERD_TP is its command: COMMAND TRACE SQL... prints each result as a table. Where it is not set,
../shared/tools/tp-query beside the source tree is taken; else works() is false."""
import functools
import re
import shlex
import tempfile

from lib import *

# Statistics of the import that tell of something wrong.
TROUBLE = """select group_concat(name || '=' || value, ' ') from stats where value > 0 and name != 'compact_sched_switch_skipped'
    and (severity in ('error', 'data_loss') or name glob '*skipped*' or name glob '*invalid*' or name glob '*error*'
    or name glob '*missing*' or name glob '*drop*' or name glob '*depth_exceeded*' or name glob '*overlapping*')"""


@functools.cache
def runs(*command):
    return subprocess.run([*command, "/dev/null"], capture_output=True, timeout=PATIENCE).returncode == 0


class Engine:
    def __init__(self, trace):
        beside = SRC / "../shared/tools/tp-query"
        self.command = shlex.split(os.environ.get("TRACERD_TP", str(beside) if beside.exists() else ""))
        self.trace = trace

    def works(self):
        return bool(self.command) and runs(*self.command)

    def ask(self, *queries):
        """For each (SQL, number of fields) its rows, [[text]]. One load of the engine answers all; it takes a second or two.
        Each is asked for one value, since tables are made for eyes."""
        asked = []
        for sql, fields in queries:
            one = " || '\x1f' || ".join(f"coalesce(cast(c{i} as text), 'NULL')" for i in range(fields))
            names = ", ".join(f"c{i}" for i in range(fields))
            asked.append(f"with q({names}) as ({sql}) select '<<' || coalesce(group_concat({one}, '\x1e'), '') || '>>' as answer from q")
        # Into a file: an engine that runs in node leaves what a pipe has not taken yet when it exits.
        with tempfile.TemporaryFile() as f:
            p = subprocess.run([*self.command, self.trace, *asked], stdout=f, stderr=subprocess.PIPE, timeout=PATIENCE)
            f.seek(0)
            out = f.read().decode("utf-8", "replace")
        answers = re.findall("<<(.*?)>>", out, re.DOTALL)
        if len(answers) != len(queries):
            fail(f"the engine says: {p.stderr.decode('utf-8', 'replace')} {out} to: {asked}")
        return [[row.split("\x1f") for row in a.split("\x1e")] if a else [] for a in answers]

    def rows(self, sql, fields):
        return self.ask((sql, fields))[0]

    def value(self, sql):
        rows = self.rows(sql, 1)
        return rows[0][0] if rows else None
