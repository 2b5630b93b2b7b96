/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The job "resolve": where in the files of a process a function is, a line of its source code, or a
 * given offset. Asks for the files as a decoding does, and reads them in the same sandbox. Does not
 * know where they are mapped, nor what the answer is for.
 */
#pragma once

#include <json-c/json.h>

#include "decode/base/budget.h"
#include "decode/base/file_request.h"

#define RESOLVE_MAX_OBJECTS 512u
#define RESOLVE_MAX_PLACES 32u /* that are listed; more are only said to be there */
#define RESOLVE_MAX_NEAR 5u
#define RESOLVE_MAX_COPIES 8u
#define RESOLVE_MAX_QUERY 1024u

/*
 * `body` is the job:
 *
 *   "objects": [{"path", "major", "minor", "inode"}]      files with code, as the process has them
 *                                                         mapped
 *   "pid": whose they are
 *   "inlined_max_bytes": of debug information that is searched in each file for calls that were
 *   inlined; it has a default "find": {"symbol"} or {"file", "line"} or {"object": index, "offset":
 *   in that file}
 *
 * and this is added to `stats`:
 *
 *   "places": [{"object": index, "offset", "address": the ELF's own, "size", "name", "build_id",
 *             "boundary", "boundary_known", "chooser"}] size 0 and name "": not known; boundary
 *             false: an instruction does not begin there, or (boundary_known
 *             false) nobody can tell; chooser: an IFUNC, which only chooses the code that the name
 *             stands for
 *   "more": true if there are more than are listed
 *   "incomplete": true if not all could be searched, for want of memory or because the file is too
 *   costly to read
 *   "near": names like it, if there is no such function; what a chooser may choose
 *   "inlined": how many calls of such a function were inlined in the files that have it, or, if
 *   none has, in all: debug information says that "inlined_cut": [index] of those whose debug
 *   information was too large to be searched for these to its end
 *   "copies": names of what the compiler has made of the function beside it, and calls instead of
 *   it in some places: "f.constprop.0" "next_line": the first line after it that has code, if it
 *   has none; "file_known": whether a file has this name "unread": [index] of objects that could
 *   not be had; "stripped": [index] of those without a symbol table "without_lines": [index] of
 *   those without line numbers, where a line was asked for
 *
 * 0; -EINVAL: no such job; -ENOMEM, or the link's error.
 */
int resolve_run(struct json_object *body, const struct file_requester *files, struct budget *budget,
		struct json_object *stats);
