// SPDX-License-Identifier: Apache-2.0
/*
 * pt-walk perfdata: a recording from its records to the merged branches, as the decoder's job does
 * it.
 */
#include <errno.h>
#include <fcntl.h>
#include <json-c/json.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/control/json.h"
#include "decode/base/workers.h"
#include "decode/object/image.h"
#include "decode/object/process_maps.h"
#include "decode/perf/data.h"
#include "decode/perf/event.h"
#include "decode/pt/auxtrace.h"
#include "decode/pt/code.h"
#include "decode/pt/pipeline.h"
#include "decode/pt/who_ran.h"
#include "tests/unit/decode/pt/pt-walk.h"

enum mode { INSNS, BRANCHES, TIMES };

struct walk {
	const char *symfs;
	enum mode mode;
	bool tids;
	const struct process_maps *maps;
	struct ptcode *code;
	const struct address_space *space; /* of the line that is walked */
	struct ptwalk_ips ips;
	uint64_t events;
};

static int ask(void *arg, const struct file_request *request, struct file_answer *ret, int *ret_fd)
{
	const struct walk *w = arg;
	char path[PATH_MAX];
	int fd;

	*ret = (struct file_answer){0};
	if (snprintf(path, sizeof(path), "%s/%s", w->symfs, request->path) >= (int)sizeof(path))
		return 0;
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	*ret_fd = fd;
	return 1;
}

static size_t read_code(void *arg, uint64_t ip, const uint8_t **ret, uint8_t *buffer, size_t n)
{
	const struct walk *w = arg;

	return ptcode_read(w->code, w->space, ip, ret, buffer, n);
}

static void on_event(struct walk *w, const struct pipeline_event *e)
{
	w->space = process_maps_at(w->maps, e->pid, e->ns);
	w->events++;
	w->ips.tid = w->tids ? e->tid : 0;
	if (e->flow->start && w->space)
		(void)ptwalk_line(&w->ips, e->flow, read_code, w);
	if (w->mode == INSNS || e->flow->kind == PTFLOW_RUN)
		return;
	if (w->mode == TIMES)
		(void)printf("%lu.%09lu ", e->ns / 1000000000, e->ns % 1000000000);
	else if (e->flow->kind == PTFLOW_NOTE ||
		 (e->flow->kind == PTFLOW_COND && e->flow->to == e->flow->from + e->flow->length))
		return; /* no branch; not taken */
	(void)printf("%u/%u %s %lx => %lx", e->pid, e->tid, ptwalk_kind(e->flow->kind),
		     e->flow->from, e->flow->to);
	(void)printf(" error %u insns %lu\n", e->flow->error, e->all_insns);
}

static int walk(struct walk *w, const struct pipeline_options *o)
{
	_cleanup_(pipeline_freep) struct pipeline *work = NULL;
	_cleanup_json_ struct json_object *stats = json_object_new_object(),
					  *losses = json_object_new_object();
	struct pipeline_event e;
	struct pipeline_run run;
	int r = pipeline_new(o, &work);

	ptwalk_ips_init(&w->ips, w->mode == INSNS);
	w->events = 0;
	while (r == 0 && (r = pipeline_run(work, UINT64_MAX, &run)) == 1) {
		for (size_t i = 0; i < run.n; i++) {
			pipeline_run_event(&run, i, &e);
			on_event(w, &e);
		}
		r = 0;
	}
	if (r < 0)
		return r;
	auxtrace_report(o->aux, stats, losses);
	pipeline_report(work, stats, losses);
	ptcode_report(o->code, losses);
	(void)fflush(stdout);
	(void)fprintf(
		stderr,
		"{\"events\":%lu,\"walked\":%lu,\"ips_fnv1a64\":\"%016lx\",\"stats\":%s,\"losses\":%s}\n",
		w->events, w->ips.n, w->ips.hash,
		json_object_to_json_string_ext(stats, JSON_C_TO_STRING_PLAIN),
		json_object_to_json_string_ext(losses, JSON_C_TO_STRING_PLAIN));
	return 0;
}

/* The stepper keeps the recording's own beside it. */
static void bring_vdso(struct images *images, const char *path)
{
	char vdso[PATH_MAX];
	int fd;

	if (snprintf(vdso, sizeof(vdso), "%s.vdso", path) >= (int)sizeof(vdso))
		return;
	fd = open(vdso, O_RDONLY | O_CLOEXEC);
	if (fd >= 0)
		images_set_vdso_fd(images, fd);
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

static int open_and_walk(struct walk *w, const char *path, unsigned int threads)
{
	struct budget budget = {.max = 2ull << 30};
	const struct file_requester files = {ask, w};
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC);
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_(images_freep) struct images *images = NULL;
	_cleanup_(auxtrace_freep) struct auxtrace *aux = NULL;
	_cleanup_(process_maps_freep) struct process_maps *maps = NULL;
	_cleanup_(ptcode_freep) struct ptcode *code = NULL;
	_cleanup_(who_ran_freep) struct who_ran *who_ran = NULL;
	_cleanup_(workers_freep) struct workers *workers = NULL;
	int r = fd < 0 ? -errno : workers_new(threads, &workers);

	if (r == 0)
		r = perfdata_open(fd, &budget, &pd);
	if (r == 0)
		r = perfdata_scan(pd, NULL, NULL);
	if (r == 0)
		r = images_new(&files, &budget, &images);
	if (r == 0)
		bring_vdso(images, path);
	if (r == 0)
		r = auxtrace_new(pd, &budget, &aux);
	if (r == 0)
		r = auxtrace_scan(aux);
	if (r == 0)
		r = process_maps_new(images, &budget, true, &maps);
	if (r == 0)
		r = who_ran_new(&budget, &who_ran);
	if (r == 0)
		r = perfdata_walk(pd, record, &(struct scan){maps, who_ran});
	if (r == 0)
		r = ptcode_new(images, &budget, &code);
	if (r != 0)
		return r;
	w->maps = maps;
	w->code = code;
	return walk(w, &(struct pipeline_options){.aux = aux,
			       .maps = maps,
			       .code = code,
			       .who_ran = who_ran,
			       .workers = workers,
			       .budget = &budget,
			       .all = w->mode != TIMES});
}

int ptwalk_perfdata(int argc, char **argv)
{
	struct walk w = {.symfs = argv[1]};
	uint64_t threads = 0;
	int r;

	for (int i = 2; i < argc; i++) {
		if (strcmp(argv[i], "--insns") == 0)
			w.mode = INSNS;
		else if (strcmp(argv[i], "--tids") == 0)
			w.tids = true;
		else if (strcmp(argv[i], "--branches") == 0)
			w.mode = BRANCHES;
		else if (strcmp(argv[i], "--times") == 0)
			w.mode = TIMES;
		else if (strcmp(argv[i], "--threads") != 0 || ++i >= argc ||
			 !ptwalk_u64(argv[i], &threads))
			ptwalk_bad_usage(argv[i < argc ? i : argc - 1]);
	}
	r = open_and_walk(&w, argv[0], (unsigned int)threads);
	if (r != 0)
		(void)fprintf(stderr, "pt-walk: %s: %d\n", argv[0], r);
	return r ? 1 : 0;
}
