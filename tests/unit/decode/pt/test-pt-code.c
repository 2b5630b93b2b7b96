// SPDX-License-Identifier: Apache-2.0
/*
 * The bytes of code: files side by side, code that is missing, and instructions that lie in two
 * chunks or two mappings.
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
#include "decode/object/process_maps.h"
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
	struct process_maps *maps;
	struct ptcode *code;
};

static struct file f;

/* A file whose code at offset n is the byte `mark` plus n / 4096. */
static int code_file(uint8_t mark)
{
	const Elf64_Ehdr eh = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64,
					   ELFDATA2LSB, EV_CURRENT},
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

static void map(uint64_t time, uint32_t pid, uint64_t addr, uint64_t len, uint64_t into,
		const char *path)
{
	make_mmap(&f.make, time, pid, addr, len, CODE_OFFSET + into, (uint64_t)path[1], path);
}

static int record(void *arg, const struct perfevent *ev)
{
	process_maps_record(arg, ev);
	return 0;
}

static void finish(void)
{
	static const struct file_requester files = {ask, NULL};

	f.fd = make_file(&f.make);
	assert_int_equal(perfdata_open(f.fd, &f.budget, &f.pd), 0);
	assert_int_equal(perfdata_scan(f.pd, NULL, NULL), 0);
	assert_int_equal(images_new(&files, &f.budget, &f.images), 0);
	assert_int_equal(process_maps_new(f.images, &f.budget, true, &f.maps), 0);
	assert_int_equal(perfdata_walk(f.pd, record, f.maps), 0);
	assert_int_equal(ptcode_new(f.images, &f.budget, &f.code), 0);
}

static void teardown(void)
{
	ptcode_free(f.code);
	process_maps_free(f.maps);
	images_free(f.images);
	perfdata_free(f.pd);
	(void)close(f.fd);
}

/* The byte of code there and then; 0: none. */
static uint8_t at(uint32_t pid, uint64_t time, uint64_t ip)
{
	const struct address_space *s = process_maps_at(f.maps, pid, time);
	const uint8_t *bytes;
	uint8_t buffer[15];

	if (s && ptcode_read(f.code, s, ip, &bytes, buffer, 1))
		return *bytes;
	if (s)
		ptcode_missing(f.code, s, ip);
	return 0;
}

static uint64_t loss(const char *name)
{
	_cleanup_json_ struct json_object *losses = json_object_new_object();
	struct json_object *v;

	ptcode_report(f.code, losses);
	return json_object_object_get_ex(losses, name, &v) ? json_object_get_uint64(v) : 0;
}

static void test_files(void **state)
{
	bool first;

	(void)state;
	setup();
	map(10, 1, 0x10000, 0x4000, 0, "/A");
	map(20, 1, 0x20000, 0x4000, 0x1000, "/B");
	map(30, 1, 0x20000, 0x2000, 0, "/C");
	finish();
	assert_int_equal(at(1, 0, 0x10000), 'A');
	assert_int_equal(at(1, 29, 0x20000), 'B' + 1);
	assert_int_equal(at(1, 30, 0x20000), 'C');
	assert_int_equal(at(1, 30, 0x23000), 'B' + 4);
	assert_int_equal(loss("code_unmapped"), 0);
	assert_int_equal(at(1, 40, 0x30000), 0);
	assert_int_equal(at(2, 40, 0x20000), 0);
	assert_int_equal(loss("code_unmapped"), 1);
	assert_false(
		ptcode_function(f.code, process_maps_at(f.maps, 1, 0), 0x20000, &first)->known);
	teardown();
}

static void test_edges(void **state)
{
	const struct address_space *s;
	const uint8_t *bytes;
	uint8_t buffer[15];

	(void)state;
	setup();
	map(10, 1, 0x100000, CODE_BYTES, 0, "/A");
	map(11, 1, 0x100000 + CODE_BYTES, 0x1000, 0x2000, "/B");
	map(12, 1, 0x200000, 0x1000, 0, "/missing");
	/* the file's code ends in its middle */
	map(13, 1, 0x300000, 0x1000, CODE_BYTES - 0x800, "/A");
	finish();
	s = process_maps_at(f.maps, 1, 20);
	/* in the middle of a chunk much can be read, without a copy */
	assert_true(ptcode_read(f.code, s, 0x100800, &bytes, buffer, 15) >= 15 && bytes != buffer);
	/* chunks are of the file: the first one ends at offset 0x10000 */
	assert_int_equal(ptcode_read(f.code, s, 0x10effa, &bytes, buffer, 15), 15);
	assert_ptr_equal(bytes, buffer);
	assert_int_equal(bytes[5], 'A' + 14);
	assert_int_equal(bytes[6], 'A' + 15);
	/* from one mapping into the next */
	assert_int_equal(ptcode_read(f.code, s, 0x100000 + CODE_BYTES - 3, &bytes, buffer, 15), 15);
	assert_int_equal(bytes[2], (uint8_t)('A' + CODE_BYTES / 4096 - 1));
	assert_int_equal(bytes[3], 'B' + 2);
	/* the end of what is mapped, and of the file */
	assert_int_equal(ptcode_read(f.code, s, 0x100000 + CODE_BYTES + 0xffd, &bytes, buffer, 15),
			 3);
	assert_int_equal(ptcode_read(f.code, s, 0x3007ff, &bytes, buffer, 15), 1);
	assert_int_equal(loss("code_unmapped") + loss("code_without_image"), 0);
	assert_int_equal(ptcode_read(f.code, s, 0x300800, &bytes, buffer, 15), 0);
	assert_int_equal(ptcode_read(f.code, s, 0x200000, &bytes, buffer, 15), 0);
	/* it is counted when somebody needs it */
	assert_int_equal(loss("code_without_image"), 0);
	ptcode_missing(f.code, s, 0x300800);
	ptcode_missing(f.code, s, 0x200000);
	assert_int_equal(loss("code_without_image"), 2);
	teardown();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_files),
		cmocka_unit_test(test_edges),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
