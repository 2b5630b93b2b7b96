// SPDX-License-Identifier: Apache-2.0
#include "common/bundle/bundle.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/base/escape.h"
#include "common/base/io.h"
#include "common/base/safefile.h"
#include "common/control/json.h"

static int open_optional(int dir_fd, const char *name, int *ret_fd)
{
	uint64_t size;
	int r;

	r = safefile_open(dir_fd, name, ret_fd, &size);
	return r == -ENOENT || r == -ENOTDIR ? 0 : r;
}

static int read_meta(int fd, struct json_object **ret)
{
	_cleanup_json_ struct json_object *meta = NULL;
	_cleanup_free_ char *text = NULL;
	struct stat st;
	uint64_t format;
	ssize_t n;
	int r;

	if (fstat(fd, &st) < 0)
		return -errno;
	if (st.st_size <= 0 || st.st_size > BUNDLE_MAX_META)
		return -EPROTO;
	text = malloc((size_t)st.st_size);
	if (!text)
		return -ENOMEM;
	n = io_pread_full(fd, text, (size_t)st.st_size, 0);
	if (n < 0)
		return (int)n;
	r = json_parse(text, (size_t)n, BUNDLE_MAX_META, &meta, NULL, 0);
	if (r < 0)
		return r;
	if (r != 0 || !json_object_is_type(meta, json_type_object))
		return -EPROTO;
	if (!json_get_uint(meta, "format", &format) || format == 0 || format > BUNDLE_FORMAT)
		return -EPROTO;
	*ret = take_ptr(meta);
	return 0;
}

int bundle_open(int dir_fd, struct bundle *ret)
{
	struct bundle b = BUNDLE_INIT;
	struct stat st;
	int r;

	b.dir_fd = fcntl(dir_fd, F_DUPFD_CLOEXEC, 3);
	if (b.dir_fd < 0)
		return -errno;
	r = open_optional(b.dir_fd, BUNDLE_META, &b.meta_fd);
	if (r == 0)
		r = open_optional(b.dir_fd, BUNDLE_PERFDATA, &b.perfdata_fd);
	if (r == 0)
		r = open_optional(b.dir_fd, BUNDLE_GO, &b.go_fd);
	if (r == 0)
		r = open_optional(b.dir_fd, BUNDLE_VDSO, &b.vdso_fd);
	if (r == 0)
		r = open_optional(b.dir_fd, BUNDLE_KALLSYMS, &b.kallsyms_fd);
	if (r == 0)
		r = open_optional(b.dir_fd, BUNDLE_KCORE, &b.kcore_fd);
	if (r == 0) {
		b.images_fd = openat(b.dir_fd, BUNDLE_IMAGES,
				     O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
		if (b.images_fd < 0 && errno != ENOENT)
			r = -errno;
	}
	b.has_rings = fstatat(b.dir_fd, BUNDLE_RINGS, &st, AT_SYMLINK_NOFOLLOW) == 0 &&
		      S_ISDIR(st.st_mode);
	if (r == 0 && b.perfdata_fd < 0 && b.go_fd < 0 && !b.has_rings)
		r = -ENOENT;
	if (r == 0 && b.meta_fd >= 0)
		r = read_meta(b.meta_fd, &b.meta);
	if (r < 0) {
		bundle_close(&b);
		return r;
	}
	*ret = b;
	return 0;
}

void bundle_close(struct bundle *b)
{
	close_fdp(&b->dir_fd);
	close_fdp(&b->meta_fd);
	close_fdp(&b->perfdata_fd);
	close_fdp(&b->vdso_fd);
	close_fdp(&b->go_fd);
	close_fdp(&b->kallsyms_fd);
	close_fdp(&b->kcore_fd);
	close_fdp(&b->images_fd);
	json_object_put(b->meta);
	b->meta = NULL;
}

struct job {
	struct json_object *inputs;
	int *fds;
	size_t n;
};

static void job_add(struct job *j, const char *name, int fd)
{
	if (fd < 0)
		return;
	json_append_string(j->inputs, name);
	j->fds[j->n++] = fd;
}

static struct json_object *job_new(const char *input, const char *format,
				   struct json_object *options, struct job *j, int *fds)
{
	struct json_object *body = json_object_new_object();

	*j = (struct job){.fds = fds};
	if (body) {
		json_add_string(body, "input", input);
		json_add_string(body, "format", format);
		j->inputs = json_add_new_array(body, "inputs");
	}
	if (!body || !j->inputs) {
		json_object_put(body);
		json_object_put(options);
		return NULL;
	}
	json_add(body, "options", options);
	return body;
}

int bundle_job(const struct bundle *b, const char *format, int out_fd, struct json_object *options,
	       struct json_object **ret_body, int ret_fds[BUNDLE_MAX_JOB_FDS], size_t *ret_n_fds)
{
	struct json_object *body;
	struct job j;

	body = job_new("bundle", format, options, &j, ret_fds);
	if (!body)
		return -ENOMEM;
	job_add(&j, BUNDLE_PERFDATA, b->perfdata_fd);
	job_add(&j, BUNDLE_META, b->meta_fd);
	job_add(&j, BUNDLE_VDSO, b->vdso_fd);
	job_add(&j, BUNDLE_GO, b->go_fd);
	job_add(&j, BUNDLE_KALLSYMS, b->kallsyms_fd);
	job_add(&j, BUNDLE_KCORE, b->kcore_fd);
	job_add(&j, "out", out_fd);
	*ret_body = body;
	*ret_n_fds = j.n;
	return 0;
}

int bundle_job_perfdata(int in_fd, const char *format, int out_fd, struct json_object *options,
			struct json_object **ret_body, int ret_fds[BUNDLE_MAX_JOB_FDS],
			size_t *ret_n_fds)
{
	struct json_object *body;
	struct job j;

	body = job_new("perfdata", format, options, &j, ret_fds);
	if (!body)
		return -ENOMEM;
	job_add(&j, BUNDLE_PERFDATA, in_fd);
	job_add(&j, "out", out_fd);
	*ret_body = body;
	*ret_n_fds = j.n;
	return 0;
}

int bundle_job_go(int in_fd, const char *format, int out_fd, struct json_object *options,
		  struct json_object **ret_body, int ret_fds[BUNDLE_MAX_JOB_FDS], size_t *ret_n_fds)
{
	struct json_object *body;
	struct job j;

	body = job_new("go", format, options, &j, ret_fds);
	if (!body)
		return -ENOMEM;
	job_add(&j, BUNDLE_GO, in_fd);
	job_add(&j, "out", out_fd);
	*ret_body = body;
	*ret_n_fds = j.n;
	return 0;
}

void bundle_job_scratch(struct json_object *body, int fd, int fds[BUNDLE_MAX_JOB_FDS],
			size_t *n_fds)
{
	json_append_string(json_get_array(body, "inputs"), "scratch");
	fds[(*n_fds)++] = fd;
}

bool bundle_name_is_valid(const char *name)
{
	char escaped[PATH_MAX];
	unsigned depth = 0;
	size_t len = strlen(name);

	if (len >= PATH_MAX)
		return false;
	/* Names go out as JSON, so they are text: what would have to be escaped is not taken. */
	if (escape_text(escaped, sizeof(escaped), name, len) != len || memcmp(escaped, name, len))
		return false;
	for (const char *p = name;; p++) {
		size_t n = strcspn(p, "/");

		if (n == 0 || n > NAME_MAX || (n == 1 && p[0] == '.') ||
		    (n == 2 && p[0] == '.' && p[1] == '.'))
			return false;
		if (++depth > BUNDLE_MAX_DEPTH)
			return false;
		p += n;
		if (!*p)
			return true;
	}
}

/* ---- listing: names of all files, collected without recursion, then sorted */

struct list {
	char **names;
	uint64_t *sizes;
	size_t n;
};

static int list_add(struct list *l, char *name /* taken over */, uint64_t size)
{
	char **names;
	uint64_t *sizes;

	if (l->n == BUNDLE_MAX_FILES) {
		free(name);
		return -E2BIG;
	}
	if (l->n % 64 == 0) {
		names = reallocarray(l->names, l->n + 64, sizeof(*names));
		if (names)
			l->names = names;
		sizes = reallocarray(l->sizes, l->n + 64, sizeof(*sizes));
		if (sizes)
			l->sizes = sizes;
		if (!names || !sizes) {
			free(name);
			return -ENOMEM;
		}
	}
	l->names[l->n] = name;
	l->sizes[l->n++] = size;
	return 0;
}

static void list_fini(struct list *l)
{
	for (size_t i = 0; i < l->n; i++)
		free(l->names[i]);
	free(l->names);
	free(l->sizes);
}

/*
 * Reads the directory `prefix` ("" is the top): its files go to `files`, its directories to `dirs`.
 */
static int list_directory(int dir_fd, const char *prefix, struct list *files, struct list *dirs)
{
	_cleanup_close_ int fd = openat(dir_fd, *prefix ? prefix : ".",
		O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
	struct dirent *e;
	int r = 0;

	if (!dir)
		return -errno;
	(void)take_fd(&fd);
	while (r == 0 && (e = readdir(dir)) != NULL) {
		struct stat st;
		char *name;

		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, ".."))
			continue;
		if (fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0)
			continue;
		if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
			continue;
		if (asprintf(&name, "%s%s%s", prefix, *prefix ? "/" : "", e->d_name) < 0) {
			r = -ENOMEM;
			break;
		}
		if (!bundle_name_is_valid(name)) {
			free(name);
			continue;
		}
		r = list_add(S_ISDIR(st.st_mode) ? dirs : files, name, (uint64_t)st.st_size);
	}
	(void)closedir(dir);
	return r;
}

struct named {
	const char *name;
	uint64_t size;
};

static int compare_named(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

int bundle_files(int dir_fd, bundle_file_fn fn, void *arg)
{
	struct list files = {0}, dirs = {0};
	struct named *sorted = NULL;
	int r;

	r = list_directory(dir_fd, "", &files, &dirs);
	for (size_t i = 0; r == 0 && i < dirs.n; i++)
		r = list_directory(dir_fd, dirs.names[i], &files, &dirs);
	if (r == 0 && files.n > 0) {
		sorted = calloc(files.n, sizeof(*sorted));
		if (!sorted)
			r = -ENOMEM;
	}
	if (sorted) {
		for (size_t i = 0; i < files.n; i++)
			sorted[i] = (struct named){files.names[i], files.sizes[i]};
		qsort(sorted, files.n, sizeof(*sorted), compare_named);
		for (size_t i = 0; r == 0 && i < files.n; i++)
			r = fn(arg, sorted[i].name, sorted[i].size);
	}
	free(sorted);
	list_fini(&files);
	list_fini(&dirs);
	return r;
}
