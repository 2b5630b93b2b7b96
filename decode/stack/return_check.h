/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Does a return address follow a call? Frame pointers that are none (code built without them) and
 * stack words that only look like code give frames that never were; the bytes before a true
 * return address are a call instruction. Knows x86-64 only, and bytes only.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define RETURN_CHECK_BEFORE 8u /* bytes before the address that are looked at */
#define RETURN_CHECK_AFTER 9u  /* bytes at the address, for signal trampolines */

/* `before`: the n bytes that end where the return address points. */
bool return_check_follows_call(const uint8_t *before, size_t n);

/*
 * The code at the address is the kernel's way back from a signal handler (mov $15,%rax; syscall):
 * nobody called it, its address was put on the stack by the kernel.
 */
bool return_check_is_sigreturn(const uint8_t *at, size_t n);
