/* SPDX-License-Identifier: Apache-2.0 */
/*
 * stacks=auto: whether the code of a target keeps frame pointers, asked of tracerd-decode (the daemon
 * reads no ELF), one file once. A call chain by frame pointers through code without them
 * leaves frames out and nobody sees it, so one file without is enough for dwarf, and until all
 * files are known to keep them it is dwarf, too.
 *
 * One decoder at a time; targets that came meanwhile wait for its answer.
 */
#pragma once

#include "common/base/cleanup.h"

struct stackprobe;
struct target;
struct targets;

int stackprobe_new(struct targets *targets, struct stackprobe **ret) _must_check_;
struct stackprobe *stackprobe_free(struct stackprobe *probe);

/* Images that were being opened are, or are not. */
void stackprobe_images_settled(struct stackprobe *probe);

/* Says to the back end of a target with stacks=auto, now or later, whether its code keeps frame pointers. */
void stackprobe_target(struct stackprobe *probe, struct target *target);
