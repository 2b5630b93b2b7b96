// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package tracerd

import (
	"runtime/trace"
	"time"
)

// newRecorder starts the one FlightRecorder that a process may have.
func newRecorder(minAge time.Duration, maxBytes uint64) (Recorder, func(), string) {
	fr := trace.NewFlightRecorder(trace.FlightRecorderConfig{MinAge: minAge, MaxBytes: maxBytes})
	if err := fr.Start(); err != nil {
		return nil, nil, "the program runs a FlightRecorder already: pass it as Options.Recorder (" + err.Error() + ")"
	}
	return fr, fr.Stop, ""
}
