/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a recorder counts as lost, or left out, in "losses" of meta.json, where no time and no
 * process is known: how the trace and the summary call it, and what that means for who reads the
 * rest.
 */
#pragma once

struct loss_kind {
	const char *key;	 /* in meta.json */
	const char *text;	 /* in "losses" of the summary, and on the track of losses */
	const char *meaning; /* beside the number, for people */
};

/* The last one has no key. */
extern const struct loss_kind loss_kinds[];

/* Of a summary's loss. NULL: it says by its name what it means. */
const char *loss_kind_meaning(const char *text);
