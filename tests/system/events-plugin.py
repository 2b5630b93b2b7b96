# SPDX-License-Identifier: Apache-2.0
"""A plug-in that writes events, in a program that knows nothing of them: with the shared library and with the
static one, it is loaded, unloaded and loaded again, and what it wrote is there, with its names."""
from lib.eventshell import *

CC = os.environ.get("CC", "gcc").split()
need_command(CC[0], "gcc")
if os.environ.get("TRACERD_SANITIZED"):
    skip("a sanitizer's runtime wants to be in the program, too")

HOST = r"""
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
	char line[4096];
	void *handles[4] = {0};
	puts("ready");
	fflush(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		int n = line[0] - '0';
		line[strcspn(line, "\n")] = 0;
		if (!strcmp(line + 1, " unload")) {
			printf("%d\n", dlclose(handles[n]));
			handles[n] = NULL;
		} else if (line[1] == ' ') {
			handles[n] = handles[n] ? handles[n] : dlopen(line + 2, RTLD_NOW | RTLD_LOCAL);
			puts(handles[n] ? "loaded" : dlerror());
		} else {
			const char *(*call)(void);
			*(void **)&call = dlsym(handles[n], line + 1);
			puts(call());
		}
		fflush(stdout);
	}
	return 0;
}
"""
PLUGIN = r"""
#include <pthread.h>
#include <stdio.h>
#include <time.h>
#include <tracerd.h>
#define S(x) #x
#define N(x) S(x)
const char *start(void);
const char *start(void) { return tracerd_error_name(tracerd_start(0)); }
const char *stop(void);
const char *stop(void) { tracerd_stop(); return "stopped"; }
const char *error(void);
const char *error(void)
{
	tracerd_event_stats s = {0};
	s.size = sizeof(s);
	tracerd_get_event_stats(&s);
	return s.connected ? "connected" : tracerd_error_name(s.last_error);
}
static void *thread(void *arg)
{
	(void)arg;
	tracerd_instant(TRACERD_NAME(N(NAME) " on a thread"));
	return 0;
}
const char *work(void);
const char *work(void)
{
	pthread_t t;
	TRACERD_SCOPE(N(NAME) " region");
	tracerd_instant(TRACERD_NAME(N(NAME)));
	tracerd_log(TRACERD_INFO, N(NAME) " logs %d and %s", 5, "a text");
	pthread_create(&t, 0, thread, 0);
	pthread_join(t, 0);
	return "worked";
}
"""
(tmp() / "host.c").write_text(HOST)
(tmp() / "plugin.c").write_text(PLUGIN)


def cc(*args):
    done = subprocess.run([*CC, "-O2", "-Wall", *map(str, args)], capture_output=True, text=True)
    if done.returncode or done.stderr:
        fail(f"cc {args}: {done.stderr}")


def plugin(name, *libs):
    out = tmp() / f"{name}.so"
    cc("-shared", "-fPIC", f"-DNAME={name}", f"-I{SRC}/client/include", tmp() / "plugin.c", "-o", out, *libs)
    return out


cc(tmp() / "host.c", "-o", tmp() / "host", "-ldl")
shared = plugin("shared", f"-L{BUILD}/.libs", "-ltracerd", f"-Wl,-rpath,{BUILD}/.libs")
static = plugin("static", BUILD / "libtracerd.a", "-ljson-c")
other = plugin("other", BUILD / "libtracerd.a", "-ljson-c")


class Host(Shell):
    def __init__(self, d):
        self.process = spawn(tmp() / "host", stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1,
                             env={**os.environ, "TRACERD_SOCKET": str(d.sock)})
        self.pid = self.process.pid
        self.answer("ready")

    def load(self, n, path):
        self.tell(f"{n} {path}", "loaded")

    def wait(self, n, what):
        wait_for(f"the plug-in is {what}", lambda: self.tell(f"{n}error") == what)


with Tracerd() as d, d.client() as c:
    for name, path in (("shared", shared), ("static", static)):
        h = Host(d)
        h.load(0, path)
        h.tell("0start", "ok")
        h.wait(0, "connected")
        h.tell("0work", "worked")
        h.tell("0 unload", "0")
        # Its memory may be somebody else's now.
        h.load(1, other)
        h.tell("1work", "worked")
        h.tell("1 unload", "0")
        t = wait_events(c, h.pid, "live")
        want = [name, f"{name} on a thread"]
        expect(instants(c, t["id"]) == want and "tracerd" in threads_of(h.pid),
               f"{name}: the plug-in is unloaded; its events are there, and its helper goes on")
        h.load(0, path)
        h.tell("0work", "worked")
        expect(instants(c, t["id"]) == want + want, f"{name}: loaded again, it goes on where it was")
        h.tell("0stop", "stopped")
        wait_events(c, h.pid, "ended")
        h.tell("0start", "ok")
        h.wait(0, "connected")
        h.tell("0work", "worked")

        # Two libraries in a process: one of them is taken in.
        h.load(1, other)
        h.tell("1start", "ok")
        h.wait(1, "busy")
        h.tell("1work", "worked")
        t = wait_events(c, h.pid, "live")
        expect(instants(c, t["id"]) == want * 3, f"{name}: a second library in the process disturbs nobody")
        h.tell("0stop", "stopped")
        h.wait(1, "connected")
        h.tell("1work", "worked")
        t = wait_events(c, h.pid, "live")
        expect(instants(c, t["id"])[-2:] == ["other", "other on a thread"], f"{name}: and has its turn afterwards")
        h.end()
