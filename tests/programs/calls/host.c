// SPDX-License-Identifier: Apache-2.0
/* Loads the plug-in that it is given, calls it and lets it call back, unloads it, and does that once more. */
#include <dlfcn.h>
#include <stdio.h>

int host_adds(int x);
int host_adds(int x)
{
	return x + 1;
}

static int use(const char *path)
{
	void *lib = dlopen(path, RTLD_NOW);
	int (*enter)(int (*)(int), int) = NULL;
	int r;

	if (!lib)
		return -1;
	*(void **)&enter = dlsym(lib, "plugin_enter");
	r = enter ? enter(host_adds, 3) : -1;
	dlclose(lib);
	return r;
}

int main(int argc, char **argv)
{
	int sum = 0;

	for (int i = 1; i < argc; i++)
		sum += use(argv[i]);
	printf("%d\n", sum);
	return sum < 0;
}
