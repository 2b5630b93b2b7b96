/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a perf.data file that stock perf reads: header, records, attributes with their ids and
 * the feature sections. Records come whole and as the kernel lays them out; this file knows their
 * headers only, counts them by type and never looks for meaning in them.
 *
 * The file is of one clock (see design 4.1). Records need not be in the order of time: without
 * FINISHED_ROUND records perf sorts the whole file.
 *
 * Records of loss (PERF_RECORD_LOST, LOST_SAMPLES) make stock perf print warnings, and they say
 * nothing that perf shows otherwise. They are kept out of the file and handed to meta.json by
 * perfdata_losses(), which reports every loss of a bundle.
 *
 * One thread at a time; the fd stays the caller's and is written from its start.
 */
#pragma once

#include <linux/perf_event.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "common/base/cleanup.h"
#include "common/bundle/perfabi.h"

#define PERFDATA_MAX_EVENTS 64

struct perfdata_writer;

/* What is in the file; the numbers that meta.json has and that `perf script` finds again. */
struct perfdata_counts {
	uint64_t records, bytes; /* but for the bytes that follow AUXTRACE records */
	uint64_t samples, mmaps, comms, execs, forks, exits, namespaces, switches, others;
	/* from LOST and LOST_SAMPLES records, which are not in the file */
	uint64_t lost_records, lost_events;
};

/* One LOST or LOST_SAMPLES record. cpu, time and id are 0 where it carried no sample_id. */
struct perfdata_loss {
	uint64_t time, lost, id;
	uint32_t type, cpu;
};

/* What the feature sections say. Strings may be NULL; what is unknown is left out. */
struct perfdata_about {
	const char *command;		  /* "tracerd", for CMDLINE */
	uint64_t first_time, last_time;	  /* SAMPLE_TIME; both 0: left out */
	/* of all records: CLOCK_MONOTONIC_RAW or CLOCK_MONOTONIC */
	clockid_t clock;
	/* they are on perf's own clock instead, and nothing is said of clocks */
	bool perf_clock;
	uint64_t clock_ns, wall_clock_ns; /* CLOCK_DATA: the two at one moment; both 0: left out */
	/*
	 * Of a file with AUXTRACE records: the PMU that wrote them, for PMU_MAPPINGS; CPUID and
	 * AUXTRACE are added.
	 */
	const char *aux_pmu;
	uint32_t aux_pmu_type;
	const char *cpuid; /* of the processor that was traced; NULL: this one */
	bool vdso;	   /* it has code of this kernel's vDSO, which perf finds by its build id */
};

/*
 * The file shall not grow past `max_bytes` (0: no limit). `cancel`, where not NULL, is looked at by
 * each write: once it is set they all answer -ECANCELED.
 */
int perfdata_writer_new(int fd, uint64_t max_bytes, const atomic_bool *cancel,
			struct perfdata_writer **ret) _must_check_;
void perfdata_writer_free(struct perfdata_writer *w);
DEFINE_CLEANUP(struct perfdata_writer *, perfdata_writer_free)

/*
 * Registers an event: its attribute (attr->size bytes count, newer fields are zeroed), the name
 * that perf shows and the ids of its perf fds. May be called at any time before the end; ids of one
 * event may be given in several calls by the same name and attribute. All events need
 * PERF_SAMPLE_IDENTIFIER and sample_id_all (-EINVAL), or perf could not tell their records apart.
 */
int perfdata_add_event(struct perfdata_writer *w, const char *name,
		       const struct perf_event_attr *attr, const uint64_t *ids,
		       size_t n_ids) _must_check_;

/*
 * Appends whole records. Returns 0, -EINVAL (a header that is shorter than 8 bytes, not a multiple
 * of 8 or past the end: nothing of this call is written), -EFBIG (would pass the limit: nothing of
 * this call is written, and the file can still be finished), -ECANCELED, or what write() said
 * (-ENOSPC ...: the file is lost).
 */
int perfdata_write(struct perfdata_writer *w, const void *records, size_t len) _must_check_;

/*
 * An AUXTRACE record of `bytes` bytes, which are then given to perfdata_aux_add() in as many pieces
 * as one likes; until they are complete nothing else can be written. header and size of the record
 * are set here. Both answer as perfdata_write(); more bytes than were said are -EINVAL.
 */
int perfdata_aux_begin(struct perfdata_writer *w, const struct perfabi_auxtrace *record,
		       uint64_t bytes) _must_check_;
int perfdata_aux_add(struct perfdata_writer *w, const void *data, size_t len) _must_check_;

/* Writes what is buffered, the attributes, the features and at last the header. */
int perfdata_finish(struct perfdata_writer *w, const struct perfdata_about *about) _must_check_;

const struct perfdata_counts *perfdata_counts(const struct perfdata_writer *w);

/* The first PERFDATA_MAX_LOSSES records of loss; those after are in the counts only. */
#define PERFDATA_MAX_LOSSES 1024
const struct perfdata_loss *perfdata_losses(const struct perfdata_writer *w, size_t *ret_n);
