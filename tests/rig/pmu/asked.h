/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SOFTPT_ASKED_H
#define SOFTPT_ASKED_H

struct dentry;
struct perf_event_attr;

void asked_init(struct dentry *dir);
void asked_note(const struct perf_event_attr *attr);

#endif
