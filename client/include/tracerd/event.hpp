/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Events of the program itself, for C++11 and later. A region or a task lasts as long as an object: it ends when the
 * object's block is left, also by an exception.
 *
 *	#include <tracerd.h>
 *
 *	void serve(const Request &req)
 *	{
 *		tracerd::Region region("serve", {tracerd::arg("path", req.path), tracerd::arg("bytes", req.size)});
 *		...
 *	}
 *
 * All of it calls tracerd/event.h, whose rules hold: nothing throws, locks or allocates. Moments, logs, counters and
 * flows are used as in C.
 */
#ifndef TRACERD_EVENT_HPP
#define TRACERD_EVENT_HPP

#include <initializer_list>
#include <string>
#include <type_traits>

#include <tracerd/event.h>

/* `tracerd::Region("x");` ends where it begins, for the object has no name: compilers that can warn of that do. */
#if defined(__has_cpp_attribute) && (__cplusplus >= 201703L || !defined(__clang__))
#if __has_cpp_attribute(nodiscard) >= 201907L
#define TRACERD_NODISCARD_ [[nodiscard]]
#endif
#endif
#ifndef TRACERD_NODISCARD_
#define TRACERD_NODISCARD_
#endif

namespace tracerd
{

/*
 * A name: a text, or what TRACERD_NAME("x") returns. A text is looked up by hash at each use, which takes about 20 ns,
 * and nothing while nothing is recorded; TRACERD_NAME() looks up once.
 */
class Name
{
public:
	Name(const char *text) noexcept : number_(tracerd_enabled() ? tracerd_intern(text) : 0)
	{
	}
	Name(tracerd_name number) noexcept : number_(number)
	{
	}
	operator tracerd_name() const noexcept
	{
		return number_;
	}

private:
	tracerd_name number_;
};

/* An argument of a region. It points to its text, which must live until the region's constructor has returned. */
template <typename Integer>
typename std::enable_if<std::is_integral<Integer>::value, tracerd_arg>::type arg(Name key, Integer value) noexcept
{
	return std::is_signed<Integer>::value ? tracerd_i64(key, static_cast<int64_t>(value))
					      : tracerd_u64(key, static_cast<uint64_t>(value));
}

inline tracerd_arg arg(Name key, double value) noexcept
{
	return tracerd_f64(key, value);
}

inline tracerd_arg arg(Name key, const char *text) noexcept
{
	return tracerd_text(key, text, text ? std::char_traits<char>::length(text) : 0);
}

inline tracerd_arg arg(Name key, const std::string &text) noexcept
{
	return tracerd_text(key, text.data(), text.size());
}

/* Something with a begin and an end on one thread or fiber: it lasts as long as the object. */
class Region
{
public:
	/* `task` is the id of the task that it is a part of, or 0. */
	TRACERD_NODISCARD_ explicit Region(
		Name name, uint64_t task = 0, const tracerd_arg *args = nullptr, size_t n_args = 0) noexcept
	    : region_(tracerd_region_begin_with(name, task, args, n_args))
	{
	}
	TRACERD_NODISCARD_ Region(Name name, std::initializer_list<tracerd_arg> args, uint64_t task = 0) noexcept
	    : Region(name, task, args.begin(), args.size())
	{
	}
	~Region()
	{
		tracerd_region_end(region_);
	}
	Region(const Region &) = delete;
	Region &operator=(const Region &) = delete;

private:
	tracerd_region region_;
};

/* Something that may end on another thread than it began: it lasts as long as the object, which can be moved there. */
class Task
{
public:
	/* `parent` is the id of the task that this one is a part of, or 0. */
	TRACERD_NODISCARD_ explicit Task(Name name, uint64_t parent = 0) noexcept
	    : task_(tracerd_task_begin(name, parent))
	{
	}
	Task(Task &&other) noexcept : task_(other.task_)
	{
		other.task_.id = 0;
	}
	~Task()
	{
		tracerd_task_end(task_);
	}
	Task(const Task &) = delete;
	Task &operator=(const Task &) = delete;

	/* For its parts, on any thread; 0 while nothing is recorded. */
	uint64_t id() const noexcept
	{
		return task_.id;
	}

private:
	tracerd_task task_;
};

} /* namespace tracerd */

#endif /* TRACERD_EVENT_HPP */
