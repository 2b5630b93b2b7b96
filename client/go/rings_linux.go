// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The memory by which a program registers and asks for snapshots, and the
// page by which the daemon gives it thresholds: common/bundle/ringabi.h. A
// Go program has no event rings, because goroutines move between threads;
// there is one that stays empty, because the layout has at least one.
const (
	pageSize       = 4096
	causes         = 16
	causeBytes     = 512
	causeText      = 448
	causesOffset   = pageSize
	namesOffset    = causesOffset + causes*causeBytes
	textOffset     = namesOffset + pageSize
	dirOffset      = textOffset + pageSize
	dataOffset     = dirOffset + pageSize
	slots          = 64
	totalBytes     = dataOffset + slots*32
	causeHeadAt    = 64
	suppressedReqs = 96
	suppressedAt   = 128
	thresholds     = 64
	thresholdBytes = 256
	thresholdsAt   = 128
	thresholdName  = 216
	controlBytes   = 5 * pageSize
	causeRegion    = 1
	causeRequest   = 2
)

type rings struct {
	fd, wake int
	mem      []byte
	mu       sync.Mutex // causes are written by one goroutine at a time
	cooling  [thresholds]struct {
		id   uint32
		last int64
	}
}

// newRings makes the memory; it is unmapped and its descriptors are closed
// when nobody uses it any more, since a region that ends may still do.
func newRings() (*rings, error) {
	r := &rings{wake: -1}
	var err error
	if r.fd, err = memfd("rings"); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(r, (*rings).free)
	if err = syscall.Ftruncate(r.fd, totalBytes); err != nil {
		return nil, fmt.Errorf("ftruncate: %w", err)
	}
	if r.mem, err = syscall.Mmap(r.fd, 0, totalBytes, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED); err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	// A child that the program forks has no part in it.
	_ = syscall.Madvise(r.mem, syscall.MADV_DONTFORK)
	fd, _, e := syscall.Syscall(sysEventfd2, 0, syscall.O_CLOEXEC|syscall.O_NONBLOCK, 0)
	if e != 0 {
		return nil, fmt.Errorf("eventfd: %w", e)
	}
	r.wake = int(fd)
	le := binary.LittleEndian
	le.PutUint32(r.mem[8:], 1)  // version
	le.PutUint32(r.mem[12:], 2) // MONOTONIC_RAW
	le.PutUint64(r.mem[16:], totalBytes)
	le.PutUint32(r.mem[24:], uint32(syscall.Getpid()))
	le.PutUint32(r.mem[28:], 1) // rings
	le.PutUint32(r.mem[32:], slots)
	le.PutUint32(r.mem[36:], 1)        // names
	le.PutUint32(r.mem[40:], pageSize) // their text
	le.PutUint32(r.mem[44:], textOffset)
	le.PutUint32(r.mem[48:], dirOffset)
	le.PutUint32(r.mem[52:], dataOffset)
	le.PutUint64(r.mem[104:], uint64(clock(clockRaw)))
	copy(r.mem, "TRCDRING")
	return r, seal(r.fd, sealShrink|sealGrow|sealFutureWrite|sealSeal)
}

func (r *rings) free() {
	if r.mem != nil {
		_ = syscall.Munmap(r.mem)
	}
	_ = syscall.Close(r.fd)
	if r.wake >= 0 {
		_ = syscall.Close(r.wake)
	}
}

func (r *rings) word(at uintptr) *uint64 {
	return (*uint64)(unsafe.Pointer(&r.mem[at]))
}

func (r *rings) countSuppressedRequest() {
	atomic.AddUint64(r.word(suppressedReqs), 1)
	runtime.KeepAlive(r)
}

func (r *rings) request(reason string) {
	now := uint64(clock(clockRaw))
	r.cause(causeRequest, 0, reason, thread(), now, now)
}

// thread returns the number of the thread that the goroutine is on.
func thread() uint32 {
	tid, _, _ := syscall.RawSyscall(sysGettid, 0, 0, 0)
	return uint32(tid)
}

// crossed: a region has taken as long as its trigger says, or longer. The
// thread is that on which it ended; 0: nobody knows.
func (r *rings) crossed(i int, t threshold, name string, took time.Duration, tid uint32) {
	now := clock(clockRaw)
	r.mu.Lock()
	c := &r.cooling[i]
	cold := c.id == t.id && uint64(now-c.last) < t.cooldown
	if !cold {
		c.id, c.last = t.id, now
	}
	r.mu.Unlock()
	if cold {
		atomic.AddUint64(r.word(suppressedAt+uintptr(i)*8), 1)
		runtime.KeepAlive(r)
		return
	}
	r.cause(causeRegion, t.id, name, tid, uint64(now-int64(took)), uint64(now))
}

func (r *rings) cause(kind, trigger uint32, text string, tid uint32, begin, end uint64) {
	text = shorten(text, causeText)
	r.mu.Lock()
	c := atomic.AddUint64(r.word(causeHeadAt), 1) - 1
	at := uintptr(causesOffset + c%causes*causeBytes)
	atomic.StoreUint64(r.word(at), 0)
	m, le := r.mem[at:at+causeBytes], binary.LittleEndian
	le.PutUint32(m[8:], kind)
	le.PutUint32(m[12:], tid)
	le.PutUint32(m[16:], 0)
	le.PutUint32(m[20:], trigger)
	le.PutUint64(m[24:], begin)
	le.PutUint64(m[32:], end)
	le.PutUint32(m[40:], uint32(len(text)))
	copy(m[48:48+causeText], text)
	atomic.StoreUint64(r.word(at), c+1)
	r.mu.Unlock()
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	// Nonblocking; if it is full it is readable already.
	_, _ = syscall.Write(r.wake, one[:])
	runtime.KeepAlive(r)
}

// page is the daemon's control page, which the program can only read.
type page struct{ mem []byte }

type threshold struct {
	over, cooldown uint64
	id             uint32
}

// mapPage takes over fd.
func mapPage(fd int) (*page, error) {
	defer syscall.Close(fd)
	var st syscall.Stat_t
	if err := syscall.Fstat(fd, &st); err != nil || st.Size < controlBytes {
		return nil, fmt.Errorf("tracerd: the control page has %d bytes", st.Size)
	}
	mem, err := syscall.Mmap(fd, 0, controlBytes, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mmap: %w", err)
	}
	p := &page{mem}
	runtime.SetFinalizer(p, func(p *page) { _ = syscall.Munmap(p.mem) })
	if string(mem[:8]) != "TRCDCTRL" {
		return nil, fmt.Errorf("tracerd: the control page has not the magic TRCDCTRL")
	}
	return p, nil
}

func (p *page) generation() uint32 {
	return atomic.LoadUint32((*uint32)(unsafe.Pointer(&p.mem[12])))
}

func (p *page) requestInterval() uint64 {
	defer runtime.KeepAlive(p)
	return binary.LittleEndian.Uint64(p.mem[24:])
}

// find looks a region's name up. The page is tiny, most often empty, and
// read as it is: the daemon makes the generation odd while it writes.
func (p *page) find(name string) (int, threshold, bool) {
	defer runtime.KeepAlive(p)
	le := binary.LittleEndian
	for try := 0; try < 8; try++ {
		before := p.generation()
		if before&1 != 0 {
			runtime.Gosched()
			continue
		}
		found, t := -1, threshold{}
		for i := 0; i < thresholds && found < 0; i++ {
			e := p.mem[thresholdsAt+i*thresholdBytes:][:thresholdBytes]
			id, n := le.Uint32(e[24:]), int(le.Uint32(e[28:]))
			if id != 0 && n == len(name) && n <= thresholdName && string(e[32:32+n]) == name {
				found, t = i, threshold{over: le.Uint64(e[8:]), cooldown: le.Uint64(e[16:]), id: id}
			}
		}
		if p.generation() == before {
			return found, t, found >= 0
		}
	}
	return -1, threshold{}, false
}
