/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A perf.data file, as the kernel's perf tool or tracerd writes it: in its file layout or its
 * pipe layout, with any set of events. This owns the header, the events' attributes, their ids
 * and names and the few features that decoding needs, and hands out the records in the order of
 * time (attr.c knows the attributes, feature.c the features, index.c finds and sorts
 * the records, event.c takes one apart).
 *
 * The file is hostile: every size and offset in it is checked against the file's end, and what
 * is cut off or broken is counted in `struct perfdata_losses` while the rest is still read.
 * Recordings of the other byte order are refused.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/perf/source.h"

/* Records that only perf's user space writes (the kernel's are in linux/perf_event.h). */
enum {
	PERFDATA_USER_FIRST = 64,
	PERFDATA_HEADER_ATTR = 64,
	PERFDATA_HEADER_TRACING_DATA = 66,
	PERFDATA_HEADER_BUILD_ID = 67,
	PERFDATA_FINISHED_ROUND = 68,
	PERFDATA_AUXTRACE_INFO = 70,
	PERFDATA_AUXTRACE = 71,
	PERFDATA_EVENT_UPDATE = 78,
	PERFDATA_TIME_CONV = 79,
	PERFDATA_HEADER_FEATURE = 80,
	PERFDATA_COMPRESSED = 81,
	PERFDATA_FINISHED_INIT = 82,
	PERFDATA_COMPRESSED2 = 83,
	PERFDATA_USER_END = 84,
};

/* Bits of the header's feature set that are read. */
enum {
	PERFDATA_FEAT_BUILD_ID = 2,
	PERFDATA_FEAT_OSRELEASE = 4,
	PERFDATA_FEAT_ARCH = 6,
	PERFDATA_FEAT_CPUID = 9,
	PERFDATA_FEAT_CMDLINE = 11,
	PERFDATA_FEAT_EVENT_DESC = 12,
	PERFDATA_FEAT_CLOCKID = 23,
	PERFDATA_FEAT_CLOCK_DATA = 29,
	PERFDATA_FEAT_MAX = 256,
};

#define PERFDATA_MAX_ATTRS 4096u
#define PERFDATA_MAX_IDS (1u << 20)
#define PERFDATA_MAX_BUILD_IDS 65536u

#define PERFDATA_NO_OFFSET 0xffffu

struct perfattr {
	uint32_t type;
	uint64_t config;
	uint64_t sample_type;
	uint64_t read_format;
	uint64_t branch_sample_type;
	uint64_t regs_user;
	uint64_t period; /* period, or frequency where `freq` */
	int32_t clockid;
	bool freq;
	bool sample_id_all;
	bool use_clockid;
	bool context_switch;
	bool exclude_kernel;
	bool exclude_callchain_user;
	/* into rings that keep the newest: what is in the file may begin anywhere */
	bool write_backward;
	char name[64]; /* from EVENT_DESC or EVENT_UPDATE; may be empty; bytes, not text */
	/* derived: where id and time are in a sample's body, and in another record's trailer from
	 * its end */
	uint16_t sample_id_off, sample_time_off;
	uint16_t trailer_size, trailer_id_off, trailer_time_off;
};

/* What a reader did not get; each is a count. */
struct perfdata_losses {
	uint64_t torn;         /* records that end after the file, or have an impossible size */
	uint64_t malformed;    /* records whose body is too short for what it says it holds */
	uint64_t unknown;      /* records of unknown types, skipped */
	uint64_t unknown_ids;  /* records with an id that no attribute has */
	uint64_t compressed;   /* compressed records that could not be unpacked */
	uint64_t no_memory;    /* records beyond the memory limit */
	uint64_t features;     /* feature sections that are cut off or broken */
	uint64_t aux_bytes;    /* bytes of AUX data, which are lost unless somebody decodes them */
	uint64_t unread_bytes; /* bytes after the last record that could be read */
};

struct perfdata_build_id {
	char *name;
	uint8_t size;
	uint8_t id[20];
};

/* A piece of AUX data: what follows one AUXTRACE record. */
struct perfdata_aux {
	uint64_t off, size; /* of the bytes; off as for perfsource_get() */
	uint64_t aux_offset; /* where they lay in the buffer, counted from the recording's begin */
	uint64_t reference;
	uint32_t idx;
	int32_t tid, cpu; /* -1: of any */
};
#define PERFDATA_MAX_AUX (1u << 20)
#define PERFDATA_AUX_INFO_WORDS 64u

struct perfdata_index {
	uint64_t time;
	uint64_t off; /* as for perfsource_get() */
};

struct perfdata {
	struct budget *budget; /* borrowed */
	uint64_t charged;      /* to it, for index and build ids */
	struct perfsource *src;
	bool pipe;
	uint64_t data_off, data_end;
	uint64_t features[PERFDATA_FEAT_MAX / 64];

	struct perfattr *attrs;
	uint32_t n_attrs;
	struct perfdata_id {
		uint64_t id;
		uint32_t attr;
	} * ids; /* sorted by id once records are read */
	uint32_t n_ids, cap_ids;
	bool ids_sorted;
	/* the same for all attributes, else PERFDATA_NO_OFFSET and the first attribute serves */
	uint16_t sample_id_off, trailer_id_off;

	struct perfdata_build_id *build_ids;
	uint32_t n_build_ids;
	char *command;	 /* that recorded, without its arguments; NULL: not known */
	char *osrelease; /* NULL: not known */
	char *arch;
	uint64_t clock_res; /* CLOCKID; 0: not known */
	struct {
		bool known;
		int32_t clockid;
		uint64_t wall_ns;
		uint64_t clock_ns; /* the two were read at one moment */
	} clock_data;

	/* AUX data: AUXTRACE_INFO's type and words, and the pieces in the order of the file */
	uint32_t aux_type;
	uint64_t aux_info[PERFDATA_AUX_INFO_WORDS];
	uint32_t n_aux_info;
	char *cpuid;
	struct perfdata_aux *aux;
	uint32_t n_aux, cap_aux;

	uint64_t n_records[PERFDATA_USER_END];

	/*
	 * The reader's own; others call perfdata_count(), perfdata_last_time() and perfdata_lost().
	 */
	struct perfdata_index *index;
	uint64_t n_index, cap_index, next;
	struct perfdata_losses losses;
};

enum {
	PERFDATA_E_NOT_PERF = 1, /* not a perf.data file at all */
	PERFDATA_E_ENDIAN,       /* recorded on a machine of the other byte order */
	PERFDATA_E_OLD,          /* the format of before 2010 */
	PERFDATA_E_HEADER,       /* the header itself is cut off or contradicts itself */
};

/* The reason of a positive answer, for people. */
const char *perfdata_strerror(int e);

/*
 * Reads header, attributes and features. The descriptor stays the caller's and must live as long
 * as the result. 0, PERFDATA_E_*, or a negative errno.
 */
int perfdata_open(int fd, struct budget *budget, struct perfdata **ret) _must_check_;
struct perfdata *perfdata_free(struct perfdata *pd);
DEFINE_CLEANUP(struct perfdata *, perfdata_free)

/*
 * Finds all records and sorts them by time; `progress` (may be NULL) is called now and then with
 * bytes done and total, and ends the scan with its own value when that is not 0.
 */
typedef int (*perfdata_progress_fn)(void *arg, uint64_t done, uint64_t total);
int perfdata_scan(struct perfdata *pd, perfdata_progress_fn progress, void *arg) _must_check_;

/* What the scan has found: how many records, and the time of the last one, 0 if there is none. */
uint64_t perfdata_count(const struct perfdata *pd);
uint64_t perfdata_last_time(const struct perfdata *pd);
const struct perfdata_losses *perfdata_lost(const struct perfdata *pd);

/* The attribute that a record belongs to; NULL when there is none at all. `len` >= 8. */
const struct perfattr *perfdata_attr_of(struct perfdata *pd, const void *rec, size_t len);

/* Time of a record, or false where its event has none. */
bool perfdata_time_of(struct perfdata *pd, const void *rec, size_t len, uint64_t *ret);

/* Whether its samples are what a BPF program writes: the sampler's switches and wake-ups. */
bool perfattr_is_bpf_output(const struct perfattr *a);
/* Whether it counts nothing: its samples, if any, are stacks that a freeze has taken. */
bool perfattr_is_dummy(const struct perfattr *a);

/* For the files of the reader: what pipe-mode records add while they are read. */
struct perfattr *perfdata_attr_by_id(struct perfdata *pd, uint64_t id);
void perfattr_set_name(struct perfattr *a, const char *s, size_t len);
int perfdata_add_attr(
	struct perfdata *pd, const void *attr, size_t size, const void *ids, size_t n_ids);
void perfdata_add_feature(struct perfdata *pd, unsigned feature, const void *p, size_t size);
void perfdata_add_build_id(struct perfdata *pd, const void *rec, size_t size);
void perfdata_event_update(struct perfdata *pd, const void *rec, size_t size);
