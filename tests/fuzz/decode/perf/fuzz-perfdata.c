// SPDX-License-Identifier: Apache-2.0
/*
 * A recording from a stranger: any bytes as a perf.data, replayed to the end into a trace that
 * nobody keeps.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "common/base/io.h"
#include "common/control/json.h"
#include "decode/object/process_maps.h"
#include "decode/replay/prescan.h"
#include "decode/replay/session.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int ask(
	void *arg, const struct file_request *request, struct file_answer *ret_file, int *ret_fd)
{
	(void)arg, (void)request, (void)ret_file, (void)ret_fd;
	return 0;
}

static void replay(int in, int out)
{
	const struct file_requester files = {.ask = ask};
	const struct writer_options wo = {.max_output_bytes = 1 << 20};
	struct budget budget = {.max = 32u << 20};
	_cleanup_(perfdata_freep) struct perfdata *pd = NULL;
	_cleanup_(images_freep) struct images *images = NULL;
	_cleanup_(process_maps_freep) struct process_maps *maps = NULL;
	_cleanup_(stacktab_freep) struct stacktab *st = NULL;
	_cleanup_(writer_freep) struct writer *w = NULL;
	_cleanup_(timeline_freep) struct timeline *tl = NULL;
	_cleanup_(session_freep) struct session *s = NULL;
	_cleanup_json_ struct json_object *summary = NULL, *stats = json_object_new_object();
	_cleanup_(prescan_fini) struct prescan prescan = {0};
	struct timeline_options to = {0};
	struct session_options so = {.symbols = true};

	if (perfdata_open(in, &budget, &pd) != 0 || perfdata_scan(pd, NULL, NULL) != 0)
		return;
	if (prescan_run(&(struct prescan_options){.pd = pd, .complete_from = true}, &prescan) < 0)
		return;
	to.period_ns = prescan.period_ns;
	to.complete_from_ns = prescan.complete_from_ns;
	to.switches = session_has_switches(pd);
	(void)session_clock(pd);
	if (stacktab_new(4 << 20, &st) < 0 || images_new(&files, &budget, &images) < 0 ||
	    process_maps_new(images, &budget, false, &maps) < 0 ||
	    text_writer_new(out, &wo, &w) < 0 || timeline_new(&to, st, w, &tl) < 0)
		abort();
	so.pd = pd;
	so.prescan = &prescan;
	so.images = images;
	so.maps = maps;
	so.st = st;
	so.tl = tl;
	so.files = &files;
	so.budget = &budget;
	if (session_new(&so, &s) < 0)
		abort();
	if (session_run(s) == 0 && timeline_finish(tl, &summary) == 0)
		session_report(s, stats, stats);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int in = -1, out = -1;

	if (in < 0)
		in = io_memfd("fuzz-perfdata");
	if (out < 0)
		out = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (in < 0 || out < 0 || ftruncate(in, 0) < 0 || io_pwrite_all(in, data, size, 0) < 0)
		abort();
	replay(in, out);
	return 0;
}
