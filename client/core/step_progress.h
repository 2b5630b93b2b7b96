/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Signs of life of a program that is stepped: lines on stderr that say how many instructions it has
 * executed, few and each after twice the time of the one before, since the terminal is the
 * program's, too. Asks the daemon each time; keeps no connection, and knows neither the program nor
 * its stepper.
 */
#pragma once

#include <stdint.h>

#include "client/core/ctl.h"

struct step_progress {
	struct ctl *ctl;      /* not owned */
	char *target;	      /* its id, owned; NULL: nobody wants to know */
	uint64_t began, next; /* io_now_ns() */
};

/* Of the target of "target.arm", from now on. Without memory there are no lines. */
void step_progress_init(struct step_progress *p, struct ctl *ctl, struct json_object *target);
void step_progress_fini(struct step_progress *p);

/*
 * Says where it is, if it is time for that; answers after how many ms to call it again. `arg`: the
 * struct.
 */
int step_progress_tick(void *arg);
