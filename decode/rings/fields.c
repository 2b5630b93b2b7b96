// SPDX-License-Identifier: Apache-2.0
#include "config.h"

#include "decode/rings/fields.h"

#include <string.h>

#include "decode/base/bytes.h"

static bool field_check(struct ringfield *f, size_t bytes)
{
	switch (f->type) {
	case RING_FIELD_U64:
	case RING_FIELD_I64:
	case RING_FIELD_F64:
	case RING_FIELD_POINTER:
		if (bytes != 8)
			return false;
		f->value = load_u64(f->text);
		if (f->type == RING_FIELD_F64)
			memcpy(&f->f64, &f->value, sizeof(f->f64));
		return true;
	case RING_FIELD_NAME:
		if (bytes != 4)
			return false;
		f->value = load_u32(f->text);
		return true;
	case RING_FIELD_TEXT:
	case RING_FIELD_TEXT_CUT:
		f->length = bytes;
		return true;
	case RING_FIELD_END:
		break;
	}
	return false;
}

bool ringfield_next(const uint8_t *payload, size_t len, size_t *pos, struct ringfield *ret,
		    bool *ret_broken)
{
	struct ring_field head_u;
	struct ringfield f = {0};
	size_t left = len - *pos;

	if (left < sizeof(head_u))
		return false; /* the payload's own padding */
	memcpy(&head_u, payload + *pos, sizeof(head_u));
	if (head_u.type == RING_FIELD_END)
		return false;
	left -= sizeof(head_u);
	f.name = head_u.name;
	f.type = (enum ring_field_type)head_u.type;
	f.text = (const char *)payload + *pos + sizeof(head_u);
	if (head_u.bytes > left || !field_check(&f, head_u.bytes)) {
		*ret_broken = true;
		return false;
	}
	*pos += sizeof(head_u) + head_u.bytes;
	*pos += (4 - *pos % 4) % 4;
	if (*pos > len)
		*pos = len;
	*ret = f;
	return true;
}
