/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Replays a recording in the order of time: keeps processes and threads as the records change them,
 * asks what they had mapped (decode/object/process_maps.h), turns samples, switches and wake-ups
 * into stacks, and feeds the timeline. This is the glue between the input half (perf/event.h, and
 * rings/event.h for the events of programs, gofeed.h for the traces of Go) and the output half
 * (timeline/timeline.h); it knows no file and no format.
 *
 * A process or thread is declared to the timeline when something of it is first drawn.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/base/file_request.h"
#include "decode/base/stacktab.h"
#include "decode/object/image.h"
#include "decode/object/kallsyms.h"
#include "decode/perf/data.h"
#include "decode/timeline/timeline.h"

struct json_object;
struct prescan;
struct process_maps;

/* Something that the recording's metadata reports, to be drawn at its time. */
struct session_note {
	enum session_note_kind {
		SESSION_LOSS,
		/*
		 * of what a program tells, or of calls: no switch or sample of its threads is
		 * missing
		 */
		SESSION_PROGRAM_LOSS,
		SESSION_MARK,
		SESSION_EXIT,
		SESSION_SUSPENDED, /* from then on nothing was recorded; `text`: why */
	} kind;
	uint64_t begin, end; /* input clock; a mark, an exit and a suspension have end == begin */
	uint64_t count;
	uint32_t tid; /* of a mark: the thread on whose track it is as well; 0: none */
	char text[128]; /* escaped */
};

/*
 * The recorder saw then that the process had ended: nothing of it lives any more, whatever records
 * are missing.
 */
struct session_end {
	uint64_t ns; /* input clock */
	uint32_t pid;
};

/* The execution trace of a Go program. */
struct gofeed;
struct timeline_go;
struct session_go {
	struct gofeed *feed; /* borrowed */
	int fd;		     /* that it reads; borrowed */
	struct timeline_go *timeline; /* the session's */
};

struct session_options {
	struct perfdata *pd; /* scanned; all are borrowed. NULL: there are only events */
	struct ringevents *events; /* finished; may be NULL */
	uint64_t events_end_ns; /* events after that are left out, for nothing else is known of that
				   time; 0: none are */
	struct session_go *go;
	size_t n_go;
	struct replay_pt *pt; /* the recording's PT; may be NULL */
	const struct prescan *prescan; /* of its records; NULL: nothing was lost */
	struct images *images;
	struct kallsyms *kallsyms; /* NULL: the kernel's functions have no names */
	bool kallsyms_hidden;	   /* there is a list of them, without addresses */
	bool unwinds;		   /* Python's functions were looked for */
	/* with PT they have all records; without, the session feeds them */
	struct process_maps *maps;
	struct stacktab *st;
	struct timeline *tl;
	const struct file_requester *files;
	struct budget *budget;
	bool symbols;
	struct source *source; /* NULL: where functions are declared is not wanted */
	bool inlined;	       /* stacks have the calls that were inlined; needs a source */
	/* names of JIT code may be asked for: pids mean what they meant when this was recorded */
	bool perfmaps;
	/* all threads that live are of interest, also those that never ran: a target's, not a
	 * host's */
	bool whole_target;
	const struct session_note *notes; /* sorted by end */
	size_t n_notes;
	const struct session_end *ends; /* sorted by time */
	size_t n_ends;
	/* nspid of a pid, 0 if not known; may be NULL */
	uint32_t (*nspid)(void *arg, uint32_t pid);
	void *nspid_arg;
	/* called now and then; a negative answer ends the replay with it */
	int (*progress)(void *arg, uint64_t done, uint64_t total);
	void *progress_arg;
};

struct session;

int session_new(const struct session_options *options, struct session **ret) _must_check_;
struct session *session_free(struct session *s);
DEFINE_CLEANUP(struct session *, session_free)

/* A process has this name (escaped) until the recording says another. */
void session_name_process(struct session *s, uint32_t pid, const char *name);

/* Replays everything. 0, or a negative errno: of the link, the writer, memory, or -ECANCELED. */
int session_run(struct session *s) _must_check_;

/* Adds to the summary what would give names where they are missing ("hints"). */
void session_hints(const struct session *s, struct json_object *summary);
/* What happened, for RESULT. */
void session_report(const struct session *s, struct json_object *stats, struct json_object *losses);

/* What a timeline must know of the recording before it is replayed. */
bool session_has_switches(const struct perfdata *pd);
enum clock_source session_clock(const struct perfdata *pd);
