// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"encoding/binary"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

const patience = time.Minute // what must happen happens in milliseconds

// fakeDaemon accepts programs and does with each what `serve` says.
type fakeDaemon struct {
	t        *testing.T
	path     string
	listener *net.UnixListener
	peers    chan *fakePeer
	accepted atomic.Int32
	refuse   atomic.Int32 // registrations
}

// fakePeer is a registered program, from the daemon's side.
type fakePeer struct {
	conn        *net.UnixConn
	params      map[string]any
	rings, wake int
	stream      bool
	page        []byte
}

func newFakeDaemon(t *testing.T) *fakeDaemon {
	d := &fakeDaemon{t: t, path: filepath.Join(t.TempDir(), "s"), peers: make(chan *fakePeer, 8)}
	d.listen()
	t.Cleanup(func() { d.listener.Close() })
	return d
}

func (d *fakeDaemon) listen() {
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: d.path, Net: "unix"})
	if err != nil {
		d.t.Fatal(err)
	}
	d.listener = l
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			d.accepted.Add(1)
			go d.register(c)
		}
	}()
}

// register answers target.register, with a page of one second between requests.
func (d *fakeDaemon) register(c *net.UnixConn) {
	m, fds, err := readMessage(c)
	if err != nil || m.Method != "target.register" || len(fds) < 2 {
		c.Close()
		return
	}
	if d.refuse.Add(-1) >= 0 {
		closeAll(fds)
		_ = writeMessage(c, &message{V: 1, ID: m.ID, Error: &protocolError{"busy", "not now"}})
		return
	}
	p := &fakePeer{conn: c, rings: fds[0], wake: fds[1], stream: len(fds) > 2}
	closeAll(fds[2:])
	_ = json.Unmarshal(m.raw, &p.params)
	fd, _ := memfd("page")
	_ = syscall.Ftruncate(fd, controlBytes)
	p.page, _ = syscall.Mmap(fd, 0, controlBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	copy(p.page, "TRCDCTRL")
	binary.LittleEndian.PutUint64(p.page[24:], uint64(time.Hour))
	_ = writeMessage(c, &message{V: 1, ID: m.ID, Result: map[string]any{"target": map[string]any{"id": "t1"}}, NFDs: 1}, fd)
	closeAll([]int{fd})
	d.peers <- p
}

func (d *fakeDaemon) next() *fakePeer {
	select {
	case p := <-d.peers:
		return p
	case <-time.After(patience):
		d.t.Fatal("no program has registered")
		return nil
	}
}

func (p *fakePeer) threshold(name string, over, cooldown time.Duration, id uint32) {
	le, generation := binary.LittleEndian, (*uint32)(unsafe.Pointer(&p.page[12]))
	atomic.AddUint32(generation, 1)
	e := p.page[thresholdsAt:]
	le.PutUint64(e[8:], uint64(over))
	le.PutUint64(e[16:], uint64(cooldown))
	le.PutUint32(e[24:], id)
	le.PutUint32(e[28:], uint32(len(name)))
	copy(e[32:], name)
	atomic.AddUint32(generation, 1)
}

func (p *fakePeer) ask(id int64, maxBytes int64, wait time.Duration) error {
	return writeMessage(p.conn, &message{V: 1, ID: &id, Method: "go.trace",
		Params: map[string]int64{"max_bytes": maxBytes, "wait_ns": int64(wait)}})
}

// cause returns the c-th cause that the program has written.
func (p *fakePeer) cause(c int) (kind, trigger uint32, text string) {
	b := make([]byte, causeBytes)
	_, _ = syscall.Pread(p.rings, b, int64(causesOffset+c*causeBytes))
	le := binary.LittleEndian
	if le.Uint64(b) != uint64(c+1) {
		return 0, 0, ""
	}
	return le.Uint32(b[8:]), le.Uint32(b[20:]), string(b[48 : 48+le.Uint32(b[40:])])
}

func (p *fakePeer) header(at int64) uint64 {
	var b [8]byte
	_, _ = syscall.Pread(p.rings, b[:], at)
	return binary.LittleEndian.Uint64(b[:])
}

// fakeRecorder writes what the test says.
type fakeRecorder struct {
	write func(w io.Writer) (int64, error)
	off   bool
}

func (r *fakeRecorder) WriteTo(w io.Writer) (int64, error) { return r.write(w) }
func (r *fakeRecorder) Enabled() bool                      { return !r.off }

func says(text string) *fakeRecorder {
	return &fakeRecorder{write: func(w io.Writer) (int64, error) {
		n, err := io.WriteString(w, text)
		return int64(n), err
	}}
}

func start(t *testing.T, d *fakeDaemon, r Recorder) *Agent {
	a := Start(Options{Socket: d.path, Recorder: r, MinBackoff: time.Millisecond, MaxBackoff: 20 * time.Millisecond})
	t.Cleanup(a.Stop)
	return a
}

func waitFor(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !is(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited in vain: " + what)
		}
	}
}
