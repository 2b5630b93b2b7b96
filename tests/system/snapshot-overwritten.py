#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 240
"""Files that were mapped and then written over in place, as cp(1) does: what ran of them has no names, not those of the new code, and that is told
as a loss. A file that only got another name, link or mode since has its names, also one that was removed or replaced by another one."""
import re
import shutil

from lib.capture import *
from lib.texttrace import slices_of_snapshot

SPIN = r"""
#include <stdio.h>
#include <time.h>
__attribute__((noinline)) void NAME(void)
{
	volatile int sink = 0;
	clock_t end = clock() + CLOCKS_PER_SEC / 10;

	while (clock() < end)
		for (int i = 0; i < 20000; i++)
			sink++;
}
void entry(void)
{
	NAME();
	__asm__("");
}
"""
PROGRAM = SPIN + "int main(void)\n{\n\tif (getchar() == 'x')\n\t\tentry();\n\treturn 0;\n}\n"
LOADER = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin)) {
		void *library, (*entry)(void);

		line[strcspn(line, "\n")] = 0;
		library = dlopen(line, RTLD_NOW);
		entry = library ? (void (*)(void))dlsym(library, "entry") : NULL;
		if (!entry)
			return 1;
		entry();
		dlclose(library);
		puts("done");
		fflush(stdout);
	}
	return 0;
}
"""
need_root("BPF")
need_command("gcc")


def build(path, source, *flags):
    c = path.with_name(path.name + ".c")
    c.write_text(source)
    made = subprocess.run(["gcc", "-O1", "-g0", "-fno-omit-frame-pointer", *flags, c, "-o", path, "-ldl"], capture_output=True, text=True)
    expect(made.returncode == 0, f"{path.name}: {made.stderr}")
    return path


def library(name, *flags):
    return build(tmp() / f"{name}.so", SPIN.replace("NAME", name), "-shared", "-fPIC", *flags)


def write_over(path, new):
    path.write_bytes(new.read_bytes())


def put_back(path, new):
    st = path.stat()
    write_over(path, new)
    os.utime(path, ns=(st.st_atime_ns, st.st_mtime_ns))


def upgrade(path, new):
    part = path.with_suffix(".new")
    shutil.copy(new, part)
    os.rename(part, path)


def run(p, path):
    p.stdin.write(f"{path}\n")
    p.stdin.flush()
    expect(p.stdout.readline() == "done\n", f"{path.name} runs")


def is_open_in(pid, path):
    for fd in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            if os.readlink(fd) == str(path):
                return True
        except FileNotFoundError:
            pass
    return False


# What becomes of each library when it was run. Those that are removed are open in the daemon by then.
OVERWRITTEN = {"plain": write_over, "again": write_over, "back": put_back, "nameless": put_back}
SAME = {
    "chmod": lambda path, new: path.chmod(0o700),
    "link": lambda path, new: os.link(path, path.with_suffix(".link")),
    "moved": lambda path, new: path.rename(path.with_suffix(".moved")),
    "gone": lambda path, new: path.unlink(),
    "upgraded": upgrade,
    "untouched": lambda path, new: None,
}

with Tracerd() as d:
    c = d.client()
    p = spawn(build(tmp() / "loader", LOADER), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    t = c.arm(p.pid)["id"]
    for name, change in {**OVERWRITTEN, **SAME}.items():
        path = library(f"{name}_before", *(["-Wl,--build-id=none"] if name == "nameless" else []))
        new = library(f"{name}_after")
        run(p, path)
        wait_for(f"{path.name} to be open in the daemon", lambda: is_open_in(d.pid, path))
        change(path, new)
        if name == "again":
            run(p, path)
    s = c.snapshot(t, with_objects=True)
    files = c.fetch(s["id"])
    told = json.dumps(s)
    changed = json.loads(files["meta.json"])["decoder"]["losses"].get("images_changed", [])
    seen = {x.name for its in slices_of_snapshot(d, s["id"], tmp() / "bundle").values() for x in its}
    for name in OVERWRITTEN:
        expect(not {f"{name}_before", f"{name}_after"} & seen, f"{name}: what was overwritten has no names")
        expect(f"{name}_after" not in told and any(f"/{name}_before.so" in x for x in changed), f"{name}: nor in the summary, and is told as a loss")
    expect(s["summary"]["losses"].get("executables changed", {}).get("count") == len(OVERWRITTEN), f"they are counted: {s['summary']['losses']}")
    for name in SAME:
        expect(not any(f"/{name}_before.so" in x for x in changed) and f"{name}_before" in seen, f"{name}: it is the same file, and has its names")
    # Its process has ended, so nobody is in the way.
    path = build(tmp() / "program", PROGRAM.replace("NAME", "program_before"))
    new = build(tmp() / "program.new", PROGRAM.replace("NAME", "program_after"))
    p = spawn(path, stdin=subprocess.PIPE)
    t = c.arm(p.pid)["id"]
    p.communicate(b"x")
    write_over(path, new)
    taken = d.tracectl("snapshot", t, "-o", tmp() / "program.pftrace").stdout
    expect("executables changed" in taken and "program_after" not in taken, f"who takes the snapshot is told: {taken}")
    s = c.call("snapshot.list")["snapshots"][0]
    seen = {x.name for its in slices_of_snapshot(d, s["id"], tmp() / "bundle-program").values() for x in its}
    expect("[program]" in seen and not {"program_before", "program_after"} & seen, f"a program that was overwritten has no names: {sorted(seen)}")
    shown = d.tracectl("decode", tmp() / "bundle-program", "--summary").stdout
    expect(re.search(f"^ +changed +{path}$", shown, re.M) and "program_after" not in shown, f"the summary says why: {shown}")
