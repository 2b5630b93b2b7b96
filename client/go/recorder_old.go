// SPDX-License-Identifier: Apache-2.0

//go:build !go1.25

package tracerd

import (
	"runtime"
	"time"
)

func newRecorder(time.Duration, uint64) (Recorder, func(), string) {
	return nil, nil, "Go's execution trace needs Go 1.25 or newer; the program was built with " + runtime.Version()
}
