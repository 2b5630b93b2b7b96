// SPDX-License-Identifier: Apache-2.0
#include "daemon/perf/eventset.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/bundle/perfabi.h"
#include "daemon/base/closer.h"

#define CPUS_MAX 8192
/* So much is closed at once: some tenths of a millisecond. */
#define AT_ONCE_FDS 32
#define AT_ONCE_BYTES (1u << 20)

int cpus_parse(const char *text, int **ret, size_t *ret_n)
{
	_cleanup_free_ int *cpus = NULL;
	size_t n = 0, room = 0;
	const char *p = text;

	while (*p && *p != '\n') {
		char *stop;
		long from = strtol(p, &stop, 10), to = from;

		if (stop == p || from < 0)
			return -EBADMSG;
		if (*stop == '-') {
			p = stop + 1;
			to = strtol(p, &stop, 10);
			if (stop == p)
				return -EBADMSG;
		}
		if (to < from || to >= CPUS_MAX)
			return -EBADMSG;
		for (long cpu = from; cpu <= to; cpu++) {
			if (n == room) {
				int *bigger;

				if (n >= CPUS_MAX)
					return -EBADMSG;
				room = room ? room * 2 : 16;
				bigger = reallocarray(cpus, room, sizeof(*cpus));
				if (!bigger)
					return -ENOMEM;
				cpus = bigger;
			}
			cpus[n++] = (int)cpu;
		}
		p = *stop == ',' ? stop + 1 : stop;
		if (*stop && *stop != ',' && *stop != '\n')
			return -EBADMSG;
	}
	if (n == 0)
		return -EBADMSG;
	*ret = take_ptr(cpus);
	*ret_n = n;
	return 0;
}

int cpus_online(int **ret, size_t *ret_n)
{
	_cleanup_free_ char *text = NULL;
	size_t len;
	int r;

	r = io_read_file_at(AT_FDCWD, "/sys/devices/system/cpu/online", 4096, &text, &len);
	if (r < 0)
		return r;
	return cpus_parse(text, ret, ret_n);
}

static bool smt_is_off(void)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	return io_read_file_at(AT_FDCWD, "/sys/devices/system/cpu/smt/control", 64, &text, &len) ==
		       0 &&
	       (strcmp(text, "off\n") == 0 || strcmp(text, "forceoff\n") == 0);
}

int cpus_to_come(int **ret, size_t *ret_n)
{
	_cleanup_free_ char *text = NULL;
	size_t len;

	if (smt_is_off() ||
	    io_read_file_at(AT_FDCWD, "/sys/devices/system/cpu/present", 4096, &text, &len) < 0)
		return cpus_online(ret, ret_n);
	return cpus_parse(text, ret, ret_n);
}

void eventset_close(struct eventset *set)
{
	for (size_t i = 0; set->auxes && i < set->n_cpus; i++)
		aux_unmap(&set->auxes[i]);
	for (size_t i = 0; set->rings && i < set->n_cpus; i++)
		ring_unmap(&set->rings[i]);
	for (size_t i = 0; set->fds && i < set->n_subjects * set->n_cpus; i++)
		set->fds[i] = close_fd(set->fds[i]);
	free(set->auxes);
	free(set->rings);
	free(set->fds);
	free(set->ids);
	free(set->groups);
	free(set->cpus);
	*set = (struct eventset){0};
}

struct closing_sets {
	size_t n;
	struct eventset sets[EVENTSETS_TOGETHER];
};

static void close_sets(void *data)
{
	struct closing_sets *closing = data;

	for (size_t i = 0; i < closing->n; i++)
		eventset_close(&closing->sets[i]);
}

void eventset_close_all(struct eventset *sets, size_t n, struct closer *closer)
{
	struct closing_sets closing = {.n = n};
	size_t fds = 0, bytes = 0;

	for (size_t i = 0; i < n; i++) {
		fds += sets[i].n_fds;
		bytes += sets[i].ring_bytes;
		closing.sets[i] = sets[i];
		sets[i] = (struct eventset){0};
	}
	if (fds > AT_ONCE_FDS || bytes > AT_ONCE_BYTES)
		closer_call(closer, close_sets, &closing, sizeof(closing), fds);
	else
		close_sets(&closing);
}

static int map_ring(const struct eventset_spec *spec, int fd, size_t *bytes, struct ring *ring)
{
	int r;

	for (;;) {
		r = ring_map(fd, *bytes, spec->overwrite, ring);
		/* Over the allowance of locked memory: EPERM. What is smaller records less time. */
		if ((r != -EPERM && r != -ENOMEM) || !spec->ring_bytes_min ||
		    *bytes / 2 < spec->ring_bytes_min)
			/* Not to be taken for a missing right to the events themselves. */
			return r == -EPERM ? -ENOBUFS : r;
		*bytes /= 2;
	}
}

/* The ring of a CPU, with its AUX area. */
static int map_leader(const struct eventset_spec *spec, struct eventset *set, size_t cpu, int fd,
		      size_t *bytes)
{
	int r;

	r = map_ring(spec, fd, bytes, &set->rings[cpu]);
	if (r < 0)
		return r;
	set->ring_bytes += set->rings[cpu].size;
	if (!spec->aux_bytes)
		return 0;
	r = aux_map(&set->rings[cpu], fd, spec->aux_bytes, &set->auxes[cpu]);
	if (r < 0)
		return r == -EPERM ? -ENOBUFS : r;
	set->ring_bytes += set->auxes[cpu].size;
	return 0;
}

/* -1 with errno. */
static int open_event(const struct eventset_spec *spec, struct eventset *set, size_t subject,
		      size_t cpu)
{
	const pid_t pid = spec->subjects ? spec->subjects[subject] : -1;
	struct perf_event_attr attr;
	int fd, group;

	for (size_t attempt = 0; spec->leader; attempt++) {
		group = spec->leader(spec->leader_arg, subject, set->cpus[cpu], attempt);
		if (group < 0)
			break;
		attr = *spec->grouped;
		fd = perfabi_open(&attr, pid, set->cpus[cpu], group, 0);
		if (fd >= 0)
			set->groups[subject * set->n_cpus + cpu] = group;
		/* Not this thread's now, or cannot be joined. */
		if (fd >= 0 || (errno != EINVAL && errno != EOPNOTSUPP))
			return fd;
	}
	if (spec->grouped_only) {
		errno = ENODEV;
		return -1;
	}
	attr = spec->attr;
	return perfabi_open(&attr, pid, set->cpus[cpu], -1,
			    spec->cgroup ? PERF_FLAG_PID_CGROUP : 0);
}

static int open_one(const struct eventset_spec *spec, struct eventset *set, size_t subject,
		    size_t cpu, size_t *bytes, int *leader)
{
	size_t at = subject * set->n_cpus + cpu;
	int fd, out, r;

	fd = open_event(spec, set, subject, cpu);
	if (fd < 0 && errno == EBUSY && spec->busy_is_covered)
		return 0;
	if (fd < 0)
		/* An offline cpu; a thread that ended since it was listed. */
		return errno == ENODEV || (errno == ESRCH && spec->subjects && !spec->cgroup)
			       ? 0
			       : -errno;
	set->fds[at] = fd;
	set->n_fds++;
	if (ioctl(fd, PERF_EVENT_IOC_ID, &set->ids[at]) < 0)
		return -errno;
	if (!spec->join && *leader < 0) {
		r = map_leader(spec, set, cpu, fd, bytes);
		if (r < 0)
			return r;
		*leader = fd;
		return 0;
	}
	out = *leader;
	for (size_t i = 0; spec->join && i < spec->join->n_subjects && out < 0; i++)
		out = spec->join->fds[i * spec->join->n_cpus + cpu];
	if (out < 0) {
		/* The CPU was offline when the rings were made: nobody would hear of it. */
		set->fds[at] = close_fd(fd);
		set->n_fds--;
		if (set->groups)
			set->groups[at] = -1;
		return 0;
	}
	if (ioctl(fd, PERF_EVENT_IOC_SET_OUTPUT, out) < 0)
		return -errno;
	return 0;
}

static int choose_cpus(const struct eventset_spec *spec, struct eventset *set)
{
	const struct eventset *like = spec->cpus_of;

	if (!like)
		return (spec->to_come && spec->subjects && !spec->cgroup
				? cpus_to_come
				: cpus_online)(&set->cpus, &set->n_cpus);
	set->cpus = calloc(like->n_cpus, sizeof(*set->cpus));
	if (!set->cpus)
		return -ENOMEM;
	memcpy(set->cpus, like->cpus, like->n_cpus * sizeof(*set->cpus));
	set->n_cpus = like->n_cpus;
	return 0;
}

int eventset_open(const struct eventset_spec *spec, struct eventset *ret)
{
	_cleanup_(eventset_close) struct eventset set = {
		.n_subjects = spec->subjects ? spec->n_subjects : 1};
	size_t total, bytes = spec->ring_bytes;
	int r;

	r = choose_cpus(spec, &set);
	if (r < 0)
		return r;
	if (spec->join && (spec->join->n_cpus != set.n_cpus ||
			   memcmp(spec->join->cpus, set.cpus, set.n_cpus * sizeof(*set.cpus)) != 0))
		return -EAGAIN; /* a cpu came or went in between */
	total = set.n_subjects * set.n_cpus;
	set.fds = calloc(total, sizeof(*set.fds));
	for (size_t i = 0; set.fds && i < total; i++)
		set.fds[i] = -1;
	set.ids = calloc(total, sizeof(*set.ids));
	if (spec->leader)
		set.groups = calloc(total, sizeof(*set.groups));
	for (size_t i = 0; set.groups && i < total; i++)
		set.groups[i] = -1;
	if (!spec->join)
		set.rings = calloc(set.n_cpus, sizeof(*set.rings));
	if (!spec->join && spec->aux_bytes)
		set.auxes = calloc(set.n_cpus, sizeof(*set.auxes));
	if (!set.fds || !set.ids || (spec->leader && !set.groups) || (!spec->join && !set.rings) ||
	    (!spec->join && spec->aux_bytes && !set.auxes))
		return -ENOMEM;

	for (size_t cpu = 0; cpu < set.n_cpus; cpu++) {
		int leader = -1;

		for (size_t subject = 0; subject < set.n_subjects; subject++) {
			if (spec->cancel && atomic_load(spec->cancel))
				return -ECANCELED;
			r = open_one(spec, &set, subject, cpu, &bytes, &leader);
			if (r < 0)
				return r;
		}
	}
	if (set.n_fds == 0)
		return -ESRCH;
	*ret = set;
	set = (struct eventset){0};
	return 0;
}

void eventset_ioctl_cpu(const struct eventset *set, size_t index, unsigned long request)
{
	for (size_t i = 0; i < set->n_subjects; i++) {
		int fd = set->fds[i * set->n_cpus + index];

		if (fd >= 0)
			(void)ioctl(fd, request, 0);
	}
}

void eventset_ioctl_on_cpu(const struct eventset *set, int cpu, unsigned long request)
{
	for (size_t i = 0; i < set->n_cpus; i++)
		if (set->cpus[i] == cpu)
			eventset_ioctl_cpu(set, i, request);
}

void eventset_ioctl(const struct eventset *set, unsigned long request)
{
	for (size_t cpu = 0; cpu < set->n_cpus; cpu++)
		eventset_ioctl_cpu(set, cpu, request);
}

int eventset_filter(const struct eventset *set, int prog_fd)
{
	for (size_t i = 0; i < set->n_subjects * set->n_cpus; i++)
		if (set->fds[i] >= 0 && ioctl(set->fds[i], PERF_EVENT_IOC_SET_BPF, prog_fd) < 0)
			return -errno;
	return 0;
}

int eventset_set_filter(const struct eventset *set, const char *filter)
{
	for (size_t i = 0; i < set->n_subjects * set->n_cpus; i++)
		/* The thread has ended since it was opened: ESRCH. */
		if (set->fds[i] >= 0 && ioctl(set->fds[i], PERF_EVENT_IOC_SET_FILTER, filter) < 0 &&
		    errno != ESRCH)
			return -errno;
	return 0;
}

uint64_t eventset_lost_of(const struct eventset *set, uint64_t read_format, size_t first, size_t n)
{
	const size_t total = set->n_subjects * set->n_cpus;
	struct {
		uint64_t value, lost;
	} counts;
	uint64_t lost = 0;

	if (!(read_format & PERFABI_FORMAT_LOST))
		return 0;
	for (size_t i = first; i < total && i - first < n; i++)
		if (set->fds[i] >= 0 &&
		    read(set->fds[i], &counts, sizeof(counts)) == sizeof(counts))
			lost += counts.lost;
	return lost;
}

uint64_t eventset_lost(const struct eventset *set, uint64_t read_format)
{
	return eventset_lost_of(set, read_format, 0, SIZE_MAX);
}
