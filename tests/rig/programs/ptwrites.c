// SPDX-License-Identifier: Apache-2.0
/* PTWRITE of registers and memory, 4 and 8 bytes wide: the values 1 to 10, one after the other. */
#include <stdint.h>

static uint64_t value;

int main(void)
{
	for (int i = 0; i < 2; i++) {
		uint64_t *p = &value;

		value++;
		__asm__ volatile("ptwriteq %0" : : "r"(value) : "memory");
		value++;
		__asm__ volatile("ptwritel %0" : : "r"((uint32_t)value) : "memory");
		value++;
		__asm__ volatile("ptwriteq %0" : : "m"(value) : "memory");
		value++;
		__asm__ volatile("ptwritel %0" : : "m"(value) : "memory");
		value++;
		__asm__ volatile("ptwriteq (%0,%1,8)" : : "r"(p - 3), "r"((uint64_t)3) : "memory");
	}
	return 0;
}
