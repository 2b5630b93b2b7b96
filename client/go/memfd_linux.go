// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"
	"time"
	"unsafe"
)

const (
	mfdCloexec      = 1
	mfdAllowSealing = 2
	fAddSeals       = 1033
	sealSeal        = 1
	sealShrink      = 2
	sealGrow        = 4
	sealWrite       = 8
	sealFutureWrite = 16
	clockMonotonic  = 1
	clockRaw        = 4
)

// What the package syscall has no name for, by machine.
var sysMemfdCreate, sysEventfd2, sysGettid = func() (uintptr, uintptr, uintptr) {
	switch runtime.GOARCH {
	case "amd64":
		return 319, 290, 186
	default: // arm64, riscv64, loong64: the generic table
		return 279, 19, 178
	}
}()

func memfd(name string) (int, error) {
	b := append([]byte(name), 0)
	fd, _, e := syscall.Syscall(sysMemfdCreate, uintptr(unsafe.Pointer(&b[0])), mfdCloexec|mfdAllowSealing, 0)
	if e != 0 {
		return -1, fmt.Errorf("memfd_create: %w", e)
	}
	return int(fd), nil
}

func seal(fd int, seals uintptr) error {
	if _, _, e := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), fAddSeals, seals); e != 0 {
		return fmt.Errorf("F_ADD_SEALS: %w", e)
	}
	return nil
}

func clock(id uintptr) int64 {
	var ts syscall.Timespec
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, id, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

func monotonic() int64 { return clock(clockMonotonic) }

var errTooLarge = errors.New("the trace is larger than the daemon takes")
var errLate = errors.New("writing the trace took too long")

// memfdWriter is what a recorder writes into. It is used by its pointer, it
// never blocks and never panics: the runtime compares writers, and a panic
// in Write may hang the process for good.
type memfdWriter struct {
	fd       int
	left     int64
	deadline time.Time
}

func (w *memfdWriter) Write(p []byte) (n int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("tracerd: %v", r)
		}
	}()
	if int64(len(p)) > w.left {
		return 0, errTooLarge
	}
	if time.Now().After(w.deadline) {
		return 0, errLate
	}
	for n < len(p) {
		m, err := syscall.Write(w.fd, p[n:])
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return n, err
		}
		n += m
		w.left -= int64(m)
	}
	return n, nil
}

// writeTrace returns a sealed memfd with what the recorder has.
func writeTrace(r Recorder, maxBytes int64, deadline time.Time) (fd int, err error) {
	fd, err = memfd("go.trace")
	if err != nil {
		return -1, err
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("tracerd: the recorder panicked: %v", p)
		}
		if err != nil {
			_ = syscall.Close(fd)
			fd = -1
		}
	}()
	if _, err = r.WriteTo(&memfdWriter{fd: fd, left: maxBytes, deadline: deadline}); err != nil {
		return fd, err
	}
	if time.Now().After(deadline) {
		return fd, errLate
	}
	return fd, seal(fd, sealSeal|sealShrink|sealGrow|sealWrite)
}
