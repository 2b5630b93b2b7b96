// SPDX-License-Identifier: Apache-2.0
#include "client/core/step_progress.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/io.h"
#include "common/control/json.h"

#define FIRST_NS 2000000000ULL
/* The caller passes signals on, and must not wait long for a daemon that hangs. */
#define TIMEOUT_MS 1000
#define MAX_TICK_MS 3600000u

void step_progress_init(struct step_progress *p, struct ctl *ctl, struct json_object *target)
{
	const char *id = field_text(target, "id");
	const uint64_t now = io_now_ns();

	*p = (struct step_progress){
		.ctl = ctl, .target = id ? strdup(id) : NULL, .began = now, .next = now + FIRST_NS};
}

void step_progress_fini(struct step_progress *p)
{
	free(p->target);
}

/* If the daemon does not answer, there is nothing to say. */
static void print_line(const struct step_progress *p, uint64_t seconds)
{
	const char *path = p->ctl->socket ? p->ctl->socket : tracerd_default_socket();
	_cleanup_json_ struct json_object *result = NULL;
	_cleanup_(ctl_fini) struct ctl ctl = {0};
	struct json_object *params, *step;
	const char *state;

	if (tracerd_connect(path, TIMEOUT_MS, &ctl.client) != 0)
		return;
	params = json_object_new_object();
	json_add_string(params, "target", p->target);
	if (ctl_call(&ctl, "target.show", params, NULL, 0, TIMEOUT_MS, &result, NULL) != 0)
		return;
	step = field(field(result, "target"), "step");
	state = field_text(step, "state");
	if (state && strcmp(state, "stepping") == 0)
		ctl_note(p->ctl, "still stepping: %" PRIu64 " instructions in %" PRIu64 " s",
			field_number(step, "insns"), seconds);
}

int step_progress_tick(void *arg)
{
	struct step_progress *p = arg;
	uint64_t now = io_now_ns(), ms;

	if (now >= p->next) {
		print_line(p, (now - p->began) / 1000000000);
		p->next = p->began + 2 * (now - p->began);
		now = io_now_ns();
	}
	ms = p->next > now ? (p->next - now) / 1000000 + 1 : 1;
	return (int)(ms < MAX_TICK_MS ? ms : MAX_TICK_MS);
}
