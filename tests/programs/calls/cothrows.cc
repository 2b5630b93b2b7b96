// SPDX-License-Identifier: Apache-2.0
/*
 * Exceptions and coroutines: thrown and caught in them, carried out to whoever resumes them and thrown again there, thrown into them to
 * cancel them; and coroutines that wait in landing pads, destructors and handlers of exceptions, while others throw.
 */
#include <cstdint>
#include <exception>

#define TASKS 6
#define STACK (128u << 10)
#define SEED 11

#include "handmade.h"

/* What the runtime keeps of exceptions that are handled belongs to the stack. */
struct globals {
	void *caught;
	unsigned uncaught;
};
extern "C" globals *__cxa_get_globals() noexcept;

static struct task {
	void *sp;
	char *stack;
	int live, cancelled, shape;
	globals kept;
	std::exception_ptr error;
} tasks[TASKS]; /* the first is main */
static int current;

struct cancelled_t {};

static void transfer(int to)
{
	const int from = current;
	globals *g = __cxa_get_globals();

	leaf(1);
	tasks[from].kept = *g;
	*g = tasks[to].kept;
	current = to;
	swap_stacks(&tasks[from].sp, tasks[to].sp);
	leaf(2);
}

static void give()
{
	int to = (int)draw(TASKS);

	if (!tasks[to].live || to == current)
		to = 0;
	if (to != current)
		transfer(to);
}

static void pause_here()
{
	give();
	if (tasks[current].cancelled && !std::uncaught_exceptions()) {
		tasks[current].cancelled = 0;
		throw cancelled_t();
	}
	leaf(3);
}

struct cleanup {
	~cleanup() { give(); leaf(4); }
};

static void thrower(int n)
{
	cleanup c;

	leaf(n);
	if (n == 0)
		throw 5;
	thrower(n - 1);
}

static void catcher(int n)
{
	try {
		thrower(n);
	} catch (int v) {
		leaf(v);
		pause_here();
		if (draw(2))
			throw;
		leaf(5);
	}
	pause_here();
}

static void walk(int n)
{
	cleanup c;

	if (n > 0)
		walk(n - 1);
	if (draw(2))
		catcher((int)draw(3));
	else
		pause_here();
}

static void start()
{
	task &t = tasks[current];

	try {
		walk(t.shape);
		walk(1);
	} catch (const cancelled_t &) {
		leaf(6);
		give();
	} catch (...) {
		t.error = std::current_exception();
		leaf(7);
	}
	t.live = 0;
	transfer(0);
	abort();
}

static QUIET void make(task &t)
{
	if (!t.stack)
		t.stack = new_stack();
	t.sp = first_frame(t.stack, start);
	t.kept = {};
	t.live = 1;
	t.cancelled = 0;
	t.shape = (int)draw(4);
}

static void resume(int n)
{
	task &t = tasks[n];

	if (!t.live)
		make(t);
	t.cancelled = draw(4) == 0;
	transfer(n);
	for (int i = 1; i < TASKS; i++)
		if (tasks[i].error) {
			std::exception_ptr e = tasks[i].error;

			tasks[i].error = nullptr;
			std::rethrow_exception(e);
		}
}

static void step(int n)
{
	try {
		resume(n);
	} catch (int v) {
		leaf(v);
	}
	leaf(8);
}

int main()
{
	tasks[0].live = 1;
	for (int i = 0; i < 24; i++)
		step(1 + (int)draw(TASKS - 1));
	return 0;
}
