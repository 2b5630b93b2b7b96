// SPDX-License-Identifier: Apache-2.0
#include "common/decoder/protocol.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/control/json.h"

struct packet_header {
	uint16_t version, type;
	uint32_t length;
};

const char *decoder_packet_type_to_string(enum decoder_packet_type type)
{
	switch (type) {
	case DECODER_PACKET_JOB:
		return "job";
	case DECODER_PACKET_FILE:
		return "file";
	case DECODER_PACKET_CANCEL:
		return "cancel";
	case DECODER_PACKET_REQUEST:
		return "need";
	case DECODER_PACKET_PROGRESS:
		return "progress";
	case DECODER_PACKET_RESULT:
		return "result";
	case DECODER_PACKET_VERDICT:
		return "verdict";
	}
	return "unknown";
}

static bool type_is_known(unsigned type_u)
{
	return (type_u >= DECODER_PACKET_JOB && type_u <= DECODER_PACKET_CANCEL) ||
	       (type_u >= DECODER_PACKET_REQUEST && type_u <= DECODER_PACKET_VERDICT);
}

void decoder_packet_fini(struct decoder_packet *p)
{
	if (p->body)
		json_object_put(p->body);
	p->body = NULL;
	for (size_t i = 0; i < p->n_fds; i++)
		close_fdp(&p->fds[i]);
	p->n_fds = 0;
}

int decoder_packet_send(int sock, enum decoder_packet_type type, struct json_object *body,
			const int *fds, size_t n_fds, int flags)
{
	struct packet_header h = {.version = DECODER_PROTOCOL_VERSION, .type = (uint16_t)type};
	_cleanup_free_ char *packet = NULL;
	const char *text;
	size_t len;
	ssize_t n;

	text = json_text(body, &len);
	if (!text)
		return -ENOMEM;
	if (len > DECODER_PACKET_MAX_TEXT || n_fds > DECODER_PACKET_MAX_FDS)
		return -EMSGSIZE;
	packet = malloc(sizeof(h) + len);
	if (!packet)
		return -ENOMEM;
	h.length = (uint32_t)len;
	memcpy(packet, &h, sizeof(h));
	memcpy(packet + sizeof(h), text, len);
	n = io_send_fds(sock, packet, sizeof(h) + len, fds, n_fds, flags | MSG_NOSIGNAL);
	if (n < 0)
		return n == -ECONNRESET ? -EPIPE : (int)n;
	return 0; /* a packet goes whole or not at all */
}

int decoder_packet_recv(int sock, struct decoder_packet *ret, int flags)
{
	struct decoder_packet p = DECODER_PACKET_INIT;
	_cleanup_free_ char *buf = NULL;
	struct packet_header h;
	ssize_t n;
	int r;

	/* One byte more than a packet may have, so that a longer one shows as longer. */
	buf = malloc(sizeof(h) + DECODER_PACKET_MAX_TEXT + 1);
	if (!buf)
		return -ENOMEM;
	n = io_recv_fds(sock, buf, sizeof(h) + DECODER_PACKET_MAX_TEXT + 1, p.fds,
			DECODER_PACKET_MAX_FDS, &p.n_fds, flags);
	if (n == -ECONNRESET || n == 0)
		return 0;
	if (n < 0)
		return (int)n;
	if ((size_t)n < sizeof(h))
		goto protocol;
	memcpy(&h, buf, sizeof(h));
	if (h.version != DECODER_PROTOCOL_VERSION || !type_is_known(h.type) ||
	    h.length != (size_t)n - sizeof(h))
		goto protocol;
	r = json_parse(buf + sizeof(h), h.length, DECODER_PACKET_MAX_TEXT, &p.body, NULL, 0);
	if (r < 0) {
		decoder_packet_fini(&p);
		return r;
	}
	if (r > 0)
		goto protocol;
	if (!json_object_is_type(p.body, json_type_object))
		goto protocol;
	p.type = (enum decoder_packet_type)h.type;
	*ret = p;
	return 1;

protocol:
	decoder_packet_fini(&p);
	return -EPROTO;
}

/* ---- bodies */

static const char *const need_kinds[] = {
	[FILE_REQUEST_OBJECT] = "object",
	[FILE_REQUEST_DEBUG] = "debug",
	[FILE_REQUEST_DWZ] = "dwz",
	[FILE_REQUEST_PERFMAP] = "perfmap",
	[FILE_REQUEST_RING] = "ring",
};

const char *file_request_kind_to_string(enum file_request_kind kind)
{
	return (size_t)kind < ARRAY_SIZE(need_kinds) ? need_kinds[kind] : "unknown";
}

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return -1;
}

/*
 * Paths are bytes and JSON is UTF-8, so a path goes as text where it is clean, else as hex digits
 * under NAME_hex: the file must be found by the very bytes.
 */
static void path_add(struct json_object *o, const char *name, const char *path)
{
	static const char digits[] = "0123456789abcdef";
	char key[32], *hex, *p;
	bool clean = true;
	size_t len = strlen(path);

	if (len == 0)
		return;
	for (size_t i = 0; clean && i < len; i++)
		if ((unsigned char)path[i] < 0x20 || (unsigned char)path[i] >= 0x7f)
			clean = false;
	if (clean) {
		json_add(o, name, json_object_new_string(path));
		return;
	}
	hex = malloc(len * 2 + 1);
	if (!hex) {
		json_add(o, name, NULL);
		return;
	}
	p = hex;
	for (size_t i = 0; i < len; i++) {
		*p++ = digits[(unsigned char)path[i] >> 4];
		*p++ = digits[path[i] & 15];
	}
	*p = '\0';
	(void)snprintf(key, sizeof(key), "%s_hex", name);
	json_add(o, key, json_object_new_string(hex));
	free(hex);
}

static int hex_decode(const char *hex, uint8_t *dst, size_t max, size_t *ret_len)
{
	size_t len = strlen(hex);

	if (len % 2 || len / 2 > max)
		return -EPROTO;
	for (size_t i = 0; i < len / 2; i++) {
		int a = hex_digit(hex[2 * i]), b = hex_digit(hex[2 * i + 1]);

		if (a < 0 || b < 0)
			return -EPROTO;
		dst[i] = (uint8_t)(a << 4 | b);
	}
	*ret_len = len / 2;
	return 0;
}

/* Absent is "". */
static int path_get(struct json_object *o, const char *name, char *ret)
{
	char key[32];
	const char *s;
	size_t len;
	int r;

	(void)snprintf(key, sizeof(key), "%s_hex", name);
	s = json_get_string(o, key);
	if (s) {
		r = hex_decode(s, (uint8_t *)ret, FILE_REQUEST_MAX_PATH, &len);
		if (r < 0)
			return r;
		ret[len] = '\0';
		return strlen(ret) == len ? 0 : -EPROTO;
	}
	s = json_get_string(o, name);
	if (!s)
		s = "";
	if (strlen(s) > FILE_REQUEST_MAX_PATH)
		return -EPROTO;
	memcpy(ret, s, strlen(s) + 1);
	return 0;
}

static void hex_add(struct json_object *o, const char *key, const uint8_t *id, size_t len)
{
	char hex[FILE_REQUEST_MAX_BUILD_ID * 2 + 1];

	if (len == 0)
		return;
	for (size_t i = 0; i < len; i++)
		(void)snprintf(hex + 2 * i, 3, "%02x", id[i]);
	json_add_string(o, key, hex);
}

struct json_object *file_request_to_json(const struct file_request *request)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_uint(o, "req", request->req);
	json_add_string(o, "kind", file_request_kind_to_string(request->kind));
	path_add(o, "path", request->path);
	path_add(o, "object", request->object);
	if (request->ino) {
		json_add_uint(o, "maj", request->maj);
		json_add_uint(o, "min", request->min);
		/* an inode may use all 64 bits, JSON's integers are signed */
		json_add_int(o, "ino", (int64_t)request->ino);
	}
	json_add_int(o, "pid", request->pid);
	json_add_int(o, "nspid", request->nspid);
	hex_add(o, "build_id", request->build_id, request->build_id_len);
	return o;
}

static int get_u32(struct json_object *o, const char *key, bool required, uint32_t *ret)
{
	uint64_t v_u;

	if (!json_get_uint(o, key, &v_u)) {
		if (required || json_object_object_get(o, key))
			return -EPROTO;
		v_u = 0;
	}
	if (v_u > UINT32_MAX)
		return -EPROTO;
	*ret = (uint32_t)v_u;
	return 0;
}

static int get_pid(struct json_object *o, const char *key, pid_t *ret)
{
	int64_t v_u = 0;

	if (!json_get_int(o, key, &v_u) && json_object_object_get(o, key))
		return -EPROTO;
	if (v_u < -1 || v_u > INT32_MAX)
		return -EPROTO;
	*ret = (pid_t)v_u;
	return 0;
}

int file_request_from_json(struct json_object *body, struct file_request *ret)
{
	struct file_request *n = ret;
	const char *kind = json_get_string(body, "kind"),
		   *build_id = json_get_string(body, "build_id");
	int64_t ino = 0;
	size_t k = 0;

	memset(n, 0, sizeof(*n));
	while (kind && k < ARRAY_SIZE(need_kinds) && strcmp(kind, need_kinds[k]))
		k++;
	if (!kind || k == ARRAY_SIZE(need_kinds))
		return -EPROTO;
	n->kind = (enum file_request_kind)k;
	if (get_u32(body, "req", true, &n->req) < 0 || get_u32(body, "maj", false, &n->maj) < 0 ||
	    get_u32(body, "min", false, &n->min) < 0 || get_pid(body, "pid", &n->pid) < 0 ||
	    get_pid(body, "nspid", &n->nspid) < 0 || path_get(body, "path", n->path) < 0 ||
	    path_get(body, "object", n->object) < 0)
		return -EPROTO;
	if (!json_get_int(body, "ino", &ino) && json_object_object_get(body, "ino"))
		return -EPROTO;
	n->ino = (uint64_t)ino;
	if (build_id &&
	    hex_decode(build_id, n->build_id, sizeof(n->build_id), &n->build_id_len) < 0)
		return -EPROTO;
	return 0;
}

static void note_add(struct json_object *o, const struct filenote *note)
{
	struct json_object *n = json_add_new_object(o, "note");

	if (!n)
		return;
	json_add_int(n, "mtime_ns", note->mtime_ns);
	json_add_uint(n, "size", note->size);
	if (note->has_head)
		hex_add(n, "head", note->head, sizeof(note->head));
}

static int note_get(struct json_object *o, struct filenote *ret)
{
	const char *head = json_get_string(o, "head");
	size_t len = 0;

	if (!json_get_int(o, "mtime_ns", &ret->mtime_ns) || !json_get_uint(o, "size", &ret->size))
		return -EPROTO;
	ret->has_head = head != NULL;
	return head && (hex_decode(head, ret->head, sizeof(ret->head), &len) < 0 ||
			len != sizeof(ret->head))
		       ? -EPROTO
		       : 0;
}

struct json_object *file_answer_to_json(const struct file_answer *file)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_uint(o, "req", file->req);
	json_add_bool(o, "found", file->found);
	json_add_bool(o, "changed", file->changed);
	json_add_bool(o, "dated", file->dated);
	if (file->noted)
		note_add(o, &file->note);
	json_add_text(o, "why", file->why, strlen(file->why));
	return o;
}

static void copy_escaped(char *dst, size_t size, const char *src)
{
	(void)escape_text(dst, size, src ? src : "", src ? strlen(src) : 0);
}

int file_answer_from_json(struct json_object *body, struct file_answer *ret)
{
	struct json_object *note = json_get_object(body, "note");
	struct file_answer f = {0};

	if (get_u32(body, "req", true, &f.req) < 0 || !json_get_bool(body, "found", &f.found))
		return -EPROTO;
	(void)json_get_bool(body, "changed", &f.changed);
	(void)json_get_bool(body, "dated", &f.dated);
	f.noted = note != NULL;
	if (note && note_get(note, &f.note) < 0)
		return -EPROTO;
	copy_escaped(f.why, sizeof(f.why), json_get_string(body, "why"));
	*ret = f;
	return 0;
}

struct json_object *file_verdict_to_json(const struct file_verdict *verdict)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_uint(o, "req", verdict->req);
	json_add_bool(o, "recognised", verdict->recognised);
	hex_add(o, "build_id", verdict->build_id, verdict->build_id_len);
	return o;
}

int file_verdict_from_json(struct json_object *body, struct file_verdict *ret)
{
	const char *build_id = json_get_string(body, "build_id");
	struct file_verdict v = {0};

	if (get_u32(body, "req", true, &v.req) < 0 ||
	    !json_get_bool(body, "recognised", &v.recognised) ||
	    (build_id && hex_decode(build_id, v.build_id, sizeof(v.build_id), &v.build_id_len) < 0))
		return -EPROTO;
	*ret = v;
	return 0;
}

struct json_object *decoder_progress_to_json(const struct decoder_progress *progress)
{
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_string(o, "stage", progress->stage);
	json_add_uint(o, "done", progress->done);
	json_add_uint(o, "total", progress->total);
	return o;
}

int decoder_progress_from_json(struct json_object *body, struct decoder_progress *ret)
{
	struct decoder_progress p = {0};
	const char *stage = json_get_string(body, "stage");

	if (!stage || !json_get_uint(body, "done", &p.done) ||
	    !json_get_uint(body, "total", &p.total))
		return -EPROTO;
	copy_escaped(p.stage, sizeof(p.stage), stage);
	*ret = p;
	return 0;
}

int decoder_result_from_json(struct json_object *body, struct decoder_result *ret)
{
	struct decoder_result r = {0};
	uint32_t output_errno;

	if (!json_get_bool(body, "ok", &r.ok) ||
	    get_u32(body, "output_errno", false, &output_errno) < 0 ||
	    output_errno > DECODER_MAX_ERRNO)
		return -EPROTO;
	r.output_errno = (int)output_errno;
	copy_escaped(r.error, sizeof(r.error), json_get_string(body, "error"));
	if (!r.ok && !r.error[0])
		return -EPROTO;
	r.stats = json_get_object(body, "stats");
	r.losses = json_get_object(body, "losses");
	r.summary = json_get_object(body, "summary");
	*ret = r;
	return 0;
}
