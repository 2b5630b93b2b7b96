// SPDX-License-Identifier: Apache-2.0
/*
 * The code of processes at each time: exec, fork, libraries that take each other's place, mappings cut in two, code
 * that is missing, and instructions that lie in two chunks or two mappings.
 */
#include <elf.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/calls/callstack.h"
#include "decode/object/image.h"
#include "decode/perf/data.h"
#include "decode/perf/event.h"
#include "decode/pt/code.h"
#include "tests/unit/decode/perf/perfdata-make.h"

#define CODE_OFFSET 0x1000u
#define CODE_BYTES 0x30000u

struct file {
	struct make make;
	int fd;
	struct budget budget;
	struct perfdata *pd;
	struct images *images;
	struct ptcode *code;
};

static struct file f;

/* A file whose code at offset n is the byte `mark` plus n / 4096. */
static int code_file(uint8_t mark)
{
	const Elf64_Ehdr eh = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB, EV_CURRENT},
		.e_type = ET_DYN,
		.e_machine = EM_X86_64,
		.e_version = EV_CURRENT,
		.e_phoff = sizeof(eh),
		.e_ehsize = sizeof(eh),
		.e_phentsize = sizeof(Elf64_Phdr),
		.e_phnum = 1};
	const Elf64_Phdr ph = {.p_type = PT_LOAD,
		.p_flags = PF_R | PF_X,
		.p_offset = CODE_OFFSET,
		.p_vaddr = CODE_OFFSET,
		.p_filesz = CODE_BYTES,
		.p_memsz = CODE_BYTES,
		.p_align = 4096};
	uint8_t *bytes = malloc(CODE_BYTES);
	int fd = io_memfd("code");

	assert_true(fd >= 0 && bytes);
	for (size_t i = 0; i < CODE_BYTES; i++)
		bytes[i] = (uint8_t)(mark + i / 4096);
	assert_int_equal(io_pwrite_all(fd, &eh, sizeof(eh), 0), 0);
	assert_int_equal(io_pwrite_all(fd, &ph, sizeof(ph), sizeof(eh)), 0);
	assert_int_equal(io_pwrite_all(fd, bytes, CODE_BYTES, CODE_OFFSET), 0);
	free(bytes);
	return fd;
}

static int ask(void *arg, const struct file_request *request, struct file_answer *ret, int *ret_fd)
{
	(void)arg;
	*ret = (struct file_answer){0};
	/* /A, /B ...: the mark is the letter */
	if (strlen(request->path) != 2)
		return 0;
	*ret_fd = code_file((uint8_t)request->path[1]);
	return 1;
}

static void setup(void)
{
	memset(&f, 0, sizeof(f));
	f.budget.max = 64u << 20;
	make_init(&f.make);
}

static void map(uint64_t time, uint32_t pid, uint64_t addr, uint64_t len, uint64_t into, const char *path)
{
	make_mmap(&f.make, time, pid, addr, len, CODE_OFFSET + into, (uint64_t)path[1], path);
}

static int record(void *arg, const struct perfevent *ev)
{
	ptcode_record(arg, ev);
	return 0;
}

static void finish(void)
{
	static const struct file_requester files = {ask, NULL};

	f.fd = make_file(&f.make);
	assert_int_equal(perfdata_open(f.fd, &f.budget, &f.pd), 0);
	assert_int_equal(perfdata_scan(f.pd, NULL, NULL), 0);
	assert_int_equal(images_new(&files, &f.budget, &f.images), 0);
	assert_int_equal(ptcode_new(f.images, &f.budget, &f.code), 0);
	assert_int_equal(perfdata_walk(f.pd, record, f.code), 0);
	assert_int_equal(ptcode_open(f.code), 0);
}

static void teardown(void)
{
	ptcode_free(f.code);
	images_free(f.images);
	perfdata_free(f.pd);
	(void)close(f.fd);
}

/* The byte of code there and then; 0: none. */
static uint8_t at(uint32_t pid, uint64_t time, uint64_t ip)
{
	const struct ptcode_version *v = ptcode_at(f.code, pid, time);
	const uint8_t *bytes;
	uint8_t buffer[15];

	if (v && ptcode_read(v, ip, &bytes, buffer, 1))
		return *bytes;
	if (v)
		ptcode_missing(v, ip);
	return 0;
}

static uint64_t loss(const char *name)
{
	_cleanup_json_ struct json_object *losses = json_object_new_object();
	struct json_object *v;

	ptcode_report(f.code, losses);
	return json_object_object_get_ex(losses, name, &v) ? json_object_get_uint64(v) : 0;
}

static void test_libraries_in_turn(void **state)
{
	bool first;

	(void)state;
	setup();
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	map(20, 1, 0x20000, 0x4000, 0, "/B");
	map(30, 1, 0x20000, 0x2000, 0, "/C"); /* B was unmapped before; nothing tells of that */
	map(40, 1, 0x20000, 0x4000, 0x1000, "/C");
	finish();
	/* what was not replaced is there from the begin on: it may have been mapped before the recording */
	for (uint64_t t = 0; t < 50; t += 5)
		assert_int_equal(at(1, t, 0x10000), 'A');
	assert_int_equal(at(1, 0, 0x20000), 'B');
	assert_int_equal(at(1, 29, 0x20000), 'B');
	assert_int_equal(at(1, 30, 0x20000), 'C');
	assert_int_equal(at(1, 30, 0x22000), 'B' + 2);
	assert_int_equal(at(1, 40, 0x20000), 'C' + 1);
	assert_int_equal(at(1, 40, 0x22000), 'C' + 3);
	assert_int_equal(at(1, UINT64_MAX, 0x20000), 'C' + 1);
	assert_int_equal(loss("code_unmapped"), 0);
	assert_int_equal(at(1, 40, 0x30000), 0);
	assert_int_equal(at(2, 40, 0x20000), 0);
	assert_int_equal(loss("code_unmapped"), 1);
	assert_true(ptcode_is_mapped(ptcode_at(f.code, 1, 0), 0x23fff));
	assert_false(ptcode_is_mapped(ptcode_at(f.code, 1, 0), 0x24000));
	assert_false(ptcode_function(ptcode_at(f.code, 1, 0), 0x20000, &first)->known);
	teardown();
}

static void test_exec_and_fork(void **state)
{
	(void)state;
	setup();
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	make_fork(&f.make, 20, 2, 2, 1, 1);
	/* a thread is no process */
	make_fork(&f.make, 21, 1, 5, 1, 1);
	map(25, 1, 0x10000, 0x4000, 0, "/B");
	make_comm(&f.make, 30, 2, 2, "two", 1);
	map(31, 2, 0x10000, 0x4000, 0, "/C");
	make_fork(&f.make, 40, 3, 3, 2, 2);
	make_comm(&f.make, 50, 2, 2, "three", 1);
	map(51, 2, 0x50000, 0x4000, 0, "/D");
	finish();
	assert_int_equal(at(1, 24, 0x10000), 'A');
	assert_int_equal(at(1, 25, 0x10000), 'B');
	assert_int_equal(at(2, 20, 0x10000), 'A');
	assert_int_equal(at(2, 29, 0x10000), 'A'); /* what its parent did later is not its */
	assert_int_equal(at(2, 30, 0x10000), 'C');
	assert_int_equal(at(3, 40, 0x10000), 'C');
	assert_int_equal(at(3, 60, 0x10000), 'C');
	assert_int_equal(at(2, 50, 0x10000), 0);
	assert_int_equal(at(2, 50, 0x50000), 'D');
	assert_int_equal(at(2, 49, 0x50000), 0);
	teardown();
}

/* An id is given again. */
static void test_pid_again(void **state)
{
	(void)state;
	setup();
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	make_fork(&f.make, 20, 2, 2, 1, 1);
	make_comm(&f.make, 21, 2, 2, "b", 1);
	map(22, 2, 0x10000, 0x4000, 0, "/B");
	make_exit(&f.make, 25, 2, 2);
	make_fork(&f.make, 30, 2, 2, 1, 1);
	finish();
	assert_int_equal(at(2, 25, 0x10000), 'B');
	assert_int_equal(at(2, 30, 0x10000), 'A');
	teardown();
}

static void test_edges(void **state)
{
	const struct ptcode_version *v;
	const uint8_t *bytes;
	uint8_t buffer[15];

	(void)state;
	setup();
	map(10, 1, 0x100000, CODE_BYTES, 0, "/A");
	map(11, 1, 0x100000 + CODE_BYTES, 0x1000, 0x2000, "/B");
	map(12, 1, 0x200000, 0x1000, 0, "/missing");
	map(13, 1, 0x300000, 0x1000, CODE_BYTES - 0x800, "/A"); /* the file's code ends in its middle */
	finish();
	v = ptcode_at(f.code, 1, 20);
	/* in the middle of a chunk much can be read, without a copy */
	assert_true(ptcode_read(v, 0x100800, &bytes, buffer, 15) >= 15 && bytes != buffer);
	/* chunks are of the file: the first one ends at offset 0x10000 */
	assert_int_equal(ptcode_read(v, 0x10effa, &bytes, buffer, 15), 15);
	assert_ptr_equal(bytes, buffer);
	assert_int_equal(bytes[5], 'A' + 14);
	assert_int_equal(bytes[6], 'A' + 15);
	/* from one mapping into the next */
	assert_int_equal(ptcode_read(v, 0x100000 + CODE_BYTES - 3, &bytes, buffer, 15), 15);
	assert_int_equal(bytes[2], (uint8_t)('A' + CODE_BYTES / 4096 - 1));
	assert_int_equal(bytes[3], 'B' + 2);
	/* the end of what is mapped, and of the file */
	assert_int_equal(ptcode_read(v, 0x100000 + CODE_BYTES + 0xffd, &bytes, buffer, 15), 3);
	assert_int_equal(ptcode_read(v, 0x3007ff, &bytes, buffer, 15), 1);
	assert_int_equal(loss("code_unmapped") + loss("code_without_image"), 0);
	assert_int_equal(ptcode_read(v, 0x300800, &bytes, buffer, 15), 0);
	assert_int_equal(ptcode_read(v, 0x200000, &bytes, buffer, 15), 0);
	/* it is counted when somebody needs it */
	assert_int_equal(loss("code_without_image"), 0);
	ptcode_missing(v, 0x300800);
	ptcode_missing(v, 0x200000);
	assert_int_equal(loss("code_without_image"), 2);
	assert_true(ptcode_is_mapped(v, 0x200000));
	teardown();
}

/* Very many versions: bounded by the budget, and what there is stays right. */
static void test_many(void **state)
{
	char path[3] = "/A";

	(void)state;
	setup();
	f.budget.max = 2u << 20;
	for (uint64_t i = 0; i < 5000; i++) {
		path[1] = (char)('A' + i % 20);
		map(10 + i, 1, 0x10000, 0x1000, 0, path);
	}
	finish();
	assert_int_equal(at(1, 10, 0x10000), 'A');
	assert_int_equal(at(1, 110, 0x10000), 'A');
	assert_int_equal(at(1, 111, 0x10000), 'B');
	assert_true(f.budget.used <= f.budget.max);
	teardown();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_libraries_in_turn),
		cmocka_unit_test(test_exec_and_fork),
		cmocka_unit_test(test_pid_again),
		cmocka_unit_test(test_edges),
		cmocka_unit_test(test_many),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
