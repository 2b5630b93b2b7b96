// SPDX-License-Identifier: Apache-2.0
#include "client/core/ptblob.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "common/base/cleanup.h"
#include "common/base/io.h"
#include "common/bundle/perfdata_write.h"
#include "common/control/json.h"

#define MAX_INFO (1u << 20)
#define MAX_MAPPINGS 4096u
#define MAX_SWITCHES (1u << 20)
#define MAX_CPU 4095u
#define MAX_BLOB (UINT64_C(4) << 30) /* it is kept in memory */
#define PMU_TYPE 6u /* any number: of this file's events */
#define COPY_BYTES (1u << 20)

static const uint64_t pt_id = 1, side_id = 2;

struct mapping {
	char *path;
	struct stat st;
	uint64_t offset, length, address;
};

struct change { /* from then on this thread runs */
	uint64_t ns, pid, tid;
};

struct blob {
	struct ctl *ctl;
	const char *info_path;
	uint64_t pid, tid, family, model, stepping;
	uint64_t shift, mult, zero, ratio, ctc_n, ctc_d, mtc_period;
	char name[64];
	struct mapping *mappings;
	size_t n_mappings;
	bool of_cpu;
	uint64_t cpu_number;
	struct change *switches;
	size_t n_switches;
};

static void blob_fini(struct blob *b)
{
	for (size_t i = 0; i < b->n_mappings; i++)
		free(b->mappings[i].path);
	free(b->mappings);
	free(b->switches);
}

static int bad(const struct blob *b, const char *fmt, ...) _printf_(2, 3);
static int bad(const struct blob *b, const char *fmt, ...)
{
	char what[512];
	va_list ap;

	va_start(ap, fmt);
	(void)vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	return ctl_fail(b->ctl, EXIT_FAILED, "bad_input", "%s: %s", b->info_path, what);
}

/* ---- the description */

/* A number, or one in a string. */
static bool number_of(struct json_object *o, uint64_t *ret)
{
	const char *text = json_object_is_type(o, json_type_string) ? json_object_get_string(o)
								    : NULL;
	char *end;

	if (text) {
		errno = 0;
		*ret = strtoull(text, &end, 0);
		return !errno && !*end && *text >= '0' && *text <= '9';
	}
	if (!json_object_is_type(o, json_type_int) || json_object_get_int64(o) < 0)
		return false;
	*ret = json_object_get_uint64(o);
	return true;
}

/* A number that may be left out. */
static int take(const struct blob *b, struct json_object *o, const char *key, uint64_t max,
		uint64_t *ret)
{
	const char *text;
	uint64_t v = 0;
	char *end;

	if (!o || !json_object_object_get_ex(o, key, NULL))
		return EXIT_OK;
	text = json_get_string(o, key);
	errno = 0;
	if (text ? (v = strtoull(text, &end, 0), errno || *end || *text < '0' || *text > '9')
		 : !json_get_uint(o, key, &v))
		return bad(b, "\"%s\" must be a number, or one in a string", key);
	if (v > max)
		return bad(b, "\"%s\" must be at most %" PRIu64, key, max);
	*ret = v;
	return EXIT_OK;
}

static int take_time(struct blob *b, struct json_object *o)
{
	struct json_object *ctc = o ? json_get_array(o, "tsc_ctc") : NULL;
	int r = take(b, o, "shift", 63, &b->shift);

	if (r == EXIT_OK)
		r = take(b, o, "mult", UINT32_MAX, &b->mult);
	if (r == EXIT_OK)
		r = take(b, o, "zero", UINT64_MAX, &b->zero);
	if (r == EXIT_OK)
		r = take(b, o, "nominal_ratio", 255, &b->ratio);
	if (r == EXIT_OK)
		r = take(b, o, "mtc_period", 15, &b->mtc_period);
	if (r != EXIT_OK || !o || !json_object_object_get_ex(o, "tsc_ctc", NULL))
		return r;
	for (size_t i = 0; ctc && json_object_array_length(ctc) == 2 && i < 2; i++) {
		struct json_object *v = json_object_array_get_idx(ctc, i);
		const int64_t n = json_object_is_type(v, json_type_int) ? json_object_get_int64(v)
									: 0;

		if (n < 1 || n > UINT32_MAX)
			break;
		*(i ? &b->ctc_d : &b->ctc_n) = (uint64_t)n;
	}
	if (!b->ctc_d)
		return bad(b, "\"tsc_ctc\" must be two numbers: EBX and EAX of CPUID.15H");
	return EXIT_OK;
}

/* The path as the decoder will ask for it. */
static int find_file(struct blob *b, const char *file, char **ret)
{
	const char *slash = strrchr(b->info_path, '/');
	char path[PATH_MAX];
	int n;

	if (file[0] == '/' || !slash)
		n = snprintf(path, sizeof(path), "%s", file);
	else
		n = snprintf(path, sizeof(path), "%.*s/%s", (int)(slash - b->info_path),
			     b->info_path, file);
	if ((size_t)n >= sizeof(path))
		return bad(b, "the name of a file is too long");
	*ret = realpath(path, NULL);
	return *ret ? EXIT_OK : bad(b, "cannot find its file %s: %s", path, strerror(errno));
}

static int take_mapping(struct blob *b, size_t i, struct json_object *o)
{
	struct mapping m = {.path = NULL};
	const char *file = json_object_is_type(o, json_type_object) ? json_get_string(o, "file")
								    : NULL;
	int r;

	if (!file || !*file || !json_object_object_get_ex(o, "length", NULL) ||
		!json_object_object_get_ex(o, "address", NULL))
		return bad(b, "mapping %zu needs a \"file\", a \"length\" and an \"address\"",
			   i + 1);
	r = take(b, o, "offset", INT64_MAX, &m.offset);
	if (r == EXIT_OK)
		r = take(b, o, "length", INT64_MAX, &m.length);
	if (r == EXIT_OK)
		r = take(b, o, "address", UINT64_MAX, &m.address);
	if (r == EXIT_OK && m.length == 0)
		return bad(b, "mapping %zu has no code in it", i + 1);
	if (r == EXIT_OK && m.length - 1 > UINT64_MAX - m.address)
		return bad(b, "mapping %zu ends beyond the last address", i + 1);
	if (r == EXIT_OK)
		r = find_file(b, file, &m.path);
	if (r != EXIT_OK)
		return r;
	b->mappings[b->n_mappings++] = m;
	if (stat(m.path, &b->mappings[b->n_mappings - 1].st) < 0)
		return bad(b, "cannot open its file %s: %s", m.path, strerror(errno));
	return EXIT_OK;
}

static int take_mappings(struct blob *b, struct json_object *list)
{
	const size_t n = list ? json_object_array_length(list) : 0;
	int r = EXIT_OK;

	if (n == 0 || n > MAX_MAPPINGS)
		return bad(b, "\"mappings\" must say which code was where, at most %u times",
			   MAX_MAPPINGS);
	b->mappings = calloc(n, sizeof(*b->mappings));
	if (!b->mappings)
		return ctl_report(b->ctl, -ENOMEM, NULL);
	for (size_t i = 0; i < n && r == EXIT_OK; i++)
		r = take_mapping(b, i, json_object_array_get_idx(list, i));
	return r;
}

static int take_switches(struct blob *b, struct json_object *o)
{
	struct json_object *list = json_get_array(o, "switches");
	const size_t n = list ? json_object_array_length(list) : 0;

	if (!json_object_object_get_ex(o, "switches", NULL))
		return EXIT_OK;
	if (!b->of_cpu || !list || n > MAX_SWITCHES)
		return bad(
			b,
			"\"switches\" must be a list, and of the CPU that \"cpu_number\" names, of at most %u",
			MAX_SWITCHES);
	b->switches = calloc(n + 1, sizeof(*b->switches));
	if (!b->switches)
		return ctl_report(b->ctl, -ENOMEM, NULL);
	for (size_t i = 0; i < n; i++) {
		struct json_object *one = json_object_array_get_idx(list, i);
		uint64_t v[3];
		bool good = json_object_is_type(one, json_type_array) &&
			    json_object_array_length(one) == 3;

		for (size_t k = 0; good && k < 3; k++)
			good = number_of(json_object_array_get_idx(one, k), &v[k]) &&
			       v[k] <= (k ? INT32_MAX : INT64_MAX);
		if (!good || v[0] == 0 || (i && v[0] < b->switches[i - 1].ns))
			return bad(
				b,
				"switch %zu must be a time not before the last one, a process and a thread",
				i + 1);
		b->switches[b->n_switches++] =
			(struct change){.ns = v[0], .pid = v[1], .tid = v[2]};
	}
	return EXIT_OK;
}

static int take_info(struct blob *b, struct json_object *o)
{
	struct json_object *cpu = json_get_object(o, "cpu");
	const char *name = json_get_string(o, "name");
	int r = take(b, o, "tid", INT32_MAX, &b->tid);

	if (r == EXIT_OK && b->tid == 0)
		return bad(b, "\"tid\" must say which thread this is a trace of");
	b->pid = b->tid;
	if (r == EXIT_OK)
		r = take(b, o, "pid", INT32_MAX, &b->pid);
	if (r == EXIT_OK)
		r = take(b, cpu, "family", 0xffff, &b->family);
	if (r == EXIT_OK)
		r = take(b, cpu, "model", 0xffff, &b->model);
	if (r == EXIT_OK)
		r = take(b, cpu, "stepping", 0xffff, &b->stepping);
	if (r == EXIT_OK)
		r = take_time(b, json_get_object(o, "time"));
	b->of_cpu = json_object_object_get_ex(o, "cpu_number", NULL);
	if (r == EXIT_OK)
		r = take(b, o, "cpu_number", MAX_CPU, &b->cpu_number);
	if (r == EXIT_OK)
		r = take_switches(b, o);
	if (r == EXIT_OK)
		r = take_mappings(b, json_get_array(o, "mappings"));
	if (r != EXIT_OK)
		return r;
	if (!name) {
		const char *slash = strrchr(b->mappings[0].path, '/');

		name = slash ? slash + 1 : b->mappings[0].path;
	}
	(void)snprintf(b->name, sizeof(b->name), "%s", name);
	return EXIT_OK;
}

static int read_info(struct blob *b)
{
	_cleanup_json_ struct json_object *o = NULL;
	_cleanup_free_ char *text = NULL;
	char why[256] = "";
	size_t n;
	int r = io_read_file_at(AT_FDCWD, b->info_path, MAX_INFO, &text, &n);

	if (r < 0)
		return ctl_fail(b->ctl, exit_code_from(r), tracerd_error_name(r),
				"cannot read %s: %s", b->info_path, strerror(-r));
	if (json_parse(text, n, MAX_INFO, &o, why, sizeof(why)) != 0 ||
	    !json_object_is_type(o, json_type_object))
		return bad(b, "this is no JSON object%s%s", *why ? ": " : "", why);
	return take_info(b, o);
}

/* ---- the file */

static int add_event(const struct blob *b, struct perfdata_writer *w, const char *name,
		     uint32_t type, uint64_t config, uint64_t id)
{
	const struct perf_event_attr attr = {
		.type = type,
		.size = sizeof(attr),
		.config = config,
		.sample_period = 1,
		.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP,
		.read_format = PERF_FORMAT_ID,
		.sample_id_all = 1,
		.exclude_kernel = 1,
		.mmap = type != PMU_TYPE,
		.mmap2 = type != PMU_TYPE,
		.comm = type != PMU_TYPE,
		.context_switch = type != PMU_TYPE && b->n_switches,
	};

	return perfdata_add_event(w, name, &attr, &id, 1);
}

static int add_events(const struct blob *b, struct perfdata_writer *w)
{
	uint64_t config = PERFABI_PT_CONFIG_PT | PERFABI_PT_CONFIG_BRANCH;
	int r;

	if (b->mult)
		config |= PERFABI_PT_CONFIG_TSC;
	if (b->ctc_d)
		config |= PERFABI_PT_CONFIG_MTC | PERFABI_PT_CONFIG_CYC | b->mtc_period << 14;
	r = add_event(b, w, "intel_pt//u", PMU_TYPE, config, pt_id);
	return r < 0 ? r
		     : add_event(b, w, "dummy:u", PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY, side_id);
}

static int write_pt_info(const struct blob *b, struct perfdata_writer *w)
{
	const struct perfabi_auxtrace_info_pt info = {
		.header = {.type = PERFABI_RECORD_AUXTRACE_INFO, .size = sizeof(info)},
		.type = PERFABI_AUXTRACE_INTEL_PT,
		.words = {
			[PERFABI_PT_PMU_TYPE] = PMU_TYPE,
			[PERFABI_PT_TIME_SHIFT] = b->shift,
			[PERFABI_PT_TIME_MULT] = b->mult,
			[PERFABI_PT_TIME_ZERO] = b->zero,
			[PERFABI_PT_CAP_USER_TIME_ZERO] = 1,
			[PERFABI_PT_PER_CPU_MMAPS] = b->of_cpu,
			[PERFABI_PT_TSC_BIT] = PERFABI_PT_CONFIG_TSC,
			[PERFABI_PT_NORETCOMP_BIT] = PERFABI_PT_CONFIG_NORETCOMP,
			[PERFABI_PT_MTC_BIT] = PERFABI_PT_CONFIG_MTC,
			[PERFABI_PT_MTC_FREQ_BITS] = PERFABI_PT_CONFIG_MTC_PERIOD,
			[PERFABI_PT_TSC_CTC_N] = b->ctc_n,
			[PERFABI_PT_TSC_CTC_D] = b->ctc_d,
			[PERFABI_PT_CYC_BIT] = PERFABI_PT_CONFIG_CYC,
			[PERFABI_PT_MAX_NONTURBO_RATIO] = b->ratio,
		},
	};

	return perfdata_write(w, &info, sizeof(info));
}

/* A record with its trailer; it was there before anything that has a time. */
static int write_record(const struct blob *b, struct perfdata_writer *w, uint8_t *record, size_t n)
{
	const struct perfabi_sample_id id = {
		.pid = (uint32_t)b->pid, .tid = (uint32_t)b->tid, .id = side_id};
	struct perf_event_header *header = (struct perf_event_header *)record;

	memcpy(record + n, &id, sizeof(id));
	header->size = (uint16_t)(n + sizeof(id));
	return perfdata_write(w, record, header->size);
}

/* Each change is one thread's way out and another one's way in. */
static int write_switches(const struct blob *b, struct perfdata_writer *w)
{
	struct {
		struct perf_event_header header;
		struct perfabi_sample_id id;
	} record = {.header = {.type = PERF_RECORD_SWITCH, .size = sizeof(record)}};
	int r = 0;

	record.id.id = side_id;
	record.id.cpu = (uint32_t)b->cpu_number;
	for (size_t i = 0; i < b->n_switches && r == 0; i++) {
		const struct change *c = &b->switches[i];

		record.id.time = c->ns;
		if (record.id.tid) {
			record.header.misc = PERF_RECORD_MISC_SWITCH_OUT;
			r = perfdata_write(w, &record, sizeof(record));
		}
		record.header.misc = 0;
		record.id.pid = (uint32_t)c->pid;
		record.id.tid = (uint32_t)c->tid;
		if (r == 0)
			r = perfdata_write(w, &record, sizeof(record));
	}
	return r;
}

static size_t padded(size_t n)
{
	return (n + 8) & ~(size_t)7;
}

static int write_names(const struct blob *b, struct perfdata_writer *w)
{
	_Alignas(8) uint8_t record[sizeof(struct perfabi_mmap2) + PATH_MAX +
				   sizeof(struct perfabi_sample_id) + 8];
	struct perfabi_comm *comm = (struct perfabi_comm *)record;
	struct perfabi_mmap2 *map = (struct perfabi_mmap2 *)record;
	int r;

	memset(record, 0, sizeof(record));
	comm->header.type = PERF_RECORD_COMM;
	comm->pid = (uint32_t)b->pid;
	comm->tid = (uint32_t)b->tid;
	memcpy(comm->comm, b->name, strlen(b->name));
	r = write_record(b, w, record, sizeof(*comm) + padded(strlen(b->name)));
	for (size_t i = 0; i < b->n_mappings && r == 0; i++) {
		const struct mapping *m = &b->mappings[i];
		const size_t n = strlen(m->path);

		memset(record, 0, sizeof(record));
		map->header.type = PERF_RECORD_MMAP2;
		map->header.misc = PERF_RECORD_MISC_USER;
		map->pid = (uint32_t)b->pid;
		map->tid = (uint32_t)b->tid;
		map->addr = m->address;
		map->len = m->length;
		map->pgoff = m->offset;
		/* it is this very file, whatever is in it */
		map->maj = major(m->st.st_dev);
		map->min = minor(m->st.st_dev);
		map->ino = m->st.st_ino;
		map->prot = PROT_READ | PROT_EXEC;
		map->flags = MAP_PRIVATE;
		memcpy(map->filename, m->path, n);
		r = write_record(b, w, record, sizeof(*map) + padded(n));
	}
	return r;
}

static int write_bytes(const struct blob *b, struct perfdata_writer *w, int fd, uint64_t bytes)
{
	const struct perfabi_auxtrace record = {.tid = b->of_cpu ? UINT32_MAX : (uint32_t)b->tid,
		.cpu = b->of_cpu ? (uint32_t)b->cpu_number : UINT32_MAX};
	_cleanup_free_ char *buffer = malloc(COPY_BYTES);
	int r = buffer ? perfdata_aux_begin(w, &record, bytes) : -ENOMEM;

	for (uint64_t at = 0; at < bytes && r == 0;) {
		const ssize_t n = io_pread_full(fd, buffer, COPY_BYTES, (off_t)at);

		if (n <= 0)
			return n < 0 ? (int)n : -EIO; /* it became shorter meanwhile */
		r = perfdata_aux_add(w, buffer,
				     (uint64_t)n < bytes - at ? (size_t)n : (size_t)(bytes - at));
		at += (uint64_t)n;
	}
	return r;
}

static int write_file(const struct blob *b, int blob_fd, uint64_t bytes, int fd)
{
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	char cpuid[64];
	const struct perfdata_about about = {.perf_clock = true,
					     .aux_pmu = "intel_pt",
					     .aux_pmu_type = PMU_TYPE,
					     .cpuid = cpuid};
	int r = perfdata_writer_new(fd, 0, NULL, &w);

	(void)snprintf(cpuid, sizeof(cpuid), "GenuineIntel,%" PRIu64 ",%" PRIu64 ",%" PRIu64,
		       b->family, b->model, b->stepping);
	if (r == 0)
		r = add_events(b, w);
	if (r == 0)
		r = write_pt_info(b, w);
	if (r == 0)
		r = write_names(b, w);
	if (r == 0)
		r = write_switches(b, w);
	if (r == 0)
		r = write_bytes(b, w, blob_fd, bytes);
	return r < 0 ? r : perfdata_finish(w, &about);
}

int ptblob_open(struct ctl *ctl, const char *blob_path, int blob_fd, const char *info_path,
		int *ret_fd)
{
	_cleanup_(blob_fini) struct blob b = {.ctl = ctl, .info_path = info_path};
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r = read_info(&b);

	if (r != EXIT_OK)
		return r;
	if (fstat(blob_fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size == 0 ||
	    (uint64_t)st.st_size > MAX_BLOB)
		return ctl_fail(ctl, EXIT_FAILED, "bad_input",
				"%s is no file with the bytes of a trace", blob_path);
	fd = memfd_create("intel_pt", MFD_CLOEXEC);
	r = fd < 0 ? -errno : write_file(&b, blob_fd, (uint64_t)st.st_size, fd);
	if (r < 0)
		return ctl_fail(ctl, exit_code_from(r), tracerd_error_name(r),
				"cannot take %s as a trace: %s", blob_path, strerror(-r));
	*ret_fd = take_fd(&fd);
	return EXIT_OK;
}
