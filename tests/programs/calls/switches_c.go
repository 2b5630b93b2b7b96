// SPDX-License-Identifier: Apache-2.0
package main

/*
extern void goCalled(int);
static void call(int i) { goCalled(i); }
static void callTwice(int i) { call(i); call(i); }
*/
import "C"

import "runtime"

var callers [1024]*notes // by number: C has no pointers of Go's

// called is called by C, and leaves its goroutine there.
//
//go:noinline
func called(n *notes, i int) {
	n.in("called")
	runtime.Gosched()
	leaf(n, 0)
	if i%4 == 3 && n.at.around.around.name != "called" {
		C.call(C.int(i))
	}
	n.out()
}

//export goCalled
func goCalled(i C.int) { called(callers[i], int(i)) }

//go:noinline
func callsC(n *notes, i int) {
	n.in("callsC")
	callers[i] = n
	C.callTwice(C.int(i))
	leaf(n, 1)
	n.out()
}

func init() {
	kinds["c"] = func(i int) { begin(func(n *notes) { callsC(n, i) }) }
}
