/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two tracepoints of LTTng-UST: one int, and two longs. Its macros read this file several times.
 */
#undef LTTNG_UST_TRACEPOINT_PROVIDER
#define LTTNG_UST_TRACEPOINT_PROVIDER tracerd_peer

#undef LTTNG_UST_TRACEPOINT_INCLUDE
#define LTTNG_UST_TRACEPOINT_INCLUDE "./tracerd-peer.h"

#if !defined(TRACERD_PEER_H) || defined(LTTNG_UST_TRACEPOINT_HEADER_MULTI_READ)
#define TRACERD_PEER_H

#include <lttng/tracepoint.h>

LTTNG_UST_TRACEPOINT_EVENT(tracerd_peer, one_int, LTTNG_UST_TP_ARGS(int, value),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(int, value, value)))

LTTNG_UST_TRACEPOINT_EVENT(tracerd_peer, two_longs, LTTNG_UST_TP_ARGS(long, value, long, other),
	LTTNG_UST_TP_FIELDS(lttng_ust_field_integer(long, value, value)
			lttng_ust_field_integer(long, other, other)))

#endif

#include <lttng/tracepoint-event.h>
