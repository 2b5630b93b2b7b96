// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/dwarf/line.h"

#include <dwarf.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "decode/dwarf/dwarf_internal.h"

#define MAX_FORMATS 16u /* what DWARF 5 says about a file */

struct row {
	uint64_t addr;
	uint32_t file, line; /* line 0: nothing from here on */
	uint32_t order;	     /* in which the table has it */
	bool end;
};

struct file {
	const char *name;
	uint64_t dir;
};

struct dwarf_lines {
	struct row *rows;
	size_t n, room;
	struct file *files;
	size_t n_files, room_files;
	const char **dirs;
	size_t n_dirs, room_dirs;
	unsigned int first_file; /* the number of files[0] */
};

struct dwarf_lines *dwarf_lines_free(struct dwarf_lines *l)
{
	if (!l)
		return NULL;
	free(l->rows);
	free(l->files);
	free(l->dirs);
	free(l);
	return NULL;
}

/* Room for one more of something. */
static bool reserve(struct dwarf *d, void **v, size_t n, size_t *room, size_t size)
{
	const size_t more = *room ? *room : 32;
	void *p;

	if (n < *room)
		return true;
	if (!dwarf_take(d, more * size))
		return false;
	p = reallocarray(*v, *room + more, size);
	if (!p)
		return false;
	*v = p;
	*room += more;
	return true;
}

static bool add_file(struct dwarf *d, struct dwarf_lines *l, const char *name, uint64_t dir)
{
	if (!reserve(d, (void **)&l->files, l->n_files, &l->room_files, sizeof(*l->files)))
		return false;
	l->files[l->n_files++] = (struct file){.name = name, .dir = dir};
	return true;
}

static bool add_dir(struct dwarf *d, struct dwarf_lines *l, const char *name)
{
	if (!reserve(d, (void **)&l->dirs, l->n_dirs, &l->room_dirs, sizeof(*l->dirs)))
		return false;
	l->dirs[l->n_dirs++] = name;
	return true;
}

/* ---- the head */

struct head {
	struct bytes program;
	uint8_t min_length, opcode_base, line_range;
	int8_t line_base;
	const uint8_t *lengths; /* how many operands an opcode has */
};

static bool read_names_old(struct dwarf_unit *u, struct bytes *b, struct dwarf_lines *l)
{
	const char *name;
	size_t n;

	/* the first directory is the unit's own, and not in the table */
	if (!add_dir(u->dwarf, l, u->dir))
		return false;
	while ((name = bytes_str(b, &n)) && n)
		if (!add_dir(u->dwarf, l, name))
			return false;
	while ((name = bytes_str(b, &n)) && n) {
		const uint64_t dir = bytes_uleb(b);

		(void)bytes_uleb(b); /* when it was changed */
		(void)bytes_uleb(b); /* its size */
		if (!add_file(u->dwarf, l, name, dir))
			return false;
	}
	l->first_file = 1;
	return !b->failed;
}

struct format {
	uint16_t content, form;
};

static unsigned int read_formats(struct bytes *b, struct format *formats)
{
	const unsigned int n = bytes_u8(b);

	if (n > MAX_FORMATS)
		b->failed = true;
	for (unsigned int i = 0; i < n && !b->failed; i++) {
		const uint64_t content = bytes_uleb(b), form = bytes_uleb(b);

		formats[i].content = content > UINT16_MAX ? 0 : (uint16_t)content;
		formats[i].form = form > UINT16_MAX ? 0 : (uint16_t)form;
	}
	return n;
}

/* A list of directories or of files. */
static bool read_list(struct dwarf_unit *u, struct bytes *b, struct dwarf_lines *l, bool is_dirs)
{
	struct format formats[MAX_FORMATS];
	const unsigned int n_formats = read_formats(b, formats);
	const uint64_t n = bytes_uleb(b);

	for (uint64_t i = 0; i < n && !b->failed; i++) {
		struct file f = {.name = NULL};
		const size_t left = b->left;

		for (unsigned int k = 0; k < n_formats; k++) {
			struct dwarf_value v;

			if (!dwarf_value_read(u, b, formats[k].form, 0, &v))
				return false;
			if (formats[k].content == DW_LNCT_path)
				f.name = v.text;
			else if (formats[k].content == DW_LNCT_directory_index)
				f.dir = v.number;
		}
		/* what takes no bytes could be there any number of times */
		if (b->left == left)
			return false;
		if (!(is_dirs ? add_dir(u->dwarf, l, f.name)
			      : add_file(u->dwarf, l, f.name, f.dir)))
			return false;
	}
	return !b->failed;
}

/* A block of bytes: the table's own width of offsets, which need not be the unit's. */
static bool read_head(struct dwarf_unit *u, struct bytes b, struct dwarf_lines *l, struct head *ret)
{
	struct dwarf_unit as = *u; /* this table's widths */
	uint64_t length, rest;
	const void *p;
	uint16_t version;

	as.offset_size = 4;
	length = bytes_u32(&b);
	if (length == UINT32_MAX) {
		as.offset_size = 8;
		length = bytes_u64(&b);
	}
	p = bytes_take(&b, length);
	if (!p)
		return false;
	b = bytes_of(p, (size_t)length);
	version = bytes_u16(&b);
	if (version < 2 || version > 5)
		return false;
	if (version >= 5) {
		as.addr_size = bytes_u8(&b);
		if (bytes_u8(&b) != 0 || (as.addr_size != 4 && as.addr_size != 8))
			return false;
	}
	rest = dwarf_offset(&as, &b);
	p = bytes_take(&b, rest);
	if (!p)
		return false;
	/*
	 * Units can share a table: what is read of it is paid for each time, whether it is good or
	 * not.
	 */
	if (rest > u->dwarf->credit.line) {
		u->dwarf->stats.cut++;
		return false;
	}
	u->dwarf->credit.line -= rest;
	ret->program = b;
	b = bytes_of(p, (size_t)rest);
	ret->min_length = bytes_u8(&b);
	if (version >= 4)
		(void)bytes_u8(&b); /* instructions of a bundle: not here */
	(void)bytes_u8(&b);	    /* whether lines are statements, at first */
	ret->line_base = (int8_t)bytes_u8(&b);
	ret->line_range = bytes_u8(&b);
	ret->opcode_base = bytes_u8(&b);
	ret->lengths = ret->opcode_base ? bytes_take(&b, ret->opcode_base - 1u) : NULL;
	if (b.failed || !ret->lengths || ret->line_range == 0)
		return false;
	if (version < 5)
		return read_names_old(u, &b, l);
	return read_list(&as, &b, l, true) && read_list(&as, &b, l, false);
}

/* ---- the program */

struct machine {
	struct dwarf_unit *u;
	struct dwarf_lines *l;
	uint64_t addr;
	uint32_t file, line;
	size_t begin; /* of the sequence, in rows */
	bool full;
};

static void add_row(struct machine *m, bool end)
{
	struct dwarf_lines *l = m->l;
	struct row *last = l->n > m->begin ? &l->rows[l->n - 1] : NULL;
	const uint32_t line = end ? 0 : m->line;

	/* an address has the last row of it; a row that repeats the one before adds nothing */
	if (last && last->addr == m->addr && !end) {
		last->file = m->file;
		last->line = line;
		return;
	}
	if (last && !end && last->file == m->file && last->line == line && last->addr < m->addr)
		return;
	if (l->n >= UINT32_MAX ||
	    !reserve(m->u->dwarf, (void **)&l->rows, l->n, &l->room, sizeof(*l->rows))) {
		m->full = true;
		return;
	}
	l->rows[l->n] = (struct row){.addr = m->addr,
				     .file = m->file,
				     .line = line,
				     .order = (uint32_t)l->n,
				     .end = end};
	l->n++;
}

static void begin_sequence(struct machine *m)
{
	m->addr = 0;
	m->file = m->line = 1;
	m->begin = m->l->n;
}

static void end_sequence(struct machine *m)
{
	struct dwarf_lines *l = m->l;

	/*
	 * the row of the end is that of no instruction: another sequence may go on there, or none
	 */
	while (l->n > m->begin && l->rows[l->n - 1].addr >= m->addr)
		l->n--;
	if (l->n > m->begin)
		add_row(m, true);
	/* code that the linker has thrown away */
	if (l->n > m->begin && !dwarf_is_code(m->u->dwarf, l->rows[m->begin].addr))
		l->n = m->begin;
	begin_sequence(m);
}

static void extended(struct machine *m, struct bytes *b)
{
	const uint64_t length = bytes_uleb(b);
	const void *p = bytes_take(b, length);
	struct bytes e;

	if (!p || length == 0)
		return;
	e = bytes_of(p, (size_t)length);
	switch (bytes_u8(&e)) {
	case DW_LNE_end_sequence:
		end_sequence(m);
		break;
	case DW_LNE_set_address:
		m->addr = e.left == 4 ? bytes_u32(&e) : bytes_u64(&e);
		break;
	default:
		break;
	}
}

static void standard(struct machine *m, const struct head *h, struct bytes *b, uint8_t op)
{
	switch (op) {
	case DW_LNS_copy:
		add_row(m, false);
		break;
	case DW_LNS_advance_pc:
		m->addr += bytes_uleb(b) * h->min_length;
		break;
	case DW_LNS_advance_line:
		m->line += (uint32_t)bytes_sleb(b);
		break;
	case DW_LNS_set_file:
		m->file = (uint32_t)bytes_uleb(b);
		break;
	case DW_LNS_const_add_pc:
		m->addr += (uint64_t)((255u - h->opcode_base) / h->line_range) * h->min_length;
		break;
	case DW_LNS_fixed_advance_pc:
		m->addr += bytes_u16(b);
		break;
	default:
		for (unsigned int i = 0; i < h->lengths[op - 1]; i++)
			(void)bytes_uleb(b);
		break;
	}
}

static void run(struct machine *m, const struct head *h)
{
	struct bytes b = h->program;

	begin_sequence(m);
	while (b.left && !b.failed && !m->full) {
		const uint8_t op = bytes_u8(&b);

		if (op >= h->opcode_base) {
			const unsigned int step = (unsigned int)op - h->opcode_base;

			m->addr += (uint64_t)(step / h->line_range) * h->min_length;
			m->line += (uint32_t)(h->line_base + (int)(step % h->line_range));
			add_row(m, false);
		} else if (op == 0) {
			extended(m, &b);
		} else {
			standard(m, h, &b, op);
		}
	}
	/* a sequence without its end is none */
	m->l->n = m->begin;
}

/* In order of address; at one address the end of what was there, then the last row. */
static int compare_rows(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	if (x->addr != y->addr)
		return x->addr < y->addr ? -1 : 1;
	if (x->end != y->end)
		return x->end ? -1 : 1;
	return x->order < y->order ? -1 : 1;
}

static int lines_new(struct dwarf_unit *u, struct dwarf_lines **ret)
{
	struct dwarf_lines *l = calloc(1, sizeof(*l));
	struct dwarf *d = u->dwarf;
	struct bytes b = d->sections[DWARF_LINE];
	struct machine m = {.u = u, .l = l};
	struct head h;
	bool sorted = true;

	if (!l)
		return -ENOMEM;
	*ret = l; /* the names are good, whatever follows */
	(void)bytes_take(&b, u->stmt);
	if (!read_head(u, b, l, &h))
		return -EBADMSG;
	if (h.program.left > d->credit.line)
		return -EFBIG;
	d->credit.line -= h.program.left;
	run(&m, &h);
	for (size_t i = 1; i < l->n && sorted; i++)
		sorted = compare_rows(&l->rows[i - 1], &l->rows[i]) < 0;
	if (!sorted)
		qsort(l->rows, l->n, sizeof(*l->rows), compare_rows);
	return m.full ? -EFBIG : 0;
}

static struct dwarf_lines *lines_of(struct dwarf_unit *u)
{
	int r;

	if (u->lines_tried || !dwarf_unit_open(u) || u->stmt == UINT64_MAX)
		return u->lines;
	u->lines_tried = true;
	r = lines_new(u, &u->lines);
	if (r == -EBADMSG)
		u->dwarf->stats.broken++;
	else if (r < 0)
		u->dwarf->stats.cut++;
	return u->lines;
}

uint32_t dwarf_line_at(struct dwarf_unit *u, uint64_t addr, uint32_t *ret_file)
{
	const struct dwarf_lines *l = lines_of(u);
	size_t low = 0, high = l ? l->n : 0;

	while (low < high) {
		const size_t mid = low + (high - low) / 2;

		if (l->rows[mid].addr <= addr)
			low = mid + 1;
		else
			high = mid;
	}
	if (low == 0 || l->rows[low - 1].end)
		return 0;
	*ret_file = l->rows[low - 1].file;
	return l->rows[low - 1].line;
}

bool dwarf_file_path(struct dwarf_unit *u, uint32_t file, char *buf, size_t size)
{
	const struct dwarf_lines *l = lines_of(u);
	const char *dir = "", *root = "";
	const struct file *f;
	int n;

	if (!l || file < l->first_file || file - l->first_file >= l->n_files)
		return false;
	f = &l->files[file - l->first_file];
	if (!f->name || !*f->name)
		return false;
	if (f->name[0] != '/' && f->dir < l->n_dirs && l->dirs[f->dir])
		dir = l->dirs[f->dir];
	if (f->name[0] != '/' && dir[0] != '/' && u->dir && dir != u->dir)
		root = u->dir;
	n = snprintf(buf, size, "%.1024s%s%.1024s%s%.1024s", root, *root ? "/" : "", dir,
		     *dir ? "/" : "", f->name);
	return n > 0 && (size_t)n < size;
}

bool dwarf_has_file(struct dwarf_unit *u, const char *name)
{
	struct dwarf *d = u->dwarf;
	struct dwarf_lines *l = NULL;
	struct bytes b = d->sections[DWARF_LINE];
	bool found = false;
	uint64_t taken;
	struct head h;

	if (!dwarf_unit_open(u) || u->stmt == UINT64_MAX)
		return false;
	taken = d->taken; /* what the open unit has stays */
	(void)bytes_take(&b, u->stmt);
	l = calloc(1, sizeof(*l));
	if (l && read_head(u, b, l, &h)) {
		for (size_t i = 0; i < l->n_files && !found; i++) {
			const char *file = l->files[i].name,
				   *slash = file ? strrchr(file, '/') : NULL;

			found = file && strcmp(slash ? slash + 1 : file, name) == 0;
		}
	}
	(void)dwarf_lines_free(l);
	budget_give(d->budget, d->taken - taken);
	d->taken = taken;
	return found;
}

bool dwarf_row_next(struct dwarf_unit *u, size_t *pos, struct dwarf_row *ret)
{
	const struct dwarf_lines *l = lines_of(u);

	while (l && *pos < l->n) {
		const struct row *row = &l->rows[(*pos)++];

		if (row->line) {
			*ret = (struct dwarf_row){.addr = row->addr,
						  .file = row->file,
						  .line = row->line};
			return true;
		}
	}
	return false;
}
