/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "tests/unit/decode/timeline/event-case.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint64_t number(const char *s)
{
	return strtoull(s, NULL, 0);
}

static char *text(char *s)
{
	for (char *p = s; *p; p++)
		if (*p == '~')
			*p = ' ';
	return s;
}

/* TYPE:VALUE. */
static int value(char *s, struct ringevent_arg *ret)
{
	if (!s[0] || s[1] != ':')
		return -EINVAL;
	switch (s[0]) {
	case 'u':
		ret->type = RINGEVENT_U64;
		ret->value.u64 = number(s + 2);
		return 0;
	case 'i':
		ret->type = RINGEVENT_I64;
		ret->value.i64 = strtoll(s + 2, NULL, 0);
		return 0;
	case 'f':
		ret->type = RINGEVENT_F64;
		ret->value.f64 = strtod(s + 2, NULL);
		return 0;
	case 't':
	case 'c':
		ret->type = RINGEVENT_TEXT;
		ret->cut = s[0] == 'c';
		ret->value.text = text(s + 2);
		return 0;
	case 'p':
		ret->type = RINGEVENT_POINTER;
		ret->value.u64 = number(s + 2);
		return 0;
	default:
		return -EINVAL;
	}
}

static int word(struct ringevent *ev, const char *key, char *v)
{
	struct ringevent_arg a = {.key = key};
	uint64_t n = number(v);
	int r = 0;

	if (strcmp(key, "task") == 0)
		ev->task = n;
	else if (strcmp(key, "fiber") == 0)
		ev->fiber = n;
	else if (strcmp(key, "fiber-name") == 0)
		ev->fiber_name = text(v);
	else if (strcmp(key, "id") == 0)
		ev->id = n;
	else if (strcmp(key, "parent") == 0)
		ev->parent = n;
	else if (strcmp(key, "began") == 0)
		ev->began = n;
	else if (strcmp(key, "level") == 0)
		ev->level = (uint8_t)n;
	else if (strcmp(key, "flow") == 0)
		ev->flow = (uint8_t)n;
	else if (strcmp(key, "format") == 0)
		ev->format = text(v);
	else if (strcmp(key, "lost") == 0)
		ev->value.u64 = n;
	else if (strcmp(key, "nothing") == 0)
		ev->nothing_left = n;
	else if (strcmp(key, "value") == 0 && (r = value(v, &a)) == 0)
		ev->value_type = a.type;
	else
		return -EINVAL;
	if (strcmp(key, "value") == 0)
		ev->value.u64 = a.value.u64; /* of either type: the same eight bytes */
	return r;
}

static int kind(const char *s, enum ringevent_kind *ret)
{
	static const char *const names[] = {
		[RINGEVENT_THREAD] = "thread",   [RINGEVENT_REGION_BEGIN] = "begin",
		[RINGEVENT_REGION_END] = "end",  [RINGEVENT_INSTANT] = "instant",
		[RINGEVENT_LOG] = "log",         [RINGEVENT_COUNTER] = "counter",
		[RINGEVENT_TASK_BEGIN] = "task", [RINGEVENT_TASK_END] = "taskend",
		[RINGEVENT_FLOW] = "flow",       [RINGEVENT_FIBER] = "fiber",
		[RINGEVENT_TRIGGER] = "trigger", [RINGEVENT_LOST] = "lost",
	};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (strcmp(names[i], s) == 0) {
			*ret = (enum ringevent_kind)i;
			return 0;
		}
	return -EINVAL;
}

int event_case_parse(char **f, int n, struct ringevent *ret)
{
	struct ringevent ev = {.kind = RINGEVENT_THREAD};
	int r = n < 5 ? -EINVAL : kind(f[0], &ev.kind);

	if (r < 0)
		return r;
	ev.pid = (uint32_t)number(f[1]);
	ev.tid = (uint32_t)number(f[2]);
	ev.ts = number(f[3]);
	ev.name = strcmp(f[4], "-") == 0 ? (ev.kind == RINGEVENT_THREAD ? NULL : "") : text(f[4]);
	for (int i = 5; i < n && r == 0; i++) {
		char *equal = strchr(f[i], '='), *colon = strchr(f[i], ':');

		if (equal && (!colon || equal < colon)) {
			*equal = '\0';
			r = word(&ev, f[i], equal + 1);
		} else if (colon) {
			*colon = '\0';
			if (ev.n_args == RINGEVENT_MAX_ARGS)
				return -EINVAL;
			ev.args[ev.n_args].key = text(f[i]);
			r = value(colon + 1, &ev.args[ev.n_args++]);
		} else if (strcmp(f[i], "early") == 0) {
			ev.began_early = true;
		} else if (strcmp(f[i], "unfinished") == 0) {
			ev.unfinished = true;
		} else {
			r = -EINVAL;
		}
	}
	*ret = ev;
	return r;
}
