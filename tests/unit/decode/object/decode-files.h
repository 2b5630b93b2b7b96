/* SPDX-License-Identifier: Apache-2.0 */
/* Where the decoder's tests find their files. Each returns a new descriptor, or -1. */
#pragma once

/* tests/unit/decode/object/tiny-elf of the build tree. */
int decode_open_tiny(void);

/* The folder of recordings, NULL where there is none: $TRACERD_DATA/pt/perfdata, or beside the
 * source tree. */
const char *decode_recordings(void);
