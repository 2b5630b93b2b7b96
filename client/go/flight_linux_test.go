// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package tracerd

import (
	"os"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// With the runtime's own recorder: one a process, and its traces have the header of the format.
func TestFlightRecorder(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, nil)
	second := start(t, d, nil)
	if !a.Status().Recording || second.Status().Recording || !strings.Contains(second.Status().Missing, "already") {
		t.Fatal(a.Status(), second.Status())
	}
	p := d.next()
	if _, ok := p.params["go"]; !ok {
		t.Fatal("it is the second that has connected", p.params)
	}
	for id := int64(-1); id >= -3; id-- {
		_ = p.ask(id, 64<<20, time.Hour)
		m, fds, err := readMessage(p.conn)
		if err != nil || m.Error != nil || len(fds) != 1 {
			t.Fatal(m, fds, err)
		}
		var b [16]byte
		_, _ = syscall.Pread(fds[0], b[:], 0)
		if !strings.HasPrefix(string(b[:]), "go 1.2") {
			t.Fatalf("the trace begins with %q", b)
		}
		closeAll(fds)
	}
	asked := make(chan struct{})
	go func() { // beside Stop: the race detector looks
		defer close(asked)
		for a.Status().Recording {
		}
	}()
	a.Stop()
	<-asked
	waitFor(t, "the end of the recorder", func() bool {
		r, stop, _ := newRecorder(time.Second, 1<<20)
		if r != nil {
			stop()
		}
		return r != nil
	})
}

// The runtime's recorder, which is given up behind Stop, is there for the next Agent.
func TestStartAfterStop(t *testing.T) {
	for i := 0; i < 10; i++ {
		d := newFakeDaemon(t)
		a := Start(Options{Socket: d.path, StreamBytes: 1 << 20, MinBackoff: time.Millisecond})
		if st := a.Status(); !st.Recording || !st.Streaming {
			t.Fatal("of the one before something is left", st)
		}
		a.Stop()
	}
}

// The race detector looks: FlightRecorder.Stop is not safe beside WriteTo, as of Go 1.26.
func TestStopWhileAsked(t *testing.T) {
	for i := 0; i < 20; i++ {
		d := newFakeDaemon(t)
		a := start(t, d, nil)
		p := d.next()
		_ = p.ask(-1, 64<<20, time.Hour)
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		a.Stop()
		<-a.ended
	}
}

// Memory and descriptor of a stream go with its Agent.
func TestStreamFreed(t *testing.T) {
	d := newFakeDaemon(t)
	count := func() int {
		runtime.GC()
		l, _ := os.ReadDir("/proc/self/fd")
		n := 0
		for _, f := range l {
			if name, _ := os.Readlink("/proc/self/fd/" + f.Name()); strings.HasPrefix(name, "/memfd:go.stream") {
				n++
			}
		}
		return n
	}
	for i := 0; i < 5; i++ {
		Start(Options{Socket: d.path, StreamBytes: 1 << 20, MinBackoff: time.Millisecond}).Stop()
	}
	waitFor(t, "the end of the streams", func() bool { return count() == 0 })
}
