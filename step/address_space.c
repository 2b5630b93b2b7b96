// SPDX-License-Identifier: Apache-2.0
#include "step/address_space.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/uio.h>

#include "common/base/fileid.h"
#include "common/base/io.h"
#include "common/base/procfs.h"

#define MAX_MAPS 65536u
/*
 * Copies of pages that one process may have; when there is one more, all are dropped, and read
 * again when they run.
 */
#define MAX_PAGES 8192u
#define MAX_VDSO (64u << 10)
#define USER_END (UINT64_C(1) << 63)

struct map {
	struct proc_map m; /* m.path is owned here, and terminated */
	bool file;	   /* the path names a file whose pages may be those of the mapping */
	bool writable;	   /* by the process, or by others through the file */
	bool kept;	   /* it is in the new list, too, while two are compared */
};

struct page {
	uint64_t start;
	bool steady; /* cannot change while it is mapped */
	uint64_t saved; /* its place in the code file; 0: none */
	uint32_t prot;
	uint16_t tail;
	uint8_t bytes[STEP_CODE_PAGE + STEP_CODE_TAIL];
};

struct address_space {
	struct address_space_shared shared;
	pid_t pid;
	uint64_t epoch;
	struct map *maps; /* by address */
	size_t n_maps;
	struct page **pages; /* by address */
	size_t n_pages, size_pages;
	struct page *last;
	uint64_t missed; /* a page that was not mapped when the mappings were last read */
};

uint64_t address_space_epoch(const struct address_space *s)
{
	return s->epoch;
}

int address_space_new(const struct address_space_shared *shared, pid_t pid,
		      struct address_space **ret)
{
	struct address_space *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->shared = *shared;
	s->pid = pid;
	*ret = s;
	return 0;
}

static void maps_free(struct map *maps, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free((char *)(uintptr_t)maps[i].m.path);
	free(maps);
}

static void drop_pages(struct address_space *s, uint64_t start, uint64_t end)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n_pages; i++) {
		if (s->pages[i]->start >= start && s->pages[i]->start < end)
			free(s->pages[i]);
		else
			s->pages[n++] = s->pages[i];
	}
	s->n_pages = n;
	s->last = NULL;
}

void address_space_clear(struct address_space *s)
{
	maps_free(s->maps, s->n_maps);
	s->maps = NULL;
	s->n_maps = 0;
	s->missed = 0;
	drop_pages(s, 0, UINT64_MAX);
}

struct address_space *address_space_free(struct address_space *s)
{
	if (!s)
		return NULL;
	address_space_clear(s);
	free(s->pages);
	free(s);
	return NULL;
}

int address_space_copy(const struct address_space *from, pid_t pid, struct address_space **ret)
{
	_cleanup_(address_space_freep) struct address_space *s = NULL;
	int r = address_space_new(&from->shared, pid, &s);

	if (r < 0)
		return r;
	s->maps = calloc(from->n_maps ? from->n_maps : 1, sizeof(*s->maps));
	if (!s->maps)
		return -ENOMEM;
	for (size_t i = 0; i < from->n_maps; i++) {
		s->maps[i] = from->maps[i];
		s->maps[i].m.path = strdup(from->maps[i].m.path);
		if (!s->maps[i].m.path)
			return -ENOMEM;
		s->n_maps++;
	}
	*ret = take_ptr(s);
	return 0;
}

/* ---- memory of the process */

/* Needs no privilege but to be the tracer; slow. */
static size_t peek_memory(pid_t tid, uint64_t address, uint8_t *buf, size_t n)
{
	size_t got = 0;

	while (got < n) {
		const uint64_t at = address + got, word = at & ~(uint64_t)(sizeof(long) - 1);
		const size_t skip = (size_t)(at - word), rest = sizeof(long) - skip;
		const size_t take = rest < n - got ? rest : n - got;
		long value;

		errno = 0;
		// NOLINTNEXTLINE: an address of another process
		value = ptrace(PTRACE_PEEKDATA, tid, (void *)(uintptr_t)word, NULL);
		if (errno)
			break;
		memcpy(buf + got, (const uint8_t *)&value + skip, take);
		got += take;
	}
	return got;
}

size_t address_space_read_memory(pid_t tid, uint64_t address, uint8_t *buf, size_t n)
{
	struct iovec local = {buf, n}, remote = {(void *)(uintptr_t)address,
						 n}; // NOLINT: an address of another process
	_cleanup_close_ int fd = -1;
	char path[48];
	ssize_t got;

	got = process_vm_readv(tid, &local, 1, &remote, 1, 0);
	if (got > 0)
		return (size_t)got;
	/* Execute-only memory is readable here. */
	(void)snprintf(path, sizeof(path), "/proc/%d/mem", (int)tid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return errno == EACCES || errno == EPERM ? peek_memory(tid, address, buf, n) : 0;
	got = address <= INT64_MAX ? pread(fd, buf, n, (off_t)address) : 0;
	return got > 0 ? (size_t)got : 0;
}

/* ---- mappings */

static const struct map *find_map(const struct address_space *s, uint64_t address)
{
	size_t low = 0, high = s->n_maps;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (s->maps[mid].m.end <= address)
			low = mid + 1;
		else
			high = mid;
	}
	return low < s->n_maps && s->maps[low].m.start <= address ? &s->maps[low] : NULL;
}

/* The name as in the kernel's records: newlines unescaped, "//anon" where there is no file. */
static char *own_path(const struct proc_map *m)
{
	char *p;
	size_t n = 0;

	if (m->path_len == 0)
		return strdup("//anon");
	p = malloc(m->path_len + 1);
	if (!p)
		return NULL;
	for (size_t i = 0; i < m->path_len; i++) {
		if (m->path_len - i > 3 && memcmp(m->path + i, "\\012", 4) == 0) {
			p[n++] = '\n';
			i += 3;
		} else {
			p[n++] = m->path[i];
		}
	}
	p[n] = '\0';
	return p;
}

static int parse_maps(const char *text, size_t len, struct map **ret, size_t *ret_n)
{
	struct map *maps = NULL;
	size_t n = 0, size = 0, pos = 0;
	struct proc_map m;
	int r;

	while ((r = proc_map_next(text, len, &pos, &m)) != 0) {
		struct map *new;

		/* vsyscall lies in the kernel's half, and is no mapping of the process. */
		if (r < 0 || !(m.prot & PROT_EXEC) || m.start >= USER_END)
			continue;
		if (n == MAX_MAPS) {
			maps_free(maps, n);
			return -E2BIG;
		}
		if (n == size) {
			struct map *p;

			size = size ? size * 2 : 32;
			p = reallocarray(maps, size, sizeof(*maps));
			if (!p) {
				maps_free(maps, n);
				return -ENOMEM;
			}
			maps = p;
		}
		new = &maps[n];
		*new = (struct map){.m = m};
		new->m.path = own_path(&m);
		if (!new->m.path) {
			maps_free(maps, n);
			return -ENOMEM;
		}
		new->m.path_len = strlen(new->m.path);
		new->file = m.ino &&new->m.path[0] == '/' &&
			    proc_path_len(new->m.path, new->m.path_len) == new->m.path_len;
		new->writable = m.prot & PROT_WRITE || m.shared || !new->file;
		n++;
	}
	*ret = maps;
	*ret_n = n;
	return 0;
}

static bool same_map(const struct map *a, const struct map *b)
{
	return a->m.start == b->m.start && a->m.end == b->m.end && a->m.pgoff == b->m.pgoff &&
	       a->m.ino == b->m.ino && a->m.maj == b->m.maj && a->m.min == b->m.min &&
	       a->m.prot == b->m.prot && a->m.shared == b->m.shared &&
	       strcmp(a->m.path, b->m.path) == 0;
}

static int save_vdso(struct address_space *s, pid_t tid, const struct map *map)
{
	_cleanup_free_ uint8_t *image = NULL;
	const uint64_t n = map->m.end - map->m.start;

	if (s->shared.code->vdso || n > MAX_VDSO)
		return 0;
	image = malloc(n);
	if (!image)
		return -ENOMEM;
	return address_space_read_memory(tid, map->m.start, image, n) == n
		       ? step_code_vdso(s->shared.code, image, n)
		       : 0;
}

/* Replaces the list of mappings, and records what is new; both lists are sorted by address. */
static int take_maps(struct address_space *s, pid_t tid, struct map *maps, size_t n)
{
	uint64_t ticks = 0;
	size_t old = 0;
	int r = 0;

	for (size_t i = 0; i < n; i++) {
		while (old < s->n_maps && s->maps[old].m.start < maps[i].m.start)
			old++;
		maps[i].kept = old < s->n_maps && same_map(&s->maps[old], &maps[i]);
		if (maps[i].kept)
			s->maps[old].kept = true;
	}
	/* Unmapped pages first: the same addresses may be mapped anew. */
	for (size_t i = 0; i < s->n_maps; i++) {
		if (!s->maps[i].kept)
			drop_pages(s, s->maps[i].m.start, s->maps[i].m.end);
	}
	for (size_t i = 0; r == 0 && i < n; i++) {
		if (maps[i].kept)
			continue;
		drop_pages(s, maps[i].m.start, maps[i].m.end);
		if (!ticks) {
			ticks = step_clock_now(s->shared.clock);
			s->epoch++;
		}
		r = sideband_mmap(s->shared.sideband, ticks, s->pid, tid, &maps[i].m, NULL);
		if (r == 0 && strcmp(maps[i].m.path, "[vdso]") == 0)
			r = save_vdso(s, tid, &maps[i]);
	}
	for (size_t i = 0; i < n; i++)
		maps[i].kept = false;
	maps_free(s->maps, s->n_maps);
	s->maps = maps;
	s->n_maps = n;
	return r;
}

void address_space_forget_pages(struct address_space *s)
{
	drop_pages(s, 0, UINT64_MAX);
}

int address_space_record(const struct address_space *s, uint64_t ticks, pid_t tid)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < s->n_maps; i++)
		r = sideband_mmap(s->shared.sideband, ticks, s->pid, tid, &s->maps[i].m, NULL);
	for (size_t i = 0; r == 0 && i < s->n_pages; i++) {
		const struct page *p = s->pages[i];
		const struct proc_map m = {.start = p->start,
					   .end = p->start + STEP_CODE_PAGE,
					   .prot = p->prot,
					   .pgoff = p->saved};

		if (!p->saved)
			continue;
		step_code_use(s->shared.code, p->saved);
		r = sideband_mmap(s->shared.sideband, ticks, s->pid, tid, &m, s->shared.code->path);
	}
	return r;
}

int address_space_reread(struct address_space *s, pid_t tid)
{
	_cleanup_free_ char *text = NULL;
	struct map *maps = NULL;
	char path[48];
	size_t len, n = 0;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/maps", (int)tid);
	r = io_read_file_at(AT_FDCWD, path, PROC_MAPS_BYTES_MAX, &text, &len);
	if (r == -ENOENT || r == -ESRCH)
		return 0; /* the thread has ended */
	if (r == 0)
		r = parse_maps(text, len, &maps, &n);
	return r < 0 ? r : take_maps(s, tid, maps, n);
}

/* ---- pages */

/* Where the page that begins at `start` is, or would be. */
static size_t page_index(const struct address_space *s, uint64_t start)
{
	size_t low = 0, high = s->n_pages;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (s->pages[mid]->start < start)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static struct page *find_page(struct address_space *s, uint64_t start)
{
	size_t i;

	if (s->last && s->last->start == start)
		return s->last;
	i = page_index(s, start);
	if (i == s->n_pages || s->pages[i]->start != start)
		return NULL;
	s->last = s->pages[i];
	return s->last;
}

static int insert_page(struct address_space *s, struct page *p)
{
	size_t i;

	if (s->n_pages == MAX_PAGES)
		drop_pages(s, 0, UINT64_MAX);
	if (s->n_pages == s->size_pages) {
		const size_t size = s->size_pages ? s->size_pages * 2 : 64;
		struct page **pages = reallocarray(s->pages, size, sizeof(*pages));

		if (!pages)
			return -ENOMEM;
		s->pages = pages;
		s->size_pages = size;
	}
	i = page_index(s, p->start);
	memmove(s->pages + i + 1, s->pages + i, (s->n_pages - i) * sizeof(*s->pages));
	s->pages[i] = p;
	s->n_pages++;
	s->last = p;
	return 0;
}

/* Whether a decoder finds the page's bytes in the file of the mapping. */
static bool page_is_in_file(const struct map *map, pid_t tid, const struct page *p)
{
	uint8_t bytes[STEP_CODE_PAGE];
	_cleanup_close_ int root = -1, fd = -1;
	char path[48];
	struct stat st;
	ssize_t n;

	if (!map->file)
		return false;
	(void)snprintf(path, sizeof(path), "/proc/%d/root", (int)tid);
	root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (root < 0)
		return false;
	fd = openat(root, map->m.path + 1, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
	if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) ||
	    !fileid_is_mapped(fd, &st, map->m.maj, map->m.min, map->m.ino))
		return false;
	n = io_pread_full(fd, bytes, sizeof(bytes),
			  (off_t)(map->m.pgoff + (p->start - map->m.start)));
	/* After the end of the file memory has zeros, which nobody executes. */
	return n > 0 && memcmp(bytes, p->bytes, (size_t)n) == 0;
}

/* Writes the page to the code file, and a record that it is mapped from there. */
static int save_page(struct address_space *s, pid_t tid, const struct map *map, struct page *p)
{
	struct proc_map m = {.start = p->start,
			     .end = p->start + STEP_CODE_PAGE,
			     .prot = map->m.prot};
	int r = step_code_add(s->shared.code, p->bytes, p->bytes + STEP_CODE_PAGE, p->tail,
			      &m.pgoff);

	if (r == 0)
		r = sideband_mmap(s->shared.sideband, step_clock_now(s->shared.clock), s->pid, tid,
				  &m, s->shared.code->path);
	if (r == 0) {
		p->saved = m.pgoff;
		p->prot = m.prot;
		s->epoch++;
	}
	return r;
}

/* Reads the page with its tail; false if it cannot be read. */
static bool load_page(pid_t tid, struct page *p)
{
	const size_t n = address_space_read_memory(tid, p->start, p->bytes, STEP_CODE_PAGE);

	if (n < STEP_CODE_PAGE)
		return false;
	p->tail = (uint16_t)address_space_read_memory(tid, p->start + STEP_CODE_PAGE,
						      p->bytes + STEP_CODE_PAGE, STEP_CODE_TAIL);
	return true;
}

/* A page runs for the first time. *ret is NULL where there is none. */
static int meet_page(struct address_space *s, pid_t tid, uint64_t start, struct page **ret)
{
	_cleanup_free_ struct page *p = NULL;
	const struct map *map = find_map(s, start);
	int r;

	*ret = NULL;
	if (!map) {
		/*
		 * A mapping that we have missed, or none. In the second case read the mappings only
		 * once, since the program may fault in a loop.
		 */
		if (start >= USER_END || s->missed == start)
			return 0;
		r = address_space_reread(s, tid);
		if (r < 0)
			return r;
		map = find_map(s, start);
		if (!map) {
			s->missed = start;
			return 0;
		}
	}
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	p->start = start;
	if (!load_page(tid, p))
		return 0;
	p->steady = !map->writable;
	/* Decoders have the kernel's vDSO, and OUTPUT.vdso is a copy of it. */
	if (strcmp(map->m.path, "[vdso]") == 0) {
		p->steady = true;
	} else if (!page_is_in_file(map, tid, p)) {
		r = save_page(s, tid, map, p);
		if (r < 0)
			return r;
	}
	r = insert_page(s, p);
	if (r < 0)
		return r;
	*ret = take_ptr(p);
	return 0;
}

/* Compares the next instruction with the copy, and saves the page again if it has changed. */
static int check_page(struct address_space *s, pid_t tid, struct page *p, size_t at,
		      const uint8_t *code, size_t n)
{
	const struct map *map;

	if (n <= STEP_CODE_PAGE + (size_t)p->tail - at && memcmp(p->bytes + at, code, n) == 0)
		return 0;
	map = find_map(s, p->start);
	return map && load_page(tid, p) ? save_page(s, tid, map, p) : 0;
}

int address_space_fetch(struct address_space *s, pid_t tid, uint64_t ip, bool is64,
			uint8_t code[INSN_MAX], struct insn *ret)
{
	const uint64_t start = ip & ~(uint64_t)(STEP_CODE_PAGE - 1);
	const size_t at = (size_t)(ip - start);
	struct page *p = find_page(s, start);
	size_t n = INSN_MAX;
	int r;

	if (!p) {
		r = meet_page(s, tid, start, &p);
		if (r < 0)
			return r;
		if (!p)
			return ADDRESS_SPACE_E_NO_INSN;
	}
	if (p->steady && at + INSN_MAX <= STEP_CODE_PAGE)
		memcpy(code, p->bytes + at, INSN_MAX);
	else
		n = address_space_read_memory(tid, ip, code, INSN_MAX);
	if (!insn_decode(code, n, is64, ret))
		return ADDRESS_SPACE_E_NO_INSN;
	return p->steady ? 0 : check_page(s, tid, p, at, code, ret->length);
}
