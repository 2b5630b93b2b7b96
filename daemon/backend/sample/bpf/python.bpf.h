/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Finds the Python functions of a thread in the memory of its interpreter: the frames of its thread
 * state, which are a list. Included by sched.bpf.c behind unwind.bpf.h, to whose record it adds;
 * the same rules hold. All that is read is the thread's own memory, and where is told by offsets
 * that the daemon has checked.
 */
#pragma once

#include "daemon/backend/sample/bpf/python.h"

#define MAP_TYPE_LRU_HASH 9
#define PYTHON_THREADS_STEPS 128
/* a thread without a state is looked for again after 1, 2, ... so many stacks */
#define PYTHON_MISSES 16
#define PYTHON_OWNER_BORDER 3 /* this and higher: no function's frame, but the interpreter's own */
#define PYTHON_POINTER (~7ULL) /* the lowest bits of one may be a tag */
#define STR_LENGTH 2 /* words of a string's head */
#define STR_HASH 3
#define STR_STATE 4
#define STR_HEAD 6
#define STR_KIND(state) ((__u32)(state) >> 2 & 7)
#define STR_IS_COMPACT(state) ((state) & 0x20)
#define STR_IS_ASCII(state) ((state) & 0x40)

struct {
	__uint(type, MAP_TYPE_HASH);
	__uint(max_entries, PYTHON_PROCESSES);
	__type(key, __u32);
	__type(value, struct python_process);
} py_processes SEC(".maps");

struct python_thread_key {
	__u32 tid, generation;
};
struct python_thread {
	__u64 state; /* 0: it has none, */
	__u64 newest; /* as long as this is the newest of all; */
	__u64 cursor; /* or, from here on nobody has looked yet */
	/* so many stacks have gone by since; it is looked for again after so many */
	__u32 misses, patience;
};
struct {
	__uint(type, MAP_TYPE_LRU_HASH);
	__uint(max_entries, PYTHON_THREADS);
	__type(key, struct python_thread_key);
	__type(value, struct python_thread);
} py_threads SEC(".maps");

struct {
	__uint(type, MAP_TYPE_LRU_HASH);
	__uint(max_entries, PYTHON_CODES);
	__type(key, struct python_code_key);
	__type(value, struct python_code_seen);
} py_codes SEC(".maps");

struct {
	__uint(type, MAP_TYPE_RINGBUF);
	__uint(max_entries, PYTHON_RING_BYTES);
} py_functions SEC(".maps");

struct python_state {
	struct python_layout l;
	__u64 runtime;
	__u64 frame;
	__u64 interpreter, newest; /* the only one, and the newest thread's state */
	__u64 found, cursor;
	__u32 tid, tgid, generation;
	__u32 n, max, why, unnamed, base;
	__u32 last_id, cpu;
	/* the innermost frame does not run; the last one is the outermost of its call */
	__u32 stopped, ended;
	__u64 thread[32]; /* PYTHON_THREAD_BYTES */
	__u64 fr[16];	  /* PYTHON_FRAME_BYTES */
	__u64 code[16];	  /* PYTHON_CODE_BYTES */
	__u64 str[8];
	__u8 tail[64];
	struct python_function out;
};
struct {
	__uint(type, MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct python_state);
} py_states SEC(".maps");

inline_ int py_word(__u64 addr, __u64 *ret)
{
	return bpf_probe_read_user(ret, 8, (void *)addr) != 0;
}

/* A word of a copy, by its offset in bytes. */
inline_ __u64 word_at(const __u64 *copy, __u64 off, __u64 mask)
{
	off >>= 3;
	off &= mask;
	asm volatile("" : "+r"(off));
	return copy[off & mask];
}

inline_ int py_ends(struct python_state *p, __u32 why)
{
	p->why = why;
	return 1;
}

/* Copies a thread's state. Whether it is that of the thread. */
inline_ int thread_is(struct python_state *p, __u64 at)
{
	if (bpf_probe_read_user(p->thread, PYTHON_THREAD_BYTES, (void *)at)) {
		p->why = PYTHON_NO_READ;
		return 0;
	}
	return (__u32)word_at(p->thread, p->l.native_id, 31) == p->tid &&
	       word_at(p->thread, p->l.interpreter, 31) == p->interpreter;
}

/* The only interpreter and its newest thread. 0: it is there. */
__attribute__((noinline)) int python_interpreter(__u32 zero)
{
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	__u64 other = 0;

	if (!constants.python || !p)
		return 1;
	if (py_word(p->runtime + p->l.interpreters, &p->interpreter))
		return py_ends(p, PYTHON_NO_READ);
	if (!p->interpreter)
		return py_ends(p, PYTHON_NO_THREAD);
	if (py_word(p->interpreter + p->l.next_interpreter, &other) ||
	    py_word(p->interpreter + p->l.threads, &p->newest))
		return py_ends(p, PYTHON_NO_READ);
	return other ? py_ends(p, PYTHON_SUBINTERPRETERS) : 0;
}

/*
 * Whether the state that was found before still is the thread's: it is in the list of all, and one
 * that is freed is not.
 */
__attribute__((noinline)) int python_still(__u32 zero)
{
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	__u64 prev, there;

	if (!constants.python || !p || !p->found || !thread_is(p, p->found))
		return 0;
	prev = word_at(p->thread, p->l.prev, 31);
	there = p->newest;
	if (prev && py_word(prev + p->l.next, &there))
		return 0;
	return there == p->found;
}

/*
 * Looks through all states for the thread's, so many at a time: where there are more, p->cursor is
 * where to go on.
 */
__attribute__((noinline)) int python_search(__u32 zero)
{
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	__u64 at;

	if (!constants.python || !p)
		return 1;
	at = p->cursor ? p->cursor : p->newest;
	for (int i = 0; i < PYTHON_THREADS_STEPS; i++) {
		if (!at)
			return py_ends(p, PYTHON_NO_THREAD);
		p->why = PYTHON_COMPLETE;
		/*
		 * That of a thread which is just being started has its maker's number, and nothing
		 * in it.
		 */
		if (thread_is(p, at) && word_at(p->thread, p->l.frame, 31)) {
			p->found = at;
			return 0;
		}
		if (p->why)
			return 1;
		at = word_at(p->thread, p->l.next, 31);
	}
	p->cursor = at;
	return py_ends(p, PYTHON_CROWDED);
}

inline_ __u64 mix(__u64 a, __u64 b)
{
	a = (a ^ b) * 0x9e3779b97f4a7c15ULL;
	return a ^ a >> 29;
}

/* Something of the string itself: another one may lie where it lay. */
__attribute__((noinline)) int python_print(__u64 at)
{
	__u32 zero = 0;
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	__u64 print, bytes, n;

	if (!constants.python || !p)
		return -1;
	if (bpf_probe_read_user(p->str, sizeof(p->str), (void *)at))
		return -1;
	print = mix(p->str[STR_LENGTH], p->str[STR_HASH]);
	print = mix(print, p->str[STR_STATE] & 0xff);
	bytes = p->str[STR_LENGTH] * STR_KIND(p->str[STR_STATE]);
	if (p->str[STR_HASH] == ~0ULL) {
		/* Nobody has asked for its hash yet. */
		n = bytes < 63 ? bytes : 63;
		MASK(n, 63);
		__builtin_memset(p->tail, 0, sizeof(p->tail));
		if (n &&
		    bpf_probe_read_user(p->tail, n,
					(void *)(at +
						 (STR_IS_ASCII(p->str[STR_STATE]) ? p->l.ascii
										  : p->l.other) +
						 bytes - n)))
			return -1;
		for (int i = 0; i < 8; i++)
			print = mix(print, ((__u64 *)p->tail)[i]);
	}
	p->str[0] = print;
	return 0;
}

/* The text of a string: how many bytes of `room`, -1: none. */
inline_ int take_text(struct python_state *p, __u64 at, __u8 *to, __u32 room_mask, int from_end,
		      __u8 *kind, __u8 *cut)
{
	__u64 bytes, skip = 0, n;

	if (bpf_probe_read_user(p->str, STR_HEAD * 8, (void *)at))
		return -1;
	*kind = (__u8)STR_KIND(p->str[STR_STATE]);
	if (!STR_IS_COMPACT(p->str[STR_STATE]) || p->str[STR_LENGTH] > 0xffffff)
		return -1;
	bytes = p->str[STR_LENGTH] * *kind;
	n = bytes;
	*cut = bytes > room_mask - 3;
	if (*cut) {
		n = room_mask - 3;
		skip = from_end ? bytes - n : 0;
	}
	asm volatile("" : "+r"(n));
	n &= room_mask;
	if (n && bpf_probe_read_user(
			 to, n,
			 (void *)(at + (STR_IS_ASCII(p->str[STR_STATE]) ? p->l.ascii : p->l.other) +
				  skip)))
		return -1;
	return (int)n;
}

/*
 * Whoever makes up functions all the time does not keep the daemon busy with them. Lost counts do
 * not matter.
 */
inline_ int may_write(__u32 tgid)
{
	struct python_process *process = bpf_map_lookup_elem(&py_processes, &tgid);
	const __u64 second = bpf_ktime_get_ns() >> 30;

	if (!process)
		return 0;
	if (process->second != second) {
		process->second = second;
		process->written = 0;
	}
	if (process->written >= PYTHON_WRITES_MAX)
		return 0;
	process->written++;
	return 1;
}

/* Writes a function down, which p->code is of. 0: it has a number, p->out.id. */
__attribute__((noinline)) int python_write(__u32 zero)
{
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	int n;

	if (!constants.python || !p || !may_write(p->tgid))
		return 1;
	n = take_text(p, word_at(p->code, p->l.name - PYTHON_CODE_AT, 15), p->out.name,
		      PYTHON_NAME_BYTES - 1, 0, &p->out.name_kind, &p->out.name_cut);
	if (n < 0)
		return 1;
	p->out.name_bytes = (__u16)n;
	n = take_text(p, word_at(p->code, p->l.file - PYTHON_CODE_AT, 15), p->out.file,
		      PYTHON_FILE_BYTES - 1, 1, &p->out.file_kind, &p->out.file_cut);
	if (n < 0)
		return 1;
	p->out.file_bytes = (__u16)n;
	p->out.pid = p->tgid;
	p->out.generation = p->generation;
	p->last_id++;
	p->out.id =
		((__u64)p->cpu << PYTHON_CPU_BITS | (p->last_id & ((1u << PYTHON_CPU_BITS) - 1))) &
		PYTHON_ID_MASK;
	return bpf_ringbuf_output(&py_functions, &p->out, sizeof(p->out), 0) != 0;
}

/* The number of the function at p->out.code; 0 in p->out.id: it has none. */
__attribute__((noinline)) int python_number(__u32 zero)
{
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	struct python_code_seen *seen, now;
	struct python_code_key key;
	__u64 word;

	if (!constants.python || !p)
		return 1;
	p->out.id = 0;
	if (!p->out.code ||
	    bpf_probe_read_user(p->code, PYTHON_CODE_BYTES, (void *)(p->out.code + PYTHON_CODE_AT)))
		return 1;
	word = word_at(p->code, p->l.line - PYTHON_CODE_AT, 15);
	p->out.line = (__u32)(p->l.line & 4 ? word >> 32 : word);
	now.print = mix(word_at(p->code, p->l.name - PYTHON_CODE_AT, 15),
			word_at(p->code, p->l.file - PYTHON_CODE_AT, 15));
	now.print = mix(now.print, p->out.line);
	word = 0;
	if (p->l.version != PYTHON_NONE) {
		word = word_at(p->code, p->l.version - PYTHON_CODE_AT, 15);
		word = (__u32)(p->l.version & 4 ? word >> 32 : word);
	}
	if (word) {
		now.print = mix(now.print, word);
	} else {
		if (python_print(word_at(p->code, p->l.name - PYTHON_CODE_AT, 15)) < 0)
			return 1;
		now.print = mix(now.print, p->str[0]);
		if (python_print(word_at(p->code, p->l.file - PYTHON_CODE_AT, 15)) < 0)
			return 1;
		now.print = mix(now.print, p->str[0]);
	}
	key.pid = p->tgid;
	key.generation = p->generation;
	key.code = p->out.code;
	seen = bpf_map_lookup_elem(&py_codes, &key);
	if (seen && seen->print == now.print) {
		p->out.id = seen->id;
		if (!seen->used)
			seen->used = 1;
		return 0;
	}
	if (python_write(0)) {
		p->out.id = 0;
		return 1;
	}
	now.id = p->out.id;
	bpf_map_update_elem(&py_codes, &key, &now, UPDATE_ANY);
	return 0;
}

/* From a frame to the next outer one. 0: go on. */
__attribute__((noinline)) int python_step(__u32 zero)
{
	struct python_state *p = bpf_map_lookup_elem(&py_states, &zero);
	struct unwind_state *s = bpf_map_lookup_elem(&uw_states, &zero);
	__u64 word, at;
	__u32 owner;

	if (!constants.python || !p || !s)
		return 1;
	/*
	 * Only a call of the loop has no caller: a generator's frame that is being taken out has
	 * none any more.
	 */
	if (!p->frame)
		return py_ends(p, p->ended ? PYTHON_COMPLETE : PYTHON_BETWEEN);
	if (p->n >= p->max)
		return py_ends(p, PYTHON_DEEP);
	if (bpf_probe_read_user(p->fr, PYTHON_FRAME_BYTES, (void *)p->frame))
		return py_ends(p, PYTHON_NO_READ);
	if (p->n == 0 && p->l.top != PYTHON_NONE)
		p->stopped = (__u32)word_at(p->fr, p->l.top, 15) != ~0U;
	owner = (__u32)(word_at(p->fr, p->l.owner, 15) >> (p->l.owner & 7) * 8) & 0xff;
	if (owner >= PYTHON_OWNER_BORDER) {
		word = PYTHON_ENTRY | PYTHON_BORDER;
		if (p->n == 0)
			p->stopped = 1;
	} else {
		p->out.code = word_at(p->fr, p->l.code, 15) & PYTHON_POINTER;
		if (python_number(0))
			p->unnamed++;
		word = p->out.id;
		if (p->l.is_entry != PYTHON_NONE &&
		    (word_at(p->fr, p->l.is_entry, 15) >> (p->l.is_entry & 7) * 8 & 1))
			word |= PYTHON_ENTRY;
	}
	p->ended = (word & PYTHON_ENTRY) != 0;
	p->frame = word_at(p->fr, p->l.previous, 15);
	at = p->base + p->n;
	MASK(at, UNWIND_WORDS - 1);
	s->out.addrs[at] = word;
	p->n++;
	return 0;
}

/* The thread's state, in p->thread. 0: it is there. */
inline_ int find_thread(struct python_state *p)
{
	struct python_thread_key key = {.tid = p->tid, .generation = p->generation};
	struct python_thread *known, now = {.state = 0};
	__u64 from;

	if (python_interpreter(0))
		return 1;
	known = bpf_map_lookup_elem(&py_threads, &key);
	if (known && known->state) {
		p->found = known->state;
		if (python_still(0))
			return 0;
	} else if (known && !known->cursor && known->newest == p->newest &&
		   known->misses < known->patience) {
		known->misses++;
		return py_ends(p, PYTHON_NO_THREAD);
	}
	p->found = 0;
	p->cursor = from = known && !known->state ? known->cursor : 0;
	(void)python_search(0);
	/* What the search went on from may have been freed meanwhile. */
	if (p->found && from && !python_still(0)) {
		p->found = 0;
		p->why = PYTHON_NO_THREAD;
	}
	if (!p->found && p->why != PYTHON_NO_THREAD && p->why != PYTHON_CROWDED)
		return 1;
	now.state = p->found;
	now.newest = p->newest;
	now.cursor = !p->found && p->why == PYTHON_CROWDED ? p->cursor : 0;
	/*
	 * Its state may be the newest already, and become its own now: 3.13 makes it before the
	 * thread.
	 */
	now.patience = known && known->newest == p->newest && known->patience ? known->patience * 2
									      : 1;
	if (now.patience > PYTHON_MISSES)
		now.patience = PYTHON_MISSES;
	bpf_map_update_elem(&py_threads, &key, &now, UPDATE_ANY);
	return !p->found;
}

inline_ int python_walk(struct python_state *p)
{
	if (find_thread(p))
		return 1;
	p->frame = word_at(p->thread, p->l.frame, 31);
	if (p->l.frame_within != PYTHON_NONE && p->frame &&
	    py_word(p->frame + p->l.frame_within, &p->frame))
		return py_ends(p, PYTHON_NO_READ);
	p->why = PYTHON_DEEP;
	for (int i = 0; i < PYTHON_FRAMES_MAX + 1; i++)
		if (python_step(0))
			break;
	return 0;
}

/* 0: it does not run Python. */
inline_ struct python_process *python_process_of(__u32 tgid)
{
	struct python_process *process = constants.python && is_used(FILTER_USE_PYTHON)
						 ? bpf_map_lookup_elem(&py_processes, &tgid)
						 : 0;

	return process && process->runtime ? process : 0;
}

/* Adds the frames of Python's functions to a stack that has been unwound. */
inline_ void python_frames(struct unwind_state *s, const struct task_struct *task, __u32 tgid,
			   __u32 max)
{
	__u32 zero = 0, why;
	struct python_process *process;
	struct python_state *p;
	__u64 at = s->n;

	s->n_python = 0;
	process = python_process_of(tgid);
	if (!process)
		return;
	p = bpf_map_lookup_elem(&py_states, &zero);
	if (!p)
		return;
	p->l = process->layout;
	p->runtime = process->runtime;
	p->generation = process->generation;
	p->tid = own_tid(task);
	p->tgid = tgid;
	p->cpu = bpf_get_smp_processor_id();
	p->n = p->unnamed = p->stopped = 0;
	p->ended = 1;
	p->max = max;
	p->base = (__u32)at + 1;
	p->why = PYTHON_NO_READ;
	(void)python_walk(p);
	why = p->why;
	if (why == PYTHON_BETWEEN)
		p->n = 0;
	if (why >= PYTHON_WHYS)
		return;
	MASK(at, 127);
	s->out.addrs[at] = PYTHON_HEAD_WORD(why, p->n) |
			   (s->why == UNWIND_DEEP ? PYTHON_NATIVE_CUT : 0) |
			   (p->stopped                        ? PYTHON_STOPPED
			    : p->n && p->l.top != PYTHON_NONE ? PYTHON_RUNS
							      : 0);
	s->n_python = p->n + 1;
	__sync_fetch_and_add(&process->whys[why], 1);
	if (p->unnamed)
		__sync_fetch_and_add(&process->unnamed, p->unnamed);
}
