// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/opening.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/socket.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/control/json.h"
#include "daemon/target/opener_process.h"

#define DEADLINE_S 3	  /* for one file */
#define IDLE_S 10	  /* an idle worker ends after it */
#define WORKERS_MAX 64
#define WORKERS_UID_MAX 8 /* of one user, who can have many sets of groups; root may have all */
#define STUCK_MAX 2	  /* workers of one user that hang */
#define WAITING_MAX 4096  /* requests of all users */
#define WAITING_UID_MAX 1536 /* of one user: more than the files that one target keeps open */
#define DELIVER_MAX 64	  /* refusals delivered in one turn of the loop */

struct opening {
	TAILQ_ENTRY(opening) entry; /* of its worker, or of openings.refused */
	struct openings *openings;
	struct worker *worker; /* NULL: refused */
	opening_fn fn;	       /* NULL: cancelled while a worker has it */
	void *arg;
	uint64_t max_copy;
	int root_fd, mapped_fd, process_fd;
	bool asks; /* for no file */
	const char *why; /* static; where refused */
	struct file_request file;
};

struct worker {
	LIST_ENTRY(worker) entry;
	struct openings *openings;
	struct cred *cred;
	uint32_t number;
	int sock;
	struct event *readable, *timer;
	TAILQ_HEAD(, opening) queue; /* the first is with the worker if `busy` */
	unsigned int n_queued;
	bool busy, stuck, proven;    /* proven: it has answered, so it has the rights */
	uint32_t request;
};

struct openings {
	struct event_base *base;
	int front_fd; /* -1: none */
	struct event *front_end, *deliver;
	char lack[96]; /* why there is none; "" */
	LIST_HEAD(, worker) workers;
	TAILQ_HEAD(opening_list, opening) refused;
	unsigned int n_workers, n_stuck, n_waiting;
	uint32_t last_number, last_request;
	uint64_t opened, copied, missing, timeouts;
};

/* ---- one request */

static void opening_free(struct opening *p)
{
	p->openings->n_waiting--;
	close_fdp(&p->root_fd);
	close_fdp(&p->mapped_fd);
	close_fdp(&p->process_fd);
	free(p);
}

static void refuse(struct opening *p, const char *why)
{
	struct openings *o = p->openings;

	p->why = why;
	TAILQ_INSERT_TAIL(&o->refused, p, entry);
	event_active(o->deliver, EV_TIMEOUT, 0);
}

static void on_deliver(evutil_socket_t fd, short what, void *arg)
{
	struct openings *o = arg;
	struct opening *p;

	for (unsigned int n = 0; n < DELIVER_MAX && (p = TAILQ_FIRST(&o->refused)) != NULL; n++) {
		struct opener_reply a = {.answer.fd = -1};
		opening_fn fn = p->fn;
		void *fn_arg = p->arg;

		(void)snprintf(a.answer.why, sizeof(a.answer.why), "%s", p->why);
		TAILQ_REMOVE(&o->refused, p, entry);
		o->missing += !p->asks;
		opening_free(p);
		if (fn)
			fn(fn_arg, &a, -1);
	}
	if (!TAILQ_EMPTY(&o->refused))
		event_active(o->deliver, EV_TIMEOUT, 0);
}

/* ---- workers */

static void queue_put(struct worker *w, struct opening *p)
{
	p->worker = w;
	TAILQ_INSERT_TAIL(&w->queue, p, entry);
	w->n_queued++;
}

static struct opening *queue_take(struct opening *p)
{
	struct worker *w = p->worker;

	TAILQ_REMOVE(&w->queue, p, entry);
	w->n_queued--;
	p->worker = NULL;
	return p;
}

static void command(const struct openings *o, struct opener_command *c, int *fd)
{
	ssize_t r = 0;

	if (o->front_fd >= 0)
		r = io_send_fds(o->front_fd, c, opener_command_size(c->n_groups), fd, fd ? 1 : 0,
				MSG_DONTWAIT);
	if (r < 0)
		log_debug("tracerd-open takes no command: %s", strerror((int)-r));
}

static void worker_free(struct worker *w)
{
	struct openings *o = w->openings;
	struct opening *p;

	while ((p = TAILQ_FIRST(&w->queue)) != NULL)
		opening_free(queue_take(p));
	LIST_REMOVE(w, entry);
	o->n_workers--;
	if (w->stuck)
		o->n_stuck--;
	if (w->readable)
		event_free(w->readable);
	if (w->timer)
		event_free(w->timer);
	(void)close_fd(w->sock);
	(void)cred_unref(w->cred);
	free(w);
}

/* Sends the next of the queue; without one the worker may end after a while. */
static void send_next(struct worker *w)
{
	struct opening *p = TAILQ_FIRST(&w->queue);
	struct timeval wait = {.tv_sec = p ? DEADLINE_S : IDLE_S};
	struct opener_request q;
	ssize_t sent;
	size_t n = 0;
	int fds[3];

	(void)event_add(w->timer, &wait);
	if (!p)
		return;
	memset(&q, 0, sizeof(q));
	q.id = w->request = ++w->openings->last_request;
	q.max_copy = p->max_copy;
	q.file = p->file;
	if (p->root_fd >= 0) {
		q.fds |= OPENER_FD_ROOT;
		fds[n++] = p->root_fd;
	}
	if (p->mapped_fd >= 0) {
		q.fds |= OPENER_FD_MAPPED;
		fds[n++] = p->mapped_fd;
	}
	if (p->process_fd >= 0) {
		q.fds |= OPENER_FD_PROCESS;
		fds[n++] = p->process_fd;
	}
	w->busy = true;
	/* A failed send gets no answer; the deadline or the end of the socket ends the request. */
	sent = io_send_fds(w->sock, &q, sizeof(q), fds, n, MSG_DONTWAIT);
	if (sent < 0)
		log_debug("opener of uid %u: %s", (unsigned int)w->cred->uid, strerror((int)-sent));
	/*
	 * The last to close a file may have to free all its blocks: the daemon lets go of it before
	 * the worker does.
	 */
	close_fdp(&p->root_fd);
	close_fdp(&p->mapped_fd);
	close_fdp(&p->process_fd);
}

static void on_answer(evutil_socket_t fd, short what, void *arg);
static void on_timer(evutil_socket_t fd, short what, void *arg);

static int worker_new(struct openings *o, struct cred *cred, struct worker **ret)
{
	struct worker *w = calloc(1, sizeof(*w));
	struct opener_command c;
	int pair[2], r;

	if (!w)
		return -ENOMEM;
	w->openings = o;
	w->cred = cred_ref(cred);
	w->sock = -1;
	TAILQ_INIT(&w->queue);
	LIST_INSERT_HEAD(&o->workers, w, entry);
	o->n_workers++;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
		r = -errno;
		worker_free(w);
		return r;
	}
	w->sock = pair[0];
	w->number = ++o->last_number;
	w->readable = event_new(o->base, w->sock, EV_READ | EV_PERSIST, on_answer, w);
	w->timer = evtimer_new(o->base, on_timer, w);
	if (!w->readable || !w->timer || event_add(w->readable, NULL) < 0) {
		(void)close(pair[1]);
		worker_free(w);
		return -ENOMEM;
	}
	memset(&c, 0, sizeof(c));
	c.type = OPENER_START;
	c.worker = w->number;
	c.uid = cred->uid;
	c.gid = cred->gid;
	c.n_groups = (uint32_t)cred->n_groups;
	memcpy(c.groups, cred->groups, cred->n_groups * sizeof(*cred->groups));
	command(o, &c, &pair[1]);
	(void)close(pair[1]);
	*ret = w;
	return 0;
}

/* Makes room for one more worker, within the limits of this user and of all: an idle one goes. */
static bool make_room(struct openings *o, uid_t uid)
{
	struct worker *w, *idle = NULL, *own_idle = NULL;
	unsigned int own = 0;

	LIST_FOREACH(w, &o->workers, entry) {
		const bool is_idle = !w->stuck && TAILQ_EMPTY(&w->queue),
			   is_own = w->cred->uid == uid;

		own += is_own;
		if (is_idle)
			idle = w;
		if (is_idle && is_own)
			own_idle = w;
	}
	if (uid != 0 && own >= WORKERS_UID_MAX)
		idle = own_idle;
	else if (o->n_workers < WORKERS_MAX)
		return true;
	if (idle)
		worker_free(idle);
	return idle != NULL;
}

static unsigned int stuck_of(const struct openings *o, uid_t uid)
{
	const struct worker *w;
	unsigned int n = 0;

	LIST_FOREACH(w, &o->workers, entry)
		n += w->stuck && w->cred->uid == uid;
	return n;
}

bool openings_hang(const struct openings *o, uid_t uid)
{
	return stuck_of(o, uid) > 0;
}

static void enqueue(struct openings *o, struct cred *cred, struct opening *p)
{
	struct worker *w;
	int r = 0;

	if (o->front_fd < 0) {
		refuse(p, o->lack);
		return;
	}
	LIST_FOREACH(w, &o->workers, entry)
		if (!w->stuck && cred_equal(w->cred, cred))
			break;
	if (!w && stuck_of(o, cred->uid) >= STUCK_MAX) {
		refuse(p, "a file system of this user does not answer");
		return;
	}
	if (!w && !make_room(o, cred->uid)) {
		refuse(p,
		       "files of too many users, or with too many sets of this user's groups, are being opened");
		return;
	}
	if (!w)
		r = worker_new(o, cred, &w);
	if (r < 0) {
		refuse(p, r == -ENOMEM ? "out of memory" : "too many open files");
		return;
	}
	queue_put(w, p);
	if (!w->busy)
		send_next(w);
}

/* The queue of a worker that is gone goes to another. */
static void move_queue(struct worker *w)
{
	struct opening *p;

	w->busy = false;
	while ((p = TAILQ_FIRST(&w->queue)) != NULL) /* it is stuck, so none comes back here */
		enqueue(w->openings, w->cred, queue_take(p));
}

/* Refuses the request that the worker has. */
static void give_up_current(struct worker *w, const char *why)
{
	if (w->busy)
		refuse(queue_take(TAILQ_FIRST(&w->queue)), why);
	w->busy = false;
}

static void on_timer(evutil_socket_t fd, short what, void *arg)
{
	struct worker *w = arg;
	struct openings *o = w->openings;
	struct opener_command c = {.type = OPENER_KILL, .worker = w->number};

	if (w->stuck)
		return;
	if (!w->busy) {
		worker_free(w); /* idle: the end of its socket is its end */
		return;
	}
	o->timeouts++;
	log_notice("a file of uid %u was not opened within %d s: its file system does not answer",
		   (unsigned int)w->cred->uid, DEADLINE_S);
	w->stuck = true; /* until its socket says that it has ended */
	o->n_stuck++;
	command(o, &c, NULL);
	give_up_current(w, "its file system did not answer in time");
	move_queue(w);
}

/* The worker has ended, or broke the protocol. */
static void worker_ended(struct worker *w)
{
	struct opening *p;

	if (!w->stuck && !w->proven) {
		/* it could not take on the rights, nor could another */
		w->busy = false;
		while ((p = TAILQ_FIRST(&w->queue)) != NULL)
			refuse(queue_take(p),
			       "tracerd may not open files with this user's rights (CAP_SETUID, CAP_SETGID)");
	} else if (!w->stuck) {
		w->stuck = true; /* it gets no more requests */
		w->openings->n_stuck++;
		give_up_current(w, "the opener has ended");
		move_queue(w);
	}
	worker_free(w);
}

static bool is_sound(const struct worker *w, const struct opener_reply *a, ssize_t n, size_t n_fds)
{
	return n == sizeof(*a) && w->busy && a->id == w->request && n_fds == (a->found ? 1 : 0) &&
	       memchr(a->answer.why, '\0', sizeof(a->answer.why)) &&
	       memchr(a->answer.path, '\0', sizeof(a->answer.path));
}

static void on_answer(evutil_socket_t sock, short what, void *arg)
{
	struct opener_reply a;
	struct worker *w = arg;
	struct openings *o = w->openings;
	struct opening *p;
	size_t n_fds = 0;
	opening_fn fn;
	void *fn_arg;
	int fd = -1;
	ssize_t n;

	n = io_recv_fds(sock, &a, sizeof(a), &fd, 1, &n_fds, MSG_DONTWAIT);
	if (n == -EAGAIN)
		return;
	if (w->stuck || !is_sound(w, &a, n, n_fds)) {
		(void)close_fd(fd);
		worker_ended(w);
		return;
	}
	a.answer.fd = -1; /* a number of another process */
	w->proven = true;
	w->busy = false;
	p = queue_take(TAILQ_FIRST(&w->queue));
	fn = p->fn;
	fn_arg = p->arg;
	o->opened += a.found;
	o->missing += !a.found && !p->asks;
	opening_free(p);
	o->copied += a.copied;
	send_next(w);
	/* Last: it may begin others, or cancel them. */
	if (fn)
		fn(fn_arg, &a, fd);
	else
		(void)close_fd(fd);
}

static int opening_new(struct openings *o, const struct cred *cred, opening_fn fn, void *arg,
		       struct opening **ret)
{
	unsigned int of_uid = 0;
	struct opening *p;
	struct worker *w;

	LIST_FOREACH(w, &o->workers, entry)
		if (w->cred->uid == cred->uid)
			of_uid += w->n_queued;
	if (o->n_waiting >= WAITING_MAX || of_uid >= WAITING_UID_MAX)
		return -EBUSY;
	p = calloc(1, sizeof(*p));
	if (!p)
		return -ENOMEM;
	o->n_waiting++;
	p->openings = o;
	p->fn = fn;
	p->arg = arg;
	p->root_fd = p->mapped_fd = p->process_fd = -1;
	*ret = p;
	return 0;
}

int opening_ask(struct openings *o, struct cred *cred, int process_fd, opening_fn fn, void *arg,
		struct opening **ret)
{
	struct opening *p;
	int r = opening_new(o, cred, fn, arg, &p);

	if (r < 0)
		return r;
	p->asks = true;
	p->process_fd = fcntl(process_fd, F_DUPFD_CLOEXEC, 3);
	if (p->process_fd < 0) {
		opening_free(p);
		return -EMFILE;
	}
	enqueue(o, cred, p);
	*ret = p;
	return 0;
}

int opening_start(struct openings *o, const struct opening_request *request, opening_fn fn,
		  void *arg, struct opening **ret)
{
	struct opening *p;
	int r = opening_new(o, request->cred, fn, arg, &p);

	if (r < 0)
		return r;
	p->max_copy = request->max_copy;
	p->file = *request->file;
	p->root_fd = request->root_fd >= 0 ? fcntl(request->root_fd, F_DUPFD_CLOEXEC, 3) : -1;
	p->mapped_fd = request->mapped_fd >= 0 ? fcntl(request->mapped_fd, F_DUPFD_CLOEXEC, 3) : -1;
	if ((request->root_fd >= 0 && p->root_fd < 0) ||
	    (request->mapped_fd >= 0 && p->mapped_fd < 0)) {
		opening_free(p);
		return -EMFILE;
	}
	enqueue(o, request->cred, p);
	*ret = p;
	return 0;
}

struct opening *opening_cancel(struct opening *p)
{
	if (!p)
		return NULL;
	p->fn = NULL;
	if (!p->worker) {
		TAILQ_REMOVE(&p->openings->refused, p, entry);
		opening_free(p);
	} else if (p != TAILQ_FIRST(&p->worker->queue) || !p->worker->busy) {
		opening_free(queue_take(p));
	}
	return NULL;
}

/* ---- the front */

static void lack(struct openings *o, const char *what, int r)
{
	(void)snprintf(o->lack, sizeof(o->lack), "%s: %s", what, strerror(-r));
	log_warning("files of targets cannot be opened: %s", o->lack);
}

static void on_front_end(evutil_socket_t fd, short what, void *arg)
{
	struct openings *o = arg;

	event_free(o->front_end);
	o->front_end = NULL;
	o->front_fd = close_fd(o->front_fd);
	lack(o, "tracerd-open has ended", -ECHILD);
}

static int front_start(struct openings *o, const char *program)
{
	int r = opener_process_start(program, &o->front_fd);

	if (r < 0)
		return r;
	o->front_end = event_new(o->base, o->front_fd, EV_READ, on_front_end, o);
	return o->front_end && event_add(o->front_end, NULL) == 0 ? 0 : -ENOMEM;
}

int openings_new(struct event_base *base, const char *program, struct openings **ret)
{
	_cleanup_(openings_freep) struct openings *o = calloc(1, sizeof(*o));
	int r;

	if (!o)
		return -ENOMEM;
	o->base = base;
	o->front_fd = -1;
	LIST_INIT(&o->workers);
	TAILQ_INIT(&o->refused);
	o->deliver = evtimer_new(base, on_deliver, o);
	if (!o->deliver)
		return -ENOMEM;
	r = front_start(o, program);
	if (r == -ENOMEM)
		return r;
	if (r < 0)
		lack(o, "tracerd-open", r);
	*ret = take_ptr(o);
	return 0;
}

struct openings *openings_free(struct openings *o)
{
	struct worker *w;
	struct opening *p;

	if (!o)
		return NULL;
	while ((w = LIST_FIRST(&o->workers)) != NULL)
		worker_free(w);
	while ((p = TAILQ_FIRST(&o->refused)) != NULL) {
		TAILQ_REMOVE(&o->refused, p, entry);
		opening_free(p);
	}
	if (o->front_end)
		event_free(o->front_end);
	if (o->deliver)
		event_free(o->deliver);
	(void)close_fd(o->front_fd);
	free(o);
	return NULL;
}

void openings_status(const struct openings *o, struct json_object *status,
		     struct json_object *lacking)
{
	struct json_object *s = json_add_new_object(status, "opener"), *l;

	json_add_bool(s, "available", o->front_fd >= 0);
	json_add_uint(s, "workers", o->n_workers - o->n_stuck);
	json_add_uint(s, "hanging", o->n_stuck);
	json_add_uint(s, "waiting", o->n_waiting);
	json_add_uint(s, "opened", o->opened);
	json_add_uint(s, "copied", o->copied);
	json_add_uint(s, "missing", o->missing);
	json_add_uint(s, "timeouts", o->timeouts);
	if (o->front_fd >= 0)
		return;
	l = json_object_new_object();
	json_add_string(l, "what", "opener");
	json_add_string(l, "cost", o->lack);
	json_append(lacking, l);
}
