/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The objects that addresses lie in: executables, libraries, the vDSO, and memory that is no file
 * at all. One image for each (device, inode, path) of the records, opened (through the parent)
 * when the first address in it is asked for, then kept until the end.
 *
 * An image that is not the file that ran is never used: build ids are compared where the recording
 * has them, else the parent's word on device and inode counts, and whether it was written to since
 * (overwritten.h). What could not be had is counted and named in the losses.
 *
 * Files are read with pread, never mapped: they may be cut short under our hands, and reading
 * cannot disturb a probe in them.
 */
#pragma once

#include <gelf.h>
#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/clockmap.h"
#include "decode/base/file_request.h"
#include "decode/object/gopclntab.h"
#include "decode/object/symbols.h"

#define IMAGE_MAX_LOADS 65535u
#define IMAGES_MAX 65536u
/* Kept open at once, with their debug files: well below the parent's limit of descriptors. */
#define IMAGES_MAX_OPEN 3000u

enum image_kind {
	IMAGE_FILE,
	IMAGE_VDSO,
	IMAGE_ANON,  /* memory without a file */
	IMAGE_OTHER, /* [stack], [heap], [vsyscall] ... */
	IMAGE_KERNEL, /* its code, copied out of its memory: no file of anybody */
};

enum image_state {
	IMAGE_NEW,
	IMAGE_READY,
	IMAGE_MISSING, /* nobody has the file */
	IMAGE_CHANGED, /* there is one, but not the one that ran */
	/* an ELF file that cannot be read, or no ELF file where the recording has a build id */
	IMAGE_BROKEN,
};

struct address_space;
struct cfi;
struct dwarf;
struct extents;
struct kallsyms;

struct image {
	uint32_t id; /* small, unique */
	enum image_kind kind;
	enum image_state state;
	char *path; /* as mapped; bytes */
	char *text; /* the same as text, for people */
	uint32_t maj, min;
	uint64_t ino;
	uint8_t build_id[20]; /* expected; size 0: not known */
	uint8_t build_id_size;
	uint32_t pid; /* the first process that had it mapped; who to ask for it */
	uint64_t mapped; /* when, by the recording's clock; 0: not known */

	/* from here on only when READY */
	int fd; /* -1: in memory */
	const uint8_t *mem;
	size_t mem_size;
	bool x86_64;
	/* no ELF file: the bytes of code, by their offset, which is their address. `elf` is NULL */
	bool flat;
	Elf *elf, *debug_elf, *mini_elf;
	int debug_fd;
	bool debug_tried;
	void *mini; /* .gnu_debugdata, unpacked */
	size_t mini_size;
	struct image_load {
		uint64_t off, size; /* in the file */
		uint64_t vaddr;
		bool exec;
		uint64_t end; /* the last one in the file of this and those before */
	} *loads; /* by their offsets */
	uint32_t n_loads;
	uint32_t *by_vaddr; /* indexes; NULL: the same order */
	uint64_t entry; /* where the kernel begins a program in it; 0: nowhere */
	struct symbols symbols;
	bool symbols_loaded;
	struct gopclntab go; /* of a Go program; made at first use */
	bool go_tried;
	struct cfi *cfi; /* stack/unwind.c's; made at first use */
	bool cfi_tried;
	struct extents *extents; /* stack/resolve.c's; made at first use */
	struct dwarf *dwarf; /* NULL: there is no debug information */
	bool dwarf_tried, dwarf_failed;
	struct dwarf *sup; /* what it shares with others */
	Elf *sup_elf;
	int sup_fd;
	uint64_t hits; /* addresses looked up in it while it was not READY */
};

struct image_key {
	uint32_t maj, min;
	uint64_t ino;
	const uint8_t *build_id;
	uint8_t build_id_size;
	const char *path;
	size_t path_len;
	uint32_t pid;
	uint64_t time; /* of the record; no part of what it is known by */
};

struct images_stats {
	uint64_t ready, missing, changed, broken, debug_found, debug_wrong, dwarf_found;
};

struct images;

int images_new(const struct file_requester *files, struct budget *budget,
	       struct images **ret) _must_check_;
struct images *images_free(struct images *t);
DEFINE_CLEANUP(struct images *, images_free)

/*
 * The recording's clock, by which it is known when a file was mapped. Borrowed; without it nothing
 * is known of that.
 */
void images_set_clocks(struct images *t, const struct clock_map *clocks);

/* The code of "[vdso]": a file (taken over), or else this machine's own where the kernel is the
 * same. */
void images_set_vdso_fd(struct images *t, int fd);
void images_use_own_vdso(struct images *t);

/*
 * The kernel's code: an ELF file (taken over) with its segments where it ran, whose functions
 * `kallsyms` names (borrowed; NULL: nobody does). *ret: where it lies. 0, or -errno; -ENOEXEC: it
 * is none.
 */
int images_map_kernel(struct images *t, int fd, const struct kallsyms *kallsyms,
		      struct address_space **ret) _must_check_;

/* What the recording says about build ids by path (perf's table). */
void images_expect(struct images *t, const char *path, const uint8_t *build_id, uint8_t size);

/* The image for a mapping; NULL when there is no memory for more. Lives as long as `t`. */
struct image *images_get(struct images *t, const struct image_key *key);

/* All of them, in the order of their ids. */
uint32_t images_count(const struct images *t);
struct image *images_at(const struct images *t, uint32_t i);

/* Opens the image where that was not tried yet. 0 (see state), or the negative errno of files->ask.
 */
int image_open(struct images *t, struct image *img) _must_check_;

/*
 * Has the parent told its build id, where nobody needed to open it. It stays as it was. As
 * image_open().
 */
int image_identify(struct images *t, const struct image *img) _must_check_;

/* Reads its symbols where that was not done yet; as image_open(). The image must be READY. */
int image_load_symbols(struct images *t, struct image *img) _must_check_;
/*
 * The table of functions of a Go program; its `data` is NULL where it has none. The image is READY.
 */
const struct gopclntab *image_go(struct image *img);

/*
 * Its debug information, from itself or its debug file, where that was not looked for yet; as
 * image_open(). The image must be READY.
 */
int image_load_dwarf(struct images *t, struct image *img) _must_check_;

/* An offset in the file as the ELF's own address. */
bool image_vaddr(const struct image *img, uint64_t off, uint64_t *ret);

/* Bytes at an ELF address that come from the file; returns how many there are (0..len). */
size_t image_read(const struct image *img, uint64_t vaddr, void *buf, size_t len);

const struct images_stats *images_stats(const struct images *t);

/* Adds "missing", "changed" and "broken": the paths (some) of images that were needed in vain. */
void images_report(const struct images *t, struct json_object *losses);

/*
 * Where debug information was asked for: those that have none ("debug_info_missing"), and what of
 * it was no good.
 */
void images_report_dwarf(const struct images *t, struct json_object *stats,
			 struct json_object *losses);
