#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""tracectl arm --filter: a name that two mapped files have is refused with both; a whole path is one of them."""
import mmap
import shutil

from lib import *

maps = []
for folder in "ab":
    path = tmp() / folder / "libx.so"
    path.parent.mkdir()
    shutil.copy(shutil.which("true"), path)
    with path.open("rb") as f:
        maps.append(mmap.mmap(f.fileno(), 8192, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC))
with Tracerd() as d:
    p = d.tracectl("arm", "--filter", "libx.so", os.getpid())
    expect(p.returncode == 2 and all(str(tmp() / x / "libx.so") in p.stderr for x in "ab"), f"two files of one name: {p.stderr}")
    # without Intel PT the daemon refuses it, which it is not asked before all names are clear
    p = d.tracectl("arm", "--filter", tmp() / "a/libx.so", os.getpid())
    expect("two files" not in p.stderr, f"one of them by its path: {p.stderr}")
    p = d.tracectl("arm", "--filter", "/nonexistent/libx.so", os.getpid())
    expect(p.returncode and "no code of /nonexistent/libx.so" in p.stderr, f"none of them: {p.stderr}")
    # commas between brackets are part of a name; the signs of an operator are no brackets
    for name in ("operator>(A, B)", "operator->(A, B)", "f<int, int>(A, B)"):
        p = d.tracectl("arm", "--filter", name, os.getpid())
        expect(f"no function '{name}'" in p.stderr, f"a name with commas: {p.stderr}")
    p = d.tracectl("arm", "--filter", "operator<(A, B),/nonexistent", os.getpid())
    expect("no function 'operator<(A, B)'" in p.stderr, f"what follows the name of an operator is another name: {p.stderr}")
