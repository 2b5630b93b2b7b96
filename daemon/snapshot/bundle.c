// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/bundle.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/bundle/bundle.h"
#include "common/bundle/clocks.h"
#include "common/base/hashmap.h"
#include "common/control/json.h"
#include "daemon/snapshot/kernel_code.h"
#include "daemon/snapshot/kernel_names.h"
#include "daemon/snapshot/kernel_symbols.h"

/* A vDSO is two pages; what is larger is none. */
#define MAX_VDSO (1U << 20)
#define MAX_KALLSYMS (64U << 20)
#define MAX_MODULES (4U << 20)

void bundle_build_init(struct bundle_build *b)
{
	*b = (struct bundle_build){.dir = SAFEDIR_INIT};
}

void bundle_build_fini(struct bundle_build *b)
{
	safedir_close(&b->dir);
	free(b->losses);
	b->losses = NULL;
	b->n_losses = 0;
}

/* ---- steps */

static int keep_losses(struct bundle_build *b, const struct perfdata_writer *w)
{
	const struct perfdata_loss *losses;
	size_t n;

	losses = perfdata_losses(w, &n);
	if (n == 0)
		return 0;
	b->losses = calloc(n, sizeof(*losses));
	if (!b->losses)
		return -ENOMEM;
	memcpy(b->losses, losses, n * sizeof(*losses));
	b->n_losses = n;
	return 0;
}

static int write_perfdata(struct bundle_build *b)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	struct perfdata_about about = {
		.command = "tracerd",
		.clock = CLOCK_MONOTONIC_RAW,
		.clock_ns = frozen_raw_ns(b->frozen),
		.wall_clock_ns = frozen_unix_ns(b->frozen),
	};
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	frozen_about(b->frozen, &about);
	r = safefile_create(b->dir.dir_fd, BUNDLE_PERFDATA, &fd);
	if (r < 0)
		return r;
	r = perfdata_writer_new(fd, b->max_bytes, &b->cancel, &w);
	if (r < 0)
		return r;
	r = frozen_copy(b->frozen, w, &b->stats);
	if (r == -EFBIG) {
		b->perfdata_cut = true; /* what was written up to here is good */
		r = 0;
	}
	if (r < 0)
		return r;
	about.first_time = b->stats.first_ns;
	about.last_time = b->stats.last_ns;
	b->counts = *perfdata_counts(w);
	r = keep_losses(b, w);
	if (r == 0)
		r = perfdata_finish(w, &about);
	if (r < 0)
		return r;
	if (fstat(fd, &st) < 0)
		return -errno;
	b->perfdata_bytes = (uint64_t)st.st_size;
	return 0;
}

/* Ours, or what somebody else brought. */
static int bring_perfdata(struct bundle_build *b)
{
	int r = frozen_import(b->frozen, b->dir.dir_fd, b->max_bytes, &b->cancel,
			      &b->perfdata_bytes);

	if (r <= 0)
		return r;
	b->lacks = r == CAPTURE_E_NONE;
	if (b->lacks && !frozen_has_producers(b->frozen))
		return BUNDLE_BUILD_E_NOTHING;
	return write_perfdata(b);
}

static int write_vdso(struct bundle_build *b)
{
	_cleanup_close_ int out = -1;
	int fd = frozen_vdso_fd(b->frozen), r;
	uint64_t size;

	if (fd < 0) {
		b->vdso_missing = faccessat(b->dir.dir_fd, BUNDLE_VDSO, F_OK,
					    AT_SYMLINK_NOFOLLOW) < 0;
		return 0;
	}
	r = safefile_create(b->dir.dir_fd, BUNDLE_VDSO, &out);
	return r < 0 ? r : safefile_copy(fd, out, MAX_VDSO, &size);
}

/*
 * What the kernel's functions are called now, modules included; without the right to know it, all
 * addresses in it are 0. Only in a bundle that has the addresses of some, and of few only those. It
 * costs names, never the snapshot.
 */
static int write_kallsyms(struct bundle_build *b)
{
	_cleanup_close_ int own = -1, out = -1;
	const struct hashmap *addrs = frozen_kernel_addresses(b->frozen);
	int in = frozen_kallsyms_fd(b->frozen);
	uint64_t size;
	int r;

	if (!frozen_has_kernel_stacks(b->frozen) || (addrs && !addrs->n))
		return 0;
	if (in < 0)
		in = own = open("/proc/kallsyms", O_RDONLY | O_CLOEXEC);
	if (in < 0) {
		log_warning("%s: /proc/kallsyms: %s", b->id, strerror(errno));
		return 0;
	}
	r = safefile_create(b->dir.dir_fd, BUNDLE_KALLSYMS, &out);
	if (r == 0)
		r = addrs ? kernel_names_copy(in, out, addrs, MAX_KALLSYMS)
			  : safefile_copy(in, out, MAX_KALLSYMS, &size);
	if (r == -EFBIG)
		log_warning("%s: /proc/kallsyms has more than %u MiB", b->id, MAX_KALLSYMS >> 20);
	return r == -EFBIG ? 0 : r;
}

/* perf takes the code of a folder only with the list of modules beside it. */
static int write_modules(struct bundle_build *b)
{
	_cleanup_close_ int out = -1;
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r = io_read_file_at(AT_FDCWD, "/proc/modules", MAX_MODULES, &text, &len);

	/* A kernel without modules has no list. */
	if (r < 0 && r != -ENOMEM)
		len = 0;
	else if (r < 0)
		return r;
	r = safefile_create(b->dir.dir_fd, BUNDLE_MODULES, &out);
	return r < 0 || len == 0 ? r : io_write_all(out, text, len);
}

/* It costs what the kernel did, never the snapshot. */
static const char *words_of(int r)
{
	switch (r) {
	case -ENODATA:
		return "/proc/kallsyms does not show where it is";
	case -ENOENT:
		return "there is no list of its functions";
	case -EFBIG:
		return "it is larger than KERNEL_CODE_MAX, or than max_output_mib";
	case -ENOSPC:
	case -EDQUOT:
		return "no space";
	default:
		return "/proc/kcore could not be read";
	}
}

/* The kernel's code as it is now: modules that have gone are not in it. */
static int write_kernel_code(struct bundle_build *b)
{
	_cleanup_(kernel_symbols_fini) struct kernel_symbols symbols = {.n = 0};
	_cleanup_close_ int out = -1, kallsyms = -1;
	const int in = frozen_kcore_fd(b->frozen);
	uint64_t size;
	int r;

	if (in < 0)
		return 0;
	r = safefile_open(b->dir.dir_fd, BUNDLE_KALLSYMS, &kallsyms, &size);
	if (r == 0)
		r = kernel_symbols_read(kallsyms, MAX_KALLSYMS, &symbols);
	if (r == 0)
		r = safefile_create(b->dir.dir_fd, BUNDLE_KCORE, &out);
	if (r == 0)
		r = kernel_code_copy(in, &symbols, out, b->max_bytes, &b->kernel_code_bytes);
	if (r == 0)
		r = write_modules(b);
	if (r == 0 || r == -ENOMEM || r == -ECANCELED)
		return r;
	log_warning("%s: the kernel's code: %s (%s)", b->id, words_of(r), strerror(-r));
	b->kernel_code_missing = words_of(r);
	b->kernel_code_bytes = 0;
	(void)unlinkat(b->dir.dir_fd, BUNDLE_KCORE, 0);
	(void)unlinkat(b->dir.dir_fd, BUNDLE_MODULES, 0);
	return 0;
}

int bundle_build_copy(struct bundle_build *b)
{
	uint64_t begin = io_now_ns();
	int r;

	if (atomic_load(&b->cancel))
		return -ECANCELED;
	r = frozen_take(b->frozen);
	if (r == 0)
		r = safedir_begin(spool_dir_fd(b->spool), b->id, &b->dir);
	if (r == 0)
		r = frozen_copy_producers(b->frozen, b->dir.dir_fd, b->max_bytes, &b->cancel,
					  &b->rings_cut);
	if (r == 0)
		r = bring_perfdata(b);
	if (r == 0)
		r = write_vdso(b);
	if (r == 0)
		r = write_kallsyms(b);
	if (r == 0)
		r = write_kernel_code(b);
	b->copy_ns = io_now_ns() - begin;
	return r;
}

int bundle_build_write_meta(struct bundle_build *b, const char *text, size_t len)
{
	if (atomic_load(&b->cancel))
		return -ECANCELED;
	return safefile_write(b->dir.dir_fd, BUNDLE_META, text, len);
}

int bundle_build_copy_objects(struct bundle_build *b)
{
	_cleanup_close_ int images = -1;
	int r;

	if (!b->objects)
		return 0;
	r = safefile_mkdirs(b->dir.dir_fd, BUNDLE_IMAGES, &images);
	if (r == 0)
		r = objects_copy(b->objects, images, b->max_bytes, &b->cancel);
	if (r == -ENOSPC || r == -EDQUOT || r == -EFBIG) {
		/*
		 * The recording is worth more than copies of what is elsewhere; what has been
		 * copied stays.
		 */
		b->objects_failed = true;
		r = 0;
	}
	return r;
}

int bundle_build_add_ids(struct bundle_build *b)
{
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	if (atomic_load(&b->cancel))
		return -ECANCELED;
	fd = openat(b->dir.dir_fd, BUNDLE_PERFDATA, O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno;
	r = build_ids_write(b->build_ids, fd, &b->n_build_ids, &b->build_ids_left_out);
	if (r < 0)
		log_warning("%s: perf.data has no build ids: %s", b->id, strerror(-r));
	else if (b->perfdata_bytes && fstat(fd, &st) == 0)
		b->perfdata_bytes = (uint64_t)st.st_size;
	return 0;
}

int bundle_build_publish(struct bundle_build *b)
{
	int r;

	r = safefile_tree_size(b->dir.dir_fd, &b->bytes);
	if (r < 0)
		return r;
	if (atomic_load(&b->cancel))
		return -ECANCELED;
	r = safedir_publish(&b->dir);
	if (r == 0)
		b->published = true;
	return r;
}

void bundle_build_abort(struct bundle_build *b)
{
	safedir_abort(&b->dir);
}

/* ---- meta.json */

static struct json_object *host_json(void)
{
	struct json_object *o = json_object_new_object();
	struct utsname u;

	if (o && uname(&u) == 0) {
		json_add_text(o, "name", u.nodename, strlen(u.nodename));
		json_add_text(o, "kernel", u.release, strlen(u.release));
		json_add_string(o, "machine", u.machine);
	}
	return o;
}

struct json_object *bundle_build_perfdata(const struct bundle_build *b)
{
	const struct perfdata_counts *c = &b->counts;
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_uint(o, "bytes", b->perfdata_bytes);
	json_add_string(o, "clock", "monotonic_raw");
	json_add_uint(o, "records", c->records);
	json_add_uint(o, "samples", c->samples);
	json_add_uint(o, "maps", c->mmaps);
	json_add_uint(o, "comms", c->comms);
	json_add_uint(o, "execs", c->execs);
	json_add_uint(o, "forks", c->forks);
	json_add_uint(o, "exits", c->exits);
	json_add_uint(o, "namespaces", c->namespaces);
	json_add_uint(o, "switches", c->switches);
	json_add_uint(o, "others", c->others);
	json_add_uint(o, "build_ids", b->n_build_ids);
	if (b->build_ids_left_out)
		json_add_uint(o, "build_ids_left_out", b->build_ids_left_out);
	return o;
}

static struct json_object *lost_records_json(const struct bundle_build *b)
{
	struct json_object *array = json_object_new_array();

	for (size_t i = 0; array && i < b->n_losses; i++) {
		const struct perfdata_loss *l = &b->losses[i];
		struct json_object *e = json_object_new_object();

		json_add_string(e, "kind", l->type == PERF_RECORD_LOST ? "lost" : "lost_samples");
		json_add_uint(e, "time", l->time);
		json_add_uint(e, "lost", l->lost);
		json_add_uint(e, "cpu", l->cpu);
		json_append(array, e);
	}
	return array;
}

static void cut(struct json_object *array, const char *what, const char *why)
{
	struct json_object *e = json_object_new_object();

	json_add_string(e, "what", what);
	json_add_string(e, "why", why);
	json_append(array, e);
}

struct json_object *bundle_build_cut(const struct bundle_build *b)
{
	struct json_object *array = json_object_new_array();
	const char *why;

	if (!array)
		return NULL;
	if (b->perfdata_cut)
		cut(array, "samples", "perf.data met max_output_mib");
	if (b->lacks && frozen_missing(b->frozen, &why))
		cut(array, "recording", why);
	if (b->rings_cut)
		cut(array, "rings", "the event rings met max_output_mib");
	if (b->vdso_missing)
		cut(array, "vdso", "no image of the vDSO could be read");
	if (b->kernel_code_missing)
		cut(array, "kernel code", b->kernel_code_missing);
	if (b->objects_failed)
		cut(array, "objects", "no space");
	else if (b->objects && objects_left_out(b->objects) > 0)
		cut(array, "objects", "too many, too large, or not to be copied");
	return array;
}

struct json_object *bundle_decoder_json(const struct decoder_outcome *outcome, bool timed_out)
{
	static const char *const ends[] = {
		[DECODER_DONE] = "done",
		[DECODER_REFUSED] = "refused",
		[DECODER_CRASHED] = "crashed",
		[DECODER_KILLED] = "killed",
	};
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_string(o, "end", timed_out ? "timeout" : ends[outcome->end]);
	json_add_string(o, "message", outcome->message);
	json_add_string(o, "stderr", outcome->stderr_text);
	json_add_uint(o, "needs", outcome->requests);
	json_add_uint(o, "found", outcome->found);
	json_add_uint(o, "cpu_ns", outcome->cpu_ns);
	json_add_uint(o, "max_rss_bytes", outcome->max_rss_bytes);
	if (outcome->result) {
		json_add_shared(o, "stats", outcome->result->stats);
		json_add_shared(o, "losses", outcome->result->losses);
	}
	return o;
}

/* MONOTONIC of the last bracket before the oldest data. */
static uint64_t clocks_since(const struct clocks *clocks, uint64_t raw)
{
	uint64_t monotonic = 0;

	for (size_t i = 0; i < clocks->n_brackets && clocks->brackets[i].raw <= raw; i++)
		monotonic = clocks->brackets[i].monotonic;
	return monotonic;
}

struct json_object *bundle_build_meta(const struct bundle_build *b, const struct clocks *clocks,
				      struct json_object *snapshot, struct json_object *decoder)
{
	struct json_object *o = json_object_new_object(),
			   *capture = frozen_meta(b->frozen, &b->stats), *program;

	if (!o || !capture) {
		json_object_put(o);
		json_object_put(capture);
		json_object_put(snapshot);
		json_object_put(decoder);
		return NULL;
	}
	json_add_uint(o, "format", BUNDLE_FORMAT);
	program = json_add_new_object(o, "tracerd");
	json_add_string(program, "version", PACKAGE_VERSION);
	json_add(o, "snapshot", snapshot);
	json_add(o, "host", host_json());
	json_add(o, "clocks", clocks_to_json(clocks, clocks_since(clocks, b->stats.first_ns)));
	/* "target", "events", "records", "losses", "processes": what capture knows */
	json_object_object_foreach(capture, key, value)
		if (!json_object_object_get(o, key))
			json_add_shared(o, key, value);
	json_object_put(capture);
	clocks_add_suspends(clocks, clocks_since(clocks, b->stats.first_ns),
			    json_get_array(o, "gaps"));
	json_add(o, "perf_data", bundle_build_perfdata(b));
	json_add(o, "lost_records", lost_records_json(b));
	if (b->kernel_code_bytes)
		json_add_uint(o, "kernel_code_bytes", b->kernel_code_bytes);
	if (b->kernel_code_missing)
		json_add_uint(json_get_object(o, "losses"), "kernel_code_missing", 1);
	json_add(o, "cut", bundle_build_cut(b));
	if (b->objects)
		json_add(o, "objects", objects_to_json(b->objects));
	if (decoder)
		json_add(o, "decoder", decoder);
	return o;
}
