// SPDX-License-Identifier: Apache-2.0
/*
 * The back end of a target that nobody armed: its process has registered event rings, and those are
 * all that is recorded. Rings belong to any target of their process, so there is nothing to do
 * here.
 */
#include "daemon/target/backend.h"

const struct backend backend_events = {.name = "events"};
