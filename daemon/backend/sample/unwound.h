/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records whose stack was found by the BPF programs, as the rings have them
 * (common/bundle/schedev.h), made into what other stacks are in: a tick's into a sample of the
 * clock, others into a "sched" record with a call chain. Registers and stack bytes, for which these
 * events have fields, are not there, and the record says so. What Python's functions add to a stack
 * (common/bundle/python.h) becomes the payload of a sample, and is behind the event of others.
 */
#pragma once

#include "common/bundle/python.h"
#include "daemon/backend/sample/bpf/filter.h"
#include "daemon/backend/sample/event_group.h"
#include "daemon/perf/record.h"

#define UNWOUND_RECORD_MAX 4096u

/*
 * `view` is of a record of `*event`. 0: it is no such record; 1: *view and *event are of the one
 * that was made, in `buf`; -EBADMSG.
 */
int unwound_expand(const struct event_group *group, struct record_view *view,
		   enum group_event *event, uint8_t buf[static UNWOUND_RECORD_MAX]) _must_check_;

/*
 * The record of GROUP_STACK that a thread is still in the wait whose stack was kept, with such an
 * id. The kernel's part of the stack is that of `task`, if it is there. 0 or -EBADMSG.
 */
int unwound_blocked(const struct event_group *group, const struct filter_kept *kept,
		    const struct filter_task *task, uint64_t id, uint64_t time_ns,
		    uint8_t buf[static UNWOUND_RECORD_MAX]) _must_check_;
/*
 * Makes the record of the group's event PLAIN, with the time that it has in the ring, of one
 * without a stack. 0 or -EBADMSG.
 */
int unwound_plain(const struct event_group *group, const struct filter_record *record,
		  uint8_t buf[static UNWOUND_RECORD_MAX]) _must_check_;

/*
 * The words of Python's part of the stack, the head first, of a record that was expanded: how many,
 * 0 if it has none. By memcpy(): they are not aligned.
 */
size_t unwound_python(const struct record_view *view, const uint8_t **ret_words);
/* A record with a function, of the event GROUP_PLAIN. How long it is. */
size_t unwound_function(const struct python_function *function, uint64_t id, uint64_t time_ns,
			uint8_t buf[static UNWOUND_RECORD_MAX]);
