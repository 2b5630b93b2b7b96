// SPDX-License-Identifier: Apache-2.0
/*
 * Registration of event rings: every way in which a program can be wrong or lie about them, limits,
 * one registration a process, the end of programs, causes, thresholds.
 */
#include "daemon/producer/producer.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <cmocka.h>
#include <event2/event.h>

#include "common/base/io.h"
#include "common/base/raw_clock.h"
#include "common/bundle/clocks.h"
#include "common/control/json.h"
#include "daemon/base/clockseries.h"
#include "daemon/config.h"
#include "daemon/control/auth.h"
#include "daemon/control/quota.h"
#include "ring-make.h"

#define UID 4242

struct fixture {
	struct event_base *base;
	struct config config;
	struct quota quota;
	struct clockseries *clocks;
	struct producers *ps;
	struct peer peer; /* ourselves */
	char why[256];
	/* what was told */
	unsigned int came, ended, gone, causes, controls, connections_ended;
	bool connection_open;
	struct producer_cause cause; /* the last */
	char text[RING_CAUSE_TEXT * 4 + 1];
	uint32_t triggers[64]; /* of the causes, in order */
};

static bool wanted(void *arg)
{
	return false;
}

static void on_changed(void *arg, struct producer *p)
{
	struct fixture *f = arg;

	if (producer_state(p) == PRODUCER_LIVE)
		f->came++;
	else
		f->ended++;
}

static void on_gone(void *arg, struct producer *p)
{
	((struct fixture *)arg)->gone++;
}

static void on_cause(void *arg, struct producer *p, const struct producer_cause *cause)
{
	struct fixture *f = arg;

	assert_true(f->causes < 64);
	f->triggers[f->causes++] = cause->trigger;
	f->cause = *cause;
	(void)snprintf(f->text, sizeof(f->text), "%s", cause->text);
}

static void on_control(void *arg)
{
	((struct fixture *)arg)->controls++;
}

static bool on_alive(void *arg)
{
	return ((struct fixture *)arg)->connection_open;
}

static void on_ended(void *arg)
{
	((struct fixture *)arg)->connections_ended++;
}

static void start_producers(struct fixture *f)
{
	quota_init(&f->quota, &f->config);
	f->quota.exempt = (uid_t)-1;
	assert_int_equal(producers_new(f->base, &f->config, &f->quota, f->clocks, &f->ps), 0);
	producers_set_callbacks(f->ps, &(struct producers_callbacks){.changed = on_changed,
								     .gone = on_gone,
								     .cause = on_cause,
								     .arg = f});
}

static void stop_producers(struct fixture *f)
{
	f->ps = producers_free(f->ps);
	quota_fini(&f->quota); /* asserts that nothing is charged */
}

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));

	assert_int_equal(config_init(&f->config), 0);
	f->base = event_base_new();
	assert_int_equal(clockseries_new(f->base, wanted, NULL, &f->clocks), 0);
	f->peer = (struct peer){.uid = UID,
				.pid = getpid(),
				.pidfd = (int)syscall(SYS_pidfd_open, getpid(), 0)};
	f->connection_open = true;
	start_producers(f);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;

	stop_producers(f);
	peer_fini(&f->peer);
	clockseries_free(f->clocks);
	event_base_free(f->base);
	config_fini(&f->config);
	free(f);
	return 0;
}

/* Restarts with the limits that f->config has by now. */
static void restart(struct fixture *f)
{
	stop_producers(f);
	start_producers(f);
}

static int reg_fds(struct fixture *f, const struct peer *peer, int rings_fd, int wake_fd,
		   struct producer **ret)
{
	int control_fd = -1, r;

	*ret = NULL;
	f->why[0] = '\0';
	r = producers_register(f->ps, peer, rings_fd, wake_fd, ret, &control_fd, f->why,
			       sizeof(f->why));
	assert_true((r == 0) == (control_fd >= 0));
	assert_true(r <= 0 || f->why[0]);
	if (control_fd >= 0)
		(void)close(control_fd);
	return r;
}

static int reg(struct fixture *f, const struct ring_memory *m, struct producer **ret)
{
	return reg_fds(f, &f->peer, m->fd, m->wake_fd, ret);
}

static void connect_to(struct fixture *f, struct producer *p)
{
	producer_connect(p, &(struct producer_connection){.control = on_control,
							  .alive = on_alive,
							  .ended = on_ended,
							  .arg = f});
}

/* One turn of the loop, and whatever is ready without waiting. */
static void turn(struct fixture *f)
{
	(void)event_base_loop(f->base, EVLOOP_NONBLOCK);
}

/* Turns until a count is reached, or five minutes have passed: only a hang takes as long. */
static void until(struct fixture *f, const unsigned int *count, unsigned int n)
{
	uint64_t end = io_now_ns() + 300000000000ULL;

	while (*count < n && io_now_ns() < end) {
		const struct timeval t = {.tv_usec = 20000};

		(void)event_base_loopexit(f->base, &t);
		(void)event_base_loop(f->base, EVLOOP_ONCE);
	}
	assert_int_equal(*count, n);
}

static unsigned int open_fds(void)
{
	unsigned int n = 0;

	for (int fd = 0; fd < 1024; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

/* A process of its own that waits until it is killed, and its peer. */
struct child {
	pid_t pid;
	struct peer peer;
};

static void child_start(struct child *c, uid_t uid)
{
	c->pid = fork();
	assert_true(c->pid >= 0);
	if (c->pid == 0)
		for (;;)
			(void)pause();
	c->peer = (struct peer){.uid = uid,
				.pid = c->pid,
				.pidfd = (int)syscall(SYS_pidfd_open, c->pid, 0)};
	assert_true(c->peer.pidfd >= 0);
}

static void child_kill(struct child *c)
{
	int status;

	(void)kill(c->pid, SIGKILL);
	assert_int_equal(waitpid(c->pid, &status, 0), c->pid);
}

/* ---- an honest one */

static void test_register(void **state)
{
	struct fixture *f = *state;
	struct json_object *o, *lost;
	struct ring_memory m;
	struct producer *p;
	int control_fd = -1;
	struct stat st;
	int64_t n;

	ring_make(&m, 8, 128);
	assert_int_equal(producers_register(f->ps, &f->peer, m.fd, m.wake_fd, &p, &control_fd,
					    f->why, sizeof(f->why)),
			 0);
	assert_int_equal(fstat(control_fd, &st), 0);
	assert_int_equal(st.st_size, RING_CONTROL_BYTES);
	(void)close(control_fd);
	assert_int_equal(f->came, 1);
	assert_int_equal(producer_state(p), PRODUCER_LIVE);
	assert_int_equal(producer_pid(p), getpid());
	assert_int_equal(producer_nspid(p), getpid());
	assert_int_equal(producer_uid(p), UID);
	assert_int_equal(producer_bytes(p), m.geometry.total_bytes);
	assert_true(producer_start_time(p) > 0);
	assert_ptr_equal(producers_next(f->ps, NULL), p);
	assert_null(producers_next(f->ps, p));
	assert_ptr_equal(producers_of(f->ps, getpid(), producer_start_time(p), NULL), p);
	assert_null(producers_of(f->ps, getpid(), producer_start_time(p) + 1, NULL));
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 1);
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_EVENT_BYTES), m.geometry.total_bytes);

	ring_entry_of(&m, 3)->tid = 5;
	m.header->n_names = 4000; /* more than there is room for */
	m.header->lost_events = 77;
	o = producer_to_json(p);
	assert_string_equal(json_get_string(o, "state"), "live");
	assert_true(json_get_int(o, "threads", &n) && n == 1);
	assert_true(json_get_int(o, "threads_max", &n) && n == 8);
	assert_true(json_get_int(o, "ring_bytes", &n) && n == 128 * RING_SLOT_BYTES);
	assert_true(json_get_int(o, "names", &n) && n == 64);
	assert_string_equal(json_get_string(o, "clock"), "monotonic_raw");
	lost = json_get_object(o, "lost");
	assert_true(json_get_int(lost, "events", &n) && n == 77);
	json_object_put(o);
	ring_close(&m);
}

/* ---- memory that is none, or not as agreed */

static int not_memory(int kind, char *path)
{
	int fds[2];

	switch (kind) {
	case 0:
		assert_int_equal(pipe2(fds, O_CLOEXEC), 0);
		(void)close(fds[1]);
		return fds[0];
	case 1:
		assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
		(void)close(fds[1]);
		return fds[0];
	case 2:
		return open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	case 3:
		return open("/dev/zero", O_RDWR | O_CLOEXEC);
	case 4:
		return open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
	case 5:
		return epoll_create1(EPOLL_CLOEXEC);
	case 6: /* a file on a tmpfs, which looks like a memfd but for its seals */
		(void)strcpy(path, "/dev/shm/tracerd-test-XXXXXX");
		return mkostemp(path, O_CLOEXEC);
	default:
		(void)strcpy(path, "test-producer-XXXXXX");
		return mkostemp(path, O_CLOEXEC);
	}
}

static void test_not_memory(void **state)
{
	static const char *const sentences[] = {"pipe",   "socket",      "directory",
						"device", "not a memfd", "not a memfd",
						"seals",  "not a memfd"};
	struct fixture *f = *state;
	struct ring_memory m;
	struct producer *p;
	unsigned int before;

	ring_make(&m, 2, 64);
	before = open_fds();
	for (int kind = 0; kind < (int)ARRAY_SIZE(sentences); kind++) {
		char path[64] = "";
		int fd = not_memory(kind, path), r;

		assert_true(fd >= 0);
		r = reg_fds(f, &f->peer, fd, m.wake_fd, &p);
		if (r != PRODUCER_E_BAD || (!strstr(f->why, sentences[kind]) && kind != 7))
			print_message("kind %d: %d %s\n", kind, r, f->why);
		assert_int_equal(r, PRODUCER_E_BAD);
		assert_true(kind == 7 || strstr(f->why, sentences[kind]));
		(void)close(fd);
		if (path[0])
			(void)unlink(path);
	}
	assert_int_equal(open_fds(), before);
	assert_int_equal(f->came, 0);
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 0);
	ring_close(&m);
}

static void test_seals(void **state)
{
	static const struct {
		unsigned int seals;
		const char *sentence;
	} cases[] = {
		{0, "FUTURE_WRITE"},
		/* pages could still be punched out */
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL, "FUTURE_WRITE"},
		/* others could be added later */
		{F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE, "SEAL"},
		{F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, "exactly"},
		{F_SEAL_SHRINK | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL, "exactly"},
		{F_SEAL_SEAL, "exactly"},
		{RING_SEALS | F_SEAL_WRITE, "nobody could write"},
	};
	struct fixture *f = *state;
	struct producer *p;

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct ring_memory m;

		assert_true(ring_make_raw(&m, 2, 64, 0, 0));
		ring_seal(&m, cases[i].seals);
		assert_int_equal(reg(f, &m, &p), PRODUCER_E_BAD);
		assert_non_null(strstr(f->why, cases[i].sentence));
		ring_close(&m);
	}
	/* MFD_NOEXEC_SEAL adds a seal of its own, which is fine */
	{
		struct ring_memory m;

		if (ring_make_raw(&m, 2, 64, 0, 8)) {
			ring_seal(&m, RING_SEALS);
			assert_int_equal(reg(f, &m, &p), 0);
		}
		ring_close(&m);
	}
}

static void test_open_modes(void **state)
{
	static const int modes[] = {O_WRONLY | O_CLOEXEC, O_PATH | O_CLOEXEC};
	struct fixture *f = *state;
	struct ring_memory m;
	struct producer *p;
	char path[32];

	ring_make(&m, 2, 64);
	(void)snprintf(path, sizeof(path), "/proc/self/fd/%d", m.fd);
	for (size_t i = 0; i < ARRAY_SIZE(modes); i++) {
		int fd = open(path, modes[i]);

		assert_true(fd >= 0);
		assert_int_equal(reg_fds(f, &f->peer, fd, m.wake_fd, &p), PRODUCER_E_BAD);
		(void)close(fd);
	}
	ring_close(&m);
}

static void test_hugetlb(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m = {.wake_fd = -1};
	struct producer *p;
	int fd;

	/* sealed memory of huge pages that nobody touched: there need be none in the pool */
	fd = memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
	if (fd < 0) {
		print_message("SKIP: no hugetlb on this kernel: %s\n", strerror(errno));
		skip();
	}
	ring_make(&m, 2, 64);
	(void)!ftruncate(fd, 2 << 20);
	(void)fcntl(fd, F_ADD_SEALS, RING_SEALS);
	assert_int_equal(reg_fds(f, &f->peer, fd, m.wake_fd, &p), PRODUCER_E_BAD);
	assert_non_null(strstr(f->why, "MFD_HUGETLB"));
	(void)close(fd);
	ring_close(&m);
}

static void test_sizes(void **state)
{
	struct fixture *f = *state;
	struct ring_geometry g = {.rings = 2,
				  .slots = 64,
				  .names_max = 64,
				  .text_bytes = RING_PAGE};
	struct ring_memory m;
	struct producer *p;
	uint64_t sizes[5];

	assert_true(ring_layout(&g));
	sizes[0] = g.total_bytes - 1;
	sizes[1] = g.total_bytes + 1;
	sizes[2] = g.total_bytes + RING_PAGE;
	sizes[3] = sizeof(struct ring_header);
	sizes[4] = 10;
	for (size_t i = 0; i < ARRAY_SIZE(sizes); i++) {
		assert_true(ring_make_raw(&m, 2, 64, sizes[i], 0));
		ring_seal(&m, RING_SEALS);
		assert_int_equal(reg(f, &m, &p), PRODUCER_E_BAD);
		assert_non_null(strstr(f->why, "bytes"));
		ring_close(&m);
	}
	/* empty */
	m.fd = memfd_create("rings", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	assert_int_equal(fcntl(m.fd, F_ADD_SEALS, RING_SEALS), 0);
	assert_int_equal(reg_fds(f, &f->peer, m.fd, 0, &p), PRODUCER_E_BAD);
	(void)close(m.fd);
}

/* Each field of the header but one is right. */
static void test_headers(void **state)
{
	static const struct {
		size_t offset;
		uint32_t value;
		const char *sentence;
	} lies[] = {
		{offsetof(struct ring_header, magic), 0, "magic"},
		{offsetof(struct ring_header, version), 0, "version"},
		{offsetof(struct ring_header, version), 2, "version"},
		{offsetof(struct ring_header, clock), 0, "clock"},
		{offsetof(struct ring_header, clock), 3, "clock"},
		{offsetof(struct ring_header, clock), UINT32_MAX, "clock"},
		{offsetof(struct ring_header, total_bytes), 0, "bytes"},
		{offsetof(struct ring_header, total_bytes) + 4, 1, "bytes"}, /* 4 GiB more */
		{offsetof(struct ring_header, rings), 0, "limits"},
		{offsetof(struct ring_header, rings), 3, "bytes"},
		{offsetof(struct ring_header, rings), RING_MAX_RINGS + 1, "limits"},
		{offsetof(struct ring_header, rings), UINT32_MAX, "limits"},
		{offsetof(struct ring_header, slots), 0, "limits"},
		{offsetof(struct ring_header, slots), 63, "limits"},
		{offsetof(struct ring_header, slots), 96, "limits"},
		{offsetof(struct ring_header, slots), 128, "bytes"},
		{offsetof(struct ring_header, slots), 1u << 31, "limits"},
		{offsetof(struct ring_header, slots), UINT32_MAX, "limits"},
		{offsetof(struct ring_header, names_max), 0, "limits"},
		{offsetof(struct ring_header, names_max), RING_MAX_NAMES + 1, "limits"},
		{offsetof(struct ring_header, names_max), UINT32_MAX, "limits"},
		{offsetof(struct ring_header, text_bytes), 0, "limits"},
		{offsetof(struct ring_header, text_bytes), RING_PAGE + 1, "limits"},
		{offsetof(struct ring_header, text_bytes), RING_MAX_TEXT + RING_PAGE, "limits"},
		{offsetof(struct ring_header, text_bytes), UINT32_MAX - RING_PAGE + 1, "limits"},
		{offsetof(struct ring_header, text_offset), 0, "offsets"},
		{offsetof(struct ring_header, dir_offset), UINT32_MAX, "offsets"},
		{offsetof(struct ring_header, data_offset), 0, "offsets"},
	};
	struct fixture *f = *state;
	struct ring_memory m;
	struct producer *p;

	for (size_t i = 0; i < ARRAY_SIZE(lies); i++) {
		assert_true(ring_make_raw(&m, 2, 64, 0, 0));
		memcpy(m.map + lies[i].offset, &lies[i].value, sizeof(lies[i].value));
		ring_seal(&m, RING_SEALS);
		assert_int_equal(reg(f, &m, &p), PRODUCER_E_BAD);
		if (!strstr(f->why, lies[i].sentence))
			print_message("%zu: %s\n", i, f->why);
		assert_non_null(strstr(f->why, lies[i].sentence));
		ring_close(&m);
	}
	assert_int_equal(f->came, 0);
}

static void test_not_an_eventfd(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m;
	struct producer *p;

	ring_make(&m, 2, 64);
	for (int kind = 0; kind < 8; kind++) {
		char path[64] = "";
		int fd = not_memory(kind, path);

		assert_int_equal(reg_fds(f, &f->peer, m.fd, fd, &p), PRODUCER_E_BAD);
		assert_non_null(strstr(f->why, "eventfd"));
		(void)close(fd);
		if (path[0])
			(void)unlink(path);
	}
	assert_int_equal(reg_fds(f, &f->peer, m.fd, m.fd, &p), PRODUCER_E_BAD);
	assert_int_equal(reg_fds(f, &f->peer, m.fd, f->peer.pidfd, &p), PRODUCER_E_BAD);
	assert_int_equal(reg_fds(f, &f->peer, m.wake_fd, m.wake_fd, &p), PRODUCER_E_BAD);
	ring_close(&m);
}

/* ---- limits */

static void test_limits(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m;
	struct producer *p;

	ring_make(&m, 4, 16384); /* 2 MiB of slots */
	f->config.event_memory_mib = 1;
	assert_int_equal(reg(f, &m, &p), PRODUCER_E_TOO_LARGE);
	assert_non_null(strstr(f->why, "event_memory_mib"));
	f->config.event_memory_mib = 64;
	f->config.event_threads = 3;
	assert_int_equal(reg(f, &m, &p), PRODUCER_E_TOO_LARGE);
	assert_non_null(strstr(f->why, "event_threads"));
	f->config.event_threads = 4;
	f->config.event_names = 63;
	assert_int_equal(reg(f, &m, &p), PRODUCER_E_TOO_LARGE);
	assert_non_null(strstr(f->why, "event_names"));
	f->config.event_names = 64;
	f->config.uid_event_mib = 1;
	restart(f);
	assert_int_equal(reg(f, &m, &p), PRODUCER_E_QUOTA);
	assert_non_null(strstr(f->why, "uid_event_mib"));
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 0);
	f->config.uid_event_mib = 3;
	restart(f);
	assert_int_equal(reg(f, &m, &p), 0);
	ring_close(&m);
}

static void test_counts(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m;
	struct child c[3];
	struct producer *p;

	for (size_t i = 0; i < 3; i++)
		child_start(&c[i], UID);
	f->config.uid_producers = 2;
	f->config.max_producers = 3;
	restart(f);
	ring_make(&m, 2, 64);
	assert_int_equal(reg_fds(f, &c[0].peer, m.fd, m.wake_fd, &p), 0);
	assert_int_equal(reg_fds(f, &c[1].peer, m.fd, m.wake_fd, &p), 0);
	assert_int_equal(reg_fds(f, &c[2].peer, m.fd, m.wake_fd, &p), PRODUCER_E_QUOTA);
	assert_non_null(strstr(f->why, "uid_producers"));
	c[2].peer.uid = UID + 1;
	assert_int_equal(reg_fds(f, &c[2].peer, m.fd, m.wake_fd, &p), 0);
	f->peer.uid = UID + 2;
	assert_int_equal(reg(f, &m, &p), PRODUCER_E_BUSY);
	assert_non_null(strstr(f->why, "max_producers"));
	for (size_t i = 0; i < 3; i++) {
		child_kill(&c[i]);
		peer_fini(&c[i].peer);
	}
	ring_close(&m);
}

/*
 * Kept rings make room for living programs of the same user, not of another one while the daemon
 * has room.
 */
static void test_evict(void **state)
{
	struct fixture *f = *state;
	struct producer *p, *first;
	struct ring_memory m[4];

	f->config.uid_producers = 2;
	restart(f);
	for (int i = 0; i < 4; i++)
		ring_make(&m[i], 2, 64);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(reg(f, &m[i], &p), 0);
		producer_end(p);
	}
	first = producer_ref(producers_next(f->ps, NULL));
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 2);
	/* somebody else's program has its own share */
	f->peer.uid = UID + 1;
	assert_int_equal(reg(f, &m[2], &p), 0);
	producer_end(p);
	assert_int_equal(f->gone, 0);
	f->peer.uid = UID;
	/*
	 * the first goes from the list, but a snapshot that has it pays on: the second must go too
	 */
	assert_int_equal(reg(f, &m[3], &p), 0);
	assert_int_equal(f->gone, 2);
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 2);
	assert_int_equal(producer_bytes(first), m[0].geometry.total_bytes);
	(void)producer_unref(first);
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 1);
	for (int i = 0; i < 4; i++)
		ring_close(&m[i]);
}

/* ---- one registration a process, and its end */

static void test_once(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m, other;
	struct producer *p, *second;

	ring_make(&m, 2, 64);
	ring_make(&other, 4, 64);
	assert_int_equal(reg(f, &m, &p), 0);
	connect_to(f, p);
	assert_int_equal(reg(f, &other, &second), PRODUCER_E_BUSY);
	assert_non_null(strstr(f->why, "already"));
	assert_int_equal(producer_state(p), PRODUCER_LIVE);
	/* its connection has lost the other end, as behind an exec: the new one takes its place */
	f->connection_open = false;
	assert_int_equal(reg(f, &other, &second), 0);
	assert_int_equal(f->connections_ended, 1);
	assert_int_equal(producer_state(p), PRODUCER_ENDED);
	assert_int_equal(producer_state(second), PRODUCER_LIVE);
	/* both are of this process, the newest first */
	assert_ptr_equal(producers_of(f->ps, getpid(), producer_start_time(p), NULL), second);
	assert_ptr_equal(producers_of(f->ps, getpid(), producer_start_time(p), second), p);
	/* after the end of the connection any number of times */
	producer_end(second);
	producer_end(second);
	assert_int_equal(f->ended, 2);
	assert_int_equal(reg(f, &other, &second), 0);
	ring_close(&m);
	ring_close(&other);
}

static void test_process_ends(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m;
	struct producer *p;
	struct child c;
	unsigned int before;

	child_start(&c, UID);
	ring_make(&m, 2, 64);
	before = open_fds();
	assert_int_equal(reg_fds(f, &c.peer, m.fd, m.wake_fd, &p), 0);
	connect_to(f, p);
	turn(f);
	assert_int_equal(f->ended, 0);
	child_kill(&c);
	until(f, &f->connections_ended, 1);
	assert_int_equal(f->ended, 1);
	assert_int_equal(producer_state(p), PRODUCER_ENDED);
	/* its memory is all that is kept of it */
	assert_int_equal(open_fds(), before + 1);
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_EVENT_BYTES), m.geometry.total_bytes);
	/* it cannot come back */
	assert_int_equal(reg_fds(f, &c.peer, m.fd, m.wake_fd, &p), PRODUCER_E_GONE);
	peer_fini(&c.peer);
	assert_int_equal(reg_fds(f, &c.peer, m.fd, m.wake_fd, &p), PRODUCER_E_GONE);
	ring_close(&m);
}

static void test_keeping(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m, more[3];
	struct producer *p;

	ring_make(&m, 2, 64);
	assert_int_equal(reg(f, &m, &p), 0);
	producer_collected(p); /* lives: nothing to forget */
	assert_int_equal(f->gone, 0);
	producer_end(p);
	turn(f);
	assert_int_equal(f->gone, 0);
	(void)producer_ref(p);
	producer_collected(p);
	assert_int_equal(f->gone, 1);
	assert_null(producers_next(f->ps, NULL));
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 1);
	producer_collected(p);
	producer_end(p);
	assert_int_equal(f->gone, 1);
	(void)producer_unref(p);
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 0);

	/* without a snapshot it goes when its time is over */
	f->config.exited_keep_s = 0;
	assert_int_equal(reg(f, &m, &p), 0);
	producer_end(p);
	until(f, &f->gone, 2);
	f->config.exited_keep_s = 1;
	for (int i = 0; i < 3; i++) {
		ring_make(&more[i], 2, 64);
		assert_int_equal(reg(f, &more[i], &p), 0);
		producer_end(p);
	}
	turn(f);
	assert_int_equal(f->gone, 2);
	until(f, &f->gone, 5);
	for (int i = 0; i < 3; i++)
		ring_close(&more[i]);
	ring_close(&m);
}

/*
 * The same process comes back with the same memory: it is there once. Another memory of it stays,
 * an exec lies between.
 */
static void test_comes_back(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m, before;
	struct producer *p, *again, *old;

	ring_make(&before, 2, 64);
	ring_make(&m, 2, 64);
	assert_int_equal(reg(f, &before, &old), 0);
	producer_end(old);
	for (unsigned int i = 0; i < 3; i++) {
		assert_int_equal(reg(f, &m, &p), 0);
		assert_int_equal(f->gone, i);
		producer_end(p);
	}
	assert_int_equal(reg(f, &m, &again), 0);
	assert_int_equal(f->gone, 3);
	assert_ptr_equal(producers_of(f->ps, getpid(), producer_start_time(again), NULL), again);
	assert_ptr_equal(producers_of(f->ps, getpid(), producer_start_time(again), again), old);
	assert_null(producers_of(f->ps, getpid(), producer_start_time(again), old));
	assert_int_equal(quota_used(&f->quota, UID, QUOTA_PRODUCERS), 2);
	ring_close(&m);
	ring_close(&before);
}

/* ---- causes */

static struct ring_cause region(uint32_t trigger)
{
	return (struct ring_cause){.kind = RING_CAUSE_REGION,
				   .tid = 7,
				   .trigger = trigger,
				   .begin = 1000,
				   .end = 2000};
}

static int64_t status_number(struct fixture *f, const char *name, bool loss)
{
	struct json_object *status = json_object_new_object(), *losses = json_object_new_object();
	int64_t n = -1;

	producers_status(f->ps, status, losses);
	assert_true(json_get_int(loss ? losses : json_get_object(status, "events"), name, &n));
	json_object_put(status);
	json_object_put(losses);
	return n;
}

static void test_causes(void **state)
{
	struct fixture *f = *state;
	struct ring_cause c = region(1);
	struct ring_memory m;
	struct producer *p;
	uint64_t value = 0, now;

	ring_make(&m, 2, 64);
	(void)ring_cause_write(&m, &c, "before"); /* nobody was there */
	assert_int_equal(reg(f, &m, &p), 0);
	turn(f);
	assert_int_equal(f->causes, 0);

	c = region(2);
	(void)ring_cause_write(&m, &c, "slow \x1b[31m");
	turn(f);
	assert_int_equal(f->causes, 1);
	assert_int_equal(f->cause.kind, RING_CAUSE_REGION);
	assert_int_equal(f->cause.trigger, 2);
	assert_int_equal(f->cause.tid, 7);
	assert_int_equal(f->cause.begin_raw_ns, 1000);
	assert_int_equal(f->cause.end_raw_ns, 2000);
	assert_string_equal(f->text, "slow \\x1b[31m");
	ring_wake(&m); /* for nothing */
	turn(f);
	assert_int_equal(f->causes, 1);

	/* the eventfd is never read: what is in it stays */
	assert_int_equal(read(m.wake_fd, &value, sizeof(value)), sizeof(value));
	assert_int_equal(value, 3);

	/* times that cannot be are brought into order */
	now = clock_raw_ns();
	c = (struct ring_cause){.kind = RING_CAUSE_REQUEST,
				.begin = UINT64_MAX,
				.end = now + 3600000000000,
				.tid = UINT32_MAX};
	(void)ring_cause_write(&m, &c, "why not");
	turn(f);
	assert_int_equal(f->causes, 2);
	assert_true(f->cause.end_raw_ns >= now && f->cause.end_raw_ns <= clock_raw_ns());
	assert_int_equal(f->cause.begin_raw_ns, f->cause.end_raw_ns);
	assert_int_equal(f->cause.tid, 0);
	ring_close(&m);
}

static void test_causes_hostile(void **state)
{
	struct fixture *f = *state;
	struct ring_cause *causes, c;
	struct ring_memory m;
	struct producer *p;

	ring_make(&m, 2, 64);
	causes = (struct ring_cause *)(m.map + RING_CAUSES_OFFSET);
	assert_int_equal(reg(f, &m, &p), 0);
	/* of 20 at once 16 are there; the rest is counted */
	for (uint32_t i = 1; i <= 20; i++) {
		c = region(i);
		(void)ring_cause_write(&m, &c, "x");
	}
	turn(f);
	assert_int_equal(f->causes, 16);
	for (uint32_t i = 0; i < 16; i++)
		assert_int_equal(f->triggers[i], i + 5);
	assert_int_equal(status_number(f, "event_causes", true), 4);
	f->causes = 0;

	/* one is still being written while a later one is whole; it comes when it is */
	m.header->cause_head = 22;
	c = region(22);
	m.header->cause_head = 21;
	(void)ring_cause_write(&m, &c, "later");
	turn(f);
	assert_int_equal(f->causes, 1);
	assert_int_equal(f->cause.trigger, 22);
	causes[20 % RING_CAUSES].trigger = 21;
	causes[20 % RING_CAUSES].sequence = 21;
	ring_wake(&m);
	turn(f);
	assert_int_equal(f->causes, 2);
	assert_int_equal(f->cause.trigger, 21);

	/* kinds and lengths that are none */
	c = region(1);
	c.kind = 99;
	(void)ring_cause_write(&m, &c, "x");
	c = region(1);
	c.length = RING_CAUSE_TEXT + 1;
	(void)ring_cause_write(&m, &c, "x");
	turn(f);
	assert_int_equal(f->causes, 2);
	assert_int_equal(status_number(f, "causes_bad", false), 2);

	/* sequences at the wrong place, above the head, and a head that runs backwards */
	causes[3].sequence = 23;
	causes[4].sequence = UINT64_MAX;
	m.header->cause_head = 3;
	ring_wake(&m);
	turn(f);
	assert_int_equal(f->causes, 2);
	/* a head at the end of all numbers is just a lot that was lost */
	m.header->cause_head = UINT64_MAX;
	causes[4].sequence = UINT64_MAX - 10; /* 4 + 1 modulo 16 */
	causes[4].kind = RING_CAUSE_REQUEST;
	causes[4].length = 0;
	ring_wake(&m);
	turn(f);
	assert_int_equal(f->causes, 3);
	assert_true(status_number(f, "event_causes", true) <= 4 + (int64_t)UINT32_MAX);
	ring_wake(&m);
	turn(f);
	assert_int_equal(f->causes, 3);
	ring_close(&m);
}

/* What a program wrote just before its end is told, though the end may be seen before the wake. */
static void test_last_words(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m;
	struct ring_cause c;
	struct producer *p;

	ring_make(&m, 2, 64);
	assert_int_equal(reg(f, &m, &p), 0);
	c = region(3);
	(void)ring_cause_write(&m, &c, "x");
	producer_end(p);
	assert_int_equal(f->causes, 1);
	assert_int_equal(f->cause.trigger, 3);
	/* and nothing after it */
	(void)ring_cause_write(&m, &c, "x");
	turn(f);
	assert_int_equal(f->causes, 1);
	ring_close(&m);
}

/* Who wakes us without end is heard at intervals, and everybody else meanwhile. */
static void test_storm(void **state)
{
	struct fixture *f = *state;
	struct ring_memory m;
	struct ring_cause c;
	struct producer *p;

	ring_make(&m, 2, 64);
	assert_int_equal(reg(f, &m, &p), 0);
	for (int i = 0; i < 1000; i++) {
		ring_wake(&m);
		turn(f);
	}
	assert_true(status_number(f, "pauses", false) >= 1);
	c = region(5);
	(void)ring_cause_write(&m, &c, "x");
	until(f, &f->causes, 1);
	assert_int_equal(f->cause.trigger, 5);
	/* the end in a pause */
	for (int i = 0; i < 1000; i++) {
		ring_wake(&m);
		turn(f);
	}
	producer_end(p);
	turn(f);
	ring_close(&m);
}

static void test_tsc(void **state)
{
#if defined(__x86_64__)
	struct fixture *f = *state;
	struct ring_memory m;
	struct ring_cause c;
	struct producer *p;
	uint64_t before, after;
	bool usable = clocks_tsc_usable();
	int control_fd = -1;
	struct ring_control control;

	assert_true(ring_make_raw(&m, 2, 64, 0, 0));
	m.header->clock = RING_CLOCK_TSC;
	ring_seal(&m, RING_SEALS);
	(void)usleep(2000); /* to measure the rate in */
	if (!usable) {
		assert_int_equal(reg(f, &m, &p), PRODUCER_E_UNSUPPORTED);
		assert_non_null(strstr(f->why, "TSC"));
		ring_close(&m);
		return;
	}
	assert_int_equal(producers_register(f->ps, &f->peer, m.fd, m.wake_fd, &p, &control_fd,
					    f->why, sizeof(f->why)),
			 0);
	assert_int_equal(pread(control_fd, &control, sizeof(control), 0), sizeof(control));
	(void)close(control_fd);
	assert_true(control.ticks_per_second > 100000000 && control.ticks_per_second < 20000000000);
	c = region(1);
	before = clock_raw_ns();
	c.begin = __rdtsc();
	c.end = c.begin + control.ticks_per_second / 1000;
	(void)usleep(1500);
	after = clock_raw_ns();
	(void)ring_cause_write(&m, &c, "x");
	turn(f);
	assert_int_equal(f->causes, 1);
	/* 100 µs: what a rate that was measured over 2 ms may be wrong by, and more */
	assert_true(f->cause.begin_raw_ns + 100000 > before && f->cause.begin_raw_ns < after);
	assert_true(f->cause.end_raw_ns - f->cause.begin_raw_ns > 900000);
	assert_true(f->cause.end_raw_ns - f->cause.begin_raw_ns < 1100000);
	/* from the future */
	c.begin = c.end = UINT64_MAX;
	(void)ring_cause_write(&m, &c, "x");
	turn(f);
	assert_int_equal(f->causes, 2);
	assert_true(f->cause.end_raw_ns <= clock_raw_ns());
	ring_close(&m);
#else
	skip();
#endif
}

/* ---- thresholds */

static void test_thresholds(void **state)
{
	struct fixture *f = *state;
	char longest[RING_CONTROL_NAME + 2];
	struct ring_memory m;
	struct producer *p;

	ring_make(&m, 2, 64);
	assert_int_equal(reg(f, &m, &p), 0);
	/* before anybody is to be told */
	assert_int_equal(producer_threshold_set(p, 1, "early", 5, 6), 0);
	connect_to(f, p);
	assert_int_equal(producer_threshold_set(p, 2, "request", 5000000, 0), 0);
	assert_int_equal(f->controls, 1);
	assert_int_equal(producer_threshold_suppressed(p, 2), 0);
	m.header->suppressed[1] = 9;
	assert_int_equal(producer_threshold_suppressed(p, 2), 9);
	assert_int_equal(producer_threshold_suppressed(p, 3), 0);
	/* other numbers of the same threshold: what was counted stays */
	assert_int_equal(producer_threshold_set(p, 2, "request", 4000000, 0), 0);
	assert_int_equal(producer_threshold_suppressed(p, 2), 9);
	producer_threshold_clear(p, 2);
	assert_int_equal(f->controls, 3);
	producer_threshold_clear(p, 2);
	assert_int_equal(f->controls, 3);
	/* the place is used again, its count begins at what it is */
	assert_int_equal(producer_threshold_set(p, 3, "other", 1, 0), 0);
	assert_int_equal(producer_threshold_suppressed(p, 3), 0);
	m.header->suppressed[1] = 12;
	assert_int_equal(producer_threshold_suppressed(p, 3), 3);
	m.header->suppressed[1] = 0; /* it says less than before */
	assert_int_equal(producer_threshold_suppressed(p, 3), 0);

	memset(longest, 'x', sizeof(longest));
	longest[RING_CONTROL_NAME + 1] = '\0';
	assert_int_equal(producer_threshold_set(p, 4, longest, 1, 0), -EINVAL);
	assert_int_equal(producer_threshold_set(p, 4, "", 1, 0), -EINVAL);
	longest[RING_CONTROL_NAME] = '\0';
	assert_int_equal(producer_threshold_set(p, 4, longest, 1, 0), 0);
	for (uint32_t id = 5; id < 5 + RING_THRESHOLDS - 3; id++)
		assert_int_equal(producer_threshold_set(p, id, "x", 1, 0), 0);
	assert_int_equal(producer_threshold_set(p, 1000, "x", 1, 0), -ENOSPC);

	producer_end(p);
	f->controls = 0;
	assert_int_equal(producer_threshold_set(p, 1001, "x", 1, 0), 0);
	producer_threshold_clear(p, 4);
	assert_int_equal(producer_threshold_suppressed(p, 4), 0);
	assert_int_equal(f->controls, 0);
	ring_close(&m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_register, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_memory, setup, teardown),
		cmocka_unit_test_setup_teardown(test_seals, setup, teardown),
		cmocka_unit_test_setup_teardown(test_open_modes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_hugetlb, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_not_an_eventfd, setup, teardown),
		cmocka_unit_test_setup_teardown(test_limits, setup, teardown),
		cmocka_unit_test_setup_teardown(test_counts, setup, teardown),
		cmocka_unit_test_setup_teardown(test_evict, setup, teardown),
		cmocka_unit_test_setup_teardown(test_once, setup, teardown),
		cmocka_unit_test_setup_teardown(test_process_ends, setup, teardown),
		cmocka_unit_test_setup_teardown(test_keeping, setup, teardown),
		cmocka_unit_test_setup_teardown(test_comes_back, setup, teardown),
		cmocka_unit_test_setup_teardown(test_causes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_causes_hostile, setup, teardown),
		cmocka_unit_test_setup_teardown(test_last_words, setup, teardown),
		cmocka_unit_test_setup_teardown(test_storm, setup, teardown),
		cmocka_unit_test_setup_teardown(test_tsc, setup, teardown),
		cmocka_unit_test_setup_teardown(test_thresholds, setup, teardown),
	};

	return cmocka_run_group_tests_name("producer", tests, NULL, NULL);
}
