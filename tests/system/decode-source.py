#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# timeout: 600
"""Where in the source code exact calls are, and which of them were inlined: the calls of a program whose functions are inlined are
those of the same program whose functions are not, each declared and called on the line that the source says."""
import re

from lib.pt import *
from lib.tp import Engine

SOURCE = CALLS / "inlines.c"
TEXT = SOURCE.read_text().splitlines()
NOT_INLINED = "-DINLINED=static __attribute__((noinline))"
LINE = re.compile(r"^( *~?\d+) +(?:(\d+) +(\d+) )? *(\} )?(\S.*?)(?: \(([^()]*)\))?(?: ([^ \[{]+:\d+))?(?: \[([^\]]*)\])?(?: from (\S+:\d+))?( \{)?$")


class Call:
    def __init__(self, m):
        self.name, self.object, self.declared, self.how, self.site = m[5], m[6], m[7], m[8] or "", m[9]
        self.insns = int(m[3]) if m[3] else None
        self.calls, self.outer = [], None


def decode(recording, *options):
    p = subprocess.run([BUILD / "tracectl", "decode", *options, recording.data], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"{recording.name}: {options}: {p.stderr}")
    return p.stdout


def tree(text, name):
    """All calls in the order of their begins."""
    out, open_ = [], []
    for line in text.splitlines():
        if line.startswith(("#", "thread")) or not line or " -- " in line:
            continue
        m = LINE.match(line)
        if not m:
            fail(f"{name}: a line that is none: {line!r}")
        if m[4]:
            open_.pop().insns = int(m[3])
            continue
        call = Call(m)
        call.outer = open_[-1] if open_ else None
        if call.outer:
            call.outer.calls.append(call)
        out.append(call)
        if m[10]:
            open_.append(call)
    if open_:
        fail(f"{name}: {len(open_)} calls do not end")
    return out


def of_program(calls, program):
    """The calls of the program's own functions, from main on, with who called them."""
    def chain(c):
        names = []
        while c and c.name != "main":
            if c.object == program and "goes on" not in c.how:
                names.append(c.name)
            c = c.outer
        return " in ".join([*names, "main"]) if c else None

    return [x for x in (chain(c) for c in calls if c.object == program and "goes on" not in c.how) if x]


def lines_with(pattern):
    return {n for n, line in enumerate(TEXT, 1) if re.search(pattern, line)}


def check_lines(name, calls, program):
    """Each function of ours is declared where the source declares it, and called on a line that calls it."""
    functions, wrong, n = set(), [], 0
    for c in calls:
        if c.object != program or c.name.startswith("_") or not (decl := lines_with(rf"^(?:INLINED|REAL|int main).*\b{c.name}\(.*\)$")):
            continue
        functions.add(c.name)
        n += 1
        # clang tells the line of the call, gcc that of the instruction, whose operand may be on the next
        called = lines_with(rf"^\t.*\b{c.name}\b") if c.name != "main" else None
        file, _, line = (c.declared or "?:0").rpartition(":")
        if file != SOURCE.name or int(line) not in decl:
            wrong.append(f"{c.name} is declared at {c.declared}, not at {decl}")
        if called is not None and c.object == program and c.outer and c.outer.object == program and "goes on" not in c.how:
            file, _, line = (c.site or "?:0").rpartition(":")
            if file != SOURCE.name or int(line) not in called:
                wrong.append(f"{c.name} is called at {c.site}, not at {called}")
    if wrong:
        fail(f"{name}: {wrong[:3]}")
    expect(len(functions) >= 10 and n > 60, f"{name}: {n} calls of {len(functions)} functions are declared and called where the source says")


def bare(text):
    """What --lines adds, taken away."""
    return re.sub(r"(?<=[)\]])(?: [^ \[{]+:\d+)?((?: \[[^\]]*\])?)(?: from \S+:\d+)?((?: \{)?)$", r"\1\2", text, flags=re.M)


def without_inlined(calls):
    """What is left when an inlined call's own calls are made by what is around it."""
    def real(c):
        while c and c.how.startswith("inlined"):
            c = c.outer
        return c

    return [(c.name, c.how, c.insns, real(c.outer).name if c.outer else None) for c in calls if not c.how.startswith("inlined")]


def check_inlined(work, tool, level, truth):
    name = f"{tool} {level}"
    program = work / f"inlined-{tool}{level}"
    compile_with(tool, program, level)
    r = Recording(work, program.name, [keep_program(program)])
    lines, inlined = decode(r, "--calls", "--lines"), decode(r, "--calls", "--inline")
    if bare(lines) != decode(r, "--calls"):
        fail(f"{name}: --lines changes more than it adds")
    plain, calls = tree(lines, name), tree(inlined, name)
    if without_inlined(calls) != without_inlined(plain):
        fail(f"{name}: calls that are not inlined change by --inline")
    got = of_program(calls, program.name)
    if got != truth:
        i = next((i for i, (a, b) in enumerate(zip(got, truth)) if a != b), min(len(got), len(truth)))
        keep = os.environ.get("PT_STACKS_KEEP")
        if keep:
            pathlib.Path(keep).write_text(inlined)
        fail(f"{name}: call {i} of {len(truth)}: wanted {truth[i:i + 3]}, got {got[i:i + 3]}")
    n = sum(c.how == "inlined" and c.object == program.name for c in calls)
    expect(n > 40 and len(of_program(plain, program.name)) + 40 < len(got), f"{name}: {len(got)} calls, {n} of them inlined, as without inlining")
    for c in calls:
        if c.insns is not None and sum(x.insns or 0 for x in c.calls) > c.insns:
            fail(f"{name}: the calls of {c.name} have more instructions than itself: {c.insns}, {[(x.name, x.insns) for x in c.calls]}")
    check_lines(name, calls, program.name)
    return r, calls


def compile_with(tool, out, *flags):
    # Ubuntu's gcc checks calls as printf() by functions of libc's headers, which are inlined
    p = subprocess.run([tool, "-g", "-fno-optimize-sibling-calls", "-U_FORTIFY_SOURCE", *flags, "-o", out, SOURCE], cwd=CALLS,
                       capture_output=True, text=True)
    if p.returncode:
        fail(f"{out.name}: {p.stderr}")


def check_without(work):
    """No debug information: nothing but what is told without it, and what is missing is said. With it in a file of its own: as with it."""
    program, full = work / "stripped", work / "full"
    compile_with("gcc", full, "-O2", "-Wl,--build-id")
    subprocess.run(["objcopy", "--strip-debug", full, program], check=True)
    r = Recording(work, "stripped", [keep_program(program)])

    def own(text):
        """Times that are interpolated depend on how much of the trace is looked at, the depth on what others have inlined."""
        lines = (re.sub(r"^ *~?\d+ +(?:\d+ +(?=\d))?", "", x) for x in text.splitlines() if "(stripped)" in x)
        return [re.sub(r" +", " ", x) for x in lines]

    for option in ("--lines", "--inline"):
        told = [re.sub(r"(?<=[)\]]) from \S+(?=$| \{$)", "", x) for x in own(decode(r, "--calls", option))]
        expect(len(told) > 100 and told == own(decode(r, "--calls")), f"no debug information: {option} shows nothing more")
    report = json.loads(decode(r, "--json", "--lines", "-o", work / "stripped.txt"))
    missing = report["losses"].get("debug_info_missing", [])
    expect(any(m.endswith("/stripped") for m in missing), f"it says that there is none: {missing}")

    subprocess.run(["objcopy", "--only-keep-debug", "--compress-debug-sections", full, work / "stripped.debug"], check=True)
    build_id = subprocess.run(["readelf", "-n", program], capture_output=True, text=True, check=True).stdout
    build_id = re.search(r"Build ID: ([0-9a-f]+)", build_id)[1]
    place = work / "fs/usr/lib/debug/.build-id" / build_id[:2] / f"{build_id[2:]}.debug"
    place.parent.mkdir(parents=True)
    (work / "stripped.debug").rename(place)
    (work / "whole").mkdir()
    shutil.copy(full, work / "whole/stripped")
    want = own(decode(Recording(work, "whole.run", [keep_program(work / "whole/stripped")]), "--calls", "--inline"))
    got = own(decode(r, "--calls", "--inline", "--symfs", work / "fs"))
    expect(got == want and any("inlined" in x for x in got), "debug information in a file of its own, found by its build id")


def check_rest(work):
    """Signals, coroutines, exceptions, longjmp, threads: what is inlined in calls changes none of them."""
    programs = {}
    for name in COMMON:
        programs[name] = ([common_program(work, name)], 0)
    for name, r in record_all(work, programs).items():
        plain, inlined = decode(r, "--calls", "--lines"), decode(r, "--calls", "--inline")
        n = 0
        for thread in dict.fromkeys(re.findall(r"^thread \S+ ", plain, re.M)):
            a, b = (tree(section(text, thread), name) for text in (plain, inlined))
            if without_inlined(a) != without_inlined(b):
                x, y = without_inlined(a), without_inlined(b)
                i = next((i for i, (p, q) in enumerate(zip(x, y)) if p != q), min(len(x), len(y)))
                fail(f"{name}: {thread}: call {i} of {len(x)} becomes another by --inline: {x[i:i + 2]}, {y[i:i + 2]}")
            n += len(b) - len(a)
        expect(n > 0, f"{name}: {n} inlined calls, and the others as they were")


def section(text, thread):
    """All parts of the text that are of this thread."""
    return "\n".join(part for part in text.split("\n\n") if part.startswith(thread) or "\n" + thread in part)


def check_sampled(work):
    """Functions of samples tell where they are declared; for inlined calls see decode-inlines."""
    source, program, data = work / "burn.c", work / "burn", work / "sampled.data"
    source.write_text("volatile unsigned long x;\n\n__attribute__((noinline)) void burn(void)\n{\n"
                      "\tfor (unsigned long i = 0; i < 60000000; i++)\n\t\tx += i;\n}\n\nint main(void)\n{\n\tburn();\n\treturn 0;\n}\n")
    subprocess.run(["gcc", "-g", "-O1", "-o", program, source], check=True)
    if not working_perf() or subprocess.run(["perf", "record", "-N", "-e", "cpu-clock", "-o", data, program], capture_output=True).returncode:
        note("no perf that works here: samples were not looked at")
        return
    p = subprocess.run([BUILD / "tracectl", "decode", "--lines", "--format", "text", "-o", "-", data], capture_output=True, text=True, timeout=PATIENCE)
    expect(re.search(rf'\tB\t"burn"\t\[burn\]\tat={re.escape(str(source))}:3$', p.stdout, re.M), "a function of samples is declared on its line")


def check_views(r, program):
    for view in ("--insns", "--branches"):
        text = [x for x in decode(r, view, "--lines").splitlines() if f"({program})" in x]
        # what the compiler's start-up code is of has none
        n = sum(bool(re.search(rf"\({program}\) {SOURCE.name}:\d+", x)) for x in text)
        expect(n > len(text) * 3 / 4 and n > 50, f"{view}: {n} of {len(text)} lines have a place in the source")
        plain = [x for x in decode(r, view).splitlines() if f"({program})" in x]
        if [re.sub(r"(\([^()]*\)) \S+:\d+", r"\1", x) for x in text] != plain:
            fail(f"{view}: --lines changes more than it adds")
    p = subprocess.run([BUILD / "tracectl", "decode", "--inline", "--insns", r.data], capture_output=True, text=True, timeout=PATIENCE)
    expect(p.returncode == 2 and "--lines" in p.stderr, "--inline with another view than calls is refused")


def check_trace(work, r, calls, program):
    """The slices of the trace are the calls of the text, with their places; the trace processor nests them as we do."""
    trace = work / "trace.pftrace"
    decode(r, "--inline", "-o", trace)
    if decode(r, "--threads", "1", "--inline", "--format", "text", "-o", "-") != decode(r, "--threads", "4", "--inline", "--format", "text", "-o", "-"):
        fail("the trace depends on the number of threads")
    engine = Engine(trace)
    if not engine.works():
        note("no trace processor (TRACERD_TP): the picture was not looked at")
        return
    rows = engine.rows("""select s.name as c0, extract_arg(s.arg_set_id, 'debug.called from') as c1,
        extract_arg(s.arg_set_id, 'source.file_name') || ':' || extract_arg(s.arg_set_id, 'source.line_number') as c2,
        extract_arg(s.arg_set_id, 'debug.how') as c3, p.name as c4, extract_arg(s.arg_set_id, 'debug.instructions') as c5
        from slice s left join slice p on s.parent_id = p.id where s.category = '%s' order by s.ts, s.depth""" % program, 6)
    want = [(c.name, c.site, c.declared, c.how or None, c.outer.name if c.outer else None, c.insns) for c in calls if c.object == program]
    short = lambda place: None if place == "NULL" else place.rpartition("/")[2]
    got = [(n, short(site), short(decl), None if how == "NULL" else how, None if outer == "NULL" else outer, int(insns) if insns != "NULL" else 0)
           for n, site, decl, how, outer, insns in rows]
    # at one time the order of slices is that of their depth there, and of their begins here
    if sorted(map(str, got)) != sorted(map(str, want)):
        a, b = [x for x in map(str, want) if x not in map(str, got)], [x for x in map(str, got) if x not in map(str, want)]
        fail(f"the trace processor has {len(got)} calls, the text {len(want)}: {a[:3]} {b[:3]}")
    expect(len(got) > 100, f"the trace processor has the same {len(got)} calls")


def main():
    for name in ("gcc", "objcopy", "readelf"):
        need_command(name)
    if not STEP.exists():
        skip("needs tracerd-step")
    work = tmp()
    tools = ["gcc"] + (["clang"] if shutil.which("clang") else [])
    for tool in tools:
        compile_with(tool, work / f"real-{tool}", "-O1", NOT_INLINED)
        real = Recording(work, f"real-{tool}", [keep_program(work / f"real-{tool}")])
        truth = of_program(tree(decode(real, "--calls"), "real"), f"real-{tool}")
        expect(len(truth) > 100, f"{tool}: {len(truth)} calls where nothing is inlined")
        for level in ("-O1", "-O2", "-Os"):
            r, calls = check_inlined(work, tool, level, truth)
    r, calls = check_inlined(work, "gcc", "-O2", truth)
    check_views(r, "inlined-gcc-O2")
    check_trace(work, r, calls, "inlined-gcc-O2")
    check_without(work)
    check_rest(work)
    check_sampled(work)


main()
