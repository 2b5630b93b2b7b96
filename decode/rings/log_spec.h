/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads one conversion of a printf format, which a stranger wrote: flags, width, precision, length. Numbers
 * are bounded by LOGFORMAT_MAX_*, those behind a `*` are taken from the values.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "decode/rings/fields.h"

enum loglength {
	LOGLENGTH_NONE,
	LOGLENGTH_HH,
	LOGLENGTH_H,
	LOGLENGTH_L,
	LOGLENGTH_LL,
	LOGLENGTH_J,
	LOGLENGTH_Z,
	LOGLENGTH_T,
	LOGLENGTH_LD, /* L */
};

struct logspec {
	bool minus, plus, space, alt, zero;
	bool has_precision;
	size_t width, precision;
	enum loglength length;
	char conversion; /* 0: none that we know */
};

struct logvalues {
	const struct ringfield *v;
	size_t n, next;
};

/* The next value, or NULL. */
static inline const struct ringfield *logvalues_take(struct logvalues *v)
{
	return v->next < v->n ? &v->v[v->next++] : NULL;
}

static inline bool ringfield_is_integer(const struct ringfield *f)
{
	return f->type == RING_FIELD_U64 || f->type == RING_FIELD_I64 || f->type == RING_FIELD_POINTER;
}

/* Reads from behind the '%' at format[*i]; *i is left behind the conversion. */
struct logspec logspec_read(const char *format, size_t len, size_t *i, struct logvalues *values);
