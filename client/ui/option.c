// SPDX-License-Identifier: Apache-2.0
/*
 * The option parser. It knows tables and argv only: what an option means is its command's matter.
 */
#include "client/ui/option.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "common/base/escape.h"

int option_parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret)
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

/* n × `factor` / `part`, if that is a whole number of 64 bits. */
static int scale(uint64_t n, uint64_t factor, uint64_t part, uint64_t *ret)
{
	uint64_t v;

	if (__builtin_mul_overflow(n, factor, &v) || v % part != 0)
		return DURATION_E_LONG;
	*ret = v / part;
	return 0;
}

/* The digits at *s as one number; moves *s past them and adds how many to *n. */
static int digits(const char **s, uint64_t *v, unsigned int *n)
{
	for (; **s >= '0' && **s <= '9'; (*s)++, (*n)++)
		if (__builtin_mul_overflow(*v, (uint64_t)10, v) ||
			__builtin_add_overflow(*v, (uint64_t)(**s - '0'), v))
			return DURATION_E_LONG;
	return 0;
}

/* The largest first. */
static const struct {
	const char *name;
	uint64_t ns;
} units[] = {{"h", 3600 * 1000000000ULL}, {"m", 60 * 1000000000ULL}, {"s", 1000000000},
	{"ms", 1000000}, {"us", 1000}, {"ns", 1}};

static uint64_t unit_ns(const char *name)
{
	for (size_t i = 0; i < ARRAY_SIZE(units); i++)
		if (!strcmp(units[i].name, name))
			return units[i].ns;
	return 0;
}

int option_parse_duration(const char *s, uint64_t bare_unit, uint64_t *ret)
{
	uint64_t v = 0, part = 1, unit;
	unsigned int whole = 0, fraction = 0;
	int r = digits(&s, &v, &whole);

	if (r == 0 && whole && *s == '.') {
		s++;
		r = digits(&s, &v, &fraction);
		if (!fraction)
			return DURATION_E_BAD;
	}
	if (!whole)
		return DURATION_E_BAD;
	if (r != 0)
		return r;
	/* more digits than this are more than 64 bits hold, or zeroes for nothing */
	if (fraction > 18)
		return DURATION_E_LONG;
	for (; fraction > 0; fraction--)
		part *= 10;
	if (!*s && v == 0) {
		*ret = 0;
		return 0;
	}
	s += *s == ' ';
	unit = *s ? unit_ns(s) : bare_unit;
	return unit ? scale(v, unit, part, ret) : DURATION_E_UNIT;
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

/* What the user typed, made safe for the terminal. */
static const char *quoted(const char *s, char buf[80])
{
	(void)escape_text(buf, 80, s, strlen(s));
	return buf;
}

/* An error with all words in it. */
static int store_word(const struct option_spec *s, const char *value, const char **ret,
		      char error[OPTION_ERROR_SIZE])
{
	char safe[80];
	int n;

	for (size_t i = 0; s->words(i); i++) {
		if (!strcmp(s->words(i), value)) {
			*ret = value;
			return 0;
		}
	}
	n = snprintf(error, OPTION_ERROR_SIZE, "--%s: '%s' is not one of", s->name,
		     quoted(value, safe));
	for (size_t i = 0; s->words(i) && n < OPTION_ERROR_SIZE; i++)
		n += snprintf(error + n, OPTION_ERROR_SIZE - (size_t)n, "%s %s", i ? "," : "",
			      s->words(i));
	return -EINVAL;
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

/* "1 us", "10 m": the largest unit of which it is a whole number. */
static const char *duration_text(char buf[32], uint64_t ns)
{
	size_t i = 0;

	while (i + 1 < ARRAY_SIZE(units) && (ns < units[i].ns || ns % units[i].ns))
		i++;
	(void)snprintf(buf, 32, "%" PRIu64 "%s", ns / units[i].ns, units[i].name);
	return buf;
}

static int store_duration(const struct option_spec *s, const char *value, uint64_t *ret,
	char error[OPTION_ERROR_SIZE])
{
	char safe[80], from[32], to[32];
	uint64_t ns = 0;
	int r = option_parse_duration(value, s->bare_unit, &ns);

	if (r == 0 && ns >= s->min && ns <= s->max) {
		*ret = ns;
		return 0;
	}
	if (r == DURATION_E_UNIT)
		(void)snprintf(error, OPTION_ERROR_SIZE,
			"--%s: '%s' needs a unit: ns, us, ms, s, m (minutes) or h, as in 5ms",
			s->name, quoted(value, safe));
	else if (r == DURATION_E_BAD)
		(void)snprintf(error, OPTION_ERROR_SIZE,
			"--%s: '%s' is not a time such as 5ms or 1.5s", s->name,
			quoted(value, safe));
	else
		(void)snprintf(error, OPTION_ERROR_SIZE, "--%s: '%s' is not a time from %s to %s",
			s->name, quoted(value, safe), duration_text(from, s->min),
			duration_text(to, s->max));
	return -EINVAL;
}

static int store_value(
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
	case OPTION_UNIT:
	case OPTION_SNAPSHOT_FILE:
		if (!*value) {
			(void)snprintf(
				error, OPTION_ERROR_SIZE, "--%s: the value is empty", s->name);
			return -EINVAL;
		}
		*(const char **)(void *)at = value;
		return 0;
	case OPTION_UINT:
		if (option_parse_u64(value, s->min, s->max, &number) < 0) {
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
	case OPTION_WORD:
		return store_word(s, value, (const char **)(void *)at, error);
	case OPTION_DURATION:
		return store_duration(s, value, (uint64_t *)(void *)at, error);
	}
	return -EINVAL;
}

static int option_store(
	const struct option_spec *s, void *values, const char *value, char error[OPTION_ERROR_SIZE])
{
	int r = store_value(s, values, value, error);

	if (r == 0 && s->given)
		*(bool *)(void *)((char *)values + s->given) = true;
	return r;
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

int option_parse(const struct option_set *sets, size_t n_sets, int argc, char *const *argv,
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
