// SPDX-License-Identifier: Apache-2.0
/*
 * Writes the corpus of fuzz-ringfile: small copies of rings, some whole, some as a crash leaves
 * them.
 *
 *	ringfile-gen FOLDER
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "common/base/io.h"
#include "tests/unit/decode/rings/ringfile-make.h"

#define T0 UINT64_C(8000000000)

static uint64_t now;

static uint64_t tick(uint64_t rate)
{
	now += 1000000;
	return now * rate;
}

/* Every kind of record and of field. */
static void all_kinds(struct ringmake *m)
{
	struct ringmake_payload p = {0};
	uint64_t begun, task = tick(1);

	ringmake_thread(m, 0, tick(1), 1001, "main");
	ringmake_record(m, 0, RING_TASK_BEGIN, task, ringmake_name(m, "job"), 7, 3, NULL);
	ringmake_u64(&p, ringmake_name(m, "size"), 4096);
	ringmake_i64(&p, ringmake_name(m, "left"), -1);
	ringmake_f64(&p, ringmake_name(m, "ratio"), 0.25);
	ringmake_text(&p, ringmake_name(m, "path"), "/srv/\x1b[0m\xff");
	ringmake_field(&p, 0, RING_FIELD_TEXT_CUT, "begin", 5);
	ringmake_field(&p, 0, RING_FIELD_POINTER, &(uint64_t){0xdead}, 8);
	ringmake_field(&p, 0, RING_FIELD_NAME, &(uint32_t){1}, 4);
	begun = tick(1);
	ringmake_record(m, 0, RING_REGION_BEGIN, begun, ringmake_name(m, "serve"), 0, 7, &p);
	p.n = 0;
	ringmake_text(&p, 0, "bob");
	ringmake_i64(&p, 0, 8);
	ringmake_i64(&p, 0, 3);
	ringmake_f64(&p, 0, 3.14159);
	ringmake_record(m, 0, RING_LOG, tick(1), ringmake_name(m, "%-5s has %*.*f of %p%%"),
			RING_INFO, 7, &p);
	ringmake_record(m, 0, RING_COUNTER | RING_FLAG_F64, tick(1), ringmake_name(m, "load"),
			0x3ff8000000000000, 0, NULL);
	ringmake_record(m, 0, RING_FLOW, tick(1), ringmake_name(m, "hand"), 9, RING_FLOW_BEGIN,
			NULL);
	ringmake_fiber(m, 0, tick(1), 5, "fiber");
	ringmake_record(m, 0, RING_INSTANT, tick(1), ringmake_name(m, "ping"), 0, 0, NULL);
	ringmake_fiber(m, 0, tick(1), 0, NULL);
	ringmake_record(m, 0, RING_TRIGGER, tick(1), ringmake_name(m, "serve"), begun, 1, NULL);
	ringmake_end(m, 0, tick(1), "serve", begun);
	ringmake_thread(m, 1, tick(1), 1002, NULL);
	ringmake_record(m, 1, RING_THREAD_NAME, tick(1), ringmake_name(m, "worker"), 0, 0, NULL);
	ringmake_record(m, 1, RING_TASK_END, tick(1), ringmake_name(m, "job"), 7, task, NULL);
	ringmake_record(m, 1, RING_TASK_END, tick(1), ringmake_name(m, "older"), 6, T0 - 500, NULL);
}

/* Rings that went round, with the TSC, in a pid namespace, while the program was writing. */
static void wrapped(struct ringmake *m)
{
	ringmake_thread(m, 0, tick(3), 7, "main");
	ringmake_thread(m, 1, tick(3), 8, "other");
	for (size_t i = 0; i < 70; i++) {
		uint32_t ring = i % 3 == 0;
		uint64_t outer = tick(3), inner = tick(3);

		ringmake_begin(m, ring, outer, "outer");
		ringmake_fiber(m, ring, tick(3), 1 + i % 2, "fiber");
		ringmake_begin(m, ring, inner, "inner");
		ringmake_end(m, ring, tick(3), "inner", inner);
		ringmake_fiber(m, ring, tick(3), 0, NULL);
		ringmake_end(m, ring, tick(3), "outer", outer);
	}
	ringmake_ring(m, 0)->host_tid = 4007;
	ringmake_ring(m, 1)->head_after += 5;
}

/* Slots that were not finished, that make no sense, regions that cross. */
static void damaged(struct ringmake *m)
{
	uint64_t a = tick(1), b = tick(1), at;

	all_kinds(m);
	ringmake_begin(m, 1, a, "a");
	ringmake_begin(m, 1, b, "b");
	ringmake_end(m, 1, tick(1), "a", a);
	ringmake_end(m, 1, tick(1), "b", b);
	at = ringmake_record(m, 1, RING_INSTANT, tick(1), 200, 0, 0, NULL);
	ringmake_slot(m, 1, at)->kind |= 3 << RING_SPAN_SHIFT;
	at = ringmake_end(m, 1, tick(1), "a", T0 - 1);
	ringmake_slot(m, 1, at)->stamp = UINT64_MAX;
	ringmake_tear(m, 1, at - 2);
	ringmake_entry(m, 0)->name = 4000;
}

static int write_file(const char *folder, const char *name, const struct ringmake_options *o,
	void (*write)(struct ringmake *))
{
	_cleanup_(ringmake_freep) struct ringmake *m = ringmake_new(o);
	_cleanup_free_ uint8_t *data = NULL;
	_cleanup_close_ int fd = -1;
	char path[4096];
	size_t len;

	if (!m || snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
		return -1;
	now = T0;
	write(m);
	data = ringmake_bytes(m, &len);
	fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	return !data || fd < 0 ? -1 : io_write_all(fd, data, len);
}

int main(int argc, char **argv)
{
	const struct ringmake_options plain = {.slots = 128};
	const struct ringmake_options other = {.pid = 4000,
					       .nspid = 7,
					       .clock = RING_CLOCK_TSC,
					       .start_time = 100};

	if (argc != 2) {
		(void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
		return 2;
	}
	if (write_file(argv[1], "kinds", &plain, all_kinds) < 0 ||
	    write_file(argv[1], "wrapped", &other, wrapped) < 0 ||
	    write_file(argv[1], "damaged", &plain, damaged) < 0) {
		perror(argv[1]);
		return 1;
	}
	return 0;
}
