// SPDX-License-Identifier: Apache-2.0
/*
 * Random programs whose calls are known: from their packets through the walk and the rules of the
 * stack to a tree of calls, which is the model's, call by call, with the number of instructions at
 * which each begins and ends. And damage: calls in front of it and behind it are the same.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "decode/calls/callstack.h"
#include "decode/pt/flow.h"
#include "tests/unit/decode/pt/pt-program.h"

#define SEEDS 200u

struct slice {
	uint64_t function, begin, end; /* where in the trace */
	uint64_t called; /* where its frame began: a tail call takes the place of what was called */
	bool made_up; /* it was there before; or goes on */
};

struct tree {
	struct ptprogram p;
	struct callfunc functions[PTPROGRAM_FUNCTIONS], unknown;
	struct callstack *calls;
	struct codeblocks *blocks;
	struct ptflow *f;
	struct ptprogram_call *v; /* as the model has them */
	size_t n, cap;
	struct slice *slices;
	size_t n_slices, cap_slices;
	size_t open[CALLSTACK_FREE_DEPTH]; /* slices */
	uint32_t depth;
	uint64_t offset;
	bool began;
};

static const struct ptprogram_function *function_at(const struct ptprogram *p, uint64_t ip,
						    size_t *ret_i)
{
	for (size_t i = 0; i < p->n_functions; i++)
		if (ip >= p->functions[i].start && ip < p->functions[i].end) {
			*ret_i = i;
			return &p->functions[i];
		}
	return NULL;
}

static const struct callfunc *on_function(void *arg, uint64_t ip, bool *ret_first)
{
	struct tree *t = arg;
	size_t i;
	const struct ptprogram_function *f = function_at(&t->p, ip, &i);

	*ret_first = f && ip == f->start;
	return f ? &t->functions[i] : &t->unknown;
}

static bool on_lands(void *arg, uint64_t call, uint64_t pad)
{
	const struct tree *t = arg;
	size_t i;
	const struct ptprogram_function *f = function_at(&t->p, pad, &i);

	return f && f->pad == pad && call >= f->start && call < f->end;
}

static void add(struct tree *t, uint64_t function, uint64_t insns)
{
	if (t->n == t->cap) {
		t->cap = t->cap ? t->cap * 2 : 1024;
		t->v = reallocarray(t->v, t->cap, sizeof(*t->v));
		assert_non_null(t->v);
	}
	t->v[t->n++] = (struct ptprogram_call){function, insns};
}

static void on_begin(void *arg, uint64_t time, const struct callstack_frame *fr, struct call *call,
		     enum callstack_why why)
{
	struct tree *t = arg;
	struct slice *s;

	if (t->n_slices == t->cap_slices) {
		t->cap_slices = t->cap_slices ? t->cap_slices * 2 : 1024;
		t->slices = reallocarray(t->slices, t->cap_slices, sizeof(*t->slices));
		assert_non_null(t->slices);
	}
	assert_true(t->depth < CALLSTACK_FREE_DEPTH);
	s = &t->slices[t->n_slices];
	*s = (struct slice){.function = fr->f->start,
			    .begin = t->offset,
			    .called = t->offset,
			    .made_up = why == CALLSTACK_FOUND || why == CALLSTACK_GAP ||
				       why == CALLSTACK_RESUMED ||
				       why == CALLSTACK_UNWOUND_DOUBTED};
	/* it has ended, and goes on, for it may be another call */
	for (size_t i = t->n_slices;
	     why == CALLSTACK_UNWOUND_DOUBTED && i > 0 && i + CALLSTACK_FREE_DEPTH > t->n_slices;
	     i--)
		t->slices[i - 1].made_up |= t->slices[i - 1].end == t->offset;
	if (why == CALLSTACK_TAIL) {
		/* of what has just ended there */
		const struct slice *before = &t->slices[t->open[t->depth]];

		s->called = before->called;
		s->made_up = before->made_up;
	}
	call->begin = t->offset;
	t->open[t->depth++] = t->n_slices++;
	/* the outermost one is there before all */
	if (t->began)
		add(t, fr->f->start, time);
	t->began = true;
}

static void on_end(void *arg, uint64_t time, struct call *call)
{
	struct tree *t = arg;

	assert_true(t->depth > 0);
	t->slices[t->open[--t->depth]].end = t->offset;
	assert_int_equal(call->begin, t->slices[t->open[t->depth]].begin);
	add(t, 0, time);
}

static void on_event(struct tree *t, const struct ptflow_event *e)
{
	const uint64_t now = e->insns;

	t->offset = e->offset;
	switch (e->kind) {
	case PTFLOW_CALL:
	case PTFLOW_CALL_INDIRECT:
		callstack_call(t->calls, now, e->from, e->from + e->length, e->to);
		break;
	case PTFLOW_RET:
		callstack_return(t->calls, now, e->from, e->to);
		break;
	case PTFLOW_COND:
	case PTFLOW_JUMP:
	case PTFLOW_JUMP_INDIRECT:
		callstack_jump(t->calls, now, e->from, e->to, e->kind == PTFLOW_JUMP_INDIRECT);
		break;
	case PTFLOW_ENABLE:
		callstack_resume(t->calls, now, e->to);
		break;
	case PTFLOW_DISABLE:
	case PTFLOW_DISABLE_ASYNC:
		callstack_stop(t->calls, now, e->from,
			       e->kind == PTFLOW_DISABLE ? e->from + e->length : 0);
		break;
	case PTFLOW_RESYNC:
		callstack_resync(t->calls, now, e->to);
		break;
	case PTFLOW_DESYNC:
	case PTFLOW_OVERFLOW:
		callstack_gap(t->calls, now);
		break;
	default:
		break;
	}
}

static int sink(void *arg, const struct ptflow_event *events, size_t n)
{
	for (size_t i = 0; i < n; i++)
		on_event(arg, &events[i]);
	return 0;
}

static void tree_init(struct tree *t, uint64_t seed, const struct ptprogram_options *o, bool all)
{
	static const struct callstack_ops ops = {.function = on_function,
						 .lands = on_lands,
						 .begin = on_begin,
						 .end = on_end};
	struct ptflow_options fo = {.sink = sink, .arg = t, .all = all};

	memset(t, 0, sizeof(*t));
	ptprogram_run(&t->p, seed, o);
	for (size_t i = 0; i < t->p.n_functions; i++)
		t->functions[i] = (struct callfunc){.start = t->p.functions[i].start,
						    .id = (uint32_t)i + 1,
						    .known = true};
	assert_int_equal(callstack_new(&ops, t, NULL, &t->calls), 0);
	assert_int_equal(codeblocks_new(ptprogram_read, NULL, &t->p, 1u << 20, &t->blocks), 0);
	fo.code = t->blocks;
	assert_int_equal(ptflow_new(&fo, &t->f), 0);
}

static void tree_fini(struct tree *t)
{
	ptflow_free(t->f);
	codeblocks_free(t->blocks);
	callstack_free(t->calls);
	free(t->v);
	free(t->slices);
	ptprogram_fini(&t->p);
}

static void follow(struct tree *t)
{
	assert_int_equal(ptflow_run(t->f, t->p.trace.bytes, t->p.trace.bytes + t->p.trace.n, NULL),
			 0);
}

static struct ptprogram_options options_of(uint64_t seed)
{
	uint64_t random = seed * 31 + 7;

	return (struct ptprogram_options){.tidy = true,
		.insns = 2000 + ptprogram_random(&random, 30000),
		.psb_each = (unsigned int)ptprogram_random(&random, 3) * 200,
		.signal_each = (unsigned int)ptprogram_random(&random, 3) * 150,
		.throws = ptprogram_random(&random, 2),
		.tnt47 = ptprogram_random(&random, 2),
		.defer = ptprogram_random(&random, 2),
		.plain_returns = ptprogram_random(&random, 2)};
}

static void is_model(const struct tree *t, uint64_t seed)
{
	const struct ptprogram *p = &t->p;

	for (size_t i = 0; i < p->n_calls || i < t->n; i++) {
		const struct ptprogram_call none = {1, 0},
					    *a = i < p->n_calls ? &p->calls[i] : &none,
					    *b = i < t->n ? &t->v[i] : &none;

		if (a->function != b->function || a->insns != b->insns)
			fail_msg("seed %lu: call %zu of %zu: %lx at %lu, not %lx at %lu", seed, i,
				 p->n_calls, b->function, b->insns, a->function, a->insns);
	}
}

static void test_random_trees(void **state)
{
	static struct tree t;
	unsigned int deepest = 0;
	uint64_t unwound = 0, signals = 0, tails = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		const struct ptprogram_options o = options_of(seed);

		for (int all = 0; all < 2; all++) {
			const struct callstack_stats *s;

			tree_init(&t, seed, &o, all);
			follow(&t);
			is_model(&t, seed);
			s = callstack_stats(t.calls);
			assert_int_equal(s->unexplained, 0);
			assert_int_equal(s->inferred, 0);
			assert_int_equal(s->too_deep, 0);
			unwound += s->unwound;
			signals += s->signals;
			tails += s->tails;
			deepest = t.p.deepest > deepest ? t.p.deepest : deepest;
			callstack_finish(t.calls, UINT64_MAX);
			assert_int_equal(t.depth, 0);
			tree_fini(&t);
		}
	}
	/* they did all that */
	assert_true(deepest > 60);
	assert_true(unwound > 1000);
	assert_true(signals > 1000);
	assert_true(tails > 1000);
}

/* The calls that are wholly within some bytes of the trace. */
static size_t within(const struct tree *t, uint64_t from, uint64_t to, struct slice *ret)
{
	size_t n = 0;

	for (size_t i = 0; i < t->n_slices; i++)
		if (!t->slices[i].made_up && t->slices[i].called >= from && t->slices[i].end < to &&
		    t->slices[i].end)
			ret[n++] = t->slices[i];
	return n;
}

static void same_calls(const struct tree *good, const struct tree *bad, uint64_t from, uint64_t to,
		       uint64_t seed)
{
	struct slice *a = calloc(good->n_slices + 1, sizeof(*a)),
		     *b = calloc(bad->n_slices + 1, sizeof(*b));
	size_t n, m;

	assert_true(a && b);
	n = within(good, from, to, a);
	m = within(bad, from, to, b);
	for (size_t i = 0; i < n || i < m; i++)
		if (i >= n || i >= m || a[i].function != b[i].function ||
		    a[i].begin != b[i].begin || a[i].end != b[i].end)
			fail_msg(
				"seed %lu: bytes %lx..%lx: call %zu of %zu (%zu in the whole trace): %lx at %lx..%lx, not %lx at %lx..%lx",
				seed, from, to, i, m, n, i < m ? b[i].function : 0,
				i < m ? b[i].begin : 0, i < m ? b[i].end : 0,
				i < n ? a[i].function : 0, i < n ? a[i].begin : 0,
				i < n ? a[i].end : 0);
	free(a);
	free(b);
}

static void test_damage(void **state)
{
	static struct tree good, bad;
	size_t behind = 0, hurt = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS * 2; seed++) {
		struct ptprogram_options o = options_of(seed);
		uint64_t random = seed, from, to;
		size_t k;

		/* what leaves a call that was lost says nothing of those it leaves */
		o.throws = false;
		o.signal_each = 0;
		o.psb_each = 150;
		tree_init(&good, seed, &o, seed % 2);
		tree_init(&bad, seed, &o, seed % 2);
		if (good.p.n_psbs < 4) {
			tree_fini(&good);
			tree_fini(&bad);
			continue;
		}
		k = 1 + ptprogram_random(&random, good.p.n_psbs - 2);
		from = good.p.psbs[k];
		to = good.p.psbs[k + 1];
		for (uint64_t at = from + ptprogram_random(&random, to - from),
			      n = 1 + ptprogram_random(&random, 16);
		     at < to && n; at++, n--)
			bad.p.trace.bytes[at] = (uint8_t)ptprogram_random(&random, 256);
		follow(&good);
		follow(&bad);
		same_calls(&good, &bad, 0, from, seed);
		/* its header is read in front of where it begins */
		same_calls(&good, &bad, to + 64, UINT64_MAX, seed);
		hurt += bad.n_slices != good.n_slices;
		for (size_t i = 0; i < good.n_slices; i++)
			behind += good.slices[i].begin >= to + 64;
		tree_fini(&good);
		tree_fini(&bad);
	}
	assert_true(behind > 10000);
	assert_true(hurt > SEEDS / 4);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random_trees),
		cmocka_unit_test(test_damage),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
