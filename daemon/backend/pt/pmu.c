// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/pmu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"

#define FILE_MAX 256

static const char *const term_names[_PT_TERMS] = {
	[PT_TERM_PT] = "pt",
	[PT_TERM_CYC] = "cyc",
	[PT_TERM_MTC] = "mtc",
	[PT_TERM_TSC] = "tsc",
	[PT_TERM_NORETCOMP] = "noretcomp",
	[PT_TERM_BRANCH] = "branch",
	[PT_TERM_MTC_PERIOD] = "mtc_period",
	[PT_TERM_CYC_THRESH] = "cyc_thresh",
	[PT_TERM_PSB_PERIOD] = "psb_period",
	[PT_TERM_PTW] = "ptw",
	[PT_TERM_FUP_ON_PTW] = "fup_on_ptw",
};

static const char *const cap_names[_PT_CAPS] = {
	[PT_CAP_MTC] = "mtc",
	[PT_CAP_PSB_CYC] = "psb_cyc",
	[PT_CAP_IP_FILTERING] = "ip_filtering",
	[PT_CAP_PTWRITE] = "ptwrite",
	[PT_CAP_TOPA_MULTIPLE_ENTRIES] = "topa_multiple_entries",
	[PT_CAP_MTC_PERIODS] = "mtc_periods",
	[PT_CAP_CYCLE_THRESHOLDS] = "cycle_thresholds",
	[PT_CAP_PSB_PERIODS] = "psb_periods",
};

/* Digits of `base`, at most 32 bits; *p moves behind them. */
static bool number(const char **p, unsigned int base, uint32_t *ret)
{
	uint64_t v = 0;
	const char *s = *p;

	for (;; s++) {
		const char c = *s;
		unsigned int digit = c >= '0' && c <= '9' ? (unsigned int)(c - '0')
				     : c >= 'a' && c <= 'f' ? (unsigned int)(c - 'a' + 10)
							      : base;

		if (digit >= base)
			break;
		v = v * base + digit;
		if (v > UINT32_MAX)
			return false;
	}
	if (s == *p)
		return false;
	*p = s;
	*ret = (uint32_t)v;
	return true;
}

static bool at_end(const char *p)
{
	return *p == '\0' || (p[0] == '\n' && p[1] == '\0');
}

int pt_field_parse(const char *text, struct pt_field *ret)
{
	static const char prefix[] = "config:";
	const char *p = text + sizeof(prefix) - 1;
	uint32_t first, last;

	if (strncmp(text, prefix, sizeof(prefix) - 1) != 0 || !number(&p, 10, &first))
		return -EBADMSG;
	last = first;
	if (*p == '-') {
		p++;
		if (!number(&p, 10, &last))
			return -EBADMSG;
	}
	if (!at_end(p) || last < first || last > 63)
		return -EBADMSG;
	*ret = (struct pt_field){.first = (uint8_t)first, .width = (uint8_t)(last - first + 1)};
	return 0;
}

/* A file of the PMU's directory: 0, -ENOENT, -EBADMSG. */
static int read_text(int dir_fd, const char *name, char text[FILE_MAX + 1])
{
	_cleanup_free_ char *all = NULL;
	size_t len;
	int r;

	r = io_read_file_at(dir_fd, name, FILE_MAX, &all, &len);
	if (r < 0)
		return r == -ENOENT ? r : -EBADMSG;
	if (strlen(all) != len)
		return -EBADMSG;
	memcpy(text, all, len + 1);
	return 0;
}

static int read_number(int dir_fd, const char *name, unsigned int base, uint32_t *ret)
{
	char text[FILE_MAX + 1];
	const char *p = text;
	int r;

	r = read_text(dir_fd, name, text);
	if (r < 0)
		return r;
	if (base == 16 && strncmp(p, "0x", 2) == 0)
		p += 2;
	return number(&p, base, ret) && at_end(p) ? 0 : -EBADMSG;
}

static int read_term(int dir_fd, const char *name, struct pt_field *ret)
{
	char text[FILE_MAX + 1];
	int r;

	r = read_text(dir_fd, name, text);
	return r < 0 ? r : pt_field_parse(text, ret);
}

static int read_ratio(int dir_fd, const char *name, uint32_t *ret_n, uint32_t *ret_d)
{
	char text[FILE_MAX + 1];
	const char *p = text;
	uint32_t n, d;
	int r;

	r = read_text(dir_fd, name, text);
	if (r < 0)
		return r;
	if (!number(&p, 10, &n) || *p++ != ':' || !number(&p, 10, &d) || !at_end(p))
		return -EBADMSG;
	/* A processor that does not know says 0. */
	*ret_n = n && d ? n : 0;
	*ret_d = n && d ? d : 0;
	return 0;
}

int pt_pmu_read(const char *path, struct pt_pmu *ret, char *why, size_t why_size)
{
	_cleanup_close_ int dir_fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	struct pt_pmu pmu = {0};
	char name[64] = "type";
	int r;

	if (dir_fd < 0)
		return -ENOENT;
	r = read_number(dir_fd, name, 10, &pmu.type);
	if (r == -ENOENT)
		r = -EBADMSG;
	for (int i = 0; r == 0 && i < _PT_TERMS; i++) {
		(void)snprintf(name, sizeof(name), "format/%s", term_names[i]);
		r = read_term(dir_fd, name, &pmu.terms[i]);
		r = r == -ENOENT ? 0 : r;
	}
	for (int i = 0; r == 0 && i < _PT_CAPS; i++) {
		(void)snprintf(name, sizeof(name), "caps/%s", cap_names[i]);
		r = read_number(dir_fd, name, 16, &pmu.caps[i]);
		r = r == -ENOENT ? 0 : r;
	}
	if (r == 0) {
		(void)snprintf(name, sizeof(name), "max_nonturbo_ratio");
		r = read_number(dir_fd, name, 10, &pmu.max_nonturbo_ratio);
		r = r == -ENOENT ? 0 : r;
	}
	if (r == 0) {
		(void)snprintf(name, sizeof(name), "nr_addr_filters");
		r = read_number(dir_fd, name, 10, &pmu.filters);
		r = r == -ENOENT ? 0 : r;
	}
	if (r == 0) {
		(void)snprintf(name, sizeof(name), "tsc_art_ratio");
		r = read_ratio(dir_fd, name, &pmu.tsc_ctc_n, &pmu.tsc_ctc_d);
		r = r == -ENOENT ? 0 : r;
	}
	if (r < 0) {
		(void)snprintf(why, why_size, "%s/%s is not understood", path, name);
		return r;
	}
	*ret = pmu;
	return 0;
}

uint64_t pt_pmu_bits(const struct pt_pmu *pmu, enum pt_term term)
{
	const struct pt_field *f = &pmu->terms[term];

	if (f->width == 0)
		return 0;
	return (f->width == 64 ? UINT64_MAX : (UINT64_C(1) << f->width) - 1) << f->first;
}

bool pt_pmu_set(const struct pt_pmu *pmu, enum pt_term term, uint64_t value, uint64_t *config)
{
	const uint64_t bits = pt_pmu_bits(pmu, term);
	const unsigned int first = pmu->terms[term].first;

	if (!bits || value > bits >> first)
		return false;
	*config = (*config & ~bits) | value << first;
	return true;
}
