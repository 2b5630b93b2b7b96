// SPDX-License-Identifier: Apache-2.0
#include "common/base/loss_kinds.h"

#include <stddef.h>
#include <string.h>

const struct loss_kind loss_kinds[] = {
	{"processes_refused", "processes left out",
	 "their user may not see them, or they ended too soon"},
	{"processes_left_out", "processes over the limit", "nothing of them is recorded"},
	{"lost", "samples and switches lost",
	 "some of who ran and waited, perhaps of other targets, too"},
	{"malformed", "records malformed", "they are left out"},
	{"throttled", "sampling throttled", "times; running threads have fewer samples"},
	{"history_lost", "side-band records lost",
	 "of all processes; names, ends of threads and what was mapped may be missing"},
	{"history_dropped", "side-band records over the limit",
	 "names, ends of threads and what was mapped are missing"},
	{"images_missing", "executables not opened", "their functions have no names"},
	{"stacks_in_doubt", "stacks in doubt",
	 "code was mapped or records were lost just then; they count as not recorded"},
	{"blocked_stacks_missing", "stacks of sleepers missing", "who slept throughout has none"},
	{"python_functions_missing", "Python functions missing", "of stacks that have them"},
	{NULL, NULL, NULL},
};

const char *loss_kind_meaning(const char *text)
{
	for (const struct loss_kind *k = loss_kinds; k->key; k++)
		if (strcmp(k->text, text) == 0)
			return k->meaning;
	return NULL;
}
