// SPDX-License-Identifier: Apache-2.0

// A Go program with the module, which does what it is told, a line of standard input at a time, and answers each with a line. What it
// is told is what real programs do to the libraries in them.
package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/trace"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	tracerd "tracerd/client/go"
	vendored "vendored/tracerd"
)

var agent *tracerd.Agent
var held []*os.File // descriptors that the program has taken

// A recorder of the program's own; 0: the module has it.
var recorder *trace.FlightRecorder

var commands = map[string]func(arg string) any{
	"start": func(string) any {
		agent = tracerd.Start(tracerd.Options{MaxBackoff: 100 * time.Millisecond})
		return agent.Status()
	},
	"stream": func(bytes string) any {
		n, _ := strconv.Atoi(bytes)
		agent = tracerd.Start(tracerd.Options{StreamBytes: uint64(n), MaxBackoff: 100 * time.Millisecond})
		return agent.Status()
	},
	"second": func(string) any {
		return tracerd.Start(tracerd.Options{}).Status()
	},
	"vendored": func(string) any {
		return vendored.Start(vendored.Options{}).Status()
	},
	"adopt": func(string) any {
		recorder = trace.NewFlightRecorder(trace.FlightRecorderConfig{})
		_ = recorder.Start()
		agent = tracerd.Start(tracerd.Options{Recorder: recorder})
		return agent.Status()
	},
	"stop-recorder": func(string) any {
		recorder.Stop()
		return agent.Status()
	},
	// As a program does that could not start its own.
	"trace-stop": func(string) any {
		trace.Stop()
		return true
	},
	"status": func(string) any { return agent.Status() },
	"stream-error": func(string) any {
		if err := agent.Status().StreamError; err != nil {
			return err.Error()
		}
		return ""
	},
	"region": func(name string) any {
		agent.StartRegion(context.Background(), name)()
		return agent.Snapshot(name) == nil
	},
	// 2,000 switches between goroutines, under a region's name: how long they have taken.
	"work": func(name string) any {
		begin := time.Now()
		defer trace.StartRegion(context.Background(), name).End()
		c := make(chan int)
		go func() {
			for i := 0; i < 1000; i++ {
				c <- i
			}
			close(c)
		}()
		for range c {
		}
		return time.Since(begin).Seconds()
	},
	"collect": func(string) any {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // finalizers have a goroutine of their own
		list, _ := os.ReadDir("/proc/self/fd")
		return []int{len(list), runtime.NumGoroutine()}
	},
	// Takes all descriptors that there are, so that nobody gets one.
	"take-fds": func(string) any {
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 64, Max: 64})
		for {
			f, err := os.Open("/dev/null")
			if err != nil {
				return len(held)
			}
			held = append(held, f)
		}
	},
	"give-fds": func(string) any {
		for _, f := range held {
			_ = f.Close()
		}
		held = nil
		return true
	},
	// Closes what is no file of the runtime's or the shell's.
	"close-fds": func(string) any {
		n := 0
		for fd := 3; fd < 64; fd++ {
			name, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
			if err == nil && (strings.HasPrefix(name, "/memfd:") || strings.HasPrefix(name, "socket:")) {
				_ = syscall.Close(fd)
				n++
			}
		}
		return n
	},
	// One thread for Go's code, and a goroutine that wants it for itself.
	"one-busy": func(string) any {
		runtime.GOMAXPROCS(1)
		go func() {
			runtime.LockOSThread()
			for n := uint64(0); ; n++ {
				atomic.AddUint64(&spun, 1)
			}
		}()
		return true
	},
	"spawn": func(n string) any {
		count, _ := strconv.Atoi(n)
		for i := 0; i < count; i++ {
			if err := exec.Command("/bin/true").Run(); err != nil {
				return err.Error()
			}
		}
		return count
	},
	"exec": func(string) any {
		return syscall.Exec("/proc/self/exe", os.Args, os.Environ()).Error()
	},
	// From here on nobody gets a memfd or a socket.
	"seccomp": func(string) any { return forbid(319, syscall.SYS_SOCKET) },
	"goroutines": func(n string) any {
		count, _ := strconv.Atoi(n)
		wait := make(chan int)
		for i := 0; i < count; i++ {
			go func() { <-wait }()
		}
		return runtime.NumGoroutine()
	},
	"crash": func(string) any {
		var p *int
		return *p
	},
}

var spun uint64

// forbid makes these system calls of all threads fail with EPERM.
func forbid(calls ...uint32) any {
	type filter struct {
		code   uint16
		jt, jf uint8
		k      uint32
	}
	const load, equal, ret, allow, fail = 0x20, 0x15, 0x06, 0x7fff0000, 0x00050001
	prog := []filter{{load, 0, 0, 0}}
	for _, nr := range calls {
		prog = append(prog, filter{equal, 0, 1, nr}, filter{ret, 0, 0, fail})
	}
	prog = append(prog, filter{ret, 0, 0, allow})
	head := make([]byte, 16)
	binary.NativeEndian.PutUint16(head, uint16(len(prog)))
	binary.NativeEndian.PutUint64(head[8:], uint64(uintptr(unsafe.Pointer(&prog[0]))))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	_, _, _ = syscall.RawSyscall6(syscall.SYS_PRCTL, 38, 1, 0, 0, 0, 0)         // NO_NEW_PRIVS
	_, _, e := syscall.RawSyscall(317, 1, 1, uintptr(unsafe.Pointer(&head[0]))) // SET_MODE_FILTER, for all threads
	runtime.KeepAlive(prog)
	return e == 0
}

func main() {
	in := bufio.NewScanner(os.Stdin)
	for fmt.Println(`"ready"`); in.Scan(); {
		name, arg, _ := strings.Cut(in.Text(), " ")
		answer, err := json.Marshal(commands[name](arg))
		if err != nil {
			panic(err)
		}
		fmt.Println(string(answer))
	}
}
