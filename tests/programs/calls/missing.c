/* SPDX-License-Identifier: Apache-2.0 */
/* A program that calls a library from every depth, and that calls it back. PART 1 is the library, whose code is away when the trace is decoded. */
#if PART == 1
volatile int lib_sink;

__attribute__((noinline)) static void leaf(int n)
{
	for (int i = 0; i < n; i++)
		lib_sink += i;
}

void lib_work(int n)
{
	leaf(n);
	lib_sink++;
}

int lib_compare(const int *a, const int *b, int (*f)(const int *, const int *))
{
	lib_sink++;
	return f(a, b);
}
#else
void lib_work(int n);
int lib_compare(const int *a, const int *b, int (*f)(const int *, const int *));

static volatile int sink;

static int compare(const int *a, const int *b)
{
	sink++;
	return *a - *b;
}

static void fourth(int i)
{
	lib_work(i % 3);
	sink++;
}

static void third(int i)
{
	lib_work(1);
	fourth(i);
	sink += lib_compare(&i, &i, compare);
	lib_work(2);
	fourth(i + 1);
}

static void second(int i)
{
	third(i);
	lib_work(1);
	third(i + 1);
	sink++;
}

static void first(int i)
{
	for (int k = 0; k < 3; k++) {
		lib_work(k);
		second(i + k);
	}
	sink++;
}

int main(void)
{
	for (int i = 0; i < 12; i++)
		first(i);
	return 0;
}
#endif
