// SPDX-License-Identifier: Apache-2.0
/*
 * How a C++ program writes its own events: a queue of jobs, of which some take long.
 *
 *	c++ -std=c++11 -O2 -pthread -o slowqueue slowqueue.cpp $(pkg-config --cflags --libs tracerd)
 *	./slowqueue [SECONDS] &
 *	tracectl trigger add $! --region job --over 20ms
 *
 * A job is a task: it begins where it is put into the queue and ends on the thread that did it. What the worker does
 * for it is a region, which ends with its block although some jobs throw.
 */
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include <tracerd.h>

namespace
{

using std::chrono::milliseconds;

struct Job {
	tracerd::Task task;
	int number;
};

class Queue
{
public:
	void put(Job job)
	{
		std::lock_guard<std::mutex> held(lock_);

		jobs_.push_back(std::move(job));
		tracerd_counter(TRACERD_NAME("jobs that wait"), static_cast<int64_t>(jobs_.size()));
		changed_.notify_one();
	}

	Job take()
	{
		std::unique_lock<std::mutex> held(lock_);

		changed_.wait(held, [this] { return !jobs_.empty(); });
		Job job = std::move(jobs_.front());
		jobs_.pop_front();
		return job;
	}

private:
	std::mutex lock_;
	std::condition_variable changed_;
	std::deque<Job> jobs_;
};

void render(int number)
{
	tracerd::Region region("render");

	if (number % 7 == 6)
		throw std::runtime_error("job " + std::to_string(number) + " cannot be rendered");
	/* the rare slow one */
	std::this_thread::sleep_for(milliseconds(number % 10 == 9 ? 30 : 1));
}

void work(Queue &queue)
{
	tracerd_thread_name(TRACERD_NAME("worker"));
	for (;;) {
		Job job = queue.take();

		if (job.number < 0)
			return;
		tracerd::Region region("job", {tracerd::arg("number", job.number)}, job.task.id());

		try {
			render(job.number);
		} catch (const std::exception &e) {
			tracerd_log(TRACERD_WARNING, "%s", e.what());
		}
	}
}

} // namespace

int main(int argc, char **argv)
{
	const int seconds = argc > 1 ? std::atoi(argv[1]) : 60;
	Queue queue;
	int jobs = 0;

	tracerd_start(nullptr);
	std::thread worker(work, std::ref(queue));

	for (; jobs / 100 < seconds; jobs++) {
		queue.put(Job{tracerd::Task("order"), jobs});
		std::this_thread::sleep_for(milliseconds(10));
	}
	queue.put(Job{tracerd::Task("end"), -1});
	worker.join();
	std::printf("did %d jobs\n", jobs);
	tracerd_stop();
	return 0;
}
