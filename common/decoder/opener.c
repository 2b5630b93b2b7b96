// SPDX-License-Identifier: Apache-2.0
#include "common/decoder/opener.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/escape.h"
#include "common/base/fileid.h"
#include "common/base/io.h"
#include "common/base/openat2.h"
#include "common/base/procfs.h"
#include "common/bundle/bundle.h"

struct root {
	int fd;
	enum opener_source source;
	uint64_t resolve; /* RESOLVE_*: where links may lead */
};

struct opener {
	struct opener_options options;
	int bundle_fd; /* -1 */
	/* in the order in which they are asked */
	struct root roots[4];
	size_t n_roots;
};

const char *opener_source_to_string(enum opener_source source)
{
	switch (source) {
	case OPENER_NONE:
		return "none";
	case OPENER_BUNDLE:
		return "bundle";
	case OPENER_KEPT:
		return "kept";
	case OPENER_TARGET:
		return "target";
	case OPENER_HOST:
		return "host";
	case OPENER_SYMFS:
		return "symfs";
	}
	return "unknown";
}

static int add_root(struct opener *o, int fd, enum opener_source source, uint64_t resolve)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

	if (copy < 0)
		return -errno;
	o->roots[o->n_roots++] = (struct root){copy, source, resolve};
	return 0;
}

int opener_new(const struct opener_options *options, struct opener **ret)
{
	_cleanup_(opener_freep) struct opener *o = calloc(1, sizeof(*o));
	int r = 0;

	if (!o)
		return -ENOMEM;
	o->options = *options;
	o->bundle_fd = o->options.mapped_fd = -1;
	if (options->bundle_fd >= 0) {
		o->bundle_fd = fcntl(options->bundle_fd, F_DUPFD_CLOEXEC, 3);
		if (o->bundle_fd < 0)
			return -errno;
	}
	if (options->mapped_fd >= 0) {
		o->options.mapped_fd = fcntl(options->mapped_fd, F_DUPFD_CLOEXEC, 3);
		if (o->options.mapped_fd < 0)
			return -errno;
	}
	if (options->images_fd >= 0)
		r = add_root(o, options->images_fd, OPENER_BUNDLE, RESOLVE_BENEATH);
	if (r == 0 && options->symfs_fd >= 0)
		r = add_root(o, options->symfs_fd, OPENER_SYMFS, RESOLVE_BENEATH);
	if (r == 0 && options->root_fd >= 0)
		r = add_root(o, options->root_fd, options->root_source, RESOLVE_IN_ROOT);
	if (r < 0)
		return r;
	*ret = take_ptr(o);
	return 0;
}

void opener_free(struct opener *o)
{
	if (!o)
		return;
	for (size_t i = 0; i < o->n_roots; i++)
		close_fdp(&o->roots[i].fd);
	close_fdp(&o->bundle_fd);
	close_fdp(&o->options.mapped_fd);
	free(o);
}

/*
 * What an O_PATH descriptor stands for, opened for reading if it is a regular file: to open a
 * device does something.
 */
static int open_found(int found, int *ret_fd, struct stat *ret_stat)
{
	char name[32];
	int fd;

	if (fstat(found, ret_stat) < 0)
		return -errno;
	if (!S_ISREG(ret_stat->st_mode))
		return -EMEDIUMTYPE;
	(void)snprintf(name, sizeof(name), "/proc/self/fd/%d", found);
	fd = open(name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	if (fd < 0)
		return -errno;
	*ret_fd = fd;
	return 0;
}

static int open_in(int root, const char *path, uint64_t resolve, int *ret_fd, struct stat *ret_stat)
{
	_cleanup_close_ int found =
		openat2_fd(root, path, O_PATH, 0, RESOLVE_NO_MAGICLINKS | resolve);

	return found < 0 ? found : open_found(found, ret_fd, ret_stat);
}

/* ---- one attempt */

struct attempt {
	struct opener *o;
	const struct file_request *request;
	struct opener_answer *answer;
	/* the reason to tell, the weightiest so far */
	int weight;
	/*
	 * found, but not the file of the record: given where nothing better is found and that is
	 * allowed
	 */
	int changed_fd;
	enum opener_source changed_source;
	struct stat changed_stat;
	char changed_path[FILE_REQUEST_MAX_PATH + 1];
};

enum { WEIGHT_ABSENT = 1, WEIGHT_ERROR, WEIGHT_REFUSED, WEIGHT_CHANGED };

static void _printf_(3, 4) because(struct attempt *a, int weight, const char *fmt, ...)
{
	va_list ap;
	int n;

	if (weight <= a->weight)
		return;
	a->weight = weight;
	va_start(ap, fmt);
	n = vsnprintf(a->answer->why, sizeof(a->answer->why), fmt, ap);
	va_end(ap);
	(void)n;
}

static bool elf_magic(int fd)
{
	char magic[4];

	return io_pread_full(fd, magic, sizeof(magic), 0) == sizeof(magic) &&
	       !memcmp(magic, "\177ELF", 4);
}

/*
 * Code in another format, or a dump of memory. A decoder that lies must not get any file that its
 * user can read: so it is one that the user has put where objects are looked for, or, offline, the
 * very one that the record names by its inode. Numbers of inodes can be guessed, so a daemon
 * answers with no such file of its machine.
 */
static bool is_flat_code(const struct attempt *a, int fd, const struct stat *st, bool world)
{
	const struct file_request *request = a->request;

	return request->kind == FILE_REQUEST_OBJECT && request->build_id_len == 0 &&
	       (!world || (!a->o->options.strict && request->ino != 0 &&
			   fileid_is_mapped(fd, st, request->maj, request->min, request->ino)));
}

static void remember(char *dst, const char *path)
{
	(void)snprintf(dst, FILE_REQUEST_MAX_PATH + 1, "%s", path);
}

/* Takes over the fd. True: it is the answer. */
static bool judge(struct attempt *a, enum opener_source source, const char *path, int fd,
		  const struct stat *st)
{
	_cleanup_close_ int owned = fd;
	const bool perfmap = a->request->kind == FILE_REQUEST_PERFMAP,
		   world = source == OPENER_TARGET || source == OPENER_HOST;
	const struct opener_options *options = &a->o->options;
	const bool flat = !perfmap && !elf_magic(fd);
	const uint64_t max = perfmap ? OPENER_MAX_PERFMAP
			     : flat  ? OPENER_MAX_FLAT
				     : OPENER_MAX_FILE;

	if (st->st_size < 0 || (uint64_t)st->st_size > max) {
		because(a, WEIGHT_REFUSED, "the file is too large");
		return false;
	}
	if (perfmap && world && st->st_uid != options->uid) {
		/* anybody may write to /tmp: names from somebody else's file would be lies */
		because(a, WEIGHT_REFUSED, "the perf map belongs to uid %u", st->st_uid);
		return false;
	}
	if (flat && !is_flat_code(a, fd, st, world)) {
		because(a, WEIGHT_REFUSED, "not an ELF file");
		return false;
	}
	/*
	 * Copies in a bundle or a tree have other inodes; their build id decides, in the decoder.
	 */
	if (a->request->kind == FILE_REQUEST_OBJECT && world) {
		if (a->request->ino == 0 && options->strict) {
			because(a, WEIGHT_REFUSED, "the record does not say the file's inode");
			return false;
		}
		if (a->request->ino != 0 &&
		    !fileid_is_mapped(fd, st, a->request->maj, a->request->min, a->request->ino)) {
			because(a, WEIGHT_CHANGED, "another file is at this path now");
			if (!options->strict && a->changed_fd < 0) {
				a->changed_fd = take_fd(&owned);
				a->changed_source = source;
				a->changed_stat = *st;
				remember(a->changed_path, path);
			}
			return false;
		}
	}
	a->answer->fd = take_fd(&owned);
	a->answer->source = source;
	a->answer->stat = *st;
	remember(a->answer->path, path);
	return true;
}

static void because_errno(struct attempt *a, int r)
{
	if (r == -ENOENT || r == -ENOTDIR)
		because(a, WEIGHT_ABSENT, "no such file");
	else if (r == -EXDEV || r == -ELOOP)
		because(a, WEIGHT_REFUSED,
			"the path leads out of its root or over a forbidden link");
	else if (r == -EMEDIUMTYPE)
		because(a, WEIGHT_REFUSED, "not a regular file");
	else
		because(a, WEIGHT_ERROR, "cannot be opened: %s", strerror(-r));
}

/* `path` without leading slashes, in one root. */
static bool try_in(struct attempt *a, const struct root *root, const char *path)
{
	uint64_t resolve = root->resolve |
			   (a->request->kind == FILE_REQUEST_PERFMAP ? RESOLVE_NO_SYMLINKS : 0);
	struct stat st;
	int fd, r;

	while (*path == '/')
		path++;
	if (!*path)
		return false;
	r = open_in(root->fd, path, resolve, &fd, &st);
	if (r == 0)
		return judge(a, root->source, path, fd, &st);
	because_errno(a, r);
	return false;
}

static bool try_all(struct attempt *a, const char *path)
{
	for (size_t i = 0; i < a->o->n_roots; i++)
		if (try_in(a, &a->o->roots[i], path))
			return true;
	return false;
}

/* ---- kinds */

/* The mapping itself names the file, whatever has become of its path. */
static bool try_mapped(struct attempt *a)
{
	struct stat st;
	int fd, r;

	if (a->o->options.mapped_fd < 0)
		return false;
	r = open_found(a->o->options.mapped_fd, &fd, &st);
	if (r == 0)
		return judge(a, OPENER_TARGET, "", fd, &st);
	because_errno(a, r);
	return false;
}

static bool open_object(struct attempt *a)
{
	const struct file_request *request = a->request;
	char path[FILE_REQUEST_MAX_PATH + 1];
	size_t len;

	for (size_t i = 0; request->ino && i < a->o->n_roots; i++) {
		/*
		 * where a bundle keeps the second file of one path; see daemon/snapshot/objects.c
		 */
		if (a->o->roots[i].source != OPENER_BUNDLE)
			continue;
		(void)snprintf(path, sizeof(path), ".inode/%u-%u-%llu", request->maj, request->min,
			       (unsigned long long)request->ino);
		if (try_in(a, &a->o->roots[i], path))
			return true;
	}
	a->weight = 0;
	for (size_t i = 0; request->path[0] == '/' && i < a->o->n_roots; i++)
		if (a->o->roots[i].source == OPENER_BUNDLE &&
		    try_in(a, &a->o->roots[i], request->path))
			return true;
	if (try_mapped(a))
		return true;
	if (request->path[0] != '/') {
		because(a, WEIGHT_REFUSED, "the mapping is of no file");
		return false;
	}
	(void)snprintf(path, sizeof(path), "%s", request->path);
	len = strlen(path);
	/* /proc/PID/maps says this of an unlinked file; at most another one can be there now */
	path[proc_path_len(path, len)] = '\0';
	return try_all(a, path);
}

static bool by_build_id(struct attempt *a)
{
	char path[64 + FILE_REQUEST_MAX_BUILD_ID * 2], *p = path;
	const struct file_request *request = a->request;

	if (request->build_id_len < 2)
		return false;
	p += snprintf(p, sizeof(path), "usr/lib/debug/.build-id/%02x/", request->build_id[0]);
	for (size_t i = 1; i < request->build_id_len; i++)
		p += sprintf(p, "%02x", request->build_id[i]);
	(void)strcpy(p, ".debug");
	return try_all(a, path);
}

/* dirname(object)/between/name under all roots. */
static bool beside(struct attempt *a, const char *before, const char *between, const char *name)
{
	const char *object = a->request->object, *slash = strrchr(object, '/');
	char path[FILE_REQUEST_MAX_PATH + 1];
	int n;

	if (object[0] != '/' || !slash)
		return false;
	n = snprintf(path, sizeof(path), "%s%.*s/%s%s", before, (int)(slash - object), object,
		     between, name);
	return n > 0 && (size_t)n < sizeof(path) && try_all(a, path);
}

static bool open_debug(struct attempt *a)
{
	const char *name = a->request->path;

	if (by_build_id(a))
		return true;
	/* .gnu_debuglink holds a file name, and a name is all that it may be */
	if (!*name || strchr(name, '/') || !strcmp(name, ".."))
		return false;
	return beside(a, "", "", name) || beside(a, "", ".debug/", name) ||
	       beside(a, "/usr/lib/debug", "", name);
}

static bool open_dwz(struct attempt *a)
{
	const char *path = a->request->path;

	if (by_build_id(a))
		return true;
	if (path[0] == '/')
		return try_all(a, path);
	/* relative to the debug file; its ".." stop at the root */
	return *path && beside(a, "", "", path);
}

static bool open_perfmap(struct attempt *a)
{
	char path[64];

	if (a->request->nspid <= 0) {
		because(a, WEIGHT_ERROR, "the process's own number is not known");
		return false;
	}
	(void)snprintf(path, sizeof(path), "tmp/perf-%d.map", a->request->nspid);
	return try_all(a, path);
}

/* rings/<digits>-<digits>.ring, or with a third number: what a daemon writes, and nothing else. */
/* BUNDLE_GO, or go-PID.trace. */
static bool is_go_name(const char *path)
{
	size_t digits;

	if (strcmp(path, BUNDLE_GO) == 0)
		return true;
	if (strncmp(path, "go-", 3) != 0)
		return false;
	digits = strspn(path + 3, "0123456789");
	return digits > 0 && digits <= 20 && strcmp(path + 3 + digits, ".trace") == 0;
}

static bool is_ring_name(const char *path)
{
	const char *p = path;
	unsigned int numbers = 0;

	if (strncmp(p, BUNDLE_RINGS "/", strlen(BUNDLE_RINGS "/")) != 0)
		return false;
	p += strlen(BUNDLE_RINGS "/");
	for (;;) {
		size_t digits = strspn(p, "0123456789");

		if (digits == 0 || digits > 20)
			return false;
		numbers++;
		p += digits;
		if (*p != '-')
			break;
		p++;
	}
	return (numbers == 2 || numbers == 3) && strcmp(p, ".ring") == 0;
}

static bool open_ring(struct attempt *a)
{
	const struct file_request *request = a->request;
	_cleanup_close_ int fd = -1;
	struct stat st;
	int r;

	if (a->o->bundle_fd < 0) {
		because(a, WEIGHT_ABSENT, "there is no bundle that could have it");
		return false;
	}
	if (!is_ring_name(request->path) && !is_go_name(request->path)) {
		because(a, WEIGHT_REFUSED, "not the name of event rings or of a Go trace");
		return false;
	}
	r = open_in(a->o->bundle_fd, request->path, RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS, &fd,
		    &st);
	if (r == 0 && (st.st_size < 0 || (uint64_t)st.st_size > OPENER_MAX_FILE))
		r = -EFBIG;
	if (r < 0) {
		because_errno(a, r);
		return false;
	}
	a->answer->stat = st;
	a->answer->fd = take_fd(&fd);
	a->answer->source = OPENER_BUNDLE;
	remember(a->answer->path, request->path);
	return true;
}

int opener_open(struct opener *o, const struct file_request *request, struct opener_answer *ret)
{
	struct attempt a = {.o = o, .request = request, .answer = ret, .changed_fd = -1};
	bool found = false;
	char why[sizeof(ret->why)];

	*ret = (struct opener_answer){.fd = -1};
	switch (request->kind) {
	case FILE_REQUEST_OBJECT:
		found = open_object(&a);
		break;
	case FILE_REQUEST_DEBUG:
		found = open_debug(&a);
		break;
	case FILE_REQUEST_DWZ:
		found = open_dwz(&a);
		break;
	case FILE_REQUEST_PERFMAP:
		found = open_perfmap(&a);
		break;
	case FILE_REQUEST_RING:
		found = open_ring(&a);
		break;
	}
	if (!found && a.changed_fd >= 0) {
		ret->fd = take_fd(&a.changed_fd);
		ret->source = a.changed_source;
		ret->changed = true;
		ret->stat = a.changed_stat;
		remember(ret->path, a.changed_path);
	}
	close_fdp(&a.changed_fd);
	if (ret->fd < 0 && !ret->why[0])
		(void)snprintf(ret->why, sizeof(ret->why), "nowhere to look for it");
	if (ret->fd >= 0 && !ret->changed)
		ret->why[0] = '\0';
	(void)escape_text(why, sizeof(why), ret->why, strlen(ret->why));
	(void)memcpy(ret->why, why, sizeof(why));
	return 0;
}
