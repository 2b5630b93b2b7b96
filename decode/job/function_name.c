// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/job/function_name.h"

#include <ctype.h>
#include <string.h>

#include "common/base/cleanup.h"
#include "common/base/escape.h"
#include "decode/object/demangle.h"

#define NEAR_MIN_LEN 3u
#define NEAR_DISTANCE 2u

bool function_name_set(struct function_name *f, const char *text)
{
	const size_t plain = strcspn(text, "<({");
	const char *word = text;

	for (const char *p = word; (p = strstr(p, "::")) && (size_t)(p - text) < plain; p += 2)
		word = p + 2;
	*f = (struct function_name){.text = text, .word = word, .word_len = strcspn(word, "<({")};
	/* Operators, destructors and lambdas are mangled in other words. */
	if (*word == '~' || strncmp(word, "operator", 8) == 0)
		f->word_len = 0;
	return *word != '\0';
}

static bool ends_with_component(const char *text, const char *name)
{
	const size_t n = strlen(text), m = strlen(name);

	return n > m + 2 && memcmp(text + n - m, name, m) == 0 &&
	       memcmp(text + n - m - 2, "::", 2) == 0;
}

/* What compilers write behind the name of a function that they have changed, or taken apart. */
enum suffix { SUFFIX_NONE, SUFFIX_RENAMED, SUFFIX_COPY, SUFFIX_COLD };

/* How long the name is without such a suffix, and what the suffixes say. */
static size_t strip_suffixes(const char *name, size_t len, enum suffix *ret)
{
	static const struct {
		const char *text;
		enum suffix suffix;
	} known[] = {
		/* Where a function goes on that is entered elsewhere. */
		{".cold", SUFFIX_COLD},
		/* Called instead of it, from some places. */
		{".constprop", SUFFIX_COPY},
		{".isra", SUFFIX_COPY},
		{".part", SUFFIX_COPY},
		/* The same function under a name that is not another file's. */
		{".lto_priv", SUFFIX_RENAMED},
		{".llvm", SUFFIX_RENAMED},
		{".localalias", SUFFIX_RENAMED},
	};
	bool found = true;

	*ret = SUFFIX_NONE;
	while (found) {
		size_t end = len;

		found = false;
		while (end > 0 && name[end - 1] >= '0' && name[end - 1] <= '9')
			end--;
		end = end > 0 && end < len && name[end - 1] == '.' ? end - 1 : len;
		for (size_t i = 0; i < ARRAY_SIZE(known) && !found; i++) {
			const size_t n = strlen(known[i].text);

			if (end <= n || memcmp(name + end - n, known[i].text, n) != 0)
				continue;
			len = end - n;
			if (known[i].suffix > *ret)
				*ret = known[i].suffix;
			found = true;
		}
	}
	return len;
}

/* As people write it: "f(int,char)" is "f(int, char)". */
static bool is_same_text(const char *a, const char *b)
{
	for (;;) {
		while (*a == ' ')
			a++;
		while (*b == ' ')
			b++;
		if (*a != *b)
			return false;
		if (!*a)
			return true;
		a++;
		b++;
	}
}

static enum match match_text(const struct function_name *f, const char *text)
{
	if (is_same_text(text, f->text))
		return MATCH_FULL;
	return ends_with_component(text, f->text) ? MATCH_SUFFIX : MATCH_NONE;
}

enum match function_name_match_plain(const struct function_name *f, const char *name, size_t len)
{
	char text[DEMANGLE_MAX_OUT + 1];
	enum match m;

	if (len == strlen(f->text) && memcmp(name, f->text, len) == 0)
		return MATCH_FULL;
	if (len < 2 || name[0] != '_' || !memmem(name, len, f->word, f->word_len))
		return MATCH_NONE;
	(void)demangle_name(name, len, text, sizeof(text));
	m = match_text(f, text);
	if (m != MATCH_NONE || !strchr(f->text, '('))
		return m;
	(void)demangle_signature(name, len, text, sizeof(text));
	return match_text(f, text);
}

enum match function_name_match(const struct function_name *f, const char *name, size_t len)
{
	enum suffix suffix;
	const size_t n = strip_suffixes(name, len, &suffix);
	enum match m;

	/* By its whole name it is meant, whatever it is. */
	if (len == strlen(f->text) && memcmp(name, f->text, len) == 0)
		return MATCH_FULL;
	m = suffix == SUFFIX_COLD ? MATCH_NONE : function_name_match_plain(f, name, n);
	return m != MATCH_NONE && suffix == SUFFIX_COPY ? m - 1 : m;
}

/* Whether one of two names becomes the other by at most NEAR_DISTANCE changes of a byte. */
static bool is_alike(const char *a, size_t n, const char *b, size_t m)
{
	unsigned int row[FUNCTION_NAME_NEAR_MAX + 1];

	if (n > FUNCTION_NAME_NEAR_MAX || m > FUNCTION_NAME_NEAR_MAX ||
	    (n > m ? n - m : m - n) > NEAR_DISTANCE)
		return false;
	for (size_t j = 0; j <= m; j++)
		row[j] = (unsigned int)j;
	for (size_t i = 1; i <= n; i++) {
		unsigned int diagonal = row[0], least = row[0] = (unsigned int)i;

		for (size_t j = 1; j <= m; j++) {
			const unsigned int above = row[j];
			unsigned int v = diagonal + (tolower((unsigned char)a[i - 1]) !=
						     tolower((unsigned char)b[j - 1]));

			if (above + 1 < v)
				v = above + 1;
			if (row[j - 1] + 1 < v)
				v = row[j - 1] + 1;
			diagonal = above;
			row[j] = v;
			if (v < least)
				least = v;
		}
		if (least > NEAR_DISTANCE)
			return false;
	}
	return row[m] <= NEAR_DISTANCE;
}

bool function_name_is_near(const struct function_name *f, const char *name, size_t len)
{
	const size_t n = strlen(f->text);

	return n >= NEAR_MIN_LEN && len <= FUNCTION_NAME_NEAR_MAX &&
	       (memmem(name, len, f->text, n) || is_alike(f->text, n, name, len));
}

void function_name_show(const char *name, size_t len, char *dst, size_t size)
{
	enum suffix suffix;
	const size_t plain = strip_suffixes(name, len, &suffix);
	const size_t n = demangle_signature(name, plain, dst, size);

	if (n + 1 < size)
		(void)escape_text(dst + n, size - n, name + plain, len - plain);
}
