// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/sample/look_back.h"

#include <errno.h>
#include <stdlib.h>

#include "common/base/raw_clock.h"
#include "daemon/backend/sample/keep.h"
#include "daemon/backend/sample/sampling.h"

void look_back_survey(struct target *target)
{
	const struct sampling *s = sampling_of(target);

	for (size_t i = 0; i < s->n_sources; i++)
		sampler_survey(s->sources[i].group);
}

bool look_back_is_surveying(const struct target *target)
{
	const struct sampling *s = sampling_of(target);

	for (size_t i = 0; i < s->n_sources; i++)
		if (s->sources[i].group->surveying)
			return true;
	return false;
}

/* Everything since this time is still there, by surveys of all sources. Any thread. */
static uint64_t oldest_ns(const struct source *sources, const struct group_survey *surveys,
			  size_t n, uint64_t armed_ns)
{
	uint64_t oldest[SOURCES_MAX], ns;

	for (size_t i = 0; i < n; i++)
		oldest[i] = surveys[i].oldest_ns;
	ns = sources_complete_ns(sources, oldest, n, NULL);
	return ns > armed_ns ? ns : armed_ns;
}

struct look_back {
	struct backend_job job; /* first */
	uint64_t armed_ns;
	struct source sources[SOURCES_MAX]; /* with references */
	struct group_survey surveys[SOURCES_MAX];
	size_t n;
};

static void look_back_run(struct backend_job *job)
{
	struct look_back *l = (struct look_back *)job;

	for (size_t i = 0; i < l->n; i++) {
		job->result = event_group_look(l->sources[i].group, &l->surveys[i]);
		if (job->result < 0)
			return;
	}
	job->oldest_ns = oldest_ns(l->sources, l->surveys, l->n, l->armed_ns);
}

static void look_back_free(struct backend_job *job)
{
	struct look_back *l = (struct look_back *)job;

	for (size_t i = 0; i < l->n; i++) {
		group_survey_fini(&l->surveys[i]);
		(void)event_group_put(l->sources[i].group);
	}
	free(l);
}

int look_back_job(const struct target *target, struct backend_job **ret)
{
	const struct sampling *s = sampling_of(target);
	struct look_back *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->job = (struct backend_job){.run = look_back_run, .free = look_back_free};
	l->armed_ns = target->armed_ns;
	for (; l->n < s->n_sources; l->n++) {
		l->sources[l->n] = s->sources[l->n];
		(void)event_group_ref(l->sources[l->n].group);
	}
	*ret = &l->job;
	return 0;
}

static void stats_add(const struct target *target, const struct group_survey *survey,
		      struct backend_stats *ret)
{
	for (size_t i = 0; i < survey->n_tallies; i++) {
		const struct group_tally *t = &survey->tallies[i];

		if (target->scope == TARGET_THREAD && t->tid != (uint32_t)target->tid)
			continue;
		if (!member_known(target, (pid_t)t->pid))
			continue;
		ret->samples += t->samples;
		ret->switches += t->switches;
	}
}

void look_back_stats(const struct target *target, struct backend_stats *ret)
{
	uint64_t end = target->state == TARGET_ARMED ? clock_raw_ns() : target->ended_ns;
	const struct sampling *s = sampling_of(target);
	const struct event_group *group = sampling_group(target);
	struct group_survey surveys[SOURCES_MAX];
	struct backend_stats out = {.method = "none"};
	uint64_t oldest;

	for (size_t i = 0; i < s->n_sources; i++) {
		surveys[i] = s->sources[i].group->survey; /* borrowed */
		stats_add(target, &surveys[i], &out);
	}
	oldest = oldest_ns(s->sources, surveys, s->n_sources, target->armed_ns);
	if (group) {
		/* What has been overwritten since the survey is not known. */
		if (group->survey.at_ns && group->survey.at_ns < end)
			end = group->survey.at_ns;
		out.method = group_kind_name(group->spec.kind);
		if (group->spec.kind != GROUP_CPU)
			out.ring_bytes = event_group_bytes(group);
		/* What rings of several targets have lost may be any one's. */
		if (group->spec.kind != GROUP_CPU)
			out.lost = source_lost(&s->sources[0], group->survey.lost);
	}
	out.lookback_ns = end > oldest ? end - oldest : 0;
	out.keep_short = keep_short(s->keep);
	out.wait_min_ns = sampling_wait_min(target);
	*ret = out;
}
