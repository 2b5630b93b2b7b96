// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"bytes"
	"encoding/binary"
	"testing"
)

// generation is a batch of n bytes of generation gen, in the form of 1.26 if it is marked.
func generation(gen, n int, marked bool) []byte {
	b := []byte{1}
	for _, v := range []uint64{uint64(gen), 7, 300, uint64(n)} {
		b = binary.AppendUvarint(b, v)
	}
	b = append(b, bytes.Repeat([]byte{byte(gen)}, n)...)
	if marked {
		b = append(b, endOfGeneration)
	}
	return b
}

// testStream is without runtime/trace, of two areas.
func testStream(area int) *stream {
	s := &stream{fd: -1, mem: make([]byte, streamPage+streamAreas*area)}
	_, _ = s.Write([]byte("go 1.26 trace\x00\x00\x00"))
	return s
}

// kept is what the daemon takes.
func (s *stream) kept() []byte {
	newest, other := 0, 1
	if *s.orderOf(1) > *s.orderOf(0) {
		newest, other = 1, 0
	}
	get := func(area int) []byte { return s.room(area)[:*s.word(streamAreaAt + 16*area + 8)] }
	if *s.orderOf(newest) == 0 {
		return nil
	}
	if *s.orderOf(other) == 0 || *s.orderOf(other)+1 != *s.orderOf(newest) {
		return get(newest)
	}
	return append(append([]byte{}, get(other)...), get(newest)[traceHeader:]...)
}

func TestStream(t *testing.T) {
	const area = 1000
	for _, marked := range []bool{true, false} {
		for _, piece := range []int{1, 3, 7, 100, 100000} {
			s := testStream(area)
			var whole [][]byte
			var in []byte
			for gen := 1; gen <= 40; gen++ {
				n := gen * 37 % 300
				if gen == 20 {
					n = 5000 // does not fit
				}
				whole = append(whole, generation(gen, n, marked))
				in = append(in, whole[gen-1]...)
			}
			for len(in) > 0 {
				k := min(piece, len(in))
				if n, err := s.Write(in[:k]); n != k || err != nil {
					t.Fatal(n, err)
				}
				in = in[k:]
			}
			if !marked { // the last has not ended
				whole = whole[:len(whole)-1]
			}
			got := s.kept()
			if string(got[:traceHeader]) != "go 1.26 trace\x00\x00\x00" {
				t.Fatal("no header")
			}
			got = got[traceHeader:]
			if len(got) < area/2 || !bytes.HasSuffix(bytes.Join(whole, nil), got) || got[0] != 1 {
				t.Fatalf("marked %v, in pieces of %d: %d bytes that are not the last generations", marked, piece, len(got))
			}
			if s.lost() != 1 {
				t.Fatal("lost", s.lost())
			}
		}
	}
}

// After one that is too large, what came before is there until the next is whole, and never both.
func TestStreamGap(t *testing.T) {
	s := testStream(1000)
	write := func(gen, n int) { _, _ = s.Write(generation(gen, n, true)) }
	last := func() byte { k := s.kept(); return k[len(k)-2] }
	write(1, 600)
	write(2, 600)
	if last() != 2 || len(s.kept()) < 1200 {
		t.Fatal("two areas", len(s.kept()))
	}
	write(3, 2000)
	if last() != 2 {
		t.Fatal("the large one has taken what there was")
	}
	write(4, 10)
	if k := s.kept(); last() != 4 || len(k) > 100 {
		t.Fatal("over a gap", len(k))
	}
	write(5, 900)
	if k := s.kept(); last() != 5 || len(k) < 900 {
		t.Fatal("on again", len(k))
	}
}

func TestStreamGarbage(t *testing.T) {
	s := testStream(1000)
	_, _ = s.Write(generation(1, 100, true))
	before := len(s.kept())
	for _, junk := range [][]byte{{200}, bytes.Repeat([]byte{255}, 100)} {
		if n, err := s.Write(junk); n != len(junk) || err != nil {
			t.Fatal("the runtime must not see it", n, err)
		}
	}
	if !s.broken.Load() || len(s.kept()) != before {
		t.Fatal("what came before must be there")
	}
}
