// SPDX-License-Identifier: Apache-2.0
#include "daemon/target/image.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/queue.h>
#include <sys/stat.h>

#include "common/base/io.h"
#include "common/base/log.h"
#include "common/base/procfs.h"
#include "daemon/base/closer.h"
#include "daemon/base/readers.h"
#include "daemon/caps.h"
#include "daemon/control/quota.h"
#include "daemon/target/opening.h"

#define N_BUCKETS 1024
/* a file that cannot be opened is not asked for with every mapping */
#define RETRY_NS 1000000000ull
/* nor one of which nobody has answered, without a mapping: twice that the second time, and so on */
#define DUE_NS 10000000000ull
#define TRIES_MAX 7

struct look;

struct image {
	LIST_ENTRY(image) link;
	struct images *images; /* where it is counted; outlives it */
	unsigned int refs;
	int fd; /* -1: not open */
	struct image_key key;
	struct cred *cred; /* with whose rights it was opened */
	enum image_frames frames;
	struct look *look;	 /* while map_files is looked at */
	struct opening *opening; /* while it is asked for */
	char *why;		 /* not opened; NULL, also where there was no memory for it */
	bool unanswered;
	unsigned int tries;
	uint64_t tried_ns;
	struct filenote note; /* of it when it was opened */
	bool suid_mount, copied;
	struct quota_charge copy; /* what is in memory of it */
};

/*
 * What map_files says, on a thread: the process can hold the lock of its memory map that this
 * takes.
 */
struct look {
	struct reader_job job; /* first */
	struct image *image;   /* NULL: nobody waits for it */
	struct file_request file;
	int root_fd; /* owned */
	/* the thread's */
	int proc_dirfd; /* owned */
	char name[64];
	int fd; /* owned; or -errno */
};

struct root {
	LIST_ENTRY(root) link;
	struct closer *closer; /* not owned */
	unsigned int refs;
	int fd;
	uint64_t mount, ino; /* 0: not known, not shared */
};

struct images {
	LIST_HEAD(, image) buckets[N_BUCKETS];
	LIST_HEAD(, root) roots;
	struct closer *closer; /* not owned */
	size_t n, max;
	bool map_files_refused, were_unanswered;
	struct openings *openings;
	struct readers *readers; /* NULL: nothing is opened */
	struct quota *quota;
	void (*settled)(void *arg);
	void *arg;
};

int images_new(struct event_base *base, struct closer *closer, size_t max,
	       struct openings *openings, struct quota *quota, void (*settled)(void *arg),
	       void *arg, struct images **ret)
{
	struct images *images = calloc(1, sizeof(*images));
	int r;

	if (!images)
		return -ENOMEM;
	images->closer = closer;
	images->max = max;
	images->openings = openings;
	images->quota = quota;
	images->settled = settled;
	images->arg = arg;
	r = openings ? readers_new(base, &images->readers) : 0;
	if (r < 0) {
		free(images);
		return r;
	}
	*ret = images;
	return 0;
}

struct images *images_free(struct images *images)
{
	if (!images)
		return NULL;
	(void)readers_free(images->readers);
	free(images);
	return NULL;
}

size_t images_hanging(const struct images *images)
{
	return images->readers ? readers_hanging(images->readers) : 0;
}

size_t images_count(const struct images *images)
{
	return images->n;
}

bool images_were_unanswered(struct images *images)
{
	const bool were = images->were_unanswered;

	images->were_unanswered = false;
	return were;
}

bool images_by_map_files(const struct images *images)
{
	return !images->map_files_refused;
}

static size_t bucket_of(const struct image_key *key)
{
	uint64_t h = (key->ino * 0x9e3779b97f4a7c15ULL) ^ ((uint64_t)key->maj << 20 | key->min);

	return (size_t)(h >> 17) % N_BUCKETS;
}

static bool key_equal(const struct image_key *a, const struct image_key *b)
{
	return a->ino == b->ino && a->maj == b->maj && a->min == b->min;
}

/* `unanswered`: nobody has said so, and somebody may later. */
static void failed(struct image *image, const char *why, bool unanswered)
{
	free(image->why);
	image->why = strdup(why);
	image->unanswered = unanswered;
	image->images->were_unanswered |= unanswered;
	/* nobody can find out any more */
	if (image->frames == IMAGE_FRAMES_UNKNOWN)
		image->frames = IMAGE_FRAMES_NO_VERDICT;
	log_debug("image %u:%u/%llu: %s", image->key.maj, image->key.min,
		  (unsigned long long)image->key.ino, why);
}

static void on_opened(void *arg, const struct opener_reply *answer, int fd)
{
	struct image *image = arg;
	struct images *images = image->images;
	int r = 0;

	image->opening = NULL;
	if (fd >= 0 && answer->copied)
		r = quota_charge(images->quota, image->cred->uid, QUOTA_IMAGE_BYTES,
				 (uint64_t)answer->answer.stat.st_size, &image->copy);
	if (fd < 0) {
		failed(image, answer->answer.why, !answer->id);
	} else if (r != 0) {
		(void)close_fd(fd);
		failed(image,
		       r < 0 ? strerror(-r)
			     : "copies of this user's files take too much memory (uid_image_mib)",
		       false);
	} else {
		image->fd = fd;
		image->note =
			(struct filenote){.mtime_ns = filenote_ns(&answer->answer.stat.st_mtim),
					  .size = (uint64_t)answer->answer.stat.st_size,
					  .has_head = answer->has_head};
		memcpy(image->note.head, answer->head, sizeof(image->note.head));
		image->suid_mount = answer->suid_mount;
		image->copied = answer->copied;
		image->frames = IMAGE_FRAMES_UNKNOWN;
	}
	if (images->settled)
		images->settled(images->arg);
}

static void ask_opener(struct image *image, const struct file_request *file, int root_fd,
		       int mapped_fd)
{
	struct openings *openings = image->images->openings;
	const struct opening_request request = {.cred = image->cred,
						.file = file,
						.max_copy = OPENING_MAX_COPY,
						.root_fd = root_fd,
						.mapped_fd = mapped_fd};
	int r = openings ? opening_start(openings, &request, on_opened, image, &image->opening)
			 : -ENOSYS;

	if (r < 0)
		failed(image, strerror(-r), r != -ENOSYS);
}

/* ---- what map_files says */

static void look_free(struct look *look)
{
	(void)close_fd(look->root_fd);
	(void)close_fd(look->proc_dirfd);
	(void)close_fd(look->fd);
	free(look);
}

/*
 * The mapping itself names the file, whatever has become of its path; needs a capability. O_PATH:
 * nothing is opened, so no file system can hang it, and no right is used.
 */
static void look_run(struct reader_job *job)
{
	struct look *look = (struct look *)job;

	caps_look_into_folders(true);
	look->fd = openat(look->proc_dirfd, look->name, O_PATH | O_CLOEXEC);
	if (look->fd < 0)
		look->fd = -errno;
	caps_look_into_folders(false);
}

static void look_end(struct look *look, int mapped_fd)
{
	struct image *image = take_ptr(look->image);

	image->look = NULL;
	ask_opener(image, &look->file, look->root_fd, mapped_fd);
	if (!image->opening && image->images->settled)
		image->images->settled(image->images->arg);
}

static void look_done(struct reader_job *job)
{
	struct look *look = (struct look *)job;

	if (look->image) {
		if (look->fd == -EPERM)
			look->image->images->map_files_refused = true;
		look_end(look, look->fd);
	}
	look_free(look);
}

/* Then by its path. */
static void look_hangs(struct reader_job *job)
{
	struct look *look = (struct look *)job;

	if (look->image)
		look_end(look, -1);
}

static bool look_begin(struct image *image, const struct image_request *q,
		       const struct file_request *file)
{
	struct readers *readers = image->images->readers;
	struct look *look;

	if (!readers || image->images->map_files_refused || q->proc_dirfd < 0 ||
	    !readers_may(readers, image->cred->uid))
		return false;
	look = calloc(1, sizeof(*look));
	if (!look)
		return false;
	look->job = (struct reader_job){
		.run = look_run, .done = look_done, .hangs = look_hangs, .uid = image->cred->uid};
	look->file = *file;
	look->fd = -1;
	look->root_fd = q->root ? fcntl(q->root->fd, F_DUPFD_CLOEXEC, 3) : -1;
	look->proc_dirfd = fcntl(q->proc_dirfd, F_DUPFD_CLOEXEC, 3);
	if (look->proc_dirfd < 0 || (q->root && look->root_fd < 0)) {
		look_free(look);
		return false;
	}
	(void)snprintf(look->name, sizeof(look->name), "map_files/%llx-%llx",
		       (unsigned long long)q->start, (unsigned long long)q->end);
	look->image = image;
	image->look = look;
	readers_submit(readers, &look->job);
	return true;
}

static void ask(struct image *image, const struct image_request *q)
{
	struct file_request file = {.kind = FILE_REQUEST_OBJECT,
				    .maj = q->key.maj,
				    .min = q->key.min,
				    .ino = q->key.ino,
				    .pid = q->pid};

	free(take_ptr(image->why));
	image->unanswered = false;
	image->tries++;
	image->tried_ns = io_now_ns();
	(void)snprintf(file.path, sizeof(file.path), "%s", q->path);
	if (!look_begin(image, q, &file))
		ask_opener(image, &file, q->root ? q->root->fd : -1, -1);
}

int image_get(struct images *images, const struct image_request *q, struct image **ret)
{
	const size_t bucket = bucket_of(&q->key);
	struct image *image;

	LIST_FOREACH(image, &images->buckets[bucket], link) {
		if (!key_equal(&image->key, &q->key) || !cred_equal(image->cred, q->cred))
			continue;
		if (image_missing(image) && io_now_ns() - image->tried_ns > RETRY_NS)
			ask(image, q);
		*ret = image_ref(image);
		return 0;
	}
	if (images->n >= images->max)
		return -ENFILE;
	if (q->path[0] != '/')
		return -ENOENT;
	image = calloc(1, sizeof(*image));
	if (!image)
		return -ENOMEM;
	image->images = images;
	image->refs = 1;
	image->key = q->key;
	image->cred = cred_ref(q->cred);
	image->fd = -1;
	LIST_INSERT_HEAD(&images->buckets[bucket], image, link);
	images->n++;
	ask(image, q);
	*ret = image;
	return 0;
}

struct image *image_ref(struct image *image)
{
	image->refs++;
	return image;
}

struct image *image_put(struct image *image)
{
	if (!image || --image->refs > 0)
		return NULL;
	LIST_REMOVE(image, link);
	image->images->n--;
	if (image->look)
		image->look->image = NULL;
	image->opening = opening_cancel(image->opening);
	quota_release(&image->copy);
	closer_close_fd(image->images->closer, image->fd);
	(void)cred_unref(image->cred);
	free(image->why);
	free(image);
	return NULL;
}

int image_fd(const struct image *image)
{
	return image->fd;
}

bool image_is_opening(const struct image *image)
{
	return image->look || image->opening;
}

const char *image_missing(const struct image *image)
{
	return image->fd < 0 && !image_is_opening(image) ? image->why ? image->why : "out of memory"
							 : NULL;
}

bool image_is_unanswered(const struct image *image)
{
	return image->unanswered && image->tries < TRIES_MAX;
}

bool image_is_due(const struct image *image)
{
	/* While a worker hangs in it, another one would, too, and then the user has none left. */
	return image_is_unanswered(image) &&
	       io_now_ns() - image->tried_ns >= DUE_NS << (image->tries - 1) &&
	       !openings_hang(image->images->openings, image->cred->uid);
}

const struct image_key *image_key(const struct image *image)
{
	return &image->key;
}

const uint8_t *image_head(const struct image *image)
{
	const struct filenote *note = image_note(image);

	return note && note->has_head && image->suid_mount ? note->head : NULL;
}

const struct filenote *image_note(const struct image *image)
{
	return image->fd >= 0 && !image->copied ? &image->note : NULL;
}

enum image_frames image_frames(const struct image *image)
{
	return image->frames;
}

void image_set_frames(struct image *image, enum image_frames frames)
{
	image->frames = frames;
}

int root_get(struct images *images, int proc_dirfd, struct root **ret)
{
	char path[PROC_MEMORY_PATH], name[PROC_MEMORY_PATH + 8];
	_cleanup_close_ int fd = -1;
	struct statx stx = {0};
	struct root *root;

	/* A main thread that has ended has no root directory, either. */
	if (proc_memory_path(proc_dirfd, path) < 0)
		path[0] = '\0';
	(void)snprintf(name, sizeof(name), "%sroot", path);
	fd = openat(proc_dirfd, name, O_PATH | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -errno;
	/* DONT_SYNC: what the kernel knows. The server of the file system might not answer. */
	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_INO | STATX_MNT_ID, &stx) < 0)
		stx.stx_ino = 0;
	LIST_FOREACH(root, &images->roots, link) {
		if (stx.stx_ino && root->ino == stx.stx_ino && root->mount == stx.stx_mnt_id) {
			*ret = root_ref(root);
			return 0;
		}
	}
	root = calloc(1, sizeof(*root));
	if (!root)
		return -ENOMEM;
	root->closer = images->closer;
	root->refs = 1;
	root->ino = stx.stx_ino;
	root->mount = stx.stx_mnt_id;
	root->fd = take_fd(&fd);
	LIST_INSERT_HEAD(&images->roots, root, link);
	*ret = root;
	return 0;
}

struct root *root_ref(struct root *root)
{
	root->refs++;
	return root;
}

struct root *root_put(struct root *root)
{
	if (!root || --root->refs > 0)
		return NULL;
	LIST_REMOVE(root, link);
	closer_close_fd(root->closer, root->fd);
	free(root);
	return NULL;
}

int root_fd(const struct root *root)
{
	return root->fd;
}

int image_vdso(int *ret_fd)
{
	_cleanup_free_ char *maps = NULL;
	_cleanup_close_ int fd = -1;
	unsigned long address = getauxval(AT_SYSINFO_EHDR);
	struct proc_map map;
	size_t len, pos = 0;
	int r;

	if (!address)
		return -ENOENT;
	r = io_read_file_at(AT_FDCWD, "/proc/self/maps", PROC_MAPS_BYTES_MAX, &maps, &len);
	if (r < 0)
		return r;
	do {
		r = proc_map_next(maps, len, &pos, &map);
		if (r == 0)
			return -ENOENT;
	} while (r < 0 || map.start != address);

	fd = io_memfd("tracerd-vdso");
	if (fd < 0)
		return fd;
	r = io_write_all(fd, (const void *)address, (size_t)(map.end - map.start));
	if (r < 0)
		return r;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL) < 0)
		return -errno;
	*ret_fd = take_fd(&fd);
	return 0;
}
