// SPDX-License-Identifier: Apache-2.0
#include "step/insn_log.h"

#include "common/base/io.h"

/* Two numbers and what is between them. */
#define LINE_MAX_BYTES 48

static char *decimal(char *end, uint32_t v)
{
	do
		*--end = (char)('0' + v % 10);
	while (v /= 10);
	return end;
}

static char *hex(char *end, uint64_t v)
{
	do
		*--end = "0123456789abcdef"[v & 15];
	while (v >>= 4);
	return end;
}

int insn_log_flush(struct insn_log *l)
{
	int r = l->fd >= 0 ? io_write_all(l->fd, l->buf, l->used) : 0;

	l->used = 0;
	return r;
}

int insn_log_add(struct insn_log *l, pid_t tid, uint64_t ip)
{
	char line[LINE_MAX_BYTES], *end = line + sizeof(line), *p = end;

	if (l->fd < 0)
		return 0;
	*--p = '\n';
	p = hex(p, ip);
	*--p = ' ';
	p = decimal(p, (uint32_t)tid);
	for (; p < end; p++)
		l->buf[l->used++] = *p;
	return l->used + LINE_MAX_BYTES > sizeof(l->buf) ? insn_log_flush(l) : 0;
}
