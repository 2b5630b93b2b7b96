// SPDX-License-Identifier: Apache-2.0
/*
 * The back end for targets that a tracerd-step records. The user starts the stepper, and the
 * request to arm brings its connection. tracerd itself traces nothing and starts nothing: it
 * requests copies, and when it closes the connection the program runs on freely. The daemon's own
 * history of the target says which processes belong to it, which files they map, and when recording
 * must end.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/control/json.h"
#include "daemon/backend/frozen.h"
#include "daemon/backend/step/channel.h"
#include "daemon/backend/step/freeze_reply.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"
#include "daemon/target/target_internal.h"

#define MIB (1024ull * 1024)
#define STEPPER_FDS 5 /* the connection; a last answer of three files */

/* target->recording */
struct stepper {
	struct target *target; /* back pointer */
	int fd;		       /* that came with the request, until arm(); -1 */
	bool armed;
	struct step_channel *channel; /* NULL: not armed, or closed, see `why` */
	struct freeze_reply *last;     /* what there was when recording had to end */
	struct stepabi_stats stats;  /* of a channel that is closed */
	struct quota_charge charge;
	char why[160];
};

/* frozen->recording */
struct frozen_step {
	struct freeze_reply *answer; /* referenced until resume; NULL: none was asked for */
	struct event *wait;	   /* for the answer */
	struct stepabi_stats stats;
	uint64_t raw_ns; /* until when it records; 0: it did not come */
};

static struct stepper *stepper_of(const struct target *target)
{
	return target->recording;
}

static struct frozen_step *step_of(const struct frozen *frozen)
{
	return frozen->recording;
}

static const struct stepabi_stats *stats_of(const struct stepper *s)
{
	return s->channel ? step_channel_stats(s->channel) : &s->stats;
}

static bool stepper_probe(const struct targets *targets, const char **ret_method, char *why,
			  size_t why_size)
{
#ifdef __x86_64__
	*ret_method = "ptrace";
	(void)snprintf(why, why_size, "by a tracerd-step that the client starts");
	return true;
#else
	*ret_method = "none";
	(void)snprintf(why, why_size, "only programs of x86-64 can be stepped");
	return false;
#endif
}

/* ---- the connection */

static void close_channel(struct stepper *s, const char *why)
{
	s->stats = *step_channel_stats(s->channel);
	s->channel = step_channel_free(s->channel);
	(void)snprintf(s->why, sizeof(s->why), "%s", why);
}

static const char *end_name(uint32_t end)
{
	switch (end) {
	case STEP_END_EXITED:
		return "everything has ended";
	case STEP_END_ASKED:
		return "it was asked to";
	case STEP_END_INSNS:
	case STEP_END_SECONDS:
	case STEP_END_BYTES:
		return "a limit is reached";
	case STEP_END_LIMIT:
		return "there is more than it can record";
	default:
		return "an error";
	}
}

static void on_stats(void *arg)
{
	struct stepper *s = arg;
	const struct stepabi_stats *stats = step_channel_stats(s->channel);
	char why[120];

	/* The pidfd reports a program that has ended by itself. */
	if (!stats->ended || stats->ended == STEP_END_EXITED || s->target->state != TARGET_ARMED)
		return;
	(void)snprintf(why, sizeof(why), "it is not stepped any more: %s%s%s",
		       end_name(stats->ended), stats->error ? ": " : "",
		       stats->error ? strerror(-stats->error) : "");
	target_suspend(s->target, clock_raw_ns(), why);
}

static void on_ended(void *arg, const char *why)
{
	struct stepper *s = arg;

	close_channel(s, why);
	if (s->target->state == TARGET_ARMED)
		target_suspend(s->target, clock_raw_ns(), why);
	else
		target_emit(s->target, NULL);
}

static int stepper_init(struct target *target, const struct target_request *req, char *why,
			size_t why_size)
{
	struct stepper *s;

	if (req->step_fd < 0)
		return refusal(
			why, why_size, TARGET_E_BAD,
			"back end step: the connection of a stepper (descriptor \"step\") is missing");
	if (req->scope != TARGET_PROCESS)
		return refusal(
			why, why_size, TARGET_E_BAD,
			"only a process can be stepped, with all its threads and what it starts");
	/* What a stepper records has no samples, and so neither stacks nor waits of its own. */
	target->stacks_asked = target->stacks = STACKS_FP;
	target->waits = false;
	s = calloc(1, sizeof(*s));
	if (!s)
		return -ENOMEM;
	target->recording = s;
	s->target = target;
	s->fd = fcntl(req->step_fd, F_DUPFD_CLOEXEC, 3);
	return s->fd >= 0 ? 0
			  : refusal(why, why_size, TARGET_E_BUSY,
				    "tracerd is out of file descriptors");
}

static int charge(struct target *target, char *why, size_t why_size)
{
	int r;

	r = quota_charge(target->targets->quota, target->owner, QUOTA_STEPPERS, 1,
			 &stepper_of(target)->charge);
	if (r > 0)
		return refusal(why, why_size, TARGET_E_QUOTA,
			       "this user may step no more targets (uid_steppers)");
	if (r < 0)
		return r;
	r = target_charge_fds(target, STEPPER_FDS);
	return r > 0 ? refusal(why, why_size, TARGET_E_QUOTA,
			       "this user's targets may use no more descriptors (uid_fds)")
		     : r;
}

static int stepper_arm(struct target *target, struct backend_job **job, char *why, size_t why_size)
{
	struct stepper *s = stepper_of(target);
	struct step_channel_callbacks callbacks = {.stats = on_stats, .ended = on_ended, .arg = s};
	const char *method;
	int r;

	if (!stepper_probe(target->targets, &method, why, why_size))
		return TARGET_E_UNSUPPORTED;
	r = charge(target, why, why_size);
	if (r != 0)
		return r;
	r = step_channel_new(target->targets->base, s->fd, &callbacks, &s->channel, why, why_size);
	if (r != 0)
		return r == STEP_CHANNEL_E_BAD ? TARGET_E_BAD : r;
	s->fd = close_fd(s->fd);
	s->armed = true;
	return 0;
}

static void stepper_moved(struct target *target)
{
	stepper_of(target)->target = target;
}

static int ask(const struct target *target, struct freeze_reply **ret)
{
	int fd = -1, r;

	r = step_channel_freeze(stepper_of(target)->channel,
				target->targets->config->max_output_mib * MIB, &fd);
	return r < 0 ? r : freeze_reply_new(fd, ret);
}

/*
 * When the program ends, the stepper keeps its recording for later requests. A program that may not
 * be recorded any more must run on freely now: request what there is, then close the connection.
 */
static void stepper_stop(struct target *target)
{
	struct stepper *s = stepper_of(target);
	int r;

	if (!s->channel || target->state != TARGET_SUSPENDED ||
	    step_channel_stats(s->channel)->ended)
		return;
	r = ask(target, &s->last);
	if (r < 0)
		log_debug("%s: its stepper does not take requests: %s", target->name, strerror(-r));
	close_channel(s, "the recording was ended when the target was suspended");
}

static void stepper_disarm(struct target *target)
{
	struct stepper *s = stepper_of(target);

	if (!s)
		return;
	(void)step_channel_free(s->channel);
	(void)freeze_reply_unref(s->last);
	(void)close_fd(s->fd);
	quota_release(&s->charge);
	free(s);
	target->recording = NULL;
}

/* ---- snapshots */

static void on_answer(evutil_socket_t fd, short what, void *arg)
{
	struct frozen *frozen = arg;

	frozen->pending = false;
	frozen_go_on(frozen);
}

static void lacks(struct frozen *frozen, const char *code, const char *why)
{
	frozen->missing = code;
	(void)snprintf(frozen->missing_why, sizeof(frozen->missing_why), "%s", why);
}

static int await(const struct target *target, struct frozen *frozen)
{
	struct frozen_step *step = step_of(frozen);
	const struct timeval limit = {.tv_sec = target->targets->config->step_freeze_s};

	if (freeze_reply_is_complete(step->answer))
		return 0;
	step->wait = event_new(target->targets->base, freeze_reply_fd(step->answer), EV_READ,
			       on_answer, frozen);
	if (!step->wait || event_add(step->wait, &limit) < 0)
		return -ENOMEM;
	frozen->pending = true;
	return 0;
}

static int stepper_freeze(struct target *target, struct frozen *frozen)
{
	struct frozen_step *step = calloc(1, sizeof(*step));
	struct stepper *s = stepper_of(target);
	int r = 0;

	if (!step)
		return -ENOMEM;
	frozen->recording = step;
	frozen->method = "ptrace";
	step->stats = *stats_of(s);
	if (s->last)
		step->answer = freeze_reply_ref(s->last);
	else if (s->channel)
		r = ask(target, &step->answer);
	else
		lacks(frozen, "gone", s->why);
	if (r == -ENOMEM)
		return r;
	if (r == -EAGAIN)
		lacks(frozen, "timeout", "the stepper has not read the earlier requests");
	else if (r < 0)
		lacks(frozen, "gone", "the stepper has ended");
	return step->answer ? await(target, frozen) : 0;
}

static int stepper_import(struct frozen *frozen, int dir_fd, uint64_t max_bytes,
			  const atomic_bool *cancel, uint64_t *ret_bytes)
{
	struct frozen_step *step = step_of(frozen);
	uint32_t files = STEPABI_FILE_PERFDATA | STEPABI_FILE_CODE;
	int r;

	if (!step->answer)
		return CAPTURE_E_NONE;
	/* The kernel has one vDSO for all processes, and ours is known to be intact. */
	if (frozen->vdso_fd < 0)
		files |= STEPABI_FILE_VDSO;
	r = freeze_reply_copy(step->answer, dir_fd, files, max_bytes, cancel, ret_bytes);
	if (r < 0)
		return r;
	if (r > 0) {
		lacks(frozen, freeze_reply_code(step->answer), freeze_reply_why(step->answer));
		return CAPTURE_E_NONE;
	}
	step->stats = freeze_reply_frozen(step->answer)->stats;
	step->raw_ns = frozen->until_ns = freeze_reply_frozen(step->answer)->raw_ns;
	return 0;
}

static void stepper_resume(struct frozen *frozen)
{
	struct frozen_step *step = step_of(frozen);
	uint64_t oldest = step->stats.oldest_raw_ns;

	if (step->wait)
		event_free(step->wait);
	step->wait = NULL;
	frozen->pending = false;
	step->answer = freeze_reply_unref(step->answer);
	if (oldest > frozen->raw_ns || frozen->missing)
		oldest = frozen->raw_ns;
	if (oldest > frozen->oldest_ns)
		frozen->oldest_ns = oldest;
}

static void stepper_free_frozen(struct frozen *frozen)
{
	free(frozen->recording);
}

/* ---- reporting */

static size_t stepper_fds(const struct target *target)
{
	const struct stepper *s = stepper_of(target);

	return s && s->armed ? STEPPER_FDS : 0;
}

static void stepper_backend_stats(const struct target *target, struct backend_stats *ret)
{
	const struct stepabi_stats *stats = stats_of(stepper_of(target));
	const uint64_t end = target->ended_ns ? target->ended_ns : clock_raw_ns();

	*ret = (struct backend_stats){.method = "ptrace", .ring_bytes = stats->bytes};
	if (stats->oldest_raw_ns && stats->oldest_raw_ns < end)
		ret->lookback_ns = end - (stats->oldest_raw_ns > target->armed_ns
						  ? stats->oldest_raw_ns
						  : target->armed_ns);
}

static void add_numbers(struct json_object *o, const struct stepabi_stats *stats)
{
	json_add_uint(o, "threads", stats->threads);
	json_add_uint(o, "insns", stats->insns);
	json_add_uint(o, "syscalls", stats->syscalls);
	json_add_uint(o, "signals", stats->signals);
	json_add_uint(o, "threads_all", stats->threads_all);
	json_add_uint(o, "processes_all", stats->processes_all);
	json_add_uint(o, "bytes", stats->bytes);
	json_add_uint(o, "max_bytes", stats->max_bytes);
	json_add_uint(o, "overwritten_bytes", stats->overwritten);
	if (stats->error)
		json_add_string(o, "error", strerror(-stats->error));
	else
		json_add_null(o, "error");
}

static void add_losses(struct json_object *o, const struct stepabi_stats *stats, const char *prefix)
{
	char key[32];

	(void)snprintf(key, sizeof(key), "%sunexpected_jumps", prefix);
	json_add_uint(o, key, stats->unexpected_jumps);
	(void)snprintf(key, sizeof(key), "%sthreads_not_recorded", prefix);
	json_add_uint(o, key, stats->threads_not_recorded);
	(void)snprintf(key, sizeof(key), "%sstacks_not_written", prefix);
	json_add_uint(o, key, stats->stacks_not_written);
}

static struct json_object *stepper_describe(const struct target *target)
{
	const struct stepper *s = stepper_of(target);
	struct json_object *step;

	step = json_object_new_object();
	json_add_string(step, "state",
			!s->channel          ? "gone"
			: stats_of(s)->ended ? "ended"
					     : "stepping");
	add_numbers(step, stats_of(s));
	add_losses(json_add_new_object(step, "lost"), stats_of(s), "");
	return step;
}

/* One gap, as long as the target was armed. */
static void add_gap(const struct frozen *frozen, struct json_object *gaps)
{
	struct json_object *o = json_object_new_object();
	char kind[sizeof(frozen->missing_why) + 16];

	(void)snprintf(kind, sizeof(kind), "not recorded: %s", frozen->missing_why);
	json_add_string(o, "kind", kind);
	json_add_uint(o, "from_ns", frozen->armed_ns);
	json_add_uint(o, "to_ns", frozen->raw_ns);
	json_append(gaps, o);
}

static void stepper_meta(const struct frozen *frozen, struct json_object *events,
			 struct json_object *losses, struct json_object *gaps)
{
	const struct frozen_step *step = step_of(frozen);
	struct json_object *o = json_add_new_object(events, "step");

	json_add_bool(o, "recorded", !frozen->missing);
	json_add_uint(o, "until_ns", step->raw_ns);
	add_numbers(o, &step->stats);
	if (!losses)
		return;
	add_losses(losses, &step->stats, "step_");
	json_add_uint(losses, "step_missing", frozen->missing ? 1 : 0);
	if (frozen->missing)
		add_gap(frozen, gaps);
}

const struct backend backend_step = {
	.name = "step",
	.probe = stepper_probe,
	.init = stepper_init,
	.arm = stepper_arm,
	.moved = stepper_moved,
	.stop = stepper_stop,
	.disarm = stepper_disarm,
	.fds = stepper_fds,
	.stats = stepper_backend_stats,
	.describe = stepper_describe,
	.freeze = stepper_freeze,
	.import = stepper_import,
	.resume = stepper_resume,
	.free = stepper_free_frozen,
	.meta = stepper_meta,
};
