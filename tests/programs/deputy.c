// SPDX-License-Identifier: Apache-2.0
/*
 * An ordinary user's process that sets traps for whoever records it: for tests/system/lib/deputy.py. It does what
 * a line on its standard input says, and answers "ok" or "error ERRNO". Words are separated by tabs.
 *
 *	unshare                    a user and a mount namespace of its own, root in it
 *	mkdir P, fifo P, unlink P, symlink TEXT P, link A B, rename A B, write P TEXT, chdir P
 *	copy A B                   the bytes of A into the file B that is there
 *	bind A B, tmpfs P, overlay P OPTIONS, umount P, chroot P, pivot P
 *	run P                      maps the ELF file as a loader would map its code
 *	jit P                      a copy of that code in memory of no file
 *	inode P N                  makes P, with that inode number
 *	swap A B                   from now on, for ever: exchanges the names
 *	flap A B                   likewise: binds A over B, and takes it away again
 *	exec P Q                   runs Q, and is the program P at once
 *	go, stop                   from now on it calls all this code a hundred times a second, or no more
 *	events                     registers event rings
 *	region NAME MS             a region of that length
 *
 * It ends with its input.
 */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

#include <tracerd.h>

#define MAX_WORDS 4
#define MAX_CODES 64
#define MAX_PAIRS 32
#define INODE_TRIES 200000

struct pair {
	char *a, *b;
};

static void (*codes[MAX_CODES])(void);
static size_t n_codes;
static bool going;
static struct pair swaps[MAX_PAIRS], flaps[MAX_PAIRS];
/* The thread sees a pair that is written before it is counted. */
static size_t n_swaps, n_flaps;

static int result(long r)
{
	return r < 0 ? -errno : 0;
}

static int write_text(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), r;

	if (fd < 0)
		return -errno;
	r = write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -EIO;
	(void)close(fd);
	return r;
}

static int do_unshare(void)
{
	const unsigned int uid = getuid(), gid = getgid();
	char map[64];
	int r;

	if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
		return -errno;
	(void)snprintf(map, sizeof(map), "0 %u 1\n", uid);
	r = write_text("/proc/self/uid_map", map);
	/* before the map of groups, or the kernel refuses that */
	if (r == 0)
		r = write_text("/proc/self/setgroups", "deny");
	(void)snprintf(map, sizeof(map), "0 %u 1\n", gid);
	if (r == 0)
		r = write_text("/proc/self/gid_map", map);
	return r ? r : result(mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL));
}

static int do_pivot(const char *root)
{
	if (chdir(root) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
		return -errno;
	return result(umount2(".", MNT_DETACH) < 0 ? -1 : chdir("/"));
}

/* One more name or file each time, until the file system has counted that far. */
static int do_inode(const char *path, unsigned long long wanted)
{
	for (unsigned int i = 0; i < INODE_TRIES; i++) {
		int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
		struct stat st;

		if (fd < 0 || fstat(fd, &st) < 0)
			return -errno;
		(void)close(fd);
		if (st.st_ino == wanted)
			return 0;
		if (unlink(path) < 0)
			return -errno;
	}
	return -ERANGE;
}

static int do_copy(const char *from, const char *to)
{
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_TRUNC | O_CLOEXEC), r = 0;
	char buf[65536];
	ssize_t n;

	if (in < 0 || out < 0)
		r = -errno;
	while (r == 0 && (n = read(in, buf, sizeof(buf))) > 0)
		if (write(out, buf, (size_t)n) != n)
			r = -EIO;
	(void)close(in);
	(void)close(out);
	return r;
}

#define JIT_AT 0x20000000ul /* where the perf maps of lib/deputy.py say that it is */

static int add_code(const char *path, bool jit)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), r = -ENOEXEC;
	Elf64_Phdr ph[16];
	Elf64_Ehdr eh;
	uint8_t *at;

	if (fd < 0)
		return -errno;
	if (n_codes == MAX_CODES || read(fd, &eh, sizeof(eh)) != sizeof(eh) || memcmp(eh.e_ident, ELFMAG, SELFMAG) ||
		eh.e_phnum > 16 || pread(fd, ph, eh.e_phnum * sizeof(ph[0]), (off_t)eh.e_phoff) < 0)
		goto out;
	for (unsigned int i = 0; i < eh.e_phnum; i++) {
		const size_t skew = ph[i].p_offset & 4095, size = ph[i].p_filesz + skew;

		if (ph[i].p_type != PT_LOAD || !(ph[i].p_flags & PF_X) || size > 1u << 20)
			continue;
		at = jit ? mmap((void *)(JIT_AT + (n_codes << 21)), size, PROT_READ | PROT_WRITE | PROT_EXEC,
				MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)
			 : mmap(NULL, size, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, (off_t)(ph[i].p_offset - skew));
		if (at == MAP_FAILED || (jit && pread(fd, at, size, (off_t)(ph[i].p_offset - skew)) < 0)) {
			r = -errno;
			goto out;
		}
		at += skew + (eh.e_entry - ph[i].p_vaddr);
		memcpy(&codes[n_codes++], &at, sizeof(at));
		r = 0;
		break;
	}
out:
	(void)close(fd);
	return r;
}

static void *swapper(void *arg)
{
	(void)arg;
	for (;;) {
		for (size_t i = 0; i < __atomic_load_n(&n_swaps, __ATOMIC_ACQUIRE); i++)
			(void)renameat2(AT_FDCWD, swaps[i].a, AT_FDCWD, swaps[i].b, RENAME_EXCHANGE);
		/* not faster: each of them is a switch in the rings that all targets share */
		(void)usleep(500);
	}
	return NULL;
}

static void *flapper(void *arg)
{
	(void)arg;
	for (;;) {
		for (size_t i = 0; i < __atomic_load_n(&n_flaps, __ATOMIC_ACQUIRE); i++)
			(void)mount(flaps[i].a, flaps[i].b, NULL, MS_BIND, NULL);
		(void)usleep(500);
		for (size_t i = 0; i < __atomic_load_n(&n_flaps, __ATOMIC_ACQUIRE); i++)
			(void)umount2(flaps[i].b, MNT_DETACH);
		(void)usleep(500);
	}
	return NULL;
}

static int add_pair(struct pair *pairs, size_t *n, void *(*run)(void *), char **w)
{
	pthread_t thread;

	if (*n == MAX_PAIRS)
		return -E2BIG;
	pairs[*n] = (struct pair){strdup(w[1]), strdup(w[2])};
	__atomic_store_n(n, *n + 1, __ATOMIC_RELEASE);
	return *n == 1 ? -pthread_create(&thread, NULL, run, NULL) : 0;
}

static int do_region(const char *name, int ms)
{
	tracerd_region region = tracerd_region_begin(tracerd_intern(name));

	(void)usleep((useconds_t)ms * 1000);
	tracerd_region_end(region);
	return 0;
}

/* Before whoever records the process has heard of the one, the other has its rights. */
static int do_exec(char *program, const char *last)
{
	char *const argv[] = {program, NULL};
	int r = add_code(last, false);

	return r < 0 ? r : result(execv(program, argv));
}

static int obey(char **w, size_t n)
{
	const char *what = w[0];

	if (!strcmp(what, "unshare"))
		return do_unshare();
	if (!strcmp(what, "go") || !strcmp(what, "stop"))
		return going = *what == 'g', 0;
	if (!strcmp(what, "events"))
		return tracerd_start(NULL);
	if (n < 2)
		return -EINVAL;
	if (!strcmp(what, "mkdir"))
		return result(mkdir(w[1], 0755));
	if (!strcmp(what, "fifo"))
		return result(mkfifo(w[1], 0644));
	if (!strcmp(what, "unlink"))
		return result(unlink(w[1]));
	if (!strcmp(what, "chdir"))
		return result(chdir(w[1]));
	if (!strcmp(what, "tmpfs"))
		return result(mount("tmpfs", w[1], "tmpfs", 0, "mode=755"));
	if (!strcmp(what, "umount"))
		return result(umount2(w[1], MNT_DETACH));
	if (!strcmp(what, "chroot"))
		return result(chroot(w[1]) < 0 ? -1 : chdir("/"));
	if (!strcmp(what, "pivot"))
		return do_pivot(w[1]);
	if (!strcmp(what, "run"))
		return add_code(w[1], false);
	if (!strcmp(what, "jit"))
		return add_code(w[1], true);
	if (n < 3)
		return -EINVAL;
	if (!strcmp(what, "exec"))
		return do_exec(w[1], w[2]);
	if (!strcmp(what, "symlink"))
		return result(symlink(w[1], w[2]));
	if (!strcmp(what, "link"))
		return result(link(w[1], w[2]));
	if (!strcmp(what, "rename"))
		return result(rename(w[1], w[2]));
	if (!strcmp(what, "write"))
		return write_text(w[1], w[2]);
	if (!strcmp(what, "copy"))
		return do_copy(w[1], w[2]);
	if (!strcmp(what, "bind"))
		return result(mount(w[1], w[2], NULL, MS_BIND | MS_REC, NULL));
	if (!strcmp(what, "overlay"))
		return result(mount("overlay", w[1], "overlay", 0, w[2]));
	if (!strcmp(what, "inode"))
		return do_inode(w[1], strtoull(w[2], NULL, 10));
	if (!strcmp(what, "swap"))
		return add_pair(swaps, &n_swaps, swapper, w);
	if (!strcmp(what, "flap"))
		return add_pair(flaps, &n_flaps, flapper, w);
	if (!strcmp(what, "region"))
		return do_region(w[1], atoi(w[2]));
	return -ENOSYS;
}

int main(void)
{
	struct pollfd in = {.fd = STDIN_FILENO, .events = POLLIN};
	char line[8192];

	(void)printf("ready\n");
	(void)fflush(stdout);
	for (;;) {
		char *w[MAX_WORDS], *next = line;
		size_t n = 0;
		int r;

		for (size_t i = 0; going && i < n_codes; i++)
			codes[i]();
		/* sleeps in between: many of these run side by side */
		if (poll(&in, 1, going ? 10 : -1) == 0)
			continue;
		/* one line at a time: who drives it waits for the answer */
		r = (int)read(STDIN_FILENO, line, sizeof(line) - 1);
		if (r <= 0)
			return 0;
		line[r] = '\0';
		line[strcspn(line, "\n")] = '\0';
		while (n < MAX_WORDS && next)
			w[n++] = strsep(&next, "\t");
		r = obey(w, n);
		if (r < 0)
			(void)printf("error %d %s\n", -r, strerror(-r));
		else
			(void)printf("ok\n");
		(void)fflush(stdout);
	}
}
