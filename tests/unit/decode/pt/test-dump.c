// SPDX-License-Identifier: Apache-2.0
/* The text views of an Intel PT trace, byte for byte. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "decode/pt/dump.h"

#define NS(n) ((struct dump_time){.ns = (n)})

/* A call of a frame that began then. */
#define CALL(of, at) (&(struct call){.frame = (of), .begin = (at)})

struct fixture {
	struct stacktab *st;
	struct dump *view;
	int fd, scratch_fd;
	uint32_t main, puts, unknown;
};

static uint32_t frame(struct fixture *f, const char *name, const char *object)
{
	return stacktab_frame(f->st, &(struct frame_info){.name = name, .object = object});
}

static void begin(struct fixture *f, enum dump_kind kind, uint64_t max_bytes)
{
	f->fd = memfd_create("view", MFD_CLOEXEC);
	assert_true(f->fd >= 0);
	f->scratch_fd = memfd_create("scratch", MFD_CLOEXEC);
	assert_true(f->scratch_fd >= 0);
	assert_int_equal(stacktab_new(0, &f->st), 0);
	f->main = frame(f, "main", "/usr/bin/prog");
	f->puts = frame(f, "puts", "/lib/libc.so.6");
	f->unknown = frame(f, "[libx.so]", "/lib/libx.so");
	assert_int_equal(dump_new(&(struct dump_options){.kind = kind,
							 .fd = f->fd,
							 .scratch_fd = f->scratch_fd,
							 .max_bytes = max_bytes,
							 .st = f->st},
				  &f->view),
			 0);
	assert_int_equal(dump_kind(f->view), kind);
}

/* What was written, once the view is finished. */
static char *end(struct fixture *f)
{
	const off_t n = (assert_int_equal(dump_finish(f->view), 0), lseek(f->fd, 0, SEEK_END));
	char *text = calloc(1, (size_t)n + 1);

	assert_non_null(text);
	assert_int_equal(io_pread_full(f->fd, text, (size_t)n, 0), n);
	assert_int_equal(dump_stats(f->view)->bytes, n);
	dump_free(f->view);
	stacktab_free(f->st);
	(void)close(f->fd);
	(void)close(f->scratch_fd);
	return text;
}

static struct dump_thread *thread(struct fixture *f, uint32_t pid, uint32_t tid, const char *name)
{
	struct dump_thread *t;

	assert_int_equal(dump_thread(f->view, pid, tid, name, &t), 0);
	return t;
}

static void test_calls(void **state)
{
	struct fixture f;
	struct dump_thread *a, *b;
	char *text;

	begin(&f, DUMP_CALLS, 0);
	a = thread(&f, 7, 7, "prog");
	b = thread(&f, 7, 8, "worker");
	assert_ptr_equal(thread(&f, 7, 7, "prog"), a);
	assert_int_equal(dump_call(a, NS(1000), f.main, "begin not recorded", NULL), 0);
	assert_int_equal(dump_call(a, NS(1010), f.puts, NULL, NULL), 0);
	assert_int_equal(dump_call(b, NS(1012), f.unknown, "tail call", NULL), 0);
	assert_int_equal(dump_return(a, NS(1050), CALL(f.puts, 1010), 12), 0);
	assert_int_equal(dump_call(a, NS(1060), f.puts, NULL, NULL), 0);
	assert_int_equal(dump_remark(a, NS(1070), "system call"), 0);
	assert_int_equal(dump_return(a, NS(1090), CALL(f.puts, 1060), 30), 0);
	assert_int_equal(dump_return(b, NS(1095), CALL(f.unknown, 1012), 3), 0);
	assert_int_equal(dump_return(a, NS(1100), CALL(f.main, 1000), 99), 0);
	/* more ends than begins are nothing */
	assert_int_equal(dump_return(a, NS(1101), CALL(f.main, 1000), 1), 0);
	assert_int_equal(dump_stats(f.view)->lines, 7);
	text = end(&f);
	assert_string_equal(
		text, "# tracerd calls 1\n"
		      "#         time         ns     insns\n"
		      "thread 7/7 \"prog\"\n"
		      "            1000                       main (prog) [begin not recorded] {\n"
		      "            1010         40        12    puts (libc.so.6)\n"
		      "            1060                         puts (libc.so.6) {\n"
		      "            1070                           -- system call\n"
		      "            1090         30        30    } puts (libc.so.6)\n"
		      "            1100        100        99  } main (prog)\n"
		      "\nthread 7/8 \"worker\"\n"
		      "            1012         83         3  [libx.so] [tail call]\n");
	free(text);
}

/*
 * Where the source code is known: each call says where its function is declared and where it is
 * called.
 */
static void test_source(void **state)
{
	struct fixture f;
	struct dump_thread *t;
	struct dump_place place;
	uint32_t square;
	char *text;

	begin(&f, DUMP_CALLS, 0);
	square = stacktab_frame(f.st, &(struct frame_info){.name = "square",
					      .object = "/usr/bin/prog",
					      .file = "/home/u/src/square.c",
					      .line = 4294967295,
					      .kind = FRAME_KIND_INLINED});
	t = thread(&f, 7, 7, "prog");
	assert_int_equal(dump_call(t, NS(1000), f.main, NULL, "start.c:9"), 0);
	assert_int_equal(dump_call(t, NS(1001), square, "inlined", "main.c:40"), 0);
	assert_int_equal(dump_call(t, NS(1002), square, NULL, NULL), 0);
	assert_int_equal(dump_return(t, NS(1003), CALL(square, 1002), 1), 0);
	assert_int_equal(dump_return(t, NS(1004), CALL(square, 1001), 2), 0);
	assert_int_equal(dump_return(t, NS(1005), CALL(f.main, 1000), 3), 0);
	text = end(&f);
	assert_string_equal(
		text,
		"# tracerd calls 1\n"
		"#         time         ns     insns\n"
		"thread 7/7 \"prog\"\n"
		"            1000                       main (prog) from start.c:9 {\n"
		"            1001                         square (prog) square.c:4294967295 [inlined] from main.c:40 {\n"
		"            1002          1         1      square (prog) square.c:4294967295\n"
		"            1004          3         2    } square (prog)\n"
		"            1005          5         3  } main (prog)\n");
	free(text);

	begin(&f, DUMP_INSNS, 0);
	place = (struct dump_place){.ip = 0x401005,
				    .frame = f.main,
				    .into = 5,
				    .line = "main.c:40"};
	assert_int_equal(dump_insn(f.view, NS(3), 7, &place), 0);
	text = end(&f);
	assert_string_equal(text,
			    "# tracerd instructions 1\n3 7 401005 main+0x5 (prog) main.c:40\n");
	free(text);
}

/* Deeper than can be read a line says how deep it is; and it is never longer than a line may be. */
static void test_deep(void **state)
{
	struct fixture f;
	struct dump_thread *t;
	char *text;

	begin(&f, DUMP_CALLS, 0);
	t = thread(&f, 1, 1, "deep");
	for (unsigned int i = 0; i < 4000; i++)
		assert_int_equal(dump_call(t, NS(i), f.main, NULL, NULL), 0);
	for (unsigned int i = 0; i < 4000; i++)
		assert_int_equal(dump_return(t, NS(4000 + i), CALL(f.main, 3999 - i), 1), 0);
	assert_int_equal(dump_stats(f.view)->lines, 7999);
	text = end(&f);
	assert_non_null(strstr(text, " <3999> main (prog)\n"));
	assert_non_null(strstr(text, "  <64> main (prog) {\n"));
	assert_null(strstr(text, "<63>"));
	/* one thread has one head, however much it has to say */
	assert_null(strstr(strstr(text, "thread ") + 1, "thread "));
	for (const char *p = text; *p; p = strchr(p, '\n') + 1)
		assert_true(strchr(p, '\n') - p < 256);
	free(text);
}

static void test_branches(void **state)
{
	struct fixture f;
	char *text;
	const struct dump_place nowhere = {0};
	struct dump_place from, to, jit = {.ip = 0x7f0000001000};

	begin(&f, DUMP_BRANCHES, 0);
	from = (struct dump_place){.ip = 0x401005, .frame = f.main, .into = 5};
	to = (struct dump_place){.ip = 0x7f0000000400, .frame = f.puts};
	assert_int_equal(dump_branch(f.view, NS(5), 9,
				     &(struct ptflow_event){.kind = PTFLOW_ENABLE}, &nowhere,
				     &from),
			 0);
	assert_int_equal(dump_branch(f.view, NS(6), 9, &(struct ptflow_event){.kind = PTFLOW_CALL},
				     &from, &to),
			 0);
	assert_int_equal(dump_branch(f.view, NS(7), 9,
				     &(struct ptflow_event){.kind = PTFLOW_FAR, .is_syscall = true},
				     &to, &nowhere),
			 0);
	assert_int_equal(dump_branch(f.view, NS(8), 9,
				     &(struct ptflow_event){.kind = PTFLOW_DESYNC,
							    .error = PTFLOW_E_NO_CODE},
				     &jit, &nowhere),
			 0);
	text = end(&f);
	assert_string_equal(text,
			    "# tracerd branches 1\n"
			    "5 9 begin - -> 401005 main+0x5 (prog)\n"
			    "6 9 call 401005 main+0x5 (prog) -> 7f0000000400 puts (libc.so.6)\n"
			    "7 9 syscall 7f0000000400 puts (libc.so.6) -> -\n"
			    "8 9 lost 7f0000001000 [unknown] -> - # no code\n");
	free(text);
}

static void test_insns(void **state)
{
	struct fixture f;
	char *text;

	begin(&f, DUMP_INSNS, 0);
	assert_int_equal(dump_insn(f.view, NS(0), 9,
				   &(struct dump_place){.ip = 0x401000, .frame = f.main}),
			 0);
	assert_int_equal(
		dump_insn(f.view, NS(0), 9,
			  &(struct dump_place){.ip = 0x501000, .frame = f.unknown, .into = 0x1000}),
		0);
	text = end(&f);
	assert_string_equal(text,
			    "# tracerd instructions 1\n"
			    "0 9 401000 main (prog)\n"
			    "0 9 501000 [libx.so]+0x1000\n");
	free(text);
}

/* At the limit it ends with a whole line. */
static void test_limit(void **state)
{
	struct fixture f;
	char *text;

	begin(&f, DUMP_INSNS, 60);
	for (unsigned int i = 0; i < 10000; i++)
		assert_int_equal(dump_insn(f.view, NS(0), 9,
					   &(struct dump_place){.ip = 0x401000, .frame = f.main}),
				 0);
	assert_int_equal(dump_finish(f.view), 0);
	assert_true(dump_stats(f.view)->cut);
	text = end(&f);
	assert_string_equal(text, "# tracerd instructions 1\n0 9 401000 main (prog)\n");
	free(text);
}

/*
 * Who shows itself late is around what it has called, also if that was long ago; what comes after
 * it is a piece of its own.
 */
static void test_outside(void **state)
{
	struct fixture f;
	struct dump_thread *t;
	char *text;
	const char *p;

	begin(&f, DUMP_CALLS, 0);
	t = thread(&f, 7, 7, "prog");
	assert_int_equal(dump_resync(t), 0);
	assert_int_equal(dump_call(t, NS(10), f.puts, "begin not recorded", NULL), 0);
	assert_int_equal(dump_call(t, NS(11), f.puts, NULL, NULL), 0);
	assert_int_equal(dump_return(t, NS(12), CALL(f.puts, 11), 1), 0);
	assert_int_equal(dump_return(t, NS(13), CALL(f.puts, 10), 2), 0);
	assert_int_equal(dump_outside(t, NS(10), f.unknown, 0, "begin not recorded"), 0);
	assert_int_equal(dump_call(t, NS(14), f.puts, NULL, NULL), 0);
	assert_int_equal(dump_return(t, NS(15), CALL(f.puts, 14), 1), 0);
	assert_int_equal(dump_return(t, NS(16), CALL(f.unknown, 10), 5), 0);
	/* two at once: the first is around the second, and both around the one before */
	assert_int_equal(dump_outside(t, NS(10), f.main, 1, NULL), 0);
	assert_int_equal(dump_outside(t, NS(10), f.puts, 0, NULL), 0);
	assert_int_equal(dump_return(t, NS(17), CALL(f.puts, 10), 6), 0);
	assert_int_equal(dump_return(t, NS(18), CALL(f.main, 10), 7), 0);
	assert_int_equal(dump_remark(t, NS(19), "off CPU"), 0);
	assert_int_equal(dump_resync(t), 0);
	assert_int_equal(dump_call(t, NS(20), f.main, "its stack goes on", NULL), 0);
	assert_int_equal(dump_return(t, NS(21), CALL(f.main, 20), 1), 0);
	assert_int_equal(dump_stats(f.view)->lines, 12);
	text = end(&f);
	assert_string_equal(
		text,
		"# tracerd calls 1\n"
		"#         time         ns     insns\n"
		"thread 7/7 \"prog\"\n"
		"              10                       main (prog) {\n"
		"              10                         puts (libc.so.6) {\n"
		"              10                           [libx.so] [begin not recorded] {\n"
		"              10                             puts (libc.so.6) [begin not recorded] {\n"
		"              11          1         1          puts (libc.so.6)\n"
		"              13          3         2        } puts (libc.so.6)\n"
		"              14          1         1        puts (libc.so.6)\n"
		"              16          6         5      } [libx.so]\n"
		"              17          7         6    } puts (libc.so.6)\n"
		"              18          8         7  } main (prog)\n"
		"              19                       -- off CPU\n"
		"              20          1         1  main (prog) [its stack goes on]\n");
	free(text);

	/* behind more than is kept in memory */
	begin(&f, DUMP_CALLS, 0);
	t = thread(&f, 7, 7, "prog");
	assert_int_equal(dump_resync(t), 0);
	for (unsigned int i = 0; i < 400000; i++) {
		assert_int_equal(dump_call(t, NS(10), f.puts, NULL, NULL), 0);
		assert_int_equal(dump_return(t, NS(11), CALL(f.puts, 10), 1), 0);
	}
	for (unsigned int i = 0; i < 1000; i++) {
		assert_int_equal(dump_outside(t, NS(10), f.main, 0, NULL), 0);
		assert_int_equal(dump_return(t, NS(12), CALL(f.main, 10), 1), 0);
	}
	text = end(&f);
	p = strstr(text, "thread 7/7");
	for (unsigned int i = 0; i < 1000; i++) {
		p = strchr(p, '\n') + 1;
		assert_memory_equal(p, "              10                       ", 39);
		assert_non_null(strstr(p, "main (prog) {\n"));
	}
	p = strchr(p, '\n') + 1;
	assert_non_null(strstr(p, "<1000> puts (libc.so.6)\n"));
	assert_string_equal(text + strlen(text) - strlen("  } main (prog)\n"), "  } main (prog)\n");
	free(text);
}

/*
 * What was found turns out to be what goes on: what was said of it until then is said better, and
 * only that.
 */
static void test_identified(void **state)
{
	static const char found[] = "begin not recorded", resumed[] = "its stack goes on";
	struct fixture f;
	struct dump_thread *t;
	char *text;

	begin(&f, DUMP_CALLS, 0);
	t = thread(&f, 7, 7, "prog");
	assert_int_equal(dump_identified(t, found, resumed), 0);
	assert_int_equal(dump_resync(t), 0);
	assert_int_equal(dump_call(t, NS(10), f.puts, found, NULL), 0);
	assert_int_equal(dump_return(t, NS(13), CALL(f.puts, 10), 2), 0);
	assert_int_equal(dump_outside(t, NS(10), f.puts, 0, found), 0);
	assert_int_equal(dump_identified(t, found, resumed), 0);
	assert_int_equal(dump_outside(t, NS(10), f.main, 1, found), 0);
	assert_int_equal(dump_outside(t, NS(10), f.unknown, 0, resumed), 0);
	for (uint32_t i = 0; i < 3; i++)
		assert_int_equal(dump_return(t, NS(14), CALL(f.puts, 10), 3), 0);
	assert_int_equal(dump_resync(t), 0);
	assert_int_equal(dump_call(t, NS(20), f.main, found, NULL), 0);
	assert_int_equal(dump_call(t, NS(20), f.puts, NULL, NULL), 0);
	assert_int_equal(dump_return(t, NS(21), CALL(f.puts, 20), 1), 0);
	assert_int_equal(dump_return(t, NS(22), CALL(f.main, 20), 1), 0);
	text = end(&f);
	assert_string_equal(
		strstr(text, "thread"),
		"thread 7/7 \"prog\"\n"
		"              10                       main (prog) [begin not recorded] {\n"
		"              10                         [libx.so] [its stack goes on] {\n"
		"              10                           puts (libc.so.6) [its stack goes on] {\n"
		"              10          3         2        puts (libc.so.6) [its stack goes on]\n"
		"              14          4         3      } puts (libc.so.6)\n"
		"              14          4         3    } puts (libc.so.6)\n"
		"              14          4         3  } puts (libc.so.6)\n"
		"              20                       main (prog) [begin not recorded] {\n"
		"              20          1         1    puts (libc.so.6)\n"
		"              22          2         1  } main (prog)\n");
	free(text);
}

/* Nobody gets more than the limit, and the scratch file does not grow without one. */
static void test_calls_limit(void **state)
{
	struct fixture f;
	struct dump_thread *t;
	char *text;

	begin(&f, DUMP_CALLS, 200);
	t = thread(&f, 7, 7, "prog");
	for (unsigned int i = 0; i < 400000; i++) {
		assert_int_equal(dump_call(t, NS(10), f.puts, NULL, NULL), 0);
		assert_int_equal(dump_return(t, NS(11), CALL(f.puts, 10), 1), 0);
	}
	assert_true(lseek(f.scratch_fd, 0, SEEK_END) < 8 << 20);
	assert_int_equal(dump_finish(f.view), 0);
	assert_true(dump_stats(f.view)->cut);
	text = end(&f);
	assert_true(strlen(text) <= 200 && strlen(text) > 100 && text[strlen(text) - 1] == '\n');
	free(text);
}

/* The scratch file cannot be written: that is told, and what it was. */
static void test_no_scratch(void **state)
{
	struct fixture f;
	struct dump_thread *t;
	int r = 0;

	begin(&f, DUMP_CALLS, 0);
	(void)close(f.scratch_fd);
	f.scratch_fd = open("/dev/full", O_RDWR | O_CLOEXEC);
	dump_free(f.view);
	assert_int_equal(dump_new(&(struct dump_options){.kind = DUMP_CALLS,
							 .fd = f.fd,
							 .scratch_fd = f.scratch_fd,
							 .st = f.st},
				  &f.view),
			 0);
	t = thread(&f, 7, 7, "prog");
	for (unsigned int i = 0; i < 4000 && r == 0; i++) {
		r = dump_call(t, NS(10), f.puts, NULL, NULL);
		if (r == 0)
			r = dump_return(t, NS(11), CALL(f.puts, 10), 1);
	}
	assert_int_equal(r, -ENOSPC);
	assert_int_equal(dump_stats(f.view)->scratch_error, -ENOSPC);
	assert_int_equal(dump_stats(f.view)->write_error, 0);
	dump_free(f.view);
	stacktab_free(f.st);
	(void)close(f.fd);
	(void)close(f.scratch_fd);
}

/*
 * Many threads with much to say: what a thread says stays together and in order, and all of it is
 * there.
 */
static void test_many_threads(void **state)
{
	enum { THREADS = 40, CALLS = 20000 };
	struct fixture f;
	struct dump_thread *t[THREADS];
	unsigned int ends = 0, heads = 0;
	uint64_t last[THREADS] = {0};
	unsigned int at = 0;
	char *text, *save = NULL;

	begin(&f, DUMP_CALLS, 0);
	for (unsigned int i = 0; i < THREADS; i++)
		t[i] = thread(&f, 1, 100 + i, "t");
	for (unsigned int k = 0; k < CALLS; k++) {
		for (unsigned int i = 0; i < THREADS; i++) {
			assert_int_equal(dump_call(t[i], NS(10 + k), f.main, NULL, NULL), 0);
			assert_int_equal(dump_return(t[i], NS(10 + k), CALL(f.main, 10 + k), 1), 0);
		}
	}
	text = end(&f);
	for (char *p = strtok_r(text, "\n", &save); p; p = strtok_r(NULL, "\n", &save)) {
		unsigned int tid;

		if (sscanf(p, "thread 1/%u", &tid) == 1) {
			at = tid - 100;
			heads++;
		} else if (*p != '#') {
			assert_true(strtoull(p, NULL, 10) > last[at]);
			last[at] = strtoull(p, NULL, 10);
			ends++;
		}
	}
	assert_int_equal(ends, THREADS * CALLS);
	assert_int_equal(heads, THREADS);
	free(text);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_calls),        cmocka_unit_test(test_source),
		cmocka_unit_test(test_deep),         cmocka_unit_test(test_branches),
		cmocka_unit_test(test_insns),        cmocka_unit_test(test_limit),
		cmocka_unit_test(test_many_threads), cmocka_unit_test(test_outside),
		cmocka_unit_test(test_identified),   cmocka_unit_test(test_calls_limit),
		cmocka_unit_test(test_no_scratch),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
