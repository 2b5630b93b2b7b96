// SPDX-License-Identifier: Apache-2.0
#include "client/lib/ringmem.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include "client/lib/name.h"
#include "client/lib/stamp.h"
#include "client/lib/state.h"
#include "common/base/io.h"

#define TEXT_PER_NAME 64u /* average bytes of a name; formats of logs are names, too */

static_assert((F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE) == RING_SEALS,
	      "seals");

static_assert(RING_MAX_RINGS < 1U << RINGMEM_ID_RING_BITS, "a ring's number in an id");

static struct ringmem *made;
static uint32_t last_epoch;

/*
 * The program may have closed all descriptors that it does not know, and opened others under their
 * numbers.
 */
static bool fd_is_ours(const struct ringmem *mem)
{
	return fileid_has(&mem->id, mem->fd);
}

/*
 * With vm.overcommit_memory=2 the kernel may refuse a page at first touch, and the program would
 * get a SIGBUS in the middle of something. So this asks for all pages at once.
 */
static int reserve_strictly(int fd, uint64_t bytes)
{
	_cleanup_free_ char *mode = NULL;
	size_t len;

	if (io_read_file_at(AT_FDCWD, "/proc/sys/vm/overcommit_memory", 16, &mode, &len) < 0 ||
	    mode[0] != '2')
		return 0;
	while (fallocate(fd, 0, 0, (off_t)bytes) < 0) {
		if (errno != EINTR)
			return -errno;
	}
	return 0;
}

/*
 * A file that grows beyond the limit is a SIGXFSZ, which ends the program. The helper thread blocks
 * it, but tracerd_dispatch() runs on a thread of the program's.
 */
static bool limit_allows(uint64_t bytes)
{
	struct rlimit limit;

	return getrlimit(RLIMIT_FSIZE, &limit) < 0 || limit.rlim_cur == RLIM_INFINITY ||
	       bytes <= limit.rlim_cur;
}

static int memfd_make(uint64_t bytes, int *ret)
{
	_cleanup_close_ int low = io_memfd("tracerd-rings"), fd = -1;
	int k;

	if (low < 0)
		return low;
	if (!limit_allows(bytes))
		return -EFBIG;
	/* Not a number that the program could take for its standard output. */
	fd = fcntl(low, F_DUPFD_CLOEXEC, 3);
	if (fd < 0)
		return -errno;
	if (ftruncate(fd, (off_t)bytes) < 0)
		return -errno;
	k = reserve_strictly(fd, bytes);
	if (k < 0)
		return k;
	*ret = take_fd(&fd);
	return 0;
}

static void header_write(const struct ringmem *mem, enum ring_clock clock)
{
	const struct ring_geometry *g = &mem->geometry;
	struct ring_header *h = mem_header(mem);

	h->version = RING_VERSION;
	h->clock = clock;
	h->total_bytes = g->total_bytes;
	h->pid = (uint32_t)mem->pid;
	h->rings = g->rings;
	h->slots = g->slots;
	h->names_max = g->names_max;
	h->text_bytes = g->text_bytes;
	h->text_offset = g->text_offset;
	h->dir_offset = g->dir_offset;
	h->data_offset = g->data_offset;
	h->started = stamp_now();
	__atomic_thread_fence(__ATOMIC_RELEASE);
	memcpy(h->magic, RING_MAGIC, sizeof(h->magic));
}

static int rings_make(struct ringmem *mem)
{
	const struct ring_geometry *g = &mem->geometry;
	struct ring_entry *entries = (struct ring_entry *)(mem->base + g->dir_offset);
	struct ring_slot *slots = (struct ring_slot *)(mem->base + g->data_offset);

	mem->rings = calloc(g->rings, sizeof(*mem->rings));
	if (!mem->rings)
		return -ENOMEM;
	for (uint32_t i = 0; i < g->rings; i++)
		mem->rings[i] = (struct ring){
			.entry = entries + i,
			.slots = slots + (size_t)i * g->slots,
			.mask = g->slots - 1,
			.shift = (uint16_t)__builtin_ctz(g->slots),
			.ids = ((uint64_t)mem->epoch << RINGMEM_ID_RING_BITS | (i + 1))
			       << RINGMEM_ID_SLOT_BITS,
		};
	return 0;
}

static int memory_make(const struct ring_geometry *geometry, enum ring_clock clock,
		       struct ringmem **ret)
{
	_cleanup_free_ struct ringmem *mem = calloc(1, sizeof(*mem));
	_cleanup_close_ int fd = -1;
	void *base;
	int k;

	if (!mem)
		return -ENOMEM;
	k = memfd_make(geometry->total_bytes, &fd);
	if (k < 0)
		return k;
	k = fileid_of(fd, &mem->id);
	if (k < 0)
		return k;
	base = mmap(NULL, geometry->total_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return -errno;
	mem->base = base;
	mem->geometry = *geometry;
	mem->epoch = ++last_epoch;
	k = rings_make(mem);
	/* The mapping comes first: with these seals no other mapping can write. */
	if (k == 0 && (madvise(base, geometry->total_bytes, MADV_DONTFORK) < 0 ||
			      fcntl(fd, F_ADD_SEALS, (int)RING_SEALS) < 0))
		k = -errno;
	if (k < 0) {
		(void)munmap(base, geometry->total_bytes);
		free(mem->rings);
		return k;
	}
	mem->pid = getpid();
	mem->fd = take_fd(&fd);
	header_write(mem, clock);
	*ret = take_ptr(mem);
	return 0;
}

static bool alike(const struct ring_geometry *a, const struct ring_geometry *b)
{
	return a->rings == b->rings && a->slots == b->slots && a->names_max == b->names_max &&
	       a->text_bytes == b->text_bytes;
}

int ringmem_create(uint32_t rings, uint32_t slots, uint32_t names, enum ring_clock clock)
{
	struct ring_geometry g = {.rings = rings, .slots = slots, .names_max = names};
	struct state_page *page = state_page();
	struct ringmem *mem;
	uint64_t text = ((uint64_t)names * TEXT_PER_NAME + RING_PAGE - 1) / RING_PAGE * RING_PAGE;
	int k;

	g.text_bytes = text < RING_MAX_TEXT ? (uint32_t)text : RING_MAX_TEXT;
	if (!ring_layout(&g))
		return -EINVAL;
	stamp_choose(clock);
	for (mem = made; mem; mem = mem->next) {
		if (alike(&mem->geometry, &g) && fd_is_ours(mem))
			break;
	}
	if (!mem) {
		k = memory_make(&g, stamp_clock(), &mem);
		if (k < 0)
			return k;
		mem->next = made;
		made = mem;
	}
	if (page->mem == mem)
		return 0;
	__atomic_store_n(&page->mem, mem, __ATOMIC_SEQ_CST);
	/* New names find the memory from here on; this copies the others. */
	names_copy(mem);
	if (state_on())
		events_enable(true);
	return 0;
}

int ringmem_fd(void)
{
	const struct ringmem *mem = state_mem();

	if (!mem)
		return -ENOENT;
	return fd_is_ours(mem) ? mem->fd : -EBADF;
}

struct ring_header *ringmem_header(void)
{
	const struct ringmem *mem = state_mem();

	return mem ? mem_header(mem) : NULL;
}

void ringmem_forget(void)
{
	for (struct ringmem *mem = made; mem; mem = mem->next) {
		if (fd_is_ours(mem))
			(void)close(mem->fd);
		mem->fd = -1;
	}
}
