/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The capabilities that tracerd can use, which of them it has, and what the others would give. They
 * are what the process was started with: nothing is raised here. Those of the opener the daemon
 * gives up once that runs.
 */
#pragma once

#include <stdbool.h>

#include "common/control/json.h"

/*
 * Gives up what only the opener needs. CAP_DAC_READ_SEARCH is put aside, if it does not come with
 * being root: for one thing alone it is taken up again, see below. 0, -ENOMEM, -errno.
 */
int caps_give_up(void);

/*
 * Around the look at /proc/PID/map_files, or /proc/PID/mem, which are closed to all but their
 * owner: nothing else is looked up meanwhile. Of the calling thread.
 */
void caps_look_into_folders(bool on);

/* ["perfmon", ...] that the daemon and its opener have; NULL without memory. */
struct json_object *caps_have(void);
/* Appends {what, cost} for each that is lacking. */
void caps_lack(struct json_object *list);
