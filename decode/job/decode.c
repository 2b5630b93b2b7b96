// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/json.h"
#include "common/control/stepabi.h"
#include "decode/base/workers.h"
#include "decode/dwarf/source.h"
#include "decode/job/job_internal.h"
#include "decode/job/meta.h"
#include "decode/object/address_space.h"
#include "decode/object/image.h"
#include "decode/object/kallsyms.h"
#include "decode/object/process_maps.h"
#include "decode/replay/gofeed.h"
#include "decode/replay/prescan.h"
#include "decode/replay/pt.h"
#include "decode/replay/session.h"
#include "decode/rings/event.h"
#include "decode/timeline/go.h"

#define IDENTIFY_NS UINT64_C(2000000000)

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct job *j = arg;

	return parent_link_progress(&j->link, j->stage, done, total);
}

struct decode {
	struct perfdata *pd;
	struct images *images;
	struct kallsyms *kallsyms;
	struct address_space *kernel; /* where its code lies; NULL: that is not known */
	struct process_maps *maps;
	struct source *source;
	struct stacktab *st;
	struct clock_map *clocks;
	struct timeline *tl;
	struct dump *dump;
	struct replay_pt *pt;
	struct prescan prescan;
	struct session *session;
	struct ringevents *events;
	struct session_go *go;
	size_t n_go;
	struct meta meta;
};

static void decode_fini(struct decode *d)
{
	session_free(d->session);
	replay_pt_free(d->pt);
	dump_free(d->dump);
	timeline_free(d->tl);
	clock_map_free(d->clocks);
	ringevents_free(d->events);
	for (size_t i = 0; i < d->n_go; i++) {
		gofeed_free(d->go[i].feed);
		close_fd(d->go[i].fd);
	}
	free(d->go);
	source_free(d->source);
	process_maps_free(d->maps);
	address_space_unref(d->kernel);
	images_free(d->images);
	kallsyms_free(d->kallsyms);
	stacktab_free(d->st);
	prescan_fini(&d->prescan);
	perfdata_free(d->pd);
	meta_fini(&d->meta);
}

/* A bundle's times are MONOTONIC_RAW, also where no record says so. */
static int make_clocks(const struct job *j, struct decode *d)
{
	enum clock_source source = d->pd ? session_clock(d->pd) : CLOCK_SOURCE_UNKNOWN;
	int r;

	if (j->input == JOB_GO)
		source = CLOCK_SOURCE_MONOTONIC;
	if (source == CLOCK_SOURCE_UNKNOWN && j->input == JOB_BUNDLE)
		source = CLOCK_SOURCE_MONOTONIC_RAW;
	r = clock_map_new(source, &d->clocks);
	if (r < 0)
		return r;
	if (source == CLOCK_SOURCE_MONOTONIC_RAW) {
		for (size_t i = 0; i < d->meta.n_brackets && r >= 0; i++)
			r = clock_map_add(d->clocks, &d->meta.brackets[i]);
	}
	if (d->pd && d->pd->clock_data.known && source == CLOCK_SOURCE_MONOTONIC && r >= 0) {
		const struct clock_bracket b = {.source = d->pd->clock_data.clock_ns,
			.monotonic = d->pd->clock_data.clock_ns,
			.realtime = d->pd->clock_data.wall_ns};

		r = clock_map_add(d->clocks, &b);
	}
	clock_map_finish(d->clocks);
	return r < 0 ? r : 0;
}

/* What was recorded by this kernel was recorded here, as far as anybody can tell. */
static bool recorded_here(const struct job *j, const struct decode *d)
{
	return d->pd && d->pd->osrelease && strcmp(j->host.release, d->pd->osrelease) == 0;
}

/* perf's own table of build ids; and the vDSO of this machine where it is the same kernel's. */
static void report_images(struct job *j, struct decode *d)
{
	for (uint32_t i = 0; d->pd && i < d->pd->n_build_ids; i++)
		images_expect(d->images, d->pd->build_ids[i].name, d->pd->build_ids[i].id,
			d->pd->build_ids[i].size);
	if (j->vdso_fd >= 0)
		images_set_vdso_fd(d->images, take_fd(&j->vdso_fd));
	else if (recorded_here(j, d))
		images_use_own_vdso(d->images);
}

/* What is wrong with them costs names, and the result says so. */
static int open_kallsyms(struct job *j, struct decode *d)
{
	int r = j->kallsyms_fd >= 0 ? kallsyms_read(j->kallsyms_fd, &j->budget, &d->kallsyms) : 0;

	if (r < 0 && r != -ENODATA)
		log_warning("the kernel's symbols: %s", strerror(-r));
	return r == -ENOMEM ? r : 0;
}

/* Without it a trace of the kernel cannot be followed there, which is counted where it was. */
static int open_kcore(struct job *j, struct decode *d)
{
	int r = j->kcore_fd >= 0 && d->pt ? images_map_kernel(d->images, take_fd(&j->kcore_fd),
							      d->kallsyms, &d->kernel)
					  : 0;

	if (r < 0)
		log_warning("the kernel's code: %s", strerror(-r));
	return r == -ENOMEM ? r : 0;
}

/* The end of the recording: when it was frozen, else its last record. */
static void focus_on_last(const struct job *j, const struct decode *d, struct timeline_options *to)
{
	uint64_t end = d->meta.frozen_raw;

	if (!end && d->pd)
		end = perfdata_last_time(d->pd);
	if (!j->last_ns || !end)
		return;
	to->focus_begin_ns = end > j->last_ns ? end - j->last_ns : 1;
	to->focus_end_ns = end;
}

static int open_perfdata(struct job *j, struct decode *d)
{
	int r;

	if (j->perfdata_fd < 0)
		return 0;
	r = perfdata_open(j->perfdata_fd, &j->budget, &d->pd);
	if (r > 0)
		return job_refuse(j, perfdata_strerror(r));
	if (r < 0)
		return r;
	j->stage = "reading";
	return perfdata_scan(d->pd, on_progress, j);
}

/* One file that cannot be had or read costs the events of its program. */
static int add_rings(struct job *j, struct decode *d, const struct meta_ring *ring, uint64_t *lost)
{
	struct file_request request = {.kind = FILE_REQUEST_RING, .pid = (pid_t)ring->pid};
	struct file_answer file;
	_cleanup_close_ int fd = -1;
	int r;

	(void)snprintf(request.path, sizeof(request.path), "%s", ring->file);
	r = j->files.ask(j->files.arg, &request, &file, &fd);
	if (r < 0)
		return r;
	if (r == 1) {
		int e;

		r = ringevents_add(d->events, fd);
		e = file_requester_judge(&j->files, &file, r == 0);
		if (e < 0)
			return e;
	} else {
		r = -ENOENT;
	}
	*lost += r < 0;
	return r == -ENOMEM ? r : 0;
}

/* The events of programs, if the bundle has any. */
static int open_rings(struct job *j, struct decode *d)
{
	uint64_t lost = d->meta.rings_left_out;
	int r;

	if (d->meta.n_rings == 0)
		return 0;
	j->stage = "reading";
	r = ringevents_new(d->meta.tsc, d->meta.n_tsc, &j->budget, &d->events);
	for (size_t i = 0; i < d->meta.n_rings && r == 0; i++)
		r = add_rings(j, d, &d->meta.rings[i], &lost);
	if (lost)
		json_add_uint(j->losses, "ring_files_missing", lost);
	return r < 0 ? r : ringevents_finish(d->events);
}

/* Somebody else may have written it; the events of programs are not lost with it. */
static void do_without_perfdata(struct job *j, struct decode *d)
{
	j->error[0] = '\0';
	d->pd = perfdata_free(d->pd);
	json_add_bool(j->losses, "perf_data_unreadable", true);
}

/* What happened must have been recorded by somebody. */
static int open_input(struct job *j, struct decode *d)
{
	int r;

	if (j->meta_fd >= 0) {
		r = meta_read(j->meta_fd, &d->meta);
		if (r > 0)
			json_add_bool(j->losses, "meta_unreadable", true);
		else if (r < 0)
			return r;
	}
	r = open_perfdata(j, d);
	if (r < 0 && r != -ENOMEM && (d->meta.n_rings || j->go_fd >= 0)) {
		do_without_perfdata(j, d);
		r = 0;
	}
	if (r >= 0 && j->input == JOB_BUNDLE)
		r = open_rings(j, d);
	if (r >= 0 && !d->pd && !d->events && j->go_fd < 0)
		r = job_refuse(
			j,
			"the bundle has neither perf.data nor event rings nor a trace of a Go program");
	return r;
}

static void timeline_describe(const struct job *j, const struct decode *d,
			      struct timeline_options *to)
{
	const struct meta *m = &d->meta;

	to->period_ns = d->prescan.period_ns;
	to->clocks = d->clocks;
	to->switches = d->pd && session_has_switches(d->pd);
	to->stepped = d->pd && d->pd->command && strcmp(d->pd->command, STEPABI_COMMAND) == 0;
	to->wait_min_ns = m->wait_min_ns;
	/* exact calls are whole of themselves, each thread's from its own begin */
	if (!d->pt)
		to->complete_from_ns = m->complete_from ? m->complete_from
							: d->prescan.complete_from_ns;
	to->kernel_release = m->kernel_release[0] ? m->kernel_release
			     : d->pd              ? d->pd->osrelease
						  : NULL;
	to->machine = m->machine[0] ? m->machine : d->pd ? d->pd->arch : NULL;
	focus_on_last(j, d, to);
	if (m->slow.end_raw)
		to->cause = (struct timeline_cause){.region = m->slow.region,
			.tid = m->slow.tid,
			.begin_ns = m->slow.begin_raw,
			.end_ns = m->slow.end_raw,
			.over_ns = m->slow.over};
}

static int open_pt(struct job *j, struct decode *d)
{
	const struct dump_options vo = {.kind = j->view,
					.fd = j->out_fd,
					.scratch_fd = j->scratch_fd,
					.max_bytes = j->max_output,
					.st = d->st};
	int r = 0;

	if (j->view)
		r = dump_new(&vo, &d->dump);
	if (r == 0 && d->pd)
		r = replay_pt_new(d->pd, j->workers, &j->budget, d->dump, j->inlined, j->verify,
				  &d->pt);
	if (r >= 0 && d->pt) {
		replay_pt_set_blinds(d->pt, d->meta.blinds, d->meta.n_blinds);
		replay_pt_set_end(d->pt, d->meta.pt_end_raw);
	}
	if (r >= 0 && j->view && !d->pt)
		return job_refuse(
			j,
			"the recording has no Intel PT trace, so only the timeline can be written");
	if (r >= 0 && j->verify && !d->pt)
		return job_refuse(j, "the recording has no Intel PT trace that could be verified");
	return r < 0 ? r : 0;
}

/*
 * PT is decoded before the records are replayed, and by times that are estimates: it needs what was
 * mapped then.
 */
static int prescan(struct job *j, struct decode *d)
{
	struct prescan_options o = {.pd = d->pd,
				    .pt = d->pt,
				    .complete_from = !d->meta.complete_from};
	int r = process_maps_new(d->images, &j->budget, d->pt != NULL, &d->maps);

	if (r == 0)
		process_maps_set_kernel(d->maps, d->kernel);
	o.maps = d->maps;
	if (r == 0 && d->pd)
		r = prescan_run(&o, &d->prescan);
	return r < 0 || !d->pt ? r : replay_pt_open(d->pt, d->images, d->maps);
}

/* One trace: it is lost where it cannot be had or read, and nothing else with it. */
static int add_go(struct job *j, struct decode *d, const struct meta_go *go, uint64_t *lost)
{
	struct file_request request = {.kind = FILE_REQUEST_RING, .pid = (pid_t)go->pid};
	_cleanup_close_ int fd = strcmp(go->file, "go.trace") == 0 ? take_fd(&j->go_fd) : -1;
	struct gofeed_options o = {.pid = go->pid,
				   .foreign_tids = go->nspid != go->pid,
				   .tids = go->tids,
				   .n_tids = go->n_tids,
				   .clocks = d->clocks,
				   .end_ns = d->meta.frozen_raw,
				   .budget = &j->budget};
	struct file_answer file;
	int r = 0;

	if (fd < 0) {
		(void)snprintf(request.path, sizeof(request.path), "%s", go->file);
		r = j->files.ask(j->files.arg, &request, &file, &fd);
		if (r < 0)
			return r;
		if (r == 1) {
			r = file_requester_judge(&j->files, &file, true);
			if (r < 0)
				return r;
		}
	}
	o.fd = fd;
	r = fd < 0 ? -ENOENT : gofeed_new(&o, &d->go[d->n_go].feed);
	if (r == 0) {
		meta_go_ends(&d->meta, go, gofeed_last(d->go[d->n_go].feed));
		d->go[d->n_go++].fd = take_fd(&fd);
		return 0;
	}
	++*lost;
	return r == -ECANCELED || j->input == JOB_GO ? r : 0;
}

/*
 * The traces of Go programs: those of a bundle, or the input itself, of which nobody says whose it
 * is.
 */
static int open_go(struct job *j, struct decode *d)
{
	static const struct meta_go alone = {.file = "go.trace"};
	const struct meta_go *list = d->meta.n_go ? d->meta.go : &alone;
	const size_t n = d->meta.n_go ? d->meta.n_go : j->go_fd >= 0;
	uint64_t lost = d->meta.go_left_out, at;
	int r = 0;

	d->go = n ? calloc(n, sizeof(*d->go)) : NULL;
	if (n && !d->go)
		return -ENOMEM;
	for (size_t i = 0; i < n && r == 0; i++)
		r = add_go(j, d, &list[i], &lost);
	if (r == 0 && j->input == JOB_GO && gofeed_peek(d->go[0].feed) == UINT64_MAX)
		r = job_refuse(j, gofeed_why(d->go[0].feed, &at));
	for (size_t i = 0; i < d->n_go && d->pt && r == 0; i++)
		r = replay_pt_add_go(d->pt, d->go[i].feed);
	if (lost)
		json_add_uint(j->losses, "go_traces_missing", lost);
	return r;
}

/* Sums over all programs; what is wrong is said of the first. */
static void report_go(struct job *j, const struct decode *d)
{
	uint64_t events = 0, generations = 0, late = 0, goroutines = 0, not_drawn = 0, parked = 0,
		 at;

	for (size_t i = 0; i < d->n_go; i++) {
		const char *why = gofeed_why(d->go[i].feed, &at);
		struct timeline_go_stats ts = {0};
		struct gofeed_stats fs;

		gofeed_stats(d->go[i].feed, &fs);
		if (d->go[i].timeline)
			timeline_go_stats(d->go[i].timeline, &ts);
		events += fs.events;
		generations += fs.generations;
		late += fs.late;
		goroutines += ts.goroutines;
		not_drawn += ts.not_drawn;
		parked += ts.parked;
		if (!why || json_object_object_get_ex(j->losses, "go_trace_broken", NULL))
			continue;
		json_add_string(j->losses, "go_trace_broken", why);
		json_add_uint(j->losses, "go_trace_broken_at_byte", at);
	}
	if (d->n_go == 0)
		return;
	json_add_uint(j->stats, "go_events", events);
	json_add_uint(j->stats, "go_generations", generations);
	json_add_uint(j->stats, "goroutines", goroutines);
	if (late)
		json_add_uint(j->stats, "go_events_after_freeze", late);
	if (parked)
		json_add_uint(j->stats, "goroutines_parked", parked);
	if (not_drawn)
		json_add_uint(j->losses, "goroutines_without_track", not_drawn);
}

static int decode_setup(struct job *j, struct decode *d, struct writer *w)
{
	struct timeline_options to = {.version = PACKAGE_VERSION};
	struct session_options so = {
		.symbols = j->symbols, .progress = on_progress, .progress_arg = j};
	int r;

	r = open_input(j, d);
	if (r < 0)
		return r;
	r = stacktab_new(j->max_memory / 8, &d->st);
	if (r >= 0)
		r = images_new(&j->files, &j->budget, &d->images);
	if (r >= 0 && j->lines)
		r = source_new(d->images, &j->budget, &d->source);
	if (r >= 0)
		r = make_clocks(j, d);
	if (r < 0)
		return r;
	images_set_clocks(d->images, d->clocks);
	report_images(j, d);
	r = open_kallsyms(j, d);
	if (r >= 0)
		r = open_pt(j, d);
	if (r >= 0)
		r = open_kcore(j, d);
	if (r >= 0)
		r = prescan(j, d);
	if (r < 0)
		return r;
	timeline_describe(j, d, &to);
	r = open_go(j, d);
	if (r == 0)
		r = timeline_new(&to, d->st, w, &d->tl);
	if (r < 0)
		return r;
	so.pd = d->pd;
	so.events = d->events;
	so.go = d->go;
	so.n_go = d->n_go;
	so.pt = d->pt;
	so.prescan = &d->prescan;
	so.events_end_ns = d->meta.frozen_raw;
	so.images = d->images;
	so.kallsyms = d->kallsyms;
	so.kallsyms_hidden = j->kallsyms_fd >= 0 && !d->kallsyms;
	so.unwinds = d->meta.unwinds;
	so.maps = d->maps;
	so.source = d->source;
	so.inlined = j->inlined;
	so.st = d->st;
	so.tl = d->tl;
	so.files = &j->files;
	so.perfmaps = j->input == JOB_BUNDLE || recorded_here(j, d);
	so.budget = &j->budget;
	so.whole_target = j->input == JOB_BUNDLE;
	so.notes = d->meta.notes;
	so.n_notes = d->meta.n_notes;
	so.ends = d->meta.ends;
	so.n_ends = d->meta.n_ends;
	so.nspid = meta_nspid;
	so.nspid_arg = &d->meta;
	r = session_new(&so, &d->session);
	for (size_t i = 0; i < d->meta.n_rings && r == 0; i++)
		session_name_process(d->session, d->meta.rings[i].pid, d->meta.rings[i].comm);
	if (j->input == JOB_GO && d->n_go && r == 0) /* its number is not in the trace */
		session_name_process(d->session, gofeed_pid(d->go[0].feed), "Go program");
	return r;
}

static void add_timeline_stats(struct job *j, const struct timeline *tl, const struct writer *w)
{
	struct timeline_stats ts;
	struct writer_stats ws;

	timeline_stats(tl, &ts);
	writer_stats(w, &ws);
	if (ws.write_error)
		j->output_error = ws.write_error;
	json_add_uint(j->stats, "slices", ws.slices);
	json_add_uint(j->stats, "bytes_raw", ws.bytes_raw);
	json_add_uint(j->stats, "bytes_out", ws.bytes_out);
	json_add_uint(j->stats, "first_ns", ts.first_ns);
	json_add_uint(j->stats, "last_ns", ts.last_ns);
	if (ts.out_of_order)
		json_add_uint(j->losses, "events_out_of_order", ts.out_of_order);
	if (ts.refused_full)
		json_add_uint(j->losses, "events_over_limits", ts.refused_full);
	if (ts.folded)
		json_add_uint(j->losses, "frames_folded", ts.folded);
	if (ts.calls_late)
		json_add_uint(j->losses, "callers_begun_late", ts.calls_late);
	if (ts.inconsistent)
		json_add_uint(j->losses, "switches_inconsistent", ts.inconsistent);
	if (ts.regions_folded)
		json_add_uint(j->losses, "regions_folded", ts.regions_folded);
	if (ts.regions_not_nested)
		json_add_uint(j->losses, "regions_not_nested", ts.regions_not_nested);
	if (ws.args_dropped)
		json_add_uint(j->losses, "arguments_over_limit", ws.args_dropped);
	if (ts.cut)
		json_add_uint(j->losses, "output_cut_at_ns", ts.cut_ns);
	if (ws.bytes_dropped)
		json_add_uint(j->losses, "bytes_over_output_limit", ws.bytes_dropped);
	if (ws.names_dropped)
		json_add_uint(j->losses, "names_over_memory", ws.names_dropped);
}

static void report_loss(void *arg, const char *kind, uint64_t count)
{
	timeline_loss_untimed(arg, kind, count);
}

/*
 * What is missing of PT, or in doubt, is said in the trace, too: at its end, but for what was drawn
 * where it happened.
 */
static void draw_pt_losses(const struct replay_pt *pt, struct timeline *tl)
{
	static const char *const drawn[] = {"pt_overflows",      "pt_no_code", "pt_mismatch",
					    "pt_bad_returns",    "pt_runaway", "code_unmapped",
					    "code_without_image"};
	_cleanup_json_ struct json_object *stats = json_object_new_object(),
					  *losses = json_object_new_object();

	if (!stats || !losses)
		return;
	replay_pt_report(pt, stats, losses);
	json_object_object_foreach(losses, key, value) {
		char kind[64];
		bool drawn_already = !json_object_is_type(value, json_type_int) ||
				     json_object_get_uint64(value) == 0;

		for (size_t i = 0; i < ARRAY_SIZE(drawn); i++)
			drawn_already |= strcmp(key, drawn[i]) == 0;
		(void)snprintf(kind, sizeof(kind), "%s", key);
		for (char *p = kind; *p; p++)
			if (*p == '_')
				*p = ' ';
		if (!drawn_already)
			timeline_loss_untimed(tl, kind, json_object_get_uint64(value));
	}
}

/*
 * Of each thread, the one that draws last: what takes longest if nobody else wants the processors.
 */
static void add_cpu_times(const struct job *j, struct json_object *stages)
{
	struct json_object *each = json_add_new_array(stages, "cpu_each_ns");
	uint64_t sum = 0;

	for (unsigned int i = 0; i < workers_count(j->workers); i++) {
		const uint64_t ns = workers_cpu_ns(j->workers, i);

		sum += ns;
		if (each)
			json_append(each, json_object_new_uint64(ns));
	}
	json_add_uint(stages, "cpu_ns", sum);
}

/* Where the time went. */
static void add_stages(struct job *j, const struct decode *d, const struct writer *w,
		       uint64_t setup_ns, uint64_t run_ns)
{
	struct json_object *stages = json_add_new_object(j->stats, "stages");
	struct writer_stats ws;

	writer_stats(w, &ws);
	if (d->pt)
		replay_pt_report_times(d->pt, &setup_ns, &run_ns, stages);
	json_add_uint(stages, "reading_ns", setup_ns);
	json_add_uint(stages, "drawing_ns", run_ns > ws.write_ns ? run_ns - ws.write_ns : 0);
	json_add_uint(stages, "writing_ns", ws.write_ns);
	json_add_uint(stages, "total_ns", io_now_ns() - j->began_ns);
	add_cpu_times(j, stages);
}

static void add_view_stats(struct job *j, const struct dump *v)
{
	const struct dump_stats *vs = dump_stats(v);

	if (vs->write_error)
		j->output_error = vs->write_error;
	json_add_uint(j->stats, "lines", vs->lines);
	json_add_uint(j->stats, "bytes_out", vs->bytes);
	if (vs->cut)
		json_add_bool(j->losses, "output_cut", true);
}

/*
 * The build ids of files that were mapped and not needed, for the parent. It is no part of the
 * decoding: what a slow file system does not tell in time is counted and left.
 */
static int identify_images(struct job *j, const struct decode *d)
{
	const uint64_t until = io_now_ns() + IDENTIFY_NS;
	const uint32_t n = images_count(d->images);
	uint64_t left = 0;
	int r = 0;

	for (uint32_t i = 0; i < n && r == 0; i++) {
		if (io_now_ns() < until)
			r = image_identify(d->images, images_at(d->images, i));
		else
			left += images_at(d->images, i)->kind == IMAGE_FILE &&
				images_at(d->images, i)->state == IMAGE_NEW;
	}
	if (left)
		json_add_uint(j->stats, "images_not_identified", left);
	return r;
}

int job_decode(struct job *j, struct writer *w)
{
	_cleanup_(decode_fini) struct decode d = {0};
	uint64_t began, setup_ns;
	int r;

	r = decode_setup(j, &d, w);
	if (r < 0)
		return r;
	j->stage = "decoding";
	began = io_now_ns();
	setup_ns = began - j->began_ns;
	r = session_run(d.session);
	if (r == 0 && d.events)
		ringevents_tell_losses(d.events, report_loss, d.tl);
	if (r == 0 && d.pt && !d.dump)
		draw_pt_losses(d.pt, d.tl);
	if (r == 0 && images_stats(d.images)->changed && !d.dump)
		timeline_loss_untimed(d.tl, "executables changed", images_stats(d.images)->changed);
	if (r == 0)
		r = timeline_finish(d.tl, &j->summary);
	if (j->summary && d.meta.only)
		json_add_shared(j->summary, "only", d.meta.only);
	if (j->summary)
		session_hints(d.session, j->summary);
	if (r == 0 && d.dump)
		r = dump_finish(d.dump);
	if (r < 0 && d.dump && dump_stats(d.dump)->scratch_error) {
		(void)snprintf(j->error, sizeof(j->error), "its temporary file: %s",
			       strerror(-dump_stats(d.dump)->scratch_error));
		r = -EIO;
	}
	if (r == 0 && j->identify)
		r = identify_images(j, &d);
	add_stages(j, &d, w, setup_ns, io_now_ns() - began);
	session_report(d.session, j->stats, j->losses);
	if (d.pt)
		replay_pt_report(d.pt, j->stats, j->losses);
	if (d.source)
		source_report(d.source, j->stats, j->losses);
	report_go(j, &d);
	if (d.events)
		ringevents_report(d.events, j->stats, j->losses);
	if (stacktab_dropped(d.st))
		json_add_uint(j->losses, "stacks_over_memory", stacktab_dropped(d.st));
	add_timeline_stats(j, d.tl, w);
	if (d.dump)
		add_view_stats(j, d.dump);
	return r;
}
