// SPDX-License-Identifier: Apache-2.0
// For step-perf.sh: exceptions through several frames with destructors, thrown again, caught by type.
#include <cstdio>
#include <stdexcept>
#include <string>

struct guard {
	std::string s;
	~guard() { destroyed++; }
	static int destroyed;
};
int guard::destroyed;

static int depth(int n)
{
	guard g{"level " + std::to_string(n)};

	if (n == 0)
		throw std::runtime_error("bottom");
	return depth(n - 1) + static_cast<int>(g.s.size());
}

static int twice()
{
	try {
		return depth(5);
	} catch (const std::exception &) {
		try {
			throw;
		} catch (const std::runtime_error &e) {
			return static_cast<int>(std::string(e.what()).size());
		}
	}
}

int main()
{
	int sum = 0;

	for (int i = 0; i < 3; i++)
		sum += twice();
	std::printf("%d %d\n", sum, guard::destroyed);
	return 0;
}
