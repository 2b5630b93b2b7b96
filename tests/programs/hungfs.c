// SPDX-License-Identifier: Apache-2.0
/*
 * A file system that hangs, for tests/system/deputy-hung.py: FUSE without a library, one folder with one regular file
 * in it, whose bytes are those of another file. From the SIGUSR1 on it answers no operation of the given names. At the
 * next one it answers those, too.
 *
 *	hungfs PID|- DEVICE MOUNTPOINT NAME FILE [OPERATION...]
 *
 * operations: lookup, getattr, open, read, write, flush, release, statfs
 *
 * With a PID it mounts in the user and mount namespace of that process; else it is root's, and for everybody. It prints
 * "ready", then "OPERATION hangs" for each that it leaves unanswered, and ends with its input. Its end closes the
 * device, which aborts whatever hangs.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_NODE 2
#define MAX_BYTES (16u << 20)
#define MAX_WRITE 65536u
#define MAX_LEFT 256
#define MAX_LEFT_BYTES 512 /* of one: with a name, but no bytes to write */

static volatile sig_atomic_t hangs;
static int device;
static const char *name;
static uint8_t *bytes;
static size_t n_bytes;
static char **hanging;
static struct {
	_Alignas(8) uint8_t packet[MAX_LEFT_BYTES];
} left[MAX_LEFT]; /* unanswered */
static size_t n_left;

static void on_usr1(int sig)
{
	(void)sig;
	hangs = !hangs;
}

static void die(const char *what)
{
	perror(what);
	exit(1);
}

/* What takes the place of a name is answered with an error, as by any file system that cannot do it. */
static const char *name_of(uint32_t opcode)
{
	switch (opcode) {
	case FUSE_LOOKUP:
		return "lookup";
	case FUSE_GETATTR:
		return "getattr";
	case FUSE_OPEN:
		return "open";
	case FUSE_READ:
		return "read";
	case FUSE_WRITE:
		return "write";
	case FUSE_FLUSH:
		return "flush";
	case FUSE_RELEASE:
		return "release";
	case FUSE_STATFS:
		return "statfs";
	default:
		return "other";
	}
}

static void answer(const struct fuse_in_header *in, int error, const void *body, size_t n)
{
	static uint8_t packet[sizeof(struct fuse_out_header) + MAX_WRITE];
	struct fuse_out_header *out = (struct fuse_out_header *)packet;

	*out = (struct fuse_out_header){.len = (uint32_t)(sizeof(*out) + n), .error = -error, .unique = in->unique};
	if (n)
		memcpy(packet + sizeof(*out), body, n);
	/* ENOENT: who asked has been killed meanwhile */
	if (write(device, packet, out->len) < 0 && errno != ENOENT)
		die("write");
}

static struct fuse_attr attr_of(uint64_t node)
{
	if (node == FILE_NODE)
		return (struct fuse_attr){.ino = node, .size = n_bytes, .blocks = n_bytes / 512 + 1, .mode = S_IFREG | 0755,
			.nlink = 1, .uid = getuid(), .gid = getgid(), .blksize = 4096};
	return (struct fuse_attr){.ino = node, .mode = S_IFDIR | 0755, .nlink = 2, .uid = getuid(), .gid = getgid(), .blksize = 4096};
}

static void serve(const struct fuse_in_header *in, const void *body)
{
	const struct fuse_init_in *init = body;
	const struct fuse_read_in *read_in = body;
	const struct fuse_write_in *write_in = body;
	struct fuse_write_out written = {0};
	struct fuse_init_out init_out = {.major = FUSE_KERNEL_VERSION, .minor = FUSE_KERNEL_MINOR_VERSION, .max_write = MAX_WRITE,
		.max_background = 8, .congestion_threshold = 6};
	/* nothing stays valid: each look at the file is a question here */
	struct fuse_entry_out entry = {.nodeid = FILE_NODE, .attr = attr_of(FILE_NODE)};
	struct fuse_attr_out attr = {.attr = attr_of(in->nodeid)};
	struct fuse_open_out opened = {.open_flags = 0};
	struct fuse_statfs_out statfs_out = {.st = {.bsize = 4096, .namelen = 255}};
	size_t n;

	switch (in->opcode) {
	case FUSE_INIT:
		init_out.max_readahead = init->max_readahead;
		answer(in, 0, &init_out, sizeof(init_out));
		break;
	case FUSE_LOOKUP:
		if (in->nodeid == FUSE_ROOT_ID && !strcmp(body, name))
			answer(in, 0, &entry, sizeof(entry));
		else
			answer(in, ENOENT, NULL, 0);
		break;
	case FUSE_GETATTR:
		answer(in, 0, &attr, sizeof(attr));
		break;
	case FUSE_OPEN:
		answer(in, 0, &opened, sizeof(opened));
		break;
	case FUSE_READ:
		n = read_in->offset < n_bytes ? n_bytes - read_in->offset : 0;
		n = n < read_in->size ? n : read_in->size;
		n = n < MAX_WRITE ? n : MAX_WRITE;
		answer(in, 0, n ? bytes + read_in->offset : NULL, n);
		break;
	case FUSE_WRITE:
		written.size = write_in->size; /* forgotten */
		answer(in, 0, &written, sizeof(written));
		break;
	case FUSE_STATFS:
		answer(in, 0, &statfs_out, sizeof(statfs_out));
		break;
	case FUSE_FLUSH:
	case FUSE_RELEASE:
		answer(in, 0, NULL, 0);
		break;
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		break; /* these have no answer; who is interrupted waits on, as with a dead server */
	default:
		answer(in, ENOSYS, NULL, 0);
	}
}

static void leave(const void *packet, size_t n)
{
	if (n_left < MAX_LEFT)
		memcpy(left[n_left++].packet, packet, n < MAX_LEFT_BYTES ? n : MAX_LEFT_BYTES);
}

static void serve_left(void)
{
	for (size_t i = 0; i < n_left; i++) {
		const struct fuse_in_header *in = (const struct fuse_in_header *)left[i].packet;

		serve(in, in + 1);
	}
	n_left = 0;
}

static bool is_hung(uint32_t opcode)
{
	for (char **h = hanging; hangs && *h; h++) {
		if (strcmp(*h, name_of(opcode)) != 0)
			continue;
		(void)printf("%s hangs\n", *h);
		(void)fflush(stdout);
		return true;
	}
	return false;
}

static void load(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n;

	bytes = malloc(MAX_BYTES);
	if (fd < 0 || !bytes)
		die(path);
	while ((n = read(fd, bytes + n_bytes, MAX_BYTES - n_bytes)) > 0)
		n_bytes += (size_t)n;
	(void)close(fd);
}

static void join(const char *pid)
{
	static const char *const kinds[] = {"user", "mnt"};
	char path[64];
	int fds[2];

	for (size_t i = 0; i < 2; i++) {
		(void)snprintf(path, sizeof(path), "/proc/%s/ns/%s", pid, kinds[i]);
		fds[i] = open(path, O_RDONLY | O_CLOEXEC);
		if (fds[i] < 0)
			die(path);
	}
	for (size_t i = 0; i < 2; i++)
		if (setns(fds[i], 0) < 0)
			die("setns");
}

int main(int argc, char **argv)
{
	static uint8_t packet[FUSE_MIN_READ_BUFFER + MAX_WRITE];
	struct sigaction sa = {.sa_handler = on_usr1, .sa_flags = SA_RESTART};
	struct pollfd p[2];
	bool own;
	char options[128];

	if (argc < 6) {
		(void)fprintf(stderr, "usage: %s PID|- DEVICE MOUNTPOINT NAME FILE [OPERATION...]\n", argv[0]);
		return 2;
	}
	name = argv[4];
	hanging = argv + 6;
	own = strcmp(argv[1], "-") != 0;
	load(argv[5]);
	if (own)
		join(argv[1]);
	if (sigaction(SIGUSR1, &sa, NULL) < 0)
		die("sigaction");
	/* the kernel wants it opened in the namespace that mounts it */
	device = open(argv[2], O_RDWR | O_CLOEXEC);
	if (device < 0)
		die(argv[2]);
	(void)snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=%u,group_id=%u%s", device, getuid(), getgid(),
		own ? "" : ",allow_other");
	if (mount("hungfs", argv[3], "fuse", MS_NOSUID | MS_NODEV, options) < 0)
		die("mount");
	(void)printf("ready\n");
	(void)fflush(stdout);
	p[0] = (struct pollfd){.fd = device, .events = POLLIN};
	p[1] = (struct pollfd){.fd = STDIN_FILENO, .events = POLLIN};
	for (;;) {
		const struct fuse_in_header *in = (const struct fuse_in_header *)packet;
		ssize_t n;

		const int ready = poll(p, 2, n_left ? 100 : -1); /* the signal may have come before */

		if (!hangs)
			serve_left();
		if (ready <= 0)
			continue;
		if (p[1].revents)
			return 0;
		n = read(device, packet, sizeof(packet));
		if (n < 0 && (errno == EINTR || errno == EAGAIN || errno == ENOENT))
			continue;
		if (n < (ssize_t)sizeof(*in))
			return 0; /* ENODEV: unmounted */
		if (is_hung(in->opcode))
			leave(in, (size_t)n);
		else
			serve(in, in + 1);
	}
}
