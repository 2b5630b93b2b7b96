// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/pt/missing_code.h"

#include <errno.h>
#include <stdlib.h>

#include "common/control/json.h"
#include "decode/object/image.h"

#define MAX_OBJECTS 4096u
#define SHOWN 20u

struct object {
	const struct image *image; /* borrowed; NULL: of what is not mapped */
	uint64_t times, bytes;
};

struct pending { /* of a buffer: the way is lost */
	uint32_t object; /* + 1; 0: it is not */
	uint64_t offset;
};

struct missing_code {
	struct object *objects;
	size_t n, room;
	uint64_t others; /* times, in objects beyond MAX_OBJECTS */
	struct pending *pending;
	size_t n_buffers;
	uint32_t last; /* the same one is met again and again */
};

int missing_code_new(size_t n_buffers, struct missing_code **ret)
{
	_cleanup_(missing_code_freep) struct missing_code *m = calloc(1, sizeof(*m));

	if (!m)
		return -ENOMEM;
	m->pending = calloc(n_buffers ? n_buffers : 1, sizeof(*m->pending));
	if (!m->pending)
		return -ENOMEM;
	m->n_buffers = n_buffers;
	*ret = take_ptr(m);
	return 0;
}

struct missing_code *missing_code_free(struct missing_code *m)
{
	if (!m)
		return NULL;
	free(m->objects);
	free(m->pending);
	free(m);
	return NULL;
}

/* The number of the object + 1; 0: there are too many. */
static int object_of(struct missing_code *m, const struct image *image, uint32_t *ret)
{
	struct object *v;

	if (m->last && m->objects[m->last - 1].image == image) {
		*ret = m->last;
		return 0;
	}
	*ret = 0;
	for (uint32_t i = 0; i < m->n && !*ret; i++)
		if (m->objects[i].image == image)
			*ret = i + 1;
	if (!*ret && m->n < MAX_OBJECTS) {
		if (m->n == m->room) {
			v = reallocarray(m->objects, m->room ? m->room * 2 : 16, sizeof(*v));
			if (!v)
				return -ENOMEM;
			m->objects = v;
			m->room = m->room ? m->room * 2 : 16;
		}
		m->objects[m->n++] = (struct object){.image = image};
		*ret = (uint32_t)m->n;
	}
	m->last = *ret;
	return 0;
}

int missing_code_lost(struct missing_code *m, const struct pipeline_event *ev,
		      const struct image *image)
{
	uint32_t object;
	int r;

	missing_code_event(m, ev);
	r = object_of(m, image, &object);
	if (r < 0)
		return r;
	if (!object) {
		m->others++;
		return 0;
	}
	m->objects[object - 1].times++;
	if (ev->buffer < m->n_buffers)
		m->pending[ev->buffer] = (struct pending){.object = object, .offset = ev->offset};
	return 0;
}

void missing_code_event(struct missing_code *m, const struct pipeline_event *ev)
{
	struct pending *p = ev->buffer < m->n_buffers ? &m->pending[ev->buffer] : NULL;

	if (!p || !p->object)
		return;
	if (ev->offset > p->offset)
		m->objects[p->object - 1].bytes += ev->offset - p->offset;
	p->object = 0;
}

void missing_code_report(const struct missing_code *m, struct json_object *losses)
{
	uint32_t top[SHOWN];
	struct json_object *list;
	uint64_t others = m->others;
	size_t n = 0, at;

	for (size_t i = 0; i < m->n; i++) {
		const struct object *o = &m->objects[i];

		if (n == SHOWN && o->bytes <= m->objects[top[n - 1]].bytes) {
			others += o->times;
			continue;
		}
		if (n < SHOWN)
			n++;
		else
			others += m->objects[top[n - 1]].times;
		for (at = n - 1; at > 0 && m->objects[top[at - 1]].bytes < o->bytes; at--)
			top[at] = top[at - 1];
		top[at] = (uint32_t)i;
	}
	if (n == 0)
		return;
	list = json_add_new_array(losses, "code_missing");
	for (size_t i = 0; i < n; i++) {
		const struct image *image = m->objects[top[i]].image;
		struct json_object *one = json_object_new_object();

		json_append(list, one);
		json_add_string(one, "name", image ? image->text : "[not mapped]");
		json_add_uint(one, "times", m->objects[top[i]].times);
		json_add_uint(one, "trace_bytes", m->objects[top[i]].bytes);
	}
	if (others)
		json_add_uint(losses, "code_missing_elsewhere", others);
}
