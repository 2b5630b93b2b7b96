// SPDX-License-Identifier: Apache-2.0
#include "daemon/snapshot/cause.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"

#define DURATION_MAX 24

void cause_client(struct cause *cause, uid_t uid, const char *reason)
{
	memset(cause, 0, sizeof(*cause));
	cause->kind = CAUSE_CLIENT;
	cause->uid = uid;
	(void)escape_text(cause->reason, sizeof(cause->reason), reason,
			  strnlen(reason, CAUSE_REASON_MAX));
}

const char *cause_trigger(char buf[CAUSE_TRIGGER_MAX], uint64_t trigger)
{
	(void)snprintf(buf, CAUSE_TRIGGER_MAX, "g%" PRIu64, trigger);
	return buf;
}

/* "312 ns", "7.31 ms", "5 ms", "12.6 s": three digits, no zeroes at the end. */
static const char *duration(char buf[DURATION_MAX], uint64_t ns)
{
	static const struct {
		uint64_t unit;
		const char *name;
	} units[] = {{1000000000, "s"}, {1000000, "ms"}, {1000, "us"}, {1, "ns"}};
	size_t i = 0;
	uint64_t whole, rest;
	int digits;

	while (i + 1 < ARRAY_SIZE(units) && ns < units[i].unit)
		i++;
	whole = ns / units[i].unit;
	/* thousandths: cut, so that what is below a limit never reads as the limit */
	rest = units[i].unit == 1 ? 0 : ns % units[i].unit / (units[i].unit / 1000);
	digits = whole >= 100 ? 0 : whole >= 10 ? 1 : 2;
	for (int n = 3; n > digits; n--)
		rest /= 10;
	while (digits > 0 && rest % 10 == 0) {
		rest /= 10;
		digits--;
	}
	if (digits > 0)
		(void)snprintf(buf, DURATION_MAX, "%" PRIu64 ".%0*" PRIu64 " %s", whole, digits,
			       rest, units[i].name);
	else
		(void)snprintf(buf, DURATION_MAX, "%" PRIu64 " %s", whole, units[i].name);
	return buf;
}

void cause_own_reason(struct cause *cause)
{
	char took[DURATION_MAX], over[DURATION_MAX];

	if (cause->reason[0])
		return;
	if (cause->kind == CAUSE_HIT) {
		(void)snprintf(cause->reason, sizeof(cause->reason), "hit %s", cause->region);
		return;
	}
	(void)snprintf(cause->reason, sizeof(cause->reason), "region \"%s\" took %s, over %s",
		       cause->region, duration(took, cause->end_raw_ns - cause->begin_raw_ns),
		       duration(over, cause->over_ns));
}

void cause_copy(struct cause *ret, const struct cause *cause)
{
	*ret = *cause;
	if (ret->kind == CAUSE_REGION || ret->kind == CAUSE_HIT)
		cause_own_reason(ret);
}

void cause_program_reason(struct cause *cause, const char *text)
{
	/* Once more: what is cut is then cut at a character's edge. */
	(void)escape_text(cause->reason, sizeof(cause->reason), text, strlen(text));
}

static void add_region(struct json_object *o, const struct cause *cause)
{
	char trigger[CAUSE_TRIGGER_MAX];

	json_add_string(o, "trigger", cause_trigger(trigger, cause->trigger));
	json_add_string(o, "region", cause->region);
	json_add_uint(o, "duration_ns", cause->end_raw_ns - cause->begin_raw_ns);
	json_add_uint(o, "over_ns", cause->over_ns);
}

static void add_hit(struct json_object *o, const struct cause *cause)
{
	char trigger[CAUSE_TRIGGER_MAX];

	json_add_string(o, "trigger", cause_trigger(trigger, cause->trigger));
	json_add_string(o, "hit", cause->region);
	json_add_bool(o, "paused", cause->paused);
	if (cause->late_ns)
		json_add_uint(o, "late_ns", cause->late_ns);
	else
		json_add_null(o, "late_ns");
}

struct json_object *cause_to_json(const struct cause *cause)
{
	static const char *const kinds[] = {[CAUSE_CLIENT] = "client",
					    [CAUSE_REGION] = "region",
					    [CAUSE_PROGRAM] = "program",
					    [CAUSE_HIT] = "hit"};
	struct json_object *o = json_object_new_object();

	if (!o)
		return NULL;
	json_add_string(o, "kind", kinds[cause->kind]);
	json_add_uint(o, "uid", cause->uid);
	json_add_string(o, "reason", cause->reason);
	if (cause->kind == CAUSE_CLIENT)
		return o;
	if (cause->kind == CAUSE_REGION)
		add_region(o, cause);
	if (cause->kind == CAUSE_HIT)
		add_hit(o, cause);
	json_add_int(o, "pid", cause->pid);
	if (cause->tid)
		json_add_uint(o, "tid", cause->tid);
	else
		json_add_null(o, "tid");
	if (cause->kind == CAUSE_REGION) {
		json_add_uint(o, "begin_raw_ns", cause->begin_raw_ns);
		json_add_uint(o, "end_raw_ns", cause->end_raw_ns);
	} else {
		json_add_uint(o, "at_raw_ns", cause->end_raw_ns);
	}
	return o;
}
