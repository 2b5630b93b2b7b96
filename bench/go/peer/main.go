// SPDX-License-Identifier: Apache-2.0

// Peer reads traces as bench-goreader does, with Go's own reader (golang.org/x/exp/trace), and prints the same lines: path, bytes,
// events, seconds of the fastest round, and the most memory of the process.
//
//	peer ROUNDS FILE...
package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/exp/trace"
)

func readAll(data []byte) (events int, err error) {
	r, err := trace.NewReader(bytes.NewReader(data))
	for err == nil {
		if _, err = r.ReadEvent(); err == nil {
			events++
		}
	}
	if err == io.EOF {
		err = nil
	}
	return events, err
}

func main() {
	rounds, err := strconv.Atoi(os.Args[1])
	for _, path := range os.Args[2:] {
		var data []byte
		if err == nil {
			data, err = os.ReadFile(path)
		}
		best, events := time.Duration(1<<62), 0
		for i := 0; i < rounds && err == nil; i++ {
			begin := time.Now()
			events, err = readAll(data)
			best = min(best, time.Since(begin))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, path, err)
			os.Exit(1)
		}
		var u syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
		fmt.Println(path, len(data), events, best.Seconds(), u.Maxrss*1024-int64(len(data)))
	}
}
