// SPDX-License-Identifier: Apache-2.0
/* What came of the second opinion: how much was compared, and where the two decoders differ. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "client/ui/human.h"
#include "client/ui/report.h"

static void print_difference(FILE *out, struct json_object *d)
{
	_cleanup_free_ char *what = human_name(field_text(d, "what")),
			    *packet = human_name(field_text(d, "packet"));
	const char *reason = field_text(d, "libipt_error") ? field_text(d, "libipt_error")
							   : field_text(d, "error");
	const char *again = field_text(d, "again_at");

	(void)fprintf(out, "\n  byte 0x%" PRIx64 " of buffer %" PRIu64 ", packet %s: %s",
		      field_number(d, "offset"), field_number(d, "buffer"), packet, what);
	if (reason) {
		_cleanup_free_ char *text = human_name(reason);

		(void)fprintf(out, " (%s)", text);
	}
	(void)fputc('\n', out);
	if (field_text(d, "address"))
		(void)fprintf(out, "    tracerd is at %s\n", field_text(d, "address"));
	if (field_text(d, "libipt_address"))
		(void)fprintf(out, "    libipt is at %s, and has read up to byte 0x%" PRIx64 "\n",
			      field_text(d, "libipt_address"), field_number(d, "libipt_offset"));
	if (again)
		(void)fprintf(out, "    both are at %s again\n", again);
	else
		(void)fputs("    they do not meet again before the next block\n", out);
}

void report_print_verify(FILE *out, struct json_object *result)
{
	struct json_object *v = field(field(result, "stats"), "verify");
	const uint64_t all = field_number(v, "instructions"),
		       compared = field_number(v, "instructions_compared"),
		       differ = field_number(v, "blocks_that_differ");
	_cleanup_free_ char *version = human_name(field_text(v, "libipt"));
	const size_t n = field_count(v, "differences");

	(void)fprintf(out, "second opinion of libipt %s\n", version);
	(void)fprintf(out, "  %-36s %15" PRIu64 "\n", "blocks", field_number(v, "blocks"));
	(void)fprintf(out, "  %-36s %15" PRIu64 "\n", "instructions", all);
	(void)fprintf(out, "  %-36s %15" PRIu64, "of these compared", compared);
	if (all)
		(void)fprintf(out, "   %.2f %%", 100.0 * (double)compared / (double)all);
	(void)fprintf(out, "\n  %-36s %15" PRIu64 "\n", "blocks in which libipt lost the rest",
		      field_number(v, "blocks_in_part"));
	(void)fprintf(out, "  %-36s %15" PRIu64 "\n", "times that both lost the way",
		      field_number(v, "both_stop"));
	(void)fprintf(out, "  %-36s %15" PRIu64 "\n", "blocks that differ", differ);
	for (size_t i = 0; i < n; i++)
		print_difference(out, field_at(v, "differences", i));
	if (differ > n)
		(void)fprintf(out, "\n  and %" PRIu64 " more\n", differ - n);
}
