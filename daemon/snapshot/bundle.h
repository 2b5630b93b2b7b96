/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes a bundle (common/bundle/bundle.h says what that is) into the spool: the steps that run on
 * the copier thread, and the text of meta.json. Knows nothing of states: it does one step at a time
 * and reports how it went.
 *
 *   begin+copy   temporary directory; out of the frozen recording first the event rings, which go
 *                on being written, then perf.data; vDSO
 *   meta         meta.json as far as it is known, for the decoder
 *   publish      objects, final meta.json, fsync, rename
 *   abort        removes the temporary directory
 */
#pragma once

#include <json-c/json.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "common/base/safefile.h"
#include "common/bundle/perfdata_write.h"
#include "common/decoder/decoder.h"
#include "daemon/backend/capture.h"
#include "daemon/snapshot/build_ids.h"
#include "daemon/snapshot/objects.h"
#include "daemon/snapshot/spool.h"

struct clocks;

struct bundle_build {
	/* set by the owner before the first step, borrowed */
	struct spool *spool;
	struct frozen *frozen;
	struct build_ids *build_ids;
	struct objects *objects; /* NULL without --with-objects */
	uint64_t max_bytes;
	atomic_bool cancel; /* may be set at any time; steps stop soon with -ECANCELED */
	char id[SPOOL_ID_LEN + 1];

	/* of the steps */
	struct safedir dir;
	struct frozen_stats stats;
	struct perfdata_counts counts;
	struct perfdata_loss *losses;
	size_t n_losses;
	uint64_t perfdata_bytes;
	size_t n_build_ids, build_ids_left_out;
	bool perfdata_cut; /* max_bytes was met: later records are missing */
	bool rings_cut;	   /* the same of the event rings */
	uint64_t kernel_code_bytes;	 /* 0: there is none */
	const char *kernel_code_missing; /* why, static; NULL: nothing is */
	bool vdso_missing;
	bool lacks; /* the recording is missing, see frozen_missing() */
	bool objects_failed; /* no room for them */
	bool published;
	uint64_t bytes; /* of the whole, once published */
	uint64_t copy_ns; /* how long the step took */
};

void bundle_build_init(struct bundle_build *b);
/* Closes; files stay. */
void bundle_build_fini(struct bundle_build *b);

/*
 * Copier thread. BUNDLE_BUILD_E_NOTHING: what was to be recorded is not to be had, and nothing else
 * is there, either.
 */
#define BUNDLE_BUILD_E_NOTHING 1
int bundle_build_copy(struct bundle_build *b) _must_check_;
int bundle_build_write_meta(struct bundle_build *b, const char *text, size_t len) _must_check_;
int bundle_build_copy_objects(struct bundle_build *b) _must_check_;
/*
 * A perf.data that cannot have them is as good as before: 0. Then "perf_data" of meta.json is
 * complete.
 */
int bundle_build_add_ids(struct bundle_build *b) _must_check_;
int bundle_build_publish(struct bundle_build *b) _must_check_;
void bundle_build_abort(struct bundle_build *b);

/*
 * meta.json, after the copy, on the loop. `snapshot` (consumed) is its "snapshot" member; `decoder`
 * (consumed) likewise, NULL before the decoder has run. NULL: no memory.
 */
struct json_object *bundle_build_meta(const struct bundle_build *b, const struct clocks *clocks,
				      struct json_object *snapshot, struct json_object *decoder);

/* "cut" of meta.json: what is missing, and why. Complete once the objects are copied. */
struct json_object *bundle_build_cut(const struct bundle_build *b);

/* "perf_data" of meta.json. */
struct json_object *bundle_build_perfdata(const struct bundle_build *b);

/* "decoder" of meta.json. */
struct json_object *bundle_decoder_json(const struct decoder_outcome *outcome, bool timed_out);
