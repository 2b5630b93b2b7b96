// SPDX-License-Identifier: Apache-2.0
// tracerd.h in a C++ program: it compiles, links with the shared library and calls it.
#include <tracerd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

int main()
{
	tracerd_client *client = nullptr;
	int r = tracerd_connect("/nonexistent/control.sock", 100, &client);

	if (r != -ENOENT || client) {
		std::printf("not ok: connect gave %d\n", r);
		return 1;
	}
	if (std::strcmp(tracerd_error_name(r), "ENOENT") != 0 ||
		std::strcmp(tracerd_error_name(TRACERD_E_GONE), "gone") != 0) {
		std::printf("not ok: names of errors\n");
		return 1;
	}
	tracerd_close(client);
	tracerd_reply_free(nullptr);
	tracerd_event_free(nullptr);
	std::printf("ok: library %s\n", tracerd_version());
	return 0;
}
