#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The summary of a stepped program: threads and functions go by the instructions that they executed. How long something took is
the stepper's doing, and is not shown as the program's."""
from lib.pt import *

PROGRAM = """
#include <pthread.h>
#include <unistd.h>

static volatile unsigned long x;

__attribute__((noinline)) static void computes(void)
{
	for (unsigned long i = 0; i < 3000; i++)
		x += i;
}

__attribute__((noinline)) static void *sleeps(void *arg)
{
	usleep(2000000);
	return arg;
}

int main(void)
{
	pthread_t t;

	pthread_create(&t, 0, sleeps, 0);
	computes();
	pthread_join(t, 0);
	return 0;
}
"""


def decode(*arguments):
    p = subprocess.run([BUILD / "tracectl", "decode", *arguments], capture_output=True, text=True, timeout=PATIENCE)
    if p.returncode:
        fail(f"tracectl decode: {p.stderr}")
    return p.stdout


def main():
    need_command("gcc")
    if not STEP.exists():
        skip("needs tracerd-step")
    work = tmp()
    source = work / "sleeper.c"
    source.write_text(PROGRAM)
    r = Recording(work, "sleeper.run", [compile_calls(work, "sleeper", [str(source)], "-O1", "-static")])
    log = {int(tid): ips for tid, ips in r.log().items()}

    summary = json.loads(decode("--summary", "--json", r.data))["summary"]
    threads, functions = summary["threads"], summary["functions"]
    expect(summary.get("stepped") is True, "the summary says that the program was stepped")
    counts = {t["tid"]: t["instructions"] for t in threads}
    expect([t["instructions"] for t in threads] == sorted(counts.values(), reverse=True) and
           all(0.9 * len(log[tid]) <= n <= len(log[tid]) for tid, n in counts.items()),
           f"threads go by instructions, as many as the log has: {counts}, {({t: len(i) for t, i in log.items()})}")
    names = [f["name"] for f in functions]
    expect([f["instructions"] for f in functions] == sorted((f["instructions"] for f in functions), reverse=True),
           "functions go by instructions")
    asleep = next((n for n in names if "nanosleep" in n), None)
    expect("computes" in names and (not asleep or names.index("computes") < names.index(asleep)),
           f"what computes comes before what sleeps: {names}")
    told = {key for o in threads + functions for key in o if key.endswith("_ns") and o[key]}
    expect(not told, f"no time of the stepper is told as the program's: {told}")

    text = decode("--summary", r.data)
    expect("times are the stepper's" in text and "INSTRUCTIONS" in text and "TRACED" not in text and "ITSELF" not in text,
           "in text, too")


main()
