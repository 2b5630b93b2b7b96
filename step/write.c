// SPDX-License-Identifier: Apache-2.0
/* Writes the recording as a perf.data that stock perf decodes. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "common/bundle/stackrec.h"
#include "step/step_internal.h"

/* An arbitrary number, the same in the attribute, in AUXTRACE_INFO and in PMU_MAPPINGS. */
#define PMU_TYPE 6u
#define STACKS_BYTES (16u << 20) /* of all threads */

static int add_bytes(void *arg, const void *bytes, size_t n)
{
	return perfdata_aux_add(arg, bytes, n);
}

static struct perf_event_attr attr_of(uint32_t type, uint64_t config)
{
	return (struct perf_event_attr){
		.type = type,
		.config = config,
		.sample_period = 1,
		.sample_type = PERFABI_SAMPLE_ID_TYPE | PERF_SAMPLE_IP,
		.read_format = PERF_FORMAT_ID,
		.sample_id_all = 1,
		.exclude_kernel = 1,
		.exclude_hv = 1,
	};
}

static int add_events(const struct step *s, struct perfdata_writer *w)
{
	static const uint64_t pt_id = STEP_ID_PT, side_id = STEP_ID_SIDE;
	uint64_t config = PERFABI_PT_CONFIG_PT | PERFABI_PT_CONFIG_TSC | PERFABI_PT_CONFIG_BRANCH;
	struct perf_event_attr attr;
	unsigned int period = 0;
	int r;

	if (s->options.plain_returns)
		config |= PERFABI_PT_CONFIG_NORETCOMP;
	while (period < 15 && (2048u << period) < s->options.psb_bytes)
		period++;
	config |= (uint64_t)period << PERFABI_PT_CONFIG_PSB_PERIOD_SHIFT;
	attr = attr_of(PMU_TYPE, config);
	attr.disabled = 1;
	r = perfdata_add_event(w, "intel_pt//u", &attr, &pt_id, 1);
	if (r < 0)
		return r;
	attr = attr_of(PERF_TYPE_SOFTWARE, PERF_COUNT_SW_DUMMY);
	attr.mmap = attr.mmap2 = attr.comm = attr.comm_exec = attr.task = 1;
	return perfdata_add_event(w, "dummy:u", &attr, &side_id, 1);
}

static int write_info(const struct step *s, struct perfdata_writer *w)
{
	struct perfabi_auxtrace_info_pt info = {
		.header = {.type = PERFABI_RECORD_AUXTRACE_INFO, .size = sizeof(info)},
		.type = PERFABI_AUXTRACE_INTEL_PT,
		.words = {
			[PERFABI_PT_PMU_TYPE] = PMU_TYPE,
			[PERFABI_PT_TIME_SHIFT] = s->clock.conv.shift,
			[PERFABI_PT_TIME_MULT] = s->clock.conv.mult,
			[PERFABI_PT_TIME_ZERO] = s->clock.conv.zero,
			[PERFABI_PT_CAP_USER_TIME_ZERO] = 1,
			[PERFABI_PT_TSC_BIT] = PERFABI_PT_CONFIG_TSC,
			[PERFABI_PT_NORETCOMP_BIT] = PERFABI_PT_CONFIG_NORETCOMP,
			[PERFABI_PT_MTC_BIT] = PERFABI_PT_CONFIG_MTC,
			[PERFABI_PT_MTC_FREQ_BITS] = PERFABI_PT_CONFIG_MTC_PERIOD,
			[PERFABI_PT_CYC_BIT] = PERFABI_PT_CONFIG_CYC,
			[PERFABI_PT_MAX_NONTURBO_RATIO] = step_clock_ratio(&s->clock),
		},
	};
	const struct perfabi_time_conv conv = {
		.header = {.type = PERFABI_RECORD_TIME_CONV, .size = sizeof(conv)},
		.shift = s->clock.conv.shift,
		.mult = s->clock.conv.mult,
		.zero = s->clock.conv.zero,
	};
	int r = perfdata_write(w, &info, sizeof(info));

	return r < 0 ? r : perfdata_write(w, &conv, sizeof(conv));
}

/* `end`: of the recording, for threads that have not ended. */
static int write_stream(struct step *s, struct perfdata_writer *w, const struct step_stream *stream,
			uint32_t idx, uint64_t end)
{
	const uint64_t flags = pt_encoder_overwritten(stream->pt) ? PERF_AUX_FLAG_OVERWRITE : 0;
	struct perfabi_auxtrace record = {
		.reference = pt_encoder_first_tsc(stream->pt),
		.idx = idx,
		.tid = (uint32_t)stream->tid,
		.cpu = UINT32_MAX,
	};
	uint64_t bytes;
	int r;

	r = pt_encoder_flush(stream->pt);
	if (r < 0)
		return r;
	bytes = pt_encoder_bytes(stream->pt);
	if (bytes == 0)
		return 0;
	r = sideband_write_aux(&s->clock, stream->ended ? stream->ended : end, stream->pid,
			       stream->tid, bytes, flags, w);
	if (r == 0)
		r = perfdata_aux_begin(w, &record, bytes);
	return r < 0 ? r : pt_encoder_read(stream->pt, add_bytes, w);
}

/* Of threads whose trace has stopped at their registers' place, or in the system call there. */
static int write_stacks(struct step *s, struct perfdata_writer *w, uint64_t end)
{
	const size_t bytes = s->n_threads && STACKS_BYTES / s->n_threads < STACKREC_MAX
				     ? STACKS_BYTES / s->n_threads
				     : STACKREC_MAX;
	_cleanup_free_ uint8_t *stack = malloc(bytes);
	const struct step_thread *t;
	int r = stack ? stackrec_add_event(w, STEP_ID_STACK) : -ENOMEM;

	for (size_t i = 0; i < STEP_HASH && r == 0; i++)
		LIST_FOREACH(t, &s->threads[i], in_hash)
		{
			struct stackrec rec = {.id = STEP_ID_STACK,
				.pid = t->process->pid,
				.tid = t->tid,
				.time = step_clock_ns(&s->clock, end),
				.regs = &t->regs,
				.stack = stack};

			if (!t->stream || !t->is64 || t->regs.rip != t->ip || r < 0)
				continue;
			rec.stack_bytes =
				address_space_read_memory(t->tid, t->regs.rsp, stack, bytes);
			r = stackrec_write(w, &rec);
			if (r == -EFBIG) { /* all else is there */
				s->stats.stacks_not_written++;
				r = 0;
			}
		}
	return r;
}

int step_write(struct step *s, int fd, uint64_t max_bytes, bool stacks)
{
	struct perfdata_about about = {
		.command = STEPABI_COMMAND,
		.clock = CLOCK_MONOTONIC_RAW,
		.aux_pmu = "intel_pt",
		.aux_pmu_type = PMU_TYPE,
	};
	_cleanup_(perfdata_writer_freep) struct perfdata_writer *w = NULL;
	const uint64_t end = step_clock_now(&s->clock);
	struct step_stream *stream;
	uint32_t idx = 0;
	int r;

	step_clock_settle(&s->clock);
	about.perf_clock = s->clock.perf_clock;
	about.first_time =
		step_clock_ns(&s->clock, s->clock.tsc ? s->clock.first.tsc : s->clock.first.raw);
	about.last_time = step_clock_ns(&s->clock, end);
	r = perfdata_writer_new(fd, max_bytes, NULL, &w);
	if (r == 0)
		r = add_events(s, w);
	if (r == 0)
		r = write_info(s, w);
	if (r == 0)
		r = sideband_write(s->sideband, &s->clock, w);
	STAILQ_FOREACH(stream, &s->streams, in_step) {
		if (r == 0)
			r = write_stream(s, w, stream, idx++, end);
	}
	if (r == 0 && stacks)
		r = write_stacks(s, w, end);
	return r < 0 ? r : perfdata_finish(w, &about);
}
