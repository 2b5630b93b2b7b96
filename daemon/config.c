// SPDX-License-Identifier: Apache-2.0
/* The table of keys, its parser on libinih, and its printers. */
#include "daemon/config.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <ini.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/base/log.h"

#define KEY(s, n, t, lo, hi, d, u, text)                                                           \
	{                                                                                          \
		.section = s, .name = #n, .type = t, .offset = offsetof(struct config, n),         \
		.min = lo, .max = hi, .def = d, .unit = u, .doc = text                             \
	}
#define CHOICE(s, n, list, d, text)                                                                \
	{                                                                                          \
		.section = s, .name = #n, .type = CONFIG_CHOICE,                                   \
		.offset = offsetof(struct config, n), .min = 1, .max = 32, .def = d, .unit = "",   \
		.doc = text, .choices = list                                                       \
	}
#define UINT(s, n, lo, hi, d, u, text) KEY(s, n, CONFIG_UINT, lo, hi, d, u, text)

/* Longest string value; paths too, since socket names must fit sockaddr_un anyway. */
#define VALUE_MAX 1024

const struct config_key config_keys[] = {
	KEY("daemon", runtime_dir, CONFIG_PATH, 1, 80, TRACERD_RUNDIR, "",
	    "directory of the sockets, unless systemd passes them"),
	KEY("daemon", state_dir, CONFIG_PATH, 1, VALUE_MAX, TRACERD_STATEDIR, "",
	    "directory of the spool of snapshots, and of tables that are kept (unwind_cache_mib); only tracerd may write there"),
	KEY("daemon", socket_group, CONFIG_STRING, 0, 64, "tracerd", "",
	    "group that owns both sockets and whose members are administrators; empty: only root is"),
	KEY("daemon", socket_mode, CONFIG_MODE, 0, 0777, "0666", "",
	    "permissions of control.sock; tracerd checks each request by the credentials of its sender"),
	KEY("daemon", status_mode, CONFIG_MODE, 0, 0777, "0660", "", "permissions of status.sock"),
	KEY("daemon", decoder, CONFIG_PATH, 0, VALUE_MAX, "", "",
	    "path of tracerd-decode; empty: in the directory of tracerd, else the installed one"),
	KEY("daemon", log_level, CONFIG_LEVEL, 0, 16, "info", "",
	    "least severe messages to log: error, warning, notice, info or debug"),
	UINT("daemon", max_connections, 8, 65536, "4096", "",
	     "maximum number of clients, of both sockets together"),
	UINT("daemon", max_targets, 1, 65536, "2048", "",
	     "maximum number of targets, including exited ones that are kept"),
	UINT("daemon", max_triggers, 1, 65536, "1024", "", "maximum number of triggers"),

	UINT("capture", sample_hz, 1, 20000, "999", "Hz",
	     "samples per second of each running thread"),
	UINT("capture", ring_kib, 64, 1048576, "4096", "KiB",
	     "size of the ring of each CPU with stacks=fp; a power of two"),
	UINT("capture", dwarf_ring_kib, 64, 1048576, "16384", "KiB",
	     "size of the ring of each CPU with stacks=dwarf; a power of two"),
	UINT("capture", ring_total_mib, 1, 1048576, "128", "MiB",
	     "maximum size of the rings of one event group, of all CPUs together; rings shrink to fit. Switches and wake-ups that have no stack have half as much again"),
	UINT("capture", dwarf_stack_bytes, 512, 65528, "8192", "bytes",
	     "bytes of the stack to copy into each sample with stacks=dwarf; a multiple of 8"),
	CHOICE("capture", python_frames, "yes|no", "yes",
	       "whether stacks that are unwound in the kernel have the functions that CPython 3.11 to 3.14 runs: yes or no"),
	UINT("capture", unwind_cache_mib, 0, 65536, "64", "MiB",
	     "maximum size of the tables for unwinding stacks in the kernel that are kept in state_dir; the least recently used are removed first; 0: none are kept"),
	UINT("capture", pt_ring_kib, 16, 1048576, "4096", "KiB",
	     "size of the Intel PT ring of each CPU and target; a power of two"),
	UINT("capture", pt_total_mib, 1, 1048576, "128", "MiB",
	     "maximum size of the Intel PT rings of one target, of all CPUs together; rings shrink to fit"),
	CHOICE("capture", pt_timing, "low|normal|high", "normal",
	       "how often an Intel PT trace has the time, and what it costs: low, normal or high"),
	UINT("capture", keep_ms, 0, 600000, "0", "ms",
	     "how far back the samples of a target are to reach, if it is not armed with --keep: its rings grow until they do; 0: as far as rings of ring_kib and dwarf_ring_kib reach"),
	UINT("capture", wait_min_us, 0, 60000000, "100", "us",
	     "waits shorter than this are recorded without a stack, where stacks are not copied (stacks=fp and bpf); 0: all have one"),
	UINT("capture", keep_total_mib, 1, 1048576, "512", "MiB",
	     "maximum size of all rings that have grown for that, and again of what exited targets have left; a user's are also limited by uid_ring_mib"),
	UINT("capture", history_mib, 1, 4096, "16", "MiB",
	     "maximum size of the log of mappings, names, forks and exits of a target"),
	UINT("capture", exited_keep_s, 0, 86400, "300", "s",
	     "how long to keep the recording of a target that has exited"),
	UINT("capture", images_max, 16, 1048576, "4096", "",
	     "maximum number of executable files to keep open, for all targets together"),

	UINT("events", event_memory_mib, 1, 65536, "64", "MiB",
	     "maximum size of the event rings of one producer"),
	UINT("events", event_threads, 1, 1024, "1024", "",
	     "maximum number of threads of one producer that have a ring"),
	UINT("events", event_names, 1, 16384, "16384", "",
	     "maximum number of event names of one producer"),
	UINT("events", max_producers, 1, 65536, "1024", "",
	     "maximum number of producers, including ended ones that are kept (exited_keep_s)"),

	UINT("snapshot", snapshots_running, 1, 16, "1", "",
	     "maximum number of snapshots to copy or decode at the same time"),
	UINT("snapshot", snapshots_queued, 0, 4096, "16", "",
	     "maximum number of snapshots that wait for their turn"),
	UINT("snapshot", snapshot_timeout_s, 1, 3600, "120", "s",
	     "maximum time that a snapshot spends in one state, except decoding"),
	UINT("snapshot", decoder_timeout_s, 1, 3600, "60", "s", "maximum run time of one decoder"),
	UINT("snapshot", decoder_memory_mib, 64, 65536, "1024", "MiB",
	     "maximum address space of one decoder, without its inputs"),
	UINT("snapshot", decoder_threads, 0, 256, "0", "",
	     "threads of one decoder; 0: one for each CPU"),
	UINT("snapshot", max_output_mib, 1, 65536, "512", "MiB",
	     "maximum size of a trace; what does not fit is cut and counted"),
	UINT("snapshot", frozen_mib, 0, 65536, "512", "MiB",
	     "memory for what rings held at the moment of snapshots that wait for their turn, one user's at most half; what has no room is read from the rings then"),
	UINT("snapshot", trigger_after_ms, 0, 60000, "10000", "ms",
	     "maximum time that a trigger may wait after a hit"),
	UINT("snapshot", program_interval_ms, 1, 3600000, "1000", "ms",
	     "minimum time between two snapshots of a target that its producers ask for"),
	UINT("snapshot", program_snapshots_per_hour, 0, 100000, "60", "",
	     "maximum number of snapshots of a target that its producers ask for in an hour; 0: limited by the interval only"),
	UINT("snapshot", go_wait_ms, 0, 60000, "2000", "ms",
	     "maximum time that a snapshot waits for the execution traces of Go programs; 0: they are not asked"),
	UINT("snapshot", go_trace_mib, 1, 65536, "128", "MiB",
	     "maximum size of the execution trace of one Go program"),
	UINT("snapshot", step_freeze_s, 1, 60, "5", "s",
	     "maximum time for a stepper to copy its recording"),

	UINT("spool", spool_max_mib, 1, 16777216, "4096", "MiB",
	     "maximum size of all snapshots; the oldest are removed first"),
	UINT("spool", spool_max_age_h, 1, 876000, "168", "h", "age at which a snapshot is removed"),
	UINT("spool", spool_max_count, 1, 1000000, "200", "", "maximum number of snapshots"),
	UINT("spool", spool_keep_free_percent, 0, 99, "10", "%",
	     "share of the file system to keep free"),
	UINT("spool", spool_hold_s, 0, 3600, "60", "s",
	     "how long a client may keep files of a removed snapshot open; then they are truncated"),

	UINT("quota", uid_connections, 1, 65536, "64", "",
	     "maximum number of connections of one user"),
	UINT("quota", uid_targets, 1, 65536, "64", "", "maximum number of targets of one user"),
	UINT("quota", uid_steppers, 1, 65536, "16", "",
	     "maximum number of stepped targets of one user"),
	UINT("quota", uid_triggers, 1, 65536, "64", "", "maximum number of triggers of one user"),
	UINT("quota", uid_ring_mib, 1, 1048576, "256", "MiB",
	     "maximum ring memory of the targets of one user"),
	UINT("quota", uid_fds, 16, 1048576, "4096", "",
	     "maximum number of file descriptors for the targets of one user"),
	UINT("quota", uid_snapshots_running, 1, 16, "1", "",
	     "maximum number of running snapshots of one user"),
	UINT("quota", uid_snapshots_queued, 1, 4096, "4", "",
	     "maximum number of waiting snapshots of one user"),
	UINT("quota", uid_spool_mib, 1, 16777216, "1024", "MiB",
	     "maximum size of the snapshots of one user; the oldest of that user are removed first"),
	UINT("quota", uid_producers, 1, 65536, "256", "",
	     "maximum number of producers of one user"),
	UINT("quota", uid_event_mib, 1, 1048576, "1024", "MiB",
	     "maximum size of the event rings of one user"),
	UINT("quota", uid_image_mib, 1, 1048576, "256", "MiB",
	     "maximum memory for copies of executables of one user from file systems that users serve (FUSE)"),

	UINT("client", client_read_timeout_s, 1, 3600, "10", "s",
	     "maximum time to receive the rest of a message, or the answer to a ping"),
	UINT("client", client_write_timeout_s, 1, 3600, "30", "s",
	     "maximum time in which a client reads nothing of its output"),
	UINT("client", client_idle_s, 1, 86400, "600", "s",
	     "silence after which a client without subscription is dropped"),
	UINT("client", client_ping_s, 1, 86400, "60", "s",
	     "silence after which a subscriber gets a ping, which it must answer within client_read_timeout_s"),
	UINT("client", client_queue_kib, 64, 65536, "8192", "KiB",
	     "maximum output that waits for one client, which is dropped above it"),
	UINT("client", client_events, 1, 65536, "256", "",
	     "maximum number of events that wait for one subscriber, which misses those above it"),
};
const size_t config_n_keys = ARRAY_SIZE(config_keys);

static const char *const section_docs[][2] = {
	{"daemon", "Paths, sockets and limits of the daemon."},
	{"capture", "What is recorded of each target."},
	{"events", "Event rings that producers register."},
	{"snapshot", "Freezing and decoding of snapshots."},
	{"spool",
	 "Retention of published snapshots. When any of the limits is reached, the oldest snapshots are removed."},
	{"quota", "Limits of each user. They do not apply to root and the user of the daemon."},
	{"client", "Timeouts and queues of clients."},
};

static char **field_string(const struct config *c, const struct config_key *k)
{
	return (char **)((char *)(uintptr_t)c + k->offset);
}

static unsigned int *field_uint(const struct config *c, const struct config_key *k)
{
	return (unsigned int *)((char *)(uintptr_t)c + k->offset);
}

static bool is_string(const struct config_key *k)
{
	return k->type == CONFIG_STRING || k->type == CONFIG_PATH || k->type == CONFIG_LEVEL ||
	       k->type == CONFIG_CHOICE;
}

static bool is_choice(const char *choices, const char *value)
{
	const size_t len = strlen(value);

	for (const char *p = choices; p; p = strchr(p, '|') ? strchr(p, '|') + 1 : NULL)
		if (strncmp(p, value, len) == 0 && (p[len] == '|' || p[len] == '\0'))
			return true;
	return false;
}

/* Digits only, no sign, no white space: strtoul() would take "-1". */
static bool parse_uint(const char *s, unsigned int base, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*s || strlen(s) > 12)
		return false;
	for (; *s; s++) {
		if (*s < '0' || *s >= (char)('0' + base))
			return false;
		v = v * base + (uint64_t)(*s - '0');
	}
	*ret = v;
	return true;
}

static int set_string(struct config *c, const struct config_key *k, const char *value, char *why,
		      size_t why_size)
{
	size_t len = strlen(value);
	enum log_level level;
	char *copy;

	if (len < k->min || len > k->max) {
		(void)snprintf(why, why_size, "%s: %zu bytes, wanted %u to %u", k->name, len,
			       k->min, k->max);
		return -EINVAL;
	}
	for (size_t i = 0; i < len; i++)
		if ((unsigned char)value[i] < 0x20 || value[i] == 0x7f) {
			(void)snprintf(why, why_size, "%s: control character", k->name);
			return -EINVAL;
		}
	if (k->type == CONFIG_PATH && len > 0 && value[0] != '/') {
		(void)snprintf(why, why_size, "%s: must be an absolute path", k->name);
		return -EINVAL;
	}
	if (k->type == CONFIG_LEVEL && log_level_from_string(value, &level) < 0) {
		(void)snprintf(why, why_size, "%s: must be %s", k->name, k->doc);
		return -EINVAL;
	}
	if (k->type == CONFIG_CHOICE && !is_choice(k->choices, value)) {
		(void)snprintf(why, why_size, "%s: must be one of %s", k->name, k->choices);
		return -EINVAL;
	}
	copy = strdup(value);
	if (!copy)
		return -ENOMEM;
	free(*field_string(c, k));
	*field_string(c, k) = copy;
	return 0;
}

static int set_key(struct config *c, const struct config_key *k, const char *value, char *why,
		   size_t why_size)
{
	uint64_t v;

	if (is_string(k))
		return set_string(c, k, value, why, why_size);
	if (!parse_uint(value, k->type == CONFIG_MODE ? 8 : 10, &v)) {
		(void)snprintf(why, why_size, "%s: not %s number", k->name,
			       k->type == CONFIG_MODE ? "an octal" : "a");
		return -EINVAL;
	}
	if (v < k->min || v > k->max) {
		(void)snprintf(why, why_size,
			       k->type == CONFIG_MODE ? "%s: out of range (%#o to %#o)"
						      : "%s: out of range (%u to %u)",
			       k->name, k->min, k->max);
		return -EINVAL;
	}
	/* Conditions that a range cannot say; the kernel would refuse them much later. */
	if ((k->offset == offsetof(struct config, ring_kib) ||
	     k->offset == offsetof(struct config, dwarf_ring_kib) ||
	     k->offset == offsetof(struct config, pt_ring_kib)) &&
	    (v & (v - 1)) != 0) {
		(void)snprintf(why, why_size, "%s: not a power of two", k->name);
		return -EINVAL;
	}
	if (k->offset == offsetof(struct config, dwarf_stack_bytes) && v % 8 != 0) {
		(void)snprintf(why, why_size, "%s: not a multiple of 8", k->name);
		return -EINVAL;
	}
	*field_uint(c, k) = (unsigned int)v;
	return 0;
}

int config_init(struct config *c)
{
	char why[128] = "";

	memset(c, 0, sizeof(*c));
	for (size_t i = 0; i < config_n_keys; i++) {
		int r = set_key(c, &config_keys[i], config_keys[i].def, why, sizeof(why));

		if (r == -ENOMEM) {
			config_fini(c);
			return r;
		}
		assert(r == 0); /* our own table */
	}
	return 0;
}

void config_fini(struct config *c)
{
	for (size_t i = 0; i < config_n_keys; i++)
		if (is_string(&config_keys[i])) {
			free(*field_string(c, &config_keys[i]));
			*field_string(c, &config_keys[i]) = NULL;
		}
}

int config_set(struct config *c, const char *section, const char *name, const char *value,
	       char *why, size_t why_size)
{
	char shown[64];

	for (size_t i = 0; i < config_n_keys; i++) {
		const struct config_key *k = &config_keys[i];

		if (strcmp(k->name, name) != 0)
			continue;
		if (section && strcmp(k->section, section) != 0) {
			(void)snprintf(why, why_size, "%s belongs to section [%s]", k->name,
				       k->section);
			return -EINVAL;
		}
		return set_key(c, k, value, why, why_size);
	}
	escape_text(shown, sizeof(shown), name, strlen(name));
	(void)snprintf(why, why_size, "unknown key \"%s\"", shown);
	return -EINVAL;
}

struct load {
	struct config *config;
	int error;
	int line;
	char why[160];
};

/* libinih: 1 goes on, 0 is an error; it returns the first bad line in the end. */
static int on_key(void *user, const char *section, const char *name, const char *value)
{
	struct load *l = user;

	if (l->error)
		return 0;
	if (!section[0]) {
		(void)snprintf(l->why, sizeof(l->why), "a key outside of a section");
		l->error = -EINVAL;
	} else
		l->error = config_set(l->config, section, name, value ? value : "", l->why,
				      sizeof(l->why));
	return l->error == 0;
}

int config_load(struct config *c, const char *path, char *why, size_t why_size)
{
	_cleanup_close_ int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
	struct load l = {.config = c};
	FILE *f;
	int line, unread;

	if (fd < 0)
		return -errno;
	f = fdopen(fd, "re");
	if (!f)
		return -errno;
	(void)take_fd(&fd);
	line = ini_parse_file(f, on_key, &l);
	unread = ferror(f); /* a directory, for one */
	(void)fclose(f);
	if (l.error == -ENOMEM || line < -1)
		return -ENOMEM;
	if (line < 0 || unread)
		return -EIO;
	if (line > 0) {
		(void)snprintf(why, why_size, "line %d: %s", line,
			       l.error ? l.why : "neither [section] nor key = value");
		return -EINVAL;
	}
	return 0;
}

void config_format(const struct config *c, const struct config_key *k, char *buf, size_t size)
{
	if (is_string(k))
		(void)snprintf(buf, size, "%s", *field_string(c, k));
	else
		(void)snprintf(buf, size, k->type == CONFIG_MODE ? "%04o" : "%u",
			       *field_uint(c, k));
}

struct json_object *config_to_json(const struct config *c)
{
	struct json_object *list = json_object_new_array();
	char buf[VALUE_MAX + 1];

	for (size_t i = 0; i < config_n_keys; i++) {
		const struct config_key *k = &config_keys[i];
		struct json_object *o = json_object_new_object();

		config_format(c, k, buf, sizeof(buf));
		json_add_string(o, "section", k->section);
		json_add_string(o, "key", k->name);
		json_add_text(o, "value", buf, strlen(buf));
		json_add_string(o, "default", k->def);
		json_add_string(o, "unit", k->unit);
		json_add_string(o, "doc", k->doc);
		json_append(list, o);
	}
	return list;
}

static void print_key(const struct config *c, const struct config_key *k, FILE *f)
{
	char buf[VALUE_MAX + 1];

	config_format(c, k, buf, sizeof(buf));
	(void)fprintf(f, "# %s", k->doc);
	if (k->type == CONFIG_UINT)
		(void)fprintf(f, " (%s%s%u to %u)", k->unit, *k->unit ? ", " : "", k->min, k->max);
	(void)fprintf(f, "\n%s%s =%s%s\n", strcmp(buf, k->def) == 0 ? "#" : "", k->name,
		      *buf ? " " : "", buf);
}

int config_print(const struct config *c, void *stream)
{
	FILE *f = stream;

	(void)fprintf(
		f,
		"# tracerd.conf: an INI file of [section] and key = value. A comment begins with # or ; at the start\n"
		"# of a line. With an unknown key or a bad value tracerd does not start. Values after a #\n"
		"# are the defaults.\n");
	for (size_t s = 0; s < ARRAY_SIZE(section_docs); s++) {
		(void)fprintf(f, "\n# %s\n[%s]\n", section_docs[s][1], section_docs[s][0]);
		for (size_t i = 0; i < config_n_keys; i++)
			if (strcmp(config_keys[i].section, section_docs[s][0]) == 0)
				print_key(c, &config_keys[i], f);
	}
	return ferror(f) ? -EIO : 0;
}
