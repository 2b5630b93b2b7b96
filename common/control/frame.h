/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Frames of the control socket: 4 bytes of length, big endian, then that many bytes of JSON.
 * File descriptors ride on the frame's first byte.
 *
 * Owns the bytes and the descriptors on the way; what is in the JSON is not its matter. The
 * reader takes the four bytes of the header by themselves and then exactly the body, so a
 * descriptor always belongs to the frame whose header it came with; one that arrives inside a
 * body is a violation. Nothing here trusts a length: it is compared with the reader's limit
 * before anything is allocated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

#include "common/base/cleanup.h"

#define FRAME_HEADER 4
#define FRAME_REQUEST_MAX (64u * 1024)
#define FRAME_REPLY_MAX (4u * 1024 * 1024)
#define FRAME_FDS_MAX 16
#define FRAME_RESERVE_MAX 160

enum frame_answer {
	FRAME_DONE = 1,   /* reader: a whole frame is there; queue: everything is sent */
	FRAME_AGAIN,      /* the socket has no more bytes, or takes no more */
	FRAME_EOF,        /* the peer has closed between two frames */
	FRAME_E_HALF,     /* the peer has closed inside a frame */
	FRAME_E_TOO_LARGE, /* length above the limit, or zero */
	FRAME_E_FDS,      /* too many descriptors, or some that are not on a first byte */
};

/* ---- incremental reader, for a non-blocking socket */

struct frame_reader {
	size_t max;   /* longest body */
	uint8_t header[FRAME_HEADER];
	size_t have;  /* bytes so far, header included */
	size_t len;   /* of the body, once the header is whole */
	char *body;   /* NUL-terminated when whole */
	int fds[FRAME_FDS_MAX];
	size_t n_fds;
};

void frame_reader_init(struct frame_reader *r, size_t max);
/* Closes what was not taken. */
void frame_reader_fini(struct frame_reader *r);
/* True inside a frame: then a deadline runs. */
bool frame_reader_is_half(const struct frame_reader *r);
/*
 * FRAME_DONE, FRAME_AGAIN, FRAME_EOF, FRAME_E_*, or -errno. After DONE take what you need, then
 * reset.
 */
int frame_reader_read(struct frame_reader *r, int sock) _must_check_;
/* Forgets the frame, closes its descriptors, ready for the next. */
void frame_reader_reset(struct frame_reader *r);

/* ---- output queue, for a non-blocking socket */

struct frame_item;
struct frame_queue {
	TAILQ_HEAD(, frame_item) items;
	size_t bytes; /* not yet sent */
	size_t count;
	size_t n_fds; /* that wait, each of them open here */
	/* for one short message when memory fails; NULL: none, or on its way */
	struct frame_item *reserve;
};

void frame_queue_init(struct frame_queue *q);
/* Closes descriptors that were not sent. */
void frame_queue_fini(struct frame_queue *q);
/* In a forked child: closes them, and frees nothing. */
void frame_queue_abandon(const struct frame_queue *q);
/*
 * Copies the text, takes over the descriptors (also on failure: they are closed). -ENOMEM, -E2BIG.
 */
int frame_queue_push(struct frame_queue *q, const char *text, size_t len, int *fds,
		     size_t n_fds) _must_check_;
/*
 * Puts room aside for one message of FRAME_RESERVE_MAX bytes; back again once that is sent.
 * -ENOMEM.
 */
int frame_queue_reserve(struct frame_queue *q) _must_check_;
/* Without memory: takes that room. -ENOMEM where there is none, or it is on its way already. */
int frame_queue_push_reserved(struct frame_queue *q, const char *text, size_t len) _must_check_;
/* Sends at most about `budget` bytes: FRAME_DONE (empty), FRAME_AGAIN, -errno. */
int frame_queue_flush(struct frame_queue *q, int sock, size_t budget) _must_check_;

/* ---- blocking calls with a deadline (CLOCK_MONOTONIC ns, see io_now_ns()), for clients */

/* 0, -ETIMEDOUT, -EMSGSIZE, -errno. Descriptors stay the caller's. */
int frame_send(int sock, const char *text, size_t len, const int *fds, size_t n_fds,
	       uint64_t deadline_ns) _must_check_;
/*
 * One frame with a body of at most `max` bytes and up to FRAME_FDS_MAX descriptors; the caller
 * frees *ret_text and owns the fds. 0, FRAME_EOF, FRAME_E_*, -ETIMEDOUT, -errno.
 */
int frame_recv(int sock, size_t max, char **ret_text, size_t *ret_len, int ret_fds[FRAME_FDS_MAX],
	       size_t *ret_n_fds, uint64_t deadline_ns) _must_check_;
