#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pages are true where that can be looked up: the files, folders and links that they name exist, each room is in the
map, commands and options are tracectl's, the README's packages are what the build looks for, and its C compiles."""
import re

from lib import *

PAGES = [SRC / "README.md", SRC / "CONTRIBUTING.md", *sorted((SRC / "docs").glob("*.md"))]
TOPS = {p.name for p in SRC.iterdir() if p.is_dir()}
WHOSE = ("common", "daemon", "decode", "step", "open", "client")


def anchors(page):
    return {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^#+ (.*)", page.read_text(), re.M)}


missing = []
for page in PAGES:
    text = page.read_text()
    for link in re.findall(r"\]\(([^)]*)\)", text):
        where, _, anchor = link.partition("#")
        to = page.parent / where if where else page
        if not link.startswith("https:") and (not to.exists() or anchor and anchor not in anchors(to)):
            missing.append(f"{page.name}: the link {link}")
    # common/base/io.h, daemon/target/, daemon/control/methods_*.c; but no word in capitals, which stands for another
    for path in re.findall(r"(?<![\w/.$-])((?:[\w.-]+/)+[\w.*-]*)", re.sub(r"\]\([^)]*\)|https:\S+", "]", text)):
        path = path.rstrip(".")
        if path.split("/")[0] in TOPS and not re.search(r"[A-Z]{3}|\.so$", path) and not any(SRC.glob(path)):
            missing.append(f"{page.name}: {path}")
expect(not missing, f"every file, folder and link that a page names exists: {missing}")

the_map = (SRC / "docs" / "architecture.md").read_text()
rooms = sorted({f.parent.relative_to(SRC).as_posix() for top in WHOSE for f in (SRC / top).rglob("*.c")})
absent = [r for r in rooms if r not in ("client", "decode") and f"| `{r}/` |" not in the_map]
expect(not absent, f"docs/architecture.md has every room: {absent}")


# Lines of code that begin with tracectl, and such words within a line.
def tracectl(*argv):
    return subprocess.run([BUILD / "tracectl", *argv], capture_output=True, text=True)


helps, wrong = {}, []
for page in PAGES:
    for line in re.findall(r"^ +(tracectl [a-z].*)|`(tracectl [a-z][^`]*)`|^(tracectl [a-z].*)", page.read_text(), re.M):
        words = re.sub(r"\s+#.*| -- .*|\$\([^)]*\)", "", "".join(line)).split()[1:]
        command = words[:2] if words[0] == "trigger" and len(words) > 1 else words[:1]
        if " ".join(command) not in helps:
            done = tracectl("help", *command)
            helps[" ".join(command)] = done.stdout if done.returncode == 0 else None
        known = helps[" ".join(command)]
        for option in (w.split("=")[0] for w in words if re.match(r"--?[a-z]", w)):
            if known is None or not re.search(rf"(^|[\s,]){re.escape(option)}\b", known):
                wrong.append(f"{page.name}: {' '.join(words)}: {option}")
        if known is None:
            wrong.append(f"{page.name}: tracectl {' '.join(command)}")
expect(helps and not wrong, f"tracectl has every command and option of {len(helps)} that the pages use: {wrong}")

readme = (SRC / "README.md").read_text()
table = subprocess.run(["sh", "-c", ". scripts/lib/deps.sh; deps_table"], cwd=SRC, capture_output=True, text=True, check=True).stdout
want = {line.split()[3] for line in table.splitlines() if line.split()[0] in ("build", "bpf")}
said = set(re.search(r"apt-get? install ((?:[^\n]*\\\n)*[^\n]*)", readme).group(1).replace("\\", "").split())
expect(said == want, f"the README installs what the build looks for: {sorted(said ^ want)}")

PRELUDE = """
#include <stdint.h>
#include <string.h>
struct request { const char *path; int bytes; };
void parse(const char *path), load_file(const char *path);
extern long n_open;
"""
cc = os.environ.get("CC", "gcc").split()
for page in PAGES:
    for i, code in enumerate(re.findall(r"^```c(?:pp)?\n(.*?)^```", page.read_text(), re.M | re.S)):
        how = ["-x", "c", "-std=c99"] if "tracerd::" not in code else ["-x", "c++", "-std=c++11"]
        done = subprocess.run([*cc, *how, "-Wall", "-Wextra", "-Werror", "-Wno-unused", "-fsyntax-only",
                               f"-I{SRC}/client/include", "-"], input=PRELUDE + code.replace("...\n", "\n"), capture_output=True, text=True)
        expect(done.returncode == 0, f"example {i + 1} of {page.name} compiles: {done.stderr}")
