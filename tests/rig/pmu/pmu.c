// SPDX-License-Identifier: GPL-2.0
/*
 * The PMU "intel_pt" as perf sees it. Like the hardware's it is exclusive, and one event runs on a CPU.
 * Only user code is traced, whatever the event excludes.
 */
#include <linux/module.h>
#include <linux/slab.h>

#include "asked.h"
#include "softpt.h"

static bool aux_pause = true;
module_param(aux_pause, bool, 0444);
MODULE_PARM_DESC(aux_pause, "let other events of a group pause the trace, where the kernel knows that (6.13)");

static struct pmu softpt_pmu;

static void pmu_start(struct perf_event *event, int flags)
{
	struct softpt_cpu *cpu = this_cpu_ptr(&softpt_cpus);
	bool paused = false;
	u64 config = event->attr.config;

#ifdef PERF_EF_RESUME
	if (flags & PERF_EF_RESUME) {
		/* whoever resumes it may run where another event traces by now, which is paused for its own reason */
		if (cpu->event == event)
			cpu->trace.paused = false;
		return;
	}
	paused = event->hw.aux_paused;
#endif
	if (!(config & PT_TRACE))	/* the old ABI knew no trace without branches */
		config |= PT_BRANCH;
	perf_event_addr_filters_sync(event);
	switch (aux_ring_open(&cpu->ring, event)) {
	case AUX_OPENED:
		break;
	case AUX_FULL:	/* it was left full, or nearly: as one that becomes full in between */
		cpu->counts.truncations++;
		fallthrough;
	case AUX_NONE:
		event->hw.state = PERF_HES_STOPPED;
		return;
	}
	event->hw.state = 0;
	cpu->event = event;
	packets_init(&cpu->packets, &cpu->ring, config);
	trace_begin(cpu, event->hw.addr_filters, paused);
	step_begin(cpu);
}

static void pmu_stop(struct perf_event *event, int flags)
{
	struct softpt_cpu *cpu = this_cpu_ptr(&softpt_cpus);

#ifdef PERF_EF_PAUSE
	if (flags & PERF_EF_PAUSE) {
		if (cpu->event == event && !cpu->trace.paused) {
			step_pause(cpu);
			cpu->trace.paused = true;
		}
		return;
	}
#endif
	event->hw.state = PERF_HES_STOPPED;
	if (cpu->event != event)
		return;
	step_end(cpu);
	aux_ring_close(&cpu->ring);
	cpu->counts.bytes += cpu->packets.bytes;
	cpu->packets.bytes = 0;
	cpu->event = NULL;
}

static int pmu_add(struct perf_event *event, int flags)
{
	if (this_cpu_ptr(&softpt_cpus)->event)
		return -EBUSY;
	event->hw.state = PERF_HES_STOPPED;
	if (!(flags & PERF_EF_START))
		return 0;
	pmu_start(event, 0);
	return event->hw.state == PERF_HES_STOPPED ? -EINVAL : 0;
}

static void pmu_del(struct perf_event *event, int flags)
{
	pmu_stop(event, PERF_EF_UPDATE);
}

static void pmu_read(struct perf_event *event)
{
}

static void event_destroy(struct perf_event *event)
{
	kfree(event->hw.addr_filters);
	event->hw.addr_filters = NULL;
}

static int event_init(struct perf_event *event)
{
	struct trace_filters *filters;

	if (event->attr.type != softpt_pmu.type)
		return -ENOENT;
	if (!caps_allow(event->attr.config))
		return -EINVAL;
	filters = kzalloc(sizeof(*filters), GFP_KERNEL);
	if (!filters)
		return -ENOMEM;
	if (event->parent)
		*filters = *(struct trace_filters *)event->parent->hw.addr_filters;
	else
		asked_note(&event->attr);
	event->hw.addr_filters = filters;
	event->destroy = event_destroy;
	return 0;
}

/* Ranges to trace; not where to begin or to stop for good. */
static int filters_validate(struct list_head *list)
{
	struct perf_addr_filter *filter;
	unsigned int n = 0;

	list_for_each_entry(filter, list, entry) {
		if (!filter->size || filter->action != PERF_ADDR_FILTER_ACTION_FILTER || ++n > caps_ranges())
			return -EOPNOTSUPP;
	}
	return 0;
}

static void filters_sync(struct perf_event *event)
{
	struct perf_addr_filters_head *head = perf_event_addr_filters(event);
	struct perf_addr_filter_range *range = event->addr_filter_ranges;
	struct trace_filters *filters = event->hw.addr_filters;
	struct perf_addr_filter *filter;
	unsigned int n = 0;

	list_for_each_entry(filter, &head->list, entry) {
		/* one in a file that is not mapped: a range that nothing is in */
		bool absent = filter->path.dentry && !range[n].start;

		filters->range[n].first = absent ? ULONG_MAX : range[n].start;
		filters->range[n].last = absent ? 0 : range[n].start + range[n].size - 1;
		n++;
	}
	filters->n = n;
}

static struct pmu softpt_pmu = {
	.module = THIS_MODULE,
	.capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.attr_groups = softpt_attr_groups,
	.task_ctx_nr = perf_sw_context,
	.event_init = event_init,
	.add = pmu_add,
	.del = pmu_del,
	.start = pmu_start,
	.stop = pmu_stop,
	.read = pmu_read,
	.setup_aux = aux_pages_new,
	.free_aux = aux_pages_free,
	.addr_filters_validate = filters_validate,
	.addr_filters_sync = filters_sync,
};

int softpt_pmu_register(void)
{
	softpt_pmu.nr_addr_filters = caps_ranges();
	if (!caps_scatter())
		softpt_pmu.capabilities |= PERF_PMU_CAP_AUX_NO_SG;
#ifdef PERF_PMU_CAP_AUX_PAUSE
	if (aux_pause)
		softpt_pmu.capabilities |= PERF_PMU_CAP_AUX_PAUSE;
#endif
	return perf_pmu_register(&softpt_pmu, "intel_pt", -1);
}

void softpt_pmu_unregister(void)
{
	perf_pmu_unregister(&softpt_pmu);
}
