// SPDX-License-Identifier: GPL-2.0
/*
 * Begins and ends the module, and shows its counts in /sys/kernel/debug/softpt/counts. Nothing may use
 * the PMU when it goes: perf holds a reference for each event.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>

#include "asked.h"
#include "retired.h"
#include "softpt.h"

DEFINE_PER_CPU(struct softpt_cpu, softpt_cpus);

static struct dentry *dir;

static int counts_show(struct seq_file *m, void *data)
{
	struct softpt_counts all = { 0 };
	int n;

	for_each_online_cpu(n) {
		const struct softpt_counts *one = &per_cpu_ptr(&softpt_cpus, n)->counts;

		all.steps += one->steps;
		all.unfetched += one->unfetched;
		all.strays += one->strays;
		all.breakpoints += one->breakpoints;
		all.entries += one->entries;
		all.interruptions += one->interruptions;
		all.syscalls += one->syscalls;
		all.overflows += one->overflows;
		all.truncations += one->truncations;
		all.bytes += one->bytes;
	}
	seq_printf(m, "steps %llu\nunfetched %llu\nstrays %llu\nbreakpoints %llu\nentries %llu\n", all.steps, all.unfetched,
			all.strays, all.breakpoints, all.entries);
	seq_printf(m, "interruptions %llu\nsyscalls %llu\noverflows %llu\ntruncations %llu\nbytes %llu\n", all.interruptions,
			all.syscalls, all.overflows, all.truncations, all.bytes);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counts);

static int __init softpt_init(void)
{
	int r;

	dir = debugfs_create_dir("softpt", NULL);
	debugfs_create_file("counts", 0400, dir, NULL, &counts_fops);
	asked_init(dir);
	r = retired_init(dir);
	if (r)
		goto remove_dir;
	r = step_init();
	if (r)
		goto free_log;
	r = softpt_pmu_register();
	if (r)
		goto stop_steps;
	return 0;

stop_steps:
	step_exit();
free_log:
	debugfs_remove(dir);
	retired_exit();
	return r;
remove_dir:
	debugfs_remove(dir);
	return r;
}

static void __exit softpt_exit(void)
{
	softpt_pmu_unregister();
	step_exit();
	debugfs_remove(dir);
	retired_exit();
}

module_init(softpt_init);
module_exit(softpt_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("a software intel_pt PMU that single-steps user code");
