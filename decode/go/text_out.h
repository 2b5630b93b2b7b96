/* SPDX-License-Identifier: Apache-2.0 */
/* Text on its way to a file, in pieces; quoted as Go's strconv.Quote does it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/go/generation.h"

struct gotext_out {
	int fd;
	uint64_t max_bytes, bytes;
	int error; /* -errno; nothing is written any more */
	size_t n;
	char buf[65536];
};

bool gotext_is_printable(uint32_t c);

void gotext_put(struct gotext_out *o, const char *s, size_t n);
void gotext_quote(struct gotext_out *o, const char *s, size_t n);
void gotext_printf(struct gotext_out *o, const char *format, ...)
	__attribute__((format(printf, 2, 3)));
void gotext_flush(struct gotext_out *o);

static inline void gotext_string(struct gotext_out *o, const struct gostring *s)
{
	gotext_quote(o, s->p, s->len);
}
