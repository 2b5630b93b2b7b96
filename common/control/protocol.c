// SPDX-License-Identifier: Apache-2.0
/* The const tables of the control protocol, and what can be looked up in them. */
#include "common/control/protocol.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "common/control/frame.h"

const struct protocol_error_info protocol_errors[_API_ERROR_MAX] = {
	[API_OK] = {"", ""},
	[API_BAD_REQUEST] =
		{"bad_request",
		 "the message is no request: it is not strict JSON, or lacks a field that every request has"},
	[API_UNKNOWN_METHOD] = {"unknown_method", "no method has this name"},
	[API_BAD_PARAMS] = {"bad_params",
			    "a parameter is missing, has the wrong type or is out of range"},
	[API_TOO_LARGE] = {"too_large", "the request or its answer exceeds the protocol's limits"},
	[API_NOT_FOUND] = {"not_found", "no such target, snapshot, trigger or file"},
	[API_GONE] = {"gone", "the process has exited, or another one has its pid now"},
	[API_NOT_PERMITTED] = {"not_permitted",
			       "the kernel, the owner or the role does not allow it"},
	[API_QUOTA] = {"quota", "this user has reached a limit"},
	[API_BUSY] =
		{"busy",
		 "the daemon has reached a limit, or the same operation is running; try again"},
	[API_UNSUPPORTED] = {"unsupported", "this machine, kernel or build cannot do it"},
	[API_IO] = {"io", "reading or writing failed"},
	[API_NO_SPACE] = {"no_space", "the disk or the spool is full"},
	[API_TIMEOUT] = {"timeout", "it took longer than the configured limit"},
	[API_CANCELLED] = {"cancelled", "somebody cancelled it"},
	[API_SHUTTING_DOWN] = {"shutting_down", "the daemon is stopping"},
	[API_DECODE_FAILED] = {"decode_failed", "the decoder did not finish"},
	[API_INTERNAL] = {"internal", "a failure inside the daemon; its log says more"},
};

static const struct protocol_param params_none[] = {{0}};

static const struct protocol_param params_arm[] = {
	{.name = "pid",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = INT32_MAX,
	 .doc = "process to record, with all its threads"},
	{.name = "tid",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = INT32_MAX,
	 .doc = "a single thread to record"},
	{.name = "unit",
	 .type = PARAM_STRING,
	 .min = 1,
	 .max = 256,
	 .doc = "systemd unit or control group to record: every process in it"},
	{.name = "scope",
	 .type = PARAM_CHOICE,
	 .choices = "process|thread|unit|host",
	 .doc = "what to record; by default what pid, tid or unit says. host: all CPUs and all processes, by Intel PT only"},
	{.name = "backend",
	 .type = PARAM_CHOICE,
	 .choices = "auto|pt|sample|step",
	 .def = "auto",
	 .doc = "how it is recorded: by the processor, each branch (Intel PT), which is what \"auto\" means where there is such a "
		"processor; samples; or by a tracerd-step that the client has started, every instruction"},
	{.name = "stacks",
	 .type = PARAM_CHOICE,
	 .choices = "auto|fp|dwarf|bpf",
	 .def = "auto",
	 .doc = "how stacks are found: frame pointers, unwinding of a copy of the stack, or in the kernel by tables made of the files"},
	{.name = "children",
	 .type = PARAM_BOOL,
	 .def = "false",
	 .doc = "record also the processes that it has started and starts; of a user's target those are left out that the user may not look "
		"into, and by Intel PT it is for administrators only. A unit's are recorded in any case"},
	{.name = "pt_ring_kib",
	 .type = PARAM_INT,
	 .min = 16,
	 .max = 1048576,
	 .doc = "of Intel PT: size of the ring of each CPU, a power of two; by default as configured. Other back ends ignore it"},
	{.name = "pt_timing",
	 .type = PARAM_CHOICE,
	 .choices = "low|normal|high",
	 .doc = "of Intel PT: how often the trace has the time; by default as configured. Other back ends ignore it"},
	{.name = "keep_ms",
	 .type = PARAM_INT,
	 .min = 100,
	 .max = 600000,
	 .doc = "of samples and waits: how far back they are to reach, in ms; rings grow until they do, within keep_total_mib and the "
		"user's quota; by default as configured"},
	{.name = "wait_min_us",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = 60000000,
	 .doc = "of samples by frame pointers or bpf: waits shorter than this have no stack, in us; 0: all have one; by default as configured"},
	{.name = "waits",
	 .type = PARAM_BOOL,
	 .def = "true",
	 .doc = "record each switch with the stack of the wait"},
	{.name = "kernel",
	 .type = PARAM_BOOL,
	 .def = "false",
	 .doc = "record also what the kernel does for it; administrators only. By samples the kernel's stacks; by Intel PT its calls, too, for which "
		"\"kcore\" must be passed"},
	{.name = "filters",
	 .type = PARAM_STRINGS,
	 .min = 1,
	 .max = 4,
	 .doc = "by Intel PT, of a process or thread: nothing but this code is traced. Each is \"MAJOR:MINOR:INODE:OFFSET:SIZE:NAME\", "
		"decimal numbers: the file as /proc/PID/maps names it, the place in that file, and how to call it"},
	{.name = "fds",
	 .type = PARAM_STRINGS,
	 .min = 0,
	 .max = 4,
	 .doc = "what the message's descriptors are, in order: \"maps\" (/proc/PID/maps as the client opened it), "
		"\"pidfd\", \"step\" (the end of a stepper's connection, see common/control/stepabi.h), \"kallsyms\" "
		"(/proc/kallsyms as the client opened it, which decides whether it has addresses: for \"kernel\"; without that, of an "
		"administrator, for what in the kernel waits of wait_min_us or more wait for), \"kcore\" (/proc/kcore as the client opened "
		"it, the kernel's code, for \"kernel\" by Intel PT)"},
	{0},
};

static const struct protocol_param params_target[] = {
	{.name = "target",
	 .type = PARAM_TARGET,
	 .required = true,
	 .doc = "id of a target; or a pid, which must be that of one target only"},
	{0},
};

static const struct protocol_param params_join[] = {
	{.name = "target",
	 .type = PARAM_TARGET,
	 .required = true,
	 .doc = "id of a target of processes; or a pid, which must be that of one target only"},
	{.name = "pid",
	 .type = PARAM_INT,
	 .required = true,
	 .min = 1,
	 .max = INT32_MAX,
	 .doc = "process to record with it"},
	{.name = "fds",
	 .type = PARAM_STRINGS,
	 .min = 0,
	 .max = 2,
	 .doc = "what the message's descriptors are, in order: \"maps\" (/proc/PID/maps as the client opened it), \"pidfd\""},
	{0},
};

static const struct protocol_param params_register[] = {
	{.name = "fds",
	 .type = PARAM_STRINGS,
	 .required = true,
	 .min = 2,
	 .max = 3,
	 .doc = "what the message's descriptors are, in order: \"rings\" (the sealed memfd of common/bundle/ringabi.h), "
		"\"wake\" (an eventfd that the producer adds 1 to when it has written a cause), and of a Go program that streams "
		"its trace \"go_stream\" (the sealed memfd of common/bundle/gostream.h)"},
	{.name = "go",
	 .type = PARAM_STRING,
	 .min = 1,
	 .max = 64,
	 .doc = "version of the Go runtime of a producer that answers \"go.trace\"; without it, it is not asked"},
	{.name = "go_keep_ns",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = 86400000000000,
	 .def = "0",
	 .doc = "how far back the traces of that runtime go"},
	{0},
};

static const struct protocol_param params_go_trace[] = {
	{.name = "max_bytes",
	 .type = PARAM_INT,
	 .required = true,
	 .min = 1,
	 .max = INT64_MAX,
	 .doc = "a longer trace is not taken"},
	{.name = "wait_ns",
	 .type = PARAM_INT,
	 .required = true,
	 .min = 1,
	 .max = INT64_MAX,
	 .doc = "the snapshot waits so long for the answer, and goes on without it"},
	{0},
};

static const struct protocol_param params_page[] = {
	{.name = "cursor",
	 .type = PARAM_STRING,
	 .min = 1,
	 .max = PROTOCOL_NAME_MAX,
	 .doc = "where to go on: \"next\" of the last page"},
	{.name = "limit",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = PROTOCOL_PAGE_MAX,
	 .def = "50",
	 .doc = "entries on a page"},
	{0},
};

static const struct protocol_param params_create[] = {
	{.name = "target",
	 .type = PARAM_TARGET,
	 .required = true,
	 .doc = "id of a target; or a pid, which must be that of one target only"},
	{.name = "reason",
	 .type = PARAM_STRING,
	 .min = 0,
	 .max = 256,
	 .doc = "free text, kept in the bundle"},
	{.name = "with_objects",
	 .type = PARAM_BOOL,
	 .def = "false",
	 .doc = "put every needed executable into the bundle, so that it decodes on another machine"},
	{.name = "wait",
	 .type = PARAM_BOOL,
	 .def = "false",
	 .doc = "answer when it is published, failed or cancelled"},
	{.name = "asked_raw_ns",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = INT64_MAX,
	 .doc = "CLOCK_MONOTONIC_RAW: the moment that is meant, if not that at which tracerd reads the request; ten minutes ago at most"},
	{0},
};

static const struct protocol_param params_snapshot[] = {
	{.name = "snapshot",
	 .type = PARAM_STRING,
	 .required = true,
	 .min = 1,
	 .max = 64,
	 .doc = "a snapshot's id"},
	{0},
};

static const struct protocol_param params_fetch[] = {
	{.name = "snapshot",
	 .type = PARAM_STRING,
	 .required = true,
	 .min = 1,
	 .max = 64,
	 .doc = "a snapshot's id"},
	{.name = "names",
	 .type = PARAM_STRINGS,
	 .min = 1,
	 .max = PROTOCOL_FETCH_MAX,
	 .doc = "files to get as read-only descriptors, in this order; without it the answer lists the files"},
	{0},
};

static const struct protocol_param params_trigger_add[] = {
	{.name = "target",
	 .type = PARAM_TARGET,
	 .required = true,
	 .doc = "id of a target; or a pid, which must be that of one target only"},
	{.name = "region",
	 .type = PARAM_STRING,
	 .min = 1,
	 .max = 216,
	 .doc = "name of a region that the producers of the target write; this, \"go\" or \"hit\" is needed"},
	{.name = "go",
	 .type = PARAM_CHOICE,
	 .choices = "runnable|gc-stop|other-stop",
	 .doc = "in place of region, of Go programs with tracerd's module: a goroutine that waits to run, a stop of the world for "
		"the garbage collector or for another reason. The module looks ten times a second what has come since; the "
		"hit has the region \"go:runnable\" and so on, and no thread"},
	{.name = "over_ns",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = 3600000000000,
	 .doc = "with region or go: one that takes this long or longer is a hit"},
	{.name = "hit",
	 .type = PARAM_STRING,
	 .min = 1,
	 .max = 216,
	 .doc = "what the caller calls a place in the target's code; whenever a thread comes there, it is a hit. The next four "
		"say where it is"},
	{.name = "hit_major",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = UINT32_MAX,
	 .doc = "device of the file that has the code, as in /proc/PID/maps"},
	{.name = "hit_minor", .type = PARAM_INT, .min = 0, .max = UINT32_MAX, .doc = "likewise"},
	{.name = "hit_inode",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = INT64_MAX,
	 .doc = "its inode, likewise"},
	{.name = "hit_offset",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = INT64_MAX,
	 .doc = "the first byte of an instruction, in the file"},
	{.name = "hit_by",
	 .type = PARAM_CHOICE,
	 .choices = "auto|breakpoint|uprobe",
	 .def = "auto",
	 .doc = "by one of the processor's breakpoints, of which a thread has four, by a uprobe, for which tracerd needs "
		"CAP_SYS_ADMIN, or by the first that is free"},
	{.name = "cooldown_ns",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = 86400000000000,
	 .def = "10000000000",
	 .doc = "after a hit others within this time are only counted"},
	{.name = "max_per_hour",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = 100000,
	 .def = "60",
	 .doc = "snapshots of this trigger in any hour; 0: no limit but the cooldown"},
	{.name = "after_ns",
	 .type = PARAM_INT,
	 .min = 0,
	 .max = 60000000000,
	 .def = "0",
	 .doc = "freeze this long after the end of the region, to record what follows"},
	{0},
};

static const struct protocol_param params_trigger_list[] = {
	{.name = "target", .type = PARAM_TARGET, .doc = "only of this target"},
	{.name = "cursor",
	 .type = PARAM_STRING,
	 .min = 1,
	 .max = PROTOCOL_NAME_MAX,
	 .doc = "where to go on: \"next\" of the last page"},
	{.name = "limit",
	 .type = PARAM_INT,
	 .min = 1,
	 .max = PROTOCOL_PAGE_MAX,
	 .def = "50",
	 .doc = "entries on a page"},
	{0},
};

static const struct protocol_param params_trigger[] = {
	{.name = "trigger",
	 .type = PARAM_STRING,
	 .required = true,
	 .min = 1,
	 .max = 32,
	 .doc = "a trigger's id"},
	{0},
};

static const struct protocol_param params_subscribe[] = {
	{.name = "events",
	 .type = PARAM_STRINGS,
	 .min = 1,
	 .max = 32,
	 .doc = "names of events; without it, all events"},
	{0},
};

#define TARGET "{target: Target}"
#define SNAPSHOT "{snapshot: Snapshot}"
#define TRIGGER "{trigger: Trigger}"

const struct protocol_method protocol_methods[_METHOD_MAX] = {
	[METHOD_HELLO] =
		{"hello", 0, 0, params_none,
		 "{version: string, protocol: int, uid: int, role: \"admin\"|\"user\", capabilities: [string]}",
		 "version of the daemon, and role of the caller"},
	[METHOD_STATUS] = {"status", 0, 0, params_none, "Status",
			   "the daemon's state; the same object as GET /status"},
	[METHOD_CONFIG_SHOW] = {"config.show", METHOD_ADMIN, 0, params_none,
				"{config: [{section, key, value, default, unit, doc}]}",
				"the configuration"},
	[METHOD_TARGET_ARM] = {"target.arm", METHOD_AUDIT, 4, params_arm,
			       "{target: Target, already?: bool}",
			       "start recording a process, thread or unit"},
	[METHOD_TARGET_JOIN] = {"target.join", METHOD_AUDIT, 2, params_join,
				"{target: Target, already?: bool}",
				"record a further process with a target, on one timeline"},
	[METHOD_TARGET_DISARM] = {"target.disarm", METHOD_AUDIT, 0, params_target, TARGET,
				  "stop recording, and forget what is in no snapshot"},
	[METHOD_TARGET_LIST] = {"target.list", 0, 0, params_page,
				"{targets: [Target], next: string|null}",
				"the targets that the caller may see"},
	[METHOD_TARGET_SHOW] = {"target.show", 0, 0, params_target, TARGET, "one target"},
	[METHOD_TARGET_REGISTER] =
		{"target.register", METHOD_AUDIT | METHOD_REPLY_FDS, 3, params_register, TARGET,
		 "register the event rings of the caller; the answer carries its control page, and the end of the connection ends it"},
	[METHOD_SNAPSHOT_CREATE] = {"snapshot.create", METHOD_AUDIT, 0, params_create, SNAPSHOT,
				    "freeze what was recorded, decode it and keep it"},
	[METHOD_SNAPSHOT_LIST] = {"snapshot.list", 0, 0, params_page,
				  "{snapshots: [Snapshot], next: string|null}",
				  "the snapshots that the caller may see, newest first"},
	[METHOD_SNAPSHOT_SHOW] = {"snapshot.show", 0, 0, params_snapshot, SNAPSHOT, "one snapshot"},
	[METHOD_SNAPSHOT_CANCEL] = {"snapshot.cancel", METHOD_AUDIT, 0, params_snapshot, SNAPSHOT,
				    "stop one that is not done"},
	[METHOD_SNAPSHOT_DELETE] = {"snapshot.delete", METHOD_AUDIT, 0, params_snapshot, SNAPSHOT,
				    "remove one from the spool"},
	[METHOD_SNAPSHOT_FETCH] = {"snapshot.fetch", METHOD_REPLY_FDS | METHOD_AUDIT, 0,
				   params_fetch, "{files: [{name: string, size: int}]}",
				   "the files of a snapshot, by descriptor"},
	[METHOD_TRIGGER_ADD] =
		{"trigger.add", METHOD_AUDIT, 0, params_trigger_add, TRIGGER,
		 "take a snapshot of a target whenever a region of its producers is slow, or a thread comes to a place in its code"},
	[METHOD_TRIGGER_LIST] = {"trigger.list", 0, 0, params_trigger_list,
				 "{triggers: [Trigger], next: string|null}",
				 "the triggers that the caller may see"},
	[METHOD_TRIGGER_REMOVE] = {"trigger.remove", METHOD_AUDIT, 0, params_trigger, TRIGGER,
				   "remove one; the answer has its last counts"},
	[METHOD_SUBSCRIBE] = {"subscribe", 0, 0, params_subscribe, "{}",
			      "get events on this connection from now on"},
	[METHOD_UNSUBSCRIBE] = {"unsubscribe", 0, 0, params_none, "{}", "get no more events"},
	[METHOD_PING] =
		{"ping", METHOD_TO_CLIENT, 0, params_none, "{}",
		 "the daemon sends it to a silent subscriber, which answers {\"v\":1,\"id\":ID,\"result\":{}}"},
	[METHOD_GO_TRACE] =
		{"go.trace", METHOD_TO_CLIENT | METHOD_REPLY_FDS, 0, params_go_trace,
		 "{begin_ns: int, end_ns: int}",
		 "the daemon asks a producer that is a Go program for its execution trace, which is the one descriptor of the answer: a memfd "
		 "with the seals SHRINK, GROW, WRITE and SEAL. The times are CLOCK_MONOTONIC before and after it was written"},
};

const struct protocol_event protocol_events[] = {
	{"target.state", "Target",
	 "a target was armed, suspended, has exited, changed its way of recording, or was disarmed"},
	{"snapshot.state", "Snapshot", "a snapshot has reached another state"},
	{"snapshot.progress",
	 "{snapshot: string, progress: {stage: string, done: int, total: int}}",
	 "a running snapshot makes progress"},
	{"trigger.hit",
	 "{trigger: string|null, target: string, snapshot: string|null, suppressed: string|null, cause: Cause}",
	 "a trigger was hit, or (trigger null) a producer asked: the snapshot, or why there is none. Hits without a snapshot "
	 "are reported at most ten times a second for each trigger"},
	{"control.changed", "{}",
	 "sent to a producer on its own connection only: its control page has changed"},
	{"daemon.stopping", "{}", "the daemon is stopping, and connections end"},
};
const size_t protocol_n_events = ARRAY_SIZE(protocol_events);

const struct protocol_limit protocol_limits[] = {
	{"request_bytes", FRAME_REQUEST_MAX,
	 "longest request, without the four bytes of its length"},
	{"reply_bytes", FRAME_REPLY_MAX, "longest reply or event"},
	{"depth", JSON_DEPTH_MAX, "levels of arrays and objects in a message"},
	{"fds", FRAME_FDS_MAX, "descriptors on one message"},
	{"page_entries", PROTOCOL_PAGE_MAX, "entries on one page of a list"},
	{"fetch_names", PROTOCOL_FETCH_MAX, "files in one snapshot.fetch"},
	{"name_bytes", PROTOCOL_NAME_MAX, "longest name in an array of names"},
};
const size_t protocol_n_limits = ARRAY_SIZE(protocol_limits);

const char *protocol_error_code(enum protocol_error e)
{
	if (e <= API_OK || e >= _API_ERROR_MAX)
		e = API_INTERNAL;
	return protocol_errors[e].code;
}

enum protocol_error protocol_error_from_code(const char *code)
{
	for (int i = API_OK + 1; i < _API_ERROR_MAX; i++)
		if (strcmp(protocol_errors[i].code, code) == 0)
			return (enum protocol_error)i;
	return API_INTERNAL;
}

enum protocol_error protocol_error_from_errno(int negative_errno)
{
	switch (-negative_errno) {
	case EPERM:
	case EACCES:
		return API_NOT_PERMITTED;
	case ESRCH:
		return API_GONE;
	case ENOENT:
		return API_NOT_FOUND;
	case ENOSPC:
	case EDQUOT:
		return API_NO_SPACE;
	case ENOMEM:
	case EMFILE:
	case ENFILE:
	case EAGAIN:
	case EBUSY:
		return API_BUSY;
	case EOPNOTSUPP:
	case ENOSYS:
	case ENODEV:
		return API_UNSUPPORTED;
	case ETIMEDOUT:
		return API_TIMEOUT;
	case ECANCELED:
		return API_CANCELLED;
	case EIO:
		return API_IO;
	default:
		return API_INTERNAL;
	}
}

const struct protocol_method *protocol_method_find(const char *name)
{
	for (size_t i = 0; i < _METHOD_MAX; i++)
		if (strcmp(protocol_methods[i].name, name) == 0)
			return &protocol_methods[i];
	return NULL;
}

int protocol_event_find(const char *name)
{
	for (size_t i = 0; i < protocol_n_events; i++)
		if (strcmp(protocol_events[i].name, name) == 0)
			return (int)i;
	return -1;
}

static struct json_object *envelope(bool has_id, int64_t id)
{
	struct json_object *o = json_object_new_object();

	json_add_int(o, "v", PROTOCOL_VERSION);
	if (has_id)
		json_add_int(o, "id", id);
	else
		json_add_null(o, "id");
	return o;
}

struct json_object *protocol_request(int64_t id, const char *method, struct json_object *params,
				     size_t n_fds)
{
	struct json_object *o = envelope(true, id);

	json_add_string(o, "method", method);
	json_add(o, "params", params ? params : json_object_new_object());
	if (n_fds > 0)
		json_add_uint(o, "nfds", n_fds);
	return o;
}

struct json_object *protocol_result(int64_t id, struct json_object *result, size_t n_fds)
{
	struct json_object *o = envelope(true, id);

	json_add(o, "result", result);
	if (n_fds > 0)
		json_add_uint(o, "nfds", n_fds);
	return o;
}

struct json_object *protocol_error(bool has_id, int64_t id, enum protocol_error code,
				   const char *message)
{
	struct json_object *o = envelope(has_id, id), *e = json_object_new_object();

	json_add_string(e, "code", protocol_error_code(code));
	json_add_string(e, "message", message);
	json_add(o, "error", e);
	return o;
}

struct json_object *protocol_event(const char *event, uint64_t seq, uint64_t missed,
				   struct json_object *data)
{
	struct json_object *o = json_object_new_object();

	json_add_int(o, "v", PROTOCOL_VERSION);
	json_add_string(o, "event", event);
	json_add_uint(o, "seq", seq);
	json_add_uint(o, "missed", missed);
	json_add(o, "data", data);
	return o;
}
