// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/image_internal.h"

#include <elfutils/libdwelf.h>
#include <errno.h>
#include <fcntl.h>
#include <lzma.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>

#include "common/base/address.h"
#include "common/base/io.h"
#include "decode/object/address_space.h"
#include "decode/object/extents.h"
#include "decode/object/cfi.h"
#include "decode/object/kallsyms.h"
#include "decode/object/overwritten.h"

#define MINI_MAX (128u << 20)
#define MINI_MEMLIMIT (80u << 20)
#define VDSO_MAX 65536u
#define PERF_BUILD_ID_MAX 20u /* bytes that a record or perf's table holds */

static int by_offset(const void *a, const void *b)
{
	const struct image_load *x = a, *y = b;

	return x->off != y->off ? (x->off > y->off) - (x->off < y->off)
				: (x->vaddr > y->vaddr) - (x->vaddr < y->vaddr);
}

static int by_vaddr(const void *a, const void *b, void *arg)
{
	const struct image_load *loads = arg;
	const uint64_t x = loads[*(const uint32_t *)a].vaddr, y = loads[*(const uint32_t *)b].vaddr;

	return (x > y) - (x < y);
}

static bool add_load(struct image *img, uint64_t off, uint64_t size, uint64_t vaddr, bool exec)
{
	struct image_load *l = &img->loads[img->n_loads];

	if (__builtin_add_overflow(off, size, &l->end) ||
	    __builtin_add_overflow(vaddr, size, &l->end) || off > INT64_MAX - size)
		return false;
	*l = (struct image_load){
		.off = off, .size = size, .vaddr = vaddr, .exec = exec, .end = off + size};
	img->n_loads++;
	return true;
}

/*
 * Sorts them; an object has its segments in the order of their addresses and of their offsets, a
 * dump of memory perhaps not.
 */
static bool sort_loads(struct image *img)
{
	bool same = true;

	qsort(img->loads, img->n_loads, sizeof(*img->loads), by_offset);
	for (uint32_t i = 1; i < img->n_loads; i++) {
		if (img->loads[i].end < img->loads[i - 1].end)
			img->loads[i].end = img->loads[i - 1].end;
		same &= img->loads[i].vaddr >= img->loads[i - 1].vaddr;
	}
	if (same)
		return true;
	img->by_vaddr = calloc(img->n_loads, sizeof(*img->by_vaddr));
	if (!img->by_vaddr)
		return false;
	for (uint32_t i = 0; i < img->n_loads; i++)
		img->by_vaddr[i] = i;
	qsort_r(img->by_vaddr, img->n_loads, sizeof(*img->by_vaddr), by_vaddr, img->loads);
	return true;
}

/* Takes the memory for so many, from the budget of all images, which live as long as that. */
static bool reserve_loads(struct images *t, struct image *img, size_t n)
{
	if (n == 0 || !budget_take(t->budget, n * (sizeof(*img->loads) + sizeof(*img->by_vaddr))))
		return false;
	img->loads = calloc(n, sizeof(*img->loads));
	return img->loads != NULL;
}

static bool read_loads(struct images *t, struct image *img)
{
	size_t n;

	if (elf_getphdrnum(img->elf, &n) < 0)
		return false;
	if (n > IMAGE_MAX_LOADS)
		n = IMAGE_MAX_LOADS;
	if (!reserve_loads(t, img, n))
		return false;
	for (size_t i = 0; i < n; i++) {
		GElf_Phdr ph;

		if (gelf_getphdr(img->elf, (int)i, &ph) && ph.p_type == PT_LOAD && ph.p_filesz)
			(void)add_load(img, ph.p_offset, ph.p_filesz, ph.p_vaddr,
				       ph.p_flags & PF_X);
	}
	return img->n_loads > 0 && sort_loads(img);
}

bool image_vaddr(const struct image *img, uint64_t off, uint64_t *ret)
{
	const struct image_load *best = NULL;
	uint32_t low = 0, high = img->n_loads;

	while (low < high) { /* the first that begins later */
		const uint32_t mid = low + (high - low) / 2;

		if (img->loads[mid].off <= off)
			low = mid + 1;
		else
			high = mid;
	}
	/*
	 * Pages at the seam of two segments are mapped twice: the executable one is meant, or else
	 * the first.
	 */
	for (uint32_t i = low; i > 0 && img->loads[i - 1].end > off; i--) {
		const struct image_load *l = &img->loads[i - 1];

		if (off - l->off < l->size && (!best || l->exec || !best->exec))
			best = l;
	}
	if (!best)
		return false;
	*ret = off - best->off + best->vaddr;
	return true;
}

/* The segment with the address, NULL: none has. Segments do not overlap there. */
static const struct image_load *load_at(const struct image *img, uint64_t vaddr)
{
	const struct image_load *l = NULL;
	uint32_t low = 0, high = img->n_loads;

	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;
		const struct image_load *m = &img->loads[img->by_vaddr ? img->by_vaddr[mid] : mid];

		if (m->vaddr <= vaddr) {
			l = m;
			low = mid + 1;
		} else {
			high = mid;
		}
	}
	return l && vaddr - l->vaddr < l->size ? l : NULL;
}

size_t image_read(const struct image *img, uint64_t vaddr, void *buf, size_t len)
{
	const struct image_load *l = load_at(img, vaddr);
	const uint64_t in = l ? vaddr - l->vaddr : 0;
	uint64_t off;
	ssize_t n;

	if (!l)
		return 0;
	off = l->off + in;
	if (len > l->size - in)
		len = (size_t)(l->size - in);
	if (img->mem) {
		if (off >= img->mem_size)
			return 0;
		if (len > img->mem_size - off)
			len = img->mem_size - (size_t)off;
		memcpy(buf, img->mem + off, len);
		return len;
	}
	n = io_pread_full(img->fd, buf, len, (off_t)off);
	return n < 0 ? 0 : (size_t)n;
}

/* The size of an ELF image in memory, by its own headers; for this process's vDSO, which is no
 * input. */
static size_t own_vdso_size(const uint8_t *p)
{
	Elf64_Ehdr eh;
	size_t size;

	memcpy(&eh, p, sizeof(eh));
	size = eh.e_shoff + (size_t)eh.e_shnum * eh.e_shentsize;
	return size <= VDSO_MAX ? size : 0;
}

static void image_fail(struct images *t, struct image *img, enum image_state state)
{
	img->state = state;
	if (state == IMAGE_MISSING)
		t->stats.missing++;
	else if (state == IMAGE_CHANGED)
		t->stats.changed++;
	else
		t->stats.broken++;
}

static bool build_id_is(Elf *elf, const uint8_t *id, size_t size)
{
	const void *found = NULL;
	ssize_t n = dwelf_elf_gnu_build_id(elf, &found);

	/* of a longer one perf keeps the front only */
	return n >= 0 && ((size_t)n == size || (size == PERF_BUILD_ID_MAX && (size_t)n > size)) &&
	       memcmp(found, id, size) == 0;
}

static bool is_overwritten(const struct images *t, const struct image *img, int fd,
			   const struct file_answer *file)
{
	struct mapped_at mapped = {0};

	if (t->clocks && img->mapped)
		mapped.ns = clock_map_realtime(t->clocks, img->mapped, &mapped.doubt_ns);
	return file_is_overwritten(fd, file, &mapped);
}

/* By its build id, where that is known; else by what was seen of it outside. */
static bool is_asked_for(const struct images *t, const struct image *img, Elf *elf, int fd,
			 const struct file_answer *file)
{
	if (img->build_id_size)
		return build_id_is(elf, img->build_id, img->build_id_size);
	return !file->changed && !is_overwritten(t, img, fd, file);
}

/*
 * A dump of memory, or code in another format: what was mapped of it is known by the offset.
 * Nothing says that it is what ran but its inode.
 */
static bool is_flat(struct images *t, struct image *img)
{
	char magic[SELFMAG];
	struct stat st;

	if (img->fd < 0 || img->build_id_size || images_expected(t, img->path) ||
	    fstat(img->fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size <= 0)
		return false;
	if (io_pread_full(img->fd, magic, sizeof(magic), 0) == (ssize_t)sizeof(magic) &&
	    memcmp(magic, ELFMAG, sizeof(magic)) == 0)
		return false;
	return reserve_loads(t, img, 1) && add_load(img, 0, (uint64_t)st.st_size, 0, true);
}

static void image_parse_flat(struct images *t, struct image *img, bool changed)
{
	if (changed) {
		img->n_loads = 0;
		image_fail(t, img, IMAGE_CHANGED);
		return;
	}
	img->flat = true;
	img->state = IMAGE_READY;
	t->stats.ready++;
}

/* The ELF of the image's fd or memory; every failure leaves a state. */
static void image_parse(struct images *t, struct image *img, const struct file_answer *file)
{
	const struct expected *e = NULL;
	GElf_Ehdr eh;

	if (is_flat(t, img)) {
		image_parse_flat(t, img, file->changed);
		return;
	}
	img->elf = img->mem ? elf_memory((char *)(uintptr_t)img->mem, img->mem_size)
			    : elf_begin(img->fd, ELF_C_READ, NULL);
	if (!img->elf || elf_kind(img->elf) != ELF_K_ELF || !gelf_getehdr(img->elf, &eh) ||
		eh.e_ident[EI_DATA] != ELFDATA2LSB || !read_loads(t, img)) {
		image_fail(t, img, IMAGE_BROKEN);
		return;
	}
	img->entry = eh.e_entry;
	img->x86_64 = eh.e_machine == EM_X86_64 && gelf_getclass(img->elf) == ELFCLASS64;
	if (!img->build_id_size) {
		e = images_expected(t, img->path);
		if (e) {
			memcpy(img->build_id, e->id, e->size);
			img->build_id_size = e->size;
		}
	}
	if (!is_asked_for(t, img, img->elf, img->fd, file)) {
		img->n_loads = 0;
		image_fail(t, img, IMAGE_CHANGED);
		return;
	}
	img->state = IMAGE_READY;
	t->stats.ready++;
}

static bool has_code(const struct image *img)
{
	for (uint32_t i = 0; i < img->n_loads; i++)
		if (img->loads[i].exec)
			return true;
	return false;
}

static void request_fill(struct file_request *n, const struct image *img,
			 enum file_request_kind kind)
{
	*n = (struct file_request){
		.kind = kind,
		.maj = img->maj,
		.min = img->min,
		.ino = img->ino,
		.pid = (pid_t)img->pid,
	};
}

static void request_object(struct file_request *n, const struct image *img)
{
	request_fill(n, img, FILE_REQUEST_OBJECT);
	memcpy(n->path, img->path, strlen(img->path) + 1);
	memcpy(n->build_id, img->build_id, img->build_id_size);
	n->build_id_len = img->build_id_size;
}

/* `elf`: the right file, or NULL. `code`: and it is needed. */
static int judge(const struct images *t, const struct file_answer *file, Elf *elf, bool code)
{
	struct file_verdict verdict = {.req = file->req, .recognised = elf && code};
	const void *id = NULL;
	ssize_t n = elf ? dwelf_elf_gnu_build_id(elf, &id) : 0;

	if (!t->files.judge)
		return 0;
	if (n > 0 && n <= FILE_REQUEST_MAX_BUILD_ID) {
		memcpy(verdict.build_id, id, (size_t)n);
		verdict.build_id_len = (size_t)n;
	}
	return t->files.judge(t->files.arg, &verdict);
}

int images_map_kernel(struct images *t, int fd, const struct kallsyms *kallsyms,
		      struct address_space **ret)
{
	static const char name[] = "[kernel code]"; /* no process maps a file of this name */
	const struct image_key key = {.path = name, .path_len = sizeof(name) - 1};
	_cleanup_(address_space_unrefp) struct address_space *space = NULL;
	struct file_answer none = {0};
	struct image *img = images_get(t, &key);
	int r;

	if (!img) {
		close_fd(fd);
		return -ENOMEM;
	}
	img->kind = IMAGE_KERNEL;
	img->fd = fd;
	t->kallsyms = kallsyms;
	image_parse(t, img, &none);
	if (img->state != IMAGE_READY || img->flat)
		return -ENOEXEC;
	r = address_space_new(t->budget, &space);
	for (uint32_t i = 0; i < img->n_loads && r == 0; i++) {
		/* By their addresses: what comes last goes to the end. */
		const struct image_load *l = &img->loads[img->by_vaddr ? img->by_vaddr[i] : i];

		if (l->exec && l->vaddr >= KERNEL_HALF)
			r = address_space_set(&space, &(struct mapping){.start = l->vaddr,
									.end = l->vaddr + l->size,
									.pgoff = l->off,
									.image = img});
	}
	if (r != 0)
		return r < 0 ? r : -E2BIG;
	*ret = take_ptr(space);
	return 0;
}

int image_open(struct images *t, struct image *img)
{
	struct file_answer file = {0};
	struct file_request request;
	int r, fd = -1;

	if (img->state != IMAGE_NEW)
		return 0;
	if (img->kind == IMAGE_OTHER || img->kind == IMAGE_ANON ||
		strlen(img->path) > FILE_REQUEST_MAX_PATH) {
		img->state = IMAGE_MISSING; /* nothing is lost: there is no file */
		return 0;
	}
	if (img->kind == IMAGE_VDSO && t->vdso_fd >= 0) {
		img->fd = fcntl(t->vdso_fd, F_DUPFD_CLOEXEC, 3);
		if (img->fd < 0)
			image_fail(t, img, IMAGE_MISSING);
		else
			image_parse(t, img, &file);
		return 0;
	}
	if (img->kind == IMAGE_VDSO && t->own_vdso) {
		/* NOLINTNEXTLINE: the kernel gives its own mapping as a number */
		img->mem = (const uint8_t *)(uintptr_t)getauxval(AT_SYSINFO_EHDR);
		img->mem_size = img->mem ? own_vdso_size(img->mem) : 0;
		if (img->mem_size) {
			image_parse(t, img, &file);
			return 0;
		}
		img->mem = NULL;
	}
	if (t->stats.ready + t->stats.debug_found >= IMAGES_MAX_OPEN) {
		image_fail(t, img, IMAGE_MISSING);
		return 0;
	}
	request_object(&request, img);
	r = t->files.ask(t->files.arg, &request, &file, &fd);
	if (r < 0)
		return r;
	if (r == 0) {
		image_fail(t, img, IMAGE_MISSING);
		return 0;
	}
	img->fd = fd;
	image_parse(t, img, &file);
	return judge(t, &file, img->state == IMAGE_READY ? img->elf : NULL, has_code(img));
}

int image_identify(struct images *t, const struct image *img)
{
	struct file_answer file = {0};
	struct file_request request;
	_cleanup_close_ int fd = -1;
	Elf *elf;
	int r;

	if (img->state != IMAGE_NEW || img->kind != IMAGE_FILE ||
	    strlen(img->path) > FILE_REQUEST_MAX_PATH)
		return 0;
	request_object(&request, img);
	r = t->files.ask(t->files.arg, &request, &file, &fd);
	if (r <= 0)
		return r;
	elf = elf_begin(fd, ELF_C_READ, NULL);
	if (elf && (elf_kind(elf) != ELF_K_ELF || !is_asked_for(t, img, elf, fd, &file))) {
		elf_end(elf);
		elf = NULL;
	}
	r = judge(t, &file, elf, false);
	if (elf)
		elf_end(elf);
	return r;
}

/* Unpacks .gnu_debugdata: an ELF file of only local functions, compressed by xz. */
static void load_mini(struct images *t, struct image *img)
{
	Elf_Scn *scn = NULL;
	size_t shstr;

	if (elf_getshdrstrndx(img->elf, &shstr) < 0)
		return;
	for (unsigned i = 0; i < SYMBOLS_MAX_SECTIONS && (scn = elf_nextscn(img->elf, scn)); i++) {
		lzma_stream strm = LZMA_STREAM_INIT;
		const char *name;
		size_t cap = 1 << 20, len = 0;
		Elf_Data *data;
		GElf_Shdr sh;
		lzma_ret lr;

		if (!gelf_getshdr(scn, &sh) || sh.sh_type != SHT_PROGBITS || sh.sh_size > MINI_MAX)
			continue;
		name = elf_strptr(img->elf, shstr, sh.sh_name);
		if (!name || strcmp(name, ".gnu_debugdata") != 0)
			continue;
		data = elf_rawdata(scn, NULL);
		if (!data || !data->d_buf ||
			lzma_stream_decoder(&strm, MINI_MEMLIMIT, 0) != LZMA_OK)
			return;
		strm.next_in = data->d_buf;
		strm.avail_in = data->d_size;
		do {
			uint8_t *p;

			if (len == cap || !img->mini) {
				cap = img->mini ? cap * 2 : cap;
				if (cap > MINI_MAX || !budget_take(t->budget, cap / 2) ||
					!(p = realloc(img->mini, cap)))
					break;
				img->mini = p;
			}
			strm.next_out = (uint8_t *)img->mini + len;
			strm.avail_out = cap - len;
			lr = lzma_code(&strm, LZMA_FINISH);
			len = cap - strm.avail_out;
		} while (lr == LZMA_OK);
		lzma_end(&strm);
		img->mini_size = len;
		if (len)
			img->mini_elf = elf_memory(img->mini, len);
		return;
	}
}

/* Asks for the debug file by build id, and by .gnu_debuglink. */
int image_load_debug(struct images *t, struct image *img)
{
	struct file_answer file = {0};
	struct file_request request;
	const void *id = NULL;
	const char *link;
	GElf_Word crc;
	ssize_t id_len;
	bool right;
	int r, fd = -1;

	if (img->debug_tried || img->flat)
		return 0;
	img->debug_tried = true;
	id_len = dwelf_elf_gnu_build_id(img->elf, &id);
	link = dwelf_elf_gnu_debuglink(img->elf, &crc);
	/* a debug file that cannot be checked is none */
	if (id_len < 2 || id_len > FILE_REQUEST_MAX_BUILD_ID)
		return 0;
	request_fill(&request, img, FILE_REQUEST_DEBUG);
	memcpy(request.build_id, id, (size_t)id_len);
	request.build_id_len = (size_t)id_len;
	if (link && strlen(link) <= FILE_REQUEST_MAX_PATH)
		memcpy(request.path, link, strlen(link) + 1);
	memcpy(request.object, img->path, strlen(img->path) + 1);
	r = t->files.ask(t->files.arg, &request, &file, &fd);
	if (r <= 0)
		return r;
	img->debug_fd = fd;
	img->debug_elf = elf_begin(fd, ELF_C_READ, NULL);
	right = img->debug_elf && elf_kind(img->debug_elf) == ELF_K_ELF &&
		build_id_is(img->debug_elf, id, (size_t)id_len);
	r = file_requester_judge(&t->files, &file, right);
	if (r < 0)
		return r;
	if (!right) {
		t->stats.debug_wrong++;
		if (img->debug_elf)
			elf_end(img->debug_elf);
		img->debug_elf = NULL;
		return 0;
	}
	t->stats.debug_found++;
	return 0;
}

const struct gopclntab *image_go(struct image *img)
{
	if (!img->go_tried && img->elf) {
		img->go_tried = true;
		(void)gopclntab_open(img->elf, &img->go);
	}
	return &img->go;
}

int image_load_symbols(struct images *t, struct image *img)
{
	int r, n;

	if (img->symbols_loaded)
		return 0;
	img->symbols_loaded = true;
	if (img->flat)
		return 0;
	if (img->kind == IMAGE_KERNEL) {
		r = t->kallsyms ? kallsyms_add_functions(t->kallsyms, &img->symbols) : 0;
		symbols_finish(&img->symbols);
		return r;
	}
	n = symbols_add_elf(&img->symbols, img->elf, SHT_SYMTAB);
	if (n == 0 && img->kind == IMAGE_FILE) {
		r = image_load_debug(t, img);
		if (r < 0)
			return r;
		if (img->debug_elf)
			n = symbols_add_elf(&img->symbols, img->debug_elf, SHT_SYMTAB);
		if (n == 0) {
			load_mini(t, img);
			if (img->mini_elf)
				(void)symbols_add_elf(&img->symbols, img->mini_elf, SHT_SYMTAB);
		}
		if (n == 0)
			(void)gopclntab_add(image_go(img), &img->symbols);
	}
	(void)symbols_add_elf(&img->symbols, img->elf, SHT_DYNSYM);
	symbols_add_plt(&img->symbols, img->elf);
	symbols_finish(&img->symbols);
	return 0;
}

void image_free(struct image *img)
{
	symbols_fini(&img->symbols);
	cfi_free(img->cfi);
	extents_free(img->extents);
	image_free_dwarf(img);
	if (img->debug_elf)
		elf_end(img->debug_elf);
	if (img->mini_elf)
		elf_end(img->mini_elf);
	if (img->elf)
		elf_end(img->elf);
	free(img->mini);
	free(img->loads);
	free(img->by_vaddr);
	close_fd(img->fd);
	close_fd(img->debug_fd);
	free(img->path);
	free(img->text);
	free(img);
}
