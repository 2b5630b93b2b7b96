// SPDX-License-Identifier: Apache-2.0
/* Where names are missing because a runtime was not asked for them: what to do about it, for each process. */
#include "config.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/control/json.h"
#include "decode/base/path.h"
#include "decode/object/image.h"
#include "decode/replay/session_internal.h"

#define HINTS_MAX 8
#define FRAMES_MIN 10 /* a few say nothing */

static const struct runtime {
	const char *object; /* how the name of its file begins */
	const char *name;
	const char *advice; /* for generated code */
} runtimes[] = {
	{"libjvm.so", "Java", "have it write them (jcmd PID Compiler.perfmap, JDK 17 on) before the snapshot"},
	{"libcoreclr.so", ".NET", "start it with DOTNET_PerfMapEnabled=1"},
	{"libnode.so", "node", "start it with --perf-basic-prof"},
	{"node", "node", "start it with --perf-basic-prof"},
	{"libpython3.", "Python", "start it with -X perf (Python 3.12 on)"},
	{"python3", "Python", "start it with -X perf (Python 3.12 on)"},
};

static const struct runtime *runtime_of(const struct code *code, const char **ret_file)
{
	const uint32_t n = code->space ? address_space_count(code->space) : 0;

	for (size_t k = 0; k < ARRAY_SIZE(runtimes); k++) {
		const size_t len = strlen(runtimes[k].object);

		for (uint32_t i = 0; i < n; i++) {
			const struct image *image = address_space_at(code->space, i)->image;
			const char *file = image && image->text ? base_name(image->text) : "";

			/* "node", and not "node_exporter" */
			if (strncmp(file, runtimes[k].object, len) != 0 || isalpha((unsigned char)file[len]) || file[len] == '_')
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

/* The first stacks of a process never say what the interpreter runs: only where none does, something is to be done. */
static bool unnamed_python(const struct process *p)
{
	return p->code.interpreted >= FRAMES_MIN && !p->code.found;
}

static void advise(const struct session *s, const struct process *p, char *buf, size_t size)
{
	const char *file = "";
	const struct runtime *runtime = runtime_of(&p->code, &file);
	const unsigned int minor = python_minor(file);

	if (unnamed_python(p) && minor && minor < 11)
		(void)snprintf(buf, size, "its Python functions have no names: those of Python 3.11 and later are found");
	else if (unnamed_python(p) && s->o.unwinds)
		(void)snprintf(buf, size, "its Python functions have no names: they were not found before the snapshot; 'tracectl show' says whether "
					  "they can be");
	else if (unnamed_python(p))
		(void)snprintf(buf, size, "its Python functions have no names: arm it with --stacks bpf, or start it with -X perf (Python 3.12 on)");
	else if (runtime)
		(void)snprintf(buf, size, "[anon] is code that %s generated, without names: %s", runtime->name, runtime->advice);
	else
		(void)snprintf(buf, size, "[anon] is generated code without names: a perf map (/tmp/perf-PID.map) would give them");
}

static struct json_object *kernel_hint(const struct session *s)
{
	struct json_object *o = json_object_new_object();

	json_add_uint(o, "pid", 0);
	json_add_string(o, "process", "kernel");
	json_add_uint(o, "frames", s->walk.kernel_unnamed);
	json_add_string(o, "text", "the names of its functions are not known: who armed the target, and tracerd, may not see addresses in "
				   "/proc/kallsyms (CAP_SYSLOG, kernel.kptr_restrict)");
	return o;
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
		struct json_object *o;
		char text[200];

		/* With a perf map the runtime has been asked. */
		if (p->code.perfmap || (p->code.unnamed < FRAMES_MIN && !unnamed_python(p)))
			continue;
		advise(s, p, text, sizeof(text));
		if (!list)
			list = json_add_new_array(summary, "hints");
		o = json_object_new_object();
		json_add_uint(o, "pid", p->pid);
		json_add_string(o, "process", p->name);
		json_add_uint(o, "frames", p->code.unnamed >= FRAMES_MIN ? p->code.unnamed : p->code.interpreted);
		json_add_string(o, "text", text);
		json_append(list, o);
		n++;
	}
}
