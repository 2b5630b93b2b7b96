// SPDX-License-Identifier: GPL-2.0
/*
 * What the PMU says that it can (caps/, format/ and the ratios of clocks, below
 * /sys/bus/event_source/devices/intel_pt), and the config that follows from it. Each file of caps/ has a
 * parameter of its name: insmod softpt.ko mtc=0.
 */
#include <linux/bitfield.h>
#include <linux/module.h>

#include "softpt.h"

/* What the driver of a recent server's hardware shows. */
#define CAPS(X)				\
	X(max_subleaf, 0x1)		\
	X(cr3_filtering, 0x1)		\
	X(psb_cyc, 0x1)			\
	X(ip_filtering, 0x1)		\
	X(mtc, 0x1)			\
	X(ptwrite, 0x1)			\
	X(power_event_trace, 0x0)	\
	X(event_trace, 0x0)		\
	X(tnt_disable, 0x0)		\
	X(topa_output, 0x1)		\
	X(topa_multiple_entries, 0x1)	\
	X(single_range_output, 0x1)	\
	X(output_subsys, 0x0)		\
	X(payloads_lip, 0x0)		\
	X(num_address_ranges, 0x2)	\
	X(mtc_periods, 0x249)		\
	X(cycle_thresholds, 0x3fff)	\
	X(psb_periods, 0x3f)

static ssize_t cap_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%lx\n", *(unsigned long *)container_of(attr, struct dev_ext_attribute, attr)->var);
}

#define CAP_DEFINE(name, value)						\
	static unsigned long cap_##name = value;			\
	module_param_named(name, cap_##name, ulong, 0444);		\
	static struct dev_ext_attribute attr_cap_##name = {		\
		__ATTR(name, 0444, cap_show, NULL), &cap_##name		\
	};
CAPS(CAP_DEFINE)

#define CAP_LIST(name, value) &attr_cap_##name.attr.attr,
static struct attribute *cap_attrs[] = { CAPS(CAP_LIST) NULL };
static const struct attribute_group cap_group = { .name = "caps", .attrs = cap_attrs };

PMU_FORMAT_ATTR(pt, "config:0");
PMU_FORMAT_ATTR(cyc, "config:1");
PMU_FORMAT_ATTR(pwr_evt, "config:4");
PMU_FORMAT_ATTR(fup_on_ptw, "config:5");
PMU_FORMAT_ATTR(mtc, "config:9");
PMU_FORMAT_ATTR(tsc, "config:10");
PMU_FORMAT_ATTR(noretcomp, "config:11");
PMU_FORMAT_ATTR(ptw, "config:12");
PMU_FORMAT_ATTR(branch, "config:13");
PMU_FORMAT_ATTR(mtc_period, "config:14-17");
PMU_FORMAT_ATTR(cyc_thresh, "config:19-22");
PMU_FORMAT_ATTR(psb_period, "config:24-27");
PMU_FORMAT_ATTR(event, "config:31");
PMU_FORMAT_ATTR(notnt, "config:55");

static struct attribute *format_attrs[] = {
	&format_attr_pt.attr,		&format_attr_cyc.attr,		&format_attr_pwr_evt.attr,
	&format_attr_fup_on_ptw.attr,	&format_attr_mtc.attr,		&format_attr_tsc.attr,
	&format_attr_noretcomp.attr,	&format_attr_ptw.attr,		&format_attr_branch.attr,
	&format_attr_mtc_period.attr,	&format_attr_cyc_thresh.attr,	&format_attr_psb_period.attr,
	&format_attr_event.attr,	&format_attr_notnt.attr,	NULL,
};
static const struct attribute_group format_group = { .name = "format", .attrs = format_attrs };

static ssize_t max_nonturbo_ratio_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", PT_BUS_RATIO);
}
static DEVICE_ATTR_RO(max_nonturbo_ratio);

static ssize_t tsc_art_ratio_show(struct device *dev, struct device_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u:%u\n", PT_ART_NUMERATOR, PT_ART_DENOMINATOR);
}
static DEVICE_ATTR_RO(tsc_art_ratio);

static struct attribute *ratio_attrs[] = { &dev_attr_max_nonturbo_ratio.attr, &dev_attr_tsc_art_ratio.attr, NULL };
static const struct attribute_group ratio_group = { .attrs = ratio_attrs };

const struct attribute_group *softpt_attr_groups[] = { &cap_group, &format_group, &ratio_group, NULL };

/* A bit of the config that needs a capability, or is one bit of a set. */
static bool bits_allowed(u64 config, u64 bits, bool can)
{
	return can || !(config & bits);
}

static bool one_of(u64 value, unsigned long set)
{
	return set & BIT(value);
}

/* The same configs that the driver of the hardware refuses, and those that this module does not have. */
bool caps_allow(u64 config)
{
	u64 known = PT_TRACE | PT_CYC | PT_FUP_ON_PTW | PT_MTC | PT_TSC | PT_NO_RETCOMP | PT_PTW | PT_BRANCH | PT_MTC_PERIOD |
		    PT_CYC_THRESH | PT_PSB_PERIOD;

	if (config & ~known)
		return false;
	if (!bits_allowed(config, PT_CYC | PT_CYC_THRESH | PT_PSB_PERIOD, cap_psb_cyc) ||
	    !bits_allowed(config, PT_MTC | PT_MTC_PERIOD, cap_mtc) ||
	    !bits_allowed(config, PT_PTW | PT_FUP_ON_PTW, cap_ptwrite) ||
	    !bits_allowed(config, PT_BRANCH, config & PT_TRACE))
		return false;
	/* nothing to trace but PTWRITE: not here */
	if ((config & PT_TRACE) && !(config & PT_BRANCH))
		return false;
	if (cap_psb_cyc && (!one_of(FIELD_GET(PT_PSB_PERIOD, config), cap_psb_periods | 1) ||
			    !one_of(FIELD_GET(PT_CYC_THRESH, config), cap_cycle_thresholds | 1)))
		return false;
	return !cap_mtc || one_of(FIELD_GET(PT_MTC_PERIOD, config), cap_mtc_periods | 1);
}

unsigned int caps_ranges(void)
{
	return cap_ip_filtering ? min_t(unsigned long, cap_num_address_ranges, TRACE_MAX_RANGES) : 0;
}

/* Whether the output may lie in many pieces of memory. */
bool caps_scatter(void)
{
	return cap_topa_multiple_entries;
}
