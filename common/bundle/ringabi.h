/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ring ABI, version 1: the shared memory into which a program writes its own events and from which
 * the daemon copies them, and the page by which the daemon gives a program its thresholds. This
 * header is the whole agreement; a producer in another language needs nothing else of tracerd but
 * the method "target.register" of the control protocol. Everything is little endian; offsets and
 * sizes are bytes unless they say slots; "stamp" is a reading of the ring's clock (header.clock).
 *
 * ---- The memory
 *
 * One memfd a process, made with MFD_ALLOW_SEALING, grown to its final size, mapped read-write by
 * the producer, and only then sealed with exactly
 *
 *	F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL
 *
 * so that nobody can take pages away under a reader: SHRINK and GROW stop ftruncate(), FUTURE_WRITE
 * stops hole punching and new writable mappings while the producer's own mapping goes on working.
 * F_SEAL_EXEC may be there besides: MFD_NOEXEC_SEAL or the host's vm.memfd_noexec sets it. The
 * daemon refuses any other set, hugetlb, and a size that does not follow from the geometry:
 *
 *	0                    struct ring_header                        RING_HEADER_BYTES
 *	RING_CAUSES_OFFSET   struct ring_cause [RING_CAUSES]           RING_CAUSES_BYTES
 *	RING_NAMES_OFFSET    struct ring_name [names_max]              16 each, then padding to a page
 *	text_offset          the names' bytes, one after the other     text_bytes
 *	dir_offset           struct ring_entry [rings]                 128 each, then padding to a page
 *	data_offset          slots: ring 0, ring 1, ...                rings × slots × 32
 *
 * names_max, text_bytes, rings and slots are what a producer chooses, within the limits below;
 * text_bytes is a multiple of a page, slots a power of two. ring_layout() computes the rest.
 *
 * ---- A ring
 *
 * Each ring has one writer at a time: the thread whose id is in its entry. It counts slots since
 * the ring was made; slot i of that count lies at position i % slots and overwrites what was there.
 *
 *  1. reserve: n = the record's slots; i = entry.head; entry.head = i + n, by one instruction that
 *     a signal handler of the same thread cannot split (x86: xadd without lock prefix).
 *  2. order: head must be visible before anything of the slots is (x86: a compiler barrier).
 *  3. fill each slot, its word (name, kind, sequence) last, by one aligned 8 byte store that is
 *     ordered after the stores to the other three words of that slot.
 *
 * The sequence of slot i is the low 16 bits of (i / slots + 1). So a position that was never
 * written, is being written, or was left half-done by a writer that died, does not match, and
 * a slot counts only if it does.
 *
 * A reader copies the slots between two readings of head, h0 before and h1 after. Of the slots [h0
 * - slots, h0) it drops those below h1 - slots + RING_SPAN_MAX: the writer may have been in them.
 *
 * ---- A record
 *
 * A record is one slot and, if it has a payload, up to RING_SPAN_MAX continuation slots after it,
 * whose number is in the first slot's kind word. A continuation slot has the kind RING_CONT in its
 * word; the payload are its other 28 bytes: offset 0..11 (stamp and name), then 16..31 (a and b).
 *
 * The payload is a list of fields, each a struct ring_field and then `bytes` bytes, padded with
 * zeroes to a multiple of 4. It ends with the payload or with a field of type RING_FIELD_END.
 *
 * ---- Kinds             name             a                        b                       payload
 *
 *  RING_THREAD           thread's name    thread id                thread id of the ring's  -
 *	the first record of a thread in its ring                  previous writer, or 0
 *  RING_REGION_BEGIN     region's name    0                        task id or 0             arguments
 *  RING_REGION_END       region's name    stamp of its begin       task id or 0             arguments
 *  RING_INSTANT          name             0                        task id or 0             arguments
 *  RING_LOG              format or 0      level (enum ring_level)  task id or 0             fields
 *	with a format: the fields are the values of its printf conversions, in order; without one: one
 *	field RING_FIELD_TEXT, the text
 *  RING_COUNTER          counter's name   value; RING_FLAG_F64: the bits of a double        -
 *  RING_TASK_BEGIN       task's name      task id                  parent's task id or 0    arguments
 *  RING_TASK_END         task's name      task id                  stamp of its begin       arguments
 *  RING_FLOW             flow's name      flow id                  enum ring_flow           -
 *  RING_FIBER            fiber's name     fiber id, 0: own stack  fiber id before         -
 *	from here on this thread runs that fiber's stack; `b` says whose stack older records are of
 *  RING_THREAD_NAME      thread's name    0                        0                        -
 *  RING_TRIGGER          region's name    stamp of its begin       number of the cause      -
 *	a region was over its threshold, or (name 0, a 0) the program asked for a snapshot; the cause's
 *	number is its sequence
 *
 * Ids of tasks and flows are any number but 0 that is unique in the process for as long as it is in
 * the rings, also among several memories of the process. The library takes the number of the memory
 * << 51 | (ring + 1) << 40 | the low 40 bits of the record's slot number.
 *
 * ---- Names
 *
 * Name number n (1, 2, ...) is ring_name[n - 1]: an offset into the text and a length. `length` is
 * stored last and is 0 until the name can be read; neither it nor its text changes afterwards.
 * header.n_names counts the numbers that were given out and may exceed names_max: those beyond are
 * lost, and counted.
 *
 * ---- Causes
 *
 * Where a program wants a snapshot it writes ring_cause[c % RING_CAUSES], c from an atomic
 * increment of header.cause_head, with sequence 0 first and c + 1 last, and adds 1 to the eventfd
 * that it registered.
 *
 * ---- Fork, exec, threads
 *
 * A child must not write into its parent's memory: producers mark the mapping MADV_DONTFORK and
 * forget it in the child, which may make memory of its own and register it. A ring may be taken
 * over when its writer's thread has ended; its head goes on. Exec ends a registration.
 */
#pragma once

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RING_MAGIC "TRCDRING"
#define RING_VERSION 1u

#define RING_SEALS 0x17u     /* SEAL | SHRINK | GROW | FUTURE_WRITE */
#define RING_SEALS_MAY 0x20u /* EXEC */

#define RING_PAGE 4096u
#define RING_HEADER_BYTES 4096u
#define RING_CAUSES 16u
#define RING_CAUSE_BYTES 512u
#define RING_CAUSE_TEXT 448u
#define RING_CAUSES_OFFSET RING_HEADER_BYTES
#define RING_CAUSES_BYTES (RING_CAUSES * RING_CAUSE_BYTES)
#define RING_NAMES_OFFSET (RING_CAUSES_OFFSET + RING_CAUSES_BYTES)

/* What a producer may choose; the daemon's configuration may allow less. */
#define RING_MIN_SLOTS 64u
#define RING_MAX_SLOTS (1u << 20)
#define RING_MAX_RINGS 1024u
#define RING_MAX_NAMES 16384u
#define RING_MAX_TEXT (4u << 20)
#define RING_MAX_NAME 1024u /* bytes of one name */

#define RING_SLOT_BYTES 32u
#define RING_CONT_BYTES 28u
#define RING_SPAN_MAX 40u /* continuation slots of one record */
#define RING_PAYLOAD_MAX (RING_SPAN_MAX * RING_CONT_BYTES)

enum ring_clock {
	RING_CLOCK_TSC = 1,	      /* rdtsc */
	RING_CLOCK_MONOTONIC_RAW = 2, /* ns; where the TSC cannot be used */
};

struct ring_header {
	char magic[8];	      /*   0 RING_MAGIC, stored last */
	uint32_t version;     /*   8 RING_VERSION */
	uint32_t clock;	      /*  12 enum ring_clock */
	uint64_t total_bytes; /*  16 of the memfd */
	uint32_t pid;	      /*  24 of the producer, as it sees itself */
	uint32_t rings;	      /*  28 */
	uint32_t slots;	      /*  32 of each ring */
	uint32_t names_max;   /*  36 */
	uint32_t text_bytes;  /*  40 */
	uint32_t text_offset; /*  44 */
	uint32_t dir_offset;  /*  48 */
	uint32_t data_offset; /*  52 */
	/* written while it runs */
	uint32_t n_names;     /*  56 numbers given out */
	uint32_t text_used;   /*  60 bytes given out; may exceed text_bytes */
	uint64_t cause_head;  /*  64 causes written */
	uint64_t lost_names;  /*  72 names that found no room */
	uint64_t lost_events; /*  80 events that found no free ring, or had no name */
	uint64_t lost_long;   /*  88 fields or texts that were cut to fit a record */
	uint64_t requests_suppressed; /*  96 snapshot requests of the program within its own interval */
	uint64_t started;	      /* 104 stamp */
	uint64_t reserved[2];	      /* 112 zero */
	/*
	 * Region ends over the threshold of that entry of the control page that are no cause: they
	 * were within its cooldown, or the program had closed the eventfd.
	 */
#define RING_THRESHOLDS 64u
	uint64_t suppressed[RING_THRESHOLDS]; /* 128 */
};
static_assert(offsetof(struct ring_header, suppressed) == 128, "ring_header");
static_assert(sizeof(struct ring_header) == 640, "ring_header");

enum ring_cause_kind {
	RING_CAUSE_REGION = 1,	/* a region was over its threshold */
	RING_CAUSE_REQUEST = 2, /* the program asks */
};

struct ring_cause {
	uint64_t sequence; /*  0 */
	uint32_t kind;	   /*  8 enum ring_cause_kind */
	uint32_t tid;	   /* 12 as the program sees it */
	uint32_t name;	   /* 16 of the region */
	uint32_t trigger;  /* 20 ring_threshold.id; 0 for a request */
	uint64_t begin;	   /* 24 stamps; of a request: both the moment */
	uint64_t end;	   /* 32 */
	uint32_t length;   /* 40 of the text */
	uint32_t reserved; /* 44 */
	uint8_t text[RING_CAUSE_TEXT]; /* 48 the region's name, or the reason: bytes */
	uint8_t pad[16];
};
static_assert(sizeof(struct ring_cause) == RING_CAUSE_BYTES, "ring_cause");

struct ring_name {
	uint32_t offset; /*  0 into the text */
	uint32_t length; /*  4 stored last */
	uint64_t hash;	 /*  8 ring_hash() of the bytes; informative */
};
static_assert(sizeof(struct ring_name) == 16, "ring_name");

/* A ring's entry in the directory. Two cache lines: neighbours do not disturb each other. */
struct ring_entry {
	uint64_t head;	  /*  0 slots reserved since the ring was made */
	uint32_t tid;	  /*  8 of its writer, the present or the last; 0: never used */
	uint32_t claims;  /* 12 how many threads it has had */
	uint32_t name;	  /* 16 of the writer, as it is now; 0: none */
	uint32_t reserved; /* 20 */
	uint64_t fiber;	  /* 24 that the writer runs now */
	uint64_t claimed; /* 32 stamp */
	uint8_t pad[88];
};
static_assert(sizeof(struct ring_entry) == 128, "ring_entry");

struct ring_slot {
	uint64_t stamp; /*  0 */
	uint32_t name;	/*  8 */
	uint16_t kind;	/* 12 bits 0-5 enum ring_kind, 6-9 flags, 10-15 continuation slots */
	uint16_t sequence; /* 14 */
	uint64_t a;	/* 16 */
	uint64_t b;	/* 24 */
};
static_assert(sizeof(struct ring_slot) == RING_SLOT_BYTES, "ring_slot");

enum ring_kind {
	RING_THREAD = 1,
	RING_REGION_BEGIN,
	RING_REGION_END,
	RING_INSTANT,
	RING_LOG,
	RING_COUNTER,
	RING_TASK_BEGIN,
	RING_TASK_END,
	RING_FLOW,
	RING_FIBER,
	RING_THREAD_NAME,
	RING_TRIGGER,
	RING_CONT,
	_RING_KIND_MAX,
};

#define RING_KIND_MASK 0x3fu
#define RING_FLAG_F64 (1u << 6)
#define RING_SPAN_SHIFT 10

enum ring_flow { RING_FLOW_BEGIN, RING_FLOW_STEP, RING_FLOW_END };

enum ring_level { RING_DEBUG, RING_INFO, RING_WARNING, RING_ERROR };

/* A field of a payload: an argument by name, or a value of a log's format (name 0). */
struct ring_field {
	uint32_t name;	/* 0 of the argument */
	uint16_t type;	/* 4 enum ring_field_type */
	uint16_t bytes; /* 6 of the value that follows */
};

enum ring_field_type {
	RING_FIELD_END,
	RING_FIELD_U64,
	RING_FIELD_I64,
	RING_FIELD_F64,
	RING_FIELD_TEXT,	 /* bytes, no terminator */
	RING_FIELD_TEXT_CUT,	 /* the beginning of a longer one */
	RING_FIELD_POINTER,	 /* u64 */
	RING_FIELD_NAME,	 /* u32: a name's number */
};

/*
 * ---- The control page
 *
 * A sealed memfd of RING_CONTROL_BYTES that the daemon owns and passes read-only in the answer to
 * "target.register". The program binds thresholds to its names when a name is made and again
 * whenever the daemon says so (event "control.changed" on the connection) or sees that the
 * generation has moved. `generation` is odd while the daemon writes: read it, the entries, and it
 * again.
 */
#define RING_CONTROL_MAGIC "TRCDCTRL"
#define RING_CONTROL_NAME 216u

struct ring_threshold {
	uint64_t hash;	       /*  0 ring_hash() of the name */
	uint64_t threshold_ns; /*  8 a region that took this long or longer is a cause */
	uint64_t cooldown_ns;  /* 16 after one, others within this time are counted only */
	uint32_t id;	       /* 24 never used twice in a connection; 0: the entry is free */
	uint32_t length;       /* 28 of the name */
	uint8_t name[RING_CONTROL_NAME]; /* 32 */
	uint64_t reserved;
};
static_assert(sizeof(struct ring_threshold) == 256, "ring_threshold");

struct ring_control {
	char magic[8];		    /*  0 RING_CONTROL_MAGIC */
	uint32_t version;	    /*  8 RING_VERSION */
	uint32_t generation;	    /* 12 */
	uint64_t ticks_per_second;  /* 16 of the TSC; 0: not known. A MONOTONIC_RAW ring has 10^9 */
	uint64_t request_interval_ns; /* 24 snapshot requests of the program closer than this are counted only */
	uint64_t reserved[12];
	struct ring_threshold thresholds[RING_THRESHOLDS]; /* 128 */
};
static_assert(offsetof(struct ring_control, thresholds) == 128, "ring_control");
#define RING_CONTROL_BYTES (5u * RING_PAGE)
static_assert(sizeof(struct ring_control) <= RING_CONTROL_BYTES, "ring_control");

/* ---- what follows from the above */

/* FNV-1a, 64 bit. */
static inline uint64_t ring_hash(const void *bytes, size_t n)
{
	const uint8_t *p = (const uint8_t *)bytes;
	uint64_t h = 0xcbf29ce484222325ULL;

	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3ULL;
	return h;
}

static inline uint16_t ring_sequence(uint64_t index, uint32_t slots)
{
	return (uint16_t)(index / slots + 1);
}

struct ring_geometry {
	uint32_t rings, slots, names_max, text_bytes; /* chosen */
	uint32_t text_offset, dir_offset, data_offset; /* computed */
	uint64_t total_bytes;
};

/* Computes the offsets and the size; false if what was chosen is outside the limits. */
static inline bool ring_layout(struct ring_geometry *g)
{
	const uint64_t page = RING_PAGE;
	uint64_t at = RING_NAMES_OFFSET;

	if (g->rings == 0 || g->rings > RING_MAX_RINGS || g->slots < RING_MIN_SLOTS ||
	    g->slots > RING_MAX_SLOTS || (g->slots & (g->slots - 1)) != 0 || g->names_max == 0 ||
	    g->names_max > RING_MAX_NAMES || g->text_bytes == 0 || g->text_bytes > RING_MAX_TEXT ||
	    g->text_bytes % RING_PAGE != 0)
		return false;
	at += ((uint64_t)g->names_max * sizeof(struct ring_name) + page - 1) / page * page;
	g->text_offset = (uint32_t)at;
	at += g->text_bytes;
	g->dir_offset = (uint32_t)at;
	at += ((uint64_t)g->rings * sizeof(struct ring_entry) + page - 1) / page * page;
	g->data_offset = (uint32_t)at;
	g->total_bytes = at + (uint64_t)g->rings * g->slots * RING_SLOT_BYTES;
	return true;
}

/* Whether a header (a private copy of it) describes exactly a layout of that many bytes. */
static inline bool ring_header_check(const struct ring_header *h, uint64_t file_bytes,
				     struct ring_geometry *ret)
{
	struct ring_geometry g = {.rings = h->rings,
				  .slots = h->slots,
				  .names_max = h->names_max,
				  .text_bytes = h->text_bytes};

	if (__builtin_memcmp(h->magic, RING_MAGIC, sizeof(h->magic)) != 0 ||
	    h->version != RING_VERSION ||
	    (h->clock != RING_CLOCK_TSC && h->clock != RING_CLOCK_MONOTONIC_RAW) ||
	    !ring_layout(&g))
		return false;
	if (g.text_offset != h->text_offset || g.dir_offset != h->dir_offset ||
	    g.data_offset != h->data_offset || g.total_bytes != h->total_bytes ||
	    g.total_bytes != file_bytes)
		return false;
	*ret = g;
	return true;
}
