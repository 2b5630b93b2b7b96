// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"runtime/trace"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestTraceIsSealed(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, says("go 1.26 trace"))
	p := d.next()
	if p.params["go"] != runtime.Version() || p.params["go_keep_ns"] != float64(DefaultMinAge) {
		t.Fatalf("registered as %v", p.params)
	}
	if err := p.ask(-5, 1<<20, time.Hour); err != nil {
		t.Fatal(err)
	}
	m, fds, err := readMessage(p.conn)
	if err != nil || *m.ID != -5 || m.Error != nil || len(fds) != 1 {
		t.Fatal(m, fds, err)
	}
	b := make([]byte, 100)
	n, _ := syscall.Pread(fds[0], b, 0)
	if string(b[:n]) != "go 1.26 trace" {
		t.Fatalf("got %q", b[:n])
	}
	if _, err := syscall.Pwrite(fds[0], b, 0); !errors.Is(err, syscall.EPERM) {
		t.Fatal("it can still be written", err)
	}
	if err := syscall.Ftruncate(fds[0], 0); !errors.Is(err, syscall.EPERM) {
		t.Fatal("it can still be cut", err)
	}
	waitFor(t, "the count", func() bool { return a.Status().Written == 1 })
}

func TestBadRecorders(t *testing.T) {
	for what, c := range map[string]struct {
		write func(w io.Writer) (int64, error)
		why   string
	}{
		"panics":    {func(io.Writer) (int64, error) { panic("ouch") }, "ouch"},
		"fails":     {func(io.Writer) (int64, error) { return 0, errors.New("no luck") }, "no luck"},
		"too large": {func(w io.Writer) (int64, error) { _, err := w.Write(make([]byte, 5000)); return 0, err }, "larger"},
	} {
		t.Run(what, func(t *testing.T) {
			d := newFakeDaemon(t)
			a := start(t, d, &fakeRecorder{write: c.write})
			p := d.next()
			_ = p.ask(-1, 4096, time.Hour)
			m, _, err := readMessage(p.conn)
			if err != nil || m.Error == nil || !strings.Contains(m.Error.Message, c.why) {
				t.Fatal(m, err)
			}
			waitFor(t, "the count", func() bool { return a.Status().Failed == 1 })
		})
	}
}

func TestSlowRecorder(t *testing.T) {
	d, release := newFakeDaemon(t), make(chan struct{})
	start(t, d, &fakeRecorder{write: func(w io.Writer) (int64, error) { <-release; _, err := w.Write([]byte("x")); return 1, err }})
	p := d.next()
	_ = p.ask(-1, 4096, time.Millisecond)
	_ = p.ask(-2, 4096, time.Hour)
	m, _, err := readMessage(p.conn)
	if err != nil || *m.ID != -2 || m.Error == nil || m.Error.Code != "busy" {
		t.Fatal("a second request must not wait for the first", m, err)
	}
	id := int64(-3)
	_ = writeMessage(p.conn, &message{V: 1, ID: &id, Method: "ping"})
	if m, _, err = readMessage(p.conn); err != nil || *m.ID != -3 || m.Error != nil {
		t.Fatal("a ping must be answered meanwhile", m, err)
	}
	time.Sleep(2 * time.Millisecond)
	close(release)
	if m, _, err = readMessage(p.conn); err != nil || *m.ID != -1 || m.Error == nil {
		t.Fatal("a trace that is late must not be sent", m, err)
	}
}

func TestSecondAgent(t *testing.T) {
	d := newFakeDaemon(t)
	first := start(t, d, says("x"))
	_ = d.next()
	waitFor(t, "the connection", func() bool { return first.Status().Connected })
	second := start(t, d, says("y"))
	waitFor(t, "the reason", func() bool { return errors.Is(second.Status().LastError, ErrAnotherAgent) })
	third := start(t, d, says("z"))
	third.Stop()
	<-third.ended
	if second.Status().Connected || !first.Status().Connected {
		t.Fatal("the first one is not the one that is connected")
	}
	first.Stop()
	_ = d.next()
	waitFor(t, "the second one", func() bool { return second.Status().Connected })
}

func TestNextRecordingAtOnce(t *testing.T) {
	d := newFakeDaemon(t)
	start(t, d, says("x"))
	p := d.next()
	for id := int64(-1); id > -300; id-- {
		_ = p.ask(id, 4096, time.Hour)
		m, fds, err := readMessage(p.conn)
		if err != nil || *m.ID != id || m.Error != nil {
			t.Fatal("who has the answer may ask again", m, err)
		}
		closeAll(fds)
	}
}

func TestSnapshot(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, says(""))
	if err := a.Snapshot("early"); err != nil && !errors.Is(err, ErrNotConnected) {
		t.Fatal(err)
	}
	p := d.next()
	waitFor(t, "the connection", func() bool { return a.Status().Connected })
	err := a.Snapshot(strings.Repeat("disk ", 200))
	if kind, _, text := p.cause(0); err != nil && !errors.Is(err, ErrTooSoon) || kind != causeRequest || !strings.HasPrefix(text, "disk") && text != "early" {
		t.Fatal(err, kind, text)
	}
	if err := a.Snapshot("again"); !errors.Is(err, ErrTooSoon) || p.header(suppressedReqs) == 0 {
		t.Fatal("the interval of the daemon is not kept", err)
	}
	var b [8]byte
	if n, _ := syscall.Read(p.wake, b[:]); n != 8 || binary.NativeEndian.Uint64(b[:]) != 1 {
		t.Fatal("the daemon was not woken once", b)
	}
}

func TestThresholds(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, says(""))
	p := d.next()
	waitFor(t, "the connection", func() bool { return a.Status().Connected })
	a.Region("load", time.Now().Add(-time.Second))
	p.threshold("load", 100*time.Millisecond, time.Hour, 7)
	a.Region("load", time.Now())
	a.Region("other", time.Now().Add(-time.Second))
	a.Region("load", time.Now().Add(time.Hour)) // begins in the future
	if p.header(causeHeadAt) != 0 {
		t.Fatal("a hit that is none")
	}
	for i := 0; i < 3; i++ {
		a.Region("load", time.Now().Add(-time.Second))
	}
	kind, trigger, text := p.cause(0)
	if kind != causeRegion || trigger != 7 || text != "load" || p.header(causeHeadAt) != 1 || p.header(suppressedAt) != 2 {
		t.Fatal(kind, trigger, text, p.header(causeHeadAt), p.header(suppressedAt))
	}
	if b := make([]byte, causeBytes); func() bool { _, _ = syscall.Pread(p.rings, b, causesOffset); return true }() {
		le := binary.LittleEndian
		if took := time.Duration(le.Uint64(b[32:]) - le.Uint64(b[24:])); took < time.Second || took > patience {
			t.Fatal("it took", took)
		}
	}
	end := a.StartRegion(context.Background(), "load")
	end()
	_, endTask := a.StartTask(context.Background(), "load")
	endTask()
}

func TestHandler(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, says(""))
	p := d.next()
	waitFor(t, "the connection", func() bool { return a.Status().Connected })
	mux := http.NewServeMux()
	mux.HandleFunc("/quick", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /slow/{id}", func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(20 * time.Millisecond)
		_, _ = w.Write([]byte(r.PathValue("id")))
	})
	mux.HandleFunc("/panics", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	h := a.Handler(mux, 20*time.Millisecond)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest("GET", "/slow/42", nil))
	if w.Body.String() != "42" {
		t.Fatal(w.Body)
	}
	if _, _, text := p.cause(0); !strings.HasPrefix(text, "GET /slow/{id} took ") {
		t.Fatal(text)
	}
	func() {
		defer func() {
			if recover() != http.ErrAbortHandler {
				t.Fatal("a handler's panic is the program's")
			}
		}()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("GET", "/panics", nil))
	}()
}

func TestReconnects(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, says("x"))
	for i := 0; i < 3; i++ {
		p := d.next()
		waitFor(t, "the connection", func() bool { return a.Status().Connected })
		p.conn.Close()
		waitFor(t, "the end", func() bool { return a.Status().LastError != nil || d.accepted.Load() > int32(i+1) })
	}
	last := d.next()
	d.listener.Close()
	last.conn.Close()
	waitFor(t, "the error", func() bool { return !a.Status().Connected && a.Status().LastError != nil })
	if err := a.Snapshot("nobody"); !errors.Is(err, ErrNotConnected) {
		t.Fatal(err)
	}
	d.listen()
	d.next()
}

// The pause does not grow from restart to restart of the daemon.
func TestRestarts(t *testing.T) {
	d := newFakeDaemon(t)
	a := Start(Options{Socket: d.path, Recorder: says("x"), MinBackoff: time.Millisecond, MaxBackoff: time.Hour})
	t.Cleanup(a.Stop)
	for i := 0; i < 25; i++ {
		p := d.next()
		waitFor(t, "the connection", func() bool { return a.Status().Connected })
		time.Sleep(10 * time.Millisecond)
		p.conn.Close()
	}
}

// A refusal is the stream's fault only if the daemon takes the program without it.
func TestStreamRefused(t *testing.T) {
	d := newFakeDaemon(t)
	d.refuse.Store(2)
	a := Start(Options{Socket: d.path, Recorder: says("x"), StreamBytes: 1 << 20, MinBackoff: time.Millisecond, MaxBackoff: time.Millisecond})
	t.Cleanup(a.Stop)
	if p := d.next(); p.stream != true {
		t.Fatal("a program that was refused with and without has given up its stream", a.Status())
	}
	waitFor(t, "the connection", func() bool { return a.Status().Connected })
	if st := a.Status(); !st.Streaming || st.StreamError != nil {
		t.Fatal(st)
	}
	trace.Stop() // as a program does that could not start its own
	a.stream.last.Add(-silence)
	if st := a.Status(); st.Streaming || st.StreamError != errSilent {
		t.Fatal("a stream that was stopped", st)
	}
	a.stream.broken.Store(true)
	if st := a.Status(); st.Streaming || st.StreamError == nil {
		t.Fatal("a stream that has ended", st)
	}
}

// What a daemon may send that is none.
func TestHostileDaemon(t *testing.T) {
	frame := func(text string) []byte {
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)
	}
	for what, data := range map[string][]byte{
		"zero length":   {0, 0, 0, 0},
		"endless":       {255, 255, 255, 255, 1},
		"no JSON":       frame("{]"),
		"half a frame":  {0, 0, 1},
		"wrong types":   frame(`{"v":1,"id":-1,"method":"go.trace","params":[]}`),
		"negative":      frame(`{"v":1,"id":-1,"method":"go.trace","params":{"max_bytes":-1,"wait_ns":5}}`),
		"unknown":       frame(`{"v":1,"id":-1,"method":"dispatch"}`),
		"null":          frame(`null`),
		"a list":        frame(`[1]`),
		"a huge number": frame(`{"v":1,"id":1e400,"method":"ping"}`),
		"an answer":     frame(`{"v":1,"id":3,"result":{}}`),
	} {
		t.Run(what, func(t *testing.T) {
			d := newFakeDaemon(t)
			a := start(t, d, says("x"))
			p := d.next()
			_, _ = p.conn.Write(data)
			if what != "unknown" {
				_ = p.conn.CloseWrite()
				d.next() // it comes back
			} else if m, _, err := readMessage(p.conn); err != nil || m.Error.Code != "unknown_method" {
				t.Fatal(m, err)
			}
			a.Stop()
			<-a.ended
		})
	}
}

func TestUnregistered(t *testing.T) {
	d := newFakeDaemon(t)
	d.listener.Close()
	a := start(t, d, says(""))
	waitFor(t, "the error", func() bool { return a.Status().LastError != nil })
	a.Region("x", time.Now())
	a.Stop()
	a.Stop()
	<-a.ended
	var none *Agent
	none.Stop()
	none.Region("x", time.Now())
	none.Slow("x", time.Time{}, 1)
	_, end := none.StartTask(context.Background(), "x")
	end()
	if none.Snapshot("x") == nil || none.Status().Connected {
		t.Fatal("nobody is connected")
	}
}

func TestRecorderOff(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, &fakeRecorder{off: true})
	p := d.next()
	_ = p.ask(-1, 4096, time.Hour)
	if m, _, err := readMessage(p.conn); err != nil || m.Error == nil || m.Error.Code != "unsupported" {
		t.Fatal(m, err)
	}
	if st := a.Status(); st.Recording || st.Missing == "" {
		t.Fatal(st)
	}
}

// A writer must be comparable, and a panic in it must not reach the runtime.
func TestWriter(t *testing.T) {
	w := &memfdWriter{fd: -1, left: 10, deadline: time.Now().Add(time.Hour)}
	var i, j io.Writer = w, w
	if i != j {
		t.Fatal("not comparable by its pointer")
	}
	if _, err := w.Write([]byte("x")); err == nil {
		t.Fatal("a closed descriptor must be an error")
	}
	var none *memfdWriter
	if _, err := none.Write([]byte("x")); err == nil || !strings.Contains(err.Error(), "nil pointer") {
		t.Fatal(err)
	}
	fd, err := writeTrace(&fakeRecorder{write: func(w io.Writer) (int64, error) {
		for k := 0; k < 10; k++ {
			if _, err := w.Write(bytes.Repeat([]byte{'x'}, 1000)); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}}, 10000, time.Now().Add(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	closeAll([]int{fd})
}

// What the runtime counts, with a limit so low that anything crosses it.
func TestWatch(t *testing.T) {
	d := newFakeDaemon(t)
	a := start(t, d, says(""))
	p := d.next()
	waitFor(t, "the connection", func() bool { return a.Status().Connected })
	p.threshold("go:gc-stop", time.Nanosecond, time.Hour, 9)
	_ = writeMessage(p.conn, &message{V: 1, Event: "control.changed", Params: struct{}{}})
	waitFor(t, "the cause", func() bool {
		runtime.GC()
		kind, _, _ := p.cause(0) // the head counts before the cause is whole
		return kind != 0
	})
	b := make([]byte, causeBytes)
	_, _ = syscall.Pread(p.rings, b, causesOffset)
	le := binary.LittleEndian
	if kind, trigger, text := p.cause(0); kind != causeRegion || trigger != 9 || text != "go:gc-stop" || le.Uint32(b[12:]) != 0 ||
		le.Uint64(b[24:]) >= le.Uint64(b[32:]) {
		t.Fatal(kind, trigger, text, b[:48])
	}
}

func TestWatcher(t *testing.T) {
	h := &metrics.Float64Histogram{Counts: []uint64{5, 5, 5, 5}, Buckets: []float64{math.Inf(-1), 0, 1e-3, 1, math.Inf(1)}}
	w := newWatcher()
	if took := w.compare(0, h); took != 0 {
		t.Fatal("what was there before is not new", took)
	}
	h.Counts[2]++
	h.Counts[1]++
	if took := w.compare(0, h); took != time.Millisecond {
		t.Fatal("the lower bound of the longest", took)
	}
	h.Counts[0]++
	if took := w.compare(0, h); took != 0 {
		t.Fatal("nothing that is long has come", took)
	}
	h.Counts[3]++
	if took := w.compare(0, h); took != time.Second {
		t.Fatal("the last bucket begins at a second", took)
	}
	w.read()
	for i, s := range w.samples {
		if s.Value.Kind() != metrics.KindFloat64Histogram {
			t.Error("this Go does not know", watchMetrics[i])
		}
	}
}
