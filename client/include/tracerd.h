/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libtracerd, the library of the flight recorder daemon tracerd, for C and C++.
 *
 *  tracerd/event.h    a program writes its own events, and asks for snapshots of itself
 *  tracerd/event.hpp  the same for C++: regions and tasks that end with an object
 *  tracerd/client.h   a tool talks to the daemon: arms, takes snapshots, lists, watches
 *
 * Compile and link with what `pkg-config --cflags --libs tracerd` prints.
 */
#ifndef TRACERD_H
#define TRACERD_H

#include <tracerd/client.h>
#include <tracerd/event.h>
#ifdef __cplusplus
#include <tracerd/event.hpp>
#endif

#endif /* TRACERD_H */
