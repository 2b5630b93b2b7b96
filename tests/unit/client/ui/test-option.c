// SPDX-License-Identifier: Apache-2.0
/* The option parser, and what must hold for every command's table. */
#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <string.h>

#include <cmocka.h>

#include "client/core/target.h"
#include "client/ui/command.h"
#include "client/ui/exitcode.h"
#include "common/control/protocol.h"
#include "tracerd.h"

struct values {
	bool flag, other;
	const char *text, *choice;
	uint64_t number, time;
	bool has_time;
};

static const struct option_spec specs[] = {
	{.name = "flag",
		.letter = 'f',
		.type = OPTION_FLAG,
		.offset = offsetof(struct values, flag),
		.doc = "x"},
	{.name = "other",
		.letter = 'g',
		.type = OPTION_FLAG,
		.offset = offsetof(struct values, other),
		.doc = "x"},
	{.name = "text",
		.letter = 't',
		.type = OPTION_STRING,
		.offset = offsetof(struct values, text),
		.arg = "T",
		.doc = "x"},
	{.name = "choice",
		.type = OPTION_CHOICE,
		.offset = offsetof(struct values, choice),
		.arg = "C",
		.choices = "auto|fp|dwarf",
		.doc = "x"},
	{.name = "number",
		.letter = 'n',
		.type = OPTION_UINT,
		.offset = offsetof(struct values, number),
		.arg = "N",
		.min = 2,
		.max = 100,
		.doc = "x"},
	{.name = "time",
		.type = OPTION_DURATION,
		.offset = offsetof(struct values, time),
		.given = offsetof(struct values, has_time),
		.arg = "T",
		.min = 0,
		.max = 90000000000,
		.doc = "x"},
	{0},
};

struct parsed {
	struct values v;
	const char *operands[16];
	size_t n;
	char error[OPTION_ERROR_SIZE];
};

#define PARSE(p, stop, ...) parse(p, stop, (char *[]){__VA_ARGS__, NULL})

static int parse(struct parsed *p, bool stop, char **argv)
{
	const struct option_set set = {specs, &p->v};
	int argc = 0;

	*p = (struct parsed){.n = 0};
	while (argv[argc])
		argc++;
	return option_parse(&set, 1, argc, argv, stop, p->operands, &p->n, p->error);
}

static void test_forms(void **state)
{
	struct parsed p;

	assert_int_equal(PARSE(&p, false, "--text=a", "one", "--number", "7", "-f", "two"), 0);
	assert_string_equal(p.v.text, "a");
	assert_int_equal(p.v.number, 7);
	assert_true(p.v.flag);
	assert_false(p.v.other);
	assert_int_equal(p.n, 2);
	assert_string_equal(p.operands[0], "one");
	assert_string_equal(p.operands[1], "two");

	assert_int_equal(PARSE(&p, false, "-fgtvalue", "-n", "100"), 0);
	assert_true(p.v.flag && p.v.other);
	assert_string_equal(p.v.text, "value");
	assert_int_equal(p.v.number, 100);

	assert_int_equal(PARSE(&p, false, "-t", "-x", "-"), 0);
	assert_string_equal(p.v.text, "-x");
	assert_string_equal(p.operands[0], "-");
}

static void test_end_of_options(void **state)
{
	struct parsed p;

	assert_int_equal(PARSE(&p, false, "--", "-f", "--"), 0);
	assert_false(p.v.flag);
	assert_int_equal(p.n, 2);
	assert_string_equal(p.operands[1], "--");

	/* a command line behind our options keeps its own */
	assert_int_equal(PARSE(&p, true, "-f", "ls", "-g", "--", "x"), 0);
	assert_true(p.v.flag);
	assert_false(p.v.other);
	assert_int_equal(p.n, 4);
	assert_int_equal(PARSE(&p, true, "--", "ls", "--"), 0);
	assert_int_equal(p.n, 2);
}

static void refused(char *argv[], const char *words)
{
	struct parsed p;

	assert_int_equal(parse(&p, false, argv), -EINVAL);
	if (!strstr(p.error, words))
		fail_msg("'%s' is not in '%s'", words, p.error);
}

static void test_refusals(void **state)
{
	refused((char *[]){"--bogus", NULL}, "there is no option '--bogus'");
	refused((char *[]){"-x", NULL}, "there is no option '-x'");
	refused((char *[]){"--flag=1", NULL}, "takes no value");
	refused((char *[]){"--text", NULL}, "needs a value");
	refused((char *[]){"-t", NULL}, "needs a value");
	refused((char *[]){"--text=", NULL}, "empty");
	refused((char *[]){"--choice=f", NULL}, "not one of auto|fp|dwarf");
	refused((char *[]){"--choice=auto|fp", NULL}, "not one of");
	refused((char *[]){"--number=1", NULL}, "from 2 to 100");
	refused((char *[]){"--number=101", NULL}, "from 2 to 100");
	refused((char *[]){"--number=+7", NULL}, "not a number");
	refused((char *[]){"--number=7 ", NULL}, "not a number");
	refused((char *[]){"--number=99999999999999999999999", NULL}, "not a number");
	/* nothing that is typed gets to the terminal as it is */
	refused((char *[]){"--\033[2J", NULL}, "'--\\x1b[2J'");
}

static void test_targets(void **state)
{
	const char *id = "x";
	uint64_t pid = 1;

	assert_int_equal(target_parse("t12", &pid, &id), 0);
	assert_string_equal(id, "t12");
	assert_int_equal(target_parse("1234", &pid, &id), 0);
	assert_null(id);
	assert_int_equal(pid, 1234);
	assert_int_equal(target_parse("", &pid, &id), -EINVAL);
	assert_int_equal(target_parse("t", &pid, &id), -EINVAL);
	assert_int_equal(target_parse("0", &pid, &id), -EINVAL);
	assert_int_equal(target_parse("-1", &pid, &id), -EINVAL);
	assert_int_equal(target_parse("t1x", &pid, &id), -EINVAL);
	assert_int_equal(target_parse("99999999", &pid, &id), -EINVAL);
}

/* Each table is complete, and no name or letter means two things. */
static void check_specs(const struct command *c, const struct option_spec *s)
{
	for (; s && s->name; s++) {
		size_t n = 0;

		assert_non_null(s->doc);
		assert_true(s->doc[strlen(s->doc) - 1] == '.');
		assert_true((s->type == OPTION_FLAG) == (s->arg == NULL));
		assert_true((s->type == OPTION_CHOICE) == (s->choices != NULL));
		assert_true(s->type != OPTION_WORD || s->words);
		assert_true(!s->words || (s->words(0) && s->type != OPTION_CHOICE));
		if (s->type == OPTION_UINT || s->type == OPTION_DURATION)
			assert_true(s->min <= s->max && s->max > 0);
		for (int which = 0; which < 2; which++) {
			const struct option_spec *o = which ? common_option_specs : c->options;

			for (; o && o->name; o++)
				n += !strcmp(o->name, s->name) ||
				     (o->letter && o->letter == s->letter);
		}
		if (n != 1)
			fail_msg("%s: --%s is there %zu times", c->name, s->name, n);
		if (s >= c->options && s->offset >= c->options_size && c->options)
			fail_msg("%s: --%s is outside its struct", c->name, s->name);
		if (s >= c->options && s->given >= c->options_size && c->options)
			fail_msg("%s: --%s marks something outside its struct", c->name, s->name);
	}
}

static void check_command(const struct command *c)
{
	assert_true((c->exec == NULL) == (c->commands != NULL));
	assert_true(c->min_operands <= c->max_operands);
	assert_true(c->max_operands == 0 || *c->args);
	assert_true(strlen(c->summary) < 70);
	assert_true(c->doc[strlen(c->doc) - 1] == '.');
	check_specs(c, c->options);
}

static void test_tables(void **state)
{
	for (size_t i = 0; commands[i]; i++) {
		const struct command *c = commands[i];

		assert_ptr_equal(command_find(commands, c->name), c);
		check_command(c);
		for (size_t k = 0; c->commands && c->commands[k]; k++) {
			const struct command *sub = c->commands[k];
			size_t n = strlen(c->name);

			/* named by both words, found by the second, and itself no table */
			assert_memory_equal(sub->name, c->name, n);
			assert_int_equal(sub->name[n], ' ');
			assert_ptr_equal(command_find(c->commands, sub->name + n + 1), sub);
			assert_null(sub->commands);
			check_command(sub);
		}
	}
	assert_null(command_find(commands, "bogus"));
	assert_null(command_find(commands, ""));
	assert_null(command_find(commands, "add"));
}

static void test_durations(void **state)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ns;
	} cases[] = {
		{"0", 0, 0},
		{"0ns", 0, 0},
		{"0.0", 0, 0},
		{"1ns", 0, 1},
		{"250us", 0, 250000},
		{"5ms", 0, 5000000},
		{"5 ms", 0, 5000000},
		{"1.5s", 0, 1500000000},
		{"0.001us", 0, 1},
		{"2.500000000s", 0, 2500000000},
		{"10m", 0, 600000000000},
		{"24h", 0, 86400000000000},
		{"0.5h", 0, 1800000000000},
		{"5124095h", 0, 5124095ULL * 3600000000000ULL},
		{"18446744073709551615ns", 0, UINT64_MAX},
		{"", DURATION_E_BAD, 0},
		{"ms", DURATION_E_BAD, 0},
		{".5s", DURATION_E_BAD, 0},
		{"5.s", DURATION_E_BAD, 0},
		{"-5ms", DURATION_E_BAD, 0},
		{"+5ms", DURATION_E_BAD, 0},
		{" 5ms", DURATION_E_BAD, 0},
		{"5", DURATION_E_UNIT, 0},
		{"5  ms", DURATION_E_UNIT, 0},
		{"5ms ", DURATION_E_UNIT, 0},
		{"5MS", DURATION_E_UNIT, 0},
		{"5ms3s", DURATION_E_UNIT, 0},
		{"5min", DURATION_E_UNIT, 0},
		{"1e3ms", DURATION_E_UNIT, 0},
		{"0x5ms", DURATION_E_UNIT, 0},
		{"0.5ns", DURATION_E_LONG, 0},
		{"0.0001us", DURATION_E_LONG, 0},
		{"18446744073709551616ns", DURATION_E_LONG, 0},
		{"5124096h", DURATION_E_LONG, 0},
		{"0.0000000000000000000000000001s", DURATION_E_LONG, 0},
	};

	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		uint64_t ns = 77;
		int r = option_parse_duration(cases[i].text, 0, &ns);

		if (r != cases[i].r || ns != (r == 0 ? cases[i].ns : 77))
			fail_msg("\"%s\": %d, %llu", cases[i].text, r, (unsigned long long)ns);
	}
}

/* Options that took a bare number before they took units still do. */
static void test_bare_durations(void **state)
{
	uint64_t ns = 0;

	assert_int_equal(option_parse_duration("100", DURATION_MS, &ns), 0);
	assert_int_equal(ns, 100000000);
	assert_int_equal(option_parse_duration("1.5", DURATION_S, &ns), 0);
	assert_int_equal(ns, 1500000000);
	assert_int_equal(option_parse_duration("200ms", DURATION_S, &ns), 0);
	assert_int_equal(ns, 200000000);
	assert_int_equal(option_parse_duration("5x", DURATION_S, &ns), DURATION_E_UNIT);
	assert_int_equal(option_parse_duration("0.0000001", DURATION_MS, &ns), DURATION_E_LONG);
}

/* No command counts a time in a unit of its own. */
static void test_times_have_units(void **state)
{
	for (size_t i = 0; commands[i]; i++)
		for (const struct option_spec *s = commands[i]->options; s && s->name; s++)
			if (!strcmp(s->name, "timeout") || !strcmp(s->name, "last"))
				assert_int_equal(s->type, OPTION_DURATION);
}

static void test_duration_options(void **state)
{
	struct parsed p;

	assert_int_equal(PARSE(&p, false, "--time", "1.5ms"), 0);
	assert_int_equal(p.v.time, 1500000);
	assert_true(p.v.has_time);
	assert_int_equal(PARSE(&p, false, "--time=0"), 0);
	assert_int_equal(p.v.time, 0);
	assert_true(p.v.has_time);
	assert_int_equal(PARSE(&p, false, "-f"), 0);
	assert_false(p.v.has_time);
	/* each error says what would be right */
	refused((char *[]){"--time", "5", NULL},
		"'5' needs a unit: ns, us, ms, s, m (minutes) or h, as in 5ms");
	refused((char *[]){"--time", "soon", NULL}, "'soon' is not a time such as 5ms or 1.5s");
	refused((char *[]){"--time", "2m", NULL}, "'2m' is not a time from 0ns to 90s");
	refused((char *[]){"--time", "0.1ns", NULL}, "'0.1ns' is not a time from 0ns to 90s");
}

/* The library's codes are the protocol's, in the same order. */
static void test_codes(void **state)
{
	assert_int_equal(TRACERD_E_INTERNAL - 1, _API_ERROR_MAX - 1);
	for (int i = API_OK + 1; i < _API_ERROR_MAX; i++)
		assert_string_equal(
			tracerd_error_name(i + 1), protocol_error_code((enum protocol_error)i));
	assert_string_equal(tracerd_error_name(0), "ok");
	assert_string_equal(tracerd_error_name(-ETIMEDOUT), "ETIMEDOUT");
	assert_string_equal(tracerd_error_name(9999), "unknown");
	assert_string_equal(tracerd_error_name(-9999), "unknown");

	assert_int_equal(exit_code_from(0), EXIT_OK);
	assert_int_equal(exit_code_from(TRACERD_E_GONE), EXIT_NOT_FOUND);
	assert_int_equal(exit_code_from(TRACERD_E_NOT_PERMITTED), EXIT_NOT_PERMITTED);
	assert_int_equal(exit_code_from(TRACERD_E_QUOTA), EXIT_BUSY);
	assert_int_equal(exit_code_from(TRACERD_E_DECODE_FAILED), EXIT_NOT_DECODED);
	assert_int_equal(exit_code_from(-ECONNRESET), EXIT_NOT_RUNNING);
	assert_int_equal(exit_code_from(TRACERD_E_INTERNAL), EXIT_FAILED);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_forms),
		cmocka_unit_test(test_end_of_options),
		cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_targets),
		cmocka_unit_test(test_tables),
		cmocka_unit_test(test_durations),
		cmocka_unit_test(test_bare_durations),
		cmocka_unit_test(test_times_have_units),
		cmocka_unit_test(test_duration_options),
		cmocka_unit_test(test_codes),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
