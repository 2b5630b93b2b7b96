// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"time"
)

const (
	registerTimeout = 10 * time.Second
	writeTimeout    = 10 * time.Second
)

// session is one connection to the daemon, registered.
type session struct {
	agent   *Agent
	conn    *net.UnixConn
	target  string
	rings   *rings
	page    *page
	wmu     sync.Mutex // one message at a time
	once    sync.Once
	closed  chan struct{}
	changed chan struct{} // the control page; holds one word
}

func defaultSocket() string {
	if s := os.Getenv("TRACERD_SOCKET"); s != "" {
		return s
	}
	return DefaultSocket
}

// message is all that either side sends.
type message struct {
	V      int             `json:"v"`
	ID     *int64          `json:"id,omitempty"`
	Method string          `json:"method,omitempty"`
	Params any             `json:"params,omitempty"`
	Result any             `json:"result,omitempty"`
	Error  *protocolError  `json:"error,omitempty"`
	NFDs   int             `json:"nfds,omitempty"`
	Event  string          `json:"event,omitempty"`
	raw    json.RawMessage // Params or Result as they came
}

type protocolError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

// connectOnce connects, registers and serves until the connection ends.
func (a *Agent) connectOnce() (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("tracerd: %v", r)
		}
	}()
	select {
	case <-a.done:
		return ErrNotConnected
	default:
	}
	d := net.Dialer{Timeout: registerTimeout}
	c, err := d.Dial("unix", a.opts.Socket)
	if err != nil {
		return err
	}
	s := &session{agent: a, conn: c.(*net.UnixConn), closed: make(chan struct{}), changed: make(chan struct{}, 1)}
	defer s.close()
	if s.rings, err = newRings(); err != nil {
		return err
	}
	if err = s.register(); err != nil {
		return err
	}
	a.connected = time.Now()
	a.session.Store(s)
	defer a.session.CompareAndSwap(s, nil)
	defer a.refuseStream(nil) // another daemon may want it
	select {
	case <-a.done: // Stop may not have seen the session
		return ErrNotConnected
	default:
	}
	a.setError(nil)
	go s.watch()
	return s.serve()
}

func (s *session) close() {
	s.once.Do(func() {
		close(s.closed)
		_ = s.conn.Close()
	})
}

func (s *session) register() error {
	names, fds := []string{"rings", "wake"}, []int{s.rings.fd, s.rings.wake}
	stream := s.agent.streamFD()
	if stream >= 0 {
		names, fds = append(names, "go_stream"), append(fds, stream)
	}
	params := map[string]any{"fds": names}
	if s.agent.recorder != nil || stream >= 0 {
		params["go"] = shorten(runtime.Version(), 64)
		params["go_keep_ns"] = int64(s.agent.opts.MinAge)
	}
	id := int64(1)
	_ = s.conn.SetDeadline(time.Now().Add(registerTimeout))
	if err := s.send(&message{V: 1, ID: &id, Method: "target.register", Params: params, NFDs: len(fds)}, fds...); err != nil {
		return err
	}
	for {
		m, fds, err := readMessage(s.conn)
		if err != nil {
			return err
		}
		if m.ID == nil || *m.ID != id {
			closeAll(fds)
			continue
		}
		if m.Error != nil {
			closeAll(fds)
			err := fmt.Errorf("tracerd: %s: %s", m.Error.Code, m.Error.Message)
			if stream >= 0 {
				s.agent.refuseStream(err) // the next attempt is without
			} else {
				s.agent.refuseStream(nil) // it was not for the stream
			}
			return err
		}
		if len(fds) != 1 {
			closeAll(fds)
			return errors.New("tracerd: the answer to the registration has no control page")
		}
		if s.page, err = mapPage(fds[0]); err != nil {
			return err
		}
		var result struct {
			Target struct {
				ID string `json:"id"`
			} `json:"target"`
		}
		if err := json.Unmarshal(m.raw, &result); err != nil {
			return err
		}
		s.target = result.Target.ID
		return s.conn.SetDeadline(time.Time{})
	}
}

// streamFD is -1 if there is no stream, or the daemon does not want it.
func (a *Agent) streamFD() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.stream == nil || a.noStream != nil {
		return -1
	}
	return a.stream.fd
}

// refuseStream: the daemon does not want it; nil: nobody knows.
func (a *Agent) refuseStream(why error) {
	if a.stream == nil {
		return
	}
	a.mu.Lock()
	a.noStream = why
	a.mu.Unlock()
}

func (s *session) send(m *message, fds ...int) error {
	s.wmu.Lock()
	defer s.wmu.Unlock()
	_ = s.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	err := writeMessage(s.conn, m, fds...)
	if err != nil {
		s.close()
	}
	return err
}

func (s *session) refuse(id int64, code, why string) error {
	return s.send(&message{V: 1, ID: &id, Error: &protocolError{code, why}})
}

// serve answers the daemon's requests. The trace is written by a goroutine
// of its own, one at a time, so that pings are answered meanwhile.
func (s *session) serve() error {
	for {
		m, fds, err := readMessage(s.conn)
		if err != nil {
			return err
		}
		closeAll(fds)
		if m.ID == nil || m.Method == "" {
			select { // control.changed
			case s.changed <- struct{}{}:
			default:
			}
			continue
		}
		switch m.Method {
		case "ping":
			err = s.send(&message{V: 1, ID: m.ID, Result: struct{}{}})
		case "go.trace":
			err = s.traceAsked(*m.ID, m.raw)
		default:
			err = s.refuse(*m.ID, "unknown_method", "this module knows no "+shorten(m.Method, 64))
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) traceAsked(id int64, raw json.RawMessage) error {
	var p struct {
		MaxBytes int64 `json:"max_bytes"`
		WaitNS   int64 `json:"wait_ns"`
	}
	if err := json.Unmarshal(raw, &p); err != nil || p.MaxBytes <= 0 || p.WaitNS <= 0 {
		return s.refuse(id, "bad_params", "max_bytes and wait_ns must be positive")
	}
	if why := s.agent.whyMissing(); why != "" {
		return s.refuse(id, "unsupported", why)
	}
	// A recorder writes one trace at a time, and one that takes long must not pile up others.
	if !s.agent.using.TryLock() {
		s.agent.failed.Add(1)
		return s.refuse(id, "busy", "the trace of another snapshot is being written")
	}
	go s.answerTrace(id, p.MaxBytes, time.Now().Add(time.Duration(p.WaitNS)))
	return nil
}

// answerTrace has the recorder's lock, and gives it back.
func (s *session) answerTrace(id, maxBytes int64, deadline time.Time) {
	begin := monotonic()
	fd, err := writeTrace(s.agent.recorder, maxBytes, deadline)
	// Before the answer: the daemon may ask for the next one as soon as it has this.
	s.agent.using.Unlock()
	if err != nil {
		s.agent.failed.Add(1)
		_ = s.refuse(id, "io", shorten(err.Error(), 200))
		return
	}
	defer closeAll([]int{fd})
	result := map[string]int64{"begin_ns": begin, "end_ns": monotonic()}
	if s.send(&message{V: 1, ID: &id, Result: result, NFDs: 1}, fd) == nil {
		s.agent.written.Add(1)
	} else {
		s.agent.failed.Add(1)
	}
}

func (s *session) interval() int64 {
	return int64(s.page.requestInterval())
}

func (s *session) region(name string, took time.Duration) {
	if i, t, ok := s.page.find(name); ok && took >= 0 && uint64(took) >= t.over {
		s.rings.crossed(i, t, name, took, thread())
	}
}

func shorten(s string, n int) string {
	if len(s) > n {
		s = s[:n]
	}
	return s
}
