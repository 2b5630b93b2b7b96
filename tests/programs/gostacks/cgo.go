// SPDX-License-Identifier: Apache-2.0
//go:build cgo

package main

/*
#include <stdint.h>
#include <time.h>

int called(int);

static int __attribute__((noinline)) burn(int n)
{
	volatile int s = 0;

	for (int i = 0; i < n; i++)
		s += i;
	return s;
}

static int __attribute__((noinline)) rests(int n)
{
	const struct timespec t = {0, 200000};

	nanosleep(&t, 0);
	return burn(n) + 1;
}

static int __attribute__((noinline)) back(int n)
{
	return called(n) + 1;
}

static uintptr_t at_rests(void)
{
	return (uintptr_t)rests;
}
*/
import "C"

import (
	"fmt"
	"sync/atomic"
)

//export called
func called(n C.int) C.int {
	return C.int(calls(int(n))) + 1
}

//go:noinline
func rest() {
	atomic.AddInt64(&sink, int64(C.rests(20000)))
}

//go:noinline
func inC() {
	for {
		rest()
	}
}

//go:noinline
func throughC() {
	for {
		atomic.AddInt64(&sink, int64(C.back(20000)))
	}
}

func startC() {
	fmt.Printf("rests %#x %#x\n", uint64(C.at_rests()), uint64(C.at_rests())+16)
	say("rest", rest)
	say("called", called)
	say("inC", inC)
	say("throughC", throughC)
	go inC()
	go throughC()
}
