// SPDX-License-Identifier: Apache-2.0
/*
 * What the decoder cannot do once it is in its sandbox, and what it still can. Each trial is a
 * child of its own.
 */
#include "config.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/job/sandbox.h"

static int file_fd;
static struct sandbox_layers layers;

/* 0: the call was denied with EPERM. */
static int denied(long r)
{
	return r == -1 && errno == EPERM ? 0 : 1;
}

static int try_open(void)
{
	return denied(open("/etc/passwd", O_RDONLY | O_CLOEXEC));
}

static int try_socket(void)
{
	return denied(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
}

static int try_exec(void)
{
	char *argv[] = {(char *)"true", NULL};

	return denied(execv("/bin/true", argv));
}

static int try_fork(void)
{
	return denied(fork());
}

static int try_code(void)
{
	return mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1,
		       0) == MAP_FAILED &&
			       errno == EPERM
		       ? 0
		       : 1;
}

static int try_kill(void)
{
	return denied(kill(1, 0));
}

static int try_ptrace(void)
{
	return denied(ptrace(PTRACE_TRACEME, 0, NULL, NULL));
}

static int try_unlink(void)
{
	return denied(unlink("/nonexistent"));
}

static void *nothing(void *arg)
{
	return arg;
}

static int try_thread(void)
{
	pthread_t t;

	return pthread_create(&t, NULL, nothing, NULL) == 0;
}

/* The work itself, and the count of what was denied. */
static int try_work(void)
{
	_cleanup_json_ struct json_object *stats = json_object_new_object();
	struct json_object *o;
	uint64_t n = 0;
	char buf[16];
	struct stat st;
	void *p = malloc(64 << 20);

	if (!p || pread(file_fd, buf, sizeof(buf), 0) != sizeof(buf) || fstat(file_fd, &st) < 0 ||
		pwrite(file_fd, buf, sizeof(buf), 100) != sizeof(buf))
		return 2;
	memset(p, 1, 64 << 20);
	free(p);
	if (try_open() || try_socket())
		return 3;
	sandbox_report(&layers, stats);
	o = json_get_object(stats, "sandbox");
	if (!o || !json_get_uint(o, "denied_calls", &n) || n != 2)
		return 4;
	return 0;
}

static int try_memory(void)
{
	struct rlimit l;
	void *volatile p = malloc((size_t)4 << 30); /* or the compiler takes it for had */

	if (p || getrlimit(RLIMIT_CORE, &l) == 0)
		return 1; /* asking for limits is denied, too */
	return 0;
}

static const struct trial {
	const char *what;
	int (*run)(void);
} trials[] = {
	{"open a path", try_open},
	{"make a socket", try_socket},
	{"run a program", try_exec},
	{"fork", try_fork},
	{"map code", try_code},
	{"signal a process", try_kill},
	{"be traced", try_ptrace},
	{"remove a file", try_unlink},
	{"start a thread", try_thread},
	{"use more memory than its limit", try_memory},
	{"work", try_work},
};

static void test_trials(void **state)
{
#ifdef SANITIZERS
	print_message("SKIP: sanitizers need the calls that are tried here\n");
	skip();
#endif
	file_fd = io_memfd("file");
	assert_int_equal(io_pwrite_all(file_fd, "0123456789abcdef0123", 20, 0), 0);
	for (size_t i = 0; i < ARRAY_SIZE(trials); i++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			sandbox_enter(256u << 20, false, &layers);
			if (!layers.seccomp || !layers.no_new_privs)
				_exit(100);
			_exit(trials[i].run());
		}
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
			fail_msg("%s: status %x", trials[i].what, (unsigned)status);
	}
}

/* A thread that exists before is covered, also one that has every signal blocked but SIGSYS. */
static int pipe_fds[2];

static void *other_thread(void *arg)
{
	char c;

	if (read(pipe_fds[0], &c, 1) != 1)
		return (void *)2;
	return (void *)(intptr_t)try_open();
}

static void test_other_threads(void **state)
{
	int status;
	pid_t pid;

#ifdef SANITIZERS
	skip();
#endif
	assert_int_equal(pipe2(pipe_fds, O_CLOEXEC), 0);
	pid = fork();
	if (pid == 0) {
		sigset_t all, old;
		pthread_t t;
		void *r = (void *)1;

		sigfillset(&all);
		sigdelset(&all, SIGSYS);
		pthread_sigmask(SIG_BLOCK, &all, &old);
		if (pthread_create(&t, NULL, other_thread, NULL) != 0)
			_exit(101);
		sandbox_enter(0, false, &layers);
		if (write(pipe_fds[1], "x", 1) != 1)
			_exit(102);
		pthread_join(t, &r);
		_exit((int)(intptr_t)r);
	}
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFEXITED(status));
	assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_trials),
		cmocka_unit_test(test_other_threads),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
