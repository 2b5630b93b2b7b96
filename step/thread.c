// SPDX-License-Identifier: Apache-2.0
/* The tables of threads, processes and streams: who is in them, and since when. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/base/procfs.h"
#include "step/step_internal.h"

static unsigned int hash(pid_t tid)
{
	return (unsigned int)tid % STEP_HASH;
}

struct step_thread *step_thread_find(struct step *s, pid_t tid)
{
	struct step_thread *t;

	LIST_FOREACH(t, &s->threads[hash(tid)], in_hash)
		if (t->tid == tid)
			return t;
	return NULL;
}

struct step_process *step_process_find(struct step *s, pid_t pid)
{
	struct step_process *p;

	LIST_FOREACH(p, &s->processes, in_step)
		if (p->pid == pid)
			return p;
	return NULL;
}

int step_process_add(struct step *s, pid_t pid, pid_t ppid, const struct address_space *from,
		     struct step_process **ret)
{
	const struct address_space_shared shared = {.sideband = s->sideband,
						    .clock = &s->clock,
						    .code = &s->code};
	_cleanup_free_ struct step_process *p = calloc(1, sizeof(*p));
	int r;

	if (!p)
		return -ENOMEM;
	p->pid = pid;
	p->ppid = ppid;
	r = from ? address_space_copy(from, pid, &p->space)
		 : address_space_new(&shared, pid, &p->space);
	if (r < 0)
		return r;
	LIST_INSERT_HEAD(&s->processes, p, in_step);
	s->stats.processes++;
	*ret = take_ptr(p);
	return 0;
}

int step_thread_add(struct step *s, struct step_process *process, pid_t tid,
		    enum step_thread_state state, struct step_thread **ret)
{
	struct step_thread *t = calloc(1, sizeof(*t));

	if (!t)
		return -ENOMEM;
	t->tid = tid;
	t->process = process;
	t->state = state;
	process->threads++;
	LIST_INSERT_HEAD(&s->threads[hash(tid)], t, in_hash);
	s->n_threads++;
	s->stats.threads++;
	*ret = t;
	return 0;
}

void step_thread_remove(struct step *s, struct step_thread *t)
{
	struct step_process *p = t->process;

	step_thread_end_stream(s, t);
	if (t->waits)
		TAILQ_REMOVE(&s->turn, t, in_turn);
	LIST_REMOVE(t, in_hash);
	s->n_threads--;
	free(t);
	if (--p->threads > 0)
		return;
	LIST_REMOVE(p, in_step);
	(void)address_space_free(p->space);
	free(p);
}

void step_thread_rename(struct step *s, struct step_thread *t, pid_t tid)
{
	LIST_REMOVE(t, in_hash);
	t->tid = tid;
	LIST_INSERT_HEAD(&s->threads[hash(tid)], t, in_hash);
}

static void forget_stream(struct step *s, struct step_stream *stream)
{
	STAILQ_REMOVE(&s->streams, stream, step_stream, in_step);
	s->n_streams--;
	(void)pt_encoder_stream_free(stream->pt);
	free(stream);
}

/* In a ring: removes the streams of ended threads that have no packets any more. */
static void sweep_streams(struct step *s)
{
	struct step_stream *stream, *next;

	for (stream = STAILQ_FIRST(&s->streams); stream; stream = next) {
		next = STAILQ_NEXT(stream, in_step);
		if (stream->ended && pt_encoder_bytes(stream->pt) == 0)
			forget_stream(s, stream);
	}
	/*
	 * Still too many: remove the oldest ended ones with their packets, which count as
	 * overwritten.
	 */
	for (stream = STAILQ_FIRST(&s->streams); stream && s->n_streams == STEP_MAX_STREAMS;
	     stream = next) {
		next = STAILQ_NEXT(stream, in_step);
		if (stream->ended)
			forget_stream(s, stream);
	}
	s->sweep_at = s->n_streams * 2 > STEP_SWEEP_MIN ? s->n_streams * 2 : STEP_SWEEP_MIN;
	if (s->sweep_at > STEP_MAX_STREAMS)
		s->sweep_at = STEP_MAX_STREAMS;
}

int step_thread_begin_stream(struct step *s, struct step_thread *t)
{
	struct step_stream *stream;
	int r;

	if (s->options.ring && s->n_streams >= s->sweep_at)
		sweep_streams(s);
	if (s->n_streams == STEP_MAX_STREAMS)
		return -E2BIG;
	stream = calloc(1, sizeof(*stream));
	if (!stream)
		return -ENOMEM;
	r = pt_encoder_stream_new(s->store, &stream->pt);
	if (r == 0)
		r = sideband_itrace_start(s->sideband, step_clock_now(&s->clock), t->process->pid,
					  t->tid);
	if (r < 0) {
		free(stream);
		return r;
	}
	stream->pid = t->process->pid;
	stream->tid = t->tid;
	STAILQ_INSERT_TAIL(&s->streams, stream, in_step);
	s->n_streams++;
	t->stream = stream;
	return 0;
}

void step_thread_end_stream(struct step *s, struct step_thread *t)
{
	if (t->stream) {
		t->stream->ended = step_clock_now(&s->clock);
		pt_encoder_close(t->stream->pt);
	}
	t->stream = NULL;
	t->on = false;
}

int step_thread_record_comm(struct step *s, const struct step_thread *t, bool exec)
{
	_cleanup_free_ char *text = NULL;
	char path[64];
	size_t len;
	int r;

	(void)snprintf(path, sizeof(path), "/proc/%d/task/%d/comm", (int)t->process->pid,
		       (int)t->tid);
	r = io_read_file_at(AT_FDCWD, path, PROC_COMM_MAX, &text, &len);
	if (r == -ENOENT || r == -ESRCH)
		return 0; /* the thread has ended */
	if (r < 0)
		return r;
	if (len > 0 && text[len - 1] == '\n')
		text[len - 1] = '\0';
	return sideband_comm(s->sideband, step_clock_now(&s->clock), t->process->pid, t->tid, text,
			     exec);
}
