// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/goroutines.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"
#include "common/bundle/go_layout.h"
#include "common/control/json.h"
#include "daemon/backend/sample/filter.h"

static const char *const whys[GO_WHYS] = {
	[GO_FOUND] = "found",
	[GO_NONE] = "none",
	[GO_NO_THREAD] = "no_thread",
	[GO_NO_READ] = "no_read",
};

void go_object_parse(struct json_object *o, struct go_object *ret)
{
	const char *refused = o ? json_get_string(o, "refused") : NULL;
	uint64_t minor = 0;

	*ret = (struct go_object){.is = GO_ABSENT};
	if (!o)
		return;
	if (json_get_uint(o, "minor", &minor) && minor <= 9999)
		ret->minor = (unsigned int)minor;
	if (!refused && go_layout_parse(json_get_array(o, "layout"), &ret->layout) == 0) {
		ret->is = GO_KNOWN;
		return;
	}
	ret->is = GO_REFUSED;
	escape_text(ret->refused, sizeof(ret->refused), refused ? refused : "?",
		    refused ? strlen(refused) : 1);
}

struct json_object *goroutines_describe(pid_t pid, const struct go_object *object,
					const struct go_counts *counts)
{
	struct json_object *o = json_object_new_object();
	char version[16] = "1";

	if (!o)
		return NULL;
	if (object->minor)
		(void)snprintf(version, sizeof(version), "1.%u", object->minor);
	json_add_uint(o, "pid", (uint64_t)pid);
	json_add_string(o, "version", version);
	json_add_string(o, "refused", object->is == GO_REFUSED ? object->refused : "");
	for (size_t i = 0; i < GO_WHYS; i++)
		json_add_uint(o, whys[i], counts->whys[i]);
	return o;
}

#ifdef HAVE_BPF

#include <bpf/bpf.h>

static int map_of(const struct filter *filter)
{
	return filter_map_fd(filter, "go_processes");
}

void goroutines_count(const struct filter *filter, pid_t pid, struct go_counts *sum)
{
	const uint32_t key = (uint32_t)pid;
	struct go_process entry;

	if (bpf_map_lookup_elem(map_of(filter), &key, &entry) < 0)
		return;
	for (size_t i = 0; i < GO_WHYS; i++)
		sum->whys[i] += entry.whys[i];
}

void goroutines_drop(const struct filter *filter, pid_t pid, struct go_counts *sum)
{
	const uint32_t key = (uint32_t)pid;

	goroutines_count(filter, pid, sum);
	(void)bpf_map_delete_elem(map_of(filter), &key);
}

int goroutines_put(const struct filter *filter, pid_t pid, const struct go_layout *layout)
{
	const struct go_process entry = {.layout = *layout};
	const uint32_t key = (uint32_t)pid;
	int r;

	r = filter_use(filter, FILTER_USE_GO, true);
	if (r < 0)
		return r;
	/*
	 * Of a program that has just been executed nothing is told until what is known of the
	 * former is dropped.
	 */
	if (bpf_map_update_elem(map_of(filter), &key, &entry, BPF_NOEXIST) == 0 || errno == EEXIST)
		return 0;
	return -errno;
}

#else /* !HAVE_BPF: never called */

void goroutines_count(const struct filter *filter, pid_t pid, struct go_counts *sum)
{
}

void goroutines_drop(const struct filter *filter, pid_t pid, struct go_counts *sum)
{
}

int goroutines_put(const struct filter *filter, pid_t pid, const struct go_layout *layout)
{
	return -EOPNOTSUPP;
}

#endif
