// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/object/mapping.h"

#include <errno.h>

#include "decode/object/address_space.h"
#include "decode/object/image.h"
#include "decode/perf/event.h"

bool mapping_range(const struct perfevent *ev, struct mapping *ret)
{
	const struct perfevent_mmap *m = &ev->mmap;
	struct mapping map = {.start = m->addr, .pgoff = m->pgoff};

	if (ev->pid == (uint32_t)-1 || (int64_t)m->addr < 0 || m->len == 0 ||
	    __builtin_add_overflow(m->addr, m->len, &map.end))
		return false;
	*ret = map;
	return true;
}

int mapping_image(const struct perfevent *ev, struct images *images, struct mapping *map)
{
	const struct perfevent_mmap *m = &ev->mmap;
	const struct image_key key = {.maj = m->maj,
		.min = m->min,
		.ino = m->ino,
		.build_id = m->build_id,
		.build_id_size = m->build_id_size,
		.path = m->path,
		.path_len = m->path_len,
		.pid = ev->pid};

	if (!m->exec)
		return 0;
	map->image = images_get(images, &key);
	return map->image ? 0 : -ENOMEM;
}
