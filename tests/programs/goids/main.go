// SPDX-License-Identifier: Apache-2.0

// Command goids runs goroutines each of which knows its number and says it: "FUNCTION NUMBER FROM TO". Stacks with an address of the function
// are of that one.
package main

import (
	"bytes"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"
)

var out sync.Mutex

// self is the goroutine's number, as the runtime prints it.
func self() int {
	var buf [64]byte
	words := bytes.Fields(buf[:runtime.Stack(buf[:], false)])
	n, err := strconv.Atoi(string(words[1]))
	if err != nil {
		panic(err)
	}
	return n
}

// say tells who runs the function from now on, and where that is.
func say(name string, function any) {
	entry := reflect.ValueOf(function).Pointer()
	end := entry
	for f := runtime.FuncForPC(end); f != nil && f.Entry() == entry; f = runtime.FuncForPC(end) {
		end++
	}
	out.Lock()
	defer out.Unlock()
	fmt.Printf("%s %d %#x %#x\n", name, self(), entry, end)
}

// burn is a part of who calls it: a leaf keeps no frame pointer.
func burn(n int) int {
	s := 0
	for i := 0; i < n; i++ {
		s += i ^ s
	}
	return s
}

var sink int

//go:noinline
func spin0() {
	for {
		sink += burn(20000)
		runtime.Gosched()
	}
}

//go:noinline
func spin1() {
	for {
		sink += burn(2000000) // is preempted
	}
}

//go:noinline
func spin2() {
	for {
		sink += burn(20000)
		time.Sleep(50 * time.Microsecond)
	}
}

//go:noinline
func locked() {
	runtime.LockOSThread()
	for {
		sink += burn(100000)
		runtime.Gosched()
	}
}

//go:noinline
func allocates() {
	for {
		keep = append(keep[:0], make([]byte, 1<<20)...) // on the stack of the system, too
		sink += burn(len(fmt.Sprint(len(keep))) * 1000)
		time.Sleep(500 * time.Microsecond)
	}
}

var keep []byte

//go:noinline
func sleeps() {
	t := syscall.NsecToTimespec(2e6)
	for {
		_ = syscall.Nanosleep(&t, nil)
	}
}

//go:noinline
func pings(c chan int) {
	for {
		c <- burn(3000)
	}
}

//go:noinline
func pongs(c chan int) {
	for {
		sink += burn(3000 + <-c&1)
	}
}

//go:noinline
func short() {
	say("short", short)
	sink += burn(300000)
}

//go:noinline
func spawns() {
	for {
		done := make(chan bool)
		go func() { short(); close(done) }()
		<-done
		time.Sleep(time.Millisecond)
	}
}

func start(name string, function any, f func()) {
	go func() {
		say(name, function)
		f()
	}()
}

func main() {
	runtime.GOMAXPROCS(4)
	c := make(chan int)
	for i := 0; i < 1000; i++ { // numbers have more than a few digits
		go func() {}()
	}
	start("spin0", spin0, spin0)
	start("spin1", spin1, spin1)
	start("spin2", spin2, spin2)
	start("locked", locked, locked)
	start("allocates", allocates, allocates)
	start("sleeps", sleeps, sleeps)
	start("pings", pings, func() { pings(c) })
	start("pongs", pongs, func() { pongs(c) })
	start("spawns", spawns, spawns)
	more()
	select {}
}
