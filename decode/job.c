// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "common/declink.h"
#include "common/io.h"
#include "common/json.h"
#include "common/log.h"
#include "decode/image.h"
#include "decode/link.h"
#include "decode/meta.h"
#include "decode/pack.h"
#include "decode/probe.h"
#include "decode/sandbox.h"
#include "decode/session.h"

#define JOB_WAIT_MS 30000
#define DEFAULT_MEMORY (1024u << 20)
#define MIN_MEMORY (32u << 20)

enum job_input { JOB_BUNDLE, JOB_PERFDATA, JOB_PROBE };

struct job {
	enum job_input input;
	bool text;
	bool compress;
	bool symbols;
	bool idle;
	unsigned threads;
	uint64_t max_output, max_memory;
	int perfdata_fd, meta_fd, vdso_fd, out_fd;
	int probe_fds[DECLINK_MAX_FDS];
	size_t n_probe;

	struct utsname host;
	struct link link;
	struct need need;
	struct sandbox_layers layers;
	struct budget budget;
	struct json_object *stats, *losses, *summary;
	const char *stage;
	char error[256];
};

static int job_refuse(struct job *j, const char *why)
{
	(void)snprintf(j->error, sizeof(j->error), "%s", why);
	return -EINVAL;
}

static uint64_t option_uint(struct json_object *options, const char *key, uint64_t fallback)
{
	uint64_t v;

	return options && json_get_uint(options, key, &v) ? v : fallback;
}

static bool option_bool(struct json_object *options, const char *key, bool fallback)
{
	bool v;

	return options && json_get_bool(options, key, &v) ? v : fallback;
}

/* Each descriptor has a name; what has none here stays unused and is closed with the packet. */
static int job_take_fds(struct job *j, struct declink_packet *p, struct json_object *inputs)
{
	size_t n = json_object_array_length(inputs);

	if (n != p->n_fds)
		return job_refuse(j, "the job names other descriptors than it carries");
	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(inputs, i);
		const char *name = json_object_is_type(e, json_type_string) ? json_object_get_string(e) : "";
		int *to = NULL;

		if (j->input == JOB_PROBE && strcmp(name, "out") != 0)
			to = &j->probe_fds[j->n_probe++];
		else if (strcmp(name, "perf.data") == 0)
			to = &j->perfdata_fd;
		else if (strcmp(name, "meta.json") == 0)
			to = &j->meta_fd;
		else if (strcmp(name, "images/vdso.so") == 0)
			to = &j->vdso_fd;
		else if (strcmp(name, "out") == 0)
			to = &j->out_fd;
		if (!to)
			continue;
		close_fd(*to);
		*to = take_fd(&p->fds[i]);
	}
	return 0;
}

static int job_parse(struct job *j, struct declink_packet *p)
{
	const char *input = json_get_string(p->body, "input"), *format = json_get_string(p->body, "format");
	struct json_object *inputs = json_get_array(p->body, "inputs");
	struct json_object *options = json_get_object(p->body, "options");
	const char *task = options ? json_get_string(options, "task") : NULL;
	int r;

	if (p->type != DECLINK_JOB || !input || !inputs)
		return job_refuse(j, "this is not a job");
	if ((task && strcmp(task, "probe") == 0) || strcmp(input, "probe") == 0)
		j->input = JOB_PROBE;
	else if (strcmp(input, "bundle") == 0)
		j->input = JOB_BUNDLE;
	else if (strcmp(input, "perfdata") == 0)
		j->input = JOB_PERFDATA;
	else
		return job_refuse(j, "the job has an unknown kind of input");
	j->text = format && strcmp(format, "text") == 0;
	if (format && !j->text && strcmp(format, "pftrace") != 0)
		return job_refuse(j, "the job asks for an unknown format");
	j->compress = option_bool(options, "compress", true);
	j->symbols = option_bool(options, "symbols", true);
	j->idle = option_bool(options, "idle", false);
	j->threads = (unsigned)option_uint(options, "threads", 0);
	if (j->threads > PACK_MAX_THREADS)
		j->threads = PACK_MAX_THREADS;
	j->max_output = option_uint(options, "max_output_bytes", 0);
	j->max_memory = option_uint(options, "max_memory", DEFAULT_MEMORY);
	if (j->max_memory < MIN_MEMORY)
		j->max_memory = MIN_MEMORY;
	r = job_take_fds(j, p, inputs);
	if (r < 0)
		return r;
	if (j->input != JOB_PROBE && (j->perfdata_fd < 0 || j->out_fd < 0))
		return job_refuse(j, "the job has no perf.data or no output");
	return 0;
}

static int on_progress(void *arg, uint64_t done, uint64_t total)
{
	struct job *j = arg;

	return link_progress(&j->link, j->stage, done, total);
}

/* ---- decoding */

struct decode {
	struct perfdata *pd;
	struct images *images;
	struct stacktab *st;
	struct clock_map *clocks;
	struct timeline *tl;
	struct session *session;
	struct meta meta;
};

static void decode_fini(struct decode *d)
{
	session_free(d->session);
	timeline_free(d->tl);
	clock_map_free(d->clocks);
	images_free(d->images);
	stacktab_free(d->st);
	perfdata_free(d->pd);
	meta_fini(&d->meta);
}

static int make_clocks(struct decode *d)
{
	enum clock_source source = session_clock(d->pd);
	int r = clock_map_new(source, &d->clocks);

	if (r < 0)
		return r;
	if (source == CLOCK_SOURCE_MONOTONIC_RAW) {
		for (size_t i = 0; i < d->meta.n_brackets && r >= 0; i++)
			r = clock_map_add(d->clocks, &d->meta.brackets[i]);
	}
	if (d->pd->clock_data.known && source == CLOCK_SOURCE_MONOTONIC && r >= 0) {
		const struct clock_bracket b = { .source = d->pd->clock_data.clock_ns,
			.monotonic = d->pd->clock_data.clock_ns,
			.realtime = d->pd->clock_data.wall_ns };

		r = clock_map_add(d->clocks, &b);
	}
	clock_map_finish(d->clocks);
	return r < 0 ? r : 0;
}

/* What was recorded by this kernel was recorded here, as far as anybody can tell. */
static bool recorded_here(const struct job *j, const struct decode *d)
{
	return d->pd->osrelease && strcmp(j->host.release, d->pd->osrelease) == 0;
}

/* perf's own table of build ids; and the vDSO of this machine where it is the same kernel's. */
static void tell_images(struct job *j, struct decode *d)
{
	for (uint32_t i = 0; i < d->pd->n_build_ids; i++)
		images_expect(d->images, d->pd->build_ids[i].name, d->pd->build_ids[i].id, d->pd->build_ids[i].size);
	if (j->vdso_fd >= 0)
		images_set_vdso_fd(d->images, take_fd(&j->vdso_fd));
	else if (recorded_here(j, d))
		images_use_own_vdso(d->images);
}

static int decode_setup(struct job *j, struct decode *d, struct writer *w)
{
	struct timeline_options to = { .version = PACKAGE_VERSION };
	struct session_options so = { .symbols = j->symbols, .progress = on_progress, .progress_arg = j };
	int r;

	if (j->meta_fd >= 0) {
		r = meta_read(j->meta_fd, &d->meta);
		if (r > 0)
			json_add_bool(j->losses, "meta_unreadable", true);
		else if (r < 0)
			return r;
	}
	r = perfdata_open(j->perfdata_fd, &j->budget, &d->pd);
	if (r > 0)
		return job_refuse(j, perfdata_strerror(r));
	if (r < 0)
		return r;
	j->stage = "reading";
	r = perfdata_scan(d->pd, on_progress, j);
	if (r < 0)
		return r;
	r = stacktab_new(j->max_memory / 8, &d->st);
	if (r >= 0)
		r = images_new(&j->need, &j->budget, &d->images);
	if (r >= 0)
		r = make_clocks(d);
	if (r < 0)
		return r;
	tell_images(j, d);
	to.period_ns = session_period_ns(d->pd);
	to.clocks = d->clocks;
	to.switches = session_has_switches(d->pd);
	to.kernel_release = d->meta.kernel_release[0] ? d->meta.kernel_release : d->pd->osrelease;
	to.machine = d->meta.machine[0] ? d->meta.machine : d->pd->arch;
	r = timeline_new(&to, d->st, w, &d->tl);
	if (r < 0)
		return r;
	so.pd = d->pd;
	so.images = d->images;
	so.st = d->st;
	so.tl = d->tl;
	so.need = &j->need;
	so.perfmaps = j->input == JOB_BUNDLE || recorded_here(j, d);
	so.budget = &j->budget;
	so.whole_target = j->input == JOB_BUNDLE;
	so.notes = d->meta.notes;
	so.n_notes = d->meta.n_notes;
	so.nspid = meta_nspid;
	so.nspid_arg = &d->meta;
	return session_new(&so, &d->session);
}

static void add_timeline_stats(struct job *j, const struct timeline *tl, const struct writer *w)
{
	struct timeline_stats ts;
	struct writer_stats ws;

	timeline_stats(tl, &ts);
	writer_stats(w, &ws);
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
	if (ts.inconsistent)
		json_add_uint(j->losses, "switches_inconsistent", ts.inconsistent);
	if (ts.cut)
		json_add_uint(j->losses, "output_cut_at_ns", ts.cut_ns);
	if (ws.bytes_dropped)
		json_add_uint(j->losses, "bytes_over_output_limit", ws.bytes_dropped);
	if (ws.names_dropped)
		json_add_uint(j->losses, "names_over_memory", ws.names_dropped);
}

static int job_decode(struct job *j, struct writer *w)
{
	_cleanup_(decode_fini) struct decode d = { 0 };
	int r;

	r = decode_setup(j, &d, w);
	if (r < 0)
		return r;
	j->stage = "decoding";
	r = session_run(d.session);
	if (r == 0)
		r = timeline_finish(d.tl, &j->summary);
	session_report(d.session, j->stats, j->losses);
	if (stacktab_dropped(d.st))
		json_add_uint(j->losses, "stacks_over_memory", stacktab_dropped(d.st));
	add_timeline_stats(j, d.tl, w);
	return r;
}

static int job_probe(struct job *j)
{
	struct json_object *files = json_add_new_array(j->stats, "files");
	struct probe_answer first = { 0 };

	for (size_t i = 0; i < j->n_probe; i++) {
		struct json_object *o = json_object_new_object();
		struct probe_answer a = { 0 };
		int r = probe_file(j->probe_fds[i], &j->budget, &a);

		if (i == 0)
			first = a;
		if (!o)
			return -ENOMEM;
		json_add_bool(o, "readable", r == 0);
		json_add_bool(o, "known", a.known);
		json_add_uint(o, "functions", a.functions);
		json_add_uint(o, "with_frame_pointer", a.with);
		json_add_bool(o, "frame_pointers", a.frame_pointers);
		json_append(files, o);
	}
	/* the program itself is the first; its libraries follow */
	json_add_bool(j->stats, "known", first.known);
	json_add_bool(j->stats, "frame_pointers", first.frame_pointers);
	return 0;
}

static const char *error_text(const struct job *j, int r)
{
	if (j->error[0])
		return j->error;
	switch (r) {
	case -ECANCELED:
		return "cancelled";
	case -ENOSPC:
		return "no space left for the trace";
	case -EFBIG:
		return "the trace would be larger than its limit";
	case -ENOMEM:
		return "not enough memory";
	case -ETIMEDOUT:
		return "no answer to a question for a file";
	default:
		return strerror(-r);
	}
}

static int job_run(struct job *j)
{
	_cleanup_(pack_freep) struct pack *pack = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	int r;

	if (j->input != JOB_PROBE) {
		struct writer_options wo = { .compress = j->compress && !j->text,
			.max_output_bytes = j->max_output,
			.max_name_bytes = j->max_memory / 8 };

		if (wo.compress) {
			r = pack_new(j->threads, 0, &pack);
			if (r < 0)
				return r;
			wo.pack = pack;
		}
		r = j->text ? text_writer_new(j->out_fd, &wo, &w) : pftrace_writer_new(j->out_fd, &wo, &w);
		if (r < 0)
			return r;
	}
	/* libraries that set themselves up at their first use do it while they still may */
	(void)elf_version(EV_CURRENT);
	(void)uname(&j->host);
	sandbox_enter(j->max_memory, j->idle, &j->layers);
	if (j->layers.error)
		log_warning("no system call filter: %s", strerror(-j->layers.error));
	r = j->input == JOB_PROBE ? job_probe(j) : job_decode(j, w);
	sandbox_report(&j->layers, j->stats);
	return r;
}

static int job_answer(struct job *j, int result)
{
	_cleanup_json_ struct json_object *body = json_object_new_object();
	int r;

	if (!body)
		return -ENOMEM;
	json_add_bool(body, "ok", result == 0);
	json_add_string(body, "error", result ? error_text(j, result) : "");
	json_add(body, "stats", take_ptr(j->stats));
	json_add(body, "losses", take_ptr(j->losses));
	if (j->summary)
		json_add(body, "summary", take_ptr(j->summary));
	r = declink_send(j->link.fd, DECLINK_RESULT, body, NULL, 0, 0);
	if (r == -EMSGSIZE) {
		/* only the summary can be that long */
		json_object_object_del(body, "summary");
		r = declink_send(j->link.fd, DECLINK_RESULT, body, NULL, 0, 0);
	}
	return r;
}

static void job_fini(struct job *j)
{
	json_object_put(j->stats);
	json_object_put(j->losses);
	json_object_put(j->summary);
	close_fd(j->perfdata_fd);
	close_fd(j->meta_fd);
	close_fd(j->vdso_fd);
	close_fd(j->out_fd);
	for (size_t i = 0; i < j->n_probe; i++)
		close_fd(j->probe_fds[i]);
}

int job_serve(int link)
{
	struct declink_packet packet = DECLINK_PACKET_INIT;
	struct pollfd p = { .fd = link, .events = POLLIN };
	_cleanup_(job_fini) struct job j = {
		.perfdata_fd = -1, .meta_fd = -1, .vdso_fd = -1, .out_fd = -1 };
	int r;

	j.stats = json_object_new_object();
	j.losses = json_object_new_object();
	link_init(&j.link, link);
	j.need.ask = link_ask;
	j.need.arg = &j.link;
	if (!j.stats || !j.losses)
		return 1;
	do
		r = poll(&p, 1, JOB_WAIT_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0) {
		log_error("no job came");
		return 1;
	}
	r = declink_recv(link, &packet, 0);
	if (r <= 0) {
		log_error("no job came: %s", r ? strerror(-r) : "the link is closed");
		return 1;
	}
	r = job_parse(&j, &packet);
	declink_packet_fini(&packet);
	j.budget.max = j.max_memory / 2;
	if (r == 0)
		r = job_run(&j);
	r = job_answer(&j, r);
	if (r < 0) {
		log_error("the result could not be sent: %s", strerror(-r));
		return 1;
	}
	return 0;
}
