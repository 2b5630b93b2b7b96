// SPDX-License-Identifier: Apache-2.0
/* What host.c loads. */
int plugin_enter(int (*back)(int), int n);

static int inner(int (*back)(int), int n)
{
	return n == 0 ? 0 : back(n) + inner(back, n - 1);
}

int plugin_enter(int (*back)(int), int n)
{
	return inner(back, n) * 2;
}
