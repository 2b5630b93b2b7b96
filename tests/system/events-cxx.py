# SPDX-License-Identifier: Apache-2.0
"""A C++ program: regions and tasks that live as long as objects end however the block is left, by an exception too, and a
task that was moved ends once; with the shared library and with the static one."""
from lib.eventshell import *
from lib.ring import REGION_BEGIN, REGION_END, TASK_BEGIN, TASK_END

CXX = os.environ.get("CXX", "g++").split()
need_command(CXX[0], "g++")

SOURCE = r"""
#include <cstdio>
#include <stdexcept>
#include <string>
#include <utility>
#include <tracerd.h>
static void inner(uint64_t task)
{
	tracerd::Region part(TRACERD_NAME("part"), task, nullptr, 0);
	TRACERD_SCOPE("scope");
	throw std::runtime_error("out");
}
static void outer()
{
	std::string path = "/index";
	tracerd::Region region("region", {tracerd::arg("path", path), tracerd::arg("bytes", 17u), tracerd::arg("left", -1L),
		tracerd::arg("share", 0.5f), tracerd::arg(TRACERD_NAME("how"), "cold")});
	tracerd::Task made("task");
	tracerd::Task task(std::move(made));
	try {
		inner(task.id());
	} catch (const std::exception &) {
		tracerd_instant(TRACERD_NAME("caught"));
	}
}
int main()
{
	tracerd_start(nullptr);
	for (int c; (c = getchar()) != EOF;) {
		tracerd_event_stats s = {};
		s.size = sizeof(s);
		tracerd_get_event_stats(&s);
		if (c == 'w')
			outer();
		puts(s.connected ? "connected" : "alone");
		fflush(stdout);
	}
}
"""
(tmp() / "program.cc").write_text(SOURCE)
WANT = [("region", REGION_BEGIN), ("task", TASK_BEGIN), ("part", REGION_BEGIN), ("scope", REGION_BEGIN), ("scope", REGION_END),
        ("part", REGION_END), ("caught", INSTANT), ("task", TASK_END), ("region", REGION_END)]

with Tracerd() as d, d.client() as c:
    for how, libs in (("shared", [f"-L{BUILD}/.libs", "-ltracerd", f"-Wl,-rpath,{BUILD}/.libs"]),
                      ("static", [BUILD / "libtracerd.a", "-ljson-c"])):
        program = tmp() / how
        sanitizers = ["-fsanitize=address,undefined"] if os.environ.get("TRACERD_SANITIZED") else []
        done = subprocess.run([*CXX, "-std=c++11", "-O2", "-Wall", "-Wextra", *sanitizers, f"-I{SRC}/client/include",
                               str(tmp() / "program.cc"), "-o", str(program), *map(str, libs)], capture_output=True, text=True)
        if done.returncode or done.stderr:
            fail(f"{how}: does not build: {done.stderr}")
        p = spawn(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=0,
                  env={**os.environ, "TRACERD_SOCKET": str(d.sock)})

        def tell(letter):
            p.stdin.write(letter)
            p.stdin.flush()
            return p.stdout.readline().strip()
        wait_for("the program is connected", lambda: tell("x") == "connected")
        tell("w")
        t = wait_events(c, p.pid, "live")
        got = [r for r in recorded(c, t["id"]) if r[0] in {name for name, _ in WANT}]
        if got != WANT:
            fail(f"{how}: recorded {got}")
        ok(f"{how}: each begins and ends where its object does")
        p.stdin.close()
        if p.wait(PATIENCE):
            fail(f"{how}: the program ended with {p.returncode}")
