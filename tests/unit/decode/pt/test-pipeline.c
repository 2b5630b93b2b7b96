// SPDX-License-Identifier: Apache-2.0
/*
 * A recording of random programs, from its records to merged branches: the model's branches, by
 * whom they were and in order of time; the same on any number of threads; bounded memory; and
 * damage that stays where it is.
 */
#include <elf.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/base/workers.h"
#include "decode/object/image.h"
#include "decode/perf/data.h"
#include "decode/object/process_maps.h"
#include "decode/perf/event.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/code.h"
#include "decode/pt/pipeline.h"
#include "decode/pt/who_ran.h"
#include "tests/unit/cmocka_names.h"
#include "tests/unit/decode/perf/perfdata-make.h"
#include "tests/unit/decode/pt/pt-program.h"

#define PID 100u
#define CODE_OFFSET 0x1000u

struct event {
	uint64_t ns, from, to, insns, sum, offset;
	uint32_t pid, tid, buffer;
	uint32_t kind; /* lists are compared as bytes: no padding */
};

struct list {
	struct event *v;
	size_t n, cap;
	uint64_t insns, losses;
};

struct recording {
	struct make make;
	const struct ptprogram *code;
	size_t most; /* bytes of memory while it ran */
	bool by_moment; /* what happened is taken moment by moment */
};

/* A program of one segment. */
static int code_file(const struct ptprogram *p)
{
	const Elf64_Ehdr eh = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					   ELFDATA2LSB, EV_CURRENT},
			       .e_type = ET_EXEC,
			       .e_machine = EM_X86_64,
			       .e_version = EV_CURRENT,
			       .e_phoff = sizeof(eh),
			       .e_ehsize = sizeof(eh),
			       .e_phentsize = sizeof(Elf64_Phdr),
			       .e_phnum = 1};
	const Elf64_Phdr ph = {.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_offset = CODE_OFFSET,
		.p_vaddr = PTPROGRAM_BASE,
		.p_filesz = p->n_code,
		.p_memsz = p->n_code,
		.p_align = 4096};
	int fd = io_memfd("code");

	assert_true(fd >= 0);
	assert_int_equal(io_pwrite_all(fd, &eh, sizeof(eh), 0), 0);
	assert_int_equal(io_pwrite_all(fd, &ph, sizeof(ph), sizeof(eh)), 0);
	assert_int_equal(io_pwrite_all(fd, p->code, p->n_code, CODE_OFFSET), 0);
	return fd;
}

static int ask(void *arg, const struct file_request *request, struct file_answer *ret, int *ret_fd)
{
	const struct recording *rec = arg;

	*ret = (struct file_answer){0};
	if (strcmp(request->path, "/bin/program") != 0)
		return 0;
	*ret_fd = code_file(rec->code);
	return 1;
}

static void start(struct recording *rec, const struct ptprogram *code, int per_cpu)
{
	make_init(&rec->make);
	make_pt_info(&rec->make, 0, per_cpu);
	make_comm(&rec->make, 1, PID, PID, "program", 1);
	make_mmap(&rec->make, 2, PID, PTPROGRAM_BASE & ~0xfffull, PTPROGRAM_CODE, CODE_OFFSET, 7,
		  "/bin/program");
	rec->code = code;
	rec->most = 0;
}

static void take(struct list *l, const struct pipeline_event *e)
{
	if (l->n == l->cap) {
		l->cap = l->cap ? l->cap * 2 : 4096;
		l->v = reallocarray(l->v, l->cap, sizeof(*l->v));
		assert_non_null(l->v);
	}
	l->insns += e->insns;
	l->v[l->n++] = (struct event){.ns = e->ns,
		.from = e->flow->from,
		.to = e->flow->to,
		.insns = e->insns,
		.sum = e->all_insns,
		.offset = e->offset,
		.pid = e->pid,
		.tid = e->tid,
		.buffer = e->buffer,
		.kind = e->flow->kind};
}

static uint64_t sum_of(struct json_object *losses)
{
	uint64_t sum = 0;

	json_object_object_foreach(losses, name, value) {
		(void)name;
		sum += json_object_get_uint64(value);
	}
	return sum;
}

struct scan {
	struct process_maps *maps;
	struct who_ran *who_ran;
};

static int record(void *arg, const struct perfevent *ev)
{
	const struct scan *s = arg;

	process_maps_record(s->maps, ev);
	return who_ran_record(s->who_ran, ev);
}

/* `keep` false: they are only counted. `stop_after` events it is left as it is, 0: never. */
static void decode(struct recording *rec, unsigned int threads, bool keep, size_t stop_after,
		   struct list *l)
{
	struct budget budget = {.max = 64u << 20};
	const struct file_requester files = {ask, rec};
	_cleanup_json_ struct json_object *stats = json_object_new_object(),
					  *losses = json_object_new_object();
	struct pipeline_options o = {.budget = &budget};
	struct perfdata *pd;
	struct images *images;
	struct process_maps *maps;
	struct pipeline *work;
	struct pipeline_event e;
	struct pipeline_run run;
	const size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
	uint64_t peeked;
	size_t n = 0;
	int fd = make_file(&rec->make), r;

	*l = (struct list){0};
	assert_int_equal(workers_new(threads, &o.workers), 0);
	assert_int_equal(perfdata_open(fd, &budget, &pd), 0);
	assert_int_equal(perfdata_scan(pd, NULL, NULL), 0);
	assert_int_equal(images_new(&files, &budget, &images), 0);
	assert_int_equal(auxtrace_new(pd, &budget, &o.aux), 0);
	assert_int_equal(auxtrace_scan(o.aux), 0);
	assert_int_equal(process_maps_new(images, &budget, true, &maps), 0);
	assert_int_equal(who_ran_new(&budget, &o.who_ran), 0);
	assert_int_equal(perfdata_walk(pd, record, &(struct scan){maps, o.who_ran}), 0);
	assert_int_equal(ptcode_new(images, &budget, &o.code), 0);
	o.maps = maps;
	assert_int_equal(pipeline_new(&o, &work), 0);
	while (stop_after == 0 || n < stop_after) {
		r = pipeline_peek(work, &peeked);
		assert_uint_in_range(r, 0, 1);
		/* nothing is before what comes next */
		assert_int_equal(pipeline_run(work, r ? peeked : 0, &run), r);
		if (r == 0)
			break;
		assert_int_equal(run.n, 0);
		/* those of one moment, or as many as there are */
		assert_int_equal(pipeline_run(work, rec->by_moment ? peeked + 1 : UINT64_MAX, &run),
				 1);
		assert_true(run.n > 0);
		for (size_t i = 0; i < run.n; i++) {
			pipeline_run_event(&run, i, &e);
			assert_true(i == 0 || !rec->by_moment ? e.ns >= peeked : e.ns == peeked);
			if (keep)
				take(l, &e);
			else
				l->insns += e.insns;
		}
		assert_int_equal(run.events[0].time, peeked);
		if (n / 1024 != (n + run.n) / 1024 || n == 0) {
			const size_t now = mallinfo2().uordblks + mallinfo2().hblkhd - before;

			rec->most = now > rec->most ? now : rec->most;
		}
		n += run.n;
	}
	if (!keep)
		l->n = n;
	pipeline_report(work, stats, losses);
	ptcode_report(o.code, losses);
	l->losses = sum_of(losses);
	pipeline_free(work);
	who_ran_free(o.who_ran);
	ptcode_free(o.code);
	process_maps_free(maps);
	auxtrace_free(o.aux);
	images_free(images);
	perfdata_free(pd);
	workers_free(o.workers);
	(void)close(fd);
}

static void same(const struct list *a, const struct list *b)
{
	assert_int_equal(a->n, b->n);
	assert_int_equal(a->insns, b->insns);
	assert_int_equal(a->losses, b->losses);
	assert_memory_equal(a->v, b->v, a->n * sizeof(*a->v));
}

/*
 * The model's branches, but for those that stay in a function, which here are all that are no calls
 * and returns.
 */
static void is_program(const struct list *l, uint32_t buffer, uint32_t tid,
		       const struct ptprogram *p)
{
	uint64_t last_ns = 0, insns = 0;
	bool first = true;
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++) {
		const struct event *e = &l->v[i];

		if (e->buffer != buffer)
			continue;
		assert_int_equal(e->pid, PID);
		assert_int_equal(e->tid, tid);
		assert_true(e->ns >= last_ns);
		last_ns = e->ns;
		insns += e->insns;
		assert_int_equal(e->sum, insns);
		if (first || ptprogram_what(e->kind) < 0) {
			assert_int_equal(e->kind, PTFLOW_ENABLE); /* at the first PSB */
			first = false;
			continue;
		}
		while (n < p->n_branches && p->branches[n].what == PTPROGRAM_COND)
			n++;
		assert_true(n < p->n_branches);
		assert_int_equal(ptprogram_what(e->kind), p->branches[n].what);
		assert_int_equal(e->from, p->branches[n].from);
		assert_int_equal(e->to, p->branches[n].to);
		n++;
	}
	while (n < p->n_branches && p->branches[n].what == PTPROGRAM_COND)
		n++;
	assert_int_equal(n, p->n_branches);
	assert_int_equal(insns, p->n_ips);
}

static struct recording rec;

static void test_threads_of_a_process(void **state)
{
	const struct ptprogram_options o = {.insns = 30000,
					    .psb_each = 700,
					    .signal_each = 900,
					    .defer = true};
	struct list l[4];
	struct ptprogram p[3];

	(void)state;
	/* the same code, other ways through it */
	for (size_t i = 0; i < 3; i++) {
		ptprogram_run(&p[i], 5, &o);
		if (i) {
			struct ptprogram_options more = o;

			more.insns += i * 1000;
			ptprogram_fini(&p[i]);
			ptprogram_run(&p[i], 5, &more);
		}
	}
	start(&rec, &p[0], 0);
	for (uint32_t i = 0; i < 3; i++) {
		make_comm(&rec.make, 3, PID, 200 + i, "t", 0);
		make_aux(&rec.make, i, (int32_t)(200 + i), -1, 0, 0, p[i].trace.bytes,
			 p[i].trace.n);
	}
	for (unsigned int i = 0; i < 4; i++) {
		rec.by_moment = i == 1;
		decode(&rec, i == 3 ? 4 : i, true, 0, &l[i]);
	}
	assert_int_equal(l[0].losses, 0);
	for (uint32_t i = 0; i < 3; i++)
		is_program(&l[0], i, 200 + i, &p[i]);
	/* in order of time over all */
	for (size_t i = 1; i < l[0].n; i++)
		assert_true(l[0].v[i].ns >= l[0].v[i - 1].ns);
	for (unsigned int i = 1; i < 4; i++)
		same(&l[0], &l[i]);
	/* freed in the middle */
	for (unsigned int i = 0; i < 40; i++) {
		struct list part;

		rec.by_moment = i % 3 == 0;
		decode(&rec, i % 4, true, 1 + i * i * 7, &part);
		assert_memory_equal(part.v, l[0].v, part.n * sizeof(*part.v));
		free(part.v);
	}
	rec.by_moment = false;
	for (size_t i = 0; i < 4; i++)
		free(l[i].v);
	for (size_t i = 0; i < 3; i++)
		ptprogram_fini(&p[i]);
}

/*
 * The buffer of a CPU: who runs is told by switches, and a thread of another process in between has
 * no code.
 */
static void test_cpu(void **state)
{
	const struct ptprogram_options o = {.insns = 20000, .psb_each = 300};
	struct ptprogram p;
	struct list l, two;
	size_t mine = 0, foreign = 0;

	(void)state;
	ptprogram_run(&p, 9, &o);
	start(&rec, &p, 1);
	make_aux(&rec.make, 0, -1, 3, 0, 0, p.trace.bytes, p.trace.n);
	/* a TSC is 1000 and the instructions in front of it; 1 ns each */
	make_switch_wide(&rec.make, 900, 3, PID, 201, 0, 0, 0);
	make_switch_wide(&rec.make, 8000, 3, PID, 201, 300, 300, 1);
	make_switch_wide(&rec.make, 8000, 3, 300, 300, PID, 201, 0);
	make_switch_wide(&rec.make, 15000, 3, 300, 300, PID, 202, 1);
	make_switch_wide(&rec.make, 15000, 3, PID, 202, 300, 300, 0);
	decode(&rec, 2, true, 0, &l);
	decode(&rec, 0, true, 0, &two);
	same(&l, &two);
	for (size_t i = 0; i < l.n; i++) {
		const struct event *e = &l.v[i];

		if (e->tid == 201)
			assert_true(e->ns < 9000);
		else if (e->tid == 202)
			assert_true(e->ns >= 14000);
		else
			assert_int_equal(e->tid, 300);
		mine += e->tid != 300 && e->kind == PTFLOW_CALL;
		foreign += e->tid == 300 && e->kind == PTFLOW_CALL;
	}
	assert_true(mine > 100);
	assert_int_equal(foreign, 0);
	free(l.v);
	free(two.v);
	ptprogram_fini(&p);
}

/*
 * As above, with a thread in between that the recording does not name: its code is nobody's loss.
 */
static void test_others(void **state)
{
	const struct ptprogram_options o = {.insns = 20000, .psb_each = 300};
	const uint32_t nobody = PIPELINE_OTHERS;
	size_t mine = 0, others = 0;
	struct ptprogram p;
	struct list l;

	(void)state;
	ptprogram_run(&p, 9, &o);
	start(&rec, &p, 1);
	make_aux(&rec.make, 0, -1, 3, 0, 0, p.trace.bytes, p.trace.n);
	make_switch_wide(&rec.make, 900, 3, PID, 201, 0, 0, 0);
	make_switch_wide(&rec.make, 8000, 3, PID, 201, nobody, nobody, 1);
	make_switch_wide(&rec.make, 8000, 3, nobody, nobody, PID, 201, 0);
	make_switch_wide(&rec.make, 15000, 3, PID, 202, nobody, nobody, 0);
	decode(&rec, 2, true, 0, &l);
	for (size_t i = 0; i < l.n; i++) {
		const struct event *e = &l.v[i];

		assert_true(e->tid == 201   ? e->ns < 9000
			    : e->tid == 202 ? e->ns >= 14000
					    : e->tid == nobody);
		assert_true(e->tid != nobody || e->kind != PTFLOW_CALL);
		mine += e->tid != nobody && e->kind == PTFLOW_CALL;
		others += e->tid == nobody;
	}
	assert_true(mine > 100);
	assert_true(others > 0);
	assert_int_equal(l.losses, 0);
	free(l.v);
	ptprogram_fini(&p);
}

/*
 * The buffer of a thread on a CPU, as perf record PROGRAM makes them: a thread that the first one
 * began writes there, too.
 */
static void test_inherited(void **state)
{
	const struct ptprogram_options o = {.insns = 20000, .psb_each = 300};
	struct ptprogram p;
	struct list l;
	size_t of_first = 0, of_second = 0;

	(void)state;
	ptprogram_run(&p, 9, &o);
	start(&rec, &p, 1);
	make_aux(&rec.make, 0, 201, 3, 0, 0, p.trace.bytes, p.trace.n);
	make_switch_wide(&rec.make, 900, 3, PID, 201, 0, 0, 0);
	make_switch_wide(&rec.make, 8000, 3, PID, 202, PID, 201, 0);
	decode(&rec, 2, true, 0, &l);
	for (size_t i = 0; i < l.n; i++) {
		const struct event *e = &l.v[i];

		assert_true(e->tid == 201 ? e->ns < 9000 : e->tid == 202 && e->ns >= 7000);
		of_first += e->tid == 201;
		of_second += e->tid == 202;
	}
	assert_true(of_first > 100 && of_second > 100);
	free(l.v);
	ptprogram_fini(&p);
}

/* One block that makes millions of events: only some of them are there at a time. */
static void test_bounded(void **state)
{
	const struct ptprogram_options o = {.insns = 3000000, .tnt47 = true};
	struct ptprogram p;
	struct list l, two;

	(void)state;
	ptprogram_run(&p, 3, &o);
	assert_int_equal(p.n_psbs, 1);
	assert_true(p.trace.n < sizeof(rec.make.data) - 65536);
	start(&rec, &p, 0);
	make_comm(&rec.make, 3, PID, 200, "t", 0);
	make_aux(&rec.make, 0, 200, -1, 0, 0, p.trace.bytes, p.trace.n);
	decode(&rec, 2, false, 0, &l);
	assert_int_equal(l.losses, 0);
	assert_int_equal(l.insns, p.n_ips);
	assert_true(l.n > 400000);
	assert_true(rec.most < (40u << 20));
	decode(&rec, 0, true, 0, &two);
	assert_int_equal(two.n, l.n);
	is_program(&two, 0, 200, &p);
	free(two.v);
	ptprogram_fini(&p);
}

/* What comes of the blocks that were not damaged is what came of them before. */
static void test_damage(void **state)
{
	const struct ptprogram_options o = {.insns = 100000, .psb_each = 400};
	struct ptprogram p;
	struct list good;
	uint64_t random = 4;

	(void)state;
	ptprogram_run(&p, 12, &o);
	start(&rec, &p, 0);
	make_comm(&rec.make, 3, PID, 200, "t", 0);
	make_aux(&rec.make, 0, 200, -1, 0, 0, p.trace.bytes, p.trace.n);
	decode(&rec, 0, true, 0, &good);
	for (unsigned int round = 0; round < 150; round++) {
		const size_t k = 3 + ptprogram_random(&random, p.n_psbs / 2);
		/* two PSBs further the next block has begun: short ones are joined */
		size_t from = p.psbs[k], until = p.psbs[k] + 3 * AUXTRACE_MIN_BLOCK,
		       at = rec.make.n - ((p.trace.n + 7) & ~7ull);
		uint8_t keep[16];
		struct list bad;
		size_t a = 0, b = 0;

		from = from > 2 * AUXTRACE_MIN_BLOCK ? from - 2 * AUXTRACE_MIN_BLOCK : 0;
		at += p.psbs[k] + ptprogram_random(&random, 60);
		memcpy(keep, rec.make.data + at, sizeof(keep));
		for (size_t i = 0; i < 1 + round % 16; i++)
			rec.make.data[at + i] = (uint8_t)ptprogram_random(&random, 256);
		decode(&rec, round % 3, true, 0, &bad);
		memcpy(rec.make.data + at, keep, sizeof(keep));
		for (; a < good.n && good.v[a].offset < from; a++)
			assert_true(good.v[a].from == bad.v[a].from &&
				    good.v[a].to == bad.v[a].to && good.v[a].ns == bad.v[a].ns);
		assert_true(from == 0 || a > 0);
		for (a = good.n, b = bad.n; a > 0 && b > 0 && good.v[a - 1].offset > until;
		     a--, b--) {
			const struct event *x = &good.v[a - 1], *y = &bad.v[b - 1];

			if (x->from != y->from || x->to != y->to || x->ns != y->ns)
				fail_msg(
					"round %u, damage at %zx: %lx => %lx at %lu is %lx => %lx at %lu",
					round, p.psbs[k], x->from, x->to, x->ns, y->from, y->to,
					y->ns);
		}
		assert_true(a < good.n);
		free(bad.v);
	}
	free(good.v);
	ptprogram_fini(&p);
}

/* Bytes are missing between two pieces: nothing goes on over that. */
static void test_missing_bytes(void **state)
{
	const struct ptprogram_options o = {.insns = 20000, .psb_each = 300};
	struct ptprogram p;
	struct list l;
	size_t found = 0, k;

	(void)state;
	ptprogram_run(&p, 21, &o);
	k = p.n_psbs / 2;
	start(&rec, &p, 0);
	make_comm(&rec.make, 3, PID, 200, "t", 0);
	make_aux(&rec.make, 0, 200, -1, 0, 0, p.trace.bytes, p.psbs[k] & ~7ull);
	make_aux(&rec.make, 0, 200, -1, p.psbs[k + 1], 0, p.trace.bytes + p.psbs[k + 1],
		 p.trace.n - p.psbs[k + 1]);
	decode(&rec, 1, true, 0, &l);
	for (size_t i = 0; i < l.n; i++)
		if (l.v[i].kind == PTFLOW_RESYNC) {
			assert_int_equal(l.v[i].ns,
					 l.v[i - 1].ns > l.v[i].ns ? l.v[i - 1].ns : l.v[i].ns);
			found++;
		}
	assert_int_equal(found, 1);
	free(l.v);
	ptprogram_fini(&p);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_threads_of_a_process),
		cmocka_unit_test(test_cpu), cmocka_unit_test(test_others),
		cmocka_unit_test(test_inherited),
		cmocka_unit_test(test_bounded),
		cmocka_unit_test(test_damage),
		cmocka_unit_test(test_missing_bytes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
