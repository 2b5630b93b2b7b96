// SPDX-License-Identifier: Apache-2.0
#include "client/core/place.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "client/ui/human.h"
#include "client/ui/option.h"
#include "common/base/io.h"
#include "common/base/procfs.h"
#include "common/control/json.h"
#include "common/decoder/decoder.h"
#include "common/decoder/dying.h"
#include "common/decoder/opener.h"

#define OBJECTS_MAX 512 /* as the decoder's RESOLVE_MAX_OBJECTS */
#define TIMEOUT_NS (60 * 1000000000ULL)
#define DYING_MS 500

/* A file with code, and where it is mapped. */
struct mapped {
	struct proc_map map; /* `path` lies in the text of the maps */
	size_t object;	     /* which file, of those that are different */
};

struct query {
	struct ctl *ctl;
	pid_t pid;
	const char *text;
	/* what was asked for: one of three */
	char symbol[PLACE_TEXT_MAX + 1], file[PLACE_TEXT_MAX + 1];
	const char *only; /* the file that the user names with a symbol; NULL: all */
	uint64_t line, address;
	bool by_address;
	/* the process */
	char *maps;
	struct mapped *mapped;
	size_t n_mapped, n_objects;
	struct proc proc;
	struct opener_options files;
	/* the answer */
	struct json_object *stats;
	int code;
	bool ended;
};

static void query_fini(struct query *q)
{
	proc_close(&q->proc);
	close_fdp(&q->files.root_fd);
	json_object_put(q->stats);
	free(q->mapped);
	free(q->maps);
}

void places_fini(struct places *p)
{
	for (size_t i = 0; i < p->n; i++) {
		free(p->v[i].path);
		free(p->v[i].name);
	}
	free(p->v);
	free(p->copies);
	free(p->unsearched);
	*p = (struct places){0};
}

/* ---- the question */

static int parse(struct query *q)
{
	const char *text = q->text, *colon = strrchr(text, ':'), *at = strchr(text, '@');
	const size_t len = strlen(text);
	char *end;

	if (len == 0 || len > PLACE_TEXT_MAX)
		return ctl_fail(q->ctl, EXIT_USAGE, "usage", "a place has 1 to %d characters",
				PLACE_TEXT_MAX);
	if (strncmp(text, "0x", 2) == 0) {
		errno = 0;
		q->address = strtoull(text + 2, &end, 16);
		if (!isxdigit((unsigned char)text[2]) || *end || errno)
			return ctl_fail(q->ctl, EXIT_USAGE, "usage",
					"'%s' is not an address: 0x and 1 to 16 hex digits", text);
		q->by_address = true;
		return EXIT_OK;
	}
	if (colon && colon > text && colon[-1] != ':' &&
	    option_parse_u64(colon + 1, 1, INT32_MAX, &q->line) == 0) {
		memcpy(q->file, text, (size_t)(colon - text));
		return EXIT_OK;
	}
	if (at == text || (at && !at[1]))
		return ctl_fail(q->ctl, EXIT_USAGE, "usage",
				"neither a function, FILE:LINE nor an address: '%s'", text);
	memcpy(q->symbol, text, at ? (size_t)(at - text) : len);
	q->only = at ? at + 1 : NULL;
	return EXIT_OK;
}

/* ---- the process */

static bool same_file(const struct proc_map *a, const struct proc_map *b)
{
	return a->ino == b->ino && a->maj == b->maj && a->min == b->min;
}

/* Or replaced by another one, since it was mapped. */
static bool is_deleted(const struct proc_map *m)
{
	return proc_path_len(m->path, m->path_len) < m->path_len;
}

bool place_is_named(const struct proc_map *m, const char *name)
{
	const size_t n = strlen(name), len = proc_path_len(m->path, m->path_len);

	return n > 0 && len >= n && memcmp(m->path + len - n, name, n) == 0 &&
	       (len == n || (name[0] != '/' && m->path[len - n - 1] == '/'));
}

static int add_mapping(struct query *q, const struct proc_map *map)
{
	struct mapped *v = reallocarray(q->mapped, q->n_mapped + 1, sizeof(*v));

	if (!v)
		return -ENOMEM;
	q->mapped = v;
	v += q->n_mapped;
	*v = (struct mapped){.map = *map, .object = q->n_objects};
	for (size_t i = 0; i < q->n_mapped; i++)
		if (same_file(&q->mapped[i].map, map)) {
			v->object = q->mapped[i].object;
			break;
		}
	if (v->object == q->n_objects) {
		if (q->n_objects == OBJECTS_MAX)
			return -E2BIG;
		q->n_objects++;
	}
	q->n_mapped++;
	return 0;
}

static int read_mappings(struct query *q)
{
	struct proc_map map;
	size_t len, pos = 0;
	int r;

	r = io_read_file_at(q->proc.dirfd, "maps", PROC_MAPS_BYTES_MAX, &q->maps, &len);
	if (r < 0)
		return r;
	while ((r = proc_map_next(q->maps, len, &pos, &map)) != 0) {
		if (r < 0 || !(map.prot & PROT_EXEC) || map.ino == 0 || map.path_len == 0 ||
		    map.path[0] != '/')
			continue;
		if (q->only && !place_is_named(&map, q->only))
			continue;
		if (q->by_address && (q->address < map.start || q->address >= map.end))
			continue;
		r = add_mapping(q, &map);
		if (r < 0)
			return r;
	}
	return 0;
}

static int open_root(struct query *q)
{
	q->files.root_fd = openat(q->proc.dirfd, "root", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return q->files.root_fd < 0 ? -errno : 0;
}

static int look_at_process(struct query *q)
{
	int r;

	r = proc_open(q->pid, -1, &q->proc);
	if (r > 0 || r == -ENOENT || r == -ESRCH)
		return ctl_fail(q->ctl, EXIT_NOT_FOUND, "not_found", "no such process: %d",
				(int)q->pid);
	if (r == 0)
		r = read_mappings(q);
	if (r == 0)
		r = open_root(q);
	if (r == -E2BIG)
		return ctl_fail(
			q->ctl, EXIT_FAILED, "too_large",
			"process %d has code of more than %d files: name the one that is meant, as %s@FILE",
			(int)q->pid, OBJECTS_MAX, q->symbol[0] ? q->symbol : "FUNCTION");
	if (r == -EACCES || r == -EPERM)
		return ctl_fail(q->ctl, EXIT_NOT_PERMITTED, "not_permitted",
				"you may not look into process %d", (int)q->pid);
	if (r < 0)
		return ctl_report(q->ctl, r, "reading the process");
	if (q->n_mapped)
		return EXIT_OK;
	if (q->by_address)
		return ctl_fail(q->ctl, EXIT_NOT_FOUND, "not_found",
				"at 0x%" PRIx64 " process %d has no code that comes from a file",
				q->address, (int)q->pid);
	return ctl_fail(q->ctl, EXIT_NOT_FOUND, "not_found",
			q->only ? "process %d has no code of %s" : "process %d has no code%s",
			(int)q->pid, q->only ? q->only : "");
}

/* ---- the decoder */

static const struct mapped *first_of(const struct query *q, uint64_t object)
{
	for (size_t i = 0; i < q->n_mapped; i++)
		if (q->mapped[i].object == object)
			return &q->mapped[i];
	return NULL;
}

static struct json_object *job(const struct query *q)
{
	struct json_object *body = json_object_new_object(), *list, *find, *options;

	json_add_string(body, "input", "resolve");
	(void)json_add_new_array(body, "inputs");
	options = json_add_new_object(body, "options");
	json_add_bool(options, "idle", false);
	json_add_uint(body, "pid", (uint64_t)q->pid);
	list = json_add_new_array(body, "objects");
	for (size_t i = 0; i < q->n_objects; i++) {
		const struct proc_map *m = &first_of(q, i)->map;
		struct json_object *o = json_object_new_object();

		json_add_text(o, "path", m->path, m->path_len);
		json_add_uint(o, "major", m->maj);
		json_add_uint(o, "minor", m->min);
		json_add_uint(o, "inode", m->ino);
		json_append(list, o);
	}
	find = json_add_new_object(body, "find");
	if (q->symbol[0]) {
		json_add_string(find, "symbol", q->symbol);
	} else if (q->file[0]) {
		json_add_string(find, "file", q->file);
		json_add_uint(find, "line", q->line);
	} else {
		json_add_uint(find, "object", 0);
		json_add_uint(find, "offset",
			      q->address - q->mapped[0].map.start + q->mapped[0].map.pgoff);
	}
	return body;
}

/*
 * The file that is mapped, whatever has its path by now: by the kernel's own link to it, which only
 * an administrator may follow; or as the program, which whoever may look into the process may open.
 * The opener looks whether it is that.
 */
static int open_mapped(const struct query *q, const struct file_request *request)
{
	const struct proc_map asked = {.maj = request->maj,
				       .min = request->min,
				       .ino = request->ino};
	char name[64];
	int fd = -1;

	if (request->kind != FILE_REQUEST_OBJECT)
		return -1;
	for (size_t i = 0; i < q->n_mapped && fd < 0; i++) {
		const struct proc_map *m = &q->mapped[i].map;

		(void)snprintf(name, sizeof(name), "map_files/%" PRIx64 "-%" PRIx64, m->start,
			       m->end);
		if (same_file(m, &asked))
			fd = openat(q->proc.dirfd, name, O_PATH | O_CLOEXEC);
	}
	return fd >= 0 ? fd : openat(q->proc.dirfd, "exe", O_PATH | O_CLOEXEC);
}

static void on_request(struct decoder *d, const struct file_request *request, void *arg)
{
	struct query *q = arg;
	_cleanup_close_ int mapped = open_mapped(q, request);
	_cleanup_(opener_freep) struct opener *opener = NULL;
	struct opener_options options = q->files;
	struct opener_answer answer = {.fd = -1};
	struct file_answer file = {.req = request->req};

	options.mapped_fd = mapped;
	if (opener_new(&options, &opener) < 0 || opener_open(opener, request, &answer) < 0)
		answer.fd = close_fd(answer.fd);
	file.found = answer.fd >= 0;
	file.changed = answer.changed;
	memcpy(file.why, answer.why, sizeof(file.why));
	(void)decoder_answer(d, &file, answer.fd);
}

static void on_end(struct decoder *d, const struct decoder_outcome *outcome, void *arg)
{
	struct query *q = arg;

	q->ended = true;
	if (outcome->end == DECODER_DONE && outcome->result->stats) {
		q->stats = json_object_get(outcome->result->stats);
		q->code = EXIT_OK;
	} else if (outcome->end == DECODER_KILLED) {
		q->code = ctl_fail(q->ctl, EXIT_TIMED_OUT, "timeout",
				   "looking for '%s' takes too long", q->text);
	} else {
		q->code = ctl_fail(q->ctl, EXIT_NOT_DECODED, "decode_failed",
				   "cannot look for '%s': %s", q->text, outcome->message);
	}
}

static void wait_for(struct query *q, struct decoder *d)
{
	const uint64_t deadline = io_now_ns() + TIMEOUT_NS;
	bool killed = false;

	while (!q->ended) {
		struct pollfd p[DECODER_N_FDS];

		decoder_poll(d, p);
		(void)poll(p, DECODER_N_FDS, 1000);
		if (decoder_dispatch(d))
			break;
		if (!killed && io_now_ns() >= deadline) {
			decoder_kill(d);
			killed = true;
		}
	}
}

static int ask(struct query *q)
{
	static const struct decoder_callbacks callbacks = {.on_request = on_request,
							   .on_end = on_end};
	const struct decoder_options how = {.drop_privilege = true};
	_cleanup_json_ struct json_object *body = job(q);
	struct decoder_options options = how;
	struct decoder *d = NULL;
	char path[4096];
	int r;

	r = decoder_find(secure_getenv("TRACERD_DECODE"), path, sizeof(path));
	if (r < 0)
		return ctl_fail(q->ctl, EXIT_FAILED, "no_decoder",
				"tracerd-decode is not installed: %s", strerror(-r));
	options.path = path;
	r = decoder_start(&options, body, NULL, 0, &callbacks, q, &d);
	if (r == -EMSGSIZE)
		return ctl_fail(
			q->ctl, EXIT_FAILED, "too_large",
			"process %d has code of too many files to look into all: name the one that is meant, as %s@FILE",
			(int)q->pid, q->symbol[0] ? q->symbol : "FUNCTION");
	if (r < 0)
		return ctl_fail(q->ctl, EXIT_FAILED, tracerd_error_name(r), "cannot start %s: %s",
				path, strerror(-r));
	wait_for(q, d);
	decoder_free(d);
	decoder_dying_wait(DYING_MS);
	return q->code;
}

/* ---- the answer */

static int add_place(struct query *q, struct json_object *o, struct places *ret)
{
	const uint64_t object = field_number(o, "object"), offset = field_number(o, "offset");
	struct place *v;

	for (size_t i = 0; i < q->n_mapped; i++) {
		const struct mapped *m = &q->mapped[i];
		const char *build_id = field_text(o, "build_id"), *name = field_text(o, "name");

		if (m->object != object || offset < m->map.pgoff ||
		    offset - m->map.pgoff >= m->map.end - m->map.start)
			continue;
		v = reallocarray(ret->v, ret->n + 1, sizeof(*v));
		if (!v)
			return -ENOMEM;
		ret->v = v;
		v += ret->n;
		*v = (struct place){
			.path = strndup(m->map.path, m->map.path_len),
			.name = strdup(name ? name : ""),
			.maj = m->map.maj,
			.min = m->map.min,
			.ino = m->map.ino,
			.offset = offset,
			.address = m->map.start + (offset - m->map.pgoff),
			.size = field_number(o, "size"),
			.into = field_number(o, "into"),
			.boundary = json_object_get_boolean(field(o, "boundary")),
			.boundary_known = json_object_get_boolean(field(o, "boundary_known")),
			.chooser = json_object_get_boolean(field(o, "chooser")),
		};
		ret->n++;
		if (!v->path || !v->name)
			return -ENOMEM;
		(void)snprintf(v->build_id, sizeof(v->build_id), "%s", build_id ? build_id : "");
		break; /* mapped twice, it is the same code */
	}
	return 0;
}

/* An address needs no file: only whether an instruction begins there is not known. */
static int add_address(struct query *q, struct places *ret)
{
	const struct proc_map *m = &q->mapped[0].map;

	ret->v = calloc(1, sizeof(*ret->v));
	if (!ret->v)
		return -ENOMEM;
	ret->n = 1;
	ret->v[0] = (struct place){
		.path = strndup(m->path, m->path_len),
		.name = strdup(""),
		.maj = m->maj,
		.min = m->min,
		.ino = m->ino,
		.offset = q->address - m->start + m->pgoff,
		.address = q->address,
	};
	return ret->v[0].path && ret->v[0].name ? 0 : -ENOMEM;
}

static struct json_object *list_of(const struct query *q, const char *key)
{
	struct json_object *list = field(q->stats, key);

	return list && json_object_is_type(list, json_type_array) ? list : NULL;
}

static size_t length_of(struct json_object *list)
{
	return list ? json_object_array_length(list) : 0;
}

/* Whether the program itself, whose file is mapped first, is in a list of objects. */
static bool has_program(struct json_object *list)
{
	for (size_t i = 0; i < length_of(list); i++)
		if (json_object_get_int64(json_object_array_get_idx(list, i)) == 0)
			return true;
	return false;
}

static char *name_of(const struct query *q, size_t object)
{
	const struct proc_map *m = &first_of(q, object)->map;
	_cleanup_free_ char *path = strndup(m->path, m->path_len);

	return human_name(path);
}

/* Memory that has the name of a file that never was in a folder. */
static bool is_memory(const struct proc_map *m)
{
	static const char *const names[] = {"/memfd:", "/dev/zero", "/SYSV"};

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (m->path_len >= strlen(names[i]) &&
		    memcmp(m->path, names[i], strlen(names[i])) == 0)
			return true;
	return false;
}

/* One that root could have read; NULL. */
static char *deleted_unread(const struct query *q)
{
	struct json_object *list = list_of(q, "unread");

	if (geteuid() == 0)
		return NULL;
	for (size_t i = 0; i < length_of(list); i++) {
		const struct mapped *m = first_of(q, (uint64_t)json_object_get_int64(
							     json_object_array_get_idx(list, i)));

		if (m && is_deleted(&m->map) && !is_memory(&m->map))
			return name_of(q, m->object);
	}
	return NULL;
}

/* The names of a list, after `lead`; "": it has none. */
static char *names_of(const struct query *q, const char *key, const char *lead)
{
	struct json_object *list = list_of(q, key);
	char *all = human_format("%s", "");

	for (size_t i = 0; i < length_of(list); i++) {
		_cleanup_free_ char *old = all, *name = human_name(json_object_get_string(
							json_object_array_get_idx(list, i)));

		all = human_format("%s%s%s", old, i ? ", " : lead, name);
	}
	return all;
}

/* Of the files whose debug information was too large: the first; NULL. */
static char *unsearched(const struct query *q)
{
	struct json_object *list = list_of(q, "inlined_cut");
	const struct mapped *m = length_of(list)
					 ? first_of(q, (uint64_t)json_object_get_int64(
							       json_object_array_get_idx(list, 0)))
					 : NULL;

	return m ? name_of(q, m->object) : NULL;
}

/*
 * In one file. An old version of the name may be beside it there, which no program linked today
 * calls: not what is meant either.
 */
static bool has_chooser(const struct places *p)
{
	bool found = false;

	for (size_t i = 0; i < p->n; i++) {
		if (p->v[i].maj != p->v[0].maj || p->v[i].min != p->v[0].min ||
		    p->v[i].ino != p->v[0].ino)
			return false;
		found |= p->v[i].chooser;
	}
	return found;
}

/*
 * What such a name stands for is chosen when the program starts; at the chooser nobody passes any
 * more.
 */
static int is_chooser(const struct query *q)
{
	_cleanup_free_ char *names = names_of(q, "near", ", such as ");

	return ctl_fail(
		q->ctl, EXIT_USAGE, "usage",
		"'%s' is an indirect function (IFUNC): its code only chooses, once, which implementation all callers get; name an "
		"implementation%s, or give its address%s",
		q->symbol, names,
		*names ? "" : " (its file has no names for them; install its debug symbols)");
}

/* What the user may have meant, or what is lacking. */
static int not_found(const struct query *q)
{
	_cleanup_free_ char *program = name_of(q, 0), *hint = names_of(q, "near", "; similar are "),
			    *deleted = deleted_unread(q);
	_cleanup_free_ char *large = unsearched(q), *limit = NULL;

	if (!q->by_address && json_object_get_boolean(field(q->stats, "incomplete")))
		return ctl_fail(
			q->ctl, EXIT_NOT_FOUND, "not_found",
			"'%s' was not found, but not all could be searched: a file of process %d is too large, or too costly to "
			"read; give an address",
			q->text, (int)q->pid);

	if (deleted)
		return ctl_fail(
			q->ctl, EXIT_NOT_FOUND, "not_found",
			"'%s' was not found, but %s could not be read: it was deleted or replaced since process %d mapped it, and of such "
			"files you may read the program itself, and only root the libraries; ask root, or give an address",
			q->text, deleted, (int)q->pid);
	if (q->file[0]) {
		const uint64_t next = field_number(q->stats, "next_line");

		if (next)
			return ctl_fail(
				q->ctl, EXIT_NOT_FOUND, "not_found",
				"line %" PRIu64
				" of %s has no code; the next one that has some is line %" PRIu64,
				q->line, q->file, next);
		if (json_object_get_boolean(field(q->stats, "file_known")))
			return ctl_fail(q->ctl, EXIT_NOT_FOUND, "not_found",
					"%s has no code at line %" PRIu64 " or after it", q->file,
					q->line);
		return ctl_fail(
			q->ctl, EXIT_NOT_FOUND, "not_found",
			has_program(list_of(q, "without_lines"))
				? "no code of process %d comes from a file %s: %s has no debug information; compile it with -g, or "
				  "install its debug symbols"
				: "no code of process %d comes from a file %s, as far as debug information says (%s has some)",
			(int)q->pid, q->file, program);
	}
	if (!q->symbol[0])
		return ctl_fail(q->ctl, EXIT_FAILED, "io",
				"cannot read %s, which has the code at 0x%" PRIx64, program,
				q->address);
	if (field_number(q->stats, "inlined"))
		return ctl_fail(
			q->ctl, EXIT_NOT_FOUND, "not_found",
			"no function '%s' in process %d: the compiler has inlined all calls of it (%" PRIu64
			"); give FILE:LINE of a line in it",
			q->symbol, (int)q->pid, field_number(q->stats, "inlined"));
	if (has_program(list_of(q, "unread")))
		return ctl_fail(q->ctl, EXIT_NOT_FOUND, "not_found",
				"no function '%s': %s cannot be read, or is another file by now",
				q->symbol, program);
	if (has_program(list_of(q, "stripped")))
		return ctl_fail(
			q->ctl, EXIT_NOT_FOUND, "not_found",
			"no function '%s' in process %d: %s has no symbol table (it is stripped); install its debug symbols, or give an "
			"address%s",
			q->symbol, (int)q->pid, program, hint);
	limit = large ? human_format(
				"; the debug information of %s is too large to be searched for inlined calls to its end",
				large)
		      : human_format("%s", "");
	return ctl_fail(q->ctl, EXIT_NOT_FOUND, "not_found", "no function '%s' in process %d%s%s",
			q->symbol, (int)q->pid, hint, limit);
}

int place_find(struct ctl *ctl, pid_t pid, const char *text, struct places *ret)
{
	_cleanup_(query_fini) struct query q = {
		.ctl = ctl,
		.pid = pid,
		.text = text,
		.code = EXIT_FAILED,
		.proc = PROC_INIT,
		.files = {
			.bundle_fd = -1,
			.images_fd = -1,
			.symfs_fd = -1,
			.root_fd = -1,
			.mapped_fd = -1,
			.root_source = OPENER_TARGET,
			.strict = true,
			.uid = geteuid(),
		},
	};
	_cleanup_(places_fini) struct places places = {0};
	struct json_object *list;
	int r;

	r = parse(&q);
	if (r == EXIT_OK)
		r = look_at_process(&q);
	if (r == EXIT_OK)
		r = ask(&q);
	if (r != EXIT_OK)
		return r;
	list = list_of(&q, "places");
	for (size_t i = 0; i < length_of(list); i++)
		if (add_place(&q, json_object_array_get_idx(list, i), &places) < 0)
			return ctl_report(ctl, -ENOMEM, NULL);
	if (q.by_address && has_program(list_of(&q, "unread")) && add_address(&q, &places) < 0)
		return ctl_report(ctl, -ENOMEM, NULL);
	if (places.n == 0)
		return not_found(&q);
	places.more = json_object_get_boolean(field(q.stats, "more"));
	places.inlined = field_number(q.stats, "inlined");
	places.unsearched = unsearched(&q);
	if (length_of(list_of(&q, "copies")))
		places.copies = names_of(&q, "copies", "");
	if (has_chooser(&places))
		return is_chooser(&q);
	*ret = places;
	places = (struct places){0};
	return EXIT_OK;
}

void place_note_others(struct ctl *ctl, const struct places *places, const char *text,
		       const char *is_not)
{
	_cleanup_free_ char *name = human_name(text);

	if (places->inlined)
		ctl_note(
			ctl,
			"the compiler has inlined %" PRIu64
			" call%s of %s, which %s %s; FILE:LINE of a line in it lists their addresses",
			places->inlined, places->inlined == 1 ? "" : "s", name,
			places->inlined == 1 ? "is" : "are", is_not);
	if (places->unsearched)
		ctl_note(
			ctl,
			"the debug information of %s is too large to be searched for inlined calls of %s to its end; those that were not "
			"found are %s",
			places->unsearched, name, is_not);
	if (places->copies)
		ctl_note(ctl, "the compiler has made copies of %s, whose calls are %s: %s", name,
			 is_not, places->copies);
}

int place_find_one(struct ctl *ctl, pid_t pid, const char *text, struct places *ret)
{
	_cleanup_(places_fini) struct places places = {0};
	_cleanup_free_ char *all = human_format("%s", "");
	int r;

	r = place_find(ctl, pid, text, &places);
	if (r != EXIT_OK)
		return r;
	if (places.n == 1 && !places.more) {
		*ret = places;
		places = (struct places){0};
		return EXIT_OK;
	}
	for (size_t i = 0; i < places.n; i++) {
		const struct place *p = &places.v[i];
		_cleanup_free_ char *old = all, *name = human_name(p->name),
				    *path = human_name(p->path);

		all = human_format("%s%s0x%" PRIx64 " %s in %s%s", old, i ? ", " : "", p->address,
				   *p->name ? name : "?", path,
				   p->chooser ? " (only chooses an implementation)" : "");
	}
	return ctl_fail(
		ctl, EXIT_USAGE, "ambiguous",
		"'%s' is in %s%zu places; give FUNCTION@FILE or the address of one of them: %s%s",
		text, places.more ? "more than " : "", places.n, all, places.more ? ", ..." : "");
}
