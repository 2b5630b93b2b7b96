/* SPDX-License-Identifier: Apache-2.0 */
/* Where the programs are that ours start: beside the one that runs, in a build tree too, or in the
 * installed place. */
#pragma once

#include <stddef.h>

#include "common/base/cleanup.h"

/*
 * The path of `name` ("tracerd-decode") into `ret`; `override`, where not NULL and not empty, is
 * taken instead. -ENOENT, -EACCES, -ENAMETOOLONG.
 */
int libexec_find(const char *name, const char *override, char *ret, size_t size) _must_check_;
