// SPDX-License-Identifier: Apache-2.0
/* PCRE2's just-in-time compiler: what it makes calls back, and that matches again, by the same code and by other code. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <stdlib.h>

static volatile long sink;
static pcre2_code *codes[3];

static void match(int which, int depth);

static __attribute__((noinline)) void leaf(long v)
{
	sink += v;
}

static void within(int which, int depth)
{
	leaf(depth);
	if (depth > 0)
		match(which, depth - 1);
	leaf(which);
}

static int on_callout(pcre2_callout_block *b, void *arg)
{
	leaf((long)b->callout_number);
	if (b->callout_number == 2)
		within((int)b->current_position % 3, *(int *)arg);
	leaf(3);
	return b->callout_number == 3 && *(int *)arg == 1 ? 1 : 0; /* it fails there, and tries elsewhere */
}

static void match(int which, int depth)
{
	static const PCRE2_UCHAR text[] = "xabcabcdyaabbccdz";
	pcre2_match_data *data = pcre2_match_data_create(8, NULL);
	pcre2_match_context *context = pcre2_match_context_create(NULL);

	pcre2_set_callout(context, on_callout, &depth);
	leaf(pcre2_match(codes[which], text, sizeof(text) - 1, 0, 0, data, context));
	pcre2_match_context_free(context);
	pcre2_match_data_free(data);
	leaf(5);
}

int main(void)
{
	static const char *const patterns[] = {"(a(?C1)b?(?C2))+c(?C3)d", "(?:(a+)(?C1)(b+)(?C2)|x)c+(?C3)dz", "([a-c](?C2)){2}(?C1)(?R)?d"};
	PCRE2_SIZE at;
	int error;

	for (int i = 0; i < 3; i++) {
		codes[i] = pcre2_compile((PCRE2_SPTR)patterns[i], PCRE2_ZERO_TERMINATED, 0, &error, &at, NULL);
		if (!codes[i] || pcre2_jit_compile(codes[i], PCRE2_JIT_COMPLETE) != 0)
			return 1;
	}
	for (int i = 0; i < 3; i++)
		for (int depth = 0; depth < 2; depth += 1 + (i > 0))
			match(i, depth);
	return 0;
}
