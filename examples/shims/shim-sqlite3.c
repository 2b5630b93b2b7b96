// SPDX-License-Identifier: Apache-2.0
/*
 * Regions around the statements of any program that uses the shared library of SQLite, without a change to
 * the program:
 *
 *	LD_PRELOAD=shim-sqlite3.so sqlite3 big.db &
 *	tracectl arm $!
 *	tracectl trigger add $! --region sqlite3_step --over 50ms
 *
 * From then on each statement that takes 50 ms or more leaves a snapshot: what ran and waited before and
 * while it was slow, and as the region's argument which statement it was.
 *
 *	region            argument
 *	sqlite3_prepare   sql: the text, its first 400 bytes
 *	sqlite3_step      sql: of the statement; one region a row, so a long query is many
 *	sqlite3_exec      sql
 *
 * Build your own like this: functions of the library's names, each of which finds the real one with
 * dlsym(RTLD_NEXT), and a constructor that calls tracerd_start(). SQLite's header is not needed.
 *
 *	cc -O2 -shared -fPIC -o shim-sqlite3.so shim-sqlite3.c $(pkg-config --cflags --libs tracerd) -ldl
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

#include <tracerd.h>

#define SQL_MAX 400u

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

/* The library's own, found before the program's first statement. */
static struct {
	int (*prepare_v2)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
	int (*step)(sqlite3_stmt *);
	int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
	const char *(*sql)(sqlite3_stmt *);
} real;

static tracerd_name name_prepare, name_step, name_exec, key_sql;

int sqlite3_prepare_v2(sqlite3 *db, const char *sql, int bytes, sqlite3_stmt **ret, const char **ret_tail);
int sqlite3_step(sqlite3_stmt *statement);
int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *arg, char **ret_error);

static void find(const char *name, void *ret)
{
	void *symbol = dlsym(RTLD_NEXT, name);

	memcpy(ret, &symbol, sizeof(symbol));
}

__attribute__((constructor)) static void begin(void)
{
	find("sqlite3_prepare_v2", &real.prepare_v2);
	find("sqlite3_step", &real.step);
	find("sqlite3_exec", &real.exec);
	find("sqlite3_sql", &real.sql);
	/* A program that is preloaded with this and has no SQLite has nothing to tell. */
	if (!real.step)
		return;
	name_prepare = tracerd_intern("sqlite3_prepare");
	name_step = tracerd_intern("sqlite3_step");
	name_exec = tracerd_intern("sqlite3_exec");
	key_sql = tracerd_intern("sql");
	(void)tracerd_start(NULL);
}

static tracerd_region begin_region(tracerd_name name, const char *sql, int bytes)
{
	size_t length = sql ? strnlen(sql, bytes >= 0 && (size_t)bytes < SQL_MAX ? (size_t)bytes : SQL_MAX) : 0;
	tracerd_arg arg = tracerd_text(key_sql, sql ? sql : "", length);

	return tracerd_region_begin_with(name, 0, &arg, 1);
}

int sqlite3_prepare_v2(sqlite3 *db, const char *sql, int bytes, sqlite3_stmt **ret, const char **ret_tail)
{
	tracerd_region region;
	int r;

	if (!tracerd_enabled())
		return real.prepare_v2(db, sql, bytes, ret, ret_tail);
	region = begin_region(name_prepare, sql, bytes);
	r = real.prepare_v2(db, sql, bytes, ret, ret_tail);
	tracerd_region_end(region);
	return r;
}

int sqlite3_step(sqlite3_stmt *statement)
{
	tracerd_region region;
	int r;

	if (!tracerd_enabled())
		return real.step(statement);
	region = begin_region(name_step, statement ? real.sql(statement) : NULL, -1);
	r = real.step(statement);
	tracerd_region_end(region);
	return r;
}

int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *arg, char **ret_error)
{
	tracerd_region region;
	int r;

	if (!tracerd_enabled())
		return real.exec(db, sql, row, arg, ret_error);
	region = begin_region(name_exec, sql, -1);
	r = real.exec(db, sql, row, arg, ret_error);
	tracerd_region_end(region);
	return r;
}
