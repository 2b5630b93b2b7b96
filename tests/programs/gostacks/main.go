// SPDX-License-Identifier: Apache-2.0

// Command gostacks runs goroutines whose callers are known, and says where their functions are: "FUNCTION FROM TO". A stack that goes
// through one of them goes through all from there on to the one that its goroutine began with, and ends in goexit.
package main

import (
	"fmt"
	"os"
	"reflect"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
)

func where(name string, pc uintptr) {
	entry := runtime.FuncForPC(pc).Entry()
	end := pc
	for f := runtime.FuncForPC(end); f != nil && f.Entry() == entry; f = runtime.FuncForPC(end) {
		end++
	}
	fmt.Printf("%s %#x %#x\n", name, entry, end)
}

func say(name string, function any) {
	where(name, reflect.ValueOf(function).Pointer())
}

var sink int64

// leaf has no frame at all.
//
//go:noinline
func leaf(a, b int) int {
	return a*31 ^ b
}

//go:noinline
func calls(n int) int {
	s := 0
	for i := 0; i < n; i++ {
		s = leaf(s, i)
	}
	return s
}

//go:noinline
func leaves() {
	for {
		atomic.AddInt64(&sink, int64(calls(20000)))
	}
}

// deep is hardly more than its begin and its end.
//
//go:noinline
func deep(n int) int {
	if n == 0 {
		return 1
	}
	return deep(n-1) + 1
}

//go:noinline
func dives() {
	for {
		atomic.AddInt64(&sink, int64(deep(30)))
	}
}

//go:noinline
func grow(n int) int {
	var room [512]byte
	room[n&511] = byte(n)
	if n == 0 {
		return int(room[1])
	}
	return grow(n-1) + int(room[n&511])
}

//go:noinline
func grown(done chan int) {
	done <- grow(40)
}

// grows has goroutines whose stacks must be made larger.
//
//go:noinline
func grows() {
	done := make(chan int)
	for {
		go grown(done)
		atomic.AddInt64(&sink, int64(<-done))
	}
}

// asks calls the kernel's code, on the thread's stack.
//
//go:noinline
func asks() {
	for {
		for i := 0; i < 2000; i++ {
			atomic.AddInt64(&sink, time.Now().UnixNano())
		}
		time.Sleep(200 * time.Microsecond)
	}
}

//go:noinline
func transfers(r, w int) {
	var b [64]byte
	if _, err := syscall.Write(w, b[:]); err != nil {
		panic(err)
	}
	if _, err := syscall.Read(r, b[:]); err != nil {
		panic(err)
	}
}

//go:noinline
func pipes() {
	var fds [2]int
	if err := syscall.Pipe(fds[:]); err != nil {
		panic(err)
	}
	for {
		transfers(fds[0], fds[1])
	}
}

//go:noinline
func sleeps() {
	t := syscall.NsecToTimespec(300000)
	for {
		_ = syscall.Nanosleep(&t, nil)
	}
}

// spawns waits in the system call until its child, who shares its memory, has found no program to become.
//
//go:noinline
func spawns() {
	for {
		if _, err := syscall.ForkExec("/nonexistent", []string{"none"}, &syscall.ProcAttr{}); err != syscall.ENOENT {
			panic(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// sayVfork finds a function that has no name outside of its package, behind another one of that.
func sayVfork() {
	pc := reflect.ValueOf(syscall.ForkExec).Pointer()
	for end := pc + 1<<20; pc < end; pc += 16 {
		if f := runtime.FuncForPC(pc); f != nil && f.Name() == "syscall.rawVforkSyscall" {
			where("vfork", pc)
			return
		}
	}
	panic("no rawVforkSyscall")
}

var keep [64][]byte

//go:noinline
func fills(i int) {
	keep[i&63] = make([]byte, 20000+i&4095)
}

// allocates has work done on the thread's stack.
//
//go:noinline
func allocates() {
	for i := 0; ; i++ {
		fills(i)
	}
}

func main() {
	var pcs [64]uintptr
	done := make(chan int)
	go func() {
		n := runtime.Callers(0, pcs[:])
		where("goexit", pcs[n-1])
		close(done)
	}()
	<-done
	say("leaf", leaf)
	say("calls", calls)
	say("deep", deep)
	say("grow", grow)
	say("transfers", transfers)
	say("fills", fills)
	sayVfork()
	for _, f := range []struct {
		name string
		run  func()
	}{{"leaves", leaves}, {"dives", dives}, {"grows", grows}, {"asks", asks}, {"pipes", pipes}, {"sleeps", sleeps}, {"allocates", allocates},
		{"spawns", spawns}} {
		say(f.name, f.run)
		go f.run()
	}
	say("grown", grown)
	startC()
	fmt.Println("ready")
	os.Stdout.Sync()
	select {}
}
