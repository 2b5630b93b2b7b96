// SPDX-License-Identifier: Apache-2.0
/*
 * Where names are missing because a runtime was not asked for them: what to do about it, for each
 * process.
 */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/control/json.h"
#include "decode/base/path.h"
#include "decode/object/image.h"
#include "decode/object/process_maps.h"
#include "decode/replay/session_internal.h"

#define HINTS_MAX 8
#define FRAMES_MIN 10 /* a few say nothing */

static const struct runtime {
	const char *object; /* how the name of its file begins */
	const char *name;
	const char *advice; /* for generated code */
	/* where its callers are not found; NULL: it keeps frame pointers always */
	const char *callers;
} runtimes[] = {
	{"libjvm.so", "Java",
	 "have it write them (jcmd PID Compiler.perfmap, JDK 17 on) before the snapshot",
	 "start it with -XX:+PreserveFramePointer"},
	{"libcoreclr.so", ".NET", "start it with DOTNET_PerfMapEnabled=1"},
	{"libnode.so", "node", "start it with --perf-basic-prof"},
	{"node", "node", "start it with --perf-basic-prof"},
	{"libpython3.", "Python", "start it with -X perf (Python 3.12 on)"},
	{"python3", "Python", "start it with -X perf (Python 3.12 on)"},
};

/* By what it has mapped last: what code->space was at its last stack may be freed by now. */
static const struct runtime *runtime_of(const struct session *s, const struct process *p,
					const char **ret_file)
{
	const struct address_space *space = process_maps_at(s->o.maps, p->pid, UINT64_MAX);
	const uint32_t n = space ? address_space_count(space) : 0;

	for (size_t k = 0; k < ARRAY_SIZE(runtimes); k++) {
		const size_t len = strlen(runtimes[k].object);

		for (uint32_t i = 0; i < n; i++) {
			const struct image *image = address_space_at(space, i)->image;
			const char *file = image && image->text ? base_name(image->text) : "";

			/* "node", and not "node_exporter" */
			if (strncmp(file, runtimes[k].object, len) != 0 ||
			    isalpha((unsigned char)file[len]) || file[len] == '_')
				continue;
			*ret_file = file;
			return &runtimes[k];
		}
	}
	return NULL;
}

/* Of "python3.11" or "libpython3.11.so.1.0": 11; 0: the name does not say. */
static unsigned int python_minor(const char *file)
{
	const char *p = strstr(file, "python3.");

	return p ? (unsigned int)strtoul(p + 8, NULL, 10) : 0;
}

/*
 * The first stacks of a process never say what the interpreter runs: only where none does,
 * something is to be done.
 */
static bool unnamed_python(const struct process *p)
{
	return p->code.interpreted >= FRAMES_MIN && !p->code.found;
}

static void advise_generated(const struct session *s, const struct process *p,
			     const struct runtime *runtime, char *buf, size_t size)
{
	struct frame_info info;

	stacktab_info(s->walk.st, p->code.unnamed_frame, &info);
	if (p->code.perfmap_refused[0])
		(void)snprintf(
			buf, size,
			"%.60s is generated code without names: its perf map is there, and was refused: %s",
			info.name, p->code.perfmap_refused);
	else if (runtime)
		(void)snprintf(buf, size, "%.60s is code that %s generated, without names: %s",
			       info.name, runtime->name, runtime->advice);
	else if (strncmp(info.name, "[memfd:", 7) == 0)
		(void)snprintf(
			buf, size,
			"%.60s is a file that is only in memory: the names of its functions are not read from there",
			info.name);
	else
		(void)snprintf(
			buf, size,
			"%.60s is generated code without names: a perf map (/tmp/perf-PID.map) would give them",
			info.name);
}

static void advise(const struct session *s, const struct process *p, char *buf, size_t size)
{
	const char *file = "";
	const struct runtime *runtime = runtime_of(s, p, &file);
	const unsigned int minor = python_minor(file);

	if (unnamed_python(p) && minor && minor < 11)
		(void)snprintf(
			buf, size,
			"its Python functions have no names: those of Python 3.11 and later are found");
	else if (unnamed_python(p) && s->o.unwinds)
		(void)snprintf(
			buf, size,
			"its Python functions have no names: they were not found before the snapshot; 'tracectl show' says whether "
			"they can be");
	else if (unnamed_python(p))
		(void)snprintf(
			buf, size,
			"its Python functions have no names: arm it with --stacks bpf, or start it with -X perf (Python 3.12 on)");
	else
		advise_generated(s, p, runtime, buf, size);
}

static struct json_object *kernel_hint(const struct session *s)
{
	struct json_object *o = json_object_new_object();

	json_add_uint(o, "pid", 0);
	json_add_string(o, "process", "kernel");
	json_add_uint(o, "frames", s->walk.kernel_unnamed);
	json_add_string(
		o, "text",
		"the names of its functions are not known: who armed the target, and tracerd, may not see addresses in "
		"/proc/kallsyms (CAP_SYSLOG, kernel.kptr_restrict)");
	return o;
}

static void put_hint(struct json_object *summary, struct json_object **list,
		     const struct process *p, uint64_t frames, const char *text)
{
	struct json_object *o = json_object_new_object();

	if (!*list)
		*list = json_add_new_array(summary, "hints");
	json_add_uint(o, "pid", p->pid);
	json_add_string(o, "process", p->name);
	json_add_uint(o, "frames", frames);
	json_add_string(o, "text", text);
	json_append(*list, o);
}

/* Of names; false: there is nothing to be said. */
static bool hint_names(const struct session *s, const struct process *p, uint64_t *ret_frames,
		       char *text, size_t size)
{
	if (p->code.several_names) {
		*ret_frames = p->code.several_names;
		(void)snprintf(
			text, size,
			"its perf map has several names for the addresses of these frames, of code that took the "
			"place of other code: the last name is drawn");
		return true;
	}
	/* with a perf map the runtime has been asked */
	if (p->code.perfmap || (p->code.unnamed < FRAMES_MIN && !unnamed_python(p)))
		return false;
	*ret_frames = p->code.unnamed >= FRAMES_MIN ? p->code.unnamed : p->code.interpreted;
	advise(s, p, text, size);
	return true;
}

/*
 * Of callers: a runtime that uses the frame pointer as any other register, where many stacks end in
 * its code.
 */
static bool hint_callers(const struct session *s, const struct process *p, char *text, size_t size)
{
	const struct runtime *runtime;
	const char *file;

	if (p->code.generated_ends < FRAMES_MIN || p->code.generated_ends < p->code.generated / 4)
		return false;
	runtime = runtime_of(s, p, &file);
	if (!runtime || !runtime->callers)
		return false;
	(void)snprintf(text, size,
		       "the callers of code that %s generated are not found in so many stacks: %s",
		       runtime->name, runtime->callers);
	return true;
}

void session_hints(const struct session *s, struct json_object *summary)
{
	struct json_object *list = NULL;
	size_t n = 0;

	if (s->o.kallsyms_hidden && s->walk.kernel_unnamed) {
		list = json_add_new_array(summary, "hints");
		json_append(list, kernel_hint(s));
		n++;
	}
	for (const struct process *p = s->all_processes; p && n < HINTS_MAX; p = p->next) {
		uint64_t frames;
		char text[240];

		if (hint_names(s, p, &frames, text, sizeof(text))) {
			put_hint(summary, &list, p, frames, text);
			n++;
		}
		if (n < HINTS_MAX && hint_callers(s, p, text, sizeof(text))) {
			put_hint(summary, &list, p, p->code.generated_ends, text);
			n++;
		}
	}
}
