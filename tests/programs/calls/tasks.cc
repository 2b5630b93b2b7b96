// SPDX-License-Identifier: Apache-2.0
/*
 * C++20 coroutines that go on with each other by symmetric transfer: who awaits another one jumps to it, and that jumps back at its end.
 * Each of them says in CALLS_LOG who it is, by a call of mark(), whenever it runs.
 */
#include <coroutine>
#include <cstdio>
#include <cstdlib>
#include <exception>

static FILE *out;

extern "C" __attribute__((noinline)) void mark(const char *who)
{
	fprintf(out, "%s\n", who);
}

struct task {
	struct promise_type;
	using handle = std::coroutine_handle<promise_type>;

	struct transfer {
		bool await_ready() noexcept { return false; }
		std::coroutine_handle<> await_suspend(handle h) noexcept { return h.promise().next; }
		void await_resume() noexcept {}
	};

	struct promise_type {
		std::coroutine_handle<> next = std::noop_coroutine();
		std::exception_ptr error;
		int value = 0;

		task get_return_object() { return task(handle::from_promise(*this)); }
		std::suspend_always initial_suspend() noexcept { return {}; }
		transfer final_suspend() noexcept { return {}; }
		void return_value(int v) { value = v; }
		void unhandled_exception() { error = std::current_exception(); }
	};

	handle h;

	explicit task(handle of) : h(of) {}
	task(const task &) = delete;
	~task() { h.destroy(); }

	bool await_ready() { return false; }
	std::coroutine_handle<> await_suspend(std::coroutine_handle<> caller)
	{
		h.promise().next = caller;
		return h;
	}
	int await_resume()
	{
		if (h.promise().error)
			std::rethrow_exception(h.promise().error);
		return h.promise().value;
	}
};

static task leaf(int n)
{
	mark("leaf");
	if (n == 3)
		throw 7;
	co_return n;
}

static task middle(int n)
{
	int sum = 0;

	mark("middle");
	for (int i = 0; i < n; i++) {
		sum += co_await leaf(i % 3);
		mark("middle");
	}
	co_return sum;
}

static task thrower()
{
	int v = 0;

	mark("thrower");
	try {
		v = co_await leaf(3);
	} catch (int e) {
		mark("thrower");
		v = e;
	}
	co_return v;
}

static task root(int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++) {
		mark("root");
		sum += co_await middle(i);
		sum += co_await thrower();
	}
	mark("root");
	co_return sum;
}

__attribute__((noinline)) static int drive(int n)
{
	task t = root(n);

	t.h.resume();
	return t.h.promise().value;
}

int main()
{
	int sum;

	out = fopen(getenv("CALLS_LOG"), "w");
	if (!out)
		return 1;
	sum = drive(8);
	fclose(out);
	return sum != 98;
}
