// SPDX-License-Identifier: Apache-2.0

package tracerd

import (
	"context"
	"fmt"
	"net/http"
	"runtime/trace"
	"time"
)

// StartRegion starts a region of runtime/trace and returns its end, which
// must be called by the same goroutine:
//
//	defer agent.StartRegion(ctx, "load")()
//
// Beyond what trace.StartRegion does, its duration is compared with the
// triggers of the daemon, see [Agent.Region].
func (a *Agent) StartRegion(ctx context.Context, name string) func() {
	begin := time.Now()
	r := trace.StartRegion(ctx, name)
	return func() {
		r.End()
		a.Region(name, begin)
	}
}

// StartTask starts a task of runtime/trace; end may be called by any
// goroutine. Its duration is compared with the triggers, as of a region.
func (a *Agent) StartTask(ctx context.Context, name string) (task context.Context, end func()) {
	begin := time.Now()
	task, t := trace.NewTask(ctx, name)
	return task, func() {
		t.End()
		a.Region(name, begin)
	}
}

// Slow asks for a snapshot if what began then has taken over or longer. For
// interceptors of gRPC and the like:
//
//	defer agent.Slow(info.FullMethod, time.Now(), 50*time.Millisecond)
func (a *Agent) Slow(name string, begin time.Time, over time.Duration) {
	if took := time.Since(begin); over > 0 && took >= over {
		_ = a.Snapshot(fmt.Sprintf("%s took %v", name, took.Round(time.Microsecond)))
	}
}

// Handler runs each request of h as a task named "METHOD PATTERN" (the
// pattern of http.ServeMux, or "http" without one), and asks for a snapshot
// if one takes over or longer (0: triggers of the daemon alone decide).
func (a *Agent) Handler(h http.Handler, over time.Duration) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := r.Method + " http"
		if mux, ok := h.(*http.ServeMux); ok {
			if _, pattern := mux.Handler(r); pattern != "" {
				name = r.Method + " " + withoutMethod(pattern)
			}
		}
		begin := time.Now()
		ctx, end := a.StartTask(r.Context(), name)
		// also after a panic of the handler
		defer func() {
			end()
			a.Slow(name, begin, over)
		}()
		h.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withoutMethod cuts "GET " off a pattern of a ServeMux.
func withoutMethod(pattern string) string {
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case ' ', '\t':
			return pattern[i+1:]
		case '/':
			return pattern
		}
	}
	return pattern
}
