/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Configuration: one const table gives each key its section, type, range, default and meaning.
 * The parser of tracerd.conf, --print-config, config.show and the manual come from it.
 *
 * tracerd.conf is an INI file: [section], key = value, comments start with '#' or ';' at the
 * beginning of a line. A key or value that is not understood is an error with its line:
 * a limit that was misspelled must not silently be the default.
 *
 * Filled once before the loop starts and const after that: everybody may keep the pointer.
 */
#pragma once

#include <stddef.h>

#include "common/control/json.h"

struct config {
	/* [daemon] */
	char *runtime_dir;
	char *state_dir;
	char *socket_group;
	unsigned int socket_mode;
	unsigned int status_mode;
	char *decoder; /* "" : beside our own executable, else the installed one */
	char *log_level;
	unsigned int max_connections;
	unsigned int max_targets;
	unsigned int max_triggers;
	/* [capture] */
	unsigned int sample_hz;
	unsigned int ring_kib;          /* per cpu, per set of events with stacks=fp */
	unsigned int dwarf_ring_kib;    /* the same with stacks=dwarf */
	unsigned int ring_total_mib;    /* per set */
	unsigned int dwarf_stack_bytes;
	unsigned int pt_ring_kib;       /* per cpu and target */
	unsigned int pt_total_mib;      /* per target */
	char *pt_timing;
	char *python_frames; /* "yes", "no" */
	unsigned int unwind_cache_mib;
	unsigned int keep_ms;		/* per target */
	unsigned int wait_min_us;
	unsigned int keep_total_mib;	/* rings that are larger than configured, all together */
	unsigned int history_mib;       /* per target */
	unsigned int exited_keep_s;
	unsigned int images_max;        /* executable files kept open, all targets together */
	/* [events] */
	unsigned int event_memory_mib; /* of one program */
	unsigned int event_threads;
	unsigned int event_names;
	unsigned int max_producers;
	/* [snapshot] */
	unsigned int snapshots_running;
	unsigned int snapshots_queued;
	unsigned int snapshot_timeout_s;
	unsigned int decoder_timeout_s;
	unsigned int decoder_memory_mib;
	unsigned int decoder_threads;   /* 0: as many as there are processors */
	unsigned int max_output_mib;
	unsigned int frozen_mib;    /* of what rings held, for snapshots that wait for their copy */
	unsigned int trigger_after_ms;
	/* of each target: snapshots that its program asks for */
	unsigned int program_interval_ms;
	unsigned int program_snapshots_per_hour;
	unsigned int go_wait_ms;    /* for the traces of Go programs */
	unsigned int go_trace_mib;
	unsigned int step_freeze_s; /* for a stepper's answer */
	/* [spool] */
	unsigned int spool_max_mib;
	unsigned int spool_max_age_h;
	unsigned int spool_max_count;
	unsigned int spool_keep_free_percent;
	unsigned int spool_hold_s;
	/* [quota]: of each uid; root and the daemon's own user have only the limits of the whole */
	unsigned int uid_connections;
	unsigned int uid_targets;
	unsigned int uid_steppers;
	unsigned int uid_triggers;
	unsigned int uid_ring_mib;
	unsigned int uid_fds;
	unsigned int uid_snapshots_running;
	unsigned int uid_snapshots_queued;
	unsigned int uid_spool_mib;
	unsigned int uid_producers;
	unsigned int uid_event_mib;
	unsigned int uid_image_mib;
	/* [client] */
	unsigned int client_read_timeout_s;
	unsigned int client_write_timeout_s;
	unsigned int client_idle_s;
	unsigned int client_ping_s;
	unsigned int client_queue_kib;
	unsigned int client_events;
};

enum config_type {
	CONFIG_STRING,
	CONFIG_PATH,
	CONFIG_UINT,
	CONFIG_MODE,
	CONFIG_LEVEL,
	CONFIG_CHOICE
};

struct config_key {
	const char *section;
	const char *name;
	enum config_type type;
	size_t offset; /* in struct config */
	unsigned int min, max;
	const char *def;
	const char *unit; /* "" where the value is a count or a name */
	const char *doc;
	const char *choices; /* CONFIG_CHOICE: "low|normal|high" */
};
extern const struct config_key config_keys[];
extern const size_t config_n_keys;

/* All defaults. 0, -ENOMEM. */
int config_init(struct config *c) _must_check_;
void config_fini(struct config *c);

/*
 * Sets one key from text; `section` NULL: of any. 0, -ENOMEM, or -EINVAL with a sentence in `why`.
 */
int config_set(struct config *c, const char *section, const char *name, const char *value,
	       char *why, size_t why_size) _must_check_;

/* Reads a file over what is there. 0, -errno of opening, -EINVAL with "line 3: ..." in `why`. */
int config_load(struct config *c, const char *path, char *why, size_t why_size) _must_check_;

/* A key's value as text. */
void config_format(const struct config *c, const struct config_key *k, char *buf, size_t size);

/* [{section,key,value,default,unit,doc}] */
struct json_object *config_to_json(const struct config *c);

/* The annotated file, with the values of `c`: what etc/tracerd.conf is made of. */
int config_print(const struct config *c, void *stream /* FILE */);
