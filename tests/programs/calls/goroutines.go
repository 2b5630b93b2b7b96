// SPDX-License-Identifier: Apache-2.0

// Goroutines that wait for each other on one thread: each has its stack, and the scheduler goes from one to the other by jumps.
package main

import (
	"runtime"
	"sync"
)

//go:noinline
func leaf(n int) int { return n + 1 }

//go:noinline
func work(n int) int { return leaf(n) + leaf(n+1) }

//go:noinline
func worker(id int, in, out chan int) {
	for v := range in {
		out <- work(v)
	}
	done(id)
}

//go:noinline
func done(id int) { leaf(id) }

//go:noinline
func ask(in, out chan int, v int) int {
	in <- v
	return <-out
}

func main() {
	runtime.GOMAXPROCS(1)
	var wg sync.WaitGroup
	in, out := make(chan int), make(chan int)
	for i := 0; i < 2; i++ {
		wg.Add(1)
		go func() {
			worker(i, in, out)
			wg.Done()
		}()
	}
	s := 0
	for i := 0; i < 4; i++ {
		s += ask(in, out, i)
	}
	close(in)
	wg.Wait()
	println(s)
}
