/* SPDX-License-Identifier: Apache-2.0 */
/* What decode/pt/dump*.c share; nobody else includes it. */
#pragma once

#include "common/base/hashmap.h"
#include "decode/pt/dump.h"
#include "decode/pt/spool.h"

#define DUMP_PIECE_BYTES (64u << 10)
#define DUMP_LINE_MAX (8u << 10)

struct text {
	char *bytes;
	size_t n, room;
};

struct dump {
	struct dump_options o;
	struct hashmap threads;
	struct dump_thread *first, **last; /* in the order in which they came */
	struct spool *spool; /* of calls */
	struct text text; /* of the file */
	struct text line; /* of a thread */
	struct dump_stats stats;
};

/* Room for a line, which dump_put() and the others then fill: names are cut. 0 or -ENOMEM. */
int dump_text_reserve(struct text *t);
void dump_put(struct text *t, const char *s);
void dump_put_char(struct text *t, char c);
void dump_put_number(struct text *t, uint64_t value, unsigned int base, unsigned int width);
void dump_put_time(struct text *t, struct dump_time at, unsigned int width);
void dump_put_spaces(struct text *t, unsigned int n);
void dump_put_function(const struct dump *v, struct text *t, uint32_t frame, uint64_t into);

/* The text goes to the file, as far as there is room. 0 or -errno. */
int dump_emit(struct dump *v, struct text *t);

/* All threads, one after the other. */
int dump_calls_finish(struct dump *v);
void dump_calls_free(struct dump *v);
