// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/demangle.h"

#include <libiberty/demangle.h>
#include <setjmp.h>
#include <string.h>

#include "common/base/escape.h"

struct out {
	char text[DEMANGLE_MAX_OUT];
	size_t len;
	bool cut;
	jmp_buf full;
};

/*
 * A few bytes of mangled name can stand for gigabytes of text (each substitution doubles it), and
 * the demangler has no other way to be stopped than to leave it. It holds no memory then, but for
 * a decoded punycode word of Rust, which is at most as long as the name.
 */
static void out_append(const char *s, size_t n, void *opaque)
{
	struct out *o = opaque;

	if (n > sizeof(o->text) - o->len) {
		n = sizeof(o->text) - o->len;
		o->cut = true;
	}
	if (n) /* it appends nothing by a null pointer */
		memcpy(o->text + o->len, s, n);
	o->len += n;
	if (o->cut)
		longjmp(o->full, 1);
}

static bool run(struct out *o, const char *name, int options)
{
	o->len = 0;
	o->cut = false;
	if (setjmp(o->full))
		return true;
	/* Rust's legacy names are valid C++ names too, so they are asked for first */
	if (rust_demangle_callback(name, options, out_append, o))
		return true;
	o->len = 0;
	return cplus_demangle_v3_callback(name, options, out_append, o) != 0;
}

static size_t demangle(const char *name, size_t len, int options, char *dst, size_t size)
{
	static struct out o; /* one thread decodes; too big for a stack frame */
	char in[DEMANGLE_MAX_IN + 1];
	const char *text = name;
	size_t n = len;

	if (len >= 2 && len <= DEMANGLE_MAX_IN && name[0] == '_' &&
		(name[1] == 'Z' || name[1] == 'R' || name[1] == '_')) {
		memcpy(in, name, len);
		in[len] = '\0';
		if (run(&o, in, options)) {
			if (o.cut)
				memcpy(o.text + o.len - 3, "...", 3);
			text = o.text;
			n = o.len;
		}
	} else if (len > DEMANGLE_MAX_OUT) {
		n = DEMANGLE_MAX_OUT;
	}
	return escape_text(dst, size, text, n);
}

/* Without parameters: slices are narrow, and this is what gdb's backtrace says too. */
size_t demangle_name(const char *name, size_t len, char *dst, size_t size)
{
	return demangle(name, len, DMGL_ANSI, dst, size);
}

/* Without what it returns, which the names of templates have, too. */
size_t demangle_signature(const char *name, size_t len, char *dst, size_t size)
{
	return demangle(name, len, DMGL_ANSI | DMGL_PARAMS | DMGL_RET_DROP, dst, size);
}
