// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"encoding/binary"
	"errors"
	"fmt"
	"runtime"
	"runtime/trace"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// The memory into which the trace is streamed: common/bundle/gostream.h.
const (
	streamPage      = 4096
	streamAreas     = 2
	streamLostAt    = 24
	streamAreaAt    = 32 // order and bytes of each
	traceHeader     = 16
	maxBatch        = 65536
	endOfGeneration = 52
)

// batches finds the ends of generations in a trace that comes in pieces.
type batches struct {
	head    []byte // of the batch that has begun
	skip    int    // bytes of its data that are still to come
	gen     uint64
	started bool
}

var errNoBatch = errors.New("the runtime's trace is not what this package knows")
var errSilent = errors.New("the runtime has written nothing for 10 s: the program may have called trace.Stop")

// The runtime begins a generation each second, and writes it.
const silence = int64(10 * time.Second)

// next takes bytes of p until a generation ends or p does. At an end, head is
// what was taken of the next generation already, until the next call.
func (b *batches) next(p []byte) (n int, ended bool, head []byte, err error) {
	for n < len(p) {
		if b.skip > 0 {
			k := min(b.skip, len(p)-n)
			b.skip -= k
			n += k
			continue
		}
		b.head = append(b.head, p[n])
		n++
		if b.head[0] == endOfGeneration {
			b.head, b.started = b.head[:0], false
			return n, true, nil, nil
		}
		gen, size, whole, err := b.read()
		if err != nil {
			return n, false, nil, err
		}
		if !whole {
			continue
		}
		// Before Go 1.26 nothing but the next one's first batch says so.
		ended, head = b.started && gen != b.gen, b.head
		b.head, b.skip, b.gen, b.started = b.head[:0], size, gen, true
		if ended {
			return n, true, head, nil
		}
	}
	return n, false, nil, nil
}

// read reads the head of a batch, as far as it has come.
func (b *batches) read() (gen uint64, size int, whole bool, err error) {
	rest := b.head[1:]
	switch b.head[0] {
	case 1:
	case 49: // of an experiment, whose number follows
		if len(rest) == 0 {
			return 0, 0, false, nil
		}
		rest = rest[1:]
	default:
		return 0, 0, false, errNoBatch
	}
	var v [4]uint64 // generation, thread, time, size
	for i := range v {
		x, n := binary.Uvarint(rest)
		if n < 0 {
			return 0, 0, false, errNoBatch
		}
		if n == 0 {
			return 0, 0, false, nil
		}
		v[i], rest = x, rest[n:]
	}
	if v[3] > maxBatch {
		return 0, 0, false, errNoBatch
	}
	return v[0], int(v[3]), true, nil
}

// stream is where runtime/trace writes to: plain memory, so nothing blocks.
type stream struct {
	fd        int
	mem       []byte
	area      int    // that is written
	at, whole int    // bytes in it, and of whole generations; 0: nothing was written yet
	order     uint64 // of the area that has the last whole generation
	dropping  bool   // the present generation, which is too large
	gap       bool   // a generation is missing since the last whole one
	header    []byte
	batches   batches
	broken    atomic.Bool
	last      atomic.Int64 // MONOTONIC, when the runtime has written something
}

// newStream starts runtime/trace. The areas are unmapped when neither it nor
// the Agent has them any more; the daemon keeps its own descriptor of them.
func newStream(bytes uint64) (*stream, error) {
	area := int(min(bytes, 1<<40)) / streamAreas &^ (streamPage - 1)
	if area < maxBatch*2 {
		return nil, fmt.Errorf("tracerd: StreamBytes is less than %d", streamAreas*maxBatch*2)
	}
	fd, err := memfd("go.stream")
	if err != nil {
		return nil, err
	}
	s := &stream{fd: fd}
	s.last.Store(monotonic())
	runtime.SetFinalizer(s, (*stream).free)
	total := streamPage + streamAreas*area
	if err = syscall.Ftruncate(fd, int64(total)); err == nil {
		s.mem, err = syscall.Mmap(fd, 0, total, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	}
	if err == nil {
		_ = syscall.Madvise(s.mem, syscall.MADV_DONTFORK)
		le := binary.LittleEndian
		copy(s.mem, "TRCDGOST")
		le.PutUint32(s.mem[8:], 1)
		le.PutUint32(s.mem[12:], streamAreas)
		le.PutUint64(s.mem[16:], uint64(area))
		err = seal(fd, sealShrink|sealGrow)
	}
	if err == nil {
		err = trace.Start(s)
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

func (s *stream) free() {
	if s.mem != nil {
		_ = syscall.Munmap(s.mem)
	}
	_ = syscall.Close(s.fd)
}

func (s *stream) word(at int) *uint64 { return (*uint64)(unsafe.Pointer(&s.mem[at])) }

func (s *stream) areaBytes() int { return (len(s.mem) - streamPage) / streamAreas }

func (s *stream) lost() uint64 {
	defer runtime.KeepAlive(s)
	return atomic.LoadUint64(s.word(streamLostAt))
}

// ended says why nothing is written to it any more, if so.
func (s *stream) ended() error {
	if s.broken.Load() {
		return errNoBatch
	}
	if monotonic()-s.last.Load() > silence {
		return errSilent
	}
	return nil
}

// Write never fails: runtime/trace would stop for good. A stream that is not
// understood has what came before.
func (s *stream) Write(p []byte) (int, error) {
	all := len(p)
	s.last.Store(monotonic())
	defer runtime.KeepAlive(s)
	defer func() {
		if recover() != nil {
			s.broken.Store(true)
		}
	}()
	if k := min(traceHeader-len(s.header), len(p)); k > 0 {
		s.header = append(s.header, p[:k]...)
		p = p[k:]
	}
	for len(p) > 0 && !s.broken.Load() {
		n, ended, head, err := s.batches.next(p)
		if err != nil {
			s.broken.Store(true)
			break
		}
		s.append(p[:n])
		if ended {
			s.commit(head)
		}
		p = p[n:]
	}
	return all, nil
}

// room is the memory of an area.
func (s *stream) room(area int) []byte {
	return s.mem[streamPage+area*s.areaBytes():][:s.areaBytes()]
}

func (s *stream) orderOf(area int) *uint64 { return s.word(streamAreaAt + 16*area) }

func (s *stream) append(p []byte) {
	if s.dropping {
		return
	}
	if s.at == 0 {
		s.begin(0, nil)
	}
	if s.at+len(p) > s.areaBytes() {
		partial := s.room(s.area)[s.whole:s.at]
		if traceHeader+len(partial)+len(p) > s.areaBytes() {
			s.dropping, s.gap = true, true
			atomic.AddUint64(s.word(streamLostAt), 1)
			return
		}
		s.begin(1-s.area, partial)
	}
	s.at += copy(s.room(s.area)[s.at:], p)
}

// begin begins an area anew, with what there is of the present generation.
func (s *stream) begin(area int, partial []byte) {
	s.area = area
	atomic.StoreUint64(s.orderOf(area), 0)
	s.whole = copy(s.room(area), s.header)
	s.at = s.whole + copy(s.room(area)[s.whole:], partial)
}

// commit makes the generation count that has ended. Of the next one the
// first bytes are there already.
func (s *stream) commit(head []byte) {
	if s.dropping {
		s.dropping = false
		if atomic.LoadUint64(s.orderOf(s.area)) == 0 {
			s.begin(s.area, head)
		} else {
			s.begin(1-s.area, head)
		}
		return
	}
	s.whole = s.at - len(head)
	atomic.StoreUint64(s.word(streamAreaAt+16*s.area+8), uint64(s.whole))
	if atomic.LoadUint64(s.orderOf(s.area)) != 0 {
		return
	}
	s.order++
	if s.gap {
		s.order++
		s.gap = false
	}
	atomic.StoreUint64(s.orderOf(s.area), s.order)
}

// stop may wait for the runtime, which then writes no more.
func (s *stream) stop() { trace.Stop() }
