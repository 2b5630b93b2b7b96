/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the little language of timeline cases: a text file of events, one a line, which drives a
 * real timeline (for goldens, and to make traces for the importer's test). Empty lines and lines
 * with # are comments. Fields are separated by blanks; times are ns; "-" is "none"; a stack is
 * outer;inner;innermost, a frame name@object:file:line*TIMES, [missing] stands for unknown
 * callers, "later" alone comes with "waited" or "blocked"; WHO is tid, idle, other or unknown, with
 * ":name" behind. A "!" in front: the call must answer TIMELINE_E_ORDER.
 *
 *   period NS | depth N | switches | wait-min NS | focus FROM TO | kernel RELEASE
 *   cause REGION TID BEGIN END OVER
 *   clock raw | bracket SOURCE MONO WIDTH
 *   process PID TS NAME            thread PID TID TS NAME        exit TID TS
 *   program PID TS (another one from then on)
 *   sample TID TS CPU STACK        out TID TS CPU STATE STACK WHO in TID TS CPU WHO
 *   goroutine TID TS ID FUNCTION|- (of what follows for TID)
 *   wake TID TS CPU WHO irq|- STACK waited TID TS NS STACK       blocked TID TS STATE STACK
 *   loss TID FROM TO COUNT KIND... mark TS NAME...               counter PID TS VALUE NAME...
 *   incomplete FROM TO
 *   call TID TS FRAME HOW...|-     return TID TS INSTRUCTIONS    untraced TID TS WHY... | traced TID TS
 *     (TS of these two with a ~ in front: interpolated)  called TID TS FRAME SITE
 *   found TID TS | outside TID TS FRAME MORE HOW... | ended TID TS THEN INSTRUCTIONS
 *   @KIND ...: an event of the program, as event-case.h says
 *
 * "---" ends the events; what follows is for the caller.
 */
#pragma once

#include <stddef.h>

#include "decode/timeline/timeline.h"

struct json_object;

/*
 * Plays `text` (of `len` bytes, modified) into a new timeline that writes to `w`. Returns 0, or -1
 * with a message in `error`. *ret_rest is what follows the "---" line, or NULL.
 */
int timeline_case_play(char *text, struct writer *w, struct timeline_stats *ret_stats,
		       struct json_object **ret_summary, const char **ret_rest, char *error,
		       size_t error_size);
