// SPDX-License-Identifier: Apache-2.0
#include "tests/fuzz/decode/object/exercise-elf.h"

#include <fcntl.h>
#include <linux/perf_event.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "decode/dwarf/source.h"
#include "decode/object/demangle.h"
#include "decode/object/extents.h"
#include "decode/object/image.h"
#include "decode/object/lsda.h"
#include "decode/object/probe.h"
#include "decode/object/cfi.h"
#include "decode/stack/resolve.h"
#include "decode/stack/unwind.h"

/*
 * libelf 0.188 itself loses a converted section's first copy where a broken header makes it read
 * the section twice; the decoder ends after one job.
 */
const char *__lsan_default_suppressions(void);
const char *__lsan_default_suppressions(void)
{
	return "leak:libelf";
}

#define BASE 0x10000000u
#define SPAN 0x100000u
#define STACK_WORDS 512u

/* Object and debug file are the same broken file. */
static int ask(
	void *arg, const struct file_request *request, struct file_answer *ret_file, int *ret_fd)
{
	int fd;

	if (request->kind == FILE_REQUEST_PERFMAP)
		return 0;
	fd = fcntl(*(int *)arg, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return 0;
	*ret_file = (struct file_answer){.found = true};
	*ret_fd = fd;
	return 1;
}

static void walk_names(struct image *img, struct exercise_result *sum)
{
	char name[256];

	for (size_t i = 0; i < img->symbols.n && i < 200; i++) {
		const struct symbol *s = &img->symbols.v[i];

		if (!symbols_find(&img->symbols, s->addr))
			abort(); /* each symbol lies at least in itself, or in one that encloses it
				  */
		(void)demangle_name(s->name, s->name_len, name, sizeof(name));
		sum->symbols++;
	}
}

static void walk_rows(struct image *img, struct budget *budget, struct exercise_result *sum)
{
	_cleanup_(cfi_freep) struct cfi *cfi = NULL;
	_cleanup_(lsda_freep) struct lsda *lsda = NULL;
	_cleanup_(extents_freep) struct extents *extents = NULL;
	uint8_t code[64];

	if (extents_new(budget, &extents) < 0)
		abort();
	extents_add_elf(extents, img->elf);
	if (lsda_new(img->elf, extents, budget, &lsda) == 0 && lsda)
		(void)lsda_has(lsda, 0, 0);
	if (cfi_new(img->elf, budget, &cfi) < 0)
		return;
	for (uint32_t l = 0; l < img->n_loads; l++) {
		uint64_t step = img->loads[l].size / 40 + 1;

		for (uint64_t at = 0, n = 0; at < img->loads[l].size && n < 40; at += step, n++) {
			const struct cfi_row *row = cfi_row(cfi, img->loads[l].vaddr + at);

			sum->rows += row && row->known;
			sum->extents += extents_find(extents, img->loads[l].vaddr + at) != NULL;
			(void)image_read(img, img->loads[l].vaddr + at, code, sizeof(code));
		}
	}
}

/* What the debug information says of addresses all over the code. */
static void walk_source(struct images *images, struct image *img, struct stacktab *st,
			struct budget *budget, struct exercise_result *sum)
{
	_cleanup_(source_freep) struct source *source = NULL;

	if (source_new(images, budget, &source) < 0)
		abort();
	for (uint32_t l = 0; l < img->n_loads; l++) {
		uint64_t step = img->loads[l].size / 60 + 1;

		for (uint64_t at = 0, n = 0; at < img->loads[l].size && n < 60; at += step, n++) {
			const uint64_t vaddr = img->loads[l].vaddr + at;
			const struct dwarf_scope *scope;
			uint32_t line;
			uint64_t end;

			sum->places += source_function(source, img, vaddr, &line) != NULL;
			sum->places += source_place(source, img, vaddr) != NULL;
			scope = source_inlined(source, img, vaddr, &end);
			if (end <= vaddr)
				abort(); /* whoever goes along would stand still */
			for (uint32_t depth = 0; scope && scope->outer;
			     scope = scope->outer, depth++) {
				if (depth > DWARF_MAX_INLINED)
					abort();
				(void)source_inlined_frame(source, st, img, scope);
				(void)source_inlined_place(source, img, scope);
				sum->places++;
			}
		}
	}
}

/* Places behind calls, so that a walk finds return addresses; any places where there are none. */
static size_t find_returns(const struct image *img, uint64_t *addrs, size_t max)
{
	static uint8_t code[0x4000];
	size_t n = 0;

	for (uint32_t l = 0; l < img->n_loads && n < max; l++) {
		size_t len = img->loads[l].exec
				     ? image_read(img, img->loads[l].vaddr, code, sizeof(code))
				     : 0;

		for (size_t i = 0; i + 5 <= len && n < max; i++)
			if (code[i] == 0xe8)
				addrs[n++] = BASE + img->loads[l].off + i + 5;
	}
	while (n < 8)
		addrs[n] = BASE + 0x1000 + n * 16, n++;
	return n;
}

/* A stack full of addresses in the image, and registers that point to it. */
static void walk_stack(struct resolver *r, struct code *code, const struct image *img,
	struct budget *budget, struct exercise_result *sum)
{
	static uint32_t frames[UNWIND_MAX_FRAMES], inlined[UNWIND_MAX_FRAMES];
	uint64_t stack[STACK_WORDS], regs[24], addrs[64];
	struct perfevent_sample s = {.regs_abi = PERF_SAMPLE_REGS_ABI_64,
		.regs_mask = (1u << 24) - 1,
		.regs = (const uint8_t *)regs,
		.stack = (const uint8_t *)stack,
		.stack_size = sizeof(stack)};
	size_t n_addrs = find_returns(img, addrs, ARRAY_SIZE(addrs));
	uint64_t sp = 0x7fff0000;
	uint32_t n;

	for (unsigned i = 0; i < STACK_WORDS; i++)
		stack[i] = addrs[i * 7 % n_addrs];
	for (unsigned i = 0; i < 24; i++)
		regs[i] = sp + i * 16;
	for (unsigned i = 0; i < 16; i++) {
		regs[7] = sp;
		regs[8] = addrs[i % n_addrs] - 5;
		(void)unwind_sample(r, code, &s, budget, frames, inlined, NULL, &n);
		sum->frames += n;
	}
}

void exercise_elf(int fd, struct exercise_result *sum)
{
	const struct file_requester files = {.ask = ask, .arg = &fd};
	const struct image_key key = {.ino = 1, .path = "/broken", .path_len = 7, .pid = 1};
	struct budget budget = {.max = 64u << 20};
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	_cleanup_(images_freep) struct images *images = NULL;
	_cleanup_(resolver_freep) struct resolver *r = NULL;
	_cleanup_(address_space_unrefp) struct address_space *space = NULL;
	struct code code = {.serial = 1, .pid = 1};
	struct mapping map = {.start = BASE, .end = BASE + SPAN};
	struct probe_answer probe = {0};
	struct image *img;

	if (stacktab_new(1 << 20, &st) < 0 || images_new(&files, &budget, &images) < 0 ||
		resolver_new(st, images, &files, true, &budget, &r) < 0 ||
		address_space_new(&budget, &space) < 0)
		abort();
	img = images_get(images, &key);
	map.image = img;
	if (!img || address_space_set(&space, &map) != 0 || image_open(images, img) < 0)
		abort();
	code.space = space;
	if (img->state == IMAGE_READY) {
		sum->ready++;
		if (image_load_symbols(images, img) < 0)
			abort();
		walk_names(img, sum);
		walk_rows(img, &budget, sum);
		walk_stack(r, &code, img, &budget, sum);
		walk_source(images, img, st, &budget, sum);
	}
	if (probe_file(fd, &budget, &probe) == 0)
		sum->judged += probe.functions;
	code_fini(&code);
}
