// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job/link.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "common/base/io.h"

#define PROGRESS_NS 100000000u

void parent_link_init(struct parent_link *l, int fd)
{
	*l = (struct parent_link){.fd = fd, .next_req = 1};
}

/* Waits for one packet until the deadline. 0 and a packet, or a negative errno. */
static int parent_link_wait(struct parent_link *l, uint64_t deadline, struct decoder_packet *ret)
{
	for (;;) {
		struct pollfd p = {.fd = l->fd, .events = POLLIN};
		uint64_t now = io_now_ns();
		int r;

		if (now >= deadline)
			return -ETIMEDOUT;
		r = poll(&p, 1, (int)((deadline - now) / 1000000 + 1));
		if (r < 0 && errno != EINTR)
			return -errno;
		if (r <= 0)
			continue;
		r = decoder_packet_recv(l->fd, ret, MSG_DONTWAIT);
		if (r == -EAGAIN)
			continue;
		if (r < 0)
			return r;
		return r == 0 ? -EPIPE : 0;
	}
}

int parent_link_ask(void *arg, const struct file_request *request, struct file_answer *ret_file,
		    int *ret_fd)
{
	struct parent_link *l = arg;
	struct file_request n = *request;
	struct json_object *body;
	uint64_t deadline = io_now_ns() + LINK_TIMEOUT_MS * UINT64_C(1000000);
	int r;

	if (l->cancelled)
		return -ECANCELED;
	n.req = l->next_req++;
	/*
	 * A recording may say what no process has; the other side would take it for our fault, and
	 * kill us.
	 */
	if (n.pid < 0)
		n.pid = -1;
	if (n.nspid < 0)
		n.nspid = -1;
	body = file_request_to_json(&n);
	if (!body)
		return -ENOMEM;
	r = decoder_packet_send(l->fd, DECODER_PACKET_REQUEST, body, NULL, 0, 0);
	json_object_put(body);
	if (r < 0)
		return r;
	l->asked++;
	for (;;) {
		struct decoder_packet packet = DECODER_PACKET_INIT;
		struct file_answer file;

		r = parent_link_wait(l, deadline, &packet);
		if (r < 0)
			return r;
		if (packet.type == DECODER_PACKET_CANCEL) {
			l->cancelled = true;
			decoder_packet_fini(&packet);
			return -ECANCELED;
		}
		if (packet.type != DECODER_PACKET_FILE ||
		    file_answer_from_json(packet.body, &file) < 0 || file.req != n.req ||
		    packet.n_fds != (file.found ? 1u : 0u)) {
			decoder_packet_fini(&packet);
			return -EPROTO;
		}
		if (file.found)
			*ret_fd = take_fd(&packet.fds[0]);
		*ret_file = file;
		decoder_packet_fini(&packet);
		l->answered += file.found;
		return file.found ? 1 : 0;
	}
}

int parent_link_judge(void *arg, const struct file_verdict *verdict)
{
	struct json_object *body = file_verdict_to_json(verdict);
	struct parent_link *l = arg;
	int r;

	if (!body)
		return -ENOMEM;
	r = decoder_packet_send(l->fd, DECODER_PACKET_VERDICT, body, NULL, 0, 0);
	json_object_put(body);
	return r;
}

int parent_link_progress(struct parent_link *l, const char *stage, uint64_t done, uint64_t total)
{
	struct decoder_packet packet = DECODER_PACKET_INIT;
	struct decoder_progress p = {.done = done, .total = total};
	uint64_t now = io_now_ns();
	struct json_object *body;
	int r;

	if (l->cancelled)
		return -ECANCELED;
	if (now - l->last_progress_ns < PROGRESS_NS)
		return 0;
	l->last_progress_ns = now;
	r = decoder_packet_recv(l->fd, &packet, MSG_DONTWAIT);
	if (r == 0)
		return -EPIPE;
	if (r > 0) {
		/* nothing was asked: only this can come */
		l->cancelled = packet.type == DECODER_PACKET_CANCEL;
		decoder_packet_fini(&packet);
		return l->cancelled ? -ECANCELED : -EPROTO;
	}
	if (r != -EAGAIN)
		return r;
	(void)snprintf(p.stage, sizeof(p.stage), "%s", stage);
	body = decoder_progress_to_json(&p);
	if (!body)
		return 0;
	r = decoder_packet_send(l->fd, DECODER_PACKET_PROGRESS, body, NULL, 0, MSG_DONTWAIT);
	json_object_put(body);
	return r == -EAGAIN ? 0 : r;
}
