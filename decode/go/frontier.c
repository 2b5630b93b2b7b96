// SPDX-License-Identifier: Apache-2.0
#include "decode/go/frontier.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define BYTES(n) (2 * (uint64_t)(n) * sizeof(struct goplace))

void gofrontier_fini(struct gofrontier *f)
{
	if (f->budget)
		budget_give(f->budget, BYTES(f->max));
	free(f->heap);
	free(f->sorted);
	*f = (struct gofrontier){.budget = f->budget};
}

int gofrontier_reset(struct gofrontier *f, uint32_t n)
{
	f->n = 0;
	if (n <= f->max)
		return 0;
	gofrontier_fini(f);
	if (!budget_take(f->budget, BYTES(n)))
		return -ENOMEM;
	f->max = n;
	f->heap = calloc(n, sizeof(*f->heap));
	f->sorted = calloc(n, sizeof(*f->sorted));
	return f->heap && f->sorted ? 0 : -ENOMEM;
}

uint32_t goplace_up(struct goplace *h, uint32_t i)
{
	const struct goplace p = h[i];

	for (; i > 0 && h[(i - 1) / 2].time > p.time; i = (i - 1) / 2)
		h[i] = h[(i - 1) / 2];
	h[i] = p;
	return i;
}

static void swap(struct goplace *h, uint32_t a, uint32_t b)
{
	const struct goplace p = h[a];

	h[a] = h[b];
	h[b] = p;
}

void gofrontier_add(struct gofrontier *f, struct gocursor *c)
{
	f->heap[f->n] = (struct goplace){.time = (int64_t)c->ev.time, .cursor = c};
	(void)goplace_up(f->heap, f->n++);
}

void gofrontier_remove(struct gofrontier *f, uint32_t i)
{
	for (; i > 0; i = (i - 1) / 2)
		swap(f->heap, i, (i - 1) / 2);
	swap(f->heap, 0, --f->n);
	goplace_down(f->heap, f->n, 0);
}

static void merge_sort(struct goplace *v, struct goplace *room, uint32_t n)
{
	uint32_t half = n / 2, a = 0, b = half;

	if (n <= 12) {
		for (uint32_t i = 1; i < n; i++)
			for (uint32_t k = i; k > 0 && v[k - 1].time > v[k].time; k--)
				swap(v, k, k - 1);
		return;
	}
	merge_sort(v, room, half);
	merge_sort(v + half, room, n - half);
	memcpy(room, v, n * sizeof(*room));
	for (uint32_t i = 0; i < n; i++)
		v[i] = b == n || (a < half && room[a].time <= room[b].time) ? room[a++] : room[b++];
}

void gofrontier_sort(struct gofrontier *f)
{
	merge_sort(f->heap, f->sorted, f->n);
}
