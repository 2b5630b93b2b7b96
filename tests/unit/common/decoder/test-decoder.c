// SPDX-License-Identifier: Apache-2.0
/* The parent's end of a decoder, when each of its allocations fails in turn. */
#include "common/decoder/decoder.h"

#include <errno.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "common/control/json.h"

#define END_MS 20000

#ifndef __SANITIZE_ADDRESS__
static long fail_in; /* the n-th from now; 0: none */

static bool malloc_fails(void)
{
	return fail_in > 0 && --fail_in == 0;
}

#include "tests/programs/failing_malloc.h"

struct scene {
	long nth;
	bool ended;
	enum decoder_end end;
	char message[200];
};

static void on_request(struct decoder *d, const struct file_request *request, void *arg)
{
	const struct file_answer file = {.req = request->req, .why = "not here"};
	struct scene *s = arg;

	fail_in = s->nth;
	(void)decoder_answer(d, &file, -1);
	s->nth = fail_in; /* 0: it has failed */
	fail_in = 0;
}

static void on_end(struct decoder *d, const struct decoder_outcome *outcome, void *arg)
{
	struct scene *s = arg;

	s->ended = true;
	s->end = outcome->end;
	(void)snprintf(s->message, sizeof(s->message), "%s", outcome->message);
}

/* It waits for its answer, and ends whatever becomes of that. */
static struct scene ask(long nth)
{
	static const struct decoder_callbacks callbacks = {.on_request = on_request,
							   .on_end = on_end};
	const char *build = getenv("TRACERD_BUILD");
	struct scene s = {.nth = nth};
	struct json_object *job = json_object_new_object(),
			   *options = json_add_new_object(job, "options");
	struct decoder *d = NULL;
	char path[4096];

	(void)snprintf(path, sizeof(path), "%s/tests/unit/daemon/snapshot/fake-decoder",
		       build ? build : ".");
	json_add_string(options, "behave", "silent /proc/self/status");
	assert_int_equal(decoder_start(&(struct decoder_options){.path = path}, job, NULL, 0,
				       &callbacks, &s, &d),
			 0);
	json_object_put(job);
	for (unsigned int i = 0; !s.ended; i++) {
		struct pollfd fds[DECODER_N_FDS];

		decoder_poll(d, fds);
		if (poll(fds, DECODER_N_FDS, END_MS) == 0)
			fail_msg(
				"a decoder still waits for its answer, whose allocation %ld failed",
				nth);
		if (i == 10000)
			fail_msg("it is asked for what it says again and again");
		(void)decoder_dispatch(d);
	}
	assert_true(s.ended);
	decoder_free(d);
	return s;
}

static void test_answer_without_memory(void **state)
{
	struct scene s = {0};
	long n;

	for (n = 1; s.nth == 0; n++) {
		s = ask(n);
		if (s.nth == 0) {
			assert_int_equal(s.end, DECODER_CRASHED);
			assert_string_equal(
				s.message, "the decoder was killed: no memory for an answer to it");
		}
	}
	assert_int_equal(s.end, DECODER_DONE);
	assert_true(n > 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answer_without_memory),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
	(void)puts("SKIP: the sanitizer has an allocator of its own");
	return 77;
}
#endif
