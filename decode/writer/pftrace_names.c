/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an event of a Perfetto trace names: strings, places in the source and arguments. A sequence
 * has its own tables; an entry is defined in the packet that uses it first.
 */
#include "config.h"

#include "decode/writer/pftrace_internal.h"

#include <errno.h>
#include <string.h>

static int idset_add(struct idset *s, uint32_t id)
{
	if (id / 8 >= s->n_bytes) {
		uint32_t n = id / 8 + 1 < 64 ? 64 : (id / 8 + 1) * 2;
		uint8_t *p = realloc(s->bits, n);

		if (!p)
			return -ENOMEM;
		memset(p + s->n_bytes, 0, n - s->n_bytes);
		s->bits = p;
		s->n_bytes = n;
	}
	s->bits[id / 8] = (uint8_t)(s->bits[id / 8] | 1u << (id % 8));
	return 0;
}

static void define_name(struct writer *w, struct pb *pb, struct sequence *s, enum name_table table,
			uint32_t field, uint32_t id)
{
	uint8_t *m;
	int r;

	if (id == 0 || idset_has(&s->defined[table], id))
		return;
	m = pb_open(pb, field);
	pb_uint(pb, INTERNED_IID, id);
	pb_bytes(pb, INTERNED_TEXT, strtab_text(w->names, id), strtab_len(w->names, id));
	pb_close(pb, m);
	r = idset_add(&s->defined[table], id);
	if (r < 0)
		writer_fail(w, r);
}

static void define_location(struct writer *w, struct pb *pb, struct sequence *s, uint32_t id)
{
	const struct writer_location *l = &w->locations[id];
	uint8_t *m;
	int r;

	if (id == 0 || id >= w->n_locations || idset_has(&s->defined[NAMES_LOCATION], id))
		return;
	m = pb_open(pb, INTERNED_LOCATIONS);
	pb_uint(pb, INTERNED_IID, id);
	pb_bytes(pb, LOCATION_FILE, strtab_text(w->names, l->file), strtab_len(w->names, l->file));
	pb_bytes(pb, LOCATION_FUNCTION, strtab_text(w->names, l->function),
		 strtab_len(w->names, l->function));
	if (l->line)
		pb_uint(pb, LOCATION_LINE, l->line);
	pb_close(pb, m);
	r = idset_add(&s->defined[NAMES_LOCATION], id);
	if (r < 0)
		writer_fail(w, r);
}

void pftrace_put_interned(struct writer *w, struct pb *pb, struct sequence *s,
			  const struct writer_event *ev, uint32_t n_args)
{
	uint8_t *start = pb->p, *m = pb_open(pb, PACKET_INTERNED_DATA), *empty = pb->p;

	define_name(w, pb, s, NAMES_EVENT, INTERNED_EVENT_NAMES, ev->name);
	define_name(w, pb, s, NAMES_CATEGORY, INTERNED_CATEGORIES, ev->category);
	define_location(w, pb, s, ev->location);
	for (uint32_t i = 0; i < n_args; i++) {
		define_name(w, pb, s, NAMES_KEY, INTERNED_ANNOTATION_NAMES, ev->args[i].key);
		if (ev->args[i].kind == WRITER_ARG_NAME)
			define_name(w, pb, s, NAMES_STRING, INTERNED_ANNOTATION_STRINGS,
				    ev->args[i].value.name);
	}
	if (pb->p == empty)
		pb->p = start;
	else
		pb_close(pb, m);
}

void pftrace_put_args(struct pb *pb, const struct writer_event *ev, uint32_t n_args)
{
	for (uint32_t i = 0; i < n_args; i++) {
		const struct writer_arg *a = &ev->args[i];
		uint8_t *m = pb_open(pb, EVENT_ANNOTATIONS);

		pb_uint(pb, ANNOTATION_NAME_IID, a->key);
		switch (a->kind) {
		case WRITER_ARG_UINT:
			pb_uint(pb, ANNOTATION_UINT, a->value.u64);
			break;
		case WRITER_ARG_INT:
			pb_int(pb, ANNOTATION_INT, a->value.i64);
			break;
		case WRITER_ARG_DOUBLE:
			pb_double(pb, ANNOTATION_DOUBLE, a->value.f64);
			break;
		case WRITER_ARG_POINTER:
			pb_uint(pb, ANNOTATION_POINTER, a->value.u64);
			break;
		case WRITER_ARG_NAME:
			if (a->value.name)
				pb_uint(pb, ANNOTATION_STRING_IID, a->value.name);
			else
				pb_string(pb, ANNOTATION_STRING, "");
			break;
		case WRITER_ARG_TEXT:
			pb_bytes(pb, ANNOTATION_STRING, a->value.text,
				 writer_text_len(a->value.text, WRITER_TEXT_MAX));
			break;
		}
		pb_close(pb, m);
	}
}

void pftrace_names_free(struct sequence *s)
{
	for (unsigned int t = 0; t < NAMES_N; t++)
		free(s->defined[t].bits);
}
