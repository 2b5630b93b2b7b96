// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package tracerd

import (
	"errors"
	"time"
)

// On other systems there is no tracerd.
type session struct {
	target string
	rings  noRings
}

type noRings struct{}

func (noRings) request(string)                {}
func (noRings) countSuppressedRequest()       {}
func (*session) close()                       {}
func (*session) interval() int64              { return 0 }
func (*session) region(string, time.Duration) {}
func defaultSocket() string                   { return DefaultSocket }

type stream struct{}

func newStream(uint64) (*stream, error) { return nil, errors.New("tracerd is for Linux") }
func (*stream) stop()                   {}
func (*stream) lost() uint64            { return 0 }
func (*stream) ended() error            { return nil }
func (a *Agent) connectOnce() error     { return errors.New("tracerd is for Linux") }
