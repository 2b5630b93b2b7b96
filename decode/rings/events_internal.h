/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside of the rings' events: events.c owns them and says what happened, add.c
 * turns a file's rings into records, order.c puts them in order, join.c
 * finds each end's begin, next.c hands them out.
 *
 * A record is 32 bytes and points at its slot; texts and payloads are read when it is handed out.
 */
#pragma once

#include "common/base/hashmap.h"
#include "decode/base/strtab.h"
#include "decode/rings/clock.h"
#include "decode/rings/event.h"
#include "decode/rings/file.h"

/* Threads and fibers that are distinguished, of all programs together. */
#define RINGEVENTS_MAX_STACKS 65536u

#define RINGREC_NO_SLOT UINT32_MAX
#define RINGSEG_NO_STACK UINT32_MAX

enum ringrec_flags {
	RINGREC_JOINED = 1 << 0,  /* a begin and an end that belong together */
	RINGREC_EARLY = 1 << 1,	  /* a begin that was made from its end, whose slot it has */
	RINGREC_DROPPED = 1 << 2, /* not handed out */
	/* RINGEVENT_THREAD without a slot: has the name of the directory's entry */
	RINGREC_NAMED = 1 << 3,
};

struct ringrec {
	uint64_t ts;
	/* of an end, a trigger, an early begin: ns, 0: not known. RINGEVENT_LOST: slots */
	uint64_t began;
	uint32_t slot;	/* its position in the ring, or RINGREC_NO_SLOT */
	uint32_t seg;
	uint32_t name; /* its number in the file */
	uint8_t kind; /* enum ringevent_kind */
	uint8_t flags;
};

/* Records of one ring, one after the other, that the same thread wrote on the same stack. */
struct ringseg {
	uint32_t source, ring; /* ring of the source's file */
	uint32_t nstid;	       /* of the thread, as the program sees it */
	uint32_t tid;	     /* as the trace has it */
	uint32_t stack;	     /* its number among all stacks, RINGSEG_NO_STACK: too many */
	uint64_t fiber;	     /* 0: the thread's own stack */
	uint32_t fiber_name; /* its number in the file; 0: not known */
};

struct ringsource {
	struct ringfile *file;
	struct ringclock clock;
	uint32_t *names; /* number in the string table, + 1; 0: not looked up */
	uint32_t pid;
	bool same_tids; /* the program numbers its threads as the daemon does */
};

struct ringevents_losses {
	uint64_t overwritten, torn, malformed, fields, stamps, names_unknown;
	uint64_t ends_without_begin, crossing;
	uint64_t over_memory, over_limits;
	uint64_t files, files_over_memory, rings, rings_cut;
	uint64_t lost_events, lost_names, lost_long;
};

struct ringevents {
	struct clock_bracket *brackets;
	size_t n_brackets;
	struct budget *budget; /* borrowed */
	uint64_t charged;

	struct ringsource *sources;
	size_t n_sources;
	struct ringrec *recs;
	size_t n_recs, cap_recs;
	struct ringseg *segs;
	size_t n_segs, cap_segs;
	/* (file and whether it is a fiber's, tid or fiber) to the number of a stack, + 1 */
	struct hashmap stacks;
	struct hashmap tids;   /* (file, tid in the program's eyes) to the trace's tid */
	struct hashmap fibers; /* (file, fiber) to its name, as the last switch to it says */
	uint32_t n_stacks, n_made;
	struct strtab *names;
	uint64_t names_charged;

	size_t next; /* record to hand out: they are in order once they are joined */

	uint64_t n_rings, requests_suppressed;
	struct ringevents_losses losses;

	/* texts of the event that was handed out last */
	char *text;
	size_t text_used;
};

#define RINGEVENTS_TEXT_BYTES 32768u

/* Whether so many bytes more may be had; what was taken is given back by ringevents_free(). */
bool ringevents_charge(struct ringevents *r, uint64_t bytes);

/*
 * Within a ring stamps rise, but for signal handlers, whose records may lie among those of what
 * they interrupted. One that is further off than this is wrong.
 */
#define RINGEVENTS_DISORDER_NS UINT64_C(1000000000)

/*
 * Drops those of the records of one ring, from `first` to the last, that most of them contradict.
 * Without the memory for it, all of them stay.
 */
void ringevents_drop_disorder(struct ringevents *r, size_t first);

/* Sorts by time, equal ones as they are, and leaves out what was dropped. 0 or -ENOMEM. */
int ringevents_sort(struct ringevents *r);

/* Sorts, joins, makes the begins that are missing. 0 or -ENOMEM. */
int ringevents_join(struct ringevents *r);

static inline struct ring_slot ringevents_slot(const struct ringevents *r,
					       const struct ringrec *rec)
{
	const struct ringseg *seg = &r->segs[rec->seg];
	struct ring_slot slot;

	ringfile_slot(r->sources[seg->source].file, seg->ring, rec->slot, &slot);
	return slot;
}

static inline void count_add(uint64_t *sum, uint64_t n)
{
	*sum = n > UINT64_MAX - *sum ? UINT64_MAX : *sum + n;
}
