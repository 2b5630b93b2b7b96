// SPDX-License-Identifier: Apache-2.0
#include "open/worker.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "common/base/io.h"
#include "open/filesystem.h"
#include "open/rights.h"

struct worker {
	uid_t uid;
	int sock;
	struct opener_request request;
	struct opener_reply answer;
};

/* The daemon does neither of these: a file system can hang who asks it. */
static void look_at_file(struct opener_reply *reply, int fd)
{
	struct statfs fs;

	reply->suid_mount = fstatfs(fd, &fs) == 0 && !((unsigned long)fs.f_flags & ST_NOSUID);
	reply->has_head = filenote_head(fd, reply->head);
}

/* What may not leave this process as a file does so as a copy. */
static int hand_over(struct worker *w)
{
	struct opener_answer *a = &w->answer.answer;
	_cleanup_close_ int fd = take_fd(&a->fd);
	int r;

	if (filesystem_is_trusted(fd, w->request.file.pid)) {
		if (w->request.file.kind == FILE_REQUEST_OBJECT)
			look_at_file(&w->answer, fd);
		a->fd = take_fd(&fd);
		return 0;
	}
	r = filesystem_copy(fd, (uint64_t)a->stat.st_size, w->request.max_copy, &a->fd);
	w->answer.copied = r == 0;
	if (r == -EFBIG)
		(void)snprintf(a->why, sizeof(a->why),
			       "too large to be copied from a file system that users can serve");
	else if (r < 0)
		(void)snprintf(a->why, sizeof(a->why), "cannot be copied: %s", strerror(-r));
	return r;
}

static void serve(struct worker *w, int root_fd, int mapped_fd)
{
	const struct opener_options options = {
		.bundle_fd = -1,
		.images_fd = -1,
		.symfs_fd = -1,
		.root_fd = root_fd,
		.root_source = OPENER_TARGET,
		.mapped_fd = mapped_fd,
		.strict = true,
		.uid = w->uid,
	};
	_cleanup_(opener_freep) struct opener *o = NULL;
	struct opener_answer *a = &w->answer.answer;
	int r;

	w->answer = (struct opener_reply){.id = w->request.id, .answer.fd = -1};
	r = opener_new(&options, &o);
	if (r == 0)
		r = opener_open(o, &w->request.file, a);
	if (r < 0)
		(void)snprintf(a->why, sizeof(a->why), "%s", strerror(-r));
	w->answer.found = a->fd >= 0 && hand_over(w) == 0;
}

/*
 * The kernel decides as it does for a debugger. Something must be read: a process that has just
 * ended has no memory, and older kernels let anybody open that.
 */
static void look_into(struct worker *w, int process_fd)
{
	_cleanup_close_ int fd = openat(process_fd, "maps", O_RDONLY | O_CLOEXEC);
	char byte;

	w->answer = (struct opener_reply){.id = w->request.id, .answer.fd = -1};
	w->answer.may = fd >= 0 && read(fd, &byte, 1) == 1;
}

static bool is_sound(const struct opener_request *q, ssize_t len, size_t n_fds)
{
	const struct file_request *n = &q->file;

	if (len == sizeof(*q) && q->fds == OPENER_FD_PROCESS)
		return n_fds == 1;
	return len == sizeof(*q) && n_fds == (size_t)__builtin_popcount(q->fds) &&
	       !(q->fds & ~3U) && memchr(n->path, '\0', sizeof(n->path)) &&
	       memchr(n->object, '\0', sizeof(n->object)) &&
	       n->build_id_len <= sizeof(n->build_id) && n->kind >= FILE_REQUEST_OBJECT &&
	       n->kind <= FILE_REQUEST_PERFMAP;
}

/* False at the end. */
static bool step(struct worker *w)
{
	int fds[2] = {-1, -1}, root = -1, mapped = -1, *next = fds;
	size_t n_fds = 0;
	ssize_t n = io_recv_fds(w->sock, &w->request, sizeof(w->request), fds, ARRAY_SIZE(fds),
				&n_fds, 0);
	bool going = n > 0 && is_sound(&w->request, n, n_fds);

	if (going) {
		root = w->request.fds & OPENER_FD_ROOT ? *next++ : -1;
		mapped = w->request.fds & OPENER_FD_MAPPED ? *next : -1;
		if (w->request.fds == OPENER_FD_PROCESS)
			look_into(w, fds[0]);
		else
			serve(w, root, mapped);
		going = io_send_fds(w->sock, &w->answer, sizeof(w->answer), &w->answer.answer.fd,
				    w->answer.found, 0) > 0;
		close_fdp(&w->answer.answer.fd);
	}
	for (size_t i = 0; n > 0 && i < n_fds; i++)
		(void)close_fd(fds[i]);
	return going;
}

void worker_run(const struct opener_command *start, int sock)
{
	static struct worker w;
	const struct rlimit core = {0};
	int r;

	w.uid = start->uid;
	w.sock = sock;
	(void)prctl(PR_SET_NAME, "tracerd-open");
	(void)setrlimit(RLIMIT_CORE, &core);
	r = rights_become(start->uid, start->gid, start->groups, start->n_groups);
	/*
	 * The change of rights has taken it away. If the front has ended before, the socket says
	 * so.
	 */
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (r == 0)
		r = rights_filter();
	/* One that must not open anything ends; the daemon says that its files cannot be opened. */
	while (r == 0 && step(&w))
		;
	_exit(r < 0);
}
