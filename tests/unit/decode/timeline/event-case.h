/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Owns the lines of a timeline case (timeline-case.h) that are events of the program:
 *
 *   @KIND PID TID TS NAME [WORD=VALUE | WORD | KEY:TYPE:VALUE]...
 *
 * KIND is thread begin end instant log counter task taskend flow fiber trigger lost. Words are
 * those of struct ringevent: task fiber id parent began level format flow (0 1 2) lost value (i:N
 * or f:N) early unfinished. The others are arguments: TYPE u i f t (text) c (a text that was cut)
 * p. "~" is a blank, a NAME "-" is none.
 */
#pragma once

#include "decode/rings/event.h"

/*
 * `f` are the line's `n` fields, the first without its @; modified, and borrowed by *ret. 0 or
 * -EINVAL.
 */
int event_case_parse(char **f, int n, struct ringevent *ret);
