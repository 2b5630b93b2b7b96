/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The link between a parent (tracerd, tracectl) and tracerd-decode: a SOCK_SEQPACKET socketpair,
 * the decoder's end is fd 3. A packet is u16 version, u16 type, u32 length (native order: both ends
 * are of one host), then JSON text; descriptors ride along by SCM_RIGHTS.
 *
 * This is the codec only. Either end treats what the other sent as hostile: sizes, depth, types and
 * numbers are checked here, and a packet that does not fit is -EPROTO with all its fds closed.
 *
 *   parent -> decoder   JOB once, FILE for each NEED, CANCEL
 *   decoder -> parent   NEED, VERDICT for each FILE that was found, PROGRESS, at last RESULT
 *
 * Numbers of requests rise, so each is of one NEED. What the file of a NEED is, only the decoder knows: it has looked
 * into it. A parent copies nothing before the verdict says "recognised", which means of
 *
 *   object    an ELF file with code, with the build id that was asked for, or that the recording tells of its path
 *   debug     an ELF file with the build id that was asked for; .gnu_debuglink's CRC alone is not enough
 *   dwz       the same
 *   perfmap   entries of a JIT's map in all but very few of its lines (decode/object/perfmap.h)
 *   ring      a copy of rings that does not contradict itself
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"

#define DECLINK_VERSION 2
#define DECLINK_FD 3	       /* the decoder's end */
#define DECLINK_MAX_TEXT 65536 /* bytes of JSON in a packet */
#define DECLINK_MAX_DEPTH 16
#define DECLINK_MAX_FDS 32
#define DECLINK_MAX_PATH 4095
#define DECLINK_MAX_BUILD_ID 40 /* bytes, twice as many hex digits */

enum declink_type {
	DECLINK_JOB = 1,
	DECLINK_FILE = 2,
	DECLINK_CANCEL = 3,
	DECLINK_NEED = 16,
	DECLINK_PROGRESS = 17,
	DECLINK_RESULT = 18,
	DECLINK_VERDICT = 19,
};

const char *declink_type_to_string(enum declink_type type);

struct declink_packet {
	enum declink_type type;
	struct json_object *body; /* always an object */
	int fds[DECLINK_MAX_FDS];
	size_t n_fds;
};

#define DECLINK_PACKET_INIT {.body = NULL, .n_fds = 0}

/* Drops the body and closes the fds that were not taken (set to -1 when taken). */
void declink_packet_fini(struct declink_packet *p);

/*
 * Sends one packet; body and fds stay the caller's. `flags` are send()'s: MSG_DONTWAIT or 0.
 * -EAGAIN: the link is full, nothing was sent. -EMSGSIZE: the text is longer than a packet may be.
 * -EPIPE: the other end is gone.
 */
int declink_send(int sock, enum declink_type type, struct json_object *body, const int *fds, size_t n_fds,
		 int flags) _must_check_;

/*
 * Receives one packet. Returns 1 and fills *ret (which the caller finishes), 0 at the end of the
 * link, -EAGAIN (MSG_DONTWAIT), -EPROTO, or another -errno.
 */
int declink_recv(int sock, struct declink_packet *ret, int flags) _must_check_;

/* ---- typed bodies; from_json answers -EPROTO for what is missing, of a wrong type or too long */

/* NEED_RING: `path` is a file of the bundle, rings/PID-START.ring, as its meta.json names it. */
enum declink_need_kind { NEED_OBJECT, NEED_DEBUG, NEED_DWZ, NEED_PERFMAP, NEED_RING };
const char *declink_need_kind_to_string(enum declink_need_kind kind);

struct declink_need {
	uint32_t req;
	enum declink_need_kind kind;
	char path[DECLINK_MAX_PATH + 1]; /* as mapped, or of .gnu_debuglink / .gnu_debugaltlink; "" if none */
	char object[DECLINK_MAX_PATH + 1]; /* for debug: the object whose debug file this is; "" if none */
	uint32_t maj, min;
	uint64_t ino; /* 0: unknown */
	pid_t pid, nspid;
	uint8_t build_id[DECLINK_MAX_BUILD_ID];
	size_t build_id_len; /* 0: unknown */
};

struct json_object *declink_need_to_json(const struct declink_need *need);
int declink_need_from_json(struct json_object *body, struct declink_need *ret) _must_check_;

/* The answer to a NEED; a file that was found rides along as the packet's only fd. */
struct declink_file {
	uint32_t req;
	bool found;
	bool changed; /* found by path, but device and inode are not those of the record */
	char why[256]; /* if not found; or where it came from */
};

struct json_object *declink_file_to_json(const struct declink_file *file);
int declink_file_from_json(struct json_object *body, struct declink_file *ret) _must_check_;

struct declink_verdict {
	uint32_t req;
	bool recognised;
};

struct json_object *declink_verdict_to_json(const struct declink_verdict *verdict);
int declink_verdict_from_json(struct json_object *body, struct declink_verdict *ret) _must_check_;

struct declink_progress {
	char stage[32];
	uint64_t done, total; /* total 0: unknown */
};

struct json_object *declink_progress_to_json(const struct declink_progress *progress);
int declink_progress_from_json(struct json_object *body, struct declink_progress *ret) _must_check_;

struct declink_result {
	bool ok;
	char error[512];		/* escaped text, "" when ok */
	struct json_object *stats;	/* borrowed from the body; NULL if absent */
	struct json_object *losses;	/* likewise */
	struct json_object *summary;	/* likewise */
};

int declink_result_from_json(struct json_object *body, struct declink_result *ret) _must_check_;
