# SPDX-License-Identifier: Apache-2.0
"""A C program's ways to one function that are nearly alike, for tests of stacks that are taken over from the thread's last one, and what path is which."""

# LEAF is the function's name, a macro. What calls ALONG() is around it.
CALLERS = r"""
#include <alloca.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
static volatile long sink;
static long long now(clockid_t clock) { struct timespec t; clock_gettime(clock, &t); return t.tv_sec * 1000000000ll + t.tv_nsec; }
#define KEEP __attribute__((noinline))
void LEAF(void);
KEEP void middle(void) { LEAF(); sink++; }
KEEP void by_one(void) { middle(); sink++; }
KEEP void by_two(void) { middle(); sink++; }
KEEP void by_three(void) { LEAF(); sink++; }
/* Together they take the same from the stack. */
KEEP void inner(unsigned int n) { char *p = alloca(n); memset(p, 0, n); middle(); sink += p[0]; }
KEEP void by_near(unsigned int n) { char *p = alloca(n); memset(p, 0, n); inner(320 - n); sink += p[0]; }
KEEP void by_far(unsigned int n) { char *p = alloca(n); memset(p, 0, n); inner(320 - n); sink += p[0]; }
#define ALONG(way) \
	switch (way) { \
	case 0: by_one(); break; \
	case 1: by_two(); break; \
	case 2: by_three(); break; \
	case 3: by_near(64); break; \
	case 4: by_near(256); break; \
	case 5: by_far(64); break; \
	case 6: by_far(256); break; \
	} \
	sink++
static const char *const ways[] = {"by_one", "by_two", "by_three", "by_near", "by_near", "by_far", "by_far"};
/* Often the same again, else by another caller near or far from the function. */
#define PICK(way, side, seed) \
	switch (rand_r(&seed) % 4) { \
	case 0: way = rand_r(&seed) % 7; break; \
	case 1: side = rand_r(&seed) % 2; break; \
	default: break; \
	}
"""


def is_on_path(stack, side, way, leaf):
    """Whether the functions of the stack, the outermost first, are from main on those of this way."""
    path = ["main", side, *["deep"] * 7, way, *(["inner"] if way in ("by_near", "by_far") else []),
            *(["middle"] if way != "by_three" else []), leaf]
    return "main" in stack and stack[stack.index("main"):][:len(path)] == path
