/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The daemon: builds every room in order, connects them by callbacks, runs the loop, and tears all
 * down in the opposite order. No room knows it: each gets in its constructor what it needs (event
 * base, config, quota, hub).
 */
#pragma once

#include "common/base/cleanup.h"

struct config;
struct daemon;

/* Builds everything from the configuration, which is moved out of `config`. 0, -errno (logged). */
int daemon_new(struct config *config, struct daemon **ret) _must_check_;
/* Runs until SIGTERM or SIGINT, and then until what ran has ended. 0, -errno (logged). */
int daemon_run(struct daemon *d) _must_check_;
struct daemon *daemon_free(struct daemon *d);
