// SPDX-License-Identifier: GPL-2.0
/*
 * The log of retired instructions: the truth that a decoder is compared with. One ring for all CPUs,
 * which keeps the latest; those of one thread are in their order. Read it while nothing is traced;
 * writing anything empties it.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#include "retired.h"

static bool log_on = true;
module_param_named(log, log_on, bool, 0644);
MODULE_PARM_DESC(log, "log retired instructions");

static unsigned int log_entries = 4 << 20;
module_param(log_entries, uint, 0444);
MODULE_PARM_DESC(log_entries, "how many of them are kept");

static struct retired *entries;
static atomic64_t logged;

void retired_log(u64 ip, bool lost)
{
	u64 at;

	if (!READ_ONCE(log_on))
		return;
	div64_u64_rem(atomic64_inc_return(&logged) - 1, log_entries, &at);
	entries[at] = (struct retired){
		.tid = current->pid,
		.cpu = smp_processor_id(),
		.lost = lost,
		.ip = ip,
	};
}

static ssize_t log_read(struct file *file, char __user *buf, size_t size, loff_t *at)
{
	u64 n = atomic64_read(&logged), first = n > log_entries ? n - log_entries : 0, slot;
	size_t entry = sizeof(*entries), done = 0;

	while (done + entry <= size && first + *at / entry < n) {
		div64_u64_rem(first + *at / entry, log_entries, &slot);
		/* up to the end of the ring at once */
		n = min3((u64)(size - done) / entry, n - first - *at / entry, log_entries - slot);
		if (copy_to_user(buf + done, entries + slot, n * entry))
			return -EFAULT;
		done += n * entry;
		*at += n * entry;
		n = atomic64_read(&logged);
	}
	return done;
}

static ssize_t log_write(struct file *file, const char __user *buf, size_t size, loff_t *at)
{
	atomic64_set(&logged, 0);
	return size;
}

static const struct file_operations log_operations = {
	.owner = THIS_MODULE,
	.read = log_read,
	.write = log_write,
	.llseek = default_llseek,
};

int retired_init(struct dentry *dir)
{
	if (!log_entries)
		return -EINVAL;
	entries = vzalloc(array_size(log_entries, sizeof(*entries)));
	if (!entries)
		return -ENOMEM;
	debugfs_create_file("retired", 0600, dir, NULL, &log_operations);
	return 0;
}

/* The file is gone by now. */
void retired_exit(void)
{
	vfree(entries);
}
