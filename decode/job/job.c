// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job/job.h"

#include <errno.h>
#include <fcntl.h>
#include <libelf.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/bundle/go_layout.h"
#include "common/bundle/python_layout.h"
#include "common/control/json.h"
#include "common/decoder/protocol.h"
#include "decode/base/workers.h"
#include "decode/job/job_internal.h"
#include "decode/job/resolve.h"
#include "decode/object/probe.h"
#include "decode/object/go_object.h"
#include "decode/object/python_object.h"
#include "decode/object/unwind_table.h"
#include "decode/writer/pack.h"
#include "decode/writer/writer.h"

#define JOB_WAIT_MS 30000
#define DEFAULT_MEMORY (1024u << 20)
#define MIN_MEMORY (32u << 20)

int job_refuse(struct job *j, const char *why)
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
static int job_take_fds(struct job *j, struct decoder_packet *p, struct json_object *inputs)
{
	size_t n = json_object_array_length(inputs);

	if (n != p->n_fds)
		return job_refuse(j, "the job names more or fewer descriptors than came with it");
	for (size_t i = 0; i < n; i++) {
		struct json_object *e = json_object_array_get_idx(inputs, i);
		const char *name =
			json_object_is_type(e, json_type_string) ? json_object_get_string(e) : "";
		int *to = NULL;

		if ((j->input == JOB_PROBE || j->input == JOB_UNWIND) && strcmp(name, "out") != 0)
			to = &j->probe_fds[j->n_probe++];
		else if (strcmp(name, "perf.data") == 0)
			to = &j->perfdata_fd;
		else if (strcmp(name, "meta.json") == 0)
			to = &j->meta_fd;
		else if (strcmp(name, "images/vdso.so") == 0)
			to = &j->vdso_fd;
		else if (strcmp(name, "go.trace") == 0)
			to = &j->go_fd;
		else if (strcmp(name, "kallsyms") == 0)
			to = &j->kallsyms_fd;
		else if (strcmp(name, "kcore") == 0)
			to = &j->kcore_fd;
		else if (strcmp(name, "scratch") == 0)
			to = &j->scratch_fd;
		else if (strcmp(name, "out") == 0)
			to = &j->out_fd;
		if (!to)
			continue;
		close_fd(*to);
		*to = take_fd(&p->fds[i]);
	}
	return 0;
}

static int job_take_view(struct job *j, struct json_object *options)
{
	static const char *const names[] = {
		[DUMP_CALLS] = "calls", [DUMP_BRANCHES] = "branches", [DUMP_INSNS] = "insns"};
	const char *name = options ? json_get_string(options, "view") : NULL;

	if (!name)
		return 0;
	for (size_t i = DUMP_CALLS; i < ARRAY_SIZE(names); i++)
		if (strcmp(name, names[i]) == 0)
			j->view = (enum dump_kind)i;
	if (j->view == DUMP_NONE || !j->text)
		return job_refuse(j, "the job asks for an unknown view");
	return 0;
}

static bool job_has_trace(const struct job *j)
{
	return j->input == JOB_BUNDLE || j->input == JOB_PERFDATA ||
	       (j->input == JOB_GO && !j->go_print);
}

static int job_parse(struct job *j, struct decoder_packet *p)
{
	const char *input = json_get_string(p->body, "input"),
		   *format = json_get_string(p->body, "format");
	struct json_object *inputs = json_get_array(p->body, "inputs");
	struct json_object *options = json_get_object(p->body, "options");
	const char *task = options ? json_get_string(options, "task") : NULL;
	int r;

	if (p->type != DECODER_PACKET_JOB || !input || !inputs)
		return job_refuse(j, "the first packet is not a valid job");
	if ((task && strcmp(task, "probe") == 0) || strcmp(input, "probe") == 0)
		j->input = JOB_PROBE;
	else if (strcmp(input, "unwind") == 0)
		j->input = JOB_UNWIND;
	else if (strcmp(input, "resolve") == 0)
		j->input = JOB_RESOLVE;
	else if (strcmp(input, "go") == 0)
		j->input = JOB_GO;
	else if (strcmp(input, "bundle") == 0)
		j->input = JOB_BUNDLE;
	else if (strcmp(input, "perfdata") == 0)
		j->input = JOB_PERFDATA;
	else
		return job_refuse(j, "the job has an unknown kind of input");
	j->text = format && strcmp(format, "text") == 0;
	j->go_wire = format && strcmp(format, "go-wire") == 0;
	j->go_print = j->go_wire || (format && strcmp(format, "go-parsed") == 0);
	if (j->input != JOB_GO && j->go_print)
		return job_refuse(j, "bad file format: not a Go execution trace?");
	if (!j->go_print && format && !j->text && strcmp(format, "pftrace") != 0)
		return job_refuse(j, "the job asks for an unknown format");
	r = job_take_view(j, options);
	if (r < 0)
		return r;
	j->compress = option_bool(options, "compress", true);
	j->symbols = option_bool(options, "symbols", true);
	j->inlined = option_bool(options, "inline", false);
	j->verify = option_bool(options, "verify", false);
	j->lines = j->inlined || option_bool(options, "lines", false);
	j->identify = option_bool(options, "identify", false);
	j->idle = option_bool(options, "idle", false);
	j->threads = (unsigned)option_uint(options, "threads", 0);
	if (j->threads > WORKERS_MAX)
		j->threads = WORKERS_MAX;
	j->max_output = option_uint(options, "max_output_bytes", 0);
	j->last_ns = option_uint(options, "last_ns", 0);
	j->max_memory = option_uint(options, "max_memory", DEFAULT_MEMORY);
	if (j->max_memory < MIN_MEMORY)
		j->max_memory = MIN_MEMORY;
	r = job_take_fds(j, p, inputs);
	if (r < 0)
		return r;
	if ((j->input == JOB_PERFDATA && j->perfdata_fd < 0) ||
		(job_has_trace(j) && j->out_fd < 0))
		return job_refuse(j, "the job has no perf.data or no output");
	if (j->view == DUMP_CALLS && j->scratch_fd < 0)
		return job_refuse(j, "the job asks for calls and has no scratch file");
	if (j->input == JOB_UNWIND && j->out_fd < 0)
		return job_refuse(j, "the job has no output");
	if (j->input == JOB_GO && (j->go_fd < 0 || j->out_fd < 0))
		return job_refuse(j, "the job has no trace or no output");
	if (j->input == JOB_RESOLVE)
		j->body = json_object_get(p->body);
	return 0;
}

static int job_probe(struct job *j)
{
	struct json_object *files = json_add_new_array(j->stats, "files");
	struct probe_answer first = {0};

	for (size_t i = 0; i < j->n_probe; i++) {
		struct json_object *o = json_object_new_object();
		struct probe_answer a = {0};
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
		json_add_bool(o, "go", a.go);
		json_append(files, o);
	}
	/* the program itself is the first; its libraries follow */
	json_add_bool(j->stats, "known", first.known);
	json_add_bool(j->stats, "frame_pointers", first.frame_pointers);
	return 0;
}

static void add_python(struct job *j, int fd, struct json_object *file)
{
	struct python_object python;
	struct json_object *o;

	if (python_object_look(fd, &j->budget, &python) < 0)
		return;
	o = json_add_new_object(file, "python");
	json_add_uint(o, "minor", python.minor);
	if (python.refused) {
		json_add_string(o, "refused", python.refused);
		return;
	}
	json_add_uint(o, "runtime", python.runtime);
	json_add(o, "layout", python_layout_json(&python.layout));
}

static void add_go(struct job *j, int fd, struct json_object *file)
{
	struct go_object go;
	struct json_object *o;

	if (go_object_look(fd, &j->budget, &go) < 0)
		return;
	o = json_add_new_object(file, "go");
	json_add_uint(o, "minor", go.minor);
	if (go.refused)
		json_add_string(o, "refused", go.refused);
	else
		json_add(o, "layout", go_layout_json(&go.layout));
}

/*
 * The tables follow each other in the output; "bytes" says how long each is, and 0 that there is
 * none. Without "tables" only what runtimes are in the files is wanted.
 */
static int job_unwind(struct job *j)
{
	struct json_object *files = json_add_new_array(j->stats, "files");
	bool tables = true;

	(void)json_get_bool(j->body, "tables", &tables);
	for (size_t i = 0; i < j->n_probe; i++) {
		_cleanup_(unwind_table_fini) struct unwind_table t = {0};
		struct json_object *o = json_object_new_object();
		int r = tables ? unwind_table_build(j->probe_fds[i], &j->budget, &t) : -ENODATA;

		if (!o)
			return -ENOMEM;
		json_add_string(o, "error", r < 0 ? strerror(-r) : "");
		json_add_uint(o, "bytes", r < 0 ? 0 : unwind_table_bytes(&t));
		/* nor will there be when it is tried again */
		json_add_bool(o, "none", tables && r == -ENODATA);
		json_add_uint(o, "functions", t.functions);
		json_add_uint(o, "refused", t.refused);
		add_python(j, j->probe_fds[i], o);
		add_go(j, j->probe_fds[i], o);
		json_append(files, o);
		if (r == 0)
			r = unwind_table_write(&t, j->out_fd);
		else
			r = 0;
		if (r < 0)
			return r;
	}
	return 0;
}

static int job_resolve(struct job *j)
{
	int r = resolve_run(j->body, &j->files, &j->budget, j->stats);

	return r == -EINVAL ? job_refuse(j, "the job does not say what to resolve") : r;
}

static const char *error_text(const struct job *j, int r)
{
	if (j->error[0])
		return j->error;
	switch (r) {
	case -ECANCELED:
		return "cancelled";
	case -ENOSPC:
		return "no space is left for the trace";
	case -EFBIG:
		return "the trace would be larger than its limit";
	case -ENOMEM:
		return "there is not enough memory";
	case -ETIMEDOUT:
		return "a request for a file got no answer in time";
	default:
		return strerror(-r);
	}
}

static int job_run(struct job *j)
{
	_cleanup_(workers_freep) struct workers *workers = NULL;
	_cleanup_(pack_freep) struct pack *pack = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	_cleanup_close_ int null_fd = -1;
	int r;

	if (job_has_trace(j)) {
		struct writer_options wo = {.compress = j->compress && !j->text,
			.max_output_bytes = j->max_output,
			.max_name_bytes = j->max_memory / 8};

		r = workers_new(j->threads, &workers);
		if (r < 0)
			return r;
		j->workers = workers;
		if (wo.compress) {
			r = pack_new(workers, 0, &pack);
			if (r < 0)
				return r;
			wo.pack = pack;
		}
		/*
		 * a view takes the place of the timeline, of which nobody wants to see anything
		 * then
		 */
		if (j->view) {
			null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
			if (null_fd < 0)
				return -errno;
		}
		r = j->text ? text_writer_new(j->view ? null_fd : j->out_fd, &wo, &w)
			    : pftrace_writer_new(j->out_fd, &wo, &w);
		if (r < 0)
			return r;
	}
	/* libraries that set themselves up at their first use do it while they still may */
	(void)elf_version(EV_CURRENT);
	(void)uname(&j->host);
	sandbox_enter(j->max_memory, j->idle, &j->layers);
	if (j->layers.error)
		log_warning("there is no system call filter: %s", strerror(-j->layers.error));
	if (j->input == JOB_RESOLVE)
		r = job_resolve(j);
	else if (j->input == JOB_UNWIND)
		r = job_unwind(j);
	else if (j->go_print)
		r = job_print_go(j);
	else
		r = j->input == JOB_PROBE ? job_probe(j) : job_decode(j, w);
	sandbox_report(&j->layers, j->stats);
	return r;
}

/* The result lacks something for want of memory; by now the decoder's own is free again. */
static int answer_no_memory(struct job *j)
{
	_cleanup_json_ struct json_object *body = json_object_new_object();

	json_add_bool(body, "ok", false);
	json_add_string(body, "error", "out of memory");
	return decoder_packet_send(j->link.fd, DECODER_PACKET_RESULT, body, NULL, 0, 0);
}

static int job_answer(struct job *j, int result)
{
	_cleanup_json_ struct json_object *body = json_object_new_object();
	int r;

	json_add_bool(body, "ok", result == 0);
	json_add_string(body, "error", result ? error_text(j, result) : "");
	if (result && j->output_error)
		json_add_uint(body, "output_errno", (uint64_t)-j->output_error);
	json_add(body, "stats", take_ptr(j->stats));
	json_add(body, "losses", take_ptr(j->losses));
	if (j->summary)
		json_add(body, "summary", take_ptr(j->summary));
	r = decoder_packet_send(j->link.fd, DECODER_PACKET_RESULT, body, NULL, 0, 0);
	if (r == -EMSGSIZE) {
		/* only the summary can be that long */
		json_object_object_del(body, "summary");
		r = decoder_packet_send(j->link.fd, DECODER_PACKET_RESULT, body, NULL, 0, 0);
	}
	return r == -ENOMEM ? answer_no_memory(j) : r;
}

static void job_fini(struct job *j)
{
	json_object_put(j->body);
	json_object_put(j->stats);
	json_object_put(j->losses);
	json_object_put(j->summary);
	close_fd(j->perfdata_fd);
	close_fd(j->meta_fd);
	close_fd(j->vdso_fd);
	close_fd(j->go_fd);
	close_fd(j->kallsyms_fd);
	close_fd(j->kcore_fd);
	close_fd(j->scratch_fd);
	close_fd(j->out_fd);
	for (size_t i = 0; i < j->n_probe; i++)
		close_fd(j->probe_fds[i]);
}

int job_serve(int link)
{
	struct decoder_packet packet = DECODER_PACKET_INIT;
	struct pollfd p = {.fd = link, .events = POLLIN};
	_cleanup_(job_fini) struct job j = {.perfdata_fd = -1,
					    .meta_fd = -1,
					    .vdso_fd = -1,
					    .go_fd = -1,
					    .kallsyms_fd = -1,
					    .kcore_fd = -1,
					    .scratch_fd = -1,
					    .out_fd = -1};
	int r;

	j.began_ns = io_now_ns();
	j.stats = json_object_new_object();
	j.losses = json_object_new_object();
	parent_link_init(&j.link, link);
	j.files.ask = parent_link_ask;
	j.files.judge = parent_link_judge;
	j.files.arg = &j.link;
	if (!j.stats || !j.losses)
		return 1;
	do
		r = poll(&p, 1, JOB_WAIT_MS);
	while (r < 0 && errno == EINTR);
	if (r <= 0) {
		log_error("no job has arrived");
		return 1;
	}
	r = decoder_packet_recv(link, &packet, 0);
	if (r <= 0) {
		log_error("no job has arrived: %s", r ? strerror(-r) : "the link is closed");
		return 1;
	}
	r = job_parse(&j, &packet);
	decoder_packet_fini(&packet);
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
