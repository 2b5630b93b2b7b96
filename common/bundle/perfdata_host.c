// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/perfdata_host.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>
#endif
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "common/base/io.h"

/* As perf writes it: decoders of hardware traces look errata up by it. */
static void cpu_id(char *ret, size_t size)
{
#if defined(__x86_64__) || defined(__i386__)
	unsigned int eax, ebx, ecx, edx, family, model;
	char vendor[13] = "";

	if (!__get_cpuid(0, &eax, &ebx, &ecx, &edx))
		return;
	memcpy(vendor, &ebx, 4);
	memcpy(vendor + 4, &edx, 4);
	memcpy(vendor + 8, &ecx, 4);
	if (!__get_cpuid(1, &eax, &ebx, &ecx, &edx))
		return;
	family = eax >> 8 & 0xf;
	model = eax >> 4 & 0xf;
	if (family == 0xf || family == 6)
		model |= eax >> 12 & 0xf0;
	if (family == 0xf)
		family += eax >> 20 & 0xff;
	(void)snprintf(ret, size, "%s,%u,%u,%u", vendor, family, model, eax & 0xf);
#else
	(void)size;
	ret[0] = '\0';
#endif
}

/* "model name" of the first processor, or "" */
static void cpu_description(char *ret, size_t size)
{
	_cleanup_free_ char *text = NULL;
	const char *p, *end;
	_cleanup_close_ int fd = -1;

	ret[0] = '\0';
	/* one processor's lines come first: no need for those of the hundred others */
	text = calloc(1, 4096);
	fd = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
	if (!text || fd < 0 || io_read_full(fd, text, 4095) < 0)
		return;
	p = strstr(text, "model name");
	p = p ? strchr(p, ':') : NULL;
	if (!p)
		return;
	p++;
	p += strspn(p, " \t");
	end = strchrnul(p, '\n');
	(void)snprintf(ret, size, "%.*s", (int)(end - p), p);
}

void perfdata_host_read(struct perfdata_host *ret)
{
	long online = sysconf(_SC_NPROCESSORS_ONLN), conf = sysconf(_SC_NPROCESSORS_CONF);
	long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
	struct utsname uts;

	memset(ret, 0, sizeof(*ret));
	if (uname(&uts) == 0) {
		(void)snprintf(ret->name, sizeof(ret->name), "%s", uts.nodename);
		(void)snprintf(ret->release, sizeof(ret->release), "%s", uts.release);
		(void)snprintf(ret->machine, sizeof(ret->machine), "%s", uts.machine);
	}
	ret->vdso_id_len = vdso_build_id(ret->vdso_id);
	cpu_description(ret->cpu, sizeof(ret->cpu));
	cpu_id(ret->cpuid, sizeof(ret->cpuid));
	ret->cpus_online = online > 0 ? (uint32_t)online : 1;
	ret->cpus_configured = conf > 0 ? (uint32_t)conf : 1;
	ret->memory_kib = pages > 0 && page > 0 ? (uint64_t)pages * (uint64_t)page / 1024 : 0;
}
