/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sends one ELF file, however broken, through all that the decoder does with an image: opening,
 * symbols, names, code bytes, unwind tables, debug information, frame pointer probe, and the walk
 * of a stack that leads through it. Shared by the fuzz target and the test of mutated files.
 */
#pragma once

#include <stdint.h>

struct exercise_result {
	uint64_t ready;   /* 1: it was accepted as an image */
	uint64_t symbols; /* names found */
	uint64_t rows;    /* unwind rows found */
	uint64_t extents; /* addresses that lie in a function of the unwind table */
	uint64_t frames;  /* frames that the walk found */
	uint64_t places;  /* lines, declarations and inlined calls of the debug information */
	uint64_t judged;  /* functions that the probe judged */
};

/* `fd` stays the caller's. Adds to *sum. */
void exercise_elf(int fd, struct exercise_result *sum);
