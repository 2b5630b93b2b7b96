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
 * Numbers of requests rise, so each is of one NEED. What the file of a NEED is, only the decoder
 * knows: it has looked into it. A parent copies nothing before the verdict says "recognised", which
 * means of
 *
 *   object    an ELF file with code, with the build id that was asked for, or that the recording
 *             has for its path
 *   debug     an ELF file with the build id that was asked for; .gnu_debuglink's CRC alone is not
 *             enough
 *   dwz       the same
 *   perfmap   entries of a JIT's map in all but very few of its lines (decode/object/perfmap.h)
 *   ring      a copy of rings that does not contradict itself
 *
 * With the option "identify" a decoder asks at its end for objects that nobody needed, too, and
 * tells their build ids.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "common/base/filenote.h"

#define DECODER_PROTOCOL_VERSION 2
#define DECODER_PROTOCOL_FD 3	       /* the decoder's end */
#define DECODER_PACKET_MAX_TEXT 65536 /* bytes of JSON in a packet */
#define DECODER_PACKET_MAX_DEPTH 16
#define DECODER_PACKET_MAX_FDS 32
#define FILE_REQUEST_MAX_PATH 4095
#define DECODER_MAX_ERRNO 4095 /* the kernel's limit, too */
#define FILE_REQUEST_MAX_BUILD_ID 40 /* bytes, twice as many hex digits */

enum decoder_packet_type {
	DECODER_PACKET_JOB = 1,
	DECODER_PACKET_FILE = 2,
	DECODER_PACKET_CANCEL = 3,
	DECODER_PACKET_REQUEST = 16,
	DECODER_PACKET_PROGRESS = 17,
	DECODER_PACKET_RESULT = 18,
	DECODER_PACKET_VERDICT = 19,
};

const char *decoder_packet_type_to_string(enum decoder_packet_type type);

struct decoder_packet {
	enum decoder_packet_type type;
	struct json_object *body; /* always an object */
	int fds[DECODER_PACKET_MAX_FDS];
	size_t n_fds;
};

#define DECODER_PACKET_INIT {.body = NULL, .n_fds = 0}

/* Drops the body and closes the fds that were not taken (set to -1 when taken). */
void decoder_packet_fini(struct decoder_packet *p);

/*
 * Sends one packet; body and fds stay the caller's. `flags` are send()'s: MSG_DONTWAIT or 0.
 * -EAGAIN: the link is full, nothing was sent. -EMSGSIZE: the text is longer than a packet may be.
 * -EPIPE: the other end is gone.
 */
int decoder_packet_send(int sock, enum decoder_packet_type type, struct json_object *body,
			const int *fds, size_t n_fds, int flags) _must_check_;

/*
 * Receives one packet. Returns 1 and fills *ret (which the caller finishes), 0 at the end of the
 * link, -EAGAIN (MSG_DONTWAIT), -EPROTO, or another -errno.
 */
int decoder_packet_recv(int sock, struct decoder_packet *ret, int flags) _must_check_;

/* ---- typed bodies; from_json answers -EPROTO for what is missing, of a wrong type or too long */

/*
 * FILE_REQUEST_RING: `path` is a file of the bundle, rings/PID-START.ring or the trace of a Go
 * program, as its meta.json names it.
 */
enum file_request_kind {
	FILE_REQUEST_OBJECT,
	FILE_REQUEST_DEBUG,
	FILE_REQUEST_DWZ,
	FILE_REQUEST_PERFMAP,
	FILE_REQUEST_RING
};
const char *file_request_kind_to_string(enum file_request_kind kind);

struct file_request {
	uint32_t req;
	enum file_request_kind kind;
	/* as mapped, or of .gnu_debuglink / .gnu_debugaltlink; "" if none */
	char path[FILE_REQUEST_MAX_PATH + 1];
	/* for debug: the object whose debug file this is; "" if none */
	char object[FILE_REQUEST_MAX_PATH + 1];
	uint32_t maj, min;
	uint64_t ino; /* 0: unknown */
	pid_t pid, nspid;
	uint8_t build_id[FILE_REQUEST_MAX_BUILD_ID];
	size_t build_id_len; /* 0: unknown */
};

struct json_object *file_request_to_json(const struct file_request *request);
int file_request_from_json(struct json_object *body, struct file_request *ret) _must_check_;

/* The answer to a NEED; a file that was found rides along as the packet's only fd. */
struct file_answer {
	uint32_t req;
	bool found;
	bool changed; /* found by path, but device and inode are not those of the record */
	/*
	 * Of an object: it is the mapped file itself and no copy, so its times say whether it was
	 * written to since. `noted`: what it was when its mapping was first seen, or before.
	 */
	bool dated, noted;
	struct filenote note;
	char why[256]; /* if not found; or where it came from */
};

struct json_object *file_answer_to_json(const struct file_answer *file);
int file_answer_from_json(struct json_object *body, struct file_answer *ret) _must_check_;

struct file_verdict {
	uint32_t req;
	bool recognised;
	/*
	 * Of an object that is the one that was asked for, needed or not; length 0: it has none, or
	 * is another.
	 */
	uint8_t build_id[FILE_REQUEST_MAX_BUILD_ID];
	size_t build_id_len;
};

struct json_object *file_verdict_to_json(const struct file_verdict *verdict);
int file_verdict_from_json(struct json_object *body, struct file_verdict *ret) _must_check_;

struct decoder_progress {
	char stage[32];
	uint64_t done, total; /* total 0: unknown */
};

struct json_object *decoder_progress_to_json(const struct decoder_progress *progress);
int decoder_progress_from_json(struct json_object *body, struct decoder_progress *ret) _must_check_;

struct decoder_result {
	bool ok;
	char error[512];		/* escaped text, "" when ok */
	/* why the output could not be written, as in errno; 0: it was not that */
	int output_errno;
	struct json_object *stats;	/* borrowed from the body; NULL if absent */
	struct json_object *losses;	/* likewise */
	struct json_object *summary;	/* likewise */
};

int decoder_result_from_json(struct json_object *body, struct decoder_result *ret) _must_check_;
