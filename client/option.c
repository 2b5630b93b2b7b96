// SPDX-License-Identifier: Apache-2.0
/*
 * The option parser. It knows tables and argv only: what an option means is its command's matter.
 */
#include "client/option.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/escape.h"

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
{
	uint64_t v = 0;

	if (!*s)
		return -EINVAL;
	for (; *s; s++) {
		if (*s < '0' || *s > '9')
			return -EINVAL;
		if (__builtin_mul_overflow(v, (uint64_t)10, &v) ||
			__builtin_add_overflow(v, (uint64_t)(*s - '0'), &v))
			return -EINVAL;
	}
	if (v < min || v > max)
		return -EINVAL;
	*ret = v;
	return 0;
}

/* Is `value` one of the words of "a|b|c"? */
static bool choice_matches(const char *choices, const char *value)
{
	size_t len = strlen(value);

	while (len > 0 && *choices) {
		size_t n = strcspn(choices, "|");

		if (n == len && !memcmp(choices, value, n))
			return true;
		choices += n + (choices[n] == '|');
	}
	return false;
}

static const struct option_spec *find_long(const struct option_set *sets, size_t n_sets,
	const char *name, size_t len, void **ret_values)
{
	for (size_t i = 0; i < n_sets; i++) {
		for (const struct option_spec *s = sets[i].specs; s && s->name; s++) {
			if (strlen(s->name) != len || memcmp(s->name, name, len) != 0)
				continue;
			*ret_values = sets[i].values;
			return s;
		}
	}
	return NULL;
}

static const struct option_spec *find_letter(
	const struct option_set *sets, size_t n_sets, char letter, void **ret_values)
{
	for (size_t i = 0; i < n_sets; i++) {
		for (const struct option_spec *s = sets[i].specs; s && s->name; s++) {
			if (!s->letter || s->letter != letter)
				continue;
			*ret_values = sets[i].values;
			return s;
		}
	}
	return NULL;
}

/* What the user typed, made safe for the terminal. */
static const char *quoted(const char *s, char buf[80])
{
	(void)escape_text(buf, 80, s, strlen(s));
	return buf;
}

static int option_store(
	const struct option_spec *s, void *values, const char *value, char error[OPTION_ERROR_SIZE])
{
	char *at = (char *)values + s->offset;
	char safe[80];
	uint64_t number;

	switch (s->type) {
	case OPTION_FLAG:
		*(bool *)(void *)at = true;
		return 0;
	case OPTION_STRING:
	case OPTION_FILE:
		if (!*value) {
			(void)snprintf(
				error, OPTION_ERROR_SIZE, "--%s: the value is empty", s->name);
			return -EINVAL;
		}
		*(const char **)(void *)at = value;
		return 0;
	case OPTION_UINT:
		if (parse_u64(value, s->min, s->max, &number) < 0) {
			(void)snprintf(error, OPTION_ERROR_SIZE,
				"--%s: '%s' is not a number from %" PRIu64 " to %" PRIu64, s->name,
				quoted(value, safe), s->min, s->max);
			return -EINVAL;
		}
		*(uint64_t *)(void *)at = number;
		return 0;
	case OPTION_CHOICE:
		if (!choice_matches(s->choices, value)) {
			(void)snprintf(error, OPTION_ERROR_SIZE, "--%s: '%s' is not one of %s",
				s->name, quoted(value, safe), s->choices);
			return -EINVAL;
		}
		*(const char **)(void *)at = value;
		return 0;
	}
	return -EINVAL;
}

static int missing_value(const struct option_spec *s, char error[OPTION_ERROR_SIZE])
{
	(void)snprintf(
		error, OPTION_ERROR_SIZE, "--%s needs a value: --%s=%s", s->name, s->name, s->arg);
	return -EINVAL;
}

/* `argv[*i]` begins with "--"; moves *i on where it takes the next word as value. */
static int parse_long(const struct option_set *sets, size_t n_sets, int argc, char *const *argv,
	int *i, char error[OPTION_ERROR_SIZE])
{
	const char *name = argv[*i] + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] == '=' ? name + len + 1 : NULL;
	const struct option_spec *s;
	void *values = NULL;
	char safe[80];

	s = find_long(sets, n_sets, name, len, &values);
	if (!s) {
		(void)snprintf(error, OPTION_ERROR_SIZE, "there is no option '%s'",
			quoted(argv[*i], safe));
		return -EINVAL;
	}
	if (s->type == OPTION_FLAG) {
		if (value) {
			(void)snprintf(error, OPTION_ERROR_SIZE, "--%s takes no value", s->name);
			return -EINVAL;
		}
	} else if (!value) {
		if (*i + 1 >= argc)
			return missing_value(s, error);
		value = argv[++*i];
	}
	return option_store(s, values, value, error);
}

/* `argv[*i]` is a group of letters: flags, the last of which may be an option with a value. */
static int parse_letters(const struct option_set *sets, size_t n_sets, int argc, char *const *argv,
	int *i, char error[OPTION_ERROR_SIZE])
{
	for (const char *p = argv[*i] + 1; *p; p++) {
		const struct option_spec *s;
		void *values = NULL;
		char safe[80];
		int r;

		s = find_letter(sets, n_sets, *p, &values);
		if (!s) {
			(void)snprintf(error, OPTION_ERROR_SIZE, "there is no option '-%c' in '%s'",
				*p >= 0x20 && *p < 0x7f ? *p : '?', quoted(argv[*i], safe));
			return -EINVAL;
		}
		if (s->type == OPTION_FLAG) {
			r = option_store(s, values, NULL, error);
			if (r < 0)
				return r;
			continue;
		}
		if (p[1])
			return option_store(s, values, p + 1, error);
		if (*i + 1 >= argc)
			return missing_value(s, error);
		return option_store(s, values, argv[++*i], error);
	}
	return 0;
}

int options_parse(const struct option_set *sets, size_t n_sets, int argc, char *const *argv,
	bool stop_at_operand, const char **operands, size_t *ret_n_operands,
	char error[OPTION_ERROR_SIZE])
{
	bool rest = false;
	size_t n = 0;

	for (int i = 0; i < argc; i++) {
		const char *word = argv[i];
		int r = 0;

		if (rest || word[0] != '-' || !word[1]) {
			operands[n++] = word;
			if (stop_at_operand)
				rest = true;
			continue;
		}
		if (!strcmp(word, "--")) {
			rest = true;
			continue;
		}
		if (word[1] == '-')
			r = parse_long(sets, n_sets, argc, argv, &i, error);
		else
			r = parse_letters(sets, n_sets, argc, argv, &i, error);
		if (r < 0)
			return r;
	}
	*ret_n_operands = n;
	return 0;
}
