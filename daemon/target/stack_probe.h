/* SPDX-License-Identifier: Apache-2.0 */
/*
 * For stacks=auto: whether the code of a target keeps frame pointers. tracerd-decode answers, one
 * file once, since the daemon reads no ELF. A call chain by frame pointers leaves out frames of
 * code without them, and nothing shows it. So one such file is enough for dwarf stacks, and stacks
 * are dwarf until all files are known to keep them.
 *
 * One decoder at a time; targets that come meanwhile wait for it.
 */
#pragma once

#include "common/base/cleanup.h"

struct stackprobe;
struct target;
struct targets;

int stackprobe_new(struct targets *targets, struct stackprobe **ret) _must_check_;
struct stackprobe *stackprobe_free(struct stackprobe *probe);

/* An opening of images has ended. */
void stackprobe_images_settled(struct stackprobe *probe);

/*
 * Says to the back end of a target with stacks=auto, now or later, whether its code keeps frame
 * pointers.
 */
void stackprobe_target(struct stackprobe *probe, struct target *target);
