// SPDX-License-Identifier: Apache-2.0
/*
 * Bytes from a stranger, as the control socket takes them: through the frame reader of a real
 * socket, the strict parser, and the parameters of the method that they name (of every method,
 * where they name none). What is accepted must read the same once it was written out again.
 */
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "common/base/io.h"
#include "common/control/frame.h"
#include "common/control/protocol.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_accessors(const struct protocol_method *m, struct json_object *object)
{
	struct params p = {.method = m, .object = object};

	for (const struct protocol_param *q = m->params; q->name; q++) {
		(void)params_has(&p, q->name);
		switch (q->type) {
		case PARAM_STRING:
		case PARAM_CHOICE:
		case PARAM_TARGET:
			(void)params_string(&p, q->name);
			break;
		case PARAM_INT:
			(void)params_int(&p, q->name);
			break;
		case PARAM_BOOL:
			(void)params_bool(&p, q->name);
			break;
		case PARAM_STRINGS:
			for (size_t i = 0; i < params_count(&p, q->name); i++)
				if (!params_nth(&p, q->name, i))
					abort();
			break;
		}
	}
}

static void try_params(const struct protocol_method *m, struct json_object *object)
{
	char why[160];

	if (protocol_check_params(m, object, why, sizeof(why)) == API_OK)
		try_accessors(m, object);
}

static void try_message(const char *text, size_t len)
{
	_cleanup_json_ struct json_object *o = NULL, *again = NULL;
	const struct protocol_method *m;
	const char *name, *written;
	char why[160];
	size_t n;

	if (json_parse(text, len, FRAME_REQUEST_MAX, &o, why, sizeof(why)) != 0)
		return;
	written = json_text(o, &n);
	/* Escapes may make it longer than what came in. */
	if (!written || json_parse(written, n, FRAME_REPLY_MAX, &again, why, sizeof(why)) != 0 ||
	    !json_object_equal(o, again))
		abort();
	name = json_get_string(o, "method");
	m = name ? protocol_method_find(name) : NULL;
	if (m)
		try_params(m, json_get_object(o, "params"));
	for (size_t i = 0; !m && i < _METHOD_MAX; i++)
		try_params(&protocol_methods[i], o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct frame_reader r;
	int sv[2];

	/*
	 * What a socket's buffer holds; and the parser by itself, without the luck of a right
	 * length.
	 */
	if (size > 100000)
		return 0;
	try_message((const char *)data, size);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0)
		return 0;
	if (size > 0 && io_write_all(sv[0], data, size) < 0)
		abort();
	(void)close(sv[0]);
	frame_reader_init(&r, FRAME_REQUEST_MAX);
	while (frame_reader_read(&r, sv[1]) == FRAME_DONE) {
		try_message(r.body, r.len);
		frame_reader_reset(&r);
	}
	frame_reader_fini(&r);
	(void)close(sv[1]);
	return 0;
}
