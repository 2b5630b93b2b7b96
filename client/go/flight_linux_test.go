// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package tracerd

import (
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
	for i := 0; i < 2; i++ {
		p := d.next()
		if _, ok := p.params["go"]; !ok {
			continue // the second
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
			waitFor(t, "the recorder to be free", func() bool { return !a.writing.Load() })
		}
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
