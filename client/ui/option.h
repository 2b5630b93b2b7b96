/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Command line options from const tables. The same tables give the parser its rules and --help,
 * the manual page and the shell completion their words, so that none of them can drift.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/base/cleanup.h"

enum option_type {
	OPTION_FLAG,   /* bool, set to true */
	OPTION_STRING, /* const char *, into argv */
	OPTION_FILE,   /* the same; completed as a file name */
	OPTION_UNIT,   /* the same; completed as a unit of systemd */
	/* the same; completed as a file of the snapshot on the command line, or one of `words` */
	OPTION_SNAPSHOT_FILE,
	OPTION_WORD,   /* the same; one of `words` */
	OPTION_UINT,   /* uint64_t within min and max */
	OPTION_CHOICE, /* const char *, one word of `choices` */
	OPTION_DURATION, /* uint64_t of nanoseconds within min and max */
};

/* One option; a table ends with an entry whose name is NULL. */
struct option_spec {
	const char *name; /* long name without the dashes */
	char letter;      /* short name, or 0 */
	enum option_type type;
	size_t offset;       /* of the value in the command's struct of values */
	const char *arg;     /* the value's placeholder; NULL for a flag */
	const char *choices; /* "auto|fp|dwarf" for OPTION_CHOICE */
	/*
	 * word i of those that OPTION_WORD takes, and that complete an OPTION_SNAPSHOT_FILE; NULL
	 * after the last
	 */
	const char *(*words)(size_t i);
	uint64_t min, max;   /* for OPTION_UINT and OPTION_DURATION */
	/* for OPTION_DURATION: ns that a number without a unit counts; 0: it needs one */
	uint64_t bare_unit;
	size_t given;	     /* of a bool that is set where the option was given; 0: none */
	const char *doc;     /* one sentence or two, no newline */
};

/* A table together with the struct that its values go to. */
struct option_set {
	const struct option_spec *specs;
	void *values;
};

#define OPTION_ERROR_SIZE 256

/*
 * Parses argv[0..argc) (without the program's and the command's name) against `n_sets` tables.
 * Understands --name VALUE, --name=VALUE, -n VALUE, -nVALUE, grouped flags and "--". Operands are
 * collected in order into `operands`, which has room for argc pointers. With `stop_at_operand`
 * everything from the first operand on is an operand (a command with its own options).
 *
 * Returns 0, or -EINVAL with one sentence in `error`.
 */
int option_parse(const struct option_set *sets, size_t n_sets, int argc, char *const *argv,
	bool stop_at_operand, const char **operands, size_t *ret_n_operands,
	char error[OPTION_ERROR_SIZE]) _must_check_;

/*
 * A whole decimal number from `min` to `max`, with nothing before or after it. 0 or -EINVAL.
 */
int option_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret) _must_check_;

#define DURATION_MS UINT64_C(1000000)
#define DURATION_S UINT64_C(1000000000)

enum {
	DURATION_E_BAD = 1, /* no number */
	DURATION_E_UNIT,    /* no unit, or one that we do not know */
	DURATION_E_LONG,    /* more than 2^64 ns, or a part of a nanosecond */
};

/*
 * A length of time: a decimal number and, with or without a space between them, one of ns, us, ms,
 * s, m (minutes) and h: "5ms", "1.5 s". "0" needs no unit; any other number without one counts
 * `bare_unit` ns, or is an error where that is 0. 0 or DURATION_E_*.
 */
int option_parse_duration(const char *s, uint64_t bare_unit, uint64_t *ret) _must_check_;
