// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// DefaultSocket is where tracerd listens.
const DefaultSocket = "/run/tracerd/control.sock"

// Defaults of [Options].
const (
	DefaultMinAge     = 10 * time.Second
	DefaultMaxBytes   = 16 << 20
	DefaultMinBackoff = 250 * time.Millisecond
	DefaultMaxBackoff = 30 * time.Second
)

// Recorder is what the package needs of a runtime/trace.FlightRecorder.
type Recorder interface {
	WriteTo(w io.Writer) (int64, error)
	Enabled() bool
}

// Options of [Start]; the zero value is good.
type Options struct {
	// Socket of the daemon; "": the environment's TRACERD_SOCKET, else
	// [DefaultSocket].
	Socket string

	// Recorder is a FlightRecorder of the program that is adopted. It must
	// have been started, and run for as long as the Agent does; the package
	// neither stops it nor another one.
	// nil: the package runs one of its own, if the program has none.
	Recorder Recorder

	// MinAge and MaxBytes are those of the recorder that the package runs,
	// and of Recorder what it was made with (MinAge is what a lost trace is
	// reported to have covered). MaxBytes is a hint to Go's runtime, which
	// always keeps about a second more than it says.
	MinAge   time.Duration
	MaxBytes uint64

	// StreamBytes is memory into which the trace is streamed all the time,
	// besides, so that there is one when the program has crashed or was
	// killed; 0: none. At least half of it is what was last. It needs no
	// FlightRecorder, but runtime/trace, which the program can use once only
	// at a time.
	StreamBytes uint64

	// MinBackoff and MaxBackoff bound the pause between attempts to connect.
	MinBackoff, MaxBackoff time.Duration
}

func (o *Options) fill() {
	if o.Socket == "" {
		o.Socket = defaultSocket()
	}
	if o.MinAge <= 0 {
		o.MinAge = DefaultMinAge
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = DefaultMaxBytes
	}
	if o.MinBackoff <= 0 {
		o.MinBackoff = DefaultMinBackoff
	}
	if o.MaxBackoff < o.MinBackoff {
		o.MaxBackoff = max(DefaultMaxBackoff, o.MinBackoff)
	}
}

// Errors of [Agent.Snapshot] and of [Status].
var (
	// ErrNotConnected: no tracerd is there, or it has not answered yet.
	ErrNotConnected = errors.New("tracerd: not connected")
	// ErrTooSoon: the last snapshot that the program asked for is too
	// recent (program_interval_ms of the daemon). It is counted.
	ErrTooSoon = errors.New("tracerd: a snapshot was asked for just before")
	// ErrAnotherAgent is a [Status.LastError]: another Agent of the program
	// was started before, and is the one that connects.
	ErrAnotherAgent = errors.New("tracerd: another Agent of this program was started before")
)

// Status is what the agent does at a moment.
type Status struct {
	// Connected says whether the program is registered with a daemon.
	Connected bool
	// Target is the program's id in tracectl, "" if it is not connected.
	Target string
	// Recording says whether snapshots get Go's execution trace.
	Recording bool
	// Missing says in a sentence why not; "" if Recording.
	Missing string
	// Streaming says whether the trace is streamed; StreamError why not,
	// though it was asked for. StreamLost counts the generations (of about a
	// second) that were larger than half of StreamBytes.
	Streaming   bool
	StreamError error
	StreamLost  uint64
	// LastError is why the last connection ended or could not be made.
	LastError error
	// Written and Failed count the traces that the daemon asked for.
	Written, Failed uint64
}

// Agent is the program's connection to tracerd. All methods may be called
// from any goroutine, also of a nil Agent, which does nothing.
type Agent struct {
	opts     Options
	recorder Recorder
	own      func() // stops the recorder that is the package's own
	missing  string
	stream   *stream // nil: none
	noStream error
	done     chan struct{}
	ended    chan struct{}
	stop     sync.Once

	session atomic.Pointer[session] // nil: not connected

	using           sync.Mutex // the recorder: it writes one trace at a time, and is not stopped meanwhile
	written, failed atomic.Uint64
	lastRequest     atomic.Int64 // ns since start; 0: none
	start           time.Time
	connected       time.Time // since when, in the goroutine that connects; zero: not

	mu      sync.Mutex
	lastErr error
}

// stopping is held for reading while an Agent that was stopped still has the
// recorder or runtime/trace, of which the process has one each.
var stopping sync.RWMutex

// serving holds the token of the Agent that connects: a daemon takes one of
// a process, and which of two that is would be chance after each restart.
var serving = make(chan struct{}, 1)

// Start connects the program to tracerd and returns at once; what can fail
// is done behind it, and reported by [Agent.Status]. A program needs one
// Agent; a second one, of a library say, is not connected before the first was
// stopped (its regions are not seen). When one was stopped just before, Start
// waits for its recorder's end.
func Start(opts Options) *Agent {
	opts.fill()
	stopping.Lock()
	defer stopping.Unlock()
	a := &Agent{opts: opts, done: make(chan struct{}), ended: make(chan struct{}), start: time.Now()}
	if opts.Recorder != nil {
		a.recorder = opts.Recorder
	} else {
		a.recorder, a.own, a.missing = newRecorder(opts.MinAge, opts.MaxBytes)
	}
	if opts.StreamBytes > 0 {
		a.stream, a.noStream = newStream(opts.StreamBytes)
	}
	select {
	case serving <- struct{}{}:
		go a.run(true)
	default:
		a.setError(ErrAnotherAgent)
		go a.run(false)
	}
	return a
}

// Stop disconnects, and stops the recorder if it is the package's own. It
// does not wait for a trace that is being written.
func (a *Agent) Stop() {
	if a == nil {
		return
	}
	a.stop.Do(func() {
		close(a.done)
		if s := a.session.Load(); s != nil {
			s.close()
		}
		if a.stream == nil && a.own == nil {
			return
		}
		stopping.RLock()
		go a.giveUp()
	})
}

// giveUp may wait for a trace that is being written.
func (a *Agent) giveUp() {
	defer stopping.RUnlock()
	if a.stream != nil {
		a.stream.stop()
	}
	if a.own != nil {
		a.using.Lock()
		defer a.using.Unlock()
		a.own()
	}
}

// Status says what the agent does.
func (a *Agent) Status() Status {
	if a == nil {
		return Status{Missing: "tracerd.Start was not called"}
	}
	st := Status{Missing: a.whyMissing(), Written: a.written.Load(), Failed: a.failed.Load()}
	st.Recording = st.Missing == ""
	if a.stream != nil {
		st.StreamLost = a.stream.lost()
	}
	if s := a.session.Load(); s != nil {
		st.Connected, st.Target = true, s.target
	}
	a.mu.Lock()
	st.LastError = a.lastErr
	st.StreamError = a.noStream
	a.mu.Unlock()
	if a.stream != nil && st.StreamError == nil {
		st.StreamError = a.stream.ended()
		st.Streaming = st.StreamError == nil
	}
	return st
}

// Snapshot asks for a snapshot of the program, for this reason. It returns
// at once: the request is a note in shared memory, and the daemon, which
// allows one in program_interval_ms, takes the snapshot some microseconds later.
func (a *Agent) Snapshot(reason string) error {
	if a == nil {
		return ErrNotConnected
	}
	s := a.session.Load()
	if s == nil {
		return ErrNotConnected
	}
	now := int64(time.Since(a.start)) + 1
	last := a.lastRequest.Load()
	if (last != 0 && now-last < s.interval()) || !a.lastRequest.CompareAndSwap(last, now) {
		s.rings.countSuppressedRequest()
		return ErrTooSoon
	}
	s.rings.request(reason)
	return nil
}

// Region tells the agent that something of that name has taken from begin
// until now. If a trigger is set on the name (tracectl trigger add --region
// NAME --over 40ms) and it took that long, a snapshot is taken. The region
// itself belongs to runtime/trace: see [Agent.StartRegion].
func (a *Agent) Region(name string, begin time.Time) {
	if a == nil {
		return
	}
	if s := a.session.Load(); s != nil {
		s.region(name, time.Since(begin))
	}
}

func (a *Agent) whyMissing() string {
	if a.recorder == nil {
		return a.missing
	}
	select {
	case <-a.done:
		return "the agent was stopped"
	default:
	}
	// The module's own one runs until Stop, which may be at this moment:
	// Enabled is not safe then, as of Go 1.26.
	if a.own == nil && !a.recorder.Enabled() {
		return "the FlightRecorder is not running"
	}
	return ""
}

func (a *Agent) setError(err error) {
	a.mu.Lock()
	a.lastErr = err
	a.mu.Unlock()
}

// run keeps a connection until Stop. A panic in here would be the program's
// end: it is an error of the connection instead.
func (a *Agent) run(serves bool) {
	defer close(a.ended)
	if !serves {
		select {
		case serving <- struct{}{}:
		case <-a.done:
			return
		}
	}
	defer func() { <-serving }()
	pause := a.opts.MinBackoff
	for {
		a.connected = time.Time{}
		a.setError(a.connectOnce())
		// A daemon that was there is awaited as at first; one that throws us
		// out at once is not.
		if !a.connected.IsZero() && time.Since(a.connected) > pause {
			pause = a.opts.MinBackoff
		}
		select {
		case <-a.done:
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, a.opts.MaxBackoff)
	}
}
