// SPDX-License-Identifier: Apache-2.0
#include "daemon/backend/pt/arm.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/base/log.h"
#include "daemon/backend/pt/choice.h"
#include "daemon/backend/pt/newcomers.h"
#include "daemon/backend/pt/recording.h"
#include "daemon/backend/pt/sharing.h"
#include "daemon/base/refusal.h"
#include "daemon/config.h"
#include "daemon/target/backend.h"

#define KIB 1024ull
#define MIB (1024ull * 1024)
#define AUX_MIN (16 * KIB) /* smaller rings hold less than two synchronisation points */

/*
 * Sampling's programs report switches and wake-ups of all targets at once. Without them that would
 * cost events on each thread.
 */
static bool records_waits(const struct targets *targets)
{
	const char *method;
	char why[200];

	return backend_sample.probe(targets, &method, why, sizeof(why)) &&
	       strcmp(method, "cpu") == 0;
}

static int init_filter(struct pt_recording *rec, const struct pt_machine *machine,
		       const struct target_request *req, char *why, size_t size)
{
	int r;

	if (target_scope_is_group(req->scope))
		return refusal(why, size, TARGET_E_BAD,
			       "address filters are of a process or a thread");
	if (req->kernel_stacks)
		return refusal(why, size, TARGET_E_BAD,
			       "address filters are of the program's code: without --kernel");
	if (req->n_filters > machine->pmu.filters)
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "this processor has %u address filters, not %zu",
			       (unsigned int)machine->pmu.filters, req->n_filters);
	r = pt_filter_new(req->filters, req->n_filters, rec->target->targets->closer, &rec->filter);
	return r == -EINVAL ? refusal(why, size, TARGET_E_BAD,
				      "filters: not MAJOR:MINOR:INODE:OFFSET:SIZE:NAME")
			    : r;
}

int pt_arm_init(struct target *target, const struct target_request *req, char *why, size_t why_size)
{
	const struct pt_machine *machine = pt_machine_of(target->targets);
	const struct config *config = target->targets->config;
	struct target_request own = *req;
	struct pt_recording *rec;

	if (req->step_fd >= 0)
		return refusal(why, why_size, TARGET_E_BAD,
			       "the descriptor \"step\" is for the back end step");
	if (!machine->available)
		return refusal(why, why_size, TARGET_E_UNSUPPORTED,
			       "%s: record it by --backend sample", machine->why);
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
	/*
	 * There threads take turns within what is traced, and the trace does not say who they are.
	 */
	if (req->scope == TARGET_HOST && req->kernel_stacks)
		return refusal(
			why, why_size, TARGET_E_UNSUPPORTED,
			"by Intel PT a host is recorded without the kernel: without --kernel");
	/* What the processor wrote of the kernel cannot be taken out again. */
	target->admin_only |= target->kernel_stacks;
	/* Samples know no filter. */
	rec->automatic = (!req->backend || strcmp(req->backend, "auto") == 0) &&
			 req->n_filters == 0;
	if (req->n_filters) {
		int r = init_filter(rec, machine, req, why, why_size);

		if (r != 0)
			return r;
	}
	rec->waits_asked = req->waits;
	rec->stacks_asked = req->stacks;
	/*
	 * The trace itself says where a thread waits: what its stack is copied for costs more than
	 * the trace.
	 */
	if (req->stacks == STACKS_AUTO)
		own.stacks = target->stacks_asked = target->stacks = STACKS_FP;
	if (records_waits(target->targets))
		return backend_sample.init(target, &own, why, why_size);
	/* The trace has switches, but no wake-ups. */
	target->waits = false;
	return 0;
}

/* What other users run is not for an ordinary one to know. */
static int refuse_busy(const struct target *target, const struct pt_choice *choice, char *why,
		       size_t size)
{
	if (!target->owner_admin)
		return refusal(
			why, size, TARGET_E_BUSY,
			"somebody else uses the PMU for it or for the whole machine: record it by --backend sample, or ask an "
			"administrator, who is told which processes may hold it");
	return refusal(
		why, size, TARGET_E_BUSY,
		"somebody else uses the PMU for it or for the whole machine%s%s: end that, or record it by --backend sample",
		choice->holders[0] ? "; perf events have: " : "", choice->holders);
}

static int opening_refused(int r, const struct target *target, const struct pt_choice *choice,
			   char *why, size_t size)
{
	if (r > 0)
		return refusal(why, size, r, "%s", choice->why);
	switch (r) {
	case -ERANGE:
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "the kernel refuses the address filter");
	case -ESRCH:
		return refusal(why, size, TARGET_E_GONE, "the process has ended");
	case -EBUSY:
		return refuse_busy(target, choice, why, size);
	case -EACCES:
	case -EPERM:
		return refusal(
			why, size, TARGET_E_UNSUPPORTED,
			"the kernel does not permit PT on it (%s): tracerd needs CAP_PERFMON",
			strerror(-r));
	case -EMFILE:
	case -ENFILE:
		return refusal(why, size, TARGET_E_BUSY,
			       "tracerd is out of file descriptors (LimitNOFILE=)");
	case -EAGAIN:
		return refusal(why, size, TARGET_E_BUSY,
			       "a CPU or a thread came or went meanwhile: arm it again");
	case -ENOBUFS:
		return refusal(
			why, size, TARGET_E_BUSY,
			"no locked memory is left for its rings (CAP_IPC_LOCK, LimitMEMLOCK=)");
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
		return refusal(
			why, size, TARGET_E_QUOTA,
			"%llu threads on %llu CPUs need %llu descriptors, more than uid %u has left (uid_fds): record it by "
			"--backend sample, or one thread by --tid",
			(unsigned long long)b->threads, (unsigned long long)b->cpus,
			(unsigned long long)pt_budget_fds(b), (unsigned int)target->owner);
	if (r < 0 || choice->grows)
		return r;
	r = quota_charge(target->targets->quota, target->owner, QUOTA_RING_BYTES,
			 pt_budget_bytes(b), &charge);
	if (r > 0)
		return refusal(
			why, size, TARGET_E_QUOTA,
			"%llu KiB of rings are more than uid %u has left (uid_ring_mib): make pt_ring_kib smaller, or record "
			"it by --backend sample",
			(unsigned long long)(pt_budget_bytes(b) / KIB),
			(unsigned int)target->owner);
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

	if (choice->grows || b->cpus <= choice->n_online ||
	    (r == 0 && b->aux_bytes == pt_recording_of(target)->aux_bytes))
		return r;
	why[0] = '\0';
	b->cpus = choice->n_online;
	choice->to_come = false;
	r = check_budget_of(target, choice, why, size);
	if (r == 0)
		target_warn(
			target,
			"for CPUs that are offline now there is no memory, or no descriptors: what runs there later is not traced");
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
		.kernel = target->kernel_stacks,
	};
	const struct target *other = pt_sharing_overlaps(target);
	const struct pt_recording *whole = choice->grows ? NULL
							 : pt_sharing_find(target, why, size);
	char lacks[200];
	int r;

	/* Without it nothing could be followed from where the kernel is entered on. */
	if (target->kernel_stacks && target->kcore_fd < 0)
		return refusal(
			why, size, TARGET_E_UNSUPPORTED,
			"the kernel's code is read from /proc/kcore, which whoever arms it could not open (CAP_SYS_RAWIO, CONFIG_PROC_KCORE, "
			"lockdown): arm it without --kernel, or by --backend sample");
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
	r = pt_attr_fill(&machine->pmu, &spec, &choice->attrs[PT_EVENT_TRACE], lacks,
			 sizeof(lacks));
	if (r < 0)
		return refusal(why, size, TARGET_E_UNSUPPORTED,
			       "its PMU cannot trace branches with their time");
	pt_attr_sideband(&spec, machine->read_format, &choice->attrs[PT_EVENT_SIDE]);
	r = check_budget(target, choice, why, size);
	if (r != 0)
		return r;
	if (lacks[0] && !choice->grows)
		target_warn(target, "pt_timing=%s: this processor has %s",
			    pt_timing_name(rec->timing), lacks);
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
		target_warn(
			target,
			"%llu KiB of trace a CPU instead of %llu: the limits of memory (pt_total_mib, CAP_IPC_LOCK, "
			"LimitMEMLOCK=)",
			(unsigned long long)(choice->budget.aux_bytes / KIB),
			(unsigned long long)(rec->aux_bytes / KIB));
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
		target_warn(target, "its waits are not recorded: %s",
			    why[0] ? why : strerror(r < 0 ? -r : EIO));
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
		pt_recording_of(target)->cgroup = choice->cgroup;
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
	const struct target_request req = {.stacks = rec->stacks_asked,
					   .waits = rec->waits_asked,
					   .step_fd = -1,
					   .kernel_stacks = target->kernel_stacks};
	char why_not[200];
	int r;

	(void)snprintf(why_not, sizeof(why_not), "%s", why);
	why[0] = '\0';
	(*job)->free(*job);
	*job = NULL;
	backend_pt.disarm(target);
	close_fdp(&target->kcore_fd); /* samples need no code of the kernel's */
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
		target_warn(target, "only %s is traced: what else it executes is not in the trace",
			    f->v[i].name);
}

/* It goes on with what it has: nobody waits for this answer, so the target says it. */
static void say_left_out(struct target *target, int r, const char *why)
{
	struct pt_recording *rec = pt_recording_of(target);

	(void)!target_charge_fds(target, 0);
	if (r == TARGET_E_GONE || r == -ECANCELED)
		return;
	if (rec->left_out++ == 0)
		target_warn(target, "what came into it later is not all traced: %s",
			    why[0] ? why : strerror(r < 0 ? -r : EIO));
	log_notice("%s: what came into it is not traced: %s", target->name,
		   why[0] ? why : strerror(r < 0 ? -r : EIO));
}

int pt_arm(struct target *target, struct backend_job **job, char *why, size_t why_size)
{
	struct pt_choice *choice = (struct pt_choice *)*job;
	int r;

	if (!choice) {
		if (!pt_recording_of(target)->events) {
			target_clear_notes(target);
			target_say_why(target,
				       "method %s: the processor's trace of each %s%s, timing %s",
				       pt_method_of(target),
				       target->scope == TARGET_HOST ? "CPU" : "thread",
				       target->kernel_stacks ? ", in the kernel too" : "",
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
	if ((r == TARGET_E_BUSY || r == TARGET_E_QUOTA || r == TARGET_E_UNSUPPORTED) &&
	    target->arming && pt_recording_of(target)->automatic && target->scope != TARGET_HOST)
		r = fall_back(target, job, why, why_size);
	return r;
}
