/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The rings for records without a stack (struct filter_ring). Included by sched.bpf.c, whose
 * declarations it uses.
 */
#pragma once

struct ring_map {
	__uint(type, MAP_TYPE_ARRAY);
	__uint(map_flags, MAP_F_MMAPABLE | MAP_F_INNER_MAP);
	__uint(max_entries, 2);
	__uint(key_size, 4);
	__uint(value_size, sizeof(struct filter_record));
};
struct {
	__uint(type, MAP_TYPE_ARRAY_OF_MAPS);
	__uint(max_entries, FILTER_MAX_GROUPS);
	__type(key, __u32);
	__array(values, struct ring_map);
} rings SEC(".maps");

/* The record that is written next. */
struct {
	__uint(type, MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct filter_record);
} ring_next SEC(".maps");

static __attribute__((always_inline)) int ring_put(__u32 group, const struct filter_record *next)
{
	__u32 cpu = bpf_get_smp_processor_id(), at;
	struct filter_record *record;
	struct filter_ring *ring;
	void *map;

	map = bpf_map_lookup_elem(&rings, &group);
	if (!map)
		return 0;
	ring = bpf_map_lookup_elem(map, &cpu);
	if (!ring || !ring->first)
		return 0;
	at = ring->first + ring->next;
	record = bpf_map_lookup_elem(map, &at);
	if (!record)
		return 0;
	ring->next = ring->next + 1 < ring->size ? ring->next + 1 : 0;
	*record = *next;
	/* The reader must not count it before it is there. */
	barrier();
	ring->written++;
	return 1;
}

/*
 * That record to the rings of the groups in `mask`, of those in `waits`: struct filter_entry.
 * Returns who has got it, the others have none. A function of its own, which the verifier checks
 * once.
 */
__attribute__((noinline)) int ring_emit(__u64 waits, __u32 mask)
{
	__u32 zero = 0, done = 0;
	const struct filter_record *next = bpf_map_lookup_elem(&ring_next, &zero);

	if (!constants.rings || !next)
		return 0;
#pragma unroll
	for (int i = 0; i < FILTER_ENTRY_GROUPS; i++) {
		const __u32 group = (waits >> (16 * i)) & FILTER_NO_GROUP;

		if ((mask & (1u << i)) && group != FILTER_NO_GROUP && ring_put(group, next))
			done |= 1u << i;
	}
	return (int)done;
}
