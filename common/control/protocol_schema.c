// SPDX-License-Identifier: Apache-2.0
/*
 * The schema file, made from the tables. Parameters are JSON Schema (each method's `params` can be
 * given to a validator as it is); results are described in words, with the shared types spelled out
 * once.
 */
#include <stdio.h>
#include <string.h>

#include "common/control/protocol.h"

static const char *const shared_types[][2] = {
	{"Target",
	 "{id: string, scope: process|thread|unit|host, pid: int, tid?: int, unit?: string, comm: string, exe: string, "
	 "uid: int, start_time: int, state: armed|suspended|exited, backend: pt|sample|events|step, method: cgroup|cpu|task|none|ptrace, "
	 "stacks: fp|dwarf|bpf, stacks_auto: bool, stacks_pending: bool, why: [string], warnings: [string], waits: bool, wait_min_ns: int, kernel: bool, armed_at: ns since 1970, state_at: ns since 1970, "
	 "lookback_ns: int, keep_ns: int, keep_short: string|null, samples: int, switches: int, processes: int, living: int, children: bool, history_bytes: int, lost: {kind: count}, "
	 "ring_bytes: int, events: Events|null, sample: Samples|null, pt: Trace|null, step: Step|null, fds: int, "
	 "owner_uid: int, triggers?: int}"},
	{"Samples",
	 "{unwound: null|{complete: int, cut: int, no_table: int, no_rule: int, no_read: int, bad: int, other_stack: int, no_frame: int, by_frame_pointer: int, "
	 "mappings: int, mappings_waiting: int, mappings_without: int}, "
	 "python: [{pid: int, version: string, refused: string, complete: int, cut: int, no_thread: int, no_read: int, "
	 "subinterpreters: int, crowded: int, between: int, unnamed: int}], "
	 "go: [{pid: int, version: string, refused: string, found: int, none: int, no_thread: int, no_read: int}]}"},
	{"Trace",
	 "{timing: low|normal|high, ring_bytes: int, cpus: int, events: int, shared: bool, blind_ns: int, cpus_not_traced: int, left_out: int, "
	 "filters: [string]}"},
	{"Step",
	 "{state: stepping|ended|gone, threads: int, insns: int, syscalls: int, signals: int, threads_all: int, "
	 "processes_all: int, bytes: int, max_bytes: int, overwritten_bytes: int, error: string|null, "
	 "lost: {unexpected_jumps: int, threads_not_recorded: int, stacks_not_written: int}}"},
	{"Events",
	 "{state: live|ended, programs: int, threads: int, threads_max: int, ring_bytes: int, bytes: int, names: int, "
	 "clock: tsc|monotonic_raw, registered_at: ns since 1970, lost: {events: int, names: int, texts: int}}"},
	{"Snapshot",
	 "{id: string, target: string, pid: int, comm: string, uid: int, "
	 "state: queued|freezing|copying|decoding|publishing|done|failed|cancelled, "
	 "cause: Cause, progress: {stage: string, done: int, total: int}, "
	 "created_at: ns since 1970, frozen_at: ns|null, frozen_raw_ns: ns of CLOCK_MONOTONIC_RAW|null, "
	 "asked_raw_ns: ns of CLOCK_MONOTONIC_RAW, late_ns: int, "
	 "published_at: ns|null, "
	 "error: {code: string, message: string}|null, bytes: int, blind_ns: int, summary: object|null, "
	 "files: [{name: string, size: int}]}"},
	{"Cause",
	 "{kind: client, uid: int, reason: string} | "
	 "{kind: region, uid: int, reason: string, trigger: string, region: string, duration_ns: int, over_ns: int, "
	 "pid: int, tid: int|null, begin_raw_ns: int, end_raw_ns: int} | "
	 "{kind: program, uid: int, reason: string, pid: int, tid: int|null, at_raw_ns: int} | "
	 "{kind: hit, uid: int, reason: string, trigger: string, hit: string, paused: bool, late_ns: int|null, pid: int, tid: int|null, "
	 "at_raw_ns: int}"},
	{"Trigger",
	 "{id: string, target: string, pid: int, comm: string, region: string, over_ns: int, cooldown_ns: int, "
	 "max_per_hour: int, after_ns: int, owner_uid: int, created_at: ns since 1970, programs: int, programs_left_out: int, hits: int, "
	 "snapshots: int, last_hit_at: ns since 1970|null, last_snapshot: string|null, suppressed: Suppressed} | "
	 "the same with hit: string, coverage: Coverage|null (of one that is removed) in place of region and over_ns"},
	{"Coverage",
	 "{processes: int, by_uprobe: int, threads: int, threads_unsure: int, pausing: int, not_paused: string|null, new_threads: bool, opening: int, without_code: int, failed: int, "
	 "left_out: int, copies_left_out: int, why: string|null, resting: bool}"},
	{"Suppressed",
	 "{cooldown: int, per_hour: int, busy: int, quota: int, no_space: int, program: int, below: int, gone: int}"},
	{"Status",
	 "{version: string, pid: int, uptime_s: int, at: int, state: running|degraded|stopping, "
	 "capabilities: {have: [string], lack: [{what: string, cost: string}]}, "
	 "backends: {name: {available: bool, method: string, why: string}}, targets: {state: count}, "
	 "snapshots: {state: count}, triggers: {active: int, limit: int, hits: int, snapshots: int, "
	 "suppressed: Suppressed, requests: {hits: int, snapshots: int, suppressed: Suppressed}}, "
	 "spool: {bytes: int, count: int, limit_bytes: int}, losses: {kind: count}, "
	 "events: {programs: int, ended: int, limit: int, bytes: int, registered: int, refused: {why: count}, evicted: int, "
	 "causes: int, causes_bad: int, pauses: int}, clients: {kind: count}, quota: {kind: {used: int, limit: int}}, decoder: object}"},
};

static void add_choices(struct json_object *o, const char *choices)
{
	struct json_object *list = json_add_new_array(o, "enum");

	for (const char *c = choices; *c;) {
		size_t n = strcspn(c, "|");

		json_append(list, json_object_new_string_len(c, (int)n));
		c += n;
		if (*c == '|')
			c++;
	}
}

static void add_default(struct json_object *o, const struct protocol_param *p)
{
	if (!p->def)
		return;
	if (p->type == PARAM_INT)
		json_add_int(o, "default", strtoll(p->def, NULL, 10));
	else if (p->type == PARAM_BOOL)
		json_add_bool(o, "default", strcmp(p->def, "true") == 0);
	else
		json_add_string(o, "default", p->def);
}

static struct json_object *param_schema(const struct protocol_param *p)
{
	struct json_object *o = json_object_new_object(), *sub;

	switch (p->type) {
	case PARAM_STRING:
		json_add_string(o, "type", "string");
		json_add_int(o, "minLength", p->min);
		json_add_int(o, "maxLength", p->max);
		break;
	case PARAM_INT:
		json_add_string(o, "type", "integer");
		json_add_int(o, "minimum", p->min);
		json_add_int(o, "maximum", p->max);
		break;
	case PARAM_BOOL:
		json_add_string(o, "type", "boolean");
		break;
	case PARAM_CHOICE:
		add_choices(o, p->choices);
		break;
	case PARAM_STRINGS:
		json_add_string(o, "type", "array");
		sub = json_add_new_object(o, "items");
		json_add_string(sub, "type", "string");
		json_add_int(sub, "minLength", 1);
		json_add_int(sub, "maxLength", PROTOCOL_NAME_MAX);
		json_add_int(o, "minItems", p->min);
		json_add_int(o, "maxItems", p->max);
		break;
	case PARAM_TARGET:
		sub = json_add_new_array(o, "type");
		json_append_string(sub, "string");
		json_append_string(sub, "integer");
		break;
	}
	add_default(o, p);
	json_add_string(o, "description", p->doc);
	return o;
}

static struct json_object *method_schema(const struct protocol_method *m)
{
	struct json_object *o = json_object_new_object(), *params, *props, *required = NULL;

	json_add_string(o, "description", m->doc);
	json_add_string(o, "from", m->flags & METHOD_TO_CLIENT ? "daemon" : "client");
	json_add_string(o, "role", m->flags & METHOD_ADMIN ? "admin" : "user");
	json_add_uint(o, "max_fds", m->max_fds);
	json_add_bool(o, "reply_fds", m->flags & METHOD_REPLY_FDS);
	params = json_add_new_object(o, "params");
	json_add_string(params, "type", "object");
	props = json_add_new_object(params, "properties");
	for (const struct protocol_param *p = m->params; p->name; p++) {
		json_add(props, p->name, param_schema(p));
		if (p->required) {
			if (!required)
				required = json_add_new_array(params, "required");
			json_append_string(required, p->name);
		}
	}
	json_add_string(o, "result", m->result);
	return o;
}

struct json_object *protocol_schema(void)
{
	struct json_object *root = json_object_new_object(), *o;

	json_add_string(root, "title", "tracerd control protocol");
	json_add_string(
		root, "description",
		"Generated by `tracerd --print-schema`; do not edit. "
		"A message is a length (4 bytes, big endian) and that many bytes of JSON; descriptors ride on the first byte.");
	json_add_int(root, "version", PROTOCOL_VERSION);
	o = json_add_new_object(root, "envelope");
	json_add_string(o, "request",
			"{v: 1, id: int >= 0, method: string, params?: object, nfds?: int}");
	json_add_string(
		o, "reply",
		"{v: 1, id: int, result: object, nfds?: int} | {v: 1, id: int|null, error: {code: string, message: string}}");
	json_add_string(o, "event", "{v: 1, event: string, seq: int, missed: int, data: object}");
	o = json_add_new_object(root, "limits");
	for (size_t i = 0; i < protocol_n_limits; i++) {
		struct json_object *l = json_add_new_object(o, protocol_limits[i].name);

		json_add_int(l, "value", protocol_limits[i].value);
		json_add_string(l, "description", protocol_limits[i].doc);
	}
	o = json_add_new_object(root, "errors");
	for (int i = API_OK + 1; i < _API_ERROR_MAX; i++)
		json_add_string(o, protocol_errors[i].code, protocol_errors[i].doc);
	o = json_add_new_object(root, "methods");
	for (size_t i = 0; i < _METHOD_MAX; i++)
		json_add(o, protocol_methods[i].name, method_schema(&protocol_methods[i]));
	o = json_add_new_object(root, "events");
	for (size_t i = 0; i < protocol_n_events; i++) {
		struct json_object *e = json_add_new_object(o, protocol_events[i].name);

		json_add_string(e, "data", protocol_events[i].data);
		json_add_string(e, "description", protocol_events[i].doc);
	}
	o = json_add_new_object(root, "types");
	for (size_t i = 0; i < ARRAY_SIZE(shared_types); i++)
		json_add_string(o, shared_types[i][0], shared_types[i][1]);
	return root;
}
