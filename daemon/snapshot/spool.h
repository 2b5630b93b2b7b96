/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The spool: state_dir/spool/ID, one directory a published snapshot, 0700, written by nobody else.
 * Owns the list of them (re-read from disk at start, where half-made ones are removed), what their
 * owners are charged for them, retention and the reading of their files. Knows a snapshot by id,
 * owner, size and time only; what it says is its meta.json, read once.
 *
 * What is removed is out of reach at once, under another name, but stays an item and charged until
 * its tree is gone. That is when nobody has a descriptor of it any more; after limits.hold_ns the
 * files are made empty under whoever has.
 *
 * Threat: only tracerd writes file names here; even so they are opened without following links, and
 * a client may name only files that the list has.
 */
#pragma once

#include <json-c/json.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "common/base/cleanup.h"
#include "daemon/control/quota.h"

#define SPOOL_ID_LEN 20 /* "20261121-101500-3f9a" */

struct spool_limits {
	uint64_t max_bytes;	/* of all; 0: none (as for the others) */
	uint64_t max_age_ns;
	uint64_t max_count;
	unsigned keep_free_percent; /* of the file system */
	/* of one owner; root and `exempt` have only the limits of the whole */
	uint64_t uid_bytes;
	uid_t exempt;		/* the daemon's own */
	uint64_t hold_ns;	/* how long a removed one waits for those who have its files open */
};

enum spool_item_state {
	SPOOL_KEPT,
	SPOOL_LEAVING, /* removed; nobody has it open, so the next purge frees its bytes */
	SPOOL_HELD,    /* removed; somebody has it open, or had when that was last looked at */
};

struct spool_item {
	char id[SPOOL_ID_LEN + 1];
	uid_t owner;
	uint64_t bytes;
	uint64_t published_ns;	  /* REALTIME */
	/*
	 * "snapshot" of its meta.json where it was found at start, else NULL; borrowed by readers
	 */
	struct json_object *info;
	enum spool_item_state state;

	/* the spool's own */
	struct quota_charge charge;
	bool handed_out;     /* a descriptor of it left the daemon */
	bool in_purge;	     /* a purge has it now */
	uint64_t removed_ns; /* MONOTONIC */
};

struct spool;
struct spool_purge;

/* Called before an item is removed by retention or delete. */
typedef void (*spool_removed_fn)(void *arg, const struct spool_item *item, const char *why);

/*
 * Opens (makes) state_dir/spool, sweeps what is half-made and reads the list. -EBUSY: another
 * daemon has it.
 */
int spool_open(const char *state_dir, const struct spool_limits *limits, struct quota *quota,
	       struct spool **ret) _must_check_;
void spool_close(struct spool *s);
DEFINE_CLEANUP(struct spool *, spool_close)

void spool_set_removed(struct spool *s, spool_removed_fn fn, void *arg);

int spool_dir_fd(const struct spool *s); /* borrowed */
size_t spool_count(const struct spool *s); /* kept ones */
/* What is on the disk: kept, and removed but still there. */
uint64_t spool_bytes(const struct spool *s);
uint64_t spool_uid_bytes(const struct spool *s, uid_t uid);
size_t spool_removing(const struct spool *s, uint64_t *ret_bytes);
/* All of the disk, oldest first; NULL after the last. */
const struct spool_item *spool_at(const struct spool *s, size_t i);
const struct spool_item *spool_find(const struct spool *s, const char *id); /* a kept one */

/* A new id from the time and random bits, not in use. */
void spool_new_id(const struct spool *s, char ret[SPOOL_ID_LEN + 1]);
bool spool_id_is_valid(const char *id);

/* All that can fail of adding one is done before it gets its name on disk. */
int spool_reserve(struct spool *s, const char *id, uid_t owner,
		  struct spool_item **ret) _must_check_;
/* Adds what was just renamed into the directory; takes over `item`. */
void spool_add(struct spool *s, struct spool_item *item, uint64_t bytes, uint64_t published_ns);
void spool_unreserve(struct spool *s, struct spool_item *item); /* NULL is fine */

/*
 * Moves its directory to another name, so that it is gone at once for everybody; the tree itself is
 * removed by a purge. -ENOENT.
 */
int spool_remove(struct spool *s, const char *id, const char *why) _must_check_;

/*
 * A purge removes the trees of removed items: all that are there when it begins and that no other
 * purge has. NULL: none are, or no memory. The first and the last part run on the loop, the middle
 * on the copier thread. spool_make_room() takes SPOOL_LEAVING for free, so a purge must run before
 * what room was made for. Begin one again while spool_removing().
 */
struct spool_purge *spool_purge_begin(struct spool *s);
void spool_purge_run(struct spool_purge *p);
void spool_purge_end(struct spool_purge *p); /* frees it; NULL is fine */

enum { SPOOL_E_NO_SPACE = 1, SPOOL_E_QUOTA };

/*
 * Makes room for `bytes` more of `owner` by removing old items as retention says: of the owner's
 * own if the owner's share is what is short, else of the owner who holds most. SPOOL_E_QUOTA where
 * it is still more than the owner may have, SPOOL_E_NO_SPACE where the file system would still be
 * too full. What is removed but held makes no room.
 */
int spool_make_room(struct spool *s, uid_t owner, uint64_t bytes) _must_check_;

/*
 * Applies age, count and size with nothing to add, and the share of `owner`, who has just got one
 * (0: of nobody; the last one of an owner does not go for the share). Returns how many were
 * removed.
 */
unsigned spool_expire(struct spool *s, uint64_t now_ns, uid_t owner);

/*
 * The rule by itself: which of `items` (oldest first) goes first so that `incoming` bytes of
 * `owner` fit. The index, or -1: nothing has to go, or nothing can. Only kept ones go; held ones
 * count.
 */
struct spool_usage {
	uint64_t free_bytes, total_bytes; /* of the file system */
	uint64_t now_ns;		  /* REALTIME */
};
ssize_t spool_pick_victim(const struct spool_item *const *items, size_t n,
			  const struct spool_limits *limits, const struct spool_usage *usage,
			  uid_t owner, uint64_t incoming);

/*
 * The files of an item: [{"name","size"}]; and one of them, read-only. -ENOENT for a name that is
 * not listed.
 */
int spool_files(const struct spool *s, const char *id, struct json_object **ret) _must_check_;
int spool_open_file(struct spool *s, const char *id, const char *name, int *ret_fd,
		    uint64_t *ret_size) _must_check_;
