// SPDX-License-Identifier: Apache-2.0

// Goroutines that the runtime switches in all its ways. Each notes what it calls, from where; what all of them have called is printed.
package main

import (
	"fmt"
	"iter"
	"os"
	"runtime"
	"strconv"
	"sync"
)

// notes are of one goroutine.
type notes struct {
	stack []string
	calls map[string]int
}

//go:noinline
func (n *notes) in(name string) {
	around := "-"
	if len(n.stack) > 0 {
		around = n.stack[len(n.stack)-1]
	}
	n.stack = append(n.stack, name)
	n.calls[name+" "+around]++
}

//go:noinline
func (n *notes) out() { n.stack = n.stack[:len(n.stack)-1] }

var (
	mu    sync.Mutex
	total = map[string]int{}
	all   sync.WaitGroup
)

func begin(f func(n *notes)) {
	all.Add(1)
	go func() {
		n := &notes{calls: map[string]int{}}
		f(n)
		n.add()
		all.Done()
	}()
}

func (n *notes) add() {
	mu.Lock()
	for k, v := range n.calls {
		total[k] += v
	}
	mu.Unlock()
}

//go:noinline
func leaf(n *notes, v int) int {
	n.in("leaf")
	defer n.out()
	return v + 1
}

//go:noinline
func ping(n *notes, to, from chan int, v int) int {
	n.in("ping")
	to <- v
	v = leaf(n, <-from)
	n.out()
	return v
}

//go:noinline
func pong(n *notes, to, from chan int) {
	n.in("pong")
	for v := range from {
		to <- leaf(n, v)
	}
	n.out()
}

var shared sync.Mutex

//go:noinline
func locked(n *notes) {
	n.in("locked")
	shared.Lock()
	runtime.Gosched()
	leaf(n, 1)
	shared.Unlock()
	leaf(n, 2)
	n.out()
}

//go:noinline
func deep(n *notes, depth int) int {
	var room [40]int
	n.in("deep")
	room[depth%40] = depth
	if depth > 0 {
		room[0] += deep(n, depth-1)
	} else {
		runtime.Gosched()
		leaf(n, 0)
	}
	n.out()
	return room[0] + room[depth%40]
}

//go:noinline
func throws(n *notes, depth int) {
	n.in("throws")
	leaf(n, depth)
	if depth == 0 {
		panic("thrown")
	}
	throws(n, depth-1)
}

//go:noinline
func catches(n *notes) {
	n.in("catches")
	depth := len(n.stack)
	func() {
		defer func() {
			if recover() != nil {
				n.stack = n.stack[:depth]
			}
		}()
		throws(n, 2)
	}()
	runtime.Gosched()
	leaf(n, 3)
	n.out()
}

//go:noinline
func generates(n *notes, yield func(int) bool) {
	n.in("generates")
	for i := range 3 {
		if !yield(leaf(n, i)) {
			break
		}
	}
	n.out()
}

//go:noinline
func pulls(n *notes) {
	n.in("pulls")
	inner := &notes{calls: map[string]int{}}
	next, stop := iter.Pull(iter.Seq[int](func(yield func(int) bool) { generates(inner, yield) }))
	for {
		v, ok := next()
		if !ok {
			break
		}
		leaf(n, v)
	}
	stop()
	inner.add()
	n.out()
}

func main() {
	count, _ := strconv.Atoi(os.Args[1])
	for i := range count {
		to, from := make(chan int), make(chan int)
		switch i % 5 {
		case 0:
			begin(func(n *notes) { ping(n, to, from, ping(n, to, from, i)); close(to) })
			begin(func(n *notes) { pong(n, from, to) })
		case 1:
			begin(locked)
		case 2:
			begin(func(n *notes) { deep(n, 20) })
		case 3:
			begin(catches)
		case 4:
			begin(pulls)
		}
	}
	all.Wait()
	for k, v := range total {
		fmt.Println(k, v)
	}
}
