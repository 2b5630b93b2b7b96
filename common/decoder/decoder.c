// SPDX-License-Identifier: Apache-2.0
#include "common/decoder/decoder.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/decoder/dying.h"
#include "common/decoder/spawn.h"

/* Answers that wait for room in the link; a decoder asks one or a few at a time. */
#define MAX_QUEUED 64
/* Packets handled in one dispatch, so that a chatty decoder cannot hold the loop. */
#define BUDGET 64

struct queued {
	struct file_answer file;
	int fd;
};

struct decoder {
	struct decoder_callbacks callbacks;
	void *arg;
	pid_t pid; /* -1 once reaped or given up */
	struct dying_child *place; /* for it, should it not die */
	int link_fd, stderr_fd, pidfd, grace_fd;
	bool killed;
	bool link_ended; /* nothing more comes; it ought to exit */
	const char *broken; /* why we killed it, if it broke the rules */
	struct queued queue[MAX_QUEUED];
	size_t n_queued;
	struct decoder_packet result_packet;
	struct decoder_result result;
	bool have_result;
	uint64_t requests, found;
	uint32_t last_req;			/* that it asked */
	uint32_t unjudged[DECODER_MAX_UNJUDGED]; /* requests whose file it has */
	size_t n_unjudged;
	char err[DECODER_MAX_STDERR]; /* the last of it, a ring */
	uint64_t err_total;
};

/* ---- starting */

int decoder_start(const struct decoder_options *options, struct json_object *job, const int *fds,
		  size_t n_fds, const struct decoder_callbacks *callbacks, void *arg,
		  struct decoder **ret)
{
	_cleanup_(decoder_freep) struct decoder *d = calloc(1, sizeof(*d));
	int pair[2], pipe_fds[2], r;
	_cleanup_close_ int theirs = -1, err = -1;

	if (!d)
		return -ENOMEM;
	d->callbacks = *callbacks;
	d->arg = arg;
	d->pid = -1;
	d->link_fd = d->stderr_fd = d->pidfd = d->grace_fd = -1;
	if (decoder_dying_full(options->uid))
		return -EBUSY;
	d->place = dying_child_new(options->uid);
	if (!d->place)
		return -ENOMEM;
	d->grace_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (d->grace_fd < 0)
		return -errno;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return -errno;
	d->link_fd = pair[0];
	theirs = pair[1];
	if (pipe2(pipe_fds, O_CLOEXEC) < 0)
		return -errno;
	d->stderr_fd = pipe_fds[0];
	err = pipe_fds[1];
	/* our end only: the decoder may block on its stderr as others do */
	if (fcntl(d->stderr_fd, F_SETFL, O_NONBLOCK) < 0)
		return -errno;
	r = decoder_spawn(options, theirs, err, &d->pid);
	if (r < 0)
		return r;
	/* Not reaped yet, so the number is still this process's. */
	d->pidfd = (int)syscall(SYS_pidfd_open, d->pid, 0);
	if (d->pidfd < 0)
		return -errno;
	r = decoder_packet_send(d->link_fd, DECODER_PACKET_JOB, job, fds, n_fds, MSG_DONTWAIT);
	if (r < 0 && r != -EPIPE) /* EPIPE: exec failed or it died; on_end reports it */
		return r;
	*ret = take_ptr(d);
	return 0;
}

static void let_die(struct decoder *d)
{
	if (d->pid > 0) /* reaped when it dies */
		decoder_dying_add(take_ptr(d->place), d->pid, take_fd(&d->pidfd));
	d->pid = -1;
}

void decoder_free(struct decoder *d)
{
	if (!d)
		return;
	let_die(d);
	dying_child_free(d->place);
	close_fdp(&d->link_fd);
	close_fdp(&d->stderr_fd);
	close_fdp(&d->pidfd);
	close_fdp(&d->grace_fd);
	for (size_t i = 0; i < d->n_queued; i++)
		close_fdp(&d->queue[i].fd);
	decoder_packet_fini(&d->result_packet);
	free(d);
}

pid_t decoder_pid(const struct decoder *d)
{
	return d->pid;
}

/* ---- the end of it */

static void kill_now(struct decoder *d)
{
	const struct itimerspec grace = {
		.it_value = {.tv_sec = DECODER_GRACE_MS / 1000,
			     .tv_nsec = DECODER_GRACE_MS % 1000 * 1000000L}};
	struct itimerspec running;

	if (d->pid <= 0)
		return;
	(void)kill(d->pid, SIGKILL);
	/* from the first time on */
	if (timerfd_gettime(d->grace_fd, &running) == 0 && !running.it_value.tv_sec &&
	    !running.it_value.tv_nsec)
		(void)timerfd_settime(d->grace_fd, 0, &grace, NULL);
}

void decoder_kill(struct decoder *d)
{
	d->killed = true;
	kill_now(d);
}

static void kill_broken(struct decoder *d, const char *why)
{
	if (!d->broken)
		d->broken = why;
	kill_now(d);
}

void decoder_cancel(struct decoder *d)
{
	struct json_object *body = json_object_new_object();

	/*
	 * A decoder that the message does not reach is killed. One that ignores it meets the
	 * caller's timeout.
	 */
	if (!body ||
	    decoder_packet_send(d->link_fd, DECODER_PACKET_CANCEL, body, NULL, 0, MSG_DONTWAIT) < 0)
		decoder_kill(d);
	json_object_put(body);
}

/* The last of stderr in one piece, escaped; newlines become "; ". */
static void stderr_text(const struct decoder *d, char *ret, size_t size)
{
	char raw[DECODER_MAX_STDERR];
	size_t n = d->err_total < sizeof(raw) ? (size_t)d->err_total : sizeof(raw), len = 0;
	uint64_t first = d->err_total - n;

	for (size_t i = 0; i < n; i++)
		raw[i] = d->err[(first + i) % sizeof(d->err)];
	while (n > 0 && (raw[n - 1] == '\n' || raw[n - 1] == ' '))
		n--;
	for (size_t i = 0, start = 0; i <= n && len + 4 < size; i++) {
		if (i < n && raw[i] != '\n')
			continue;
		if (i > start) {
			if (len > 0) {
				memcpy(ret + len, "; ", 3);
				len += 2;
			}
			len += escape_text(ret + len, size - len, raw + start, i - start);
		}
		start = i + 1;
	}
	ret[len] = '\0';
}

static void describe(const struct decoder *d, int status, enum decoder_end end, char *ret,
		     size_t size)
{
	if (end == DECODER_DONE)
		ret[0] = '\0';
	else if (end == DECODER_REFUSED)
		(void)snprintf(ret, size, "%s", d->result.error);
	else if (d->broken)
		(void)snprintf(ret, size, "the decoder was killed: %s", d->broken);
	else if (end == DECODER_KILLED)
		(void)snprintf(ret, size, "the decoder was killed%s",
			       d->pid > 0 ? " and has not died yet" : "");
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXCPU)
		(void)snprintf(ret, size, "the decoder used up its processor time");
	else if (WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ)
		(void)snprintf(ret, size, "the decoder's output passed its limit");
	else if (WIFSIGNALED(status))
		(void)snprintf(ret, size, "the decoder died of signal %d (%s)", WTERMSIG(status),
			       strsignal(WTERMSIG(status)));
	else if (WIFEXITED(status) && WEXITSTATUS(status) == DECODER_EXEC_FAILED)
		(void)snprintf(ret, size, "the decoder could not be started");
	else
		(void)snprintf(ret, size, "the decoder ended with exit code %d and no result",
			       WIFEXITED(status) ? WEXITSTATUS(status) : -1);
}

static void ended(struct decoder *d, int status, const struct rusage *usage)
{
	struct decoder_outcome o = {.status = status,
				    .undead = d->pid > 0,
				    .requests = d->requests,
				    .found = d->found};
	char message[640], err[DECODER_MAX_STDERR * 2];

	if (d->killed)
		o.end = DECODER_KILLED;
	else if (d->broken || !d->have_result || !WIFEXITED(status))
		o.end = DECODER_CRASHED;
	else if (!d->result.ok)
		o.end = DECODER_REFUSED;
	else if (WEXITSTATUS(status) != 0)
		/* it said ok and then was not: its output cannot be trusted */
		o.end = DECODER_CRASHED;
	else
		o.end = DECODER_DONE;
	if (o.end == DECODER_DONE || o.end == DECODER_REFUSED)
		o.result = &d->result;
	describe(d, status, o.end, message, sizeof(message));
	stderr_text(d, err, sizeof(err));
	o.message = message;
	o.stderr_text = err;
	o.cpu_ns =
		((uint64_t)usage->ru_utime.tv_sec + (uint64_t)usage->ru_stime.tv_sec) *
			1000000000ULL +
		((uint64_t)usage->ru_utime.tv_usec + (uint64_t)usage->ru_stime.tv_usec) * 1000ULL;
	o.max_rss_bytes = (uint64_t)usage->ru_maxrss * 1024;
	d->callbacks.on_end(d, &o, d->arg);
}

/* ---- running */

void decoder_poll(const struct decoder *d, struct pollfd ret[DECODER_N_FDS])
{
	const short out = d->n_queued ? POLLOUT : 0;

	/* what a broken one still says is not read, and would wake us until it is dead */
	ret[0] = (struct pollfd){.fd = d->link_ended || d->broken ? -1 : d->link_fd,
				 .events = (short)(POLLIN | out)};
	ret[1] = (struct pollfd){.fd = d->stderr_fd, .events = POLLIN};
	ret[2] = (struct pollfd){.fd = d->pidfd, .events = POLLIN};
	ret[3] = (struct pollfd){.fd = d->grace_fd, .events = POLLIN};
}

static void read_stderr(struct decoder *d)
{
	char buf[1024];

	for (int i = 0; d->stderr_fd >= 0 && i < BUDGET; i++) {
		ssize_t n = read(d->stderr_fd, buf, sizeof(buf));

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return;
		if (n <= 0) {
			close_fdp(&d->stderr_fd);
			return;
		}
		for (ssize_t k = 0; k < n; k++)
			d->err[d->err_total++ % sizeof(d->err)] = buf[k];
	}
}

static int send_answer(struct decoder *d, const struct file_answer *file, int fd)
{
	struct json_object *body = file_answer_to_json(file);
	int r;

	if (!body)
		return -ENOMEM;
	r = decoder_packet_send(d->link_fd, DECODER_PACKET_FILE, body, &fd, fd >= 0 ? 1 : 0,
				MSG_DONTWAIT);
	json_object_put(body);
	return r;
}

static void send_queued(struct decoder *d)
{
	size_t sent = 0;

	while (sent < d->n_queued && !d->link_ended) {
		struct queued *q = &d->queue[sent];
		int r = send_answer(d, &q->file, q->fd);

		if (r == -EAGAIN)
			break;
		close_fdp(&q->fd);
		sent++;
		if (r < 0 && r != -EPIPE)
			kill_broken(d, r == -ENOMEM ? "no memory for an answer to it"
						    : "its link failed");
	}
	if (sent == 0)
		return;
	d->n_queued -= sent;
	memmove(d->queue, d->queue + sent, d->n_queued * sizeof(d->queue[0]));
}

int decoder_answer(struct decoder *d, const struct file_answer *file, int fd)
{
	_cleanup_close_ int owned = fd;
	struct file_answer f = *file;
	int r = -EAGAIN;

	f.found = fd >= 0;
	if (d->link_fd < 0)
		return -EPIPE;
	if (f.found && d->n_unjudged == DECODER_MAX_UNJUDGED) {
		kill_broken(d, "it did not say what its files are");
		return -EPIPE;
	}
	if (d->n_queued == 0)
		r = send_answer(d, &f, owned);
	if (r == -EMFILE || r == -ETOOMANYREFS) {
		/* fds in flight are limited too: "no" is better than no answer */
		f.found = false;
		(void)snprintf(f.why, sizeof(f.why), "too many open files");
		r = send_answer(d, &f, -1);
	}
	if (r < 0 && r != -EAGAIN) {
		/* it would wait for this one until its time is up */
		if (r != -EPIPE)
			kill_broken(d, r == -ENOMEM ? "no memory for an answer to it"
						    : "its link failed");
		return -EPIPE;
	}
	if (r == -EAGAIN) {
		if (d->n_queued == MAX_QUEUED) {
			kill_broken(d, "it did not read its answers");
			return -EPIPE;
		}
		d->queue[d->n_queued].file = f;
		d->queue[d->n_queued++].fd = take_fd(&owned);
	}
	if (!f.found)
		return 0;
	d->found++;
	d->unjudged[d->n_unjudged++] = f.req;
	return 1;
}

static const char *handle_request(struct decoder *d, struct json_object *body)
{
	_cleanup_free_ struct file_request *request = NULL;

	if (++d->requests > DECODER_MAX_REQUESTS)
		return "it asked for too many files";
	request = malloc(sizeof(*request)); /* two paths: too much for the stack */
	if (!request)
		return "no memory";
	if (file_request_from_json(body, request) < 0)
		return "a request of it was malformed";
	if (request->req <= d->last_req)
		return "the numbers of its requests do not rise";
	d->last_req = request->req;
	d->callbacks.on_request(d, request, d->arg);
	return NULL;
}

static const char *handle_verdict(struct decoder *d, struct json_object *body)
{
	struct file_verdict verdict;
	size_t i = 0;

	if (file_verdict_from_json(body, &verdict) < 0)
		return "a verdict of it was malformed";
	while (i < d->n_unjudged && d->unjudged[i] != verdict.req)
		i++;
	if (i == d->n_unjudged)
		return "it judged a file that it was not given";
	d->unjudged[i] = d->unjudged[--d->n_unjudged];
	if (d->callbacks.on_verdict)
		d->callbacks.on_verdict(d, &verdict, d->arg);
	return NULL;
}

static const char *handle(struct decoder *d, struct decoder_packet *p)
{
	struct decoder_progress progress;

	if (p->n_fds > 0)
		return "it sent a descriptor";
	if (d->have_result)
		return "it sent more after its result";
	switch (p->type) {
	case DECODER_PACKET_REQUEST:
		return handle_request(d, p->body);
	case DECODER_PACKET_VERDICT:
		return handle_verdict(d, p->body);
	case DECODER_PACKET_PROGRESS:
		if (decoder_progress_from_json(p->body, &progress) < 0)
			return "a message of it was malformed";
		if (d->callbacks.on_progress)
			d->callbacks.on_progress(d, &progress, d->arg);
		return NULL;
	case DECODER_PACKET_RESULT:
		if (decoder_result_from_json(p->body, &d->result) < 0)
			return "its result was malformed";
		d->have_result = true;
		d->result_packet = *p; /* the result borrows from the body */
		p->body = NULL;
		return NULL;
	case DECODER_PACKET_JOB:
	case DECODER_PACKET_FILE:
	case DECODER_PACKET_CANCEL:
		break;
	}
	return "it sent what only a parent sends";
}

/* True when there may be more. */
static bool read_link(struct decoder *d)
{
	for (int i = 0; i < BUDGET; i++) {
		struct decoder_packet p = DECODER_PACKET_INIT;
		const char *broken;
		int r;

		if (d->broken)
			return false;
		r = decoder_packet_recv(d->link_fd, &p, MSG_DONTWAIT);
		if (r == 0)
			d->link_ended = true;
		if (r == 0 || r == -EAGAIN)
			return false;
		if (r < 0) {
			kill_broken(d, r == -ENOMEM ? "no memory for a message of it"
						    : "its messages were malformed");
			return false;
		}
		broken = handle(d, &p);
		decoder_packet_fini(&p);
		if (broken) {
			kill_broken(d, broken);
			return false;
		}
	}
	return true;
}

int decoder_dispatch(struct decoder *d)
{
	struct rusage usage = {0};
	uint64_t times;
	bool more;
	int status;
	pid_t pid;

	/*
	 * Whether it has ended is asked first: then what the link holds is all there will ever be.
	 */
	for (;;) {
		siginfo_t info = {0};

		if (waitid(P_PID, (id_t)d->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 &&
		    errno == EINTR)
			continue;
		pid = info.si_pid;
		break;
	}
	send_queued(d);
	more = read_link(d);
	read_stderr(d);
	if (pid != d->pid &&
	    io_read_full(d->grace_fd, &times, sizeof(times)) == (ssize_t)sizeof(times)) {
		/* killed long ago: what it would still say counts for nothing */
		ended(d, 0, &usage);
		return 1;
	}
	if (pid != d->pid || more)
		return 0;
	while ((pid = wait4(d->pid, &status, 0, &usage)) < 0 && errno == EINTR)
		;
	d->pid = -1;
	ended(d, status, &usage);
	return 1;
}
