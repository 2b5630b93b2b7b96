// SPDX-License-Identifier: Apache-2.0
/* Frames on a non-blocking socket: the reader and the output queue. */
#include "common/control/frame.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/io.h"

struct frame_item {
	TAILQ_ENTRY(frame_item) entry;
	size_t len, sent; /* header included */
	bool reserved;
	size_t n_fds;
	int fds[FRAME_FDS_MAX];
	char data[];
};

static void close_all(int *fds, size_t *n)
{
	while (*n > 0)
		(void)close_fd(fds[--*n]);
}

static uint32_t get_be32(const uint8_t *p)
{
	return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

void frame_reader_init(struct frame_reader *r, size_t max)
{
	memset(r, 0, sizeof(*r));
	r->max = max;
}

void frame_reader_reset(struct frame_reader *r)
{
	close_all(r->fds, &r->n_fds);
	free(take_ptr(r->body));
	r->have = 0;
	r->len = 0;
}

void frame_reader_fini(struct frame_reader *r)
{
	frame_reader_reset(r);
}

bool frame_reader_is_half(const struct frame_reader *r)
{
	return r->have > 0 && r->have < FRAME_HEADER + r->len;
}

/* The header's bytes, with the descriptors that came on the first of them. */
static int read_header(struct frame_reader *r, int sock)
{
	size_t n_fds = 0;
	int fds[FRAME_FDS_MAX];
	uint32_t len_u;
	ssize_t n;

	n = io_recv_fds(sock, r->header + r->have, FRAME_HEADER - r->have, fds, FRAME_FDS_MAX,
			&n_fds, MSG_DONTWAIT);
	if (n == -EPROTO)
		return FRAME_E_FDS;
	if (n < 0)
		return (int)n;
	if (n_fds > 0 && (r->have > 0 || n == 0)) {
		close_all(fds, &n_fds);
		return FRAME_E_FDS;
	}
	if (n == 0)
		return r->have > 0 ? FRAME_E_HALF : FRAME_EOF;
	if (n_fds > 0) {
		memcpy(r->fds, fds, n_fds * sizeof(int));
		r->n_fds = n_fds;
	}
	r->have += (size_t)n;
	if (r->have < FRAME_HEADER)
		return 0;
	len_u = get_be32(r->header);
	if (len_u == 0 || len_u > r->max)
		return FRAME_E_TOO_LARGE;
	r->body = malloc((size_t)len_u + 1);
	if (!r->body)
		return -ENOMEM;
	r->len = len_u;
	return 0;
}

static int read_body(struct frame_reader *r, int sock)
{
	size_t done = r->have - FRAME_HEADER, n_fds = 0;
	int fds[1];
	ssize_t n;

	n = io_recv_fds(sock, r->body + done, r->len - done, fds, 0, &n_fds, MSG_DONTWAIT);
	if (n == -EPROTO)
		return FRAME_E_FDS;
	if (n < 0)
		return (int)n;
	if (n == 0)
		return FRAME_E_HALF;
	r->have += (size_t)n;
	if (r->have < FRAME_HEADER + r->len)
		return 0;
	r->body[r->len] = '\0';
	return FRAME_DONE;
}

int frame_reader_read(struct frame_reader *r, int sock)
{
	for (;;) {
		int k = r->have < FRAME_HEADER ? read_header(r, sock) : read_body(r, sock);

		if (k == -EAGAIN || k == -EWOULDBLOCK)
			return FRAME_AGAIN;
		if (k != 0)
			return k;
	}
}

void frame_queue_init(struct frame_queue *q)
{
	TAILQ_INIT(&q->items);
	q->bytes = 0;
	q->count = 0;
	q->n_fds = 0;
	q->reserve = NULL;
}

static void item_remove(struct frame_queue *q, struct frame_item *item)
{
	TAILQ_REMOVE(&q->items, item, entry);
	q->bytes -= item->len - item->sent;
	q->count--;
	q->n_fds -= item->n_fds;
	close_all(item->fds, &item->n_fds);
	if (item->reserved)
		q->reserve = item;
	else
		free(item);
}

void frame_queue_fini(struct frame_queue *q)
{
	while (!TAILQ_EMPTY(&q->items))
		item_remove(q, TAILQ_FIRST(&q->items));
	free(take_ptr(q->reserve));
}

void frame_queue_abandon(const struct frame_queue *q)
{
	const struct frame_item *item;

	TAILQ_FOREACH (item, &q->items, entry)
		for (size_t i = 0; i < item->n_fds; i++)
			(void)close_fd(item->fds[i]);
}

/* The item has room for `len` bytes. */
static void item_push(struct frame_queue *q, struct frame_item *item, const char *text, size_t len,
		      const int *fds, size_t n_fds)
{
	item->len = FRAME_HEADER + len;
	item->sent = 0;
	item->n_fds = n_fds;
	if (n_fds > 0)
		memcpy(item->fds, fds, n_fds * sizeof(int));
	item->data[0] = (char)(len >> 24);
	item->data[1] = (char)(len >> 16);
	item->data[2] = (char)(len >> 8);
	item->data[3] = (char)len;
	memcpy(item->data + FRAME_HEADER, text, len);
	TAILQ_INSERT_TAIL(&q->items, item, entry);
	q->bytes += item->len;
	q->count++;
	q->n_fds += n_fds;
}

int frame_queue_push(struct frame_queue *q, const char *text, size_t len, int *fds, size_t n_fds)
{
	struct frame_item *item;

	if (len == 0 || len > FRAME_REPLY_MAX || n_fds > FRAME_FDS_MAX) {
		close_all(fds, &n_fds);
		return -E2BIG;
	}
	item = malloc(sizeof(*item) + FRAME_HEADER + len);
	if (!item) {
		close_all(fds, &n_fds);
		return -ENOMEM;
	}
	item->reserved = false;
	item_push(q, item, text, len, fds, n_fds);
	return 0;
}

int frame_queue_reserve(struct frame_queue *q)
{
	if (q->reserve)
		return 0;
	q->reserve = malloc(sizeof(*q->reserve) + FRAME_HEADER + FRAME_RESERVE_MAX);
	if (!q->reserve)
		return -ENOMEM;
	q->reserve->reserved = true;
	return 0;
}

int frame_queue_push_reserved(struct frame_queue *q, const char *text, size_t len)
{
	if (!q->reserve || len == 0 || len > FRAME_RESERVE_MAX)
		return -ENOMEM;
	item_push(q, take_ptr(q->reserve), text, len, NULL, 0);
	return 0;
}

int frame_queue_flush(struct frame_queue *q, int sock, size_t budget)
{
	while (!TAILQ_EMPTY(&q->items)) {
		struct frame_item *item = TAILQ_FIRST(&q->items);
		size_t n_fds = item->sent == 0 ? item->n_fds : 0, left = item->len - item->sent;
		ssize_t n;

		if (budget == 0)
			return FRAME_AGAIN;
		n = io_send_fds(sock, item->data + item->sent, left < budget ? left : budget,
				item->fds, n_fds, MSG_DONTWAIT);
		if (n == -EAGAIN || n == -EWOULDBLOCK)
			return FRAME_AGAIN;
		if (n < 0)
			return (int)n;
		if (n_fds > 0) {
			q->n_fds -= n_fds;
			close_all(item->fds, &item->n_fds);
		}
		item->sent += (size_t)n;
		q->bytes -= (size_t)n;
		budget -= (size_t)n;
		if (item->sent == item->len)
			item_remove(q, item);
	}
	return FRAME_DONE;
}
