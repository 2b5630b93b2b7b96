// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/filter.h"

#include <errno.h>
#include <stdio.h>

#ifdef HAVE_BPF

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <event2/event.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "daemon/backend/sample/sched_bpf.h"

#ifdef __x86_64__
#define CAN_UNWIND true
#else
#define CAN_UNWIND false
#endif

#define RING_FLAGS (BPF_F_MMAPABLE | BPF_F_INNER_MAP)
#define RING_ENTRIES_MAX (1u << 30)

struct filter {
	struct bpf_object *object;
	struct bpf_link *links[5];
	size_t n_links;
	struct bpf_link *tasks; /* NULL: there is no iterator */
	struct ring_buffer *wake;
	struct event *wake_event;
	struct filter_cpu *cpus; /* mapped */
	size_t cpus_bytes;
	unsigned int n_cpus;
	bool unwinds, python, rings;
	size_t n_threads; /* entries in the map of single threads */
	filter_wake_fn fn;
	void *arg;
};

static int on_libbpf(enum libbpf_print_level level, const char *fmt, va_list args)
{
	char line[512];

	if (level == LIBBPF_DEBUG)
		return 0;
	(void)vsnprintf(line, sizeof(line), fmt, args);
	log_debug("libbpf: %s", line);
	return 0;
}

static int on_wake(void *arg, void *data, size_t size)
{
	struct filter *filter = arg;
	uint32_t cpu;

	if (size < sizeof(cpu))
		return 0;
	memcpy(&cpu, data, sizeof(cpu));
	filter->fn(filter->arg, cpu);
	return 0;
}

static void on_wake_readable(evutil_socket_t fd, short what, void *arg)
{
	struct filter *filter = arg;

	(void)ring_buffer__consume(filter->wake);
}

int filter_map_fd(const struct filter *filter, const char *name)
{
	return bpf_object__find_map_fd_by_name(filter->object, name);
}

/* Our pid namespace as the programs look for it: 0 for the machine's own, whose inode is fixed. */
static uint32_t own_pidns(void)
{
	const ino_t init_ino = 0xeffffffcu; /* PROC_PID_INIT_INO */
	struct stat st;

	if (stat("/proc/self/ns/pid", &st) < 0 || st.st_ino == init_ino)
		return 0;
	return (uint32_t)st.st_ino;
}

/* Constants of the program, before it is loaded: the verifier cuts what they rule out. */
static int set_constants(struct bpf_object *object, const struct filter *filter,
			 bool have_prev_state, bool unwinds, bool python)
{
	struct filter_constants constants = {.have_prev_state = have_prev_state,
					     .n_cpus = filter->n_cpus,
					     .unwind = unwinds,
					     .python = python,
					     .goroutines = unwinds,
					     .rings = filter->rings,
					     .pidns = own_pidns()};
	struct bpf_map *map, *rodata = NULL;
	size_t size;

	bpf_object__for_each_map(map, object)
	{
		const char *name = bpf_map__name(map);
		size_t n = strlen(name);

		if (n >= 7 && strcmp(name + n - 7, ".rodata") == 0)
			rodata = map;
	}
	if (!rodata)
		return -EINVAL;
	if (!bpf_map__initial_value(rodata, &size) || size != sizeof(constants))
		return -EINVAL;
	return bpf_map__set_initial_value(rodata, &constants, sizeof(constants));
}

static int shrink(struct bpf_object *object, const char *const *maps, size_t n, uint32_t entries)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n; i++)
		r = bpf_map__set_max_entries(bpf_object__find_map_by_name(object, maps[i]),
					     entries);
	return r;
}

/* What is not used costs nothing. */
static int shrink_maps(struct bpf_object *object, bool unwinds, bool python)
{
	static const char *const of_unwinding[] = {"uw_slabs",    "uw_pages",     "uw_rules",
						   "uw_mappings", "uw_processes", "go_processes",
						   "woke"};
	static const char *const of_python[] = {"py_processes", "py_threads", "py_codes"};
	static const char *const rings[] = {"py_functions"};
	int r = unwinds ? 0 : shrink(object, of_unwinding, ARRAY_SIZE(of_unwinding), 1);

	if (r == 0 && !python)
		r = shrink(object, of_python, ARRAY_SIZE(of_python), 1);
	if (r == 0 && !python)
		r = shrink(object, rings, ARRAY_SIZE(rings), (uint32_t)sysconf(_SC_PAGESIZE));
	return r;
}

static int ring_create(uint32_t flags, uint32_t entries)
{
	LIBBPF_OPTS(bpf_map_create_opts, opts, .map_flags = flags);

	return bpf_map_create(BPF_MAP_TYPE_ARRAY, "ring", sizeof(uint32_t),
			      sizeof(struct filter_record), entries, &opts);
}

/* Arrays of arrays that differ in size are there since 5.10. */
static bool may_have_rings(void)
{
	_cleanup_close_ int fd = ring_create(RING_FLAGS, 1);

	return fd >= 0;
}

static int set_rings(struct bpf_object *object, const struct filter *filter)
{
	struct bpf_map *rings = bpf_object__find_map_by_name(object, "rings");

	/* One without them has to be a map that it knows. */
	return filter->rings ? 0 : bpf_map__set_map_flags(bpf_map__inner_map(rings), 0);
}

static int load(struct filter *filter, bool have_prev_state, bool have_tasks, bool unwinds,
		bool python)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "tracerd");
	struct bpf_object *object;
	int r;

	object = bpf_object__open_mem(sched_bpf, sizeof(sched_bpf), &opts);
	if (!object)
		return -errno;
	r = set_constants(object, filter, have_prev_state, unwinds, python);
	if (r == 0)
		r = shrink_maps(object, unwinds, python);
	if (r == 0)
		r = bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "cpus"),
					     filter->n_cpus);
	if (r == 0)
		r = set_rings(object, filter);
	if (r == 0)
		r = bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "outputs"),
					     filter->n_cpus * FILTER_MAX_GROUPS *
						     FILTER_OUTPUTS_PER_GROUP);
	if (r == 0)
		r = bpf_map__set_max_entries(bpf_object__find_map_by_name(object, "wake"),
					     (uint32_t)sysconf(_SC_PAGESIZE));
	if (r == 0)
		r = bpf_program__set_autoload(bpf_object__find_program_by_name(object, "on_task"),
					      have_tasks);
	if (r == 0)
		r = bpf_object__load(object);
	if (r != 0) {
		bpf_object__close(object);
		return r;
	}
	filter->object = object;
	filter->unwinds = unwinds;
	filter->python = python;
	return 0;
}

static bool refusal_is_final(int r)
{
	/* what is lacking has many errors, a right or memory these */
	return r == -EPERM || r == -ENOMEM;
}

/*
 * The best that this kernel takes: before 5.18 the tracepoint has three arguments, and without
 * bpf_task_pt_regs() (5.15) there is no iterator. Python's frames and unwinding are the most that
 * is asked of a verifier: without them everything else is tried again.
 */
static int load_any(struct filter *filter, bool python)
{
	enum { NO_STATE = 1, NO_TASKS = 2, NO_PYTHON = 4, NO_UNWIND = 8 };
	int r = -EINVAL, refused = 0;

	for (unsigned int lacks = CAN_UNWIND ? 0 : NO_UNWIND | NO_PYTHON;
	     lacks < 16 && r < 0 && !refusal_is_final(r); lacks++) {
		/* the frames of Python's functions are added to stacks that have been unwound */
		if ((!python && !(lacks & NO_PYTHON)) ||
		    ((lacks & NO_UNWIND) && !(lacks & NO_PYTHON)))
			continue;
		r = load(filter, !(lacks & NO_STATE), !(lacks & NO_TASKS), !(lacks & NO_UNWIND),
			 !(lacks & NO_PYTHON));
		if (!refused)
			refused = r;
	}
	if (r == 0 && CAN_UNWIND && python && filter->unwinds && !filter->python)
		log_notice(
			"Python's functions are not found in stacks: the kernel refuses the program (%s)",
			strerror(-refused));
	if (r == 0 && CAN_UNWIND && !filter->unwinds)
		log_notice(
			"stacks are not unwound in the kernel, which refuses the program (%s): they are copied",
			strerror(-refused));
	if (r < 0)
		return r;
	filter->tasks =
		bpf_program__attach(bpf_object__find_program_by_name(filter->object, "on_task"));
	if (!filter->tasks)
		log_notice(
			"no task iterator: threads that are blocked when a recording begins have no stacks");
	return 0;
}

static int watch_wake(struct filter *filter, struct event_base *base)
{
	filter->wake = ring_buffer__new(filter_map_fd(filter, "wake"), on_wake, filter, NULL);
	if (!filter->wake)
		return -errno;
	filter->wake_event = event_new(base, ring_buffer__epoll_fd(filter->wake),
				       EV_READ | EV_PERSIST, on_wake_readable, filter);
	if (!filter->wake_event || event_add(filter->wake_event, NULL) < 0)
		return -ENOMEM;
	return 0;
}

DEFINE_CLEANUP(struct filter *, filter_free)

int filter_new(struct event_base *base, bool python, filter_wake_fn fn, void *arg,
	       struct filter **ret, char *why, size_t why_size)
{
	_cleanup_(filter_freep) struct filter *filter = NULL;
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *cpus;
	int r;

	(void)libbpf_set_print(on_libbpf);
	filter = calloc(1, sizeof(*filter));
	if (!filter)
		return -ENOMEM;
	filter->fn = fn;
	filter->arg = arg;
	r = libbpf_num_possible_cpus();
	if (r <= 0)
		return -EINVAL;
	filter->n_cpus = (unsigned int)r;
	filter->rings = may_have_rings();

	r = load_any(filter, python);
	if (r < 0) {
		(void)snprintf(why, why_size, "loading BPF programs: %s", strerror(-r));
		return r;
	}
	filter->cpus_bytes = (filter->n_cpus * sizeof(struct filter_cpu) + page - 1) & ~(page - 1);
	cpus = mmap(NULL, filter->cpus_bytes, PROT_READ | PROT_WRITE, MAP_SHARED,
		    filter_map_fd(filter, "cpus"), 0);
	if (cpus == MAP_FAILED) {
		r = -errno;
		(void)snprintf(why, why_size, "mapping a BPF map: %s", strerror(-r));
		return r;
	}
	filter->cpus = cpus;
	r = watch_wake(filter, base);
	if (r < 0) {
		(void)snprintf(why, why_size, "BPF ring buffer: %s", strerror(-r));
		return r;
	}
	*ret = take_ptr(filter);
	return 0;
}

struct filter *filter_free(struct filter *filter)
{
	if (!filter)
		return NULL;
	filter_stop(filter);
	if (filter->wake_event)
		event_free(filter->wake_event);
	ring_buffer__free(filter->wake);
	(void)bpf_link__destroy(filter->tasks);
	if (filter->cpus)
		(void)munmap(filter->cpus, filter->cpus_bytes);
	bpf_object__close(filter->object);
	free(filter);
	return NULL;
}

/* Who exited while the programs were not attached has left its place. */
static void forget_kept(const struct filter *filter)
{
	static const char *const maps[] = {"kept", "woke"};

	for (size_t m = 0; m < ARRAY_SIZE(maps); m++) {
		const int fd = filter_map_fd(filter, maps[m]);
		uint32_t key;

		for (uint32_t i = 0;
		     i < FILTER_KEPT_MAX && bpf_map_get_next_key(fd, NULL, &key) == 0; i++)
			(void)bpf_map_delete_elem(fd, &key);
	}
}

int filter_start(struct filter *filter)
{
	static const char *const programs[] = {"on_switch", "on_waking", "on_fork", "on_exec",
					       "on_exit"};

	if (filter->n_links == 0)
		forget_kept(filter);
	while (filter->n_links < ARRAY_SIZE(programs)) {
		struct bpf_program *program =
			bpf_object__find_program_by_name(filter->object, programs[filter->n_links]);
		struct bpf_link *link = program ? bpf_program__attach(program) : NULL;

		if (!link) {
			int r = program ? -errno : -ENOENT;

			filter_stop(filter);
			return r;
		}
		filter->links[filter->n_links++] = link;
	}
	return 0;
}

void filter_stop(struct filter *filter)
{
	while (filter->n_links > 0)
		(void)bpf_link__destroy(filter->links[--filter->n_links]);
	/* No program reports who runs any more. */
	for (unsigned int i = 0; filter->cpus && i < filter->n_cpus; i++)
		filter->cpus[i].running = 0;
}

int filter_clock_fd(const struct filter *filter, bool own)
{
	return bpf_program__fd(bpf_object__find_program_by_name(filter->object,
								own ? "on_own_clock" : "on_clock"));
}

bool filter_unwinds(const struct filter *filter)
{
	return filter->unwinds;
}

bool filter_finds_python(const struct filter *filter)
{
	return filter->python;
}

int filter_stacks(const struct filter *filter)
{
	const int fd =
		bpf_program__fd(bpf_object__find_program_by_name(filter->object, "on_stack"));

	for (unsigned int cpu = 0; cpu < filter->n_cpus; cpu++) {
		LIBBPF_OPTS(bpf_test_run_opts, opts, .flags = BPF_F_TEST_RUN_ON_CPU, .cpu = cpu);
		int r = bpf_prog_test_run_opts(fd, &opts);

		/* one that is not online: others may be */
		if (r < 0 && r != -ENXIO)
			return r;
	}
	return 0;
}

int filter_tasks_fd(const struct filter *filter)
{
	int fd;

	if (!filter->tasks)
		return -EOPNOTSUPP;
	fd = fcntl(bpf_link__fd(filter->tasks), F_DUPFD_CLOEXEC, 3);
	return fd < 0 ? -errno : fd;
}

int filter_tasks(int fd, void (*fn)(void *arg, const struct filter_task *task), void *arg)
{
	_cleanup_close_ int iter = bpf_iter_create(fd);
	struct filter_task task;
	ssize_t n;

	if (iter < 0)
		return -errno;
	while ((n = io_read_full(iter, &task, sizeof(task))) == (ssize_t)sizeof(task)) {
		if (task.n_kernel > FILTER_KERNEL_FRAMES)
			task.n_kernel = 0;
		fn(arg, &task);
	}
	return n < 0 ? (int)n : 0;
}

static int output_index(const struct filter *filter, unsigned int group, unsigned int kind, int cpu,
			uint32_t *ret)
{
	if (group >= FILTER_MAX_GROUPS || cpu < 0 || (unsigned int)cpu >= filter->n_cpus)
		return -EINVAL;
	*ret = (group * FILTER_OUTPUTS_PER_GROUP + kind) * filter->n_cpus + (uint32_t)cpu;
	return 0;
}

int filter_output(struct filter *filter, unsigned int group, unsigned int kind, int cpu, int fd)
{
	uint32_t index;
	int r;

	r = output_index(filter, group, kind, cpu, &index);
	return r < 0 ? r
		     : bpf_map_update_elem(filter_map_fd(filter, "outputs"), &index, &fd, BPF_ANY);
}

void filter_output_clear(struct filter *filter, unsigned int group, unsigned int kind, int cpu)
{
	uint32_t index;

	if (output_index(filter, group, kind, cpu, &index) == 0)
		(void)bpf_map_delete_elem(filter_map_fd(filter, "outputs"), &index);
}

static int fill_rings(const struct filter *filter, int fd, const int *cpus, size_t n_cpus,
		      size_t records)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < n_cpus; i++) {
		const struct filter_ring ring = {.first = (uint32_t)(filter->n_cpus + i * records),
						 .size = (uint32_t)records};
		const uint32_t cpu = (uint32_t)cpus[i];

		r = cpu < filter->n_cpus ? bpf_map_update_elem(fd, &cpu, &ring, BPF_ANY) : -EINVAL;
	}
	return r;
}

int filter_rings_open(const struct filter *filter, unsigned int group, const int *cpus,
		      size_t n_cpus, size_t bytes, struct filter_rings *ret)
{
	const size_t page = (size_t)sysconf(_SC_PAGESIZE),
		     records = bytes / sizeof(struct filter_record);
	const uint64_t entries = filter->n_cpus + (uint64_t)n_cpus * records;
	_cleanup_close_ int fd = -1;
	struct filter_rings rings;
	uint32_t index = group;
	void *base;
	int r;

	_Static_assert(sizeof(struct filter_ring) == sizeof(struct filter_record),
		       "both are entries of one map");
	if (!filter->rings)
		return -EOPNOTSUPP;
	if (group >= FILTER_MAX_GROUPS || records == 0 || entries > RING_ENTRIES_MAX)
		return -EINVAL;
	fd = ring_create(RING_FLAGS, (uint32_t)entries);
	if (fd < 0)
		return fd;
	r = fill_rings(filter, fd, cpus, n_cpus, records);
	if (r < 0)
		return r;
	rings.bytes = ((size_t)entries * sizeof(struct filter_record) + page - 1) & ~(page - 1);
	base = mmap(NULL, rings.bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	rings.base = base;
	r = bpf_map_update_elem(filter_map_fd(filter, "rings"), &index, &fd, BPF_ANY);
	if (r < 0) {
		(void)munmap(base, rings.bytes);
		return r;
	}
	*ret = rings;
	return 0;
}

void filter_rings_close(const struct filter *filter, unsigned int group)
{
	uint32_t index = group;

	if (filter->rings && group < FILTER_MAX_GROUPS)
		(void)bpf_map_delete_elem(filter_map_fd(filter, "rings"), &index);
}

static bool entry_empty(const struct filter_entry *entry)
{
	return entry->waits[0] == FILTER_NO_GROUP && !(entry->flags & ~(uint32_t)FILTER_INHERIT);
}

int filter_process(struct filter *filter, pid_t tgid, const struct filter_entry *entry)
{
	uint32_t key = (uint32_t)tgid;

	if (entry_empty(entry)) {
		(void)bpf_map_delete_elem(filter_map_fd(filter, "tgids"), &key);
		return 0;
	}
	return bpf_map_update_elem(filter_map_fd(filter, "tgids"), &key, entry, BPF_ANY);
}

int filter_thread(struct filter *filter, pid_t tid, const struct filter_entry *entry)
{
	uint32_t key = (uint32_t)tid;
	int fd = filter_map_fd(filter, "tids"), r;

	if (entry_empty(entry)) {
		if (bpf_map_delete_elem(fd, &key) == 0)
			filter->n_threads--;
	} else {
		r = bpf_map_update_elem(fd, &key, entry, BPF_NOEXIST);
		if (r == 0)
			filter->n_threads++;
		else if (r == -EEXIST)
			r = bpf_map_update_elem(fd, &key, entry, BPF_ANY);
		if (r < 0)
			return r;
	}
	return filter_use(filter, FILTER_USE_THREADS, filter->n_threads > 0);
}

int filter_use(const struct filter *filter, enum filter_use use, bool is_used)
{
	uint32_t key = use, value = is_used;

	return bpf_map_update_elem(filter_map_fd(filter, "uses"), &key, &value, BPF_ANY);
}

uint64_t filter_cpu_idle(const struct filter *filter, uint32_t cpu)
{
	const struct filter_cpu *c;
	uint64_t last, now;

	if (cpu >= filter->n_cpus)
		return UINT64_MAX;
	c = &filter->cpus[cpu];
	if (__atomic_load_n(&c->running, __ATOMIC_ACQUIRE))
		return 0;
	last = __atomic_load_n(&c->last_ns, __ATOMIC_RELAXED);
	now = io_now_ns();
	if (!last)
		return UINT64_MAX;
	return now > last ? now - last : 1;
}

bool filter_cpu_rest(struct filter *filter, uint32_t cpu)
{
	struct filter_cpu *c;

	if (cpu >= filter->n_cpus)
		return true;
	c = &filter->cpus[cpu];
	__atomic_store_n(&c->want_wake, 1, __ATOMIC_SEQ_CST);
	/* A switch before the program saw the request would go unnoticed. */
	if (__atomic_load_n(&c->running, __ATOMIC_SEQ_CST)) {
		__atomic_store_n(&c->want_wake, 0, __ATOMIC_SEQ_CST);
		return false;
	}
	return true;
}

uint64_t filter_drops(const struct filter *filter)
{
	uint64_t drops = 0;

	for (unsigned int i = 0; i < filter->n_cpus; i++)
		drops += __atomic_load_n(&filter->cpus[i].drops, __ATOMIC_RELAXED);
	return drops;
}

#else /* !HAVE_BPF */

int filter_new(struct event_base *base, bool python, filter_wake_fn fn, void *arg,
	       struct filter **ret, char *why, size_t why_size)
{
	(void)snprintf(why, why_size, "built without BPF (clang and libbpf were missing)");
	return -EOPNOTSUPP;
}

/* Never called: without BPF nobody has a filter. */
struct filter *filter_free(struct filter *filter)
{
	return NULL;
}

int filter_start(struct filter *filter)
{
	return -EOPNOTSUPP;
}

void filter_stop(struct filter *filter)
{
}

int filter_clock_fd(const struct filter *filter, bool own)
{
	return -EOPNOTSUPP;
}

bool filter_unwinds(const struct filter *filter)
{
	return false;
}

bool filter_finds_python(const struct filter *filter)
{
	return false;
}

int filter_map_fd(const struct filter *filter, const char *name)
{
	return -EOPNOTSUPP;
}

int filter_stacks(const struct filter *filter)
{
	return -EOPNOTSUPP;
}

int filter_tasks_fd(const struct filter *filter)
{
	return -EOPNOTSUPP;
}

int filter_tasks(int fd, void (*fn)(void *arg, const struct filter_task *task), void *arg)
{
	return -EOPNOTSUPP;
}

int filter_output(struct filter *filter, unsigned int group, unsigned int kind, int cpu, int fd)
{
	return -EOPNOTSUPP;
}

void filter_output_clear(struct filter *filter, unsigned int group, unsigned int kind, int cpu)
{
}

int filter_rings_open(const struct filter *filter, unsigned int group, const int *cpus,
		      size_t n_cpus, size_t bytes, struct filter_rings *ret)
{
	return -EOPNOTSUPP;
}

void filter_rings_close(const struct filter *filter, unsigned int group)
{
}

int filter_process(struct filter *filter, pid_t tgid, const struct filter_entry *entry)
{
	return -EOPNOTSUPP;
}

int filter_thread(struct filter *filter, pid_t tid, const struct filter_entry *entry)
{
	return -EOPNOTSUPP;
}

int filter_use(const struct filter *filter, enum filter_use use, bool is_used)
{
	return -EOPNOTSUPP;
}

uint64_t filter_cpu_idle(const struct filter *filter, uint32_t cpu)
{
	return 0;
}

bool filter_cpu_rest(struct filter *filter, uint32_t cpu)
{
	return false;
}

uint64_t filter_drops(const struct filter *filter)
{
	return 0;
}

#endif

const struct filter_record *filter_ring_records(const struct filter_rings *rings, int cpu)
{
	const struct filter_ring *ring = &rings->base[cpu];
	const size_t entries = rings->bytes / sizeof(*ring);

	/* What the daemon has written there stays. */
	if (!ring->first || ring->first > entries || ring->size > entries - ring->first)
		return NULL;
	return (const struct filter_record *)(const void *)(rings->base + ring->first);
}

struct filter_entry filter_entry_none(void)
{
	struct filter_entry entry = {.flags = 0};

	for (unsigned int i = 0; i < FILTER_ENTRY_GROUPS; i++)
		entry.waits[i] = FILTER_NO_GROUP;
	return entry;
}
