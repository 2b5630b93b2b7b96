// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include <errno.h>
#include <string.h>

#include "common/control/json.h"
#include "decode/rings/events_internal.h"

/* Of the names of all programs together; less where the budget is small. */
#define MAX_NAME_BYTES (64u << 20)

bool ringevents_charge(struct ringevents *r, uint64_t bytes)
{
	if (!budget_take(r->budget, bytes))
		return false;
	r->charged += bytes;
	return true;
}

int ringevents_new(const struct clock_bracket *brackets, size_t n_brackets, struct budget *budget,
	struct ringevents **ret)
{
	_cleanup_(ringevents_freep) struct ringevents *r = calloc(1, sizeof(*r));
	const uint64_t names = budget->max / 8 < MAX_NAME_BYTES ? budget->max / 8 : MAX_NAME_BYTES;
	int ret2;

	if (!r)
		return -ENOMEM;
	r->budget = budget;
	r->brackets = calloc(n_brackets + 1, sizeof(*r->brackets));
	r->text = malloc(RINGEVENTS_TEXT_BYTES);
	if (!r->brackets || !r->text)
		return -ENOMEM;
	if (n_brackets)
		memcpy(r->brackets, brackets, n_brackets * sizeof(*brackets));
	r->n_brackets = n_brackets;
	ret2 = strtab_new((size_t)names, "<too many names>", &r->names);
	if (ret2 < 0)
		return ret2;
	*ret = take_ptr(r);
	return 0;
}

struct ringevents *ringevents_free(struct ringevents *r)
{
	if (!r)
		return NULL;
	for (size_t i = 0; i < r->n_sources; i++) {
		ringfile_free(r->sources[i].file);
		ringclock_fini(&r->sources[i].clock);
		free(r->sources[i].names);
	}
	free(r->sources);
	free(r->recs);
	free(r->segs);
	hashmap_fini(&r->stacks);
	hashmap_fini(&r->tids);
	hashmap_fini(&r->fibers);
	budget_give(r->budget, r->charged);
	strtab_free(r->names);
	free(r->brackets);
	free(r->text);
	free(r);
	return NULL;
}

int ringevents_finish(struct ringevents *r)
{
	for (size_t i = 0; i < r->n_segs; i++)
		r->segs[i].fiber_name =
			hashmap_index(&r->fibers, r->segs[i].source, r->segs[i].fiber);
	return ringevents_join(r);
}

size_t ringevents_count(const struct ringevents *r)
{
	return r->n_recs;
}

static void add_count(struct json_object *o, const char *key, uint64_t n)
{
	if (n)
		json_add_uint(o, key, n);
}

void ringevents_tell_losses(const struct ringevents *r,
			    void (*tell)(void *arg, const char *kind, uint64_t count), void *arg)
{
	const struct ringevents_losses *l = &r->losses;
	const struct {
		const char *kind;
		uint64_t count;
	} kinds[] = {
		{"events without a ring or a name", l->lost_events},
		{"names without room", l->lost_names},
		{"texts cut", l->lost_long},
		{"programs cut", l->rings_cut},
		{"rings unreadable", l->rings + l->files + l->files_over_memory},
		{"events malformed", l->malformed},
		{"events over memory", l->over_memory},
		{"events over limits", l->over_limits},
	};

	for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
		if (kinds[i].count)
			tell(arg, kinds[i].kind, kinds[i].count);
}

void ringevents_report(const struct ringevents *r, struct json_object *stats,
		       struct json_object *losses)
{
	const struct ringevents_losses *l = &r->losses;

	json_add_uint(stats, "events", r->n_recs);
	json_add_uint(stats, "rings", r->n_rings);
	json_add_uint(stats, "programs", r->n_sources);
	add_count(stats, "requests_suppressed", r->requests_suppressed);

	add_count(losses, "events_overwritten", l->overwritten);
	add_count(losses, "events_torn", l->torn);
	add_count(losses, "events_malformed", l->malformed);
	add_count(losses, "events_lost", l->lost_events);
	add_count(losses, "events_over_memory", l->over_memory);
	add_count(losses, "events_over_limits", l->over_limits);
	add_count(losses, "names_lost", l->lost_names);
	add_count(losses, "names_unknown", l->names_unknown);
	add_count(losses, "texts_cut", l->lost_long);
	add_count(losses, "fields_malformed", l->fields);
	add_count(losses, "stamps_wrong", l->stamps);
	add_count(losses, "ends_without_begin", l->ends_without_begin);
	add_count(losses, "regions_crossing", l->crossing);
	add_count(losses, "rings_invalid", l->rings);
	add_count(losses, "programs_cut", l->rings_cut);
	add_count(losses, "ring_files_invalid", l->files);
	add_count(losses, "ring_files_over_memory", l->files_over_memory);
}
