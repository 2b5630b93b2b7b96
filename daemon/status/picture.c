// SPDX-License-Identifier: Apache-2.0
#include "daemon/status/picture.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/io.h"
#include "daemon/status/metrics.h"

#define PICTURE_MAX_AGE_NS 250000000ull

struct picture {
	unsigned int refs;
	struct json_object *object;
	char *status, *metrics;
	size_t status_len, metrics_len;
};

struct pictures {
	pictures_make make;
	void *arg;
	struct picture *last;
	uint64_t built_ns;
};

DEFINE_CLEANUP(struct picture *, picture_unref)

struct picture *picture_ref(struct picture *p)
{
	p->refs++;
	return p;
}

void picture_unref(struct picture *p)
{
	if (!p || --p->refs > 0)
		return;
	json_object_put(p->object);
	free(p->status);
	free(p->metrics);
	free(p);
}

struct json_object *picture_object(const struct picture *p)
{
	return p->object;
}

const char *picture_status(const struct picture *p, size_t *ret_len)
{
	*ret_len = p->status_len;
	return p->status;
}

const char *picture_metrics(const struct picture *p, size_t *ret_len)
{
	*ret_len = p->metrics_len;
	return p->metrics;
}

static int answer(const char *type, const char *body, size_t body_len, char **ret, size_t *ret_len)
{
	char head[160];
	int n = snprintf(
		head, sizeof(head),
		"HTTP/1.0 200 OK\r\nContent-Type: %s\r\nContent-Length: %zu\r\nCache-Control: no-store\r\n\r\n",
		type, body_len);
	char *buf = malloc((size_t)n + body_len);

	if (!buf)
		return -ENOMEM;
	memcpy(buf, head, (size_t)n);
	memcpy(buf + n, body, body_len);
	*ret = buf;
	*ret_len = (size_t)n + body_len;
	return 0;
}

static struct picture *build(const struct pictures *s)
{
	_cleanup_(picture_unrefp) struct picture *p = calloc(1, sizeof(*p));
	_cleanup_free_ char *metrics = NULL;
	const char *text;
	size_t len;

	if (!p)
		return NULL;
	p->refs = 1;
	p->object = s->make(s->arg);
	text = p->object ? json_text(p->object, &len) : NULL;
	if (!text || answer("application/json", text, len, &p->status, &p->status_len) < 0)
		return NULL;
	metrics = metrics_render(p->object, &len);
	if (!metrics || answer("application/openmetrics-text; version=1.0.0; charset=utf-8",
			       metrics, len, &p->metrics, &p->metrics_len) < 0)
		return NULL;
	return take_ptr(p);
}

struct picture *pictures_get(struct pictures *s)
{
	uint64_t now = io_now_ns();

	if (!s->last || now - s->built_ns >= PICTURE_MAX_AGE_NS) {
		struct picture *p = build(s);

		if (!p)
			return s->last ? picture_ref(s->last) : NULL;
		picture_unref(s->last);
		s->last = p;
		s->built_ns = now;
	}
	return picture_ref(s->last);
}

void pictures_forget(struct pictures *s)
{
	picture_unref(s->last);
	s->last = NULL;
}

int pictures_new(pictures_make make, void *arg, struct pictures **ret)
{
	struct pictures *s = calloc(1, sizeof(*s));

	if (!s)
		return -ENOMEM;
	s->make = make;
	s->arg = arg;
	*ret = s;
	return 0;
}

struct pictures *pictures_free(struct pictures *s)
{
	if (!s)
		return NULL;
	picture_unref(s->last);
	free(s);
	return NULL;
}
