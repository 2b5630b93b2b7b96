// SPDX-License-Identifier: Apache-2.0

// Goroutines that the runtime switches in all its ways. Each notes the path to each of its calls; those of all of them are printed.
package main

import (
	"bufio"
	"fmt"
	"iter"
	"os"
	"runtime"
	"runtime/trace"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// node is a path of calls, and how often it was called.
type node struct {
	name   string
	around *node
	inner  map[string]*node
	count  int
}

func newNode(name string, around *node) *node {
	return &node{name: name, around: around, inner: map[string]*node{}}
}

func (at *node) within(name string) *node {
	inner := at.inner[name]
	if inner == nil {
		inner = newNode(name, at)
		at.inner[name] = inner
	}
	return inner
}

func (at *node) add(other *node) {
	at.count += other.count
	for name, inner := range other.inner {
		at.within(name).add(inner)
	}
}

// print writes each path as its number, that of the one around it, its function and how often that was called there.
func (at *node) print(w *bufio.Writer, around int, last *int) {
	for _, inner := range at.inner {
		*last++
		number := *last
		fmt.Fprintln(w, number, around, inner.name, inner.count)
		inner.print(w, number, last)
	}
}

// notes are of one goroutine.
type notes struct{ root, at *node }

func newNotes() *notes {
	root := newNode("", nil)
	return &notes{root, root}
}

//go:noinline
func (n *notes) in(name string) {
	n.at = n.at.within(name)
	n.at.count++
}

//go:noinline
func (n *notes) out() { n.at = n.at.around }

var (
	mu    sync.Mutex
	total = newNode("", nil)
	all   sync.WaitGroup
)

func begin(f func(n *notes)) {
	all.Add(1)
	go func() {
		n := newNotes()
		defer all.Done()
		defer n.add()
		f(n)
	}()
}

func (n *notes) add() {
	mu.Lock()
	total.add(n.root)
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
	at := n.at
	func() {
		defer func() {
			if recover() != nil {
				n.at = at
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
	inner := newNotes()
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

// selects waits for several at once, and for a timer.
//
//go:noinline
func selects(n *notes, to, from chan int, rounds int) {
	n.in("selects")
	for got, put := 0, 0; got < rounds || put < rounds; {
		out := to
		if put == rounds {
			out = nil
		}
		select {
		case v := <-from:
			got += leaf(n, v)
		case out <- 0:
			put++
		case <-time.After(time.Hour):
			leaf(n, 0)
		}
	}
	n.out()
}

var (
	lock  sync.Mutex
	cond  = sync.NewCond(&lock)
	turns int
)

//go:noinline
func awaits(n *notes, turn int) {
	n.in("awaits")
	lock.Lock()
	for turns%3 != turn {
		cond.Wait()
	}
	turns++
	leaf(n, turn)
	cond.Broadcast()
	lock.Unlock()
	n.out()
}

//go:noinline
func fires(n *notes, done chan bool) {
	n.in("fires")
	leaf(n, 0)
	done <- true
	n.out()
}

//go:noinline
func sleeps(n *notes) {
	n.in("sleeps")
	done := make(chan bool)
	time.Sleep(10 * time.Microsecond)
	leaf(n, 1)
	time.AfterFunc(10*time.Microsecond, func() {
		own := newNotes()
		fires(own, done)
		own.add()
	})
	<-done
	leaf(n, 2)
	n.out()
}

// exits ends the goroutine from within, and what was deferred is called there.
//
//go:noinline
func exits(n *notes, depth int) {
	n.in("exits")
	defer leaf(n, depth)
	if depth == 0 {
		runtime.Gosched()
		runtime.Goexit()
	}
	exits(n, depth-1)
	leaf(n, depth)
}

// rethrows recovers and panics again in each of its calls but the outermost: all within the innermost.
//
//go:noinline
func rethrows(n *notes, depth int) {
	n.in("rethrows")
	at := n.at
	defer func() {
		why := recover()
		leaf(n, depth)
		if depth < 2 {
			panic(why)
		}
		n.at = at.around
	}()
	if depth == 0 {
		panic("thrown")
	}
	rethrows(n, depth-1)
}

type large struct {
	room [64]int
	next *large
}

//go:noinline
func faults(n *notes, l *large) (v int) {
	n.in("faults")
	at := n.at
	defer func() {
		recover()
		n.at = at
		leaf(n, 1)
		n.out()
	}()
	leaf(n, 0)
	return l.next.next.room[3]
}

var stop atomic.Bool

// spins calls nothing: only a signal interrupts it.
//
//go:noinline
func spins(n *notes) {
	n.in("spins")
	for !stop.Load() {
	}
	leaf(n, 0)
	n.out()
}

//go:noinline
func stops(n *notes) {
	n.in("stops")
	for range 3 {
		runtime.Gosched()
		leaf(n, 0)
	}
	stop.Store(true)
	n.out()
}

// pinned has a thread of its own, which ends with it.
//
//go:noinline
func pinned(n *notes, ends bool) {
	n.in("pinned")
	runtime.LockOSThread()
	runtime.Gosched()
	leaf(n, 0)
	if !ends {
		runtime.UnlockOSThread()
	}
	runtime.Gosched()
	leaf(n, 1)
	n.out()
}

//go:noinline
func grows(n *notes, depth int) int {
	var room [1024]int
	room[depth%1024] = depth
	n.in("grows")
	if depth > 0 {
		room[0] += grows(n, depth-1)
	} else {
		runtime.Gosched()
	}
	n.out()
	return room[0] + room[depth%1024]
}

// shrinks has a large stack that it uses little of when garbage is collected.
//
//go:noinline
func shrinks(n *notes) {
	n.in("shrinks")
	grows(n, 30)
	runtime.GC()
	leaf(n, 0)
	grows(n, 10)
	n.out()
}

//go:noinline
func waits(n *notes, gate chan int) {
	n.in("waits")
	leaf(n, <-gate)
	n.out()
}

//go:noinline
func comes(n *notes, gate chan int) {
	n.in("comes")
	waits(n, gate)
	waits(n, gate)
	n.out()
}

//go:noinline
func goes(n *notes, gate chan int, depth int) {
	n.in("goes")
	if depth > 0 {
		goes(n, gate, depth-1)
	} else {
		comes(n, gate)
	}
	leaf(n, depth)
	n.out()
}

// herd is many that wait at the same place, on different ways to there.
func herd(many int) {
	gate := make(chan int)
	for i := range many {
		switch i % 3 {
		case 0:
			begin(func(n *notes) { waits(n, gate); waits(n, gate) })
		case 1:
			begin(func(n *notes) { comes(n, gate) })
		case 2:
			begin(func(n *notes) { goes(n, gate, i%4) })
		}
	}
	for i := range 2 * many {
		gate <- i
	}
}

// read waits until it is told to go on.
func read(int) { os.Stdin.Read(make([]byte, 1)) }

var kinds = map[string]func(i int){
	"chan": func(i int) {
		to, from := make(chan int), make(chan int)
		begin(func(n *notes) { ping(n, to, from, ping(n, to, from, i)); close(to) })
		begin(func(n *notes) { pong(n, from, to) })
	},
	"mutex": func(int) { begin(locked) },
	"deep":  func(int) { begin(func(n *notes) { deep(n, 20) }) },
	"panic": func(int) { begin(catches) },
	"pull":  func(int) { begin(pulls) },
	"select": func(int) {
		a, b := make(chan int), make(chan int)
		begin(func(n *notes) { selects(n, a, b, 3) })
		begin(func(n *notes) { selects(n, b, a, 3) })
	},
	"cond": func(int) {
		for turn := range 3 {
			begin(func(n *notes) { awaits(n, turn) })
		}
	},
	"timer":   func(int) { begin(sleeps) },
	"exit":    func(int) { begin(func(n *notes) { exits(n, 3) }) },
	"rethrow": func(int) { begin(func(n *notes) { rethrows(n, 2) }) },
	"fault":   func(int) { begin(func(n *notes) { faults(n, &large{}) }) },
	"spin": func(int) {
		begin(spins)
		begin(stops)
	},
	"pin":    func(i int) { begin(func(n *notes) { pinned(n, i%2 == 0) }) },
	"shrink": func(int) { begin(shrinks) },
	"herd":   func(int) { herd(9) },
	"herds":  func(int) { herd(150) },
	"many":   func(int) { herd(10000) },
	"trace": func(int) {
		if f, err := os.Create("go.trace"); err != nil || trace.Start(f) != nil {
			panic("no trace")
		}
	},
	"read": read,
}

// Each kind that is named, so many times.
func main() {
	count, _ := strconv.Atoi(os.Args[1])
	for i := range count {
		for _, name := range os.Args[2:] {
			kinds[name](i)
		}
	}
	all.Wait()
	w := bufio.NewWriter(os.Stdout)
	last := 0
	total.print(w, 0, &last)
	fmt.Fprintln(w)
	w.Flush()
	if slices.Contains(os.Args, "read") {
		read(0)
	}
	trace.Stop()
}
