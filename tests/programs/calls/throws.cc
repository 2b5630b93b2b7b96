// SPDX-License-Identifier: Apache-2.0
// Exceptions through frames with and without something to clean up, thrown again, out of callbacks, from a constructor, under
// recursion with the handler in an outer call of the same function.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

static volatile int sink;

struct noisy {
	int n;
	explicit noisy(int v) : n(v)
	{
		if (v == 13)
			throw std::runtime_error("unlucky");
	}
	~noisy()
	{
		sink = n;
	}
};

static int leaf(int n)
{
	if (n % 3 == 0)
		throw n;
	if (n % 5 == 0)
		throw std::logic_error("five");
	return n;
}

static int plain(int n)
{
	return leaf(n) + 1;
}

static int cleans(int n)
{
	noisy a(n);
	std::string s(static_cast<size_t>(n % 40), 'x');

	return plain(n) + static_cast<int>(s.size());
}

static int again(int n)
{
	try {
		return cleans(n);
	} catch (const std::logic_error &) {
		throw;
	}
}

static int catches(int n)
{
	try {
		return again(n);
	} catch (int v) {
		return -v;
	} catch (const std::exception &e) {
		return static_cast<int>(e.what()[0]);
	}
}

static int recursive(int n)
{
	if (n == 0)
		throw 1;
	if (n == 3) {
		try {
			return recursive(n - 1);
		} catch (int) {
			return plain(1);
		}
	}
	return recursive(n - 1) + plain(2);
}

static int apply(const std::function<int(int)> &f, int n)
{
	return f(n);
}

int main()
{
	std::vector<int> v;
	int sum = 0;

	for (int i = 1; i < 16; i++) {
		try {
			sum += catches(i);
		} catch (const std::runtime_error &) {
			sum++;
		}
		v.push_back(i * 37 % 17);
	}
	sum += recursive(6);
	try {
		std::sort(v.begin(), v.end(), [](int a, int b) {
			if (a == 16 || b == 16)
				throw a;
			return a < b;
		});
	} catch (int n) {
		sum += n;
	}
	try {
		sum += apply([](int n) { return cleans(n); }, 9);
	} catch (int n) {
		sum += n;
	}
	std::printf("%d\n", sum);
	return 0;
}
