/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which process had what mapped when: the address spaces of all processes of a recording, in
 * versions. Owns them for both halves of a replay, which ask by process and time. It must not know
 * who asks, nor what lies at an address beyond the image.
 *
 * The rules:
 * - A mapping that takes no other one's place holds from the begin of its version on. Records made
 *   from /proc come after what they describe, times of PT are estimates, and code that ran there
 *   was mapped there.
 * - A mapping that takes another one's place begins a version at its record.
 * - An exec begins a version, without mappings.
 * - A fork begins a version of the child with what the parent has then. An older process of that id
 *   is gone with all that it had, also where nothing is known of the parent.
 * - The first version of a process holds from the begin of the recording on.
 *
 * Fed by one thread; once it has all records, any thread may ask.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "common/base/cleanup.h"
#include "decode/base/budget.h"
#include "decode/object/address_space.h"

struct images;
struct perfevent;
struct process_maps;

/* `past`: all versions are kept; else only the newest, for whoever asks while the records go by. */
int process_maps_new(struct images *images, struct budget *budget, bool past,
		     struct process_maps **ret) _must_check_;
/* The kernel's own, in the upper half of each space: borrowed. Before the first record. */
void process_maps_set_kernel(struct process_maps *m, const struct address_space *kernel);
struct process_maps *process_maps_free(struct process_maps *m);
DEFINE_CLEANUP(struct process_maps *, process_maps_free)

/* Each record, in the order of time. What finds no room is counted. */
void process_maps_record(struct process_maps *m, const struct perfevent *ev);

/*
 * What the process has mapped at a time of the perf clock, or without the past now; NULL: nothing
 * is known of it. Lives until the next record.
 */
const struct address_space *process_maps_at(const struct process_maps *m, uint32_t pid,
					    uint64_t time);

uint64_t process_maps_records(const struct process_maps *m); /* of mappings */
uint64_t process_maps_refused(const struct process_maps *m); /* records, for want of room */
