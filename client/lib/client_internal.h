/* SPDX-License-Identifier: Apache-2.0 */
/* What the library's files share. Programs see none of it. */
#pragma once

#include <stdint.h>
#include <sys/queue.h>

#include "common/control/frame.h"
#include "common/control/json.h"
#include "tracerd.h"

struct tracerd_event {
	STAILQ_ENTRY(tracerd_event) link;
	char *name;
	struct json_object *data;
	const char *text; /* borrowed from it */
	uint64_t seq, missed;
};

struct tracerd_reply {
	struct json_object *result;
	const char *text; /* borrowed from it */
	int fds[FRAME_FDS_MAX]; /* -1 once taken */
	size_t n_fds;
};

struct tracerd_client {
	int fd;
	int broken; /* negative errno once the stream cannot be trusted any more, else 0 */
	int64_t next_id;
	struct frame_reader reader;
	STAILQ_HEAD(, tracerd_event) events;
	size_t n_events;
	uint64_t dropped; /* events dropped here and not yet reported in a `missed` */
	char message[1024];
};

/*
 * The code of an error of the protocol by its name; TRACERD_E_UNKNOWN if the table does not have
 * it.
 */
enum tracerd_code code_from_name(const char *name);

/* Answers a request of the daemon's own; this library knows "ping" only. NULL: no memory. */
struct json_object *request_answer(struct json_object *message, int64_t id);
