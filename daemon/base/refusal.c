// SPDX-License-Identifier: Apache-2.0
#include "daemon/base/refusal.h"

#include <stdarg.h>
#include <stdio.h>

int refusal(char *why, size_t size, int answer, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(why, size, fmt, args);
	va_end(args);
	return answer;
}
