/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * The maps by which the programs unwind user stacks (unwind.bpf.h), shared with the daemon
 * (unwind_maps.c). Whatever is in them decides which words of the thread's own memory are read, and
 * nothing else.
 */
#pragma once

#include "common/bundle/unwind_table.h"

#define UNWIND_SLAB_ROWS 65536u		/* 256 KiB */
#define UNWIND_SLABS 64u		/* 16 MiB */
#define UNWIND_MAP_PAGES (1u << 17)	/* 512 MiB of code */
#define UNWIND_MAP_RULES (1u << 16)
#define UNWIND_MAPPINGS (1u << 14)
#define UNWIND_MAPPINGS_STEPS 14	/* of a search in them */
#define UNWIND_PROCESSES 2048u

#define UNWIND_SWITCH_FRAMES 64u /* with the run queue locked */
/* what a reader takes for a chain that was cut: perf_event_max_stack */
#define UNWIND_SAMPLE_FRAMES 127u

/* The rows of a page of code. Page 0 has none. */
struct unwind_page {
	schedev_u16 slab;
	schedev_u16 n;
	schedev_u32 first;
};

struct unwind_mapping {
	schedev_u64 start, end;
	schedev_u64 bias; /* vaddr in the object = pc - bias */
	schedev_u32 lo_page, n_pages;
	schedev_u32 page0; /* index of the first in the map of pages; without pages, see below */
	schedev_u32 generation; /* of the list that it is in: another one's is not believed */
};

/*
 * Without pages: code that was made at run time, and such of HotSpot, which leaves in its frames
 * what was in the memory before, but has saved the frame pointer below each return address. Any
 * other is of a file that has no table, or none yet.
 */
#define UNWIND_MADE 1u
#define UNWIND_MADE_HOTSPOT 2u
#define UNWIND_IS_MADE(m) (!(m)->n_pages && (m)->page0)

/* Why unwinding ended. */
enum unwind_why {
	UNWIND_COMPLETE,
	UNWIND_DEEP,	 /* as many frames as may be */
	UNWIND_NO_TABLE, /* code in no known file: what was made at run time, or mapped just now */
	UNWIND_NO_RULE,	 /* the file's information is more than a rule can say */
	UNWIND_NO_READ,	 /* the stack's memory is not there */
	UNWIND_BAD,	 /* it leads nowhere */
	/*
	 * it goes on on another stack, of which nothing says where it is; a copy of this one says
	 * no more
	 */
	UNWIND_STACK_LEFT,
	UNWIND_NO_FRAME, /* the frame pointer is not that of the function, which has no table */
	UNWIND_WHYS,
};

/* Of a thread group, in the numbers of the daemon's namespace. */
struct unwind_process {
	schedev_u32 first, n; /* its executable mappings, in ascending order */
	schedev_u32 generation;
	schedev_u32 frame_pointers; /* frames for which no file told, see UNWIND_FRAME_POINTER */
	schedev_u32 hotspot; /* what was made is HotSpot's */
	/* around all code made at run time, and what may be made beside it; none: both 0 */
	schedev_u64 made_start, made_end;
	schedev_u32 whys[UNWIND_WHYS]; /* stacks, by how they ended */
};
