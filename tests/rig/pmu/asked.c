// SPDX-License-Identifier: GPL-2.0
/*
 * What the PMU was asked for: the attributes of the latest events, as /sys/kernel/debug/softpt/asked has
 * them, a line each. Those that are inherited are the kernel's own, and are not noted. Writing
 * anything empties it.
 */
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/perf_event.h>
#include <linux/seq_file.h>

#include "asked.h"

#define KEPT 64

static DEFINE_MUTEX(lock);
static struct perf_event_attr asked[KEPT];
static unsigned int n_asked;

void asked_note(const struct perf_event_attr *attr)
{
	mutex_lock(&lock);
	if (n_asked == KEPT)
		memmove(asked, asked + 1, (KEPT - 1) * sizeof(*asked));
	else
		n_asked++;
	asked[n_asked - 1] = *attr;
	mutex_unlock(&lock);
}

static int asked_show(struct seq_file *m, void *data)
{
	unsigned int i;

	mutex_lock(&lock);
	for (i = 0; i < n_asked; i++) {
		const struct perf_event_attr *attr = &asked[i];

		/* the bits between read_format and wakeup_events have no name as a whole */
		seq_printf(m, "config=%llx sample_type=%llx read_format=%llx flags=%llx", attr->config, attr->sample_type,
				attr->read_format, *(&attr->read_format + 1));
		seq_printf(m, " sample_period=%llu wakeup_watermark=%u clockid=%d aux_watermark=%u aux_sample_size=%u\n",
				attr->sample_period, attr->wakeup_watermark, attr->clockid, attr->aux_watermark,
				attr->aux_sample_size);
	}
	mutex_unlock(&lock);
	return 0;
}

static int asked_open(struct inode *inode, struct file *file)
{
	return single_open(file, asked_show, NULL);
}

static ssize_t asked_write(struct file *file, const char __user *buf, size_t size, loff_t *at)
{
	mutex_lock(&lock);
	n_asked = 0;
	mutex_unlock(&lock);
	return size;
}

static const struct file_operations asked_operations = {
	.owner = THIS_MODULE,
	.open = asked_open,
	.read = seq_read,
	.write = asked_write,
	.llseek = seq_lseek,
	.release = single_release,
};

void asked_init(struct dentry *dir)
{
	debugfs_create_file("asked", 0600, dir, NULL, &asked_operations);
}
