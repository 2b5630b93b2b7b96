// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"math"
	"runtime/metrics"
	"time"
)

// The runtime tells nobody that a goroutine has waited long to run, or the
// world stood still: it counts how often and how long, in histograms. While a
// trigger is set on one of them it is read every watchInterval; what has come
// since is as long as the lower bound of its bucket, at least (a bucket is up
// to a quarter wide), and has ended within the interval.
const watchInterval = 100 * time.Millisecond

// The names by which the control page has these triggers (trigger.add: "go").
var watchNames = [...]string{"go:runnable", "go:gc-stop", "go:other-stop"}
var watchMetrics = [...]string{"/sched/latencies:seconds", "/sched/pauses/total/gc:seconds", "/sched/pauses/total/other:seconds"}

// watcher compares the histograms with what they were.
type watcher struct {
	samples []metrics.Sample
	seen    [len(watchMetrics)][]uint64
}

func newWatcher() *watcher {
	w := &watcher{samples: make([]metrics.Sample, len(watchMetrics))}
	for i := range w.samples {
		w.samples[i].Name = watchMetrics[i]
	}
	return w
}

// read returns how long the longest of each has taken that have come since
// the last read, at least; 0: nothing has, or it is the first read.
func (w *watcher) read() (longest [len(watchMetrics)]time.Duration) {
	metrics.Read(w.samples)
	for i := range w.samples {
		if w.samples[i].Value.Kind() != metrics.KindFloat64Histogram {
			continue // a Go that does not have it
		}
		longest[i] = w.compare(i, w.samples[i].Value.Float64Histogram())
	}
	return longest
}

func (w *watcher) compare(i int, h *metrics.Float64Histogram) (longest time.Duration) {
	if len(w.seen[i]) == len(h.Counts) {
		for b, n := range h.Counts {
			if lower := h.Buckets[b]; n > w.seen[i][b] && lower > 0 && !math.IsInf(lower, 0) {
				longest = time.Duration(lower * 1e9)
			}
		}
	}
	w.seen[i] = append(w.seen[i][:0], h.Counts...)
	return longest
}

// watched says whether a trigger is set on any of the histograms.
func (s *session) watched() bool {
	for _, name := range watchNames {
		if _, _, ok := s.page.find(name); ok {
			return true
		}
	}
	return false
}

// watch runs until the connection ends; without a trigger it waits for the
// daemon's word that the page has changed.
func (s *session) watch() {
	defer func() {
		if r := recover(); r != nil {
			s.close()
		}
	}()
	for {
		if !s.watched() {
			select {
			case <-s.closed:
				return
			case <-s.changed:
			}
			continue
		}
		s.watchWhileWanted()
		select {
		case <-s.closed:
			return
		default:
		}
	}
}

func (s *session) watchWhileWanted() {
	w, tick := newWatcher(), time.NewTicker(watchInterval)
	defer tick.Stop()
	w.read()
	for s.watched() {
		select {
		case <-s.closed:
			return
		case <-tick.C:
		}
		for i, took := range w.read() {
			if h, t, ok := s.page.find(watchNames[i]); ok && took > 0 && uint64(took) >= t.over {
				s.rings.crossed(h, t, watchNames[i], took, 0)
			}
		}
	}
}
