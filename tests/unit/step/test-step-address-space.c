// SPDX-License-Identifier: Apache-2.0
/*
 * What the stepper knows of code: this test's own, which is in a file, and pages that are in none
 * and change.
 */
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
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/cleanup.h"
#include "step/address_space.h"

struct fixture {
	char dir[64], output[96];
	struct step_clock clock;
	struct step_code code;
	struct sideband *sideband;
	struct address_space *space;
};

static int setup(void **state)
{
	struct fixture *f = calloc(1, sizeof(*f));
	struct address_space_shared shared;

	assert_non_null(f);
	(void)strcpy(f->dir, "/tmp/tracerd-address-space-XXXXXX");
	assert_non_null(mkdtemp(f->dir));
	(void)snprintf(f->output, sizeof(f->output), "%s/x.data", f->dir);
	step_clock_init(&f->clock, false);
	assert_int_equal(step_code_init(&f->code, f->output), 0);
	assert_int_equal(sideband_new(&f->sideband), 0);
	shared = (struct address_space_shared){.sideband = f->sideband,
					       .clock = &f->clock,
					       .code = &f->code};
	assert_int_equal(address_space_new(&shared, getpid(), &f->space), 0);
	*state = f;
	return 0;
}

static int teardown(void **state)
{
	struct fixture *f = *state;
	char path[160];

	(void)address_space_free(f->space);
	(void)sideband_free(f->sideband);
	step_code_fini(&f->code);
	(void)snprintf(path, sizeof(path), "%s.code", f->output);
	(void)unlink(path);
	(void)snprintf(path, sizeof(path), "%s.vdso", f->output);
	(void)unlink(path);
	(void)rmdir(f->dir);
	free(f);
	return 0;
}

/* The instruction at `p` as the stepper sees it is the one that is there. */
static void fetch(struct fixture *f, const void *p, uint8_t length)
{
	uint8_t code[INSN_MAX];
	struct insn insn;

	assert_int_equal(address_space_fetch(f->space, getpid(), (uintptr_t)p, true, code, &insn),
			 0);
	assert_int_equal(insn.length, length);
	assert_memory_equal(code, p, length);
}

static void check_saved(struct fixture *f, uint32_t page, size_t at, const void *bytes, size_t n)
{
	uint8_t got[64];

	assert_true(n <= sizeof(got));
	assert_int_equal(pread(f->code.fd, got, n,
			       (off_t)(STEP_CODE_HEAD + page * (uint64_t)STEP_CODE_STRIDE + at)),
			 n);
	assert_memory_equal(got, bytes, n);
}

static void test_code_in_a_file(void **state)
{
	struct fixture *f = *state;
	const uint8_t *p = (const uint8_t *)(uintptr_t)&test_code_in_a_file;
	uint8_t code[INSN_MAX];
	struct insn insn;
	uint64_t epoch;

	assert_int_equal(address_space_reread(f->space, getpid()), 0);
	epoch = address_space_epoch(f->space);
	assert_true(epoch > 0);
	assert_int_equal(address_space_fetch(f->space, getpid(), (uintptr_t)p, true, code, &insn),
			 0);
	assert_memory_equal(code, p, insn.length);
	/* nothing to save, nothing to record; and the same list again has nothing new */
	assert_int_equal(f->code.pages, 0);
	assert_int_equal(address_space_reread(f->space, getpid()), 0);
	assert_true(address_space_epoch(f->space) == epoch);
	assert_true(f->code.vdso);
}

static void test_nothing_there(void **state)
{
	struct fixture *f = *state;
	uint8_t code[INSN_MAX];
	struct insn insn;

	assert_int_equal(address_space_fetch(f->space, getpid(), 16, true, code, &insn),
			 ADDRESS_SPACE_E_NO_INSN);
	assert_int_equal(address_space_fetch(f->space, getpid(), UINT64_C(0xffffffffff600000), true,
					     code, &insn),
			 ADDRESS_SPACE_E_NO_INSN);
}

static void test_code_that_changes(void **state)
{
	static const uint8_t ret = 0xc3, mov[] = {0xb8, 1, 2, 3, 4};
	struct fixture *f = *state;
	uint8_t *p = mmap(NULL, 3 * STEP_CODE_PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t epoch;

	assert_true(p != MAP_FAILED);
	/*
	 * An unknown mapping: it is found by reading the mappings. The page is saved, with its
	 * tail.
	 */
	memset(p, 0x90, (size_t)3 * STEP_CODE_PAGE);
	fetch(f, p, 1);
	assert_int_equal(f->code.pages, 1);
	check_saved(f, 0, STEP_CODE_PAGE, p, STEP_CODE_TAIL);
	epoch = address_space_epoch(f->space);
	fetch(f, p + 100, 1);
	assert_true(address_space_epoch(f->space) == epoch);

	/* Data beside what runs is no change; code that has become other code is, once. */
	p[200] = 1;
	fetch(f, p + 100, 1);
	assert_int_equal(f->code.pages, 1);
	p[100] = ret;
	fetch(f, p + 100, 1);
	fetch(f, p + 100, 1);
	assert_int_equal(f->code.pages, 2);
	assert_true(address_space_epoch(f->space) == epoch + 1);
	check_saved(f, 1, 100, &ret, 1);

	/* Across the end of a page; then its second half changes. */
	memcpy(p + STEP_CODE_PAGE - 2, mov, sizeof(mov));
	fetch(f, p + STEP_CODE_PAGE - 2, sizeof(mov));
	assert_int_equal(f->code.pages, 3);
	check_saved(f, 2, STEP_CODE_PAGE - 2, mov, sizeof(mov));
	p[STEP_CODE_PAGE + 2] = 77;
	fetch(f, p + STEP_CODE_PAGE - 2, sizeof(mov));
	assert_int_equal(f->code.pages, 4);
	check_saved(f, 3, STEP_CODE_PAGE + 2, p + STEP_CODE_PAGE + 2, 1);

	/* The last page ends where the mapping does. */
	fetch(f, p + 3 * STEP_CODE_PAGE - 1, 1);
	assert_int_equal(munmap(p, (size_t)3 * STEP_CODE_PAGE), 0);
}

static void test_a_file_that_is_no_more(void **state)
{
	struct fixture *f = *state;
	static const uint8_t code[] = {0x90, 0xc3};
	uint8_t page[STEP_CODE_PAGE] = {0};
	char path[128];
	uint8_t *p;
	int fd;

	(void)snprintf(path, sizeof(path), "%s/lib", f->dir);
	fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0700);
	assert_true(fd >= 0);
	memcpy(page, code, sizeof(code));
	assert_int_equal(write(fd, page, sizeof(page)), sizeof(page));
	p = mmap(NULL, STEP_CODE_PAGE, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);
	if (p == MAP_FAILED) { /* /tmp without execution */
		(void)close(fd);
		(void)unlink(path);
		skip();
	}
	fetch(f, p, 1);
	assert_int_equal(f->code.pages, 0);
	/* forgotten, and met again when the file is gone */
	address_space_clear(f->space);
	assert_int_equal(unlink(path), 0);
	fetch(f, p + 1, 1);
	assert_int_equal(f->code.pages, 1);
	check_saved(f, 0, 0, code, sizeof(code));
	(void)munmap(p, STEP_CODE_PAGE);
	(void)close(fd);
}

/*
 * All mappings and saved pages are recorded once more, under the pages' places; forgotten pages are
 * read again.
 */
static void test_recorded_again(void **state)
{
	struct fixture *f = *state;
	uint8_t *p = mmap(NULL, STEP_CODE_PAGE, PROT_READ | PROT_WRITE | PROT_EXEC,
			  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	size_t all, again;

	assert_true(p != MAP_FAILED);
	memset(p, 0x90, STEP_CODE_PAGE);
	fetch(f, p, 1);
	all = sideband_bytes(f->sideband);
	assert_int_equal(sideband_begin_segment(f->sideband, 5), 0);
	assert_int_equal(address_space_record(f->space, 5, getpid()), 0);
	sideband_begin_records(f->sideband);
	again = sideband_bytes(f->sideband) - all;
	assert_true(again == all);
	address_space_forget_pages(f->space);
	assert_int_equal(address_space_record(f->space, 5, getpid()), 0);
	assert_true(sideband_segment_bytes(f->sideband) < again);
	assert_int_equal(f->code.pages, 1);
	fetch(f, p, 1);
	assert_int_equal(f->code.pages, 2);
	(void)munmap(p, STEP_CODE_PAGE);
}

/*
 * In memory: places of pages that nothing names any more are used again, and the file is what is
 * named.
 */
static void test_code_in_memory(void **state)
{
	_cleanup_close_ int fd = memfd_create("code", MFD_CLOEXEC);
	uint8_t page[STEP_CODE_PAGE + STEP_CODE_TAIL], got[STEP_CODE_PAGE + STEP_CODE_TAIL];
	uint64_t offsets[4], last = 0;
	struct step_code c;
	struct stat st;

	(void)state;
	assert_true(fd >= 0);
	assert_int_equal(step_code_init(&c, NULL), 0);
	assert_true(step_code_size(&c) == 0);
	for (uint8_t i = 0; i < 4; i++) {
		memset(page, 'a' + i, sizeof(page));
		step_code_begin_segment(&c, i);
		assert_int_equal(step_code_add(&c, page, page, STEP_CODE_TAIL, &offsets[i]), 0);
	}
	step_code_use(&c, offsets[0]);
	step_code_drop_before(&c, 2);
	assert_int_equal(step_code_room(&c), STEP_CODE_MAX_KEPT - 3);
	memset(page, 'x', sizeof(page));
	assert_int_equal(step_code_add(&c, page, page, 3, &last), 0);
	assert_true(last == offsets[1]);
	assert_int_equal(step_code_vdso(&c, page, 100), 0);
	assert_int_equal(step_code_vdso(&c, page + 1, 50), 0);
	assert_true(c.vdso_size == 100);
	assert_int_equal(step_code_write(&c, fd), 0);
	assert_int_equal(fstat(fd, &st), 0);
	assert_true((uint64_t)st.st_size == step_code_size(&c));
	for (uint8_t i = 0; i < 4; i++) {
		memset(page, i == 1 ? 'x' : 'a' + i, sizeof(page));
		assert_int_equal(pread(fd, got, sizeof(got), (off_t)offsets[i]), sizeof(got));
		assert_memory_equal(got, page, STEP_CODE_PAGE + (i == 1 ? 3 : STEP_CODE_TAIL));
		assert_true(i != 1 || got[STEP_CODE_PAGE + 3] == 0);
	}
	/* the end of the file goes, too */
	step_code_begin_segment(&c, 9);
	step_code_use(&c, offsets[2]);
	step_code_drop_before(&c, 9);
	assert_true(step_code_size(&c) == offsets[3] &&
		    step_code_room(&c) == STEP_CODE_MAX_KEPT - 1);
	while (step_code_room(&c) > 0)
		assert_int_equal(step_code_add(&c, page, page, 0, &last), 0);
	assert_int_equal(step_code_add(&c, page, page, 0, &last), -EFBIG);
	step_code_drop_before(&c, 10);
	assert_true(step_code_size(&c) == 0);
	step_code_fini(&c);
}

static void test_a_child_has_the_same(void **state)
{
	struct fixture *f = *state;
	_cleanup_(address_space_freep) struct address_space *child = NULL;
	uint64_t epoch;

	assert_int_equal(address_space_reread(f->space, getpid()), 0);
	assert_int_equal(address_space_copy(f->space, 12345, &child), 0);
	epoch = address_space_epoch(child);
	assert_int_equal(address_space_reread(child, getpid()), 0);
	assert_true(address_space_epoch(child) == epoch);
	/* after an exec everything is new */
	address_space_clear(child);
	assert_int_equal(address_space_reread(child, getpid()), 0);
	assert_true(address_space_epoch(child) > epoch);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_code_in_a_file, setup, teardown),
		cmocka_unit_test_setup_teardown(test_nothing_there, setup, teardown),
		cmocka_unit_test_setup_teardown(test_code_that_changes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_file_that_is_no_more, setup, teardown),
		cmocka_unit_test(test_code_in_memory),
		cmocka_unit_test_setup_teardown(test_recorded_again, setup, teardown),
		cmocka_unit_test_setup_teardown(test_a_child_has_the_same, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
