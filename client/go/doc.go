// SPDX-License-Identifier: Apache-2.0

// Package tracerd connects a Go program to tracerd, a flight recorder for
// Linux processes.
//
//	func main() {
//		agent := tracerd.Start(tracerd.Options{})
//		defer agent.Stop()
//		...
//	}
//
// From then on the program is a target of tracerd (tracectl list), and each
// snapshot of it holds the last seconds of Go's own execution trace
// (go.trace: goroutines, garbage collection, tasks and regions of
// runtime/trace) beside what tracerd records of the machine. The trace comes
// from a runtime/trace.FlightRecorder, for which Go 1.25 is needed; with an
// older Go everything else works, and [Agent.Status] says what is missing.
//
// The package never blocks the program and never makes it fail: where no
// tracerd runs it tries again now and then, with a growing pause. It needs no
// cgo and nothing but the standard library. It does something on Linux only.
package tracerd
