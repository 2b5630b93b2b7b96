// SPDX-License-Identifier: Apache-2.0
/*
 * The back end for machines with Intel PT: the processor writes each branch of the target's threads into a ring of memory,
 * and nothing is read before a snapshot. What is opened daemon/backend/pt/choice.c finds out, daemon/backend/pt/events.c has
 * it, and daemon/backend/pt/export.c writes it to the bundle. Whose events a target may share is daemon/backend/pt/sharing.c's.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "common/base/raw_clock.h"
#include "common/bundle/clocks.h"
#include "common/bundle/perfabi.h"
#include "common/control/json.h"
#include "daemon/backend/pt/choice.h"
#include "daemon/backend/pt/export.h"
#include "daemon/backend/pt/newcomers.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/backend/pt/resume.h"
#include "daemon/backend/pt/sharing.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"

#define KIB 1024ull
#define MIB (1024ull * 1024)
#define AUX_MIN (16 * KIB) /* smaller rings hold less than two synchronisation points */

/* ---- the machine */

/* Whether an event of the PMU can be opened at all, on our own thread. */
static int try_open(const struct pt_machine *machine, char *lacks, size_t size)
{
	const struct pt_attr_spec spec = {.timing = PT_TIMING_LOW};
	struct perf_event_attr attr;
	int fd, r;

	r = pt_attr_fill(&machine->pmu, &spec, &attr, lacks, size);
	if (r < 0)
		return r;
	fd = perfabi_open(&attr, 0, -1, -1, 0);
	if (fd < 0)
		return -errno;
	(void)close_fd(fd);
	return 0;
}

static bool can_pause(const struct pt_machine *machine)
{
	const struct pt_attr_spec spec = {.timing = PT_TIMING_LOW};
	struct perf_event_attr trace, member;
	_cleanup_close_ int leader = -1, fd = -1;
	char lacks[200];

	if (pt_attr_fill(&machine->pmu, &spec, &trace, lacks, sizeof(lacks)) < 0)
		return false;
	leader = perfabi_open(&trace, 0, -1, -1, 0);
	if (leader < 0)
		return errno == EBUSY; /* it is found out when it is asked for */
	pt_attr_sideband(&spec, 0, &member);
	member.write_backward = member.context_switch = 0;
	perfabi_set_aux_action(&member, PERFABI_AUX_PAUSE);
	fd = perfabi_open(&member, 0, -1, leader, 0);
	return fd >= 0;
}

static bool counts_losses(void)
{
	const struct pt_attr_spec spec = {0};
	struct perf_event_attr attr;
	int fd;

	pt_attr_sideband(&spec, PERFABI_FORMAT_LOST, &attr);
	fd = perfabi_open(&attr, 0, -1, -1, 0);
	(void)close_fd(fd);
	return fd >= 0;
}

static void find_out(struct pt_machine *machine)
{
	char *why = machine->why;
	const size_t size = sizeof(machine->why);
	char lacks[200];
	int r;

	r = pt_pmu_read(PT_PMU_PATH, &machine->pmu, why, size);
	if (r == -ENOENT)
		(void)snprintf(why, size, "this machine has no " PT_PMU_NAME " PMU");
	if (r < 0)
		return;
	if (!clocks_tsc_is_source()) {
		(void)snprintf(why, size, "the kernel does not trust the TSC, which the trace's times are of");
		return;
	}
	r = try_open(machine, lacks, sizeof(lacks));
	/* Somebody traces CPUs now, perhaps not later. */
	if (r < 0 && r != -EBUSY) {
		(void)snprintf(why, size, "its events cannot be opened: %s", strerror(-r));
		return;
	}
	machine->available = true;
	machine->can_pause = can_pause(machine);
	machine->read_format = counts_losses() ? PERFABI_FORMAT_LOST : 0;
	(void)snprintf(why, size, "the processor records each branch (Intel PT)");
}

/* The log of what processes map and start misses these CPUs, too. */
static void on_newcomers(void *arg, uint64_t since_ns)
{
	struct targets *targets = arg;
	struct target *target;

	TAILQ_FOREACH(target, &targets->list, link) {
		struct pt_recording *rec = pt_recording_of(target);

		if (!rec || !rec->events || rec->misses || newcomers_count(pt_machine_of(targets)->newcomers, rec->events) == 0)
			continue;
		rec->misses = true;
		target_warn(target, "a CPU has come online since it was armed, and what runs there is not traced: arm it again");
	}
	targets_cpus_changed(targets, since_ns);
}

static int pt_open(struct targets *targets, void **ret)
{
	struct pt_machine *machine = calloc(1, sizeof(*machine));
	int r;

	if (!machine)
		return -ENOMEM;
	find_out(machine);
	r = machine->available ? stopper_new(targets->base, &machine->stopper) : 0;
	if (r == 0 && machine->available)
		r = newcomers_new(targets->base, on_newcomers, targets, &machine->newcomers);
	if (r < 0) {
		(void)stopper_free(machine->stopper);
		free(machine);
		return r;
	}
	*ret = machine;
	return 0;
}

static void pt_close(void *data)
{
	struct pt_machine *machine = data;

	(void)newcomers_free(machine->newcomers);
	(void)stopper_free(machine->stopper);
	free(machine);
}

static bool pt_probe(const struct targets *targets, const char **ret_method, char *why, size_t why_size)
{
	const struct pt_machine *machine = pt_machine_of(targets);

	*ret_method = machine->available ? "task" : "none";
	(void)snprintf(why, why_size, "%s", machine->why);
	return machine->available;
}

static void pt_losses(const struct targets *targets, struct json_object *losses)
{
	const struct pt_machine *machine = pt_machine_of(targets);
	uint64_t blind_ns = machine->gone_blind_ns, missed = 0;
	const struct target *target;

	TAILQ_FOREACH(target, &targets->list, link) {
		const struct pt_recording *rec = pt_recording_of(target);

		if (!rec || !rec->events || rec->shares)
			continue;
		blind_ns += pt_events_blind_ns(rec->events);
		missed += newcomers_count(machine->newcomers, rec->events);
	}
	json_add_uint(losses, "pt_blind_ns", blind_ns);
	json_add_uint(losses, "pt_cpus_not_traced", missed);
}

/* ---- arming */

static const char *method_of(const struct target *target)
{
	return target->scope == TARGET_HOST ? "cpu" : "task";
}

/* Sampling's programs report switches and wake-ups of all targets at once. Without them that would cost events on each thread. */
static bool records_waits(const struct targets *targets)
{
	const char *method;
	char why[200];

	return backend_sample.probe(targets, &method, why, sizeof(why)) && strcmp(method, "cpu") == 0;
}

static int init_filter(struct pt_recording *rec, const struct pt_machine *machine, const struct target_request *req, char *why,
		       size_t size)
{
	int r;

	if (target_scope_is_group(req->scope))
		return refusal(why, size, TARGET_E_BAD, "address filters are of a process or a thread");
	if (req->n_filters > machine->pmu.filters)
		return refusal(why, size, TARGET_E_UNSUPPORTED, "this processor has %u address filters, not %zu",
			      (unsigned int)machine->pmu.filters, req->n_filters);
	r = pt_filter_new(req->filters, req->n_filters, rec->target->targets->closer, &rec->filter);
	return r == -EINVAL ? refusal(why, size, TARGET_E_BAD, "filters: not MAJOR:MINOR:INODE:OFFSET:SIZE:NAME") : r;
}

static int pt_init(struct target *target, const struct target_request *req, char *why, size_t why_size)
{
	const struct pt_machine *machine = pt_machine_of(target->targets);
	const struct config *config = target->targets->config;
	struct target_request own = *req;
	struct pt_recording *rec;

	if (req->step_fd >= 0)
		return refusal(why, why_size, TARGET_E_BAD, "the descriptor \"step\" is for the back end step");
	if (!machine->available)
		return refusal(why, why_size, TARGET_E_UNSUPPORTED, "%s: record it by --backend sample", machine->why);
	rec = calloc(1, sizeof(*rec));
	if (!rec)
		return -ENOMEM;
	rec->timing = pt_timing_find(req->pt_timing ? req->pt_timing : config->pt_timing);
	if (req->pt_ring_bytes & (req->pt_ring_bytes - 1)) {
		free(rec);
		return refusal(why, why_size, TARGET_E_BAD, "pt_ring_kib: not a power of two");
	}
	rec->ring_asked = req->pt_ring_bytes > 0;
	rec->timing_asked = req->pt_timing != NULL;
	rec->aux_bytes = rec->ring_asked ? req->pt_ring_bytes : config->pt_ring_kib * KIB;
	rec->target = target;
	target->recording = rec;
	/* Samples know no filter. */
	rec->automatic = (!req->backend || strcmp(req->backend, "auto") == 0) && req->n_filters == 0;
	if (req->n_filters) {
		int r = init_filter(rec, machine, req, why, why_size);

		if (r != 0)
			return r;
	}
	rec->waits_asked = req->waits;
	rec->stacks_asked = req->stacks;
	/* The trace itself says where a thread waits: what its stack is copied for costs more than the trace. */
	if (req->stacks == STACKS_AUTO)
		own.stacks = target->stacks_asked = target->stacks = STACKS_FP;
	if (records_waits(target->targets))
		return backend_sample.init(target, &own, why, why_size);
	/* The trace has switches, but no wake-ups. */
	target->waits = false;
	return 0;
}

static void pt_moved(struct target *target)
{
	pt_recording_of(target)->target = target;
	if (target->beside)
		backend_sample.moved(target);
}

/* What other users run is not for an ordinary one to know. */
static int refuse_busy(const struct target *target, const struct pt_choice *choice, char *why, size_t size)
{
	if (!target->owner_admin)
		return refusal(why, size, TARGET_E_BUSY,
			      "somebody else uses the PMU for it or for the whole machine: record it by --backend sample, or ask an "
			      "administrator, who is told which processes may hold it");
	return refusal(why, size, TARGET_E_BUSY,
		      "somebody else uses the PMU for it or for the whole machine%s%s: end that, or record it by --backend sample",
		      choice->holders[0] ? "; perf events have: " : "", choice->holders);
}

static int opening_refused(int r, const struct target *target, const struct pt_choice *choice, char *why, size_t size)
{
	if (r > 0)
		return refusal(why, size, r, "%s", choice->why);
	switch (r) {
	case -ERANGE:
		return refusal(why, size, TARGET_E_UNSUPPORTED, "the kernel refuses the address filter");
	case -ESRCH:
		return refusal(why, size, TARGET_E_GONE, "the process has ended");
	case -EBUSY:
		return refuse_busy(target, choice, why, size);
	case -EACCES:
	case -EPERM:
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			      "the kernel does not permit PT on it (%s): tracerd needs CAP_PERFMON", strerror(-r));
	case -EMFILE:
	case -ENFILE:
		return refusal(why, size, TARGET_E_BUSY, "tracerd is out of file descriptors (LimitNOFILE=)");
	case -EAGAIN:
		return refusal(why, size, TARGET_E_BUSY, "a CPU or a thread came or went meanwhile: arm it again");
	case -ENOBUFS:
		return refusal(why, size, TARGET_E_BUSY, "no locked memory is left for its rings (CAP_IPC_LOCK, LimitMEMLOCK=)");
	default:
		return refusal(why, size, r, "perf events of " PT_PMU_NAME ": %s", strerror(-r));
	}
}

/* All that would be refused later is refused now: 0, TARGET_E_*, -errno. */
static int check_budget_of(struct target *target, struct pt_choice *choice, char *why, size_t size)
{
	struct pt_recording *rec = pt_recording_of(target);
	struct pt_budget *b = &choice->budget;
	struct quota_charge charge = {0};
	int r;

	b->aux_bytes = rec->aux_bytes;
	b->aux_min = AUX_MIN;
	b->total_bytes = target->targets->config->pt_total_mib * MIB;
	if (choice->grows) {
		if (b->threads == 0)
			return 0;
		b->aux_min = b->aux_bytes; /* the rings are there */
		b->total_bytes = b->locked_left = UINT64_MAX;
	}
	if (pt_budget_fit(b, why, size) != PT_BUDGET_FITS)
		return TARGET_E_BUSY;
	r = target_charge_fds(target, pt_budget_fds(b));
	if (r > 0)
		return refusal(why, size, TARGET_E_QUOTA,
			      "%llu threads on %llu CPUs need %llu descriptors, more than uid %u has left (uid_fds): record it by "
			      "--backend sample, or one thread by --tid",
			      (unsigned long long)b->threads, (unsigned long long)b->cpus,
			      (unsigned long long)pt_budget_fds(b), (unsigned int)target->owner);
	if (r < 0 || choice->grows)
		return r;
	r = quota_charge(target->targets->quota, target->owner, QUOTA_RING_BYTES, pt_budget_bytes(b), &charge);
	if (r > 0)
		return refusal(why, size, TARGET_E_QUOTA,
			      "%llu KiB of rings are more than uid %u has left (uid_ring_mib): make pt_ring_kib smaller, or record "
			      "it by --backend sample",
			      (unsigned long long)(pt_budget_bytes(b) / KIB), (unsigned int)target->owner);
	if (r < 0)
		return r;
	quota_release(&rec->charge);
	rec->charge = charge;
	return 0;
}

/* CPUs that are offline have events, too, where that makes no ring smaller. */
static int check_budget(struct target *target, struct pt_choice *choice, char *why, size_t size)
{
	struct pt_budget *b = &choice->budget;
	int r = check_budget_of(target, choice, why, size);

	if (choice->grows || b->cpus <= choice->n_online || (r == 0 && b->aux_bytes == pt_recording_of(target)->aux_bytes))
		return r;
	why[0] = '\0';
	b->cpus = choice->n_online;
	choice->to_come = false;
	r = check_budget_of(target, choice, why, size);
	if (r == 0)
		target_warn(target, "for CPUs that are offline now there is no memory, or no descriptors: what runs there later is not traced");
	return r;
}

#define PT_SHARED (-1000001) /* nothing is to be opened: another target's events record it */

static int prepare(struct target *target, struct pt_choice *choice, char *why, size_t size)
{
	const struct pt_machine *machine = pt_machine_of(target->targets);
	struct pt_recording *rec = pt_recording_of(target);
	const struct pt_attr_spec spec = {
		.timing = rec->timing,
		.inherit = target->scope != TARGET_THREAD && target->scope != TARGET_HOST,
		.inherit_processes = target->children,
	};
	const struct target *other = pt_sharing_overlaps(target);
	const struct pt_recording *whole = choice->grows ? NULL : pt_sharing_find(target, why, size);
	char lacks[200];
	int r;

	if (!rec->looks)
		newcomers_use(machine->newcomers);
	rec->looks = true;
	choice->epoch = newcomers_epoch(machine->newcomers);
	if (whole) {
		pt_sharing_begin(target, whole);
		return PT_SHARED;
	}
	if (why[0])
		return TARGET_E_BUSY;
	if (other)
		return pt_sharing_refuse(target, other, why, size);
	r = pt_attr_fill(&machine->pmu, &spec, &choice->attrs[PT_EVENT_TRACE], lacks, sizeof(lacks));
	if (r < 0)
		return refusal(why, size, TARGET_E_UNSUPPORTED, "its PMU cannot trace branches with their time");
	pt_attr_sideband(&spec, machine->read_format, &choice->attrs[PT_EVENT_SIDE]);
	r = check_budget(target, choice, why, size);
	if (r != 0)
		return r;
	if (lacks[0] && !choice->grows)
		target_warn(target, "pt_timing=%s: this processor has %s", pt_timing_name(rec->timing), lacks);
	return 0;
}

static void take(struct target *target, struct pt_choice *choice)
{
	struct pt_recording *rec = pt_recording_of(target);

	if (choice->grows) {
		/* Threads that were opened cost their owner, too. */
		(void)!target_charge_fds(target, 0);
		return;
	}
	rec->events = take_ptr(choice->events);
	rec->events->epoch = choice->epoch;
	pt_events_use(rec->events);
	rec->uses = true;
	if (choice->budget.aux_bytes < rec->aux_bytes)
		target_warn(target, "%llu KiB of trace a CPU instead of %llu: the limits of memory (pt_total_mib, CAP_IPC_LOCK, "
				    "LimitMEMLOCK=)",
			    (unsigned long long)(choice->budget.aux_bytes / KIB), (unsigned long long)(rec->aux_bytes / KIB));
	rec->aux_bytes = choice->budget.aux_bytes;
	quota_resize(&rec->charge, pt_events_bytes(rec->events));
	(void)!target_charge_fds(target, 0);
}

/* Waits that cannot be had are left out: the trace is what was asked for. */
static int arm_waits(struct target *target, struct pt_choice *choice)
{
	char why[200] = "";
	int r;

	if (!target->beside || (choice->grows && !choice->waits))
		return 0;
	r = backend_sample.arm(target, &choice->waits, why, sizeof(why));
	if (r == BACKEND_RUN)
		return r;
	if (choice->waits)
		choice->waits->free(choice->waits);
	choice->waits = NULL;
	if (r != 0)
		target_warn(target, "its waits are not recorded: %s", why[0] ? why : strerror(r < 0 ? -r : EIO));
	return 0;
}

static int arm_phase(struct target *target, struct pt_choice *choice, char *why, size_t why_size)
{
	int r = choice->job.result;

	switch (choice->phase) {
	case PT_PHASE_WAITS:
		if (arm_waits(target, choice) == BACKEND_RUN)
			return BACKEND_RUN;
		choice->phase = PT_PHASE_COUNT;
		return BACKEND_RUN;
	case PT_PHASE_COUNT:
		if (r == 0)
			r = prepare(target, choice, why, why_size);
		else
			r = opening_refused(r, target, choice, why, why_size);
		if (r != 0)
			return r == PT_SHARED ? 0 : r;
		choice->phase = PT_PHASE_OPEN;
		return BACKEND_RUN;
	default:
		if (r != 0)
			return opening_refused(r, target, choice, why, why_size);
		take(target, choice);
		return 0;
	}
}

/* Nobody asked for PT in particular: what it cannot record now is recorded by samples. */
static int fall_back(struct target *target, struct backend_job **job, char *why, size_t why_size)
{
	const struct pt_recording *rec = pt_recording_of(target);
	const struct target_request req = {.stacks = rec->stacks_asked, .waits = rec->waits_asked, .step_fd = -1};
	char why_not[200];
	int r;

	(void)snprintf(why_not, sizeof(why_not), "%s", why);
	why[0] = '\0';
	(*job)->free(*job);
	*job = NULL;
	backend_pt.disarm(target);
	target->backend = &backend_sample;
	target->stacks_asked = req.stacks;
	target->stacks = req.stacks == STACKS_DWARF ? STACKS_DWARF : STACKS_FP;
	target->waits = req.waits;
	r = backend_sample.init(target, &req, why, why_size);
	if (r == 0)
		r = backend_sample.arm(target, job, why, why_size);
	if (r == 0 || r == BACKEND_RUN)
		target_warn(target, "by samples, not by Intel PT: %s", why_not);
	return r;
}

static void say_filter(struct target *target)
{
	const struct pt_filter *f = pt_recording_of(target)->filter;

	for (size_t i = 0; f && i < f->n; i++)
		target_warn(target, "only %s is traced: what else it executes is not in the trace", f->v[i].name);
}

/* It goes on with what it has: nobody waits for this answer, so the target says it. */
static void say_left_out(struct target *target, int r, const char *why)
{
	struct pt_recording *rec = pt_recording_of(target);

	(void)!target_charge_fds(target, 0);
	if (r == TARGET_E_GONE || r == -ECANCELED)
		return;
	if (rec->left_out++ == 0)
		target_warn(target, "what came into it later is not all traced: %s", why[0] ? why : strerror(r < 0 ? -r : EIO));
	log_notice("%s: what came into it is not traced: %s", target->name, why[0] ? why : strerror(r < 0 ? -r : EIO));
}

static int pt_arm(struct target *target, struct backend_job **job, char *why, size_t why_size)
{
	struct pt_choice *choice = (struct pt_choice *)*job;
	int r;

	if (!choice) {
		if (!pt_recording_of(target)->events) {
			target_clear_notes(target);
			target_say_why(target, "method %s: the processor's trace of each %s, timing %s",
				       method_of(target), target->scope == TARGET_HOST ? "CPU" : "thread",
				       pt_timing_name(pt_recording_of(target)->timing));
			say_filter(target);
		}
		r = pt_choice_new(target, &choice);
		if (r < 0)
			return r;
		*job = &choice->job;
	}
	r = arm_phase(target, choice, why, why_size);
	if (choice->grows && r != 0 && r != BACKEND_RUN)
		say_left_out(target, r, why);
	if ((r == TARGET_E_BUSY || r == TARGET_E_QUOTA || r == TARGET_E_UNSUPPORTED) && target->arming &&
	    pt_recording_of(target)->automatic && target->scope != TARGET_HOST)
		r = fall_back(target, job, why, why_size);
	return r;
}

/* Events follow forks, but not a process that is moved into a unit. */
static void pt_review(struct target *target, bool members_added)
{
	if (members_added && target->scope == TARGET_UNIT && pt_recording_of(target)->events)
		target_work(target, WORK_REARM);
	if (target->beside)
		backend_sample.review(target, members_added);
}

static void pt_frames_known(struct target *target, enum image_frames frames)
{
	if (target->beside)
		backend_sample.frames_known(target, frames);
}

static int pt_member_changed(struct target *target, pid_t pid)
{
	return target->beside ? backend_sample.member_changed(target, pid) : 0;
}

static struct pausable *pt_pausable(const struct target *target, const char **ret_why)
{
	const struct pt_machine *machine = pt_machine_of(target->targets);
	const struct pt_recording *rec = pt_recording_of(target);

	*ret_why = NULL;
	if (!machine->can_pause)
		*ret_why = "this kernel or PMU cannot pause Intel PT (Linux 6.13 can)";
	else if (target->scope != TARGET_PROCESS && target->scope != TARGET_THREAD)
		*ret_why = "only the trace of a process or a thread can be paused";
	else if (target->children)
		*ret_why = "children would inherit the breakpoint with the trace";
	else if (rec->events && (rec->events->attrs[PT_EVENT_TRACE].inherit != (target->scope == TARGET_PROCESS) ||
				 (target->scope == TARGET_PROCESS && !rec->events->attrs[PT_EVENT_TRACE].inherit_thread)))
		*ret_why = "it shares the trace of another target, whose threads would inherit the breakpoint";
	else if (rec->events && pt_resume_new(target->targets->base, machine->stopper, rec->events) < 0)
		*ret_why = "no memory";
	return *ret_why || !rec->events ? NULL : pt_resume_pausable(rec->events->resume);
}

/* ---- ending */

static void leave(struct pt_recording *rec)
{
	if (rec->uses && pt_events_leave(rec->events))
		(void)stopper_stop(pt_machine_of(rec->target->targets)->stopper, rec->events, NULL, NULL);
	rec->uses = false;
}

static void pt_stop(struct target *target)
{
	struct pt_recording *rec = pt_recording_of(target);

	/* A program that nobody may see any more must not go on being traced. */
	leave(rec);
	if (target->beside)
		backend_sample.stop(target);
}

static void pt_disarm(struct target *target)
{
	struct pt_recording *rec = pt_recording_of(target);

	if (!rec)
		return;
	if (rec->events) {
		/* A snapshot in flight keeps the events, but nothing more is traced for it. */
		leave(rec);
		if (!rec->shares)
			pt_sharing_hand_over(target);
		if (!rec->shares)
			pt_machine_of(target->targets)->gone_blind_ns += pt_events_blind_ns(rec->events);
	}
	(void)pt_events_put(rec->events);
	if (rec->looks)
		newcomers_leave(pt_machine_of(target->targets)->newcomers);
	if (target->beside)
		backend_sample.disarm(target);
	(void)pt_filter_put(rec->filter);
	quota_release(&rec->charge);
	free(rec);
	target->recording = NULL;
}

/* ---- reporting */

static size_t pt_fds(const struct target *target)
{
	const struct pt_recording *rec = pt_recording_of(target);

	return (rec && rec->events && !rec->shares ? pt_events_fds(rec->events) : 0) + (target->beside ? backend_sample.fds(target) : 0);
}

static void pt_survey(struct target *target)
{
	if (target->beside)
		backend_sample.survey(target);
}

static bool pt_is_surveying(const struct target *target)
{
	return target->beside && backend_sample.is_surveying(target);
}

struct look_back {
	struct backend_job job; /* first */
	struct pt_events *events; /* referenced */
	uint64_t armed_ns;
};

static void look_back_run(struct backend_job *job)
{
	const struct look_back *l = (const struct look_back *)job;

	job->result = pt_events_look_back(l->events, l->armed_ns, &job->oldest_ns);
}

static void look_back_free(struct backend_job *job)
{
	(void)pt_events_put(((struct look_back *)job)->events);
	free(job);
}

static int pt_look_back(const struct target *target, struct backend_job **ret)
{
	const struct pt_recording *rec = pt_recording_of(target);
	struct look_back *l = calloc(1, sizeof(*l));

	if (!l)
		return -ENOMEM;
	l->job = (struct backend_job){.run = look_back_run, .free = look_back_free};
	l->events = pt_events_ref(rec->events);
	l->armed_ns = target->armed_ns;
	*ret = &l->job;
	return 0;
}

static void pt_stats(const struct target *target, struct backend_stats *ret)
{
	const struct pt_recording *rec = pt_recording_of(target);

	*ret = (struct backend_stats){0};
	if (target->beside)
		backend_sample.stats(target, ret);
	ret->method = method_of(target);
	ret->ring_bytes += rec->events ? pt_events_bytes(rec->events) : 0;
}

static struct json_object *pt_describe(const struct target *target)
{
	const struct pt_recording *rec = pt_recording_of(target);
	struct json_object *o = json_object_new_object(), *list;

	json_add_string(o, "timing", pt_timing_name(rec->timing));
	json_add_uint(o, "ring_bytes", rec->aux_bytes);
	json_add_uint(o, "cpus", rec->events ? pt_events_cpus(rec->events) : 0);
	json_add_uint(o, "events", rec->events ? pt_events_fds(rec->events) : 0);
	json_add_bool(o, "shared", rec->events && rec->events->users > 1);
	json_add_uint(o, "blind_ns", rec->events ? pt_events_blind_ns(rec->events) : 0);
	json_add_uint(o, "cpus_not_traced", rec->events ? newcomers_count(pt_machine_of(target->targets)->newcomers, rec->events) : 0);
	json_add_uint(o, "left_out", rec->left_out);
	list = json_add_new_array(o, "filters");
	for (size_t i = 0; rec->filter && i < rec->filter->n; i++)
		json_append_string(list, rec->filter->v[i].name);
	return o;
}

const struct backend backend_pt = {
	.name = "pt",
	.open = pt_open,
	.close = pt_close,
	.probe = pt_probe,
	.losses = pt_losses,
	.init = pt_init,
	.arm = pt_arm,
	.moved = pt_moved,
	.review = pt_review,
	.frames_known = pt_frames_known,
	.member_changed = pt_member_changed,
	.pausable = pt_pausable,
	.stop = pt_stop,
	.disarm = pt_disarm,
	.fds = pt_fds,
	.survey = pt_survey,
	.is_surveying = pt_is_surveying,
	.look_back = pt_look_back,
	.stats = pt_stats,
	.describe = pt_describe,
	.freeze = pt_export_freeze,
	.take = pt_export_take,
	.copy = pt_export_copy,
	.resume = pt_export_resume,
	.free = pt_export_free,
	.meta = pt_export_meta,
};
