// SPDX-License-Identifier: Apache-2.0

package main

/*
#cgo CFLAGS: -fno-omit-frame-pointer -O1
#include <pthread.h>
#include <unistd.h>

// So that the thread's g is not where it is in a program without C.
static __thread volatile long own[9];

extern void called(void);

__attribute__((noinline)) static void spin_c(long n)
{
	for (long i = 0; i < n; i++)
		own[i & 7] += i;
}

static void *thread(void *arg)
{
	for (;;) {
		spin_c(300000);
		called();
		usleep(1000);
	}
	return 0;
}

static void start_thread(void)
{
	pthread_t t;
	pthread_create(&t, 0, thread, 0);
}
*/
import "C"

import "sync"

//go:noinline
func calls() {
	for {
		C.spin_c(300000)
	}
}

var once sync.Once

//export called
func called() {
	once.Do(func() { say("called", called) })
	sink += burn(100000)
}

func more() {
	start("calls", calls, calls)
	C.start_thread()
}
